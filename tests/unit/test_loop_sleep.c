/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The loop as a whole: it sleeps when nothing happens, stays right in a storm, and says why when
 * there is no io_uring. LOOP_SEED=N repeats a run whose seed was printed.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "loop_fixture.h"

#include "../../daemon/loop/internal.h"

/* --- sleep --- */

static long switches_of(pid_t tid)
{
	char path[64], line[256];
	long n = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/status", tid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "voluntary_ctxt_switches: %ld", &n) == 1)
			break;
	if (f)
		fclose(f);
	return n;
}

struct observer {
	pid_t tid;
	int fd;
	long before, after;
};

static void *observe(void *arg)
{
	struct observer *o = arg;

	/* Again where it woke: a busy machine may have put off what it had to do before. */
	for (int tries = 0; tries < 10; tries++) {
		usleep(200000);
		o->before = switches_of(o->tid);
		usleep(1000000);
		o->after = switches_of(o->tid);
		if (o->after == o->before)
			break;
	}
	raise_event(o->fd);
	return NULL;
}

static void idle_loop_does_not_wake(void **state)
{
	struct seen seen = {.stop_after = 1}, quiet = {0};
	struct observer o = {.tid = gettid(), .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
	struct loop_watch *watch, *others[100];
	int fd = eventfd(0, EFD_CLOEXEC);
	struct loop_timer far;
	pthread_t thread;
	nsec_t cpu;

	(void)state;
	loop_set_spin(loop, 20 * NSEC_PER_USEC);
	loop_timer_init(&far, stop_with, (void *)1);
	loop_timer_set(loop, &far, boottime() + 3600 * NSEC_PER_SEC);
	for (size_t i = 0; i < LENGTH(others); i++)
		assert_int_equal(loop_watch(loop, fd, POLLIN, see_ready, &quiet, &others[i]), 0);
	assert_int_equal(loop_watch(loop, o.fd, POLLIN, see_ready, &seen, &watch), 0);
	cpu = cpu_time();
	assert_int_equal(pthread_create(&thread, NULL, observe, &o), 0);
	assert_int_equal(loop_run(loop), 0);
	pthread_join(thread, NULL);
	assert_true(o.before > 0);
	assert_int_equal(o.before, o.after);
	assert_true(cpu_time() - cpu < 50 * NSEC_PER_MSEC);
	loop_timer_cancel(loop, &far);
	close(o.fd);
	close(fd);
}

#define TRIPS 2000

static void *answer(void *arg)
{
	int fd = *(int *)arg;
	char byte;

	while (recv(fd, &byte, 1, 0) == 1)
		send(fd, &byte, 1, MSG_NOSIGNAL);
	return NULL;
}

static void send_again(void *arg, const void *data, ssize_t n)
{
	int *fd = arg;
	static int trips;

	assert_int_equal(n, 1);
	if (++trips == TRIPS)
		loop_stop(loop, 0);
	else
		assert_int_equal(send(*fd, data, 1, 0), 1);
}

static void spinning_loop_hears_as_a_sleeping_one_does(void **state)
{
	struct loop_recv *recv;
	pthread_t thread;
	int pair[2];

	(void)state;
	loop_set_spin(loop, 50 * NSEC_PER_USEC);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(pthread_create(&thread, NULL, answer, &pair[1]), 0);
	assert_int_equal(loop_recv_start(loop, pair[0], send_again, &pair[0], &recv), 0);
	send(pair[0], "x", 1, 0);
	assert_int_equal(run_for(PATIENCE), 0);
	loop_recv_stop(recv);
	shutdown(pair[1], SHUT_RDWR);
	pthread_join(thread, NULL);
	close_all(pair, 2);
}

static struct loop_watch *second_watch;

static void stop_when_ready(void *arg, uint32_t revents)
{
	(void)arg, (void)revents;
	loop_stop(loop, 0);
}

static void watch_the_same(void *arg, uint32_t revents)
{
	(void)revents;
	assert_int_equal(
		loop_watch(loop, *(int *)arg, POLLIN, stop_when_ready, NULL, &second_watch), 0);
}

static void spinning_loop_first_submits_what_was_asked_for(void **state)
{
	int fd = eventfd(1, EFD_CLOEXEC);
	struct loop_watch *watch;
	nsec_t begin = boottime();

	(void)state;
	loop_set_spin(loop, 2 * PATIENCE);
	assert_int_equal(loop_watch(loop, fd, POLLIN, watch_the_same, &fd, &watch), 0);
	assert_int_equal(loop_run(loop), 0);
	assert_true(boottime() - begin < PATIENCE);
	loop_unwatch(watch);
	loop_unwatch(second_watch);
	close(fd);
}

/* --- a storm --- */

#define PLACES 64

struct place {
	struct loop_recv *recv;
	struct loop_watch *watch;
	struct loop_timer timer;
	int pair[2];
	bool open;
};

static struct {
	struct place places[PLACES];
	unsigned seed;
	long events, kinds[4];
} storm;

static void storm_step(void);

static void storm_bytes(void *arg, const void *data, ssize_t n)
{
	struct place *p = arg;

	assert_true(p->open && p->recv);
	assert_true(n <= 0 || *(const char *)data == (char)(p - storm.places));
	storm_step();
}

static void storm_ready(void *arg, uint32_t revents)
{
	struct place *p = arg;

	assert_true(p->open && p->watch && revents);
	storm_step();
}

static void storm_timer(void *arg)
{
	assert_true(((struct place *)arg)->open);
	storm_step();
}

static void place_open(struct place *p)
{
	assert_int_equal(
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, p->pair), 0);
	assert_int_equal(loop_recv_start(loop, p->pair[0], storm_bytes, p, &p->recv), 0);
	assert_int_equal(
		loop_watch(loop, p->pair[0], POLLIN | POLLRDHUP, storm_ready, p, &p->watch), 0);
	loop_timer_init(&p->timer, storm_timer, p);
	p->open = true;
}

