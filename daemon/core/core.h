/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The lease protocol of one node as a pure state machine: member and master.
 *
 * A member keeps what this node claims and holds; a master queues and grants the claims of the
 * shards it reigns over. They talk only in messages (msg.h), also where both are the same node:
 * then a message goes through the core's own queue and never leaves it. With the embedded store
 * there is one member, it masters every shard, and its session never ends.
 *
 * What must hold:
 *  - a name's tokens rise with every grant: within an epoch the master counts upwards per name and
 *    never below the shard's floor, and a later epoch is above all of an earlier one (S6);
 *  - a master grants nothing before its epoch is in the store and its members have synced (S4);
 *  - a grant is in the ledger before the slot, a release is in the ledger before the wire (S8):
 *    actions are listed in the order in which they must be carried out;
 *  - claims and releases state totals, never differences (S10).
 *
 * core_step() neither blocks, nor asks for the time, nor calls back. It fills a list of its
 * caller's with at most CORE_ACTIONS_MAX actions; where more is due it says so, and wants
 * CORE_EV_CONTINUE soon. Whatever comes before goes on with it too. Memory comes from the functions given at creation; when they refuse, the
 * event returns -ENOMEM and nothing has changed; what the core does of its own accord
 * is tried again a little later, by CORE_ACT_TIMER.
 */
#ifndef DLOCK_CORE_H
#define DLOCK_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CORE_SHARDS 64
#define CORE_KEY_MAX 320         /* "space/name": 64 + 1 + 255 bytes */
#define CORE_ACTIONS_MAX 48
#define CORE_MEMBERS_MAX 1024    /* nodes of a cluster, dead sessions included until they are cleared away */
#define CORE_VALUE_MAX 1024      /* bytes that a name carries */
#define CORE_FRAME_MAX 1536
#define CORE_ADDRESS_MAX 255     /* "host:port" */
#define CORE_NODE_NAME_MAX 64
#define CORE_WEIGHT_ALL UINT32_MAX
#define CORE_LIMIT_MAX 0x7fffffffu
#define CORE_DELAY_MAX 60000     /* ms */
#define CORE_PARTIES_MAX 64      /* nodes that an ACCOUNT names */
#define CORE_REFS (1u << 26)     /* refs are below this */
#define CORE_REF_NONE UINT32_MAX

/* Tokens: 63 bits, epoch above, counter below (DESIGN S6). */
#define TOKEN_COUNTER_BITS 40
#define TOKEN_EPOCH_BITS 23

typedef uint64_t core_nsec_t;    /* CLOCK_BOOTTIME */
typedef uint32_t core_ref_t;     /* the caller's number for a name it has open; dense, re-used after CORE_ACT_FORGOTTEN */

/* A range of tokens that a lease owns: first .. first + count - 1. count 0: none. */
struct core_range {
	uint64_t first;
	uint64_t count;
};

/*
 * What the last exclusive holder left behind. LOST: somebody may have published something that nobody knows any
 * more. A later version is above an earlier one, token first. Names with a limit have none.
 */
enum core_value_state { CORE_VALUE_NONE, CORE_VALUE_KNOWN, CORE_VALUE_LOST };

struct core_value {
	enum core_value_state state;
	uint16_t len;
	uint32_t count;                  /* of what was published under that token, from 1 */
	uint64_t token;                  /* of the hold that published it */
	const void *bytes;               /* copied from events; of actions: until the next step */
};

/*
 * What makes a node one of many; without it the core is alone, and its session never ends. All spans
 * are of CLOCK_BOOTTIME, and drift bounds how much the rates of two nodes' clocks differ.
 */
struct core_cluster {
	core_nsec_t ttl;
	core_nsec_t guard;               /* taken off the deadline and added to the observers' wait, as is ttl * drift */
	uint32_t drift_ppm;
	core_nsec_t beat;                /* between two renewals */
	core_nsec_t look;                /* between two looks at the map, and at the beats by those who observe */
	core_nsec_t steady;              /* a newcomer gets no shards before */
	core_nsec_t grace;               /* who is in the way of a master that it does not reach ends itself after this; 0: ttl */
	core_nsec_t place;               /* who makes most of a shard's claims for so long becomes its master; 0: nobody does for that */
	uint32_t place_least;            /* ... if they are so many in a quarter of it; at least 1 */
	core_nsec_t loss;                /* actions on loss begin so long before the deadline */
	uint64_t node;                   /* the host, over all its sessions */
	const char *name;                /* of the node, for people: 1 to CORE_NODE_NAME_MAX printable bytes, no blanks. Copied */
	const char *address;             /* where its peers reach it: 1 to CORE_ADDRESS_MAX such bytes. Copied */
	bool may_master;
};

