/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A hostile client, of a space of its own, while others use another: it writes random bytes all over
 * its segment, which has things of all kinds, truncates, punches and enlarges it, drains and floods the bell, opens thousands of
 * names and connections, and sends random bytes to both sockets. The others notice next to nothing,
 * and when it is gone the daemon is as idle as before.
 */
#include <dlock.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "proto/attach.h"
#include "proto/hatch.h"
#include "proto/kind.h"
#include "proto/lockword.h"
#include "proto/segment.h"

#define TRIPS_MAX 200000
#define BUSY_NS   (20 * MS)              /* what a busy machine adds to one trip in a hundred */
#define TRIES     6                      /* where it adds more, or has no time for the hostile */

static struct daemon daemon_;
static unsigned seconds;

/* --- A client that keeps to nothing but the protocol, and not always to that --- */

struct evil {
	int fd, anchor, segment, bell;
	char *base;
	uint32_t slot, client;
	uint64_t generation;
};

static int connect_to(const char *name, int type)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
	struct timeval limit = { .tv_sec = 5 };

	snprintf(a.sun_path, sizeof a.sun_path, "%s/%s", harness.run, name);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
	if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0)
		return fd;
	close(fd);
	return -1;
}

static ssize_t answer(int fd, void *packet, size_t size, int *ret_fds)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))];
	struct iovec iov = { packet, size };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
	ssize_t n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
	struct cmsghdr *h = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;

	ret_fds[0] = ret_fds[1] = -1;
	if (h && h->cmsg_type == SCM_RIGHTS)
		memcpy(ret_fds, CMSG_DATA(h), h->cmsg_len - CMSG_LEN(0));
	return n;
}

static bool evil_hello(struct evil *e)
{
	struct attach_hello h = { .head = { ATTACH_HELLO, sizeof h, 0 }, .magic = ATTACH_MAGIC, .major = ATTACH_MAJOR,
				  .minor = ATTACH_MINOR };
	struct attach_welcome w;
	int fds[2];

	*e = (struct evil){ .fd = connect_to("dlockd.sock", SOCK_SEQPACKET), .anchor = -1, .segment = -1, .bell = -1 };
	if (e->fd < 0 || send(e->fd, &h, sizeof h, MSG_NOSIGNAL) < 0 || answer(e->fd, &w, sizeof w, fds) != sizeof w || w.head.error)
		return false;
	close(fds[0]);
	e->anchor = fds[1];
	e->client = w.client;
	return true;
}

static int evil_open_as(struct evil *e, const char *name, enum kind kind, uint32_t arg)
{
	struct attach_open m = { .mapped = e->generation, .space_len = 4, .name_len = (uint8_t)strlen(name), .kind = (uint8_t)kind, .arg = arg };
	size_t n = ATTACH_OPEN_LEN(4, m.name_len);
	struct attach_opened o;
	int fds[2];

	m.head = (struct attach_head){ ATTACH_OPEN, (uint16_t)n, 0 };
	memcpy(m.text, "evil", 4);
	memcpy(m.text + 4, name, m.name_len);
	if (send(e->fd, &m, n, MSG_NOSIGNAL) < 0 || answer(e->fd, &o, sizeof o, fds) != sizeof o)
		return -ECONNRESET;
	if (o.head.error)
		return -o.head.error;
	e->slot = o.slot;
	if (fds[0] < 0)
		return 0;
	if (e->base)
		munmap(e->base, SEG_FILE_SIZE);
	close(e->segment);
	close(e->bell);
	e->segment = fds[0];
	e->bell = fds[1];
	e->generation = o.generation;
	e->base = mmap(NULL, SEG_FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, e->segment, 0);
	return e->base == MAP_FAILED ? -ENOMEM : 0;
}

static int evil_open(struct evil *e, const char *name)
{
	return evil_open_as(e, name, KIND_LOCK, 0);
}

