/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "conn.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "deadline.h"
#include "handle.h"
#include "hatch.h"
#include "space.h"
#include "thread.h"
#include "wire.h"

#define RUN_DIR    "/run/dlock"
#define SOCKET     "dlockd.sock"
#define ANCHOR_LEN 4096
#define TRIES_MAX  3                     /* a daemon that is being restarted may break a connection more than once */
#define CLOSE_NS   UINT64_C(1000000000)

#define UNHEARD_MAX 16

/* A DROP has no answer. It is kept until that of a later request shows that it was heard: it may have to be said again on another socket. */
struct unheard {
	uint32_t number, slot;
};

struct late_close {
	struct late_close *next;
	uint32_t number, slot;
};

static struct {
	int fd;                          /* -1: none */
	uint64_t ino;                    /* of the socket: fd may have been closed behind our back, and be another's now */
	uint32_t client;                 /* 0: never attached */
	uint64_t nonce[2];
	uint32_t epoch;
	const struct node_line *page;
	uint64_t page_dev, page_ino;
	void *anchor;
	int anchor_fd;                   /* kept for dlock_internal_inherit() only */
	bool inherit;
	struct late_close *late;
	struct unheard unheard[UNHEARD_MAX];
	unsigned n_unheard;
	bool unheard_there;              /* some of them were said by the socket */
	unsigned minor;                  /* the daemon's */
	char *path;
} conn = { .fd = -1, .anchor_fd = -1 };

uint32_t conn_epoch(void)
{
	return __atomic_load_n(&conn.epoch, __ATOMIC_ACQUIRE);
}

const struct node_line *conn_line(uint32_t space)
{
	return &conn.page[space];
}

static void epoch_next(void)
{
	uint32_t e = conn.epoch + 1;

	__atomic_store_n(&conn.epoch, e ? e : 1, __ATOMIC_RELEASE);
}

/* --- The socket --- */

static bool socket_is_ours(void)
{
	struct stat st;

	return conn.fd >= 0 && fstat(conn.fd, &st) == 0 && S_ISSOCK(st.st_mode) && st.st_ino == conn.ino;
}

static void late_add(uint32_t number, uint32_t slot)
{
	struct late_close *c = malloc(sizeof *c);

	if (!c)
		return;                  /* it stays open until this process ends */
	*c = (struct late_close){ conn.late, number, slot };
	conn.late = c;
}

static void all_heard(void)
{
	conn.n_unheard = 0;
	conn.unheard_there = false;
}

static void socket_drop(void)
{
	if (socket_is_ours())
		close(conn.fd);
	__atomic_store_n(&conn.fd, -1, __ATOMIC_RELEASE);
	while (conn.n_unheard) {
		conn.n_unheard--;
		late_add(conn.unheard[conn.n_unheard].number, conn.unheard[conn.n_unheard].slot);
	}
	all_heard();
}

static void late_drop(void)
{
	struct late_close *c;

	while ((c = conn.late)) {
		conn.late = c->next;
		free(c);
	}
}

void conn_child(void)
{
	attach_child();
	all_heard();                     /* the parent's, as is `late` */
	socket_drop();
	conn.client = 0;
	conn.nonce[0] = conn.nonce[1] = 0;
	conn.anchor = NULL;              /* not mapped here (MADV_DONTFORK) */
	conn.anchor_fd = -1;             /* inherited on purpose, where there is one */
	conn.inherit = false;
	conn.late = NULL;                /* the parent's; freeing it could find the heap locked */
	epoch_next();
}

/* $DLOCK_RUN_DIR as it is at the first attach. */
static int path_find(void)
{
	const char *dir = secure_getenv("DLOCK_RUN_DIR");
	char here[PATH_MAX] = "";

	if (conn.path)
		return 0;
	if (!dir || !*dir)
		dir = RUN_DIR;
	if (dir[0] != '/' && !getcwd(here, sizeof here))
		return -ENOTCONN;
	if (asprintf(&conn.path, "%s%s%s/" SOCKET, here, *here ? "/" : "", dir) < 0) {
		conn.path = NULL;
		return -ENOMEM;
	}
	return 0;
}

