/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Requests by way of memory: who is heard, in which order, and what comes of scribbling. The clients here are hands that write. */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "shm_rig.h"
#include "../../include/proto/hatch.h"

struct hand {
	int fd, anchor;
	uint32_t client;
	uint64_t nonce[2];
	struct hatch *hatch;
};

static const char *const SPACE = "x";

/* The last descriptor that comes along is kept in *ret_fd; -1: none has come. */
static ssize_t receive(struct rig *r, int fd, void *ret, size_t n, int *ret_fd)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))];
	struct iovec iov = { ret, n };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
	ssize_t got;
	int fds[4];

	rig_turn(r);
	got = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	*ret_fd = -1;
	for (struct cmsghdr *h = CMSG_FIRSTHDR(&m); got > 0 && h; h = CMSG_NXTHDR(&m, h)) {
		size_t count = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		memcpy(fds, CMSG_DATA(h), count * sizeof(int));
		for (size_t i = 0; i + 1 < count; i++)
			close(fds[i]);
		*ret_fd = fds[count - 1];
	}
	return got;
}

static void attach(struct rig *r, struct hand *h, uint16_t minor)
{
	struct attach_hello m = { .head = { ATTACH_HELLO, sizeof m, 0 }, .magic = ATTACH_MAGIC, .major = ATTACH_MAJOR, .minor = minor,
				  .flags = ATTACH_INHERIT, .resume = h->client, .nonce = { h->nonce[0], h->nonce[1] } };
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	struct attach_welcome w;
	int fd;

	h->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	snprintf(a.sun_path, sizeof a.sun_path, "/proc/self/fd/%d/dlockd.sock", r->rundir);
	assert_int_equal(connect(h->fd, (struct sockaddr *)&a, sizeof a), 0);
	rig_turn(r);
	assert_int_equal(send(h->fd, &m, sizeof m, MSG_DONTWAIT), sizeof m);
	assert_int_equal(receive(r, h->fd, &w, sizeof w, &fd), sizeof w);
	assert_int_equal(w.head.error, 0);
	if (w.resumed) {
		close(fd);
		return;
	}
	h->anchor = fd;
	h->client = w.client;
	memcpy(h->nonce, w.nonce, sizeof h->nonce);
}

static uint32_t open_there(struct rig *r, struct hand *h, struct space *s, const char *name)
{
	struct attach_open m = { .mapped = s->generation, .space_len = 1, .name_len = (uint8_t)strlen(name) };
	struct attach_opened o;
	size_t n = ATTACH_OPEN_LEN(1, m.name_len);
	int fd;

	m.head = (struct attach_head){ ATTACH_OPEN, (uint16_t)n, 0 };
	memcpy(m.text, SPACE, 1);
	memcpy(m.text + 1, name, m.name_len);
	assert_int_equal(send(h->fd, &m, n, MSG_DONTWAIT), n);
	assert_int_equal(receive(r, h->fd, &o, sizeof o, &fd), sizeof o);
	assert_int_equal(o.head.error, 0);
	h->hatch = seg_hatch(s->base, h->client);
	return o.slot;
}

/* A client that has one name open. */
static struct hand hand_begin(struct rig *r, struct space *s)
{
	struct hand h = { 0 };

	attach(r, &h, ATTACH_MINOR);
	open_there(r, &h, s, "first");
	return h;
}

static void hand_end(struct rig *r, struct hand *h)
{
	close(h->fd);
	close(h->anchor);
	rig_turn(r);
}

static void say(struct hand *h, struct space *s)
{
	if (seg_hatch_say(s->base, h->client))
		assert_int_equal(write(s->bell_clients, "", 1), 1);
}

static void ask(struct hand *h, struct space *s, const char *name, uint8_t flags)
{
	h->hatch->open = (struct hatch_open){ .flags = flags, .len = (uint8_t)strlen(name) };
	memcpy(h->hatch->open.name, name, strlen(name));
	h->hatch->asked++;
	say(h, s);
}

