/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "fake_daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define LOOP_MS 2

static void must(bool ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "# fake daemon: %s: %s\n", what, strerror(errno));
		abort();
	}
}

/* --- Spaces and names --- */

static int fifo_make(const char *dir, const char *name)
{
	char path[200];
	int fd;

	snprintf(path, sizeof path, "%s/%s", dir, name);
	must(mkfifo(path, 0600) == 0, path);
	fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	must(fd >= 0, path);
	unlink(path);
	return fd;
}

static void segment_make(struct fake *f, struct fake_space *s)
{
	struct seg_head h = {
		.magic = SEG_MAGIC, .major = SEG_MAJOR, .minor = SEG_MINOR, .generation = s->generation,
		.slot_size = sizeof(struct seg_slot), .area_size = SEG_AREA_SIZE,
		.slots_max = SEG_SLOTS_MAX, .clients_max = SEG_CLIENTS_MAX,
		.bits2_off = SEG_BITS2_OFF, .bits1_off = SEG_BITS1_OFF,
		.area_off = SEG_AREA_OFF, .slot_off = SEG_SLOT_OFF, .size = SEG_SIZE,
		.line_off = SEG_LINE_OFF, .lines_max = SEG_LINES_MAX,
	};

	if (f->strange_segment)
		h.must_understand = 1;
	s->fd = memfd_create("segment", MFD_CLOEXEC);
	must(s->fd >= 0 && ftruncate(s->fd, f->short_segment ? 4096 : (off_t)SEG_SIZE) == 0, "segment");
	if (f->short_segment)
		return;
	s->base = mmap(NULL, SEG_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, s->fd, 0);
	must(s->base != MAP_FAILED, "segment");
	memcpy(s->base, &h, sizeof h);
}

static uint32_t space_of(struct fake *f, const char *name, bool make)
{
	static uint64_t generation;
	struct fake_space *s;
	char bell[20];

	for (uint32_t i = 1; i <= f->n_spaces; i++)
		if (!f->spaces[i].gone && !strcmp(f->spaces[i].name, name))
			return i;
	if (!make || f->n_spaces == FAKE_SPACES)
		return 0;
	s = &f->spaces[++f->n_spaces];
	strcpy(s->name, name);
	s->generation = ++generation;
	segment_make(f, s);
	snprintf(bell, sizeof bell, "bell%u", f->n_spaces);
	s->bell = fifo_make(f->dir, bell);
	f->page[f->n_spaces].generation = s->generation;
	__atomic_store_n(&f->page[f->n_spaces].ns, NODE_NEVER, __ATOMIC_RELEASE);
	__atomic_store_n(&f->page[f->n_spaces].ticks, NODE_NEVER, __ATOMIC_RELEASE);
	return f->n_spaces;
}

static struct fake_name *name_of(struct fake *f, uint32_t space, const char *name, bool make)
{
	struct fake_name *n;

	for (uint32_t i = 0; i < f->n_names; i++)
		if (f->names[i].space == space && !strcmp(f->names[i].name, name))
			return &f->names[i];
	if (!make || f->n_names == FAKE_NAMES)
		return NULL;
	n = &f->names[f->n_names++];
	n->space = space;
	n->slot = f->n_names;
	n->hint = -1;
	strcpy(n->name, name);
	return n;
}

struct seg_slot *fake_slot(struct fake *f, const char *name)
{
	struct fake_name *n;

	pthread_mutex_lock(&f->lock);
	n = name_of(f, space_of(f, "default", false), name, false);
	pthread_mutex_unlock(&f->lock);
	must(n != NULL, name);
	return seg_slot(f->spaces[n->space].base, n->slot);
}

uint64_t *fake_word(struct fake *f, const char *name)
{
	return &fake_slot(f, name)->word;
}

struct node_line *fake_line(struct fake *f, const char *space)
{
	uint32_t i;

	pthread_mutex_lock(&f->lock);
	i = space_of(f, space, false);
	pthread_mutex_unlock(&f->lock);
	must(i != 0, space);
	return &f->page[i];
}

