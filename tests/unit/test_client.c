/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Clients: when they count as gone, and when they must not. */
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm_rig.h"

static bool gone(const struct rig *r, const struct rig_client *c)
{
	return !r->shm->clients[c->index] && !table_in_use(&r->shm->ledger.clients, c->index);
}

static void anchor_tells(void **state)
{
	struct rig_client a, b;
	struct space *s;
	uint32_t slot;
	struct rig r;
	int copy;

	(void)state;
	rig_open(&r);
	s = rig_space(&r, "x");
	a = rig_client(&r);
	b = rig_client(&r);
	slot = rig_name(&r, &a, s, "n");
	assert_int_equal(rig_name(&r, &b, s, "n"), slot);
	rig_want(s, slot);
	rig_turn(&r);
	assert_true(rig_take(s, slot, &a));
	copy = fcntl(a.anchor, F_DUPFD_CLOEXEC, 3);
	rig_client_end(&r, &a);
	assert_false(gone(&r, &a));              /* somebody has it still */
	close(copy);
	rig_turn(&r);
	assert_true(gone(&r, &a));
	assert_true(rig_said(&r, "owner-died x/n\n"));
	assert_true(rig_take(s, slot, &b));
	assert_true(LOCK_LOAD(rig_word(s, slot)) & LOCK_D);
	assert_int_equal(name_at(s, slot)->opens, 1);
	rig_client_end(&r, &b);
	rig_turn(&r);
	assert_int_equal(s->names.n, 1);         /* nobody has it open, but somebody is to be told */
	a = rig_client(&r);
	assert_int_equal(rig_name(&r, &a, s, "n"), slot);
	assert_true(rig_take(s, slot, &a));
	assert_true(LOCK_LOAD(rig_word(s, slot)) & LOCK_D);
	*rig_word(s, slot) &= ~(LOCK_D | LOCK_OWNER | LOCK_MODE);
	rig_client_end(&r, &a);
	assert_int_equal(s->names.n, 0);
	rig_done(&r);
}

static void lock_goes_last(void **state)
{
	struct rig_client a;
	struct rig r;
	char path[32];
	int other;

	(void)state;
	rig_open(&r);
	a = rig_client(&r);
	/* The kernel tells of the end first and gives the lock up later: another keeps it for that while. */
	snprintf(path, sizeof path, "anchor/%u", a.index);
	other = openat(r.rundir, path, O_WRONLY | O_CLOEXEC);
	assert_int_equal(flock(a.anchor, LOCK_UN), 0);
	assert_int_equal(flock(other, LOCK_EX | LOCK_NB), 0);
	close(a.anchor);
	rig_turn(&r);
	assert_false(gone(&r, &a));
	close(other);
	fake_loop_advance(r.loop, 3 * NSEC_PER_MSEC);
	assert_true(gone(&r, &a));
	assert_int_equal(fake_loop_next_timer(r.loop), NSEC_NEVER);
	rig_done(&r);
}

/* One that is looked at for long delays no other, and no other makes its looks fewer. */
static void two_suspects(void **state)
{
	struct rig_client a, b;
	char path[32];
	struct rig r;
	int fd[2];

	(void)state;
	rig_open(&r);
	a = rig_client(&r);
	b = rig_client(&r);
	snprintf(path, sizeof path, "anchor/%u", a.index);
	close(openat(r.rundir, path, O_RDONLY | O_CLOEXEC));     /* an event, and nothing behind it */
	fake_loop_advance(r.loop, 600 * NSEC_PER_MSEC);
	assert_false(gone(&r, &a));
	for (int i = 0; i < 2; i++) {
		struct rig_client *c = i ? &a : &b;

		snprintf(path, sizeof path, "anchor/%u", c->index);
		fd[i] = openat(r.rundir, path, O_WRONLY | O_CLOEXEC);
		flock(c->anchor, LOCK_UN);
		flock(fd[i], LOCK_EX | LOCK_NB);
		close(c->anchor);
		rig_turn(&r);
	}
	close(fd[0]);
	fake_loop_advance(r.loop, 2 * NSEC_PER_MSEC);
	assert_true(gone(&r, &b));
	fake_loop_advance(r.loop, 900 * NSEC_PER_MSEC);
	assert_false(gone(&r, &a));
	close(fd[1]);
	fake_loop_advance(r.loop, 400 * NSEC_PER_MSEC);
	assert_true(gone(&r, &a));
	assert_int_equal(fake_loop_next_timer(r.loop), NSEC_NEVER);
	rig_done(&r);
}