static void drop(struct hand *h, struct space *s, uint32_t slot)
{
	h->hatch->drop[h->hatch->drops % HATCH_DROPS] = slot;
	h->hatch->drops++;
	say(h, s);
}

/* As a client does. Returns whether it had to ring. */
static bool drop_later(struct hand *h, struct space *s, uint32_t slot)
{
	bool rings;

	h->hatch->drop[h->hatch->drops % HATCH_DROPS] = slot;
	h->hatch->drops++;
	rings = seg_hatch_say_later(s->base, h->client);
	if (rings)
		assert_int_equal(write(s->bell_clients, "", 1), 1);
	return rings;
}

static bool answered(const struct hand *h)
{
	return h->hatch->answered == h->hatch->asked;
}

static uint32_t is_open(struct space *s, const char *name)
{
	return name_find(s, KIND_LOCK, name, strlen(name));
}

static uint32_t asked_and_opened(struct rig *r, struct hand *h, struct space *s, const char *name)
{
	ask(h, s, name, 0);
	rig_turn(r);
	assert_true(answered(h) && h->hatch->error == 0);
	assert_int_equal(h->hatch->slot, is_open(s, name));
	return h->hatch->slot;
}

static void opens_and_closes(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	struct space *s = rig_space(&r, SPACE);
	struct hand h = hand_begin(&r, s);
	uint32_t slot = asked_and_opened(&r, &h, s, "second");

	assert_int_equal(slot, asked_and_opened(&r, &h, s, "second"));
	assert_int_equal(name_at(s, slot)->opens, 1);
	drop(&h, s, slot);
	rig_turn(&r);
	assert_false(is_open(s, "second"));

	/* As much as there is room for, and all before the open that comes with it. */
	for (unsigned i = 0; i < HATCH_DROPS; i++) {
		char name[16];

		snprintf(name, sizeof name, "n%u", i);
		asked_and_opened(&r, &h, s, name);
	}
	assert_int_equal(s->names.n, 1 + HATCH_DROPS);
	for (unsigned i = 0; i < HATCH_DROPS; i++) {
		char name[16];

		snprintf(name, sizeof name, "n%u", i);
		h.hatch->drop[h.hatch->drops++ % HATCH_DROPS] = is_open(s, name);
	}
	asked_and_opened(&r, &h, s, "n0");
	assert_int_equal(s->names.n, 2);

	/* And before what is said by the socket afterwards. */
	h.hatch->drop[h.hatch->drops++ % HATCH_DROPS] = is_open(s, "n0");
	slot = open_there(&r, &h, s, "n0");
	assert_int_equal(is_open(s, "n0"), slot);
	assert_int_equal(name_at(s, slot)->opens, 1);
	hand_end(&r, &h);
	assert_int_equal(s->names.n, 0);
	rig_done(&r);
}

