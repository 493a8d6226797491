/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Many cores in one process, with a network, a store, clocks, clients and faults from one seed.
 *
 * Time is counted in nanoseconds of a time that no node sees; each node's clock runs up to 0.5 %
 * faster or slower. Whatever happens is an event in one heap, ordered by time and then by number, and
 * every choice is drawn from one generator: a seed repeats its run bit by bit.
 *
 * A node is a daemon (a core with its ledger) and a segment (slots and clients) that outlives it.
 * The judges (judge.c) look at segments, clocks and the resource only, never into a core.
 */
#ifndef DLOCK_TESTS_SIM_H
#define DLOCK_TESTS_SIM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "core/core.h"
#include "core/map.h"

#define NODES_MAX 50
#define NAMES_MAX 24
#define CLIENTS_MAX 3            /* a node's */
#define BARRIERS_MAX 2
#define PARTIES_MAX 3            /* a node's */
#define INSIDE_MAX SEC           /* how long those inside take, at most, until they are done */
#define ROWS_MAX 64
#define MSEC 1000000ull
#define SEC (1000 * MSEC)

/* How long a run is, until when faults happen, and from when on whoever holds keeps what it holds. */
#define SIM_RUN (60 * SEC)
#define SIM_FAULTS (36 * SEC)
#define SIM_STILL (SIM_RUN - 3 * SEC)

/*
 * What may go wrong in a run, by its seed (script.c): anything; little, but hosts die and masters move every
 * TTL / 2; sessions begin and end around changes of the map that some read late; connections break, and their
 * last frames arrive after those of the next; the network falls into parts, for long (cuts.c).
 */
#define RUN_KINDS(X) X(MIXED) X(CALM) X(STORM) X(FLAPS) X(CUTS)

enum run_kind {
#define X(name) RUN_##name,
	RUN_KINDS(X)
#undef X
};

#define SIM_COUNTS(X)                                                                          \
	X(steps) X(frames) X(grants) X(acquires) X(exclusives) X(shareds) X(permits)           \
	X(upgrades) X(upgraded) X(deadlocks) X(downgrades) X(cancels) X(releases) X(yields)    \
	X(revokes) X(refills) X(closes) X(handovers) X(writes) X(late_writes) X(refused_writes) \
	X(losts) X(lapses) X(jeopardies) X(losses) X(reigns) X(drains) X(undrains) X(drained)              \
	X(conns) X(breaks) X(stale_frames) X(held_back) X(duplicates) X(partitions) X(one_ways) \
	X(leaves) X(left) X(relays) X(complaints) X(self_lapses) X(cut_waits)                                          \
	X(store_ops) X(store_lost_before) X(store_lost_after) X(store_errors) X(store_outages) \
	X(store_cuts) X(store_full) X(store_lags) X(late_reads) X(late_records) X(hints)                                                   \
	X(pauses) X(host_pauses) X(crashes) X(torn) X(adoptions) X(late_adoptions)             \
	X(tries) X(tried) X(busy) X(kept) X(priorities) X(observations) X(observed) X(proclaims) X(nobodies) X(news) X(news_nobody)                \
	X(passed_on) X(passed_late) X(resizes) X(resized) X(shrunk_below) X(values_published) X(values_read) X(values_lost) X(owner_deaths) X(deaths_told)                \
	X(ledgers_lost) X(host_crashes) X(scribbles) X(client_deaths) X(waits_judged) X(deaths_judged) \
	X(arrivals) X(passes) X(vetoes) X(serials) X(broken) X(timeouts) X(stales) X(mismatches) X(sent_away) \
	X(entered) X(departs) X(broken_inside) X(withdrawals) X(party_deaths) X(resets) X(barriers_closed) X(parties_adopted) X(asks) X(rounds_judged) X(breaks_judged) X(leaves_judged) X(patience_judged) \
	X(restarts) X(releases_judged) X(exams) X(placements) X(places_judged) X(delays) X(mourned) X(mourned_beside)

#define RELEASE_STEP (250 * MSEC)
#define RELEASE_SLOTS 24

struct sim_counts {
	uint64_t release[RELEASE_SLOTS]; /* times from a holder's death to the next grant */
#define X(name) uint64_t name;
	SIM_COUNTS(X)
#undef X
};

enum mode { EXCLUSIVE, SHARED, PERMITS };
enum client_state { IDLE, WAITING, HOLDING };