void fake_break(struct fake *f, const char *space)
{
	pthread_mutex_lock(&f->lock);
	uint32_t i = space_of(f, space, false);

	must(i != 0, space);
	f->spaces[i].gone = true;
	__atomic_store_n(&f->page[i].ns, NODE_GONE, __ATOMIC_RELEASE);
	__atomic_store_n(&f->page[i].ticks, 0, __ATOMIC_RELEASE);
	for (uint32_t k = 0; k < f->n_names; k++) {
		uint64_t *w = &seg_slot(f->spaces[i].base, f->names[k].slot)->word;

		if (f->names[k].space != i)
			continue;
		__atomic_store_n(w, 0, __ATOMIC_RELEASE);
		futex_wake_class(lock_futex(w), INT_MAX, LOCK_CLASS_ANY);
	}
	pthread_mutex_unlock(&f->lock);
}

void fake_release(struct fake *f, const char *name)
{
	uint64_t *word = fake_word(f, name);

	lock_died(word, (uint32_t)(LOCK_LOAD(word) & LOCK_OWNER));
}

void fake_hint(struct fake *f, const char *name)
{
	pthread_mutex_lock(&f->lock);
	struct fake_name *n = name_of(f, space_of(f, "default", false), name, false);

	must(n && n->hint >= 0 && write(n->hint, "!", 1) == 1, "hint");
	pthread_mutex_unlock(&f->lock);
}

/* --- The attach protocol --- */

static void conn_end(struct fake *f, int i)
{
	close(f->conn[i]);
	f->conn[i] = -1;
}

static void answer(struct fake *f, int i, void *packet, size_t n, const int *fds, unsigned n_fds)
{
	char control[CMSG_SPACE(2 * sizeof(int))] = { 0 };
	struct iovec iov = { packet, n };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (n_fds && !f->no_descriptors) {
		struct cmsghdr *h = (struct cmsghdr *)control;

		m.msg_control = control;
		m.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(h), fds, n_fds * sizeof(int));
	}
	if (sendmsg(f->conn[i], &m, MSG_NOSIGNAL) < 0)
		conn_end(f, i);
}

static void say_welcome(struct fake *f, int i, uint32_t resume)
{
	struct attach_welcome w = { .head = { ATTACH_WELCOME, sizeof w, 0 },
				    .major = ATTACH_MAJOR, .minor = ATTACH_MINOR, .nonce = { 7, 9 } };
	struct timespec t;
	int anchor = memfd_create("anchor", MFD_CLOEXEC);

	must(anchor >= 0, "anchor");
	w.resumed = resume && !f->forget;
	w.client = w.resumed ? resume : ++f->last_client;
	f->resumed += w.resumed;
	f->conn_client[i] = w.client;
	w.head.error = f->hello_error;
	f->hello_error = 0;
	clock_gettime(CLOCK_BOOTTIME, &t);
	w.boottime_ns = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec + (uint64_t)f->boottime_off;
	answer(f, i, &w, sizeof w, (int[]){ f->page_fd, anchor }, w.resumed ? 1 : 2);
	close(anchor);
}

