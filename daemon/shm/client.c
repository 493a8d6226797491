/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Clients: who they are, what they have open, and their end.
 *
 * Two signs tell the end of a process. Its anchor (attach.h) says that its address space is gone:
 * by exit, death or exec, whatever its children have inherited. Its pidfd says that the process is
 * gone, whatever has become of the anchor. Either is enough; the attach socket proves nothing.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "files.h"
#include "object.h"
#include "sight.h"
#include "word.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

/* --- who it is --- */

static bool is_shortage(int error)
{
	return error == -EMFILE || error == -ENFILE || error == -ENOMEM;
}

/* Field 22 of /proc/PID/stat; 0 where the process cannot be seen. Fails for want of a descriptor only. */
static int start_time(pid_t pid, uint64_t *ret)
{
	char path[40], text[1024], *at;
	unsigned long long t = 0;
	ssize_t n;
	int fd;

	*ret = 0;
	if (pid <= 0)
		return 0;
	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return is_shortage(-errno) ? -errno : 0;
	n = read(fd, text, sizeof text - 1);
	close(fd);
	text[n > 0 ? n : 0] = 0;
	at = strrchr(text, ')');         /* the command's name may hold anything */
	if (at && sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
			 &t) == 1)
		*ret = t;
	return 0;
}

/* The pid behind a pidfd, as it is called here. */
static pid_t pidfd_pid(int pidfd)
{
	char path[40], text[512], *at;
	ssize_t n;
	int fd;

	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", pidfd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof text - 1);
	close(fd);
	text[n > 0 ? n : 0] = 0;
	at = strstr(text, "\nPid:");
	return at ? atoi(at + 5) : 0;
}

static int peer_groups(int fd, struct peer *p)
{
	socklen_t n = 0;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, NULL, &n) == 0 || errno != ERANGE)
		return 0;
	p->groups = malloc(n);
	if (!p->groups)
		return -ENOMEM;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, p->groups, &n) < 0)
		return -errno;
	p->n_groups = n / sizeof *p->groups;
	return 0;
}

int peer_identify(struct shm *shm, int fd, struct peer *ret)
{
	struct ucred cred;
	socklen_t n = sizeof cred;
	int r;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) < 0)
		return -errno;
	*ret = (struct peer){ .fd = fd, .pid = cred.pid, .uid = cred.uid, .gid = cred.gid, .pidfd = -1 };
	r = peer_groups(fd, ret);
	if (r < 0)
		return r;
	n = sizeof ret->pidfd;
	if (shm->config.no_peerpidfd)
		return -ENOTSUP;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &ret->pidfd, &n) < 0) {
		ret->pidfd = -1;
		return errno == ENOPROTOOPT ? -ENOTSUP : -errno;
	}
	ret->pid = pidfd_pid(ret->pidfd);
	return ret->pid < 0 ? -ESRCH : 0;
}

int peer_pidfd(struct peer *p)
{
	if (p->pid <= 0)
		return -ENOTSUP;         /* lives in a pid namespace that is not below ours */
	p->pidfd = (int)syscall(SYS_pidfd_open, p->pid, 0);
	return p->pidfd < 0 ? -errno : 0;
}

void peer_known(struct peer *p)
{
	if (p->pidfd >= 0)
		close(p->pidfd);
	p->pidfd = -1;
}

void peer_done(struct peer *p)
{
	peer_known(p);
	free(p->groups);
	*p = (struct peer){ .fd = -1, .pidfd = -1 };
}

/* --- coming and going --- */

struct client_end {
	struct shm *shm;
	uint32_t index;
};

static void client_pidfd_ready(void *arg, uint32_t revents)
{
	struct client_end *e = arg;

	(void)revents;
	client_gone(e->shm, e->index, "its process ended");
}

/* One small block per index, for as long as the daemon runs: a call-back must find it. */
static struct client_end *client_end(struct shm *shm, uint32_t index)
{
	static struct client_end ends[SEG_CLIENTS_MAX];

	ends[index] = (struct client_end){ shm, index };
	return &ends[index];
}

static int client_watch(struct shm *shm, struct client *c)
{
	if (c->pidfd < 0)
		return 0;
	return loop_watch(shm->loop, c->pidfd, POLLIN, client_pidfd_ready, client_end(shm, c->index), &c->watch);
}

void client_free(struct shm *shm, struct client *c)
{
	if (!c)
		return;
	loop_unwatch(c->watch);
	if (c->pidfd >= 0)
		close(c->pidfd);
	hint_close_all(c, shm);
	free(c->spaces);
	free(c);
}

