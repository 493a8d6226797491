/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The attach socket, packet by packet: what is answered, what ends the connection, who is turned away. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "shm_rig.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

#define MS NSEC_PER_MSEC

struct answer {
	ssize_t n;                       /* 0: the connection has ended; -1: nothing has come */
	union {
		struct attach_head head;
		struct attach_welcome welcome;
		struct attach_nonce nonce;
		struct attach_opened opened;
		char bytes[ATTACH_PACKET_MAX];
	};
	int fd[4], n_fds;
};

/* The kernel remembers who connected; root may be anybody for that moment. */
static int connect_as(struct rig *r, uid_t uid)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	snprintf(a.sun_path, sizeof a.sun_path, "/proc/self/fd/%d/dlockd.sock", r->rundir);
	if (uid != geteuid())
		assert_int_equal(seteuid(uid), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
	if (getuid() != geteuid())
		assert_int_equal(seteuid(getuid()), 0);
	rig_turn(r);
	return fd;
}

static int connect_to(struct rig *r)
{
	return connect_as(r, geteuid());
}

static void take_fds(struct msghdr *m, struct answer *a)
{
	for (struct cmsghdr *h = CMSG_FIRSTHDR(m); h; h = CMSG_NXTHDR(m, h)) {
		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		a->n_fds = (int)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(a->fd, CMSG_DATA(h), (size_t)a->n_fds * sizeof(int));
	}
}

static struct answer receive(struct rig *r, int fd)
{
	struct answer a = { .fd = { -1, -1, -1, -1 } };
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))];
	struct iovec iov = { a.bytes, sizeof a.bytes };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };

	rig_turn(r);
	a.n = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (a.n < 0 && errno != EAGAIN)
		a.n = 0;
	if (a.n > 0)
		take_fds(&m, &a);
	return a;
}

static void answer_done(struct answer *a)
{
	for (int i = 0; i < a->n_fds; i++)
		close(a->fd[i]);
	a->n_fds = 0;
}