/* The descriptor is known before anything can take time: a child has to close it. */
static int socket_open(const struct limit *limit)
{
	struct stat st;
	int fd, r = path_find();

	if (r < 0)
		return r;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	conn.ino = st.st_ino;
	__atomic_store_n(&conn.fd, fd, __ATOMIC_RELEASE);
	r = wire_connect(fd, conn.path, limit);
	if (r < 0)
		socket_drop();
	return r == -ENOENT || r == -ECONNREFUSED || r == -ENOTDIR ? -ENOTCONN : r;
}

/* --- WELCOME --- */

/* A page that is replaced stays mapped: what was bound to it sees there that it is gone. */
static int page_map(int fd)
{
	struct stat st;
	const struct node_line *page;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size < NODE_PAGE_SIZE)
		return -EPROTO;
	if (conn.page && conn.page_ino == st.st_ino && conn.page_dev == st.st_dev)
		return 0;
	page = mmap(NULL, NODE_PAGE_SIZE, PROT_READ, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		return errno == ENOMEM ? -ENOMEM : -EPROTO;
	if (page[0].magic != NODE_MAGIC) {
		munmap((void *)page, NODE_PAGE_SIZE);
		return -EPROTO;
	}
	conn.page = page;
	conn.page_ino = st.st_ino;
	conn.page_dev = st.st_dev;
	return 0;
}

/*
 * The mapping keeps the open file alive for as long as this address space, and no child has it. The
 * descriptor stays with those who want children to count as this process.
 */
static int anchor_map(int fd)
{
	void *p = mmap(NULL, ANCHOR_LEN, PROT_READ, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED || madvise(p, ANCHOR_LEN, MADV_DONTFORK) < 0) {
		int r = errno == ENOMEM ? -ENOMEM : -EPROTO;

		if (p != MAP_FAILED)
			munmap(p, ANCHOR_LEN);
		close(fd);
		return r;
	}
	if (conn.anchor)
		munmap(conn.anchor, ANCHOR_LEN);         /* of the client that we are no longer */
	conn.anchor = p;
	if (!conn.inherit) {
		close(fd);
		return 0;
	}
	if (conn.anchor_fd >= 0)
		dup3(fd, conn.anchor_fd, 0);     /* whoever was told the number goes on with it */
	else
		conn.anchor_fd = dup(fd);        /* without close-on-exec */
	close(fd);
	return conn.anchor_fd < 0 ? -EMFILE : 0;
}

/* Under lib, so that no fork falls between the anchor's arrival and its mapping. */
static int welcome(struct packet *p, uint64_t asked_ns)
{
	const struct attach_welcome *w = &p->welcome;
	bool resumed = w->resumed == 1;
	int r;

	if (p->head.op != ATTACH_WELCOME || p->head.len != sizeof *w || w->major != ATTACH_MAJOR ||
	    !w->client || w->client >= SEG_CLIENTS_MAX || (resumed && w->client != conn.client))
		return -EPROTO;
	if (w->boottime_ns < asked_ns || w->boottime_ns > boottime_ns())
		return -ENOTSUP;         /* a time namespace with an offset */
	if (p->fds != (resumed ? 1 : 2))
		return -EPROTO;
	conn.minor = w->minor;
	r = page_map(p->fd[0]);
	if (r < 0 || resumed)
		return r;
	r = anchor_map(packet_take(p, 1));
	if (r < 0)
		return r;
	conn.client = w->client;
	memcpy(conn.nonce, w->nonce, sizeof conn.nonce);
	epoch_next();
	handles_lost();
	return 0;
}

/* Errors that mean something of their own to a wait are no answers; a space that broke meanwhile is asked for again. */
static int answer_error(int error)
{
	switch (error) {
	case EAGAIN:
		return -ENOTCONN;
	case EALREADY: case EOWNERDEAD: case EDEADLK: case EBUSY: case ECANCELED:
	case ETIMEDOUT: case ESTALE: case EPERM: case EINTR: case EPIPE:
		return -EPROTO;
	}
	return error > 0 && error < 4096 ? -error : -EPROTO;
}