int client_new(struct shm *shm, struct peer *p, uint32_t flags, struct client **ret, int *ret_anchor)
{
	struct ledger_client *rec;
	struct client *c;
	uint32_t index;
	int r, anchor;

	r = quota_take(&shm->quotas, p->uid, QUOTA_CLIENTS);
	if (r < 0)
		return r;
	r = table_take(&shm->ledger.clients, &index);
	if (r < 0) {
		quota_give(&shm->quotas, p->uid, QUOTA_CLIENTS);
		return r == -ENOSPC && shm->ledger.clients.n >= SEG_CLIENTS_MAX - 1 ? -EUSERS : r;
	}
	ledger_client(&shm->ledger, index)->uid = p->uid;
	c = calloc(1, sizeof *c);
	anchor = c ? anchor_make(shm, index) : -ENOMEM;
	if (anchor < 0) {
		client_forget(shm, index);
		free(c);
		return anchor;
	}
	c->index = index;
	c->pidfd = flags & CLIENT_INHERIT ? -1 : p->pidfd;
	rec = ledger_client(&shm->ledger, index);
	rec->flags = flags;
	rec->pid = p->pid;
	rec->gid = p->gid;
	rec->attached_ns = loop_now(shm->loop);
	r = start_time(p->pid, &rec->start_time);
	if (r == 0)
		r = files_random(rec->nonce, sizeof rec->nonce);
	if (r == 0)
		r = client_watch(shm, c);
	if (r < 0) {
		c->pidfd = -1;
		client_free(shm, c);
		client_forget(shm, index);
		close(anchor);
		return r;
	}
	if (c->pidfd == p->pidfd)
		p->pidfd = -1;
	table_commit(&shm->ledger.clients, index, 1);
	shm->clients[index] = c;
	shm_tell(shm, "attach", NULL, 0, p->pid, 0, NULL);
	*ret = c;
	*ret_anchor = anchor;
	return 0;
}

static int client_area_note(struct client *c, struct space *s);

static void client_areas_adopt(struct shm *shm, struct client *c)
{
	for (uint32_t i = ledger_client(&shm->ledger, c->index)->opens; i;
	     i = ledger_open_at(&shm->ledger, i)->next) {
		struct space *s = shm->spaces[ledger_open_at(&shm->ledger, i)->space];

		if (s && !s->broken)
			client_area_note(c, s);
	}
}

/* -ESRCH: another process has that pid by now, or none. */
static int adopt_process(const struct ledger_client *rec, int *ret_pidfd)
{
	uint64_t started;
	int pidfd = (int)syscall(SYS_pidfd_open, rec->pid, 0), r;

	if (pidfd < 0)
		return is_shortage(-errno) ? -errno : -ESRCH;
	r = start_time(rec->pid, &started);
	if (r == 0 && started != rec->start_time)
		r = -ESRCH;
	if (r < 0)
		close(pidfd);
	else
		*ret_pidfd = pidfd;
	return r;
}

/* The same process as before? Then it has the pid, the start time and the address space of then. */
int client_adopt(struct shm *shm, uint32_t index)
{
	const struct ledger_client *rec = ledger_client(&shm->ledger, index);
	struct client *c;
	int pidfd = -1, r = anchor_there(shm, index);

	if (r <= 0)
		return r < 0 ? r : -ESRCH;
	if (!(rec->flags & CLIENT_INHERIT) && rec->pid > 0) {
		r = adopt_process(rec, &pidfd);
		if (r < 0)
			return r;
	}
	c = calloc(1, sizeof *c);
	if (!c) {
		if (pidfd >= 0)
			close(pidfd);
		return -ENOMEM;
	}
	c->index = index;
	c->pidfd = pidfd;
	r = client_watch(shm, c);
	if (r < 0) {
		client_free(shm, c);
		return r;
	}
	shm->clients[index] = c;
	client_areas_adopt(shm, c);
	hint_adopt(c, shm);
	return 0;
}

/* --- what it has open --- */

/* Notes that it has an area in the space. -EEXIST: that is known. */
static int client_area_note(struct client *c, struct space *s)
{
	for (uint16_t i = 0; i < c->n_spaces; i++)
		if (c->spaces[i] == s->id)
			return -EEXIST;
	if (c->n_spaces == c->spaces_cap) {
		uint16_t cap = c->spaces_cap ? (uint16_t)(c->spaces_cap * 2) : 4;
		uint16_t *p = realloc(c->spaces, cap * sizeof *p);

		if (!p)
			return -ENOMEM;
		c->spaces = p;
		c->spaces_cap = cap;
	}
	c->spaces[c->n_spaces++] = (uint16_t)s->id;
	s->n_clients++;
	return 0;
}