static struct answer ask(struct rig *r, int fd, const void *packet, size_t n)
{
	if (send(fd, packet, n, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		assert_true(errno == EPIPE || errno == ECONNRESET);
	return receive(r, fd);
}

static const struct attach_hello hello = {
	.head = { ATTACH_HELLO, sizeof hello, 0 }, .magic = ATTACH_MAGIC, .major = ATTACH_MAJOR,
	.flags = ATTACH_INHERIT,
};

static struct answer say_hello(struct rig *r, int fd)
{
	return ask(r, fd, &hello, sizeof hello);
}

static struct answer open_flagged(struct rig *r, int fd, const char *space, const char *name, uint64_t mapped, uint8_t flags)
{
	struct attach_open m = { .mapped = mapped, .space_len = (uint8_t)strlen(space), .name_len = (uint8_t)strlen(name),
				 .flags = flags };
	size_t n = ATTACH_OPEN_LEN(m.space_len, m.name_len);

	m.head = (struct attach_head){ ATTACH_OPEN, (uint16_t)n, 0 };
	memcpy(m.text, space, m.space_len);
	memcpy(m.text + m.space_len, name, m.name_len);
	return ask(r, fd, &m, n);
}

static struct answer open_name(struct rig *r, int fd, const char *space, const char *name, uint64_t mapped)
{
	return open_flagged(r, fd, space, name, mapped, 0);
}

static int error_of(struct answer a)
{
	answer_done(&a);
	return a.n >= (ssize_t)sizeof a.head ? a.head.error : -1;
}

static void whole_life(void **state)
{
	struct rig r;
	unsigned fds;

	(void)state;
	rig_open(&r);
	struct space *s = rig_space(&r, "x");

	fds = rig_fds();
	int fd = connect_to(&r);
	struct answer w = say_hello(&r, fd);

	assert_int_equal(w.n, sizeof w.welcome);
	assert_int_equal(w.head.error, 0);
	assert_int_equal(w.n_fds, 2);
	assert_int_equal(fcntl(w.fd[0], F_GETFL) & O_ACCMODE, O_RDONLY);
	assert_int_equal(fcntl(w.fd[1], F_GETFL) & O_ACCMODE, O_RDONLY);
	assert_int_equal(w.welcome.resumed, 0);

	struct answer o = open_name(&r, fd, "x", "n", 0);

	assert_int_equal(o.head.op, ATTACH_OPENED);
	assert_int_equal(o.head.error, 0);
	assert_int_equal(o.n_fds, 2);
	assert_int_equal(o.opened.generation, s->generation);
	answer_done(&o);
	o = open_name(&r, fd, "x", "n", s->generation);
	assert_int_equal(o.n_fds, 0);
	assert_int_equal(s->names.n, 1);
	struct attach_hint h = { { ATTACH_HINT, sizeof h, 0 }, s->id, o.opened.slot };
	struct answer d = ask(&r, fd, &h, sizeof h);

	assert_int_equal(d.head.error, 0);
	assert_int_equal(d.n_fds, 1);
	answer_done(&d);
	struct attach_close c = { { ATTACH_CLOSE, sizeof c, 0 }, s->id, o.opened.slot };

	assert_int_equal(error_of(ask(&r, fd, &c, sizeof c)), 0);
	assert_int_equal(error_of(ask(&r, fd, &c, sizeof c)), EINVAL);
	assert_int_equal(s->names.n, 0);
	/* The socket ends, the client does not; it comes back with what it knows. */
	open_name(&r, fd, "x", "m", s->generation);
	close(fd);
	rig_turn(&r);
	assert_int_equal(s->names.n, 1);
	fd = connect_to(&r);
	struct attach_hello again = hello;

	again.resume = w.welcome.client;
	memcpy(again.nonce, w.welcome.nonce, sizeof again.nonce);
	again.nonce[0]++;
	struct answer v = ask(&r, fd, &again, sizeof again);

	assert_int_equal(v.welcome.resumed, 0);          /* a guess makes another client */
	answer_done(&v);
	close(fd);
	fd = connect_to(&r);
	again.nonce[0]--;
	v = ask(&r, fd, &again, sizeof again);
	assert_int_equal(v.welcome.resumed, 1);
	assert_int_equal(v.welcome.client, w.welcome.client);
	assert_int_equal(v.n_fds, 1);
	answer_done(&v);
	answer_done(&w);
	close(fd);
	fake_loop_advance(r.loop, 100 * MS);
	assert_int_equal(s->names.n, 0);
	assert_int_equal(r.shm->ledger.clients.n, 0);
	assert_int_equal(r.shm->n_conns, 0);
	assert_int_equal(rig_fds(), fds);
	rig_done(&r);
}

static bool can_be_taken(struct space *s, const struct answer *a)
{
	return LOCK_LOAD(rig_word(s, a->opened.slot)) & LOCK_L;
}

static void an_answer_that_waits(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	struct space *s = rig_space(&r, "x");
	int fd = connect_to(&r), other = connect_to(&r);
	struct answer w = say_hello(&r, fd), v = say_hello(&r, other), a;

	a = open_flagged(&r, fd, "x", "plain", s->generation, 0);
	assert_false(can_be_taken(s, &a));
	assert_int_equal(r.tries, 0);            /* who only opens asks for nothing */
	a = open_flagged(&r, fd, "x", "n", s->generation, ATTACH_SOON);
	assert_int_equal(a.head.op, ATTACH_OPENED);
	assert_true(can_be_taken(s, &a));
	a = open_flagged(&r, other, "x", "n", s->generation, ATTACH_SOON);
	assert_int_equal(a.head.op, ATTACH_OPENED);
	assert_int_equal(r.tries, 1);            /* the lease is here */

	r.silent = true;
	a = open_flagged(&r, fd, "x", "granted", s->generation, ATTACH_SOON);
	assert_int_equal(a.n, -1);
	a = open_flagged(&r, other, "x", "granted", 0, ATTACH_SOON);
	assert_int_equal(a.n, -1);
	assert_int_equal(r.tries, 2);
	rig_grant(&r, s, name_find(s, KIND_LOCK, "granted", 7));
	a = receive(&r, fd);
	assert_true(a.head.op == ATTACH_OPENED && !a.n_fds && can_be_taken(s, &a));
	a = receive(&r, other);
	assert_true(a.head.op == ATTACH_OPENED && a.n_fds == 2 && can_be_taken(s, &a));
	answer_done(&a);

	a = open_flagged(&r, fd, "x", "refused", s->generation, ATTACH_SOON);
	assert_int_equal(a.n, -1);
	space_refused(s, name_find(s, KIND_LOCK, "refused", 7));
	a = receive(&r, fd);
	assert_true(a.head.op == ATTACH_OPENED && !a.head.error && !can_be_taken(s, &a));

	a = open_flagged(&r, fd, "x", "late", s->generation, ATTACH_SOON);
	fake_loop_advance(r.loop, 9 * MS);
	assert_int_equal(receive(&r, fd).n, -1);
	fake_loop_advance(r.loop, MS);
	a = receive(&r, fd);
	assert_true(a.head.op == ATTACH_OPENED && !a.head.error && !can_be_taken(s, &a));
	fake_loop_advance(r.loop, 100 * MS);
	assert_int_equal(receive(&r, fd).n, -1); /* once */

	/* Whoever says something more hears this answer first. */
	a = open_flagged(&r, fd, "x", "asks", s->generation, ATTACH_SOON);
	assert_int_equal(a.n, -1);
	a = open_flagged(&r, fd, "x", "n", s->generation, 0);
	assert_true(a.head.op == ATTACH_OPENED && !can_be_taken(s, &a));
	a = receive(&r, fd);
	assert_true(a.head.op == ATTACH_OPENED && can_be_taken(s, &a));

	/* The space is lost, the connection goes, the client dies. */
	a = open_flagged(&r, fd, "x", "lost", 0, ATTACH_SOON);
	assert_int_equal(a.n, -1);
	space_break(s, "for a test");
	a = receive(&r, fd);
	assert_true(a.head.op == ATTACH_OPENED && a.n_fds == 2);
	answer_done(&a);
	s = rig_space(&r, "x");
	open_flagged(&r, fd, "x", "closed", s->generation, ATTACH_SOON);
	open_flagged(&r, other, "x", "closed", s->generation, ATTACH_SOON);
	close(fd);
	rig_turn(&r);
	answer_done(&w);
	rig_turn(&r);
	rig_grant(&r, s, name_find(s, KIND_LOCK, "closed", 6));
	assert_true(receive(&r, other).head.op == ATTACH_OPENED);
	assert_null(r.shm->kept);
	open_flagged(&r, other, "x", "dies", s->generation, ATTACH_SOON);
	answer_done(&v);
	fake_loop_advance(r.loop, 10 * MS);
	assert_null(r.shm->kept);
	close(other);
	rig_done(&r);
}

/* Everything that is a byte off ends the connection, before and after WELCOME. */
static void to_the_letter(void **state)
{
	struct attach_hello other = hello;
	struct rig r;

	(void)state;
	rig_open(&r);
	rig_space(&r, "x");
	for (size_t n = 1; n < ATTACH_PACKET_MAX + 20; n++) {
		char bytes[ATTACH_PACKET_MAX + 20] = { 0 };

		if (n == sizeof hello)
			continue;
		memcpy(bytes, &hello, sizeof hello < n ? sizeof hello : n);
		int fd = connect_to(&r);

		assert_int_equal(ask(&r, fd, bytes, n).n, 0);
		close(fd);
	}
	for (int op = 0; op < 12; op++) {
		char bytes[sizeof hello];
		int fd = connect_to(&r);

		memcpy(bytes, &hello, sizeof hello);
		bytes[0] = (char)op;
		struct answer a = ask(&r, fd, bytes, sizeof bytes);

		assert_int_equal(a.n, op == ATTACH_HELLO ? (ssize_t)sizeof a.welcome : 0);
		answer_done(&a);
		close(fd);
	}
	for (int what = 0; what < 3; what++) {
		int fd = connect_to(&r);

		other = hello;
		other.magic ^= what == 0;
		other.major += what == 1;
		other.flags |= what == 2 ? 0x100 : 0;
		struct answer a = ask(&r, fd, &other, sizeof other);

		assert_int_equal(a.head.error, EPROTONOSUPPORT);
		assert_int_equal(receive(&r, fd).n, 0);
		close(fd);
	}
	for (int wrong = -1; wrong < 2; wrong += 2) {
		struct attach_close c = { { ATTACH_CLOSE, (uint16_t)((int)sizeof c + wrong), 0 }, 1, 1 };
		int fd = connect_to(&r);
		struct answer w = say_hello(&r, fd);

		assert_int_equal(ask(&r, fd, &c, sizeof c).n, 0);        /* a length that is not the packet's */
		answer_done(&w);
		close(fd);
	}
	for (size_t n = 1; n < ATTACH_PACKET_MAX + 20; n += n < 80 ? 1 : 37) {
		for (int op = 0; op < 10; op++) {
			char bytes[ATTACH_PACKET_MAX + 20] = { 0 };
			struct attach_head head = { (uint16_t)op, (uint16_t)n, 0 };
			int fd = connect_to(&r);
			struct answer w = say_hello(&r, fd);

			memcpy(bytes, &head, n < sizeof head ? n : sizeof head);
			if ((op == ATTACH_CLOSE && n == sizeof(struct attach_close)) ||
			    (op == ATTACH_HINT && n == sizeof(struct attach_hint)) ||
			    (op == ATTACH_ONLOSS && n == sizeof(struct attach_onloss)) ||
			    (op == ATTACH_OPEN && n == offsetof(struct attach_open, text)))
				assert_int_equal(ask(&r, fd, bytes, n).head.error, EINVAL);
			else
				assert_int_equal(ask(&r, fd, bytes, n).n, 0);
			answer_done(&w);
			close(fd);
		}
	}
	fake_loop_advance(r.loop, 100 * MS);
	assert_int_equal(r.shm->n_conns, 0);
	assert_int_equal(r.shm->ledger.clients.n, 0);
	rig_done(&r);
}

static void bad_names(void **state)
{
	static const char *const names[] = { "", "\n", "a\tb", "\x7f", "\xc2\x85", "\xff", "\xc0\x80", "\xed\xa0\x80", "a\x1b[2J" };
	static const char *const spaces[] = { "", ".", "..", "a/b", "a.b", "x\n", "\xc3\xa4", "../ledger/head" };
	struct rig r;

	(void)state;
	rig_open(&r);
	r.shm->config.spaces_on_demand = true;
	rig_space(&r, "x");
	int fd = connect_to(&r);
	struct answer w = say_hello(&r, fd);

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		assert_int_equal(error_of(open_name(&r, fd, "x", names[i], 0)), EINVAL);
	for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
		assert_int_equal(error_of(open_name(&r, fd, spaces[i], "n", 0)), EINVAL);
	assert_int_equal(error_of(open_name(&r, fd, "x", "\xe2\x82\xac %s/../\"", 0)), 0);
	r.shm->config.spaces_on_demand = false;
	assert_int_equal(error_of(open_name(&r, fd, "y", "n", 0)), ENOENT);
	answer_done(&w);
	close(fd);
	rig_done(&r);
}

static void half_open(void **state)
{
	enum { N = 200 };
	struct rig r;
	int fd[N], other;

	(void)state;
	rig_open(&r);
	for (int i = 0; i < N; i++)
		fd[i] = connect_to(&r);
	assert_int_equal(r.shm->n_conns, N);
	other = connect_to(&r);
	struct answer w = say_hello(&r, other);

	fake_loop_advance(r.loop, 10001 * MS);
	assert_int_equal(r.shm->n_conns, 1);     /* who has said who it is stays */
	for (int i = 0; i < N; i++)
		close(fd[i]);
	answer_done(&w);
	close(other);
	rig_done(&r);
}

static void with_nonce(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	r.shm->config.no_peerpidfd = true;
	for (int what = 0; what < 5; what++) {
		int fd = connect_to(&r);
		struct answer a = say_hello(&r, fd);
		struct ucred cred = { getpid(), getuid(), getgid() };
		_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof cred)];
		struct iovec iov = { &a.nonce, sizeof a.nonce };
		struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };

		assert_int_equal(a.head.op, ATTACH_NONCE);
		assert_int_equal(a.n, sizeof a.nonce);
		if (what == 1)
			a.nonce.nonce[1] ^= 1;
		if (what == 2 && getuid() == 0)
			cred.pid = getppid();            /* root may say what it likes: another process confirms nothing */
		if (what == 3) {
			m.msg_control = NULL;            /* then the kernel says who it is */
			m.msg_controllen = 0;
		} else {
			struct cmsghdr *c = (struct cmsghdr *)control;

			c->cmsg_level = SOL_SOCKET;
			c->cmsg_type = SCM_CREDENTIALS;
			c->cmsg_len = CMSG_LEN(sizeof cred);
			memcpy(CMSG_DATA(c), &cred, sizeof cred);
		}
		if (what == 4)
			assert_int_equal(ask(&r, fd, &hello, sizeof hello).n, 0);
		else
			assert_int_equal(sendmsg(fd, &m, 0), sizeof a.nonce);
		a = receive(&r, fd);
		if (what == 0 || what == 3 || (what == 2 && getuid() != 0))
			assert_int_equal(a.n, sizeof a.welcome);
		else
			assert_int_equal(a.n, 0);
		answer_done(&a);
		close(fd);
	}
	fake_loop_advance(r.loop, 100 * MS);
	assert_int_equal(r.shm->n_conns, 0);
	rig_done(&r);
}