static void awake_or_not(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	struct space *s = rig_space(&r, SPACE);
	struct hand h = hand_begin(&r, s);

	assert_int_equal(*seg_awake(s->base), SEG_ASLEEP);
	ask(&h, s, "rung", 0);
	while (!answered(&h))
		fake_loop_turn(r.loop);
	assert_int_equal(*seg_awake(s->base), SEG_AWAKE);        /* it has just worked */
	h.hatch->open.name[0] = 'q';
	h.hatch->asked++;
	assert_false(seg_hatch_say(s->base, h.client));
	fake_loop_turn(r.loop);
	assert_true(answered(&h) && is_open(s, "qung"));
	rig_turn(&r);
	assert_int_equal(*seg_awake(s->base), SEG_DOZES);        /* it sleeps */
	assert_null(r.shm->hot);
	fake_loop_advance(r.loop, 10 * NSEC_PER_MSEC);
	assert_int_equal(*seg_awake(s->base), SEG_ASLEEP);
	assert_true(fake_loop_next_timer(r.loop) == NSEC_NEVER);  /* and nothing wakes it */

	/* Said before it sleeps, which it does not then. */
	ask(&h, s, "rung again", 0);
	while (!answered(&h))
		fake_loop_turn(r.loop);
	h.hatch->asked++;
	assert_false(seg_hatch_say(s->base, h.client));
	assert_false(r.shm->look.rest(r.shm));
	assert_int_equal(*seg_awake(s->base), SEG_AWAKE);
	rig_turn(&r);
	assert_true(answered(&h));

	/* Bits without anything behind them end it soon, and so do rings. */
	for (unsigned i = 0; i < 2; i++) {
		unsigned vain = 0;

		ask(&h, s, "and again", 0);
		while (!answered(&h))
			fake_loop_turn(r.loop);
		while (i ? seg_ring(s->base) : !seg_hatch_say(s->base, h.client)) {
			fake_loop_turn(r.loop);
			assert_true(++vain <= 10);
		}
		rig_turn(&r);
	}
	hand_end(&r, &h);
	rig_done(&r);
}

/* Nobody is woken for it where the daemon will look anyway, and it is heard with what comes next, or by itself. */
static void closes_in_no_hurry(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	struct space *s = rig_space(&r, SPACE);
	struct hand h = hand_begin(&r, s);
	uint32_t slot = asked_and_opened(&r, &h, s, "a");

	assert_int_equal(*seg_awake(s->base), SEG_DOZES);
	assert_false(drop_later(&h, s, slot));
	rig_turn(&r);
	assert_true(is_open(s, "a"));
	asked_and_opened(&r, &h, s, "b");
	assert_false(is_open(s, "a"));

	assert_false(drop_later(&h, s, is_open(s, "b")));
	fake_loop_advance(r.loop, 10 * NSEC_PER_MSEC);
	assert_false(is_open(s, "b"));

	/* While it stays awake. */
	slot = asked_and_opened(&r, &h, s, "c");
	ask(&h, s, "d", 0);
	while (!answered(&h))
		fake_loop_turn(r.loop);
	assert_int_equal(*seg_awake(s->base), SEG_AWAKE);
	assert_false(drop_later(&h, s, slot));
	fake_loop_turn(r.loop);
	fake_loop_advance(r.loop, 10 * NSEC_PER_MSEC);
	assert_false(is_open(s, "c"));

	/* When it sleeps for good it is rung. */
	assert_int_equal(*seg_awake(s->base), SEG_ASLEEP);
	assert_true(drop_later(&h, s, is_open(s, "d")));
	rig_turn(&r);
	assert_false(is_open(s, "d"));
	hand_end(&r, &h);
	rig_done(&r);
}

/* What is rung for is seen also where only memory says so; as by the bell, and with its ration. */
static void rung_by_memory(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	struct space *s = rig_space(&r, SPACE);
	struct hand h = hand_begin(&r, s);
	uint32_t slot = is_open(s, "first");

	assert_false(seg_ring(s->base));         /* it sleeps */
	ask(&h, s, "wakes", 0);
	while (!answered(&h))
		fake_loop_turn(r.loop);
	rig_say(s, slot);
	assert_true(seg_ring(s->base));
	assert_int_equal(r.wants, 0);
	rig_turn(&r);
	assert_int_equal(r.wants, 1);
	assert_true(LOCK_LOAD(rig_word(s, slot)) & LOCK_L);

	/* A daemon that is killed while it is awake has not heard this; the next one looks through everything. */
	r.silent = true;
	slot = asked_and_opened(&r, &h, s, "rung for nobody");
	ask(&h, s, "wakes", 0);
	while (!answered(&h))
		fake_loop_turn(r.loop);
	rig_say(s, slot);
	assert_true(seg_ring(s->base));
	r.silent = false;
	rig_stop(&r);
	assert_int_equal(rig_adopt(&r), 0);
	s = space_find(r.shm, SPACE, 1);
	rig_turn(&r);
	assert_int_equal(*seg_awake(s->base), SEG_ASLEEP);
	assert_true(LOCK_LOAD(rig_word(s, slot)) & LOCK_L);
	hand_end(&r, &h);
	rig_done(&r);
}