static void do_hello(struct fake *f, int i, const struct attach_hello *m)
{
	struct attach_nonce ask = { .head = { ATTACH_NONCE, sizeof ask, 0 }, .nonce = { 1, m->resume } };
	int on = 1;

	f->hellos++;
	if (!f->nonce) {
		say_welcome(f, i, m->resume);
		return;
	}
	setsockopt(f->conn[i], SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
	answer(f, i, &ask, sizeof ask, NULL, 0);
}

static void do_open(struct fake *f, int i, const struct attach_open *m)
{
	struct attach_opened a = { .head = { ATTACH_OPENED, sizeof a, 0 } };
	char space[ATTACH_SPACE_MAX + 1] = "", name[ATTACH_NAME_MAX + 1] = "";
	struct fake_name *n;

	f->opens++;
	f->soons += m->flags & ATTACH_SOON;
	memcpy(space, m->text, m->space_len);
	memcpy(name, m->text + m->space_len, m->name_len);
	a.space = space_of(f, space, true);
	n = a.space ? name_of(f, a.space, name, true) : NULL;
	a.head.error = f->error ? f->error : n ? 0 : ENOSPC;
	f->error = 0;
	if (a.head.error) {
		answer(f, i, &a, sizeof a, NULL, 0);
		return;
	}
	n->opens++;
	a.slot = f->open_slot ? f->open_slot : n->slot;
	a.generation = f->spaces[a.space].generation;
	answer(f, i, &a, sizeof a, (int[]){ f->spaces[a.space].fd, f->spaces[a.space].bell },
	       m->mapped == a.generation ? 0 : 2);
}

static void do_close(struct fake *f, int i, const struct attach_close *m)
{
	struct attach_head a = { ATTACH_DONE, sizeof a, EINVAL };

	f->closes++;
	for (uint32_t k = 0; k < f->n_names; k++) {
		if (f->names[k].space == m->space && f->names[k].slot == m->slot && f->names[k].opens) {
			f->names[k].opens--;
			a.error = 0;
		}
	}
	if (m->head.op == ATTACH_CLOSE)
		answer(f, i, &a, sizeof a, NULL, 0);
}

static void do_hint(struct fake *f, int i, const struct attach_hint *m)
{
	struct attach_head a = { ATTACH_DONE, sizeof a, 0 };
	struct fake_name *n = NULL;
	char fifo[20];

	f->hints++;
	for (uint32_t k = 0; k < f->n_names; k++)
		if (f->names[k].space == m->space && f->names[k].slot == m->slot)
			n = &f->names[k];
	must(n != NULL, "hint of what is not open");
	if (f->mute_hints)
		return;
	if (n->hint < 0) {
		snprintf(fifo, sizeof fifo, "hint%u.%u", m->space, m->slot);
		n->hint = fifo_make(f->dir, fifo);
	}
	answer(f, i, &a, sizeof a, &n->hint, 1);
}

static void do_onloss(struct fake *f, int i, const struct attach_onloss *m)
{
	struct attach_head a = { ATTACH_DONE, sizeof a, 0 };

	for (uint32_t k = 0; k < f->n_names; k++)
		if (f->names[k].space == m->space && f->names[k].slot == m->slot)
			f->names[k].signo = m->signo;
	answer(f, i, &a, sizeof a, NULL, 0);
}

static void do_reader(struct fake *f, int i, const struct attach_reader *m)
{
	struct attach_line a = { .head = { ATTACH_LINE, sizeof a, 0 }, .line = ++f->last_line };

	must(m->space >= 1 && m->space <= f->n_spaces, "a line of no space");
	__atomic_store_n(seg_lines_used(f->spaces[m->space].base), a.line + 1, __ATOMIC_SEQ_CST);
	answer(f, i, &a, sizeof a, NULL, 0);
}

static bool has_credentials(struct msghdr *m)
{
	struct cmsghdr *h = CMSG_FIRSTHDR(m);

	return h && h->cmsg_type == SCM_CREDENTIALS && ((struct ucred *)CMSG_DATA(h))->pid == getpid();
}

static void conn_read(struct fake *f, int i)
{
	union {
		struct attach_head head;
		struct attach_hello hello;
		struct attach_nonce nonce;
		struct attach_open open;
		struct attach_close close;
		struct attach_hint hint;
		struct attach_onloss onloss;
		struct attach_reader reader;
		char bytes[ATTACH_PACKET_MAX];
	} m;
	char control[200];
	struct iovec iov = { &m, sizeof m };
	struct msghdr h = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
	ssize_t n = recvmsg(f->conn[i], &h, MSG_DONTWAIT);

	if (n < 0 && errno == EAGAIN)
		return;
	if (n < (ssize_t)sizeof m.head || m.head.len != n)
		conn_end(f, i);
	else if (m.head.op == ATTACH_HELLO && n == sizeof m.hello)
		do_hello(f, i, &m.hello);
	else if (m.head.op == ATTACH_NONCE && n == sizeof m.nonce) {
		f->unnonced += !has_credentials(&h);
		say_welcome(f, i, (uint32_t)m.nonce.nonce[1]);
	} else if (m.head.op == ATTACH_OPEN && (size_t)n == ATTACH_OPEN_LEN(m.open.space_len, m.open.name_len))
		do_open(f, i, &m.open);
	else if ((m.head.op == ATTACH_CLOSE || m.head.op == ATTACH_DROP) && n == sizeof m.close)
		do_close(f, i, &m.close);
	else if (m.head.op == ATTACH_HINT && n == sizeof m.hint)
		do_hint(f, i, &m.hint);
	else if (m.head.op == ATTACH_ONLOSS && n == sizeof m.onloss)
		do_onloss(f, i, &m.onloss);
	else if (m.head.op == ATTACH_READER && n == sizeof m.reader)
		do_reader(f, i, &m.reader);
	else
		conn_end(f, i);
}

/* --- Grants and looks --- */

static bool bit_take(void *base, enum seg_bits which, uint32_t slot)
{
	bool set = __atomic_load_n(&seg_level1(base, which)[slot / 64], __ATOMIC_SEQ_CST) >> (slot % 64) & 1;

	if (set)
		seg_bit_clear(base, which, slot);
	return set;
}

static void name_look(struct fake *f, struct fake_name *n)
{
	struct fake_space *s = &f->spaces[n->space];
	struct seg_slot *g = seg_slot(s->base, n->slot);
	uint64_t w;

	if (!f->blind && bit_take(s->base, SEG_WATCH, n->slot)) {
		f->looks++;
		if (lock_look(&g->word) || (__atomic_load_n(&g->word, __ATOMIC_SEQ_CST) & LOCK_W))
			seg_bit_set(s->base, SEG_WATCH, n->slot);
	}
	if (bit_take(s->base, SEG_WANT, n->slot))
		f->wants++;
	else if (f->blind || !(LOCK_LOAD(&g->word) & LOCK_W))
		return;
	w = LOCK_LOAD(&g->word);
	if (!f->range || !lock_is_free(w) || (w & LOCK_L))
		return;
	__atomic_store_n(&g->bias, f->next_token - ((UINT64_C(1) << LOCK_COUNT_BITS) - f->range) - 1, __ATOMIC_RELEASE);
	if (lock_grant(&g->word, f->range)) {
		f->grants++;
		f->next_token += f->range;
	}
}

static void look_at_all(struct fake *f)
{
	char bytes[64];
	bool rung = false;

	for (uint32_t i = 1; i <= f->n_spaces; i++)
		while (read(f->spaces[i].bell, bytes, sizeof bytes) > 0)
			rung = true;
	if (f->blind && !rung)
		return;
	for (uint32_t i = 0; i < f->n_names; i++)
		if (!f->spaces[f->names[i].space].gone && f->spaces[f->names[i].space].base)
			name_look(f, &f->names[i]);
}

static void accept_one(struct fake *f)
{
	int fd = accept4(f->listen, NULL, NULL, SOCK_CLOEXEC);

	for (int i = 0; fd >= 0 && i < FAKE_CONNS; i++) {
		if (f->conn[i] < 0) {
			f->conn[i] = fd;
			return;
		}
	}
	must(fd < 0, "too many connections");
}

static void *fake_run(void *arg)
{
	struct fake *f = arg;

	while (!__atomic_load_n(&f->stop, __ATOMIC_ACQUIRE)) {
		struct pollfd p[1 + FAKE_CONNS + FAKE_SPACES];
		int n = 0, conn[FAKE_CONNS], n_conn = 0;

		pthread_mutex_lock(&f->lock);
		p[n++] = (struct pollfd){ f->listen, POLLIN, 0 };
		for (int i = 0; i < FAKE_CONNS && !f->mute; i++) {
			if (f->conn[i] >= 0) {
				conn[n_conn++] = i;
				p[n++] = (struct pollfd){ f->conn[i], POLLIN, 0 };
			}
		}
		for (uint32_t i = 1; i <= f->n_spaces; i++)
			p[n++] = (struct pollfd){ f->spaces[i].bell, POLLIN, 0 };
		pthread_mutex_unlock(&f->lock);
		poll(p, (nfds_t)n, LOOP_MS);
		pthread_mutex_lock(&f->lock);
		if ((p[0].revents & POLLIN) && f->listen >= 0)
			accept_one(f);
		for (int i = 0; i < n_conn; i++)
			if (p[1 + i].revents && f->conn[conn[i]] >= 0)
				conn_read(f, conn[i]);
		look_at_all(f);
		pthread_mutex_unlock(&f->lock);
	}
	return NULL;
}

/* --- Its life --- */

static void listen_at(struct fake *f)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	snprintf(a.sun_path, sizeof a.sun_path, "%s/dlockd.sock", f->dir);
	unlink(a.sun_path);
	f->listen = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	must(f->listen >= 0 && bind(f->listen, (struct sockaddr *)&a, sizeof a) == 0 && listen(f->listen, 64) == 0, "listen");
}