struct core_record {
	const char *key;
	const void *value;
	uint32_t value_len;
	uint64_t version;
};

#define CORE_EVENTS(X)                                                                         \
	X(START)          /* once: identity; the core then asks the store for the map */      \
	X(ADOPT)          /* before START: a lease that the ledger of this session knows */   \
	X(CLAIM)          /* somebody on this node wants a name whose lease it lacks */        \
	X(REFILL)         /* the range is used up, nobody owns the word, the fast path is closed */ \
	X(RELEASE)        /* nobody on this node has the name open any more */                 \
	X(CHANGE)         /* of a name that is held or waited for: hold less, want other than before */ \
	X(KEEP)           /* the answer to a REVOKE that tries: what is held is in use */      \
	X(RESIZE)         /* of a semaphore that is held or waited for: another limit, for all */ \
	X(PROCLAIM)       /* of a lock that is held exclusively: who leads, or that nobody does */ \
	X(OBSERVE)        /* somebody on this node wants to know who leads; or nobody any more */ \
	X(ENQUIRE)        /* who has that name, and who waits for it, in the whole cluster? ACCOUNT is the answer, unless it gets lost */ \
	X(LINK_UP)        /* a connection to that session, with a number above all its earlier ones */ \
	X(LINK_DOWN)      /* that connection is no more */                                      \
	X(RECV)           /* a frame */                                                         \
	X(HINT)           /* something in the store has changed */                              \
	X(LOSS_DONE)      /* the actions that CORE_ACT_LOSS began are through */                \
	X(DRAIN)          /* this node shall master nothing any more, or may again */           \
	X(LEAVE)          /* for good: give all back, refuse who waits, end the session */      \
	X(ADOPT_BARRIER)  /* before START: where this node stood in the rounds of a barrier */ \
	X(ADOPT_PARTY)    /* after its ADOPT_BARRIER: a party that had come to it */           \
	X(ARRIVE)         /* a party of this node has come to a barrier */                     \
	X(WITHDRAW)       /* a party has waited for long enough, or is dead: VERDICT is the answer */ \
	X(DEPART)         /* a party that is inside a paired barrier is done there: another VERDICT is the answer */ \
	X(RESET)          /* the round that is forming shall break: RESET_DONE is the answer */ \
	X(CLOSE)          /* nobody on this node has the barrier open any more */              \
	X(STORE)          /* the answer to a CORE_ACT_STORE_* */                                \
	X(TIMER)          /* the moment that CORE_ACT_TIMER asked for has come */              \
	X(CONTINUE)       /* go on where the list was full */

enum core_event_kind {
#define X(name) CORE_EV_##name,
	CORE_EVENTS(X)
#undef X
};

/*
 * Barriers (docs/PROTOCOL.md). What the ledger keeps of each one that is open here: where the node stands in its
 * rounds. A round is `epoch << 40 | n`. Parties are numbered in the order of their arrival here; those up to
 * `upto` are in the round. Of a paired barrier n is even where parties enter; the round by which the same ones leave is the next
 * number, and who has passed the former is IN the latter at once.
 */
enum core_barrier_state {
	CORE_BARRIER_OUT,                /* in no round */
	CORE_BARRIER_IN,                 /* in `round`, which may still break, or void if its master is followed by another */
	CORE_BARRIER_TOLD,               /* knows the verdict of `round`, but not that all know it */
};

struct core_verdict {
	uint64_t round;                  /* 0: none */
	uint64_t serial;                 /* the session whose last party in it is the one in the cluster that is told so */
	bool passed;
	bool yes;                        /* passed: so voted all */
};

struct core_barrier {
	enum core_barrier_state state;
	uint32_t parties;
	uint64_t session;                /* of ours, in which this was written */
	uint64_t by;                     /* IN: the session of the master that put us in */
	uint64_t upto;
	struct core_verdict now;         /* IN: only its round; TOLD */
	struct core_verdict last;        /* that all knew */
	uint64_t ask_round, ask_session, ask_upto; /* what became of this round, in which an earlier session of ours was? 0: settled */
};

/*
 * `now` never falls. That of a RELEASE or a REFILL has been read after the word was closed: what
 * `used` is believed to be is measured by it.
 */