static void no_gifts(void **state)
{
	int gift[8];
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof gift)];
	struct attach_hello h = hello;
	struct iovec iov = { &h, sizeof h };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
	struct rig r;
	unsigned fds;

	(void)state;
	for (int nonce = 0; nonce < 4; nonce++) {
		rig_open(&r);
		r.shm->config.no_peerpidfd = nonce & 1;
		if (nonce & 2) {         /* as on kernels before 6.16 */
			int on = 1;

			setsockopt(r.listener, SOL_SOCKET, SO_PASSRIGHTS, &on, sizeof on);
		}
		int fd = connect_to(&r), pipe_[2];

		assert_int_equal(pipe2(pipe_, O_CLOEXEC), 0);
		for (int i = 0; i < 8; i++)
			gift[i] = pipe_[1];
		CMSG_FIRSTHDR(&m)->cmsg_level = SOL_SOCKET;
		CMSG_FIRSTHDR(&m)->cmsg_type = SCM_RIGHTS;
		CMSG_FIRSTHDR(&m)->cmsg_len = CMSG_LEN(sizeof gift);
		memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), gift, sizeof gift);
		fds = rig_fds();
		if (sendmsg(fd, &m, 0) < 0)
			assert_int_equal(errno, EPERM);          /* the kernel keeps them from us, since 6.16 */
		rig_turn(&r);
		close(pipe_[1]);
		struct pollfd p = { pipe_[0], POLLIN, 0 };

		assert_int_equal(poll(&p, 1, 0), 1);             /* hung up: nobody has kept one */
		assert_true(p.revents & POLLHUP);
		assert_true(rig_fds() <= fds + 2);
		close(pipe_[0]);
		close(fd);
		rig_turn(&r);
		rig_done(&r);
	}
}