struct client {
	enum client_state state;
	uint64_t generation;             /* events of an earlier life are void */
	unsigned name;
	enum mode mode;
	uint32_t permits;
	bool tries;                      /* now or never */
	uint8_t priority;
	uint64_t since;                  /* WAITING */
	uint64_t token;                  /* HOLDING */
	uint64_t order;                  /* of its acquisition, over all nodes */
	bool lost;                       /* HOLDING: the lease has gone from under it */
	bool upgrading;
};

/* What the node knows that holders left behind. */
struct left {
	enum core_value_state state;
	uint64_t id, token;
	uint32_t count;
};

struct slot {
	bool in_core, releasing, dirty;
	uint32_t held, wanted;
	bool upgrade;
	struct core_range range;
	uint64_t used;
	uint32_t keep;                   /* CORE_WEIGHT_ALL: not revoked */
	unsigned budget;                 /* hand-overs left */
	unsigned queue[CLIENTS_MAX], queue_n;
	uint64_t granted_at;             /* by the node's clock */
	uint32_t limit;                  /* since it was resized ... */
	uint64_t limit_stamp;            /* ... which it was if this is not 0 */
	uint64_t asked_stamp;            /* what that was when the present wish was told to the core */
	bool fresh;                      /* granted, and not used yet */
	bool tried;                      /* whoever tries elsewhere is to be answered ... */
	uint32_t tried_keep;             /* ... or gets all but this */
	bool observed;                   /* the core is told who leads ... */
	uint64_t told_term;              /* ... and was told this; 0: nobody */
	bool told;
	uint64_t last_term;              /* of who led last under this lease */
	bool observes;                   /* clients want to know who leads ... */
	bool news;                       /* ... and have been told this, ever */
	struct left leader;
	struct left left;
	bool left_fresh;                 /* published since the daemon was told */
	bool owner_died;                 /* the next exclusive holder is to be told */
	bool death_owed;                 /* the daemon has been told, and perhaps no master */
	bool accounted;                  /* its loss has been told to a later holder; of shares and permits, is mourned */
	uint16_t delay, wanted_delay;    /* ms: of what is held; of what was asked for last */
};

struct ledger_entry {
	uint32_t held;
	struct core_range range;
	uint64_t number;
	struct left left;
	bool lost;
	uint16_t delay;
};

/* One that waits at a barrier, or will. */
struct party {
	uint64_t id;                     /* of its arrival; 0: it is elsewhere */
	uint64_t generation;
	uint64_t since;
	uint64_t out_at;                 /* it has lost patience then; 0: not yet */
	unsigned barrier;
	uint32_t parties;
	bool yes;
	bool inside;                     /* of a paired one */
	uint64_t done_at;                /* ... and wants to leave since then; 0: not yet */
};

/* The daemon's, of an arrival. */
struct barrier_row {
	uint64_t id, order;
	unsigned barrier;
	bool yes;
	bool out_told;                   /* the core knows that it wants out */
	bool done_told;                  /* ... that it wants to leave */
	uint64_t leaves;                 /* inside: what the judge knows it by from then on */
};

enum party_result { PARTY_PENDING, PARTY_PASSED, PARTY_BROKEN, PARTY_LOST };

struct judge_party {
	unsigned barrier, node;
	uint32_t parties;
	bool yes;
	enum party_result result;
	uint64_t round;                  /* in which it is, as its ledger last said; 0: in none */
	uint64_t told_of;                /* whose verdict it was told */
	uint64_t entered;                /* 0, or the round by which it came in, of which this is the other half */
	uint64_t came;
	uint64_t out;                    /* since when its daemon knows that it wants out, or is dead; 0: it does not */
	bool done;                       /* its daemon knows that it is done inside */
};

struct judge_round {
	unsigned barrier;
	uint64_t round;
	bool known, passed, yes;
	unsigned serials;
};

struct node;
struct sim;
struct event;
typedef void (*event_fn)(struct sim *s, struct event *e);

struct event {
	uint64_t at, number;
	event_fn fn;
	struct node *node;
	uint64_t generation, a, b;
	void *data;
	void (*data_done)(void *data);   /* NULL: there is nothing in it but bytes */
	uint32_t size;
	struct event *next;
};