static void waits_for_a_lease(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	struct space *s = rig_space(&r, SPACE);
	struct hand h = hand_begin(&r, s);

	r.silent = true;
	ask(&h, s, "granted", ATTACH_SOON);
	rig_turn(&r);
	assert_false(answered(&h));
	say(&h, s);                              /* which is not a second request */
	rig_turn(&r);
	assert_false(answered(&h));
	rig_grant(&r, s, is_open(s, "granted"));
	assert_true(answered(&h) && h.hatch->slot == is_open(s, "granted"));
	assert_int_equal(r.tries, 1);

	ask(&h, s, "late", ATTACH_SOON);
	fake_loop_advance(r.loop, 9 * NSEC_PER_MSEC);
	assert_false(answered(&h));
	fake_loop_advance(r.loop, NSEC_PER_MSEC);
	assert_true(answered(&h) && h.hatch->error == 0);

	/* Whoever says something more hears that first: here and there. */
	ask(&h, s, "first of two", ATTACH_SOON);
	rig_turn(&r);
	drop(&h, s, is_open(s, "late"));
	rig_turn(&r);
	assert_true(answered(&h));
	ask(&h, s, "then there", ATTACH_SOON);
	rig_turn(&r);
	assert_false(answered(&h));
	open_there(&r, &h, s, "by the socket");
	assert_true(answered(&h));

	/* The space is lost; the client dies. */
	ask(&h, s, "lost", ATTACH_SOON);
	rig_turn(&r);
	assert_false(answered(&h));
	space_break(s, "for a test");
	assert_true(answered(&h));
	s = rig_space(&r, SPACE);
	open_there(&r, &h, s, "anew");
	ask(&h, s, "dies", ATTACH_SOON);
	rig_turn(&r);
	assert_non_null(r.shm->kept);
	hand_end(&r, &h);
	fake_loop_advance(r.loop, 10 * NSEC_PER_MSEC);
	assert_null(r.shm->kept);
	rig_done(&r);
}

static void refused(struct rig *r, struct hand *h, struct space *s, const char *name, uint8_t flags, int error)
{
	ask(h, s, name, flags);
	rig_turn(r);
	assert_true(answered(h));
	assert_int_equal(h->hatch->error, error);
}

static void scribbles(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	struct space *s = rig_space(&r, SPACE);
	struct hand h = hand_begin(&r, s), other = hand_begin(&r, s);
	uint32_t n = s->names.n;

	refused(&r, &h, s, "", 0, EINVAL);
	refused(&r, &h, s, "a\nb", 0, EINVAL);
	refused(&r, &h, s, "flags", 0x80, EINVAL);
	drop(&h, s, 0);
	drop(&h, s, SEG_SLOTS_MAX + 7);
	drop(&h, s, UINT32_MAX);
	drop(&h, s, 1000);
	rig_turn(&r);
	assert_int_equal(h.hatch->heard, h.hatch->drops);
	h.hatch->drops += 1000;
	say(&h, s);
	rig_turn(&r);
	assert_int_equal(h.hatch->heard, h.hatch->drops);
	h.hatch->heard -= 3;                     /* it says so itself */
	h.hatch->answered--;
	say(&h, s);
	rig_turn(&r);
	assert_int_equal(s->names.n, n);

	/* Bits of clients that are not there, or not in this space. */
	for (uint32_t i = 0; i < SEG_CLIENTS_MAX; i += 61)
		seg_hatch_say(s->base, i);
	assert_int_equal(write(s->bell_clients, "", 1), 1);
	rig_turn(&r);
	assert_null(s->bell_read);               /* it costs the space its bell for a while */
	fake_loop_advance(r.loop, 2 * NSEC_PER_MSEC);
	asked_and_opened(&r, &h, s, "good");

	/* Who may come in no more. */
	struct space_access nobody = { 4711, 4711, 0600 };

	if (geteuid() != 0) {
		space_set_access(s, &nobody);
		refused(&r, &h, s, "no more", 0, EACCES);
	}

	/* A file that is cut is noticed. */
	seg_hatch_say(s->base, h.client);
	assert_int_equal(ftruncate(s->fd, (off_t)SEG_AREA_OFF), 0);
	assert_int_equal(write(s->bell_clients, "", 1), 1);
	rig_turn(&r);
	assert_true(s->broken || rig_space(&r, SPACE) != s);
	hand_end(&r, &h);
	hand_end(&r, &other);
	rig_done(&r);
}