static void place_close(struct place *p)
{
	loop_recv_stop(p->recv);
	loop_unwatch(p->watch);
	loop_timer_cancel(loop, &p->timer);
	close_all(p->pair, 2);
	*p = (struct place){0};
}

static void storm_step(void)
{
	storm.events++;
	for (int i = 0; i < 2; i++) {
		struct place *p = &storm.places[rand_r(&storm.seed) % PLACES];
		char byte = (char)(p - storm.places);
		int kind = rand_r(&storm.seed) % 4;

		storm.kinds[kind]++;
		if (!p->open)
			place_open(p);
		else if (kind == 0)
			place_close(p);
		else if (kind == 1)
			loop_timer_set(loop, &p->timer,
				loop_now(loop) + rand_r(&storm.seed) % NSEC_PER_MSEC);
		else if (kind == 2 || rand_r(&storm.seed) % 16)
			(void)!send(p->pair[1], &byte, 1, MSG_NOSIGNAL);
		else
			shutdown(p->pair[1], SHUT_WR);
	}
}

static void storm_gust(void *arg)
{
	(void)arg;
	storm_step();
}

/*
 * Whoever hears something opens, closes, sends and sets at random. Nobody is called after it was
 * stopped.
 */
static void storm_of_starts_and_stops_calls_nobody_that_was_stopped(void **state)
{
	struct loop_timer gust;

	(void)state;
	memset(&storm, 0, sizeof(storm));
	storm.seed = fixture_seed();
	loop_timer_init(&gust, storm_gust, NULL);
	for (int i = 0; i < 100; i++) {
		loop_timer_set(loop, &gust, 0);
		assert_int_equal(run_for(3 * NSEC_PER_MSEC), 99);
	}
	for (size_t i = 0; i < LENGTH(storm.kinds); i++)
		assert_true(storm.kinds[i] > 10);
	for (size_t i = 0; i < PLACES; i++)
		if (storm.places[i].open)
			place_close(&storm.places[i]);
}