bool client_is_in(const struct client *c, const struct space *s)
{
	for (uint16_t i = 0; c && i < c->n_spaces; i++)
		if (c->spaces[i] == s->id)
			return true;
	return false;
}

/* The page in which its threads say that they wait: zeroed, and there before it is written to. */
static int client_area(struct client *c, struct space *s)
{
	off_t at = (off_t)(SEG_AREA_OFF + (uint64_t)c->index * SEG_AREA_SIZE);
	int r = client_area_note(c, s);

	if (r < 0)
		return r == -EEXIST ? 0 : r;
	fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, SEG_AREA_SIZE);
	r = files_room(s->fd, at, SEG_AREA_SIZE);
	if (r == 0)
		return 0;
	c->n_spaces--;
	s->n_clients--;
	return r;
}

static void client_areas_back(struct shm *shm, struct client *c)
{
	for (uint16_t i = 0; i < c->n_spaces; i++) {
		struct space *s = shm->spaces[c->spaces[i]];

		if (!s || s->fd < 0)
			continue;
		fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			  (off_t)(SEG_AREA_OFF + (uint64_t)c->index * SEG_AREA_SIZE), SEG_AREA_SIZE);
		s->n_clients--;
	}
	c->n_spaces = 0;
}

void client_area_forget(struct client *c, uint32_t space)
{
	for (uint16_t i = 0; c && i < c->n_spaces; i++)
		if (c->spaces[i] == space)
			c->spaces[i--] = c->spaces[--c->n_spaces];
}

/* Whoever fails here leaves a name that nobody has open: it is closed again. */
static int client_open_name(struct client *c, struct shm *shm, struct space *s, uint32_t slot)
{
	uid_t uid = ledger_client(&shm->ledger, c->index)->uid;
	uint32_t open;
	int r = quota_take(&shm->quotas, uid, QUOTA_OPENS);

	if (r == 0) {
		r = ledger_open_add(&shm->ledger, c->index, (uint16_t)s->id, slot, &open);
		if (r < 0)
			quota_give(&shm->quotas, uid, QUOTA_OPENS);
	}
	name_opened(s, slot);
	sight_soon(s, slot);
	if (r < 0)
		name_closed(s, slot);
	else
		shm->opens_of[s->id]++;
	return r;
}

static void client_delay(struct client *c, struct shm *shm, struct space *s, uint32_t slot, uint32_t ms)
{
	if (ms)
		delay_asked(s, slot, ledger_open_find(&shm->ledger, c->index, (uint16_t)s->id, slot), (uint16_t)ms);
}

int client_open(struct client *c, struct shm *shm, struct space *s, const struct client_what *what,
		uint32_t *ret_slot, uint32_t *ret_account)
{
	uint32_t slot = name_find(s, what->kind, what->name, what->len);
	bool made = !slot, first = made || !name_at(s, slot)->opens, object = kind_is_object(what->kind);
	int r = client_area(c, s);

	if (!object && what->arg > LEDGER_DELAY_MAX)
		return -EINVAL;
	*ret_account = 0;
	if (r == 0 && slot && ledger_open_find(&shm->ledger, c->index, (uint16_t)s->id, slot)) {
		*ret_slot = slot;
		if (!object)
			client_delay(c, shm, s, slot, what->arg);
		return object ? object_open(s, slot, c->index, what->arg, ret_account) : 0;
	}
	if (r == 0 && made)
		r = name_make(s, what->kind, what->name, what->len, &slot);
	if (r == 0)
		r = client_open_name(c, shm, s, slot);
	if (r < 0)
		return r;
	if (object)
		r = object_open(s, slot, c->index, what->arg, ret_account);
	else if (what->kind == KIND_ELECT)
		r = elect_open(s, slot);
	if (r < 0)
		client_close(c, shm, s, slot);
	if (r < 0)
		return r;
	if (!object)
		client_delay(c, shm, s, slot, what->arg);
	*ret_slot = slot;
	if (first)
		shm_tell(shm, "open", s, slot, ledger_client(&shm->ledger, c->index)->pid, 0, NULL);
	return 0;
}

static bool open_is_here(const struct space *s, uint32_t slot)
{
	return s && !s->broken && name_is(s, slot);
}

