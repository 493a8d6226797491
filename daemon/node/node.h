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
#include "../loop/counter.h"
#include "../loop/loop.h"
#include "../net/links.h"
#include "../query/query.h"
#include "../shm/shm.h"
#include "../store/store.h"
#include "../things/item.h"
#include "boot.h"

struct net;
struct node_things;
struct enquiry;
struct object;
struct record_request;
struct tls_keys;

/* What a node among others has besides. */
struct node_cluster {
	struct core_cluster conf;
	char address[CORE_ADDRESS_MAX + 1];
	struct net *net;
	struct tls_keys *keys;
	struct counter counter;
	uint64_t session;
	uint32_t incarnation;
	nsec_t deadline;                 /* 0: nothing may be held */
	nsec_t adopted;                  /* the deadline to begin with; 0: a new session */
	nsec_t stop_by;
	int jeopardy;                    /* why renewals fail; 0: they do not */
	bool terms_asked, terms_good;    /* terms.c */
	char terms_why[200];             /* why this node may not take part; "": it may, or it is not known */
	nsec_t terms_said;
	char store_why[1024];            /* what the last request has failed with; "": it has not */
	int store_told;                  /* the last error in the log, and when */
	nsec_t store_said;
	nsec_t store_took, store_worst, store_worst_at;  /* from request to answer: of late, and the longest for a minute */
	struct record_request *held;     /* requests until then, the first of them first; records.c */
	bool on, losing, drains, drained, stopping, leaving, left;
	struct loop_timer loss_timer, stop_timer;
	int cert_told;                   /* how near its end our certificate was when the log was told so last; expiry.c */
	uint64_t lapses, losses;
	uint32_t epoch;                  /* the highest that has been told of */
};

struct node_event {
	enum core_event_kind kind;
	uint32_t ref;
	uint64_t used;
	bool died;
	uint32_t held, wanted, limit;    /* CHANGE, CLAIM: totals; limit: CLAIM, RESIZE. CLAIM of a lock: 0, all of it */
	bool tries;
	uint8_t priority;                /* CLAIM, CHANGE of a semaphore, also a free one */
	uint32_t present;                /* CLAIM: as the core's */
	uint64_t limit_stamp;
	bool upgrade;                    /* CHANGE */
	bool ranks;                      /* CHANGE: of nothing but the priority */
	bool off;                        /* DRAIN, OBSERVE */
	uint32_t party;                  /* of the barrier `ref`; both are numbers of rounds.h */
	bool further;                    /* ARRIVE: another one at this barrier follows at once */
	/* STORE: what came of it, in one block of memory */
	uint32_t op;
	int error;
	struct core_record *records;
	uint32_t n_records;
	uint64_t version;
	uint64_t number;                 /* ENQUIRE */
	/* LINK_UP, LINK_DOWN */
	uint64_t session, conn;
	uint32_t incarnation;
};

struct node_name {
	struct space *space;
	uint32_t slot;
};

struct node_arrival {
	uint32_t barrier, party;
};

struct node {
	struct loop *loop;
	struct config config;
	struct store *own;               /* the embedded one: who this node is, and whether it has run before */
	struct store *store;             /* what the core works with: the same, or one that other nodes use too */
	struct core *core;
	struct boot boot;
	struct shm shm;
	struct query *query;
	struct query_source source;
	struct links *links;
	struct loop_watch *links_watch, *store_watch;
	struct loop_timer core_timer, more_timer, retry_timer, watchdog;
	nsec_t watchdog_span;
	nsec_t started;
	int rundir_fd;
	int ledger_fd;                   /* locked: this daemon's */
	const char *state;               /* "starting", "running", "stopping" */
	char failed[1280];               /* why it cannot go on; "": it can */

	/* The core's number of a name -> space << 20 | slot. */
	uint32_t *refs, n_refs, refs_cap;        /* n_refs: the highest in use + 1 */
	uint64_t *ref_used;                      /* a bit each */
	uint32_t ref_hint, n_live;               /* none is free below; in use */

	struct node_event *queue;        /* a ring; grows with what one step of the core brings about */
	unsigned queue_cap, head, count;
	bool stepping, closing;
	struct node_arrival *arrivals;   /* to barriers, of this turn: told at its end, those to one barrier together */
	unsigned n_arrivals, arrivals_cap;
	struct loop_defer arrive;
	bool open;