static void not_reading(void **state)
{
	struct rig r;
	int i;

	(void)state;
	rig_open(&r);
	rig_space(&r, "x");
	int fd = connect_to(&r);
	struct answer w = say_hello(&r, fd);
	struct attach_close c = { { ATTACH_CLOSE, sizeof c, 0 }, 1, 1 };

	for (i = 0; i < 100000 && r.shm->n_conns; i++) {
		send(fd, &c, sizeof c, MSG_DONTWAIT | MSG_NOSIGNAL);
		fake_loop_turn(r.loop);
	}
	assert_int_equal(r.shm->n_conns, 0);     /* who does not take its answers is let go; its locks are not */
	assert_true(i <= 16);                    /* and what it leaves unread, for as long as it likes, is little */
	assert_int_equal(r.shm->ledger.clients.n, 1);
	answer_done(&w);
	close(fd);
	rig_done(&r);
}

/* Descriptors on their way are counted for the daemon's user, and bounded. */
static void unread_descriptors(void **state)
{
	struct attach_open m = { .space_len = 1, .name_len = 1, .text = "xn" };
	size_t n = ATTACH_OPEN_LEN(1, 1);
	struct rig r;

	(void)state;
	rig_open(&r);
	rig_space(&r, "x");
	int fd = connect_to(&r);
	struct answer w = say_hello(&r, fd);

	m.head = (struct attach_head){ ATTACH_OPEN, (uint16_t)n, 0 };
	send(fd, &m, n, 0);
	rig_turn(&r);
	assert_int_equal(r.shm->n_conns, 1);
	send(fd, &m, n, 0);
	rig_turn(&r);
	assert_int_equal(r.shm->n_conns, 0);
	assert_int_equal(r.shm->ledger.clients.n, 1);
	answer_done(&w);
	close(fd);
	rig_done(&r);
}