struct node {
	unsigned id;
	bool host;                       /* the machine runs */
	struct core *core;               /* the daemon runs */
	uint64_t generation;             /* of the daemon */
	uint64_t paused_until;           /* the daemon */
	uint64_t host_paused_until;      /* all of it */
	struct event *inbox, **inbox_end; /* came while it was paused */
	int64_t ppm;
	uint64_t offset;
	uint64_t timer;                  /* the number of the one that counts */
	uint64_t woken_at;               /* by its timer ... */
	unsigned wakes;                  /* ... so often at once */
	uint64_t deadline;               /* published */
	struct core_memory mem;
	uint64_t session;
	uint32_t incarnation;
	struct core_actions actions;
	unsigned depth;
	bool drains;
	bool jeopardy;                   /* has said so, of the present deadline */
	bool leaves;                     /* has been told to, and wants nothing any more */
	uint64_t loss_due;               /* actions on loss run until then; 0: none */
	uint32_t loss_names;             /* what was held when they began */
	bool loss_any;                   /* something was, whenever they began */
	uint64_t last_disturbed;         /* paused or crashed */
	struct ledger_entry ledger[NAMES_MAX];
	struct slot slot[NAMES_MAX];
	struct client client[CLIENTS_MAX];
	struct party party[PARTIES_MAX];
	struct barrier_row row[ROWS_MAX];
	unsigned rows_n;
	struct core_barrier barrier[BARRIERS_MAX]; /* the ledger's */
	unsigned resets;                 /* a bit for each barrier: it wants it reset, and has not heard that it is */
	uint64_t ended_at;               /* a session of its did, or was about to; 0: none */
	int result;                      /* of the last step */
	uint64_t wants[NODES_MAX * 4];   /* sessions to keep links to */
	unsigned wants_n;
	uint64_t think_max;              /* between two of a client's turns */
	bool store_cut;
	uint64_t reach_since[NAMES_MAX]; /* the name's master, if it is reached now */
	uint64_t store_lag_until;        /* its requests and answers may take seconds */
	uint64_t get_lag_until, list_lag_until; /* answers to its reads of the map, to its lists, may; */
	uint64_t record_lag_until;       /* its member record may be long under way */
	uint64_t unwritable_until;       /* the store takes nothing from it, and answers what it asks */
};

struct conn {
	uint64_t number;
	struct node *end[2];
	uint64_t generation[2];
	uint64_t session[2];
	bool broken, breaking, mute[2], cut[2];
	uint64_t last[2];                /* to end i */
	uint64_t broken_at;
	bool holds_back;                 /* what is under way as it breaks arrives when the next one is up: */
	struct event *late[2], **late_end[2];
	uint64_t late_until[2];
	bool up[2];                      /* that end has heard of it */
	struct conn *next;
};

struct record {
	char key[32];
	uint8_t *value;
	uint32_t size;
	uint64_t version;                /* 0: absent */
};

#define MOURNED_MAX 64

struct judge_name {
	char key[16];
	uint32_t limit;                  /* that it is opened with */
	uint32_t limit_most;             /* that it ever had */
	uint32_t limit_now;              /* of the highest stamp that anybody was told ... */
	uint64_t limit_stamp;            /* ... which is this */
	uint64_t exclusive_max, shared_max; /* tokens acquired */
	uint64_t order, written_order, written_token;
	uint64_t died_at;                /* the node that held it alone; 0: none */
	bool examined;
	bool abnormal;                   /* an exclusive holder was lost, and nobody has been told */
	uint64_t not_before;             /* whoever is granted it then is granted it too early */
	struct { uint64_t until; uint32_t weight; } mourned[MOURNED_MAX];       /* shares and permits that were lost: they count so long */
	uint64_t published;              /* the last value; 0: none ever */
	bool death;                      /* of an exclusive holder within its node, that nobody has mended */
};

