/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The node: translates between the segment, the store and the core, and decides nothing.
 *
 * What must hold: the core's actions are carried out one by one, in their order. What happens
 * meanwhile waits in a queue and becomes the next event.
 */
#ifndef DLOCK_NODE_H
#define DLOCK_NODE_H

#include <stdbool.h>
#include <stdint.h>

#include "../config.h"
#include "../core/core.h"
#include "../loop/loop.h"
#include "../net/links.h"
#include "../query/query.h"
#include "../shm/shm.h"
#include "../store/store.h"
#include "boot.h"

struct node_event {
	enum core_event_kind kind;
	uint32_t ref;
	uint64_t used;
	/* STORE */
	uint32_t op;
	int error;
	void *value;
	uint32_t value_len;
	uint64_t version;
};

struct node {
	struct loop *loop;
	struct config config;
	struct store *store;
	struct core *core;
	struct boot boot;
	struct shm shm;
	struct query *query;
	struct query_source source;
	struct links *links;
	struct loop_watch *links_watch;
	struct loop_timer core_timer, retry_timer, watchdog;
	nsec_t watchdog_span;
	nsec_t started;
	int rundir_fd;
	const char *state;               /* "starting", "running", "stopping" */
	char failed[1280];               /* why it cannot go on; "": it can */

	/* The core's number of a name -> space << 20 | slot. */
	uint32_t *refs, n_refs, refs_cap;        /* n_refs: the highest in use + 1 */
	uint64_t *ref_used;                      /* a bit each */
	uint32_t ref_hint, n_live;               /* none is free below; in use */

	struct node_event *queue;        /* a ring; grows with what one step of the core brings about */
	unsigned queue_cap, head, count;
	bool stepping;
	bool open;
};

struct node_options {
	const char *config_path, *dir;
	bool counter_deadline, no_peerpidfd;
};

/* Everything up to serving; failed says why not. */
int node_open(struct node *n, struct loop *loop, const struct config *config, const struct node_options *o);
int node_start(struct node *n, int attach_fd, int query_fd);
void node_close(struct node *n);
int node_reload(struct node *n, const struct config *config);    /* takes over config's memory */

/* lease.c */
extern const struct core_memory node_memory;
int node_core_start(struct node *n);
void node_want(void *arg, struct space *s, uint32_t slot);
void node_unused(void *arg, struct space *s, uint32_t slot, uint64_t used);
void node_retry(void *arg);

/* view.c */
void node_source(struct node *n, struct query_source *ret);
void node_tell(void *arg, const struct shm_event *ev);
void node_link_event(void *arg, const struct links_event *ev);

#endif