/* NONCE and WELCOME come after HELLO; returns 1 when it is done. */
static int hello_answer(uint64_t asked_ns, const struct limit *limit)
{
	struct packet p;
	int r;

	lib_lock();
	r = wire_receive(conn.fd, &p);
	if (r < 0) {
		lib_unlock();
		return r == -EAGAIN ? 0 : r;
	}
	if (p.head.error)
		r = answer_error(p.head.error);
	else if (p.head.op != ATTACH_NONCE)
		r = welcome(&p, asked_ns);
	packet_done(&p);
	lib_unlock();
	if (r < 0)
		return r == -EPROTONOSUPPORT ? -EPROTO : r;
	if (p.head.op != ATTACH_NONCE)
		return 1;
	if (p.head.len != sizeof p.nonce)
		return -EPROTO;
	return wire_send_credentials(conn.fd, &p.nonce, sizeof p.nonce, limit);
}

static int hello(const struct limit *limit)
{
	struct attach_hello h = {
		.head = { ATTACH_HELLO, sizeof h, 0 },
		.magic = ATTACH_MAGIC, .major = ATTACH_MAJOR, .minor = ATTACH_MINOR,
		.flags = conn.inherit ? ATTACH_INHERIT : 0,
		.resume = conn.client,
		.nonce = { conn.nonce[0], conn.nonce[1] },
	};
	uint64_t asked_ns = boottime_ns();
	int r = wire_send(conn.fd, &h, sizeof h, limit);

	while (r == 0) {
		r = wire_wait(conn.fd, limit);
		if (r == 0)
			r = hello_answer(asked_ns, limit);
	}
	return r < 0 ? r : 0;
}

/* --- Requests --- */

static int answer(struct packet *ret, const struct limit *limit)
{
	int r;

	do {
		r = wire_wait(conn.fd, limit);
		if (r == 0)
			r = wire_receive(conn.fd, ret);
	} while (r == -EAGAIN);
	return r;
}

/* One request and its answer on the socket as it is. After any failure answers and requests may be out of step. */
static int request_once(const void *request, size_t n, const struct limit *limit, struct packet *ret)
{
	int r = wire_send(conn.fd, request, n, limit);

	if (r == 0)
		r = answer(ret, limit);
	if (r < 0)
		socket_drop();
	else
		all_heard();             /* what was said before it was heard before it */
	return r;
}

static void late_send(const struct limit *limit)
{
	struct late_close *c;
	struct packet p;

	while (conn.fd >= 0 && (c = conn.late)) {
		struct attach_close m = { { ATTACH_CLOSE, sizeof m, 0 }, c->number, c->slot };

		if (request_once(&m, sizeof m, limit, &p) < 0)
			return;
		packet_done(&p);
		conn.late = c->next;
		free(c);
	}
}

static int conn_ready(const struct limit *limit)
{
	uint32_t epoch = conn.epoch;
	int r;

	if (socket_is_ours())
		return 0;
	socket_drop();
	r = socket_open(limit);
	if (r < 0)
		return r;
	r = hello(limit);
	if (r < 0) {
		socket_drop();
		return r;
	}
	if (conn.epoch != epoch)
		late_drop();
	late_send(limit);
	return conn.fd < 0 ? -EPIPE : 0;
}

/* epoch: the one that the request makes sense in; 0: any. An error in the answer is returned. */
static int request(const void *request, size_t n, uint32_t epoch, const struct limit *limit,
		   struct packet *ret)
{
	int r = -EPIPE;

	for (int i = 0; i < TRIES_MAX && r == -EPIPE; i++) {
		r = conn_ready(limit);
		if (r == 0 && epoch && conn.epoch != epoch)
			return -ESTALE;
		if (r == 0)
			r = request_once(request, n, limit, ret);
	}
	if (r < 0)
		return r == -EPIPE ? -ENOTCONN : r;
	if (ret->head.error) {
		r = answer_error(ret->head.error);
		packet_done(ret);
	}
	return r;
}