/* A few of each kind; what is not accepted is not. */
static void evil_open_all(struct evil *e)
{
	char name[16];

	for (unsigned i = 0; i < 8 * KINDS; i++) {
		snprintf(name, sizeof name, "k%u", i / KINDS);
		if (evil_open_as(e, name, i % KINDS, i % KINDS == KIND_LOCK || i % KINDS == KIND_ELECT ? 0 : 1 + random_below(5)) == -ECONNRESET)
			return;
	}
}

static void evil_done(struct evil *e)
{
	if (e->base)
		munmap(e->base, SEG_FILE_SIZE);
	close(e->fd);
	close(e->anchor);
	close(e->segment);
	close(e->bell);
}

/* --- What it does: each for a while, again and again --- */

static uint64_t random_word(void)
{
	return (uint64_t)random_below(UINT32_MAX) << 32 | random_below(UINT32_MAX);
}

/* Where there is memory; elsewhere it would only fill its own file. */
static void scribble(struct evil *e)
{
	static const struct { enum kind kind; uint32_t arg; } things[] = { { KIND_LOCK, 0 }, { KIND_SEM, 3 }, { KIND_POOL, 0 } };
	char name[16];

	evil_open_all(e);
	for (int i = 0; i < 300; i++) {
		snprintf(name, sizeof name, "n%d", i);
		if (evil_open_as(e, name, things[i % 3].kind, things[i % 3].arg) < 0)
			break;
	}
	for (int i = 0; e->base && i < 200000; i++) {
		uint32_t slot = random_below(512);
		uint64_t v = random_below(3) ? random_word() : random_below(2) ? random_below(4) : LOCK_W;

		switch (random_below(12)) {
		case 10: ((uint64_t *)seg_hatch(e->base, e->client))[random_below(sizeof(struct hatch) / 8)] = v; break;
		case 11: seg_hatch_say(e->base, random_below(4) ? e->client : random_below(SEG_CLIENTS_MAX)); break;
		case 0: seg_slot(e->base, slot)->word = v; break;
		case 1: seg_slot(e->base, slot)->bias = v; break;
		case 2: seg_level1(e->base, SEG_WANT)[slot / 64] = v; break;
		case 3: seg_level1(e->base, SEG_WATCH)[slot / 64] = v; break;
		case 4: seg_level2(e->base, slot & 1)[0] = v; break;
		case 6: ((uint64_t *)seg_slot(e->base, slot))[random_below(8)] = v; break;
		case 7: seg_line(e->base, slot)[random_below(SEG_LINE_CELLS)] = v; break;
		case 8: ((uint64_t *)(e->base + SEG_VALUE_OFF + (uint64_t)(slot % 64) * SEG_VALUE_SIZE))[random_below(random_below(2) ? 8 : 512)] = v; break;
		case 5: memcpy((char *)seg_cells(e->base, e->client) + slot % 500 * 8, &v, 8); break;
		default: ((uint64_t *)seg_slot(e->base, slot))[3 + random_below(5)] = v; break;
		}
		if (i % 16 == 0 && write(e->bell, "", 1) < 0)
			fcntl(e->bell, F_SETFL, O_NONBLOCK);
	}
}

static void cut(struct evil *e)
{
	for (int i = 0; i < 100; i++) {
		if (evil_open(e, "n") < 0) {
			nap_ns(10 * MS);
			continue;
		}
		switch (random_below(4)) {
		case 0: (void)!ftruncate(e->segment, 0); break;
		case 1: (void)!ftruncate(e->segment, (off_t)SEG_SIZE + random_below(1 << 20)); break;
		case 2: (void)!fallocate(e->segment, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)SEG_SIZE); break;
		case 3: (void)!ftruncate(e->segment, random_below(SEG_SIZE)); break;
		}
		(void)!write(e->bell, "", 1);
	}
}

static void ring(struct evil *e)
{
	char bytes[4096] = { 0 };

	if (evil_open(e, "n") < 0)
		return;
	fcntl(e->bell, F_SETFL, O_NONBLOCK);
	for (int i = 0; i < 200000; i++) {
		if (random_below(8))
			(void)!write(e->bell, bytes, random_below(2) ? 1 : sizeof bytes);
		else
			(void)!read(e->bell, bytes, sizeof bytes);
	}
}