static void anchor_is_no_disk(void **state)
{
	struct rig_client a;
	struct rig r;

	(void)state;
	rig_open(&r);
	a = rig_client(&r);
	assert_int_equal(write(a.anchor, "x", 1), -1);
	assert_int_equal(ftruncate(a.anchor, 1 << 20), -1);
	assert_int_equal(fallocate(a.anchor, 0, 0, 1 << 20), -1);
	rig_client_end(&r, &a);
	rig_done(&r);
}

static void pidfd_tells(void **state)
{
	struct peer p = { .fd = -1, .pidfd = -1 };
	struct client *c;
	int anchor, status;
	struct rig r;

	(void)state;
	rig_open(&r);
	p.pid = fork();
	if (p.pid == 0) {
		pause();
		_exit(0);
	}
	p.pidfd = (int)syscall(SYS_pidfd_open, p.pid, 0);
	assert_int_equal(client_new(r.shm, &p, 0, &c, &anchor), 0);
	rig_turn(&r);
	assert_int_equal(r.shm->ledger.clients.n, 1);
	kill(p.pid, SIGKILL);
	waitpid(p.pid, &status, 0);
	rig_turn(&r);
	assert_int_equal(r.shm->ledger.clients.n, 0);    /* though its anchor is here */
	close(anchor);
	rig_turn(&r);
	rig_done(&r);
}

/* Takes every descriptor but n. */
static struct rlimit fds_short(int n)
{
	struct rlimit was, now;
	int top = open("/dev/null", O_RDONLY | O_CLOEXEC);

	getrlimit(RLIMIT_NOFILE, &was);
	now = was;
	now.rlim_cur = (rlim_t)(top + n);
	close(top);
	setrlimit(RLIMIT_NOFILE, &now);
	return was;
}

static void no_descriptors(void **state)
{
	struct rig_client a, b;
	struct rlimit was;
	struct peer p = { .fd = -1, .pid = getpid(), .pidfd = -1 };
	struct client *c;
	struct rig r;
	unsigned fds;
	int anchor, hold;

	(void)state;
	rig_open(&r);
	a = rig_client(&r);
	b = rig_client(&r);
	fds = rig_fds();
	was = fds_short(1);
	hold = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_int_equal(client_new(r.shm, &p, CLIENT_INHERIT, &c, &anchor), -EMFILE);
	assert_int_equal(dup2(hold, a.anchor), a.anchor);        /* closes the anchor, and no descriptor is free */
	fake_loop_advance(r.loop, 5 * NSEC_PER_MSEC);
	assert_int_equal(r.shm->ledger.clients.n, 2);
	setrlimit(RLIMIT_NOFILE, &was);
	fake_loop_advance(r.loop, 5 * NSEC_PER_MSEC);
	assert_true(gone(&r, &a));
	assert_false(gone(&r, &b));
	close(hold);
	assert_int_equal(rig_fds(), fds);
	close(a.anchor);
	rig_client_end(&r, &b);
	rig_done(&r);
}

static void adopted_without_descriptors(void **state)
{
	struct rig_client a;
	struct rlimit was;
	struct space *s;
	uint32_t slot;
	struct rig r;
	int e = -1;

	(void)state;
	rig_open(&r);
	s = rig_space(&r, "x");
	a = rig_client(&r);
	slot = rig_name(&r, &a, s, "n");
	rig_want(s, slot);
	rig_turn(&r);
	assert_true(rig_take(s, slot, &a));
	for (int n = 0; e < 0; n++) {
		rig_stop(&r);
		was = fds_short(n);
		e = rig_adopt(&r);
		setrlimit(RLIMIT_NOFILE, &was);
		assert_true(n < 64);
		if (e == -EBADF)
			e = -1;          /* the rig itself had none */
	}
	assert_true(table_in_use(&r.shm->ledger.clients, a.index));
	s = rig_space(&r, "x");
	assert_int_equal(LOCK_LOAD(rig_word(s, slot)) & LOCK_OWNER, a.index);    /* nobody took it for dead */
	rig_client_end(&r, &a);
	assert_true(gone(&r, &a));
	rig_done(&r);
}