static bool daemon_gone(void)
{
	char byte;

	return !socket_is_ours() || recv(conn.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN;
}

/* 1: it is to be asked for by the socket. */
static int open_by_hatch(const struct conn_what *what, uint64_t mapped, const struct limit *limit, struct conn_opened *ret)
{
	uint32_t epoch = conn.epoch, slot;
	struct space *s = NULL;
	int r;

	if (what->kind != KIND_LOCK || what->arg || !mapped || conn.minor < ATTACH_MINOR_HATCH || conn.fd < 0 || conn.late || conn.unheard_there)
		return 1;
	lib_lock();
	s = space_hatch(what->space, what->space_len, conn.epoch);
	lib_unlock();
	if (!s || s->generation != mapped || s->area != conn.client || deadline_gone(conn_line(s->number)))
		return 1;
	r = hatch_open(s, conn.client, what, conn_line(s->number), daemon_gone, limit, &slot);
	if (conn.epoch != epoch)
		return 1;                /* a child of a signal handler that forked: it was the parent who asked */
	if (r == 0) {
		all_heard();
		*ret = (struct conn_opened){ .client = conn.client, .number = s->number, .slot = slot, .epoch = conn.epoch,
					     .generation = s->generation, .segment = -1, .bell = -1, .by_hatch = true };
		return 0;
	}
	if (r != -EAGAIN)
		socket_drop();
	return r == -EAGAIN || r == -EPIPE ? 1 : r;
}

int conn_open(const struct conn_what *what, uint64_t mapped, const struct limit *limit, struct conn_opened *ret)
{
	size_t len = ATTACH_OPEN_LEN(what->space_len, what->name_len);
	struct attach_open m = {
		.head = { ATTACH_OPEN, (uint16_t)len, 0 }, .mapped = mapped,
		.space_len = (uint8_t)what->space_len, .name_len = (uint8_t)what->name_len,
		.kind = (uint8_t)what->kind, .arg = what->arg, .flags = what->soon && conn.minor >= ATTACH_MINOR_SOON ? ATTACH_SOON : 0,
	};
	struct packet p;
	int r = open_by_hatch(what, mapped, limit, ret);

	if (r <= 0)
		return r;
	memcpy(m.text, what->space, what->space_len);
	memcpy(m.text + what->space_len, what->name, what->name_len);
	r = request(&m, len, 0, limit, &p);
	if (r < 0)
		return r;
	if (p.head.op != ATTACH_OPENED || p.head.len != sizeof p.opened || !p.opened.space ||
	    p.opened.space >= NODE_LINES || p.opened.slot >= SEG_SLOTS_MAX || p.opened.account >= SEG_SLOTS_MAX ||
	    !p.opened.account != !kind_is_object(what->kind)) {
		packet_done(&p);
		socket_drop();
		return -EPROTO;
	}
	if (what->arg && !kind_is_object(what->kind) && conn.minor < ATTACH_MINOR_DELAY) {
		packet_done(&p);                 /* a daemon that knows of no delays would grant too early */
		conn_close(p.opened.space, p.opened.slot, conn.epoch);
		return -EPROTO;
	}
	*ret = (struct conn_opened){
		.client = conn.client, .number = p.opened.space, .slot = p.opened.slot,
		.account = p.opened.account, .epoch = conn.epoch, .generation = p.opened.generation,
		.segment = packet_take(&p, 0), .bell = packet_take(&p, 1),
	};
	return 0;
}

/* Where there was no answer. Whatever broke off a request has broken the connection: late_send() comes before the next. */
static bool is_for_later(int error)
{
	return error == -ENOTCONN || error == -ETIMEDOUT || error == -EMFILE || error == -ENFILE || error == -ENOMEM;
}

static bool drop_by_hatch(uint32_t number, uint32_t slot)
{
	struct space *s;

	if (conn.minor < ATTACH_MINOR_HATCH || conn.unheard_there)
		return false;
	lib_lock();
	s = space_hatch_of(number, conn.epoch);
	lib_unlock();
	return s && s->area == conn.client && !deadline_gone(conn_line(number)) && hatch_drop(s, conn.client, slot);
}

/* False: it has to be asked for as anything else. */
static bool close_unanswered(const struct attach_close *m)
{
	const struct limit now = { .clock = limit_none.clock, .until_ns = 1 };
	const struct attach_close drop = { { ATTACH_DROP, sizeof drop, 0 }, m->space, m->slot };

	if (conn.minor < ATTACH_MINOR_SOON || conn.n_unheard == UNHEARD_MAX || conn.late || conn.fd < 0)
		return false;
	if (!drop_by_hatch(m->space, m->slot)) {
		if (!socket_is_ours() || wire_send(conn.fd, &drop, sizeof drop, &now) < 0)
			return false;
		conn.unheard_there = true;
	}
	conn.unheard[conn.n_unheard++] = (struct unheard){ m->space, m->slot };
	return true;
}

/* One that does not answer holds up the first of many closes only. */
void conn_close(uint32_t number, uint32_t slot, uint32_t epoch)
{
	struct attach_close m = { { ATTACH_CLOSE, sizeof m, 0 }, number, slot };
	struct limit soon = limit_none;
	struct packet p;
	int r;

	if (epoch != conn.epoch || close_unanswered(&m))
		return;
	soon.until_ns = limit_slice(&limit_none, conn.late ? 0 : CLOSE_NS);
	r = request(&m, sizeof m, epoch, &soon, &p);
	if (r == 0)
		packet_done(&p);
	if (is_for_later(r))
		late_add(number, slot);
}

/* One that is answered with a descriptor. */
static int request_fd(const void *m, size_t n, uint32_t epoch, const struct limit *limit, int *ret_fd)
{
	struct packet p;
	int r = request(m, n, epoch, limit, &p);

	if (r < 0)
		return r;
	*ret_fd = packet_take(&p, 0);
	packet_done(&p);
	return *ret_fd < 0 ? -EPROTO : 0;
}

int conn_hint(uint32_t number, uint32_t slot, uint32_t epoch, const struct limit *limit, int *ret_fd)
{
	struct attach_hint m = { { ATTACH_HINT, sizeof m, 0 }, number, slot };

	return request_fd(&m, sizeof m, epoch, limit, ret_fd);
}

int conn_value(uint32_t number, uint32_t slot, uint32_t epoch, const struct limit *limit, int *ret_fd)
{
	struct attach_value m = { { ATTACH_VALUE, sizeof m, 0 }, number, slot };

	return request_fd(&m, sizeof m, epoch, limit, ret_fd);
}

int conn_delay(uint32_t number, uint32_t slot, uint32_t epoch, const struct limit *limit, uint32_t ms)
{
	struct attach_delay m = { { ATTACH_DELAY, sizeof m, 0 }, number, slot, ms };
	struct packet p;
	int r = conn.minor < ATTACH_MINOR_PERMITS_DELAY ? -EPROTO : request(&m, sizeof m, epoch, limit, &p);

	if (r == 0)
		packet_done(&p);
	return r;
}

int conn_onloss(uint32_t number, uint32_t slot, uint32_t epoch, const struct limit *limit, int signo)
{
	struct attach_onloss m = { { ATTACH_ONLOSS, sizeof m, 0 }, number, slot, (uint32_t)signo };
	struct packet p;
	int r = request(&m, sizeof m, epoch, limit, &p);

	if (r == 0)
		packet_done(&p);
	return r;
}

int conn_reader(uint32_t number, uint32_t epoch, const struct limit *limit, uint32_t *ret_line)
{
	struct attach_reader m = { { ATTACH_READER, sizeof m, 0 }, number, 0 };
	struct packet p;
	int r = request(&m, sizeof m, epoch, limit, &p);

	if (r < 0)
		return r;
	*ret_line = p.line.line;
	r = p.head.op == ATTACH_LINE && p.head.len == sizeof p.line && p.line.line && p.line.line < SEG_LINES_MAX ? 0 : -EPROTO;
	packet_done(&p);
	return r;
}

int conn_check(const struct limit *limit)
{
	if (!daemon_gone())
		return 0;
	socket_drop();
	return conn_ready(limit);
}

/* --- For the commands that come with the library --- */

__attribute__((visibility("default"))) int dlock_internal_inherit(int *ret_fd);

/* Before the first open: attaches as a client that lives until its last descendant has gone. */
int dlock_internal_inherit(int *ret_fd)
{
	uint32_t serial;
	int r = thread_register(&serial);

	if (r < 0)
		return -r;
	attach_lock(&limit_none);
	if (conn.client) {
		r = -EBUSY;
	} else {
		conn.inherit = true;
		r = conn_ready(&limit_none);
		if (r == 0)
			*ret_fd = conn.anchor_fd;
		else
			conn.inherit = false;
	}
	attach_unlock();
	return -r;
}