static void connections_end(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	struct space *s = rig_space(&r, SPACE);
	struct hand h = hand_begin(&r, s), old = { 0 };
	uint32_t slot = asked_and_opened(&r, &h, s, "kept");

	/* Without a connection nobody is heard, and what was said then is void with the next one. */
	close(h.fd);
	rig_turn(&r);
	ask(&h, s, "unheard", 0);
	drop(&h, s, slot);
	rig_turn(&r);
	assert_true(!answered(&h) && is_open(s, "kept"));
	attach(&r, &h, ATTACH_MINOR);
	assert_true(answered(&h));
	assert_int_equal(h.hatch->heard, h.hatch->drops);
	say(&h, s);
	rig_turn(&r);
	assert_true(!is_open(s, "unheard") && is_open(s, "kept"));
	asked_and_opened(&r, &h, s, "heard");

	/* Another daemon: likewise, and it can be seen. */
	uint64_t era = *seg_era(s->base);

	ask(&h, s, "between", 0);
	drop(&h, s, slot);
	rig_stop(&r);
	assert_int_equal(rig_adopt(&r), 0);
	s = space_find(r.shm, SPACE, 1);
	h.hatch = seg_hatch(s->base, h.client);
	assert_true(*seg_era(s->base) != era);
	assert_int_equal(*seg_awake(s->base), SEG_ASLEEP);
	rig_turn(&r);
	assert_true(!is_open(s, "between") && is_open(s, "kept"));
	close(h.fd);
	attach(&r, &h, ATTACH_MINOR);
	rig_turn(&r);
	assert_true(answered(&h) && !is_open(s, "between") && is_open(s, "kept"));
	asked_and_opened(&r, &h, s, "between");

	/* A client that knows nothing of hatches has waiting threads where others have theirs. */
	attach(&r, &old, ATTACH_MINOR_HATCH - 1);
	open_there(&r, &old, s, "first");
	ask(&old, s, "never", 0);
	rig_turn(&r);
	assert_true(!answered(&old) && !is_open(s, "never"));
	hand_end(&r, &old);
	hand_end(&r, &h);
	assert_int_equal(s->names.n, 0);
	rig_done(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		STORY(opens_and_closes, "what a client says in its hatch is done, closes before opens, and all before what it says by the socket next"),
		STORY(awake_or_not, "the bell has to be rung where the daemon sleeps, and nothing is overheard between the two"),
		STORY(closes_in_no_hurry, "a close wakes nobody who looks in a few milliseconds anyway, and is heard then or with the next open"),
		STORY(rung_by_memory, "while the daemon is awake a ring is a word in memory, and one that nobody has heard is not lost"),
		STORY(waits_for_a_lease, "an open that is to be taken soon is answered with the lease, within ten milliseconds, or before anything else"),
		STORY(scribbles, "whoever scribbles into hatches and bits gets nothing by it"),
		STORY(connections_end, "without a connection nobody is heard, and what was said before is void"),
	};

	rig_private();
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