struct core_event {
	enum core_event_kind kind;
	core_nsec_t now;
	union {
		struct {
			uint64_t session;        /* not 0 */
			uint32_t incarnation;    /* raised durably before; not 0 */
			uint32_t epoch_min;      /* the reign's epoch is above this too: what the ledger remembers, should the store have gone back */
			const struct core_cluster *cluster; /* NULL: alone. Copied */
			core_nsec_t deadline;    /* of an adopted session, as the ledger knows it; 0: a new session. Cluster only */
		} start;
		struct {
			core_ref_t ref;
			const void *key;         /* copied */
			uint16_t key_len;
			struct core_range range; /* as the ledger knows it */
			uint64_t number;         /* of the claim, as the ledger knows it; 0: it does not */
			uint32_t weight, limit;  /* 0: all of it */
			struct core_value value; /* as this node knows it */
			uint32_t present;        /* the limit that RESIZED has told, if it has ... */
			uint64_t limit_stamp;    /* ... and its number; 0: it has not */
			bool died;               /* as of RELEASE; said again, unless it is known that a master heard it */
			uint16_t delay;          /* as of CLAIM */
		} adopt;
		struct {
			core_ref_t ref;
			const void *key;         /* copied */
			uint16_t key_len;
			uint32_t weight;         /* 0: all of it, an exclusive lock. 1 of all: shared. k of n: permits */
			uint32_t limit;          /* 0: all of it, a lock; else a semaphore of so many. Whoever has it open elsewhere opened it
						  * with that number, or it has been resized to it; else REFUSED says EINVAL */
			uint8_t priority;        /* higher ones are granted first, before all that came earlier */
			bool tries;              /* REFUSED says EBUSY if somebody else waits or uses it */
			uint16_t delay;          /* up to CORE_DELAY_MAX: what is held and lost with this node counts as held for so many
						  * ms; nobody is granted what was held exclusively */
			uint32_t present;        /* as of ADOPT: what RESIZED has told of an earlier claim, while it has been open ... */
			uint64_t limit_stamp;    /* ... all along */
		} claim;
		struct {
			core_ref_t ref;
			uint64_t used;           /* tokens taken from the present range; more than it has is an error of a client */
		} refill;
		struct {
			core_ref_t ref;
			uint64_t used;
			struct core_value value; /* KNOWN: was published since the grant, under a token of the lease */
			bool died;               /* of who held it exclusively one has died, or has not mended what one who died left */
		} release;
		struct {
			core_ref_t ref;
			uint32_t held;           /* not more than it has */
			uint32_t wanted;         /* 0: waits for nothing; else the total, more than `held` */
			uint64_t used;           /* tokens taken from the present range */
			bool upgrade;            /* keeps its shared hold until it is exclusive: before the queue, one a name */
			struct core_value value; /* as of RELEASE, if less is held than before */
			bool died;
			uint8_t priority;        /* of what is wanted, as of CLAIM */
			bool tries;
			uint16_t delay;          /* likewise */
		} change;
		struct {
			core_ref_t ref;
		} keep;
		struct {
			core_ref_t ref;
			struct core_value value; /* KNOWN: is published, and who leads has this token; NONE: nobody leads after this token, or 0 */
		} proclaim;
		struct {
			core_ref_t ref;          /* the same as of a claim on that name, if there is one */
			const void *key;         /* copied */
			uint16_t key_len;
			bool on;
		} observe;
		struct {
			core_ref_t ref;
			uint32_t limit;          /* 1 .. CORE_LIMIT_MAX */
		} resize;
		struct {
			uint64_t number;         /* comes back with the answer */
			const void *key;         /* need not be open here */
			uint16_t key_len;
		} enquire;
		struct {
			core_ref_t ref;          /* the caller's number, of a kind of its own; comes back in the actions */
			const void *key;         /* copied */
			uint16_t key_len;
			uint32_t parties;        /* ARRIVE, RESET; not 0 */
			uint64_t party;          /* ARRIVE, WITHDRAW, DEPART, ADOPT_PARTY: the caller's name for it */
			uint64_t order;          /* ADOPT_PARTY, as the ledger knows it; they come in this order */
			bool yes;                /* ARRIVE, ADOPT_PARTY: its vote */
			bool paired;             /* ARRIVE, RESET, ADOPT_BARRIER: every second round is to leave by */
			bool further;            /* ARRIVE: another one follows, with which they are all told to the master */
			const struct core_barrier *record; /* ADOPT_BARRIER, as the ledger knows it */
		} barrier;
		struct {
			uint64_t session;
			uint32_t incarnation;
			uint64_t conn;
		} link;
		struct {
			uint64_t conn;           /* that it came by */
			uint64_t session;        /* at the other end, by its certificate and greeting */
			const void *bytes;       /* a whole frame; stays until the step's actions are carried out */
			uint32_t n;
		} recv;
		struct {
			bool off;                /* may master again */
		} drain;
		struct {
			core_nsec_t patience;    /* so long holders have to give back: see CORE_ACT_REVOKE */
		} leave;
		struct {
			uint32_t op;             /* of the action */
			int error;               /* 0, or a negative errno, see core_step() */
			const void *value;       /* of a GET */
			uint32_t value_len;
			uint64_t version;        /* of the record, after a CAS the new one; 0: absent */
			const struct core_record *records; /* of a LIST, by key */
			uint32_t records_n;
		} store;
	};
};