static void hang_up(struct fake *f)
{
	for (int i = 0; i < FAKE_CONNS; i++)
		if (f->conn[i] >= 0)
			conn_end(f, i);
}

void fake_away(struct fake *f, bool away)
{
	pthread_mutex_lock(&f->lock);
	if (away) {
		close(f->listen);
		f->listen = -1;
		hang_up(f);
	} else {
		listen_at(f);
	}
	pthread_mutex_unlock(&f->lock);
}

/* The library reads DLOCK_RUN_DIR once, so all fakes of a program live in the same place. */
void fake_start(struct fake *f)
{
	static char dir[64];

	memset(f, 0, sizeof *f);
	if (!*dir) {
		snprintf(dir, sizeof dir, "%s/fakeXXXXXX", getenv("TMPDIR") && strlen(getenv("TMPDIR")) < 40 ? getenv("TMPDIR") : "/tmp");
		must(mkdtemp(dir) != NULL, dir);
		setenv("DLOCK_RUN_DIR", dir, 1);
	}
	mkdir(dir, 0700);
	strcpy(f->dir, dir);
	f->range = 1000;
	f->next_token = 1;
	f->forget = true;
	for (int i = 0; i < FAKE_CONNS; i++)
		f->conn[i] = -1;
	f->page_fd = memfd_create("node", MFD_CLOEXEC);
	must(f->page_fd >= 0 && ftruncate(f->page_fd, NODE_PAGE_SIZE) == 0, "page");
	f->page = mmap(NULL, NODE_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, f->page_fd, 0);
	must(f->page != MAP_FAILED, "page");
	f->page[0].magic = NODE_MAGIC;
	f->page[0].ns = f->page[0].ticks = NODE_NEVER;
	pthread_mutex_init(&f->lock, NULL);
	listen_at(f);
	must(pthread_create(&f->thread, NULL, fake_run, f) == 0, "thread");
}