/* What it still owned is free, what it owed is given. */
void client_release(struct shm *shm, uint32_t index, uint32_t open)
{
	const struct ledger_open *o = ledger_open_at(&shm->ledger, open);
	struct space *s = shm->spaces[o->space];
	uint64_t token;
	bool mourned, left, alone;

	if (!open_is_here(s, o->slot))
		return;
	if (kind_is_object(name_kind(s, o->slot))) {
		open_mourn(shm, index, open, 0, &alone);
		return;
	}
	if (name_kind(s, o->slot) == KIND_ELECT)
		elect_died(s, o->slot, index);
	token = name_token(s, o->slot);  /* before the next one takes his */
	upgrade_over(s, o->slot, index);
	elect_ring(s, o->slot);
	mourned = open_mourned(o);
	left = open_mourn(shm, index, open, token, &alone);
	if (alone)
		return;
	if (lock_died(&seg_slot(s->base, o->slot)->word, index) && !mourned)
		shm_tell(shm, "owner-died", s, o->slot, ledger_client(&shm->ledger, index)->pid, token, NULL);
	if (!left && !shm->clients[index])
		reader_gone(s, o->slot, index);
	watch_owed(s, o->slot);
	if (name_revoked(name_at(s, o->slot)))
		yield_look(s, o->slot);
}

/* Then the ledger forgets that it was here. */
void client_leave(struct shm *shm, uint32_t index, uint32_t open)
{
	const struct ledger_open o = *ledger_open_at(&shm->ledger, open);
	struct space *s = shm->spaces[o.space];

	client_release(shm, index, open);
	if (open_is_here(s, o.slot) && kind_is_object(name_kind(s, o.slot)))
		object_leave(s, o.slot, index, !shm->clients[index]);
	if (o.flags & OPEN_HINT)
		hint_drop(shm->clients[index], shm, index, o.space, o.slot);
	ledger_open_del(&shm->ledger, open);
	quota_give(&shm->quotas, ledger_client(&shm->ledger, index)->uid, QUOTA_OPENS);
	if (!--shm->opens_of[o.space] && s && s->broken)
		chores_wake(shm);
	if (open_is_here(s, o.slot))
		name_closed(s, o.slot);
}

int client_close(struct client *c, struct shm *shm, struct space *s, uint32_t slot)
{
	uint32_t open = slot < SEG_SLOTS_MAX ? ledger_open_find(&shm->ledger, c->index, (uint16_t)s->id, slot) : 0;

	if (!open)
		return -EINVAL;
	client_leave(shm, c->index, open);
	return 0;
}

int client_onloss(struct client *c, struct shm *shm, struct space *s, uint32_t slot, uint32_t signo)
{
	uint32_t open = slot < SEG_SLOTS_MAX ? ledger_open_find(&shm->ledger, c->index, (uint16_t)s->id, slot) : 0;
	struct ledger_open *o;

	if (!open || signo > 64)
		return -EINVAL;
	o = ledger_open_at(&shm->ledger, open);
	__atomic_store_n(&o->flags, (uint16_t)((o->flags & ((1u << OPEN_SIGNAL_SHIFT) - 1)) | signo << OPEN_SIGNAL_SHIFT),
			 __ATOMIC_RELEASE);
	return 0;
}

int client_permits_delay(struct client *c, struct shm *shm, struct space *s, uint32_t slot, uint32_t ms)
{
	uint32_t open = slot < SEG_SLOTS_MAX ? ledger_open_find(&shm->ledger, c->index, (uint16_t)s->id, slot) : 0;

	if (!open || !ms || ms > LEDGER_DELAY_MAX || name_kind(s, slot) != KIND_SEM)
		return -EINVAL;
	delay_asked(s, slot, open, (uint16_t)ms);
	return 0;
}

int client_value(struct client *c, struct shm *shm, struct space *s, uint32_t slot)
{
	if (slot >= SEG_SLOTS_MAX || !ledger_open_find(&shm->ledger, c->index, (uint16_t)s->id, slot) || !name_is_lock(s, slot))
		return -EINVAL;
	return value_page_ask(s, slot);
}

void client_gone(struct shm *shm, uint32_t index, const char *why)
{
	struct client *c = shm->clients[index];
	bool losing = c && c->losing;

	shm_tell(shm, "detach", NULL, 0, ledger_client(&shm->ledger, index)->pid, 0, why);
	if (c) {
		client_areas_back(shm, c);
		if (c->conn)
			conn_end(c->conn);
	}
	shm->clients[index] = NULL;
	client_free(shm, c);
	anchor_remove(shm, index);
	readers_forget(shm, index, false);
	chore_leave(shm, index);
	if (losing && --shm->losing == 0 && !shm->loss_walk.on)
		shm->ops.loss_done(shm->ops.arg);
}

void client_forget(struct shm *shm, uint32_t index)
{
	uid_t uid = ledger_client(&shm->ledger, index)->uid;

	readers_forget(shm, index, true);
	table_drop(&shm->ledger.clients, index);
	quota_give(&shm->quotas, uid, QUOTA_CLIENTS);
}