#define CORE_ACTIONS(X)                                                                        \
	X(STORE_GET)      /* read a record; answer with CORE_EV_STORE */                       \
	X(STORE_CAS)      /* write it if it still has this version; value NULL: delete it */   \
	X(STORE_LIST)     /* read all records whose key begins so */                           \
	X(SEND)           /* a frame to that session, by that connection */                    \
	X(LINK)           /* keep a connection to that session from now on; again: its address is another */ \
	X(UNLINK)         /* that session has ended */                                         \
	X(RELAYED)        /* for the log: it is reached through the session `via` until there is a connection */ \
	X(COMPLAINT)      /* for the log: it is in the way of what we master, and not reached: the store is told */ \
	X(ENDED)          /* for the log: this node has ended that session, whose beat had stood for ttl. Name and address may be "" */ \
	X(ODD)            /* for the log: what lies in the store is not what it should be; or is again */ \
	X(CUT_OFF)        /* for the log: that master complains of us, and we do not reach it. This session ends: a DEADLINE follows */ \
	X(DEADLINE)       /* publish: what this node holds may be relied upon until then. Earlier than before: after CUT_OFF */ \
	X(JEOPARDY)       /* renewals fail: error. A later DEADLINE says that they work again */ \
	X(LOSS)           /* begin with the actions on loss, and say LOSS_DONE after them */   \
	X(LAPSED)         /* all that was held is lost; refs of what was neither waited for nor observed are free */ \
	X(SESSION)        /* close all links: this is our session and incarnation now */       \
	X(REVOKE)         /* another node waits, or this one leaves: hold no more than `weight` soon, by CHANGE or RELEASE */ \
	X(RESIZED)        /* the limit is `weight` now, and `number` its number. What is held stays, what is waited for waits */ \
	X(OBSERVED)       /* somewhere it is observed who leads: PROCLAIM who does now, and each change from now on */ \
	X(NEWS)           /* who leads: `value`, whose token is the term; NONE: nobody does. (token, count) only rises; after LAPSED the last may come again */ \
	X(CHANGED)        /* write down that the node holds `weight` of it now */              \
	X(ACCOUNT)        /* the answer to that ENQUIRE */                                     \
	X(DRAINED)        /* this node masters nothing */                                      \
	X(LEFT)           /* the session has ended, and there will be no other: stop. error: it could not be ended, and will expire */ \
	X(LEDGER_GRANT)   /* write down that the node owns this range of the name */           \
	X(GRANT)          /* open the fast path of the name on that range, wake a waiter */    \
	X(LEDGER_RELEASE) /* write down that the lease is no more */                           \
	X(FORGOTTEN)      /* the master has acknowledged: ref is free to be re-used, unless it observes */ \
	X(OPENED)         /* a reign has begun: epoch. Before the first grant; again when an epoch is raised */ \
	X(REFUSED)        /* the claim or refill cannot be served: error (-EOVERFLOW: no epochs left; -ESHUTDOWN: this node leaves) */ \
	X(LEDGER_ARRIVE)  /* write down that this party has come; such rows outlive LAPSED */  \
	X(LEDGER_BARRIER) /* write down where the node stands; outlives LAPSED too */          \
	X(VERDICT)        /* hand it to the party, and strike out its row unless it is inside now */ \
	X(RESET_DONE)     /* the master has broken the round that was forming, if one was; or error */ \
	X(TIMER)          /* give CORE_EV_TIMER at this time or later; replaces an earlier one */ \
	X(FATAL)          /* superseded, or the store holds what cannot be: error; stop */