void fake_stop(struct fake *f)
{
	char path[100];

	__atomic_store_n(&f->stop, true, __ATOMIC_RELEASE);
	pthread_join(f->thread, NULL);
	hang_up(f);
	if (f->listen >= 0)
		close(f->listen);
	for (uint32_t i = 1; i <= f->n_spaces; i++) {
		__atomic_store_n(&f->page[i].ns, NODE_GONE, __ATOMIC_RELEASE);
		__atomic_store_n(&f->page[i].ticks, 0, __ATOMIC_RELEASE);
		close(f->spaces[i].fd);
		close(f->spaces[i].bell);
		if (f->spaces[i].base)
			munmap(f->spaces[i].base, SEG_SIZE);
	}
	for (uint32_t i = 0; i < f->n_names; i++)
		if (f->names[i].hint >= 0)
			close(f->names[i].hint);
	munmap(f->page, NODE_PAGE_SIZE);
	close(f->page_fd);
	snprintf(path, sizeof path, "%s/dlockd.sock", f->dir);
	unlink(path);
	rmdir(f->dir);
}

unsigned fake_closed(struct fake *f, unsigned n)
{
	unsigned seen;

	for (int tries = 0; (seen = FAKE_GET(f, closes)) < n && tries < 60000; tries++)
		usleep(1000);
	return seen;
}
