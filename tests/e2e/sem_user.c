/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A program for named POSIX semaphores, as any: it knows nothing of dlock. Compiled as it is, and once more with its calls
 * renamed (dlock/semaphore.h), it must say the same.
 */
#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ITEMS 2000
#define ROOM 8

static char slots_name[64], items_name[64], mutex_name[64];

static void say(const char *what, int r)
{
	printf("%s: %s\n", what, r == 0 ? "0" : strerror(errno));
}

static sem_t *open_new(const char *name, unsigned value)
{
	sem_t *s = sem_open(name, O_CREAT | O_EXCL, 0600, value);

	if (s == SEM_FAILED) {
		perror(name);
		exit(1);
	}
	return s;
}

static void value(const char *what, sem_t *s)
{
	int v = -1;

	if (sem_getvalue(s, &v))
		perror("sem_getvalue");
	printf("%s: value %d\n", what, v);
}

static void story_names(void)
{
	sem_t *a, *b;

	sem_unlink(mutex_name);
	errno = 0;
	a = sem_open(mutex_name, 0);
	printf("opening what is not there: %s\n", a == SEM_FAILED ? strerror(errno) : "?");
	a = sem_open(mutex_name, O_CREAT, 0600, 3);
	value("made", a);
	b = sem_open(mutex_name, O_CREAT, 0600, 7);
	value("opened again with another value", b);
	printf("the same address: %s\n", a == b ? "yes" : "no");
	b = sem_open(mutex_name, O_CREAT | O_EXCL, 0600, 1);
	printf("made a second time: %s\n", b == SEM_FAILED ? strerror(errno) : "?");
	say("close", sem_close(a));
	say("close", sem_close(a));
	a = sem_open(mutex_name, 0);
	value("after everybody has closed it", a);
	say("close", sem_close(a));
	say("unlink", sem_unlink(mutex_name));
	say("unlink again", sem_unlink(mutex_name));
}

static void story_counting(void)
{
	struct timespec past = { 1, 0 }, soon;
	sem_t *s = open_new(mutex_name, 2);

	say("wait", sem_wait(s));
	say("trywait", sem_trywait(s));
	say("trywait at 0", sem_trywait(s));
	say("timedwait at 0, long ago", sem_timedwait(s, &past));
	clock_gettime(CLOCK_REALTIME, &soon);
	soon.tv_nsec += 20000000;
	if (soon.tv_nsec >= 1000000000) {
		soon.tv_nsec -= 1000000000;
		soon.tv_sec++;
	}
	say("timedwait at 0, soon", sem_timedwait(s, &soon));
	for (int i = 0; i < 5; i++)
		sem_post(s);
	value("after five posts", s);
	say("timedwait at 5, long ago", sem_timedwait(s, &past));
	value("left", s);
	say("close", sem_close(s));
	say("unlink", sem_unlink(mutex_name));
}

static sem_t *handled;

static void on_alarm(int signo)
{
	(void)signo;
	sem_post(handled);
}

static void story_handler(void)
{
	handled = open_new(mutex_name, 0);
	value("before the signal", handled);
	signal(SIGALRM, on_alarm);
	ualarm(20000, 0);
	while (sem_wait(handled) && errno == EINTR)
		;
	printf("a post in a signal handler has come\n");
	say("unlink", sem_unlink(mutex_name));
	sem_post(handled);
	value("used after it was unlinked", handled);
	sem_close(handled);
}

struct ring {
	unsigned put, got;
	unsigned long sum;
	unsigned item[ROOM];
};

static void produce(struct ring *r, sem_t *slots, sem_t *items, sem_t *mutex, unsigned from)
{
	for (unsigned i = 0; i < ITEMS; i++) {
		sem_wait(slots);
		sem_wait(mutex);
		r->item[r->put++ % ROOM] = from + i;
		sem_post(mutex);
		sem_post(items);
	}
}

static void consume(struct ring *r, sem_t *slots, sem_t *items, sem_t *mutex)
{
	for (unsigned i = 0; i < ITEMS; i++) {
		sem_wait(items);
		sem_wait(mutex);
		r->sum += r->item[r->got++ % ROOM];
		sem_post(mutex);
		sem_post(slots);
	}
}

/* Two producers, two consumers, a ring with little room. */
static void story_ring(void)
{
	struct ring *r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	sem_t *slots = open_new(slots_name, ROOM), *items = open_new(items_name, 0), *mutex = open_new(mutex_name, 1);
	unsigned ended = 0;
	int status;

	fflush(stdout);
	for (unsigned i = 0; i < 4; i++) {
		if (fork())
			continue;
		if (i % 2)
			consume(r, slots, items, mutex);
		else
			produce(r, slots, items, mutex, i * ITEMS);
		_exit(0);
	}
	while (wait(&status) > 0)
		ended += status == 0;
	printf("%u processes have ended well; put %u, got %u, sum %lu\n", ended, r->put, r->got, r->sum);
	value("slots", slots);
	value("items", items);
	value("mutex", mutex);
	say("unlink", sem_unlink(slots_name));
	say("unlink", sem_unlink(items_name));
	say("unlink", sem_unlink(mutex_name));
}

int main(int argc, char **argv)
{
	const char *id = argc > 1 ? argv[1] : "test";

	snprintf(slots_name, sizeof slots_name, "/%s-slots", id);
	snprintf(items_name, sizeof items_name, "/%s-items", id);
	snprintf(mutex_name, sizeof mutex_name, "/%s-mutex", id);
	story_names();
	story_counting();
	story_handler();
	story_ring();
	return 0;
}