static void half_open(struct evil *e)
{
	int fd[400];

	(void)e;
	for (int i = 0; i < 400; i++)
		fd[i] = connect_to("dlockd.sock", SOCK_SEQPACKET);
	nap_ns(100 * MS);
	for (int i = 0; i < 400; i++)
		close(fd[i]);
}

static void many_names(struct evil *e)
{
	char name[200];

	memset(name, 'x', sizeof name);
	name[199] = 0;
	for (int i = 0; i < 10000; i++) {
		int n = snprintf(name, sizeof name, "%d", i);

		if (i % 2)
			name[n] = 'x';
		if (evil_open(e, name) < 0)
			return;
	}
}

static void random_bytes(struct evil *e)
{
	char bytes[600];

	(void)e;
	for (int i = 0; i < 300; i++) {
		bool attach = random_below(2);
		int fd = connect_to(attach ? "dlockd.sock" : "io.dlock", attach ? SOCK_SEQPACKET : SOCK_STREAM);

		for (size_t k = 0; k < sizeof bytes; k++)
			bytes[k] = (char)random_below(256);
		for (int k = 0; k < 5 && fd >= 0; k++)
			(void)!send(fd, bytes, random_below(sizeof bytes), MSG_NOSIGNAL | MSG_DONTWAIT);
		close(fd);
	}
}

static void (*const deeds[])(struct evil *e) = { scribble, cut, ring, half_open, many_names, random_bytes };

#define N_DEEDS (sizeof deeds / sizeof *deeds)

/* Processes of their own: what it does to its memory may end it. */
static void be_hostile(unsigned which, uint64_t until)
{
	for (unsigned n = which; now_ns() < until; n++) {
		pid_t pid;
		struct evil e;

		random_below(2);                 /* each child goes on from here */
		pid = fork();
		if (pid == 0) {
			if (evil_hello(&e)) {
				deeds[n % N_DEEDS](&e);
				evil_done(&e);
			}
			_exit(0);
		}
		while (waitpid(pid, NULL, WNOHANG) == 0 && now_ns() < until)
			nap_ns(5 * MS);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
}

/* It is the daemon that is tested, and not how the scheduler shares a busy machine. */
static bool before_all_others(pid_t pid)
{
	struct sched_param first = { .sched_priority = 1 };

	return sched_setscheduler(pid, SCHED_FIFO, &first) == 0;
}

static pid_t start_hostile(unsigned which, uint64_t until)
{
	pid_t pid = fork();

	if (pid == 0) {
		end_with_parent();
		sched_setscheduler(0, SCHED_OTHER, &(struct sched_param){ 0 });
		setpriority(PRIO_PROCESS, 0, 10);
		be_hostile(which, until);
		_exit(0);
	}
	return pid;
}

/* --- The others --- */

static int by_length(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

struct trips {
	uint64_t n, p50, p99, longest;
	int error;
};

/* A name that nobody has open: to open, to take and to close it are trips through the daemon. */
static struct trips travel(uint64_t until)
{
	static uint64_t took[TRIPS_MAX];
	struct trips t = { 0 };

	while (now_ns() < until && t.n < TRIPS_MAX && !t.error) {
		uint64_t began = now_ns();
		char name[32];
		dlock_t *l;

		snprintf(name, sizeof name, "good/t%u", (unsigned)t.n);
		t.error = dlock_open(&l, name, NULL);
		if (!t.error)
			t.error = dlock_wait(l);
		if (!t.error)
			t.error = dlock_post(l);
		if (!t.error)
			t.error = dlock_close(l);
		took[t.n++] = now_ns() - began;
		nap_ns(MS / 2);
	}
	qsort(took, t.n, sizeof *took, by_length);
	t.p50 = took[t.n / 2];
	t.p99 = took[t.n * 99 / 100];
	t.longest = took[t.n - 1];
	return t;
}

static void tell(const char *when, const struct trips *t)
{
	note("%s: %llu trips, median %.3f ms, p99 %.3f ms, longest %.3f ms", when, (unsigned long long)t->n,
	     (double)t->p50 / 1e6, (double)t->p99 / 1e6, (double)t->longest / 1e6);
}

/* In ticks of 10 ms. */
static long daemon_ticks(void)
{
	char path[40], text[1024], *at;
	long user = 0, system = 0;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)daemon_.pid);
	read_file(path, text, sizeof text);
	at = strrchr(text, ')');
	if (at)
		sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %ld %ld", &user, &system);
	return user + system;
}