	struct node_name *busy;          /* names whose former number the core has not forgotten: to be asked for again */
	unsigned n_busy, busy_cap;

	struct node_cluster cluster;     /* cluster.c; all 0 where the node is alone */
	struct node_things *things;      /* things.c */
	struct enquiry *enquiries;       /* enquire.c */
};

struct node_options {
	const char *config_path, *dir;
	bool counter_deadline, no_peerpidfd, as_many;
};

/* Everything up to serving; failed says why not. */
int node_open(struct node *n, struct loop *loop, const struct config *config, const struct node_options *o);
int node_start(struct node *n, int attach_fd, int query_fd);
void node_close(struct node *n);
int node_reload(struct node *n, const struct config *config);    /* takes over config's memory */

/* refs.c: the core's numbers of names */
int ref_take(struct node *n, struct space *s, uint32_t slot, uint32_t *ret);
void ref_drop(struct node *n, uint32_t ref);
bool ref_is(const struct node *n, uint32_t ref);
struct space *ref_space(const struct node *n, uint32_t ref);
uint32_t ref_slot(const struct node *n, uint32_t ref);
struct ledger_name *ref_name(const struct node *n, uint32_t ref);
uint16_t ref_key(const struct node *n, uint32_t ref, char ret[CORE_KEY_MAX]);

/* expiry.c: with each renewal, for the log */
void expiry_look(struct node *n);

/* step.c: events to the core, one after the other, and its actions to whom they concern */
extern const struct core_memory node_memory;
int node_core_start(struct node *n);
void node_give(struct node *n, struct node_event ev);      /* now, or after the step that is under way */
int node_recv(struct node *n, uint64_t session, uint64_t conn, const void *bytes, uint32_t size);
void node_purge(struct node *n);         /* drops events about leases that are lost */

/* lease.c: names */
void node_want(void *arg, struct space *s, uint32_t slot);
void node_try(void *arg, struct space *s, uint32_t slot);
void node_rank(void *arg, struct space *s, uint32_t slot);
void node_unused(void *arg, struct space *s, uint32_t slot, uint64_t used, bool died);
void node_yielded(void *arg, struct space *s, uint32_t slot, uint64_t used, bool died, bool again);
bool node_observe(void *arg, struct space *s, uint32_t slot, bool on);
void node_leads(void *arg, struct space *s, uint32_t slot);
void node_lowered(void *arg, struct space *s, uint32_t slot, uint64_t used, bool died);
void node_retry(void *arg);
void act_name(struct node *n, const struct core_action *a);
void name_step_failed(struct node *n, const struct node_event *q, int error);
void news_step_failed(struct node *n, const struct node_event *q, int error);
void node_lapse(struct node *n);         /* the session has ended: shm and numbers */

/* barrier.c */
void node_barrier(void *arg, enum shm_barrier what, uint32_t barrier, uint32_t party);
void node_arrive(void *arg);             /* the core hears of those who have come in this turn */
bool of_a_barrier(enum core_event_kind kind);
void event_of_barrier(struct node *n, const struct node_event *q, struct core_event *ret);
int node_barriers_adopt(struct node *n); /* before the core starts. -ENOMEM */
void act_barrier(struct node *n, const struct core_action *a);
bool is_barrier(enum kind k);
void barrier_show(struct object *o, struct query_name *q);
void barrier_step_failed(struct node *n, const struct node_event *q, int error);

/* sem.c: semaphores */
void node_sem(void *arg, struct space *s, uint32_t slot, const struct sem_say *say);
void act_sem(struct node *n, const struct core_action *a);
void sem_step_failed(struct node *n, const struct node_event *q, int error);
uint32_t sem_show(const struct object *o, struct query_name *q);  /* a client that holds some; 0: none */
void sem_event_adopt(struct node *n, uint32_t ref, struct core_event *ret);

/* pool.c: free semaphores */
extern const struct pool_ops node_pool_ops;
void act_pool(struct node *n, const struct core_action *a);
void pool_step_failed(struct node *n, const struct node_event *q, int error);
void pool_show(const struct object *o, struct query_name *q);
void pool_event_adopt(struct node *n, uint32_t ref, struct core_event *ret);