enum core_action_kind {
#define X(name) CORE_ACT_##name,
	CORE_ACTIONS(X)
#undef X
};

/* What the master of a name knows of one node: it has `held` of it, and wants `wanted` in total; 0: waits for nothing. */
struct core_party {
	uint64_t session;
	uint32_t held, wanted;
};

struct core_action {
	enum core_action_kind kind;
	union {
		struct {
			uint32_t op;
			const char *key;
			const void *value;       /* valid until it is answered */
			uint32_t value_len;
			uint64_t version;
		} store;
		struct {
			core_ref_t ref;
			struct core_range range;
			uint64_t number;         /* LEDGER_GRANT: of the claim; RESIZED: of the limit */
			int error;
			uint32_t weight;         /* LEDGER_GRANT, GRANT: that is now held; REVOKE: that may be kept */
			uint16_t delay;          /* LEDGER_GRANT, GRANT: that the claim named which is granted */
			bool tries;              /* REVOKE: only if it is idle: then as ever; else say KEEP, and nothing is wanted */
			uint8_t priority;        /* REVOKE: of whoever is the next */
			bool observed;           /* GRANT: as OBSERVED */
			bool lost;               /* GRANT: a former holder died, or was lost (EOWNERDEAD) */
			struct core_value value; /* LEDGER_GRANT, GRANT: what was left behind, unless the node held some of it before: then it knows better */
		} name;
		struct {
			core_ref_t ref;
			uint64_t party;          /* LEDGER_ARRIVE, VERDICT */
			uint64_t order;          /* LEDGER_ARRIVE */
			uint64_t round;          /* VERDICT: of which; 0: of none */
			const struct core_barrier *record; /* LEDGER_BARRIER; until the next step */
			int error;               /* VERDICT: 0 passed; -EPIPE broken, -ETIMEDOUT the same for who withdrew,
						    -ESTALE nobody knows, -EINVAL another number of parties,
						    -ESHUTDOWN this node leaves, and it was in no round;
						    RESET_DONE: -ESHUTDOWN this node has left, nobody has answered */
			bool yes;                /* LEDGER_ARRIVE: its vote; VERDICT: all said yes */
			bool serial;             /* VERDICT: the one of its round */
			bool inside;             /* VERDICT: it stays, in the round to leave by; what it had withdrawn or departed from counts no more */
		} barrier;
		struct {
			uint64_t session;
			uint64_t conn;
			const void *bytes;       /* until the next step */
			uint32_t n;
		} send;
		struct {
			uint64_t session;
			uint32_t incarnation;
			uint64_t node;
			const char *name, *address; /* LINK: until the next step; the name also of RELAYED, COMPLAINT, CUT_OFF */
			uint64_t via;            /* RELAYED */
			core_nsec_t deadline;    /* as of an adopted session's last, before the first beat: 0 */
		} session;
		struct {
			uint64_t number;
			uint32_t held;           /* of it in all, what is lost and counts as held yet included; CORE_WEIGHT_ALL: all, or more than fits */
			uint32_t limit;          /* that there is now; CORE_WEIGHT_ALL: a lock; 0: nobody has it open */
			uint32_t all;            /* so many nodes hold or wait, of which these are the first n: */
			unsigned n;
			const struct core_party *parties; /* holders, then who only waits, in the order in which they will be served; until the next step */
		} account;
		struct {
			core_nsec_t when;
		} timer;
		struct {
			unsigned records;        /* of members and beats that cannot be read, or whose keys say something else */
			unsigned left_out;       /* members for whom there is no room: nothing opens until they have gone */
			const char *key;         /* of one of them; until the next step */
		} odd;
		struct {
			uint32_t epoch;
			int error;
			const char *why;         /* a sentence for the operator */
		} node;
	};
};

struct core_actions {
	unsigned n;
	bool more;                       /* give CORE_EV_CONTINUE when these are done, or somewhat later */
	struct core_action v[CORE_ACTIONS_MAX];
};

/*
 * Most requests are for CORE_CHUNK bytes, none is for a single name. What is allocated is aligned
 * as malloc's. The functions are called within core_create(), core_step() and core_free() only.
 */
#define CORE_CHUNK 32768