struct sim {
	uint64_t seed, rng, now, events_made;
	struct event **heap, *free;
	size_t heap_n, heap_max;
	struct core_cluster conf;
	uint16_t delay;                  /* the longest lock-delay, ms */
	unsigned nodes, names;
	struct node node[NODES_MAX];
	struct conn *conns;
	struct conn **conn;              /* by number; NULL: no more */
	uint64_t conn_number, conn_max;
	uint64_t late_n;                 /* frames that are held back */
	bool linked[NODES_MAX][NODES_MAX]; /* have a connection that is not broken */
	bool blocked[NODES_MAX][NODES_MAX]; /* from, to */
	struct record *records;
	size_t records_n;
	uint64_t version;
	bool store_down;
	struct judge_name name[NAMES_MAX];
	uint64_t blocked_until;
	bool cuts_judged;                /* one shape for long, and nothing else goes wrong */
	bool star;                       /* all speak through one, whose connections flap */
	unsigned cut_alone;              /* one node reaches nobody, all others each other; NODES_MAX: another shape */
	uint64_t cut_since;              /* of the present parts; 0: the network is whole */
	uint64_t barrier_rng;
	unsigned barriers;               /* 0: this run has none */
	struct {
		char key[16];
		uint32_t parties;
		bool paired;             /* every second round is to leave by */
		uint64_t left_at;        /* when anybody was told to leave last */
		uint64_t reset_at;       /* when the last reset was over */
	} barrier[BARRIERS_MAX];
	struct judge_party *arrivals;    /* by id - 1 */
	uint64_t arrivals_n, arrivals_max;
	struct judge_round *rounds;
	size_t rounds_n, rounds_max;
	unsigned favourites;             /* 0: all nodes use all names; else one uses them most; 2: two take turns at that */
	uint64_t favourite_turn;
	uint64_t placed_at[CORE_SHARDS]; /* it was moved for its use last; 0: never */
	uint64_t unfit_since[NODES_MAX]; /* its member record says that it drains, or may not master; 0: it does not */
	bool faults;                     /* they may still happen */
	uint64_t healed_at;
	uint64_t exam;                   /* since when everything is asked for once; 0: not yet */
	unsigned exams;
	enum run_kind kind;
	bool calm;                       /* that kind: hosts die and masters move, nothing else happens */
	unsigned rate[4];                /* of the store's and the connections' small faults, in a thousand */
	uint64_t values;
	struct sim_counts *counts;
	FILE *trace;
	char verdict[200];               /* what a judge says no to */
};