static long daemon_wakes(void)
{
	char path[40], text[4096], *at;

	snprintf(path, sizeof path, "/proc/%d/status", (int)daemon_.pid);
	read_file(path, text, sizeof text);
	at = strstr(text, "\nvoluntary_ctxt_switches:");
	return at ? atol(at + 25) : -1;
}

static void becomes_idle(void)
{
	long ticks = 1, wakes = 1;

	for (uint64_t end = now_ns() + PATIENCE_MS * MS; (ticks || wakes) && now_ns() < end;) {
		ticks = -daemon_ticks();
		wakes = -daemon_wakes();
		nap_ns(1000 * MS);
		ticks += daemon_ticks();
		wakes += daemon_wakes();
	}
	ok(ticks == 0 && wakes == 0, "afterwards the daemon neither runs nor wakes (%ld ticks, %ld wake-ups in a second)", ticks, wakes);
}

static bool has_told(void)
{
	return daemon_said("it starts anew") && daemon_said("is no request");
}

int main(void)
{
	struct trips before, during;
	dlock_t *precious;
	uint64_t token, again, until, limit = 0;
	pid_t hostile[2];
	long clients;

	harness_begin(120);
	seconds = harness.full ? 60 : 12;
	daemon_started(&daemon_);
	if (before_all_others(0))
		before_all_others(daemon_.pid);
	if (dlock_open(&precious, "good/precious", NULL) != 0 || dlock_wait(precious) != 0 || dlock_token(precious, &token) != 0)
		give_up("no lock");
	clients = status_number("clients");
	travel(now_ns() + 500 * MS);
	before = travel(now_ns() + 3000 * MS);
	tell("alone", &before);
	for (unsigned tries = 0; tries < TRIES; tries++) {
		until = now_ns() + seconds * 1000 * MS;
		for (unsigned i = 0; i < 2; i++)
			hostile[i] = start_hostile(i * N_DEEDS / 2 + tries, until);
		during = travel(until);
		tell("beside a hostile client", &during);
		for (int i = 0; i < 2; i++)
			waitpid(hostile[i], NULL, 0);
		limit = 3 * before.p99 + BUSY_NS;
		if (daemon_ended(&daemon_, 0) || during.error || (during.p99 <= limit && has_told()))
			break;
	}
	ok(!daemon_ended(&daemon_, 0), "the daemon lives");
	ok(during.n > 0 && during.error == 0, "all locks of the other space could be opened, taken, released and closed (%d)", during.error);
	ok(during.p99 <= limit, "99 of 100 trips took at most three times as long as before (%.3f ms, %.3f ms)",
	   (double)during.p99 / 1e6, (double)before.p99 / 1e6);
	ok(dlock_check(precious) == 0 && dlock_token(precious, &again) == 0 && again == token, "what was held is held, under its token");
	ok(has_told(), "the log tells what happened");
	becomes_idle();
	ok(status_number("clients") == clients, "only those who behave are left");
	ok(dlock_post(precious) == 0 && dlock_close(precious) == 0, "and all goes on");
	daemon_end(&daemon_, SIGTERM);
	ok(WIFEXITED(daemon_.status) && WEXITSTATUS(daemon_.status) == 0, "the daemon ends in good order");
	return harness_end();
}