struct core_memory {
	void *(*alloc)(void *arg, size_t n);            /* NULL when there is none */
	void (*free)(void *arg, void *p, size_t n);
	void *arg;
	uint64_t seed[2];                               /* random, so that nobody can choose names that collide */
};

struct core;

/* What `dlock status` shows. */
struct core_stats {
	uint32_t epoch;                  /* the highest that this node reigns in */
	uint32_t names;                  /* leases held or claimed here */
	uint32_t waiting;                /* claims and refills not yet granted */
	uint64_t grants, refills, releases;
	uint64_t absurd;                 /* refills and releases that reported more than there was */
	uint64_t raises;                 /* epochs raised because a counter ended */
	int store_error;                 /* why an epoch cannot be raised now; 0: nothing is wrong */
	bool open;                       /* every shard grants; in a cluster: every shard of this node's */
	unsigned odd, left_out;          /* as of CORE_ACT_ODD */
	unsigned orphans;                /* shards whose master is not listed: they are given to another soon, or there is none who may master */
	unsigned opening;                /* shards of this node's that do not grant yet */
	unsigned silent;                 /* members that are not reached and have no beat: they are ended when their time is over */
};

/* -ENOMEM */
int core_create(const struct core_memory *mem, struct core **ret);
void core_free(struct core *c);

/*
 * Returns 0, or an error with an empty list and nothing changed:
 *   -ENOMEM          CLAIM, ADOPT, RECV, what publishes a value: there is no memory; try again
 *   -EINVAL          an impossible event: a bad key, ref, range or value, ADOPT or START after START, an
 *                    answer that nobody waits for, CLAIM or REFILL of a ref whose release is under way
 *   -ENOENT          REFILL, RELEASE: nothing is claimed or held by this ref
 *   -EALREADY        OBSERVE of what is observed, or not; CLAIM, ADOPT of a ref that waits or holds, REFILL of one that waits for it, RELEASE of one
 *                    being released. A grant is never said twice: the range may be in use already
 *   -EEXIST          CLAIM, ADOPT: the key is open by another ref
 *   -EBUSY           CLAIM: the key is being released by another ref; claim again when that is FORGOTTEN
 *   -EAGAIN          ENQUIRE: no master is known, or it is not reached now
 *   -ESHUTDOWN       CLAIM, ARRIVE, RESET, and CHANGE that wants something, after LEAVE
 *   -ENOTRECOVERABLE after CORE_ACT_FATAL, always
 *
 *   Of barriers: -ENOMEM ARRIVE, RESET, ADOPT_*; -EINVAL a bad key or no parties, ARRIVE or RESET with another number
 *   of parties than those who are here; -EALREADY a party that is here, a reset under way; -ENOENT WITHDRAW, DEPART, CLOSE of what
 *   is not here; -EBUSY CLOSE while parties or a reset wait
 *
 * A claim waits until the shard's epoch is open; one that waits may be released again.
 * REFUSED leaves a claim's ref free, and a refill's lease held with its range used up.
 *
 * Errors of the store: -EAGAIN says that the compare failed and the record is another by now (it may
 * be our own doing, if the engine repeated a request whose answer it lost); -ETIMEDOUT says that the
 * answer is lost and the write may have been carried out. Both are met by reading again. Any other
 * ends the node at START, and is tried again every second when an epoch is to be raised.
 */
int core_step(struct core *c, const struct core_event *ev, struct core_actions *ret);
void core_stats(const struct core *c, struct core_stats *ret);

/* What `dlock members` shows of one session that the store lists. */
struct core_member {
	uint64_t session, node;
	uint32_t incarnation;            /* 0: there has been no link to it yet */
	const char *name, *address;      /* until the next step; "": there was no memory for them */
	bool self, may_master, drains;
	bool coordinates;                /* writes the map, by the map */
	bool linked;                     /* frames reach it */
	uint64_t via;                    /* ... through this session; 0: by a connection */
	unsigned shards, placed;         /* that it masters by the map; of them, because it uses them most */
};

/*
 * Those listed, in no order: *at is 0 at first, and false says that there are no more. Alone there are none.
 */
bool core_member_next(const struct core *c, unsigned *at, struct core_member *ret);

/* The session that masters that key by the map; 0: it has not been read yet. */
uint64_t core_master(const struct core *c, const char *key, uint16_t len);

/* The names of events and actions, for traces. */
const char *core_event_name(enum core_event_kind kind);
const char *core_action_name(enum core_action_kind kind);

#endif