/* world.c */
extern bool sim_safety_only;             /* nobody minds how long anything takes */
uint64_t sim_random(struct sim *s, uint64_t n);
bool sim_chance(struct sim *s, unsigned percent);
struct event *sim_after(struct sim *s, uint64_t span, event_fn fn, struct node *n, uint64_t a, uint64_t b);
void sim_event_free(struct sim *s, struct event *e);
uint64_t node_clock(const struct sim *s, const struct node *n);
uint64_t node_clock_at(const struct sim *s, const struct node *n, uint64_t local);
void sim_no(struct sim *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sim_trace(struct sim *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool sim_run(uint64_t seed, struct sim_counts *counts, FILE *trace, char ret_verdict[200]);

/* script.c */
void script_start(struct sim *s);
void script_begun(struct sim *s, struct node *n);

/* Delays, pauses and deaths of every kind may happen now. */
static inline bool sim_wild(const struct sim *s)
{
	return s->faults && (s->kind == RUN_MIXED || s->kind == RUN_STORM);
}

/* Connections break all the time, and some of their frames come late. */
static inline bool sim_flaps(const struct sim *s)
{
	return s->faults && (s->kind == RUN_FLAPS || (s->kind == RUN_CUTS && !s->cuts_judged));
}

/* cuts.c */
void cuts_start(struct sim *s);
void cuts_ended(struct sim *s, const struct node *n);

/* place.c */
void place_draw(struct sim *s);
bool place_favours(const struct sim *s, const struct node *n);
uint64_t place_think(const struct sim *s, const struct node *n);
void judge_member(struct sim *s, const void *value, uint32_t size);
void judge_map(struct sim *s, const void *value, uint32_t size);
void place_exam(struct sim *s);

/* store.c */
bool store_map(struct sim *s, struct clustermap *ret);
void store_request(struct sim *s, struct node *n, const struct core_action *a);
struct node *store_coordinator(struct sim *s);
bool store_session_ended(struct sim *s, uint64_t session);
void store_done(struct sim *s);

/* net.c */
void net_start(struct sim *s);
void net_send(struct sim *s, struct node *n, const struct core_action *a);
void net_break(struct sim *s, struct conn *c);
void net_block(struct sim *s, struct node *from, struct node *to);
void net_break_node(struct sim *s, struct node *n);
void net_relayed(struct sim *s, struct node *n, uint64_t via);
void net_done(struct sim *s);

/* node.c */
void node_start(struct sim *s, struct node *n, bool adopt);
void node_crash(struct sim *s, struct node *n);
void node_restart(struct sim *s, struct node *n);
void node_host_crash(struct sim *s, struct node *n, uint64_t span);
void node_give(struct sim *s, struct node *n, const struct core_event *ev);
bool node_ready(const struct sim *s, const struct node *n);
void node_inbox(struct sim *s, struct node *n);
void node_defer(struct node *n, struct event *e);
/*
 * The daemon for which it was meant runs, and takes it now: e is the caller's still. Else it is void, which it is too unless `still`,
 * or kept until the daemon goes on.
 */
bool node_takes(struct sim *s, struct event *e, bool still);

/* client.c */
void clients_start(struct sim *s, struct node *n);
void client_idle(struct sim *s, struct node *n, unsigned i);
void clients_kill(struct sim *s, struct node *n);
void slots_pump(struct sim *s, struct node *n);
void slot_granted(struct sim *s, struct node *n, const struct core_action *a);
void slot_refused(struct sim *s, struct node *n, const struct core_action *a);
void slots_lapsed(struct sim *s, struct node *n);
void upgrades_forget(struct sim *s, struct node *n, unsigned name);
uint32_t slot_usage(const struct node *n, unsigned name);
uint32_t slot_limit(const struct sim *s, const struct node *n, unsigned name);
void slot_limit_forget(struct sim *s, struct node *n, unsigned name);
void slot_resized(struct sim *s, struct node *n, const struct core_action *a);

/* left.c */
struct left left_of(struct sim *s, const struct core_value *v);
struct core_value left_value(const struct left *l, uint8_t bytes[CORE_VALUE_MAX]);
void left_found(struct sim *s, struct node *n, const struct client *c);
void left_publish(struct sim *s, struct node *n, const struct client *c);
void left_death(struct sim *s, struct node *n, const struct client *c);
struct core_value left_give(struct slot *sl, bool *ret_died, uint8_t bytes[CORE_VALUE_MAX]);
void left_granted(struct sim *s, struct slot *sl, const struct core_action *a);
void left_adopt(struct slot *sl, const struct ledger_entry *l);

/* barrier.c */
void barriers_draw(struct sim *s);
void barriers_adopt(struct sim *s, struct node *n, bool ledger);
void barrier_act(struct sim *s, struct node *n, const struct core_action *a);
void parties_start(struct sim *s, struct node *n);
void parties_kill(struct sim *s, struct node *n);
void parties_pump(struct sim *s, struct node *n);
void parties_startle(struct sim *s, struct node *n);

/* rounds.c */
struct judge_party *judge_party(struct sim *s, uint64_t id);
uint64_t judge_arrival(struct sim *s, const struct judge_party *p);      /* its id */
void judge_verdict(struct sim *s, const struct node *n, struct judge_party *p, const struct core_action *a);
uint64_t judge_entered(struct sim *s, const struct node *n, uint64_t id, uint64_t round);        /* its id inside */
void judge_leave(struct sim *s, const struct node *n, const struct judge_party *p, const struct core_action *a);
void judge_impatient(struct sim *s, const struct party *of);     /* it is about to give up */
void judge_answered(struct sim *s, const struct node *n, const struct party *p);
void judge_barriers_end(struct sim *s);

/* outside.c */
void judge_died(struct sim *s, const struct node *n);
void judge_released(struct sim *s, unsigned name);
void judge_warned(struct sim *s, const struct node *n);
bool exam_ask(struct sim *s, const struct node *n, struct client *c);
void exam_passed(struct sim *s, const struct client *c);
void exam_end(struct sim *s, uint64_t bound);

/* elect.c */
bool elect_tell(struct sim *s, struct node *n, unsigned name);
void elect_observe(struct sim *s, struct node *n);
void elect_started(struct sim *s, struct node *n);
void elect_forget(struct slot *sl);
void client_waits(struct sim *s, struct node *n, unsigned i);
void elect_last(struct sim *s, struct event *e);
bool elect_frozen(const struct sim *s);

/* judge.c */
void judge_grant(struct sim *s, struct node *n, const struct core_action *a);
void judge_acquired(struct sim *s, struct node *n, struct client *c);
void judge_write(struct sim *s, struct client *c);
void judge_lost(struct sim *s, struct node *n, unsigned name);
void judge_deadline(struct sim *s, struct node *n);
void judge_record(struct sim *s, const struct node *by, const char *key, const void *value, uint32_t size);
void judge_news(struct sim *s, struct node *n, const struct core_action *a);
void judge_resized(struct sim *s, struct node *n, unsigned name);
void judge_left(struct sim *s, const struct node *n, int error);
void judge_end(struct sim *s);
bool holds(const struct sim *s, const struct node *n);

#endif