static void two_users(void **state)
{
	struct space_access access = { 4001, 4001, 0600 };
	struct space *s;
	struct rig r;

	(void)state;
	if (getuid() != 0)
		skip();
	rig_open(&r);
	chmod(r.dir, 0755);
	assert_int_equal(space_create(r.shm, "x", &access, false, &s), 0);
	r.shm->config.spaces_on_demand = true;
	int fd = connect_as(&r, 4002);
	struct answer w = say_hello(&r, fd);

	assert_int_equal(w.head.error, 0);
	assert_int_equal(error_of(open_name(&r, fd, "x", "n", 0)), EACCES);
	/* The secret of another user's client is no use to it. */
	int root = connect_to(&r), thief = connect_as(&r, 4002);
	struct answer mine = say_hello(&r, root), stolen;
	struct attach_hello again = hello;

	again.resume = mine.welcome.client;
	memcpy(again.nonce, mine.welcome.nonce, sizeof again.nonce);
	stolen = ask(&r, thief, &again, sizeof again);
	assert_int_equal(stolen.head.error, 0);
	assert_int_equal(stolen.welcome.resumed, 0);
	answer_done(&stolen);
	answer_done(&mine);
	close(root);
	close(thief);
	/* As many spaces as it likes, as long as they are not in use all at once. */
	for (int i = 0; i < 300; i++) {
		char name[16];

		snprintf(name, sizeof name, "s%d", i);
		struct answer o = open_name(&r, fd, name, "n", 0);
		int expect = i >= 100 && i < 164 ? 0 : i >= 164 && i < 200 ? EDQUOT : 0;

		assert_int_equal(o.head.error, expect);
		if (i < 100 || i >= 200) {
			struct attach_close c = { { ATTACH_CLOSE, sizeof c, 0 }, o.opened.space, o.opened.slot };

			assert_int_equal(error_of(ask(&r, fd, &c, sizeof c)), 0);
		}
		answer_done(&o);
		if (i == 199) {
			answer_done(&w);
			close(fd);
			fake_loop_advance(r.loop, 100 * MS);
			fd = connect_as(&r, 4002);
			w = say_hello(&r, fd);
		}
	}
	answer_done(&w);
	close(fd);
	fake_loop_advance(r.loop, 100 * MS);
	assert_true(r.shm->ledger.spaces.n <= 65);
	rig_done(&r);
}

