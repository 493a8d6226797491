/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "shm.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "barrier.h"
#include "files.h"
#include "pool.h"
#include "sem.h"
#include "sigbus.h"
#include "sight.h"

void shm_tell(struct shm *shm, const char *what, const struct space *s, uint32_t slot, pid_t pid,
	      uint64_t token, const char *detail)
{
	shm->ops.event(shm->ops.arg, &(struct shm_event){ what, s, slot, pid, token, detail });
}

static int open_dirs(struct shm *shm)
{
	static const char *const names[] = { "shm", "anchor", "hint" };
	int *fds[] = { &shm->dirfd, &shm->anchor_dirfd, &shm->hint_dirfd };

	for (unsigned i = 0; i < 3; i++) {
		*fds[i] = files_dir(shm->config.rundir_fd, names[i], 0700);
		if (*fds[i] < 0)
			return *fds[i];
	}
	return 0;
}

/* Before anybody attaches: an end that comes between this and the look at an anchor is an event. */
static int watch_anchors(struct shm *shm)
{
	char path[40];

	shm->inotify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	if (shm->inotify < 0)
		return -errno;
	__builtin_snprintf(path, sizeof path, "/proc/self/fd/%d", shm->anchor_dirfd);
	if (inotify_add_watch(shm->inotify, path, IN_CLOSE_NOWRITE | IN_ONLYDIR) < 0)
		return -errno;
	return loop_read_start(shm->loop, shm->inotify, 65536, anchors_events, shm, &shm->inotify_read);
}

/* What the session before had promised ends, visibly for whoever still maps it. */
static int page_begin(struct shm *shm, bool fresh)
{
	const struct shm_config *c = &shm->config;
	uint64_t ns = c->deadline_ns ? c->deadline_ns : NODE_NEVER;

	return page_open(&shm->page, shm->dirfd, c->session, fresh, ns, ns == NODE_NEVER && !c->deadline_ticks ?
			 NODE_NEVER : c->deadline_ticks);
}

static int begin_anew(struct shm *shm)
{
	int r = page_begin(shm, true);

	if (r < 0)
		return r;
	page_close(&shm->page);
	adopt_end(shm->dirfd);
	r = files_empty(shm->config.rundir_fd, "anchor");
	if (r == 0)
		r = files_empty(shm->config.rundir_fd, "hint");
	if (r == 0)
		r = files_empty(shm->config.rundir_fd, "shm");
	return r;
}

static int adopt_spaces(struct shm *shm)
{
	for (uint32_t i = 0; (i = table_next(&shm->ledger.opens, i));)
		shm->opens_of[ledger_open_at(&shm->ledger, i)->space]++;
	for (uint32_t i = 0, next; (next = table_next(&shm->ledger.spaces, i)); i = next) {
		struct space *s;
		int r;

		/* A successor of one that was found lost just now is there already. */
		if (ledger_space(&shm->ledger, next)->used != SPACE_GOOD || shm->spaces[next])
			continue;
		r = space_adopt(shm, next, &s);
		if (r < 0)
			return r;
		if (s->broken)
			shm->loss = s->broken;
		else if ((r = objects_adopt(s)) < 0)
			return r;
	}
	return 0;
}

int shm_init(struct shm *shm, struct loop *loop, const struct shm_config *config,
	     const struct ledger_identity *id, bool fresh, const struct shm_ops *ops)
{
	int r;

	shm->loop = loop;
	shm->ops = *ops;
	shm->config = *config;
	shm->dirfd = shm->anchor_dirfd = shm->hint_dirfd = shm->inotify = shm->listen_fd = -1;
	shm->page.fd = -1;
	shm->ledger.head = -1;
	loop_timer_init(&shm->anchor_timer, anchors_recheck, shm);
	chores_init(shm);
	delays_init(shm);
	sights_init(shm);
	parties_init(shm);
	r = sigbus_install();
	if (r == 0)
		r = open_dirs(shm);
	if (r == 0 && fresh)
		r = begin_anew(shm);
	/* The ledger comes last: its head says that all the rest is there. */
	if (r == 0)
		r = page_begin(shm, fresh);
	if (r == 0)
		r = ledger_open(&shm->ledger, config->rundir_fd, id, fresh);
	if (r == 0)
		r = rounds_open(shm, fresh);
	if (r == 0)
		r = watch_anchors(shm);
	if (r == 0 && !fresh)
		r = adopt_spaces(shm);
	if (r == 0 && !fresh) {
		adopt_opens(shm);
		parties_recall(shm);
	}
	return r;
}

void shm_each_lease(struct shm *shm, void (*fn)(void *arg, struct space *s, uint32_t slot), void *arg)
{
	for (uint32_t i = 0; i < LEDGER_SPACES_MAX; i++) {
		struct space *s = shm->spaces[i];
		struct sem_lease held;
		struct pool_lease lease;

		for (uint32_t n = 0; s && !s->broken && (n = table_next(&s->names, n));)
			if ((name_is_lock(s, n) && name_at(s, n)->count) || sem_lease(s, n, &held) || pool_lease(s, n, &lease))
				fn(arg, s, n);
	}
}

int shm_start(struct shm *shm, int listen_fd)
{
	int r = adopt_clients(shm);

	if (r < 0)
		return r;
	shm_lapse_told(shm);
	shm->running = true;
	for (uint32_t i = 0; i < LEDGER_SPACES_MAX; i++) {
		if (!shm->spaces[i] || shm->spaces[i]->broken)
			continue;
		readers_adopt(shm->spaces[i]);
		adopt_words(shm->spaces[i]);
	}
	parties_begin(shm);
	hatches_start(shm);
	return conn_listen(shm, listen_fd);
}

void shm_done(struct shm *shm)
{
	if (!shm->loop)
		return;                  /* shm_init() was never called */
	loop_set_look(shm->loop, NULL);
	shm_loss_over(shm);
	conn_close_all(shm);
	chores_done(shm);
	loop_read_stop(shm->inotify_read);
	loop_timer_cancel(shm->loop, &shm->anchor_timer);
	loop_timer_cancel(shm->loop, &shm->mourn_timer);
	sights_done(shm);
	parties_end(shm);
	for (uint32_t i = 0; i < SEG_CLIENTS_MAX; i++) {
		client_free(shm, shm->clients[i]);
		shm->clients[i] = NULL;
	}
	for (uint32_t i = 0; i < LEDGER_SPACES_MAX; i++) {
		space_free(shm->spaces[i]);
		shm->spaces[i] = NULL;
	}
	rounds_close(shm);
	if (shm->ledger.clients.base)
		ledger_close(&shm->ledger);
	page_close(&shm->page);
	quotas_done(&shm->quotas);
	for (int *fds[] = { &shm->dirfd, &shm->anchor_dirfd, &shm->hint_dirfd, &shm->inotify }, **p = fds;
	     p < fds + 4; p++)
		if (**p >= 0)
			close(**p);
}
