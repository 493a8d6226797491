/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "node.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../log.h"
#include "../shm/files.h"
#include "../store/store.h"

static int fail(struct node *n, int error, const char *what, const char *why)
{
	if (!n->failed[0])
		snprintf(n->failed, sizeof n->failed, "%s: %s", what, why ? why : strerror(-error));
	return error;
}

/* RUN is 0755: everybody may come to the sockets; what is secret lies in directories of 0700. */
static int open_rundir(struct node *n)
{
	const char *path = n->config.run_dir;

	if (mkdir(path, 0755) < 0 && errno != EEXIST)
		return fail(n, -errno, path, NULL);
	n->rundir_fd = files_dir(AT_FDCWD, path, 0755);
	if (n->rundir_fd == -EPERM)
		return fail(n, -EPERM, path, "it must belong to the user that dlockd runs as, and others must not write there");
	return n->rundir_fd < 0 ? fail(n, n->rundir_fd, path, NULL) : 0;
}

/*
 * One daemon writes to the ledger and to the words, whatever has become of the lock in the state directory: a second one, stopped
 * for a while, would take back at its deadline what the first has granted. Nobody else may open the ledger's directory.
 */
static int lock_rundir(struct node *n)
{
	n->ledger_fd = files_dir(n->rundir_fd, "ledger", 0700);
	if (n->ledger_fd < 0 || flock(n->ledger_fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
		return 0;                /* what else is wrong is told by who works with it */
	return fail(n, -EBUSY, n->config.run_dir, "another daemon uses this directory, though not the state directory, or its lock was "
		    "removed from there. It may be a stopped one; end it first");
}

static int open_store(struct node *n)
{
	static struct store_why why;
	struct boot_place here;
	const char *text = NULL;
	const struct store_options options = { .url = "file:", .state_dir = n->config.state_dir };
	int r = store_open(&options, &n->own, &why);

	if (r < 0)
		return fail(n, r, "store", why.text);
	r = lock_rundir(n);
	if (r < 0)
		return r;
	r = boot_place(n->config.state_dir, &here);
	if (r < 0)
		return fail(n, r, n->config.state_dir, NULL);
	r = boot_decide(n->own, &here, n->rundir_fd, &n->boot, &text);
	return r < 0 ? fail(n, r, "store", text) : 0;
}

static struct space_access access_of(const struct config_space *c)
{
	return (struct space_access){ c->owner, c->group, c->mode };
}

static int apply_spaces(struct node *n)
{
	for (size_t i = 0; i < n->config.n_spaces; i++) {
		const struct config_space *c = &n->config.spaces[i];
		struct space_access access = access_of(c);
		struct space *s = space_find(&n->shm, c->name, strlen(c->name));
		int r = 0;

		if (s)
			space_set_access(s, &access);
		else
			r = space_create(&n->shm, c->name, &access, false, &s);
		if (r < 0)
			return fail(n, r, c->name, r == -ENOSPC
				? "no room for its shared memory in the run directory: free some, or enlarge that tmpfs" : NULL);
	}
	return 0;
}

static void links_ready_now(void *arg, uint32_t revents)
{
	struct node *n = arg;
	int r = links_ready(n->links);

	(void)revents;
	if (r < 0)
		log_limited(loop_now(n->loop), LOG_LEVEL_WARNING, "links: %s", links_explain(r));
}

/* The node does without, where the kernel does not tell. */
static void open_links(struct node *n)
{
	int r = links_open(&n->links);

	if (r == 0)
		r = loop_watch(n->loop, links_fd(n->links), POLLIN, links_ready_now, n, &n->links_watch);
	if (r < 0) {
		log_warning("links: %s", links_explain(r));
		links_close(n->links);
		n->links = NULL;
		return;
	}
	links_on_change(n->links, node_link_event, n);
}

static void apply_burst(struct node *n)
{
	n->shm.burst = (struct shm_burst){ n->config.burst, n->config.burst_time * NSEC_PER_MSEC };
}

static int open_shm(struct node *n, const struct node_options *o)
{
	int r;
	struct shm_ops ops = {
		.arg = n, .want = node_want, .try = node_try, .rank = node_rank, .unused = node_unused, .yielded = node_yielded,
		.lowered = node_lowered, .observe = node_observe,
		.leads = node_leads, .loss_done = node_loss_done, .event = node_tell, .barrier = node_barrier,
		.small = &node_small_ops, .sem = node_sem, .pool = &node_pool_ops,
	};
	struct shm_config config = {
		.rundir_fd = n->rundir_fd, .session = n->boot.id.session,
		.spaces_on_demand = n->config.spaces_on_demand,
		.deadline_ns = cluster_first_deadline(n), .no_peerpidfd = o->no_peerpidfd,
		.many = n->cluster.on || o->as_many,
	};

	if (o->counter_deadline && !n->cluster.on) {
		config.deadline_ns = NODE_NEVER;
		config.deadline_ticks = PAGE_FAR_TICKS;
	}
	apply_burst(n);
	loop_defer_init(&n->arrive, node_arrive, n);
	r = shm_init(&n->shm, n->loop, &config, &n->boot.id, n->boot.fresh, &ops);

	/* What a ledger of this session lacks is as lost as if it were not there at all. */
	if (r < 0 && !n->boot.fresh && (r == -ESTALE || r == -ENOENT))
		return fail(n, r, n->config.run_dir,
			    "the ledger is incomplete or was changed; remove the directory `ledger' there, what was held is lost then");
	return r < 0 ? fail(n, r, n->config.run_dir, r == -ENOSPC
			? "no room for shared memory: free some, or enlarge that tmpfs" : NULL) : 0;
}

int node_open(struct node *n, struct loop *loop, const struct config *config, const struct node_options *o)
{
	int r;

	n->loop = loop;
	n->config = *config;
	n->state = "starting";
	n->rundir_fd = n->ledger_fd = -1;
	n->started = loop_clock();
	r = open_rundir(n);
	if (r == 0)
		r = open_store(n);
	if (r < 0)
		return r;
	log_write(boot_loses(n->boot.what) ? LOG_LEVEL_WARNING : LOG_LEVEL_INFO, "session %llu, incarnation %u: %s",
		  (unsigned long long)n->boot.id.session, n->boot.incarnation, boot_text(n->boot.what));
	r = cluster_open(n);
	if (r == 0)
		r = node_things_init(n);
	if (r == 0)
		r = open_shm(n, o);
	if (r == 0)
		r = cluster_begin(n);
	if (r == 0)
		r = node_core_start(n);
	if (r == 0)
		r = cluster_ready(n);
	if (r < 0)
		return fail(n, r, "start", NULL);
	r = apply_spaces(n);
	if (r == 0)
		open_links(n);
	return r;
}

int node_start(struct node *n, int attach_fd, int query_fd)
{
	int r;

	node_source(n, &n->source);
	r = query_start(n->loop, query_fd, &n->source, &n->query);
	if (r < 0)
		return fail(n, r, "query socket", NULL);
	r = shm_start(&n->shm, attach_fd);
	if (r < 0)
		return fail(n, r, "attach socket", NULL);
	if (n->shm.loss)
		log_warning("a space was lost: %s", n->shm.loss);
	if (!n->cluster.on)
		node_things_session(n, n->boot.id.session);
	n->state = "running";
	return 0;
}

int node_reload(struct node *n, const struct config *config)
{
	struct config old = n->config;

	n->config = *config;
	cluster_reload(n, &old);
	config_done(&old);
	apply_burst(n);
	n->shm.config.spaces_on_demand = config->spaces_on_demand;
	n->failed[0] = 0;
	return apply_spaces(n);
}

void node_close(struct node *n)
{
	n->closing = true;
	query_free(n->query);
	loop_unwatch(n->links_watch);
	links_close(n->links);
	shm_done(&n->shm);
	if (n->loop)
		loop_defer_cancel(n->loop, &n->arrive);
	node_things_done(n);
	core_free(n->core);
	cluster_close(n);
	store_close(n->own);
	free(n->busy);
	free(n->refs);
	free(n->ref_used);
	free(n->queue);
	free(n->arrivals);
	if (n->ledger_fd >= 0)
		close(n->ledger_fd);
	if (n->rundir_fd >= 0)
		close(n->rundir_fd);
	config_done(&n->config);
}