static void quotas(void **state)
{
	struct quotas q = { 0 };
	uid_t u = getuid() + 1000;

	(void)state;
	for (int i = 0; i < 16384; i++)
		assert_int_equal(quota_take(&q, u, QUOTA_CLIENTS), 0);
	assert_int_equal(quota_take(&q, u, QUOTA_CLIENTS), -EDQUOT);
	assert_int_equal(quota_take(&q, u, QUOTA_CONNS), 0);
	assert_int_equal(quota_take(&q, u + 64, QUOTA_CLIENTS), 0);
	quota_give(&q, u, QUOTA_CLIENTS);
	assert_int_equal(quota_take(&q, u, QUOTA_CLIENTS), 0);
	assert_int_equal(quota_take(&q, 0, QUOTA_CLIENTS), 0);
	assert_int_equal(quota_of(&q, 0, QUOTA_CLIENTS), 0);
	for (int i = 0; i < 16384; i++)
		quota_give(&q, u, QUOTA_CLIENTS);
	quota_give(&q, u, QUOTA_CONNS);
	quota_give(&q, u, QUOTA_CONNS);
	assert_int_equal(quota_of(&q, u, QUOTA_CLIENTS), 0);
	assert_int_equal(quota_of(&q, u + 64, QUOTA_CLIENTS), 1);
	quotas_done(&q);
}

static void one_users_share(void **state)
{
	struct rig r;
	int fd, mine;

	(void)state;
	if (getuid() != 0)
		skip();
	rig_open(&r);
	chmod(r.dir, 0755);
	for (int i = 0; i < 17408; i++)
		quota_note(&r.shm->quotas, 4003, QUOTA_CONNS);
	fd = connect_as(&r, 4003);
	struct answer a = receive(&r, fd);

	assert_int_equal(a.head.op, ATTACH_WELCOME);
	assert_int_equal(a.head.error, EDQUOT);
	assert_int_equal(receive(&r, fd).n, 0);
	mine = connect_to(&r);
	a = say_hello(&r, mine);
	assert_int_equal(a.head.error, 0);
	answer_done(&a);
	close(fd);
	close(mine);
	fake_loop_advance(r.loop, 100 * MS);
	assert_int_equal(quota_of(&r.shm->quotas, 4003, QUOTA_CONNS), 17408);
	rig_done(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		STORY(whole_life, "a client attaches, opens, asks for hints, closes, comes back, and ends"),
		STORY(an_answer_that_waits, "an open that is said to be taken soon is answered with the lease, if one comes within ten milliseconds"),
		STORY(to_the_letter, "what is a byte too short or too long, or of another version, is not a request"),
		STORY(bad_names, "names that are no names are refused"),
		STORY(half_open, "who does not say who it is within ten seconds has to go"),
		STORY(with_nonce, "without SO_PEERPIDFD a nonce proves who speaks"),
		STORY(no_gifts, "descriptors that somebody sends are never held"),
		STORY(not_reading, "who does not take its answers loses its connection, and nothing else"),
		STORY(unread_descriptors, "who leaves descriptors unread gets no more of them"),
		STORY(two_users, "another user gets in only where it may, and makes so many spaces at a time"),
		STORY(quotas, "what a user has is counted, and root is not"),
		STORY(one_users_share, "a user with all its connections is told so, and others come in"),
	};

	rig_private();
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