static void overflow(void **state)
{
	struct inotify_event { int32_t wd; uint32_t mask, cookie, len; } ev = { -1, 0x4000, 0, 0 };
	struct rig_client a, b;
	char path[32];
	struct rig r;
	int other;

	(void)state;
	rig_open(&r);
	a = rig_client(&r);
	b = rig_client(&r);
	/* No event will tell of this one: its directory entry is not the one that is watched. */
	snprintf(path, sizeof path, "anchor/%u", a.index);
	other = openat(r.rundir, path, O_WRONLY | O_CLOEXEC);
	flock(a.anchor, LOCK_UN);
	anchors_events(r.shm, &ev, sizeof ev);
	assert_true(gone(&r, &a));
	assert_false(gone(&r, &b));
	close(other);
	close(a.anchor);
	rig_client_end(&r, &b);
	assert_int_equal(r.shm->ledger.clients.n, 0);
	rig_done(&r);
}

static void index_again(void **state)
{
	struct rig_client a, b;
	struct space *s;
	struct rig r;

	(void)state;
	rig_open(&r);
	s = rig_space(&r, "x");
	a = rig_client(&r);
	rig_name(&r, &a, s, "n");
	flock(a.anchor, LOCK_UN);                /* it says of itself that it is dead, and stays */
	client_gone(r.shm, a.index, "test");
	b = rig_client(&r);
	assert_int_equal(b.index, a.index);
	close(a.anchor);                         /* an event with the number of b */
	fake_loop_advance(r.loop, 3 * NSEC_PER_SEC);
	assert_false(gone(&r, &b));
	assert_int_equal(fake_loop_next_timer(r.loop), NSEC_NEVER);
	rig_client_end(&r, &b);
	assert_true(gone(&r, &b));
	rig_done(&r);
}

static void hints(void **state)
{
	struct rig_client a, b;
	struct space *s;
	uint32_t slot;
	unsigned fds;
	struct rig r;
	char byte;
	int fd;

	(void)state;
	rig_open(&r);
	s = rig_space(&r, "x");
	a = rig_client(&r);
	b = rig_client(&r);
	slot = rig_name(&r, &a, s, "n");
	rig_name(&r, &b, s, "n");
	fds = rig_fds();
	assert_int_equal(hint_open(a.c, r.shm, s, slot + 1, &fd), -EINVAL);
	assert_int_equal(hint_open(a.c, r.shm, s, slot, &fd), 0);
	rig_want(s, slot);
	rig_turn(&r);
	assert_true(rig_take(s, slot, &a));
	assert_int_equal(read(fd, &byte, 1), -1);
	assert_false(rig_take(s, slot, &b));
	rig_watch(s, slot);
	rig_turn(&r);
	assert_int_equal(read(fd, &byte, 1), 1);
	rig_stop(&r);
	assert_int_equal(rig_adopt(&r), 0);
	s = rig_space(&r, "x");
	space_break(s, "test");
	assert_int_equal(read(fd, &byte, 1), 1);         /* through the daemon's successor too */
	close(fd);
	rig_client_end(&r, &a);
	rig_client_end(&r, &b);
	fake_loop_advance(r.loop, NSEC_PER_SEC);
	assert_true(rig_fds() <= fds);
	rig_done(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		STORY(anchor_tells, "a client is gone when the last copy of its anchor is, and what it owned is free"),
		STORY(lock_goes_last, "an anchor's end is believed though its lock goes a moment later"),
		STORY(two_suspects, "one anchor that is looked at for long delays no other"),
		STORY(anchor_is_no_disk, "nobody can fill the run directory through an anchor"),
		STORY(pidfd_tells, "a client is gone when its process is, whoever has its anchor"),
		STORY(no_descriptors, "an end that comes while there are no descriptors is found later"),
		STORY(adopted_without_descriptors, "a restart without descriptors fails, and declares nobody dead"),
		STORY(overflow, "after an overflow of events every anchor is looked at"),
		STORY(index_again, "an index that is used again does not end with its last owner's anchor"),
		STORY(hints, "a hint rings for the holder, over a restart, and its FIFO goes with the client"),
	};

	rig_private();
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