/* records.c: the store */
void act_store(struct node *n, const struct core_action *a);
void records_release(struct node *n, int error); /* those that wait for the terms: carried out, or failed */
void records_drop(struct node *n);
void records_explain(struct node *n, const struct store_result *res); /* says in the log what the store says */

/* things.c: latches, conditions, worker ids and values, in the store */
extern const struct small_ops node_small_ops;
int node_things_init(struct node *n);
void node_things_session(struct node *n, uint64_t session);      /* it may be relied upon */
void node_things_lapsed(struct node *n);
void node_things_done(struct node *n);

/* stored.c: what lies in the store for good, for the query socket */
void *node_stored(void *arg, const struct query_stored_call *call, query_stored_fn done, void *ctx, int *ret_error);
void node_stored_drop(void *arg, void *request);

/* enquire.c: what the master of a name knows of it, for the query socket */
void *node_enquire(void *arg, const struct query_nodes_call *call, query_nodes_fn done, void *ctx, int *ret_error);
void node_enquire_drop(void *arg, void *request);
void enquire_event(struct node *n, const struct node_event *q, struct core_event *ret);
void enquire_step_failed(struct node *n, const struct node_event *q);
void act_account(struct node *n, const struct core_action *a);

/* kept.c: worker numbers in the state directory. What keeps the file from being read or written is said in the log, and no error. */
struct kept;
struct things;
int kept_open(struct node *n, struct things *ts, struct kept **ret);
void kept_want(struct kept *k);          /* there is something to be written. NULL: no */
void kept_close(struct kept *k);         /* waits for what is being written */

struct item *node_value(struct node *n, const struct item_call *call, item_done_fn done, void *arg);  /* NULL: no store, or no memory */
int node_store_read(struct node *n, bool list, const char *key, store_done_fn done, void *arg);          /* negative: it is not asked */
const char *node_store_why(const struct node *n);          /* why the store plane does not answer, for people */
void node_thing_show(const struct object *o, struct query_name *q);

/* terms.c: what all nodes must have alike. records_release() is told, perhaps at once. */
void terms_want(struct node *n);

/* cluster.c */
int cluster_open(struct node *n);        /* before shm: store, keys, listening */
struct store_options cluster_store(const struct node *n);       /* how the cluster's store is opened; its hints are the caller's */
uint64_t node_session_adopted(const struct node *n);     /* 0: what was noted is of another */
nsec_t cluster_first_deadline(const struct node *n);       /* for the clients, from the start; 0: never */
int cluster_begin(struct node *n);       /* after it */
int cluster_ready(struct node *n);       /* the store's answers from now on */
void cluster_close(struct node *n);
void cluster_reload(struct node *n, const struct config *old);
void cluster_links_event(struct node *n, const struct links_event *ev);
int cluster_note(struct node *n, uint64_t deadline);      /* session and deadline, into the ledger */
void node_stop(struct node *n);          /* in good order: shards first. A second time: at once */
int node_leave(struct node *n);          /* and the session last. -ENOTSUP: alone */
nsec_t node_leave_span(const struct node *n);    /* at most until the loop stops after it */
void node_sleep(struct node *n, bool announced);          /* system.h */
int node_drain(struct node *n, bool on); /* -ENOTSUP */

/* session.c */
void act_cluster(struct node *n, const struct core_action *a);
void cluster_superseded(struct node *n);
void node_loss_done(void *arg);

/* members.c */
const char *node_peer_name(const struct node *n, uint64_t session);      /* until the next call */
void member_copies(const struct node *n, const char *its_name, const char *its_address);    /* says what another node has of this one's */
bool member_is_former(const struct node *n, uint64_t node, const char *address);   /* an earlier session of this node, listed still */
void members_each(void *arg, void (*fn)(void *ctx, const struct query_member *q), void *ctx);
void members_cluster(const struct node *n, const struct core_stats *st, struct query_cluster *ret);

/* view.c */
void node_source(struct node *n, struct query_source *ret);

/* events.c */
void node_tell(void *arg, const struct shm_event *ev);
void node_link_event(void *arg, const struct links_event *ev);

#endif