/* --- no io_uring --- */

static int refuse_io_uring(int err)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)err),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = LENGTH(filter), .filter = filter};

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/*
 * In a child, since a filter stays. Its exit status: 0 if loop_create() failed so and is explained
 * so.
 */
static int status_when_refused(int refusal, int expected, const char *explained)
{
	pid_t pid = fork();
	int status = -1;

	if (pid == 0) {
		struct loop *l = NULL;
		int err = -1;

		if (refuse_io_uring(refusal) == 0)
			err = loop_create(&l);
		if (err != expected || l || !strstr(loop_explain(err), explained)) {
			fprintf(stderr, "# %d: %s\n", err, loop_explain(err));
			_exit(1);
		}
		_exit(0);
	}
	waitpid(pid, &status, 0);
	return status;
}

static void refused_io_uring_is_explained(void **state)
{
	(void)state;
	assert_int_equal(status_when_refused(EPERM, -EPERM, "io_uring"), 0);
	assert_int_equal(status_when_refused(ENOSYS, -ENOSYS, "Linux 6.1"), 0);
	assert_int_equal(status_when_refused(EINVAL, -EOPNOTSUPP, "Linux 6.1"), 0);
	assert_int_equal(status_when_refused(ENOMEM, -ENOMEM, "RLIMIT_MEMLOCK"), 0);
}

/* --- crowds --- */

static void schedstat_says(int fd, unsigned waited_us, unsigned runs)
{
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	assert_true(dprintf(fd, "123456 %llu %u\n", waited_us * 1000ull, runs) > 0);
}

static void a_crowd_is_who_waits_for_the_processor(void **state)
{
	char path[] = "/tmp/schedstatXXXXXX";
	struct crowd c;
	nsec_t now = NSEC_PER_SEC;

	(void)state;
	crowd_init(&c);
	assert_true(c.fd >= 0);
	assert_false(crowd_is(&c, now) && c.runs == 0);  /* the kernel's own file is understood */
	assert_true(c.fd >= 0);
	crowd_done(&c);
	c = (struct crowd){ .fd = mkstemp(path) };
	unlink(path);
	schedstat_says(c.fd, 70, 10);
	assert_false(crowd_is(&c, now));
	schedstat_says(c.fd, 7000, 11);
	assert_false(crowd_is(&c, now += NSEC_PER_USEC));        /* it is not looked at all the time */
	assert_false(crowd_is(&c, now += NSEC_PER_MSEC));        /* once is no crowd */
	schedstat_says(c.fd, 7000, 20);
	assert_true(crowd_is(&c, now += NSEC_PER_MSEC));
	schedstat_says(c.fd, 7000, 40);
	assert_true(crowd_is(&c, now += NSEC_PER_MSEC));         /* believed for a while */
	assert_false(crowd_is(&c, now += 40 * NSEC_PER_MSEC));
	schedstat_says(c.fd, 7400, 80);                          /* 10 us each time */
	assert_true(crowd_is(&c, now += NSEC_PER_MSEC));
	assert_int_equal(ftruncate(c.fd, 0), 0);
	assert_false(crowd_is(&c, now += NSEC_PER_SEC)); /* nothing is known any more */
	assert_int_equal(c.fd, -1);
	assert_false(crowd_is(&c, now += NSEC_PER_SEC));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		story("an idle loop does not wake in a second", idle_loop_does_not_wake),
		story("a loop that spins hears as one that sleeps",
			spinning_loop_hears_as_a_sleeping_one_does),
		story("a loop that spins first submits what was asked for",
			spinning_loop_first_submits_what_was_asked_for),
		{"where a thread has to wait for its processor there is a crowd",
			a_crowd_is_who_waits_for_the_processor, NULL, NULL, NULL},
		story("in a storm of starts and stops nobody is called that was stopped",
			storm_of_starts_and_stops_calls_nobody_that_was_stopped),
		{"io_uring that is refused is an error that says what to do",
			refused_io_uring_is_explained, NULL, NULL, NULL},
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
