/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The daemon's side of shared memory: spaces, clients, and what both do to each other.
 *
 * What must hold:
 *  - Nothing read from a segment is believed: it is copied, then checked against the ledger. A
 *    client that scribbles may upset the locks of its own space on this node, and nothing else.
 *  - Whoever ends, at whatever instruction, what he owned is freed and what he owed is given, here
 *    and now (client_gone), without a timeout.
 *  - Every slot with W set is looked at every 10 to 50 ms, until W is clear (watch.c).
 *  - A daemon that dies between any two of its stores leaves what its successor completes
 *    (adopt.c): each step can be done again.
 *
 * The module says upwards what it needs (struct shm_ops), and decides nothing about leases.
 */
#ifndef DLOCK_SHM_H
#define DLOCK_SHM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "../../include/proto/segment.h"
#include "../loop/loop.h"
#include "ledger.h"
#include "page.h"
#include "quota.h"
#include "rounds.h"
#include "value.h"

#define DIED_MAX 65536                   /* so many names are kept in a space for being owner-died, with nobody that has them open */

struct shm;
struct space;
struct object;
struct account;
struct sem_say;
struct pool_ops;
struct client;
struct peer;

/* Where a name stands between the segment and the core; not kept over a restart. */
enum name_state {
	NAME_IDLE,                       /* open, no lease */
	NAME_ASKED,                      /* the core has been asked for tokens */
	NAME_TRIED,                      /* it has been asked for a lease if nobody uses it, for one who may want it soon */
	NAME_LEASED,
	NAME_RELEASING,                  /* closed by all; the slot is free again when the core has forgotten it */
	NAME_RETURNED,                   /* open, and given back to the others; asked for again when the core has forgotten it */
};

struct shm_event {
	const char *what;                /* as in query.h */
	const struct space *space;
	uint32_t slot;                   /* 0: none */
	pid_t pid;
	uint64_t token;
	const char *detail;
};

/* Of a barrier whose rounds are completed among nodes; by its number, and that of a party (rounds.h). */
enum shm_barrier {
	SHM_ARRIVE,                      /* answer with rounds_arrived(), later with barrier_verdict() */
	SHM_WITHDRAW,                    /* it asks to be let go: barrier_verdict() */
	SHM_DEPART,                      /* it is inside, and wants to leave: barrier_verdict() */
	SHM_RESET,                       /* barrier_reset_done() */
	SHM_CLOSE,                       /* nobody has it open: barrier_closed() */
};

struct small_ops;

struct shm_ops {
	void *arg;
	/* The name has no token left (count 0: no lease at all). Answer with space_granted(). */
	void (*want)(void *arg, struct space *s, uint32_t slot);
	/*
	 * Nobody has the name open any more, or wants it, that is leased or claimed. Answer with space_ledger_release(), then space_forget(). died: the
	 * last holder did, and nobody has mended what he left.
	 */
	void (*unused)(void *arg, struct space *s, uint32_t slot, uint64_t used, bool died);
	/*
	 * After space_revoke(): the word is closed. Answer with space_ledger_release(), and then, where it
	 * is wanted again at once, behind the others, as to a want; else with space_forget().
	 */
	void (*yielded)(void *arg, struct space *s, uint32_t slot, uint64_t used, bool died, bool again);
	/*
	 * Elections. observe: the news of the name are wanted, or not any more; returns whether they will come, by elect_news(),
	 * until that is taken back (elect_unwatched, perhaps within the call). After `off` the name's number is free: space_forget() follows where there is no
	 * lease. leads: what elect_state() says has changed.
	 */
	bool (*observe)(void *arg, struct space *s, uint32_t slot, bool on);
	void (*leads)(void *arg, struct space *s, uint32_t slot);
	/* After shm_loss(): all those have ended who were to. */
	void (*loss_done)(void *arg);
	void (*event)(void *arg, const struct shm_event *ev);
	/* After space_revoke_share(): the word is closed, and is read; a share is kept, with the last token used. Answer with space_lowered(). */
	void (*lowered)(void *arg, struct space *s, uint32_t slot, uint64_t used, bool died);
	/* There is no lease, and it would be of use if nobody else uses it; want() may follow before the answer. Answered as want(). */
	void (*try)(void *arg, struct space *s, uint32_t slot);
	/* Somebody waits for what has been asked for whose priority is not 0 (name_priority). */
	void (*rank)(void *arg, struct space *s, uint32_t slot);
	void (*barrier)(void *arg, enum shm_barrier what, uint32_t barrier, uint32_t party);

	const struct small_ops *small;   /* latches, conditions, worker ids (small.h); NULL: there are none */

	const struct pool_ops *pool;     /* free semaphores (pool.h); NULL: there are none */
	/* sem_core.c tells the core, by way of the name's number. */
	void (*sem)(void *arg, struct space *s, uint32_t slot, const struct sem_say *say);
};

enum sem_say_what { SEM_SAY_CLAIM, SEM_SAY_CHANGE, SEM_SAY_RELEASE, SEM_SAY_KEEP, SEM_SAY_RESIZE };

struct sem_say {
	enum sem_say_what what;
	uint32_t held, wanted;           /* CHANGE; CLAIM: wanted */
	bool tries;
	uint8_t priority;                /* of what is wanted */
	uint32_t limit;                  /* CLAIM: that it was opened with; RESIZE */
	uint32_t present;                /* CLAIM: what it has been resized to, while it has been open here, under this stamp; 0: it has not */
	uint64_t stamp;
};

/* After a revoke, and while others of this node wait: so many hand-overs among them, and for so long. 0: none. */
struct shm_burst {
	uint32_t count;
	nsec_t span;
};

struct shm_config {
	int rundir_fd;
	uint64_t session;
	bool spaces_on_demand;
	uint64_t deadline_ns, deadline_ticks;    /* to begin with; both 0: never (alone) */
	bool no_peerpidfd;               /* as on kernels before 6.5 (for tests) */
	bool many;                       /* this node is one of many: what all of them decide is not decided here */
};

struct space {
	struct shm *shm;
	uint32_t id;                     /* its line in the node page, its record in the ledger */
	char name[ATTACH_SPACE_MAX + 1];
	uint64_t generation;
	int fd;
	void *base;                      /* SEG_FILE_SIZE bytes */
	int bell, bell_clients;          /* two open files of one FIFO: a client cannot make ours block */
	struct loop_read *bell_read;
	struct table names, longs, lines;
	uint32_t lines_used;             /* reader.c: their memory is there */
	uint64_t era;                    /* reader.c: the last one begun */
	bool lines_mourned;              /* reader.c: some may be of clients that are dead */
	uint32_t *buckets, n_buckets;
	uint64_t seed;                   /* of the hash: clients choose the names */
	uint32_t n_clients;
	uint32_t n_open;                 /* names that somebody has open; others are kept for being owner-died */
	nsec_t made;
	nsec_t sound_at;                 /* when its file was last looked at */
	unsigned young;                  /* how many before it were broken soon after they were made */
	uint32_t n_died;
	struct space *before;            /* lost, and not wound up yet: names that were leased there begin as owner-died */

	/* When it is lost. */
	const char *broken;
	nsec_t broken_at;
	struct space *successor;
	uint32_t end_at;                 /* the names up to here are wound up */
	bool ended;

	/* watch.c */
	uint64_t *watched;               /* a bit per slot: it is in watch[] */
	struct watch_entry {
		uint32_t slot;
		uint32_t passed;         /* looks in a row that have left it to itself */
		uint64_t word;           /* as last seen */
	} *watch;
	uint32_t n_watch, watch_cap, watch_at;
	uint32_t round_left;             /* of the list, in this round of looks */
	bool round_moved;
	nsec_t watch_span;
	struct loop_timer watch_timer, bell_timer;
	nsec_t scan_since;
	unsigned scan_left;              /* until scan_since + SCAN_SPAN */
	bool scan_found;                 /* something that had to be done */
	bool rescan;                     /* memory was short: look through all bits at the next look */

	/* object.c */
	void **things;                   /* by slot: struct object, struct account; NULL: there have been none */
	struct account **accounts;       /* hash of client and object */
	struct object *objects;

	/* elect.c */
	struct elect **elects;           /* by slot, in chunks; NULL: there have been none */
	struct loop_timer elect_timer;

	/* hatch.c */
	bool hot;                        /* its clients are told that the daemon is awake */
	uint8_t in_vain;                 /* looks in a row */
	struct loop_timer sweep_timer;
	struct space *hot_next;

	/* yield.c */
	struct yield *yields;
	uint32_t n_yields, yields_cap;
	uint32_t yield_at;               /* of the round that is under way */
	bool yield_bursts;
	struct loop_timer yield_timer;
};

/* How far shm_loss() has come. */
struct loss_walk {
	struct loop_defer go_on;
	uint32_t space, slot;            /* the next space; the last slot of it that has been looked at */
	bool on;
};

/* sight.c */
#define SIGHTS_RECENT 256

struct sights {
	struct sight_table *table;       /* NULL: there was no memory for it */
	struct sight_recent {
		nsec_t at;
		uint64_t hold;           /* what it was then; 0: nobody's */
		uint32_t space, slot;
	} recent[SIGHTS_RECENT];
	unsigned n_recent;
	struct loop_timer timer;
};

struct shm {
	struct loop *loop;
	struct shm_ops ops;
	struct shm_config config;
	int dirfd, anchor_dirfd;         /* RUN/shm, RUN/anchor */
	int hint_dirfd;                  /* RUN/hint */
	int inotify;
	struct loop_read *inotify_read;
	struct loop_timer anchor_timer, mourn_timer;
	struct ledger ledger;
	struct rounds rounds;
	struct page page;
	struct space *spaces[LEDGER_SPACES_MAX];
	uint32_t opens_of[LEDGER_SPACES_MAX];    /* how many of the ledger's opens are in each */
	struct client *clients[SEG_CLIENTS_MAX];
	struct leaving *leaving;         /* chore.c */
	struct quotas quotas;
	struct sights sights;
	struct loop_defer chores;
	struct conn *conns;
	uint32_t n_conns;
	struct conn *kept;               /* those whose answer waits for a lease */
	struct space *hot;
	struct loop_look look;
	struct loop_accept *accept;
	int listen_fd;
	struct shm_burst burst;
	uint32_t losing;                 /* clients that shm_loss() waits for */
	struct loss_walk loss_walk;
	bool running;                    /* shm_start() is through */
	const char *loss;                /* why earlier holds were declared lost */
};

/*
 * fresh: a new session. Otherwise goes on with what the session's earlier daemon left; what of it
 * is missing or foreign is lost, space by space. ledger_id: of the session.
 */
int shm_init(struct shm *shm, struct loop *loop, const struct shm_config *config,
	     const struct ledger_identity *id, bool fresh, const struct shm_ops *ops);
void shm_done(struct shm *shm);          /* leaves everything for a successor */

/* Calls fn for every lease that the ledger knows: for the core, before anything else. */
void shm_each_lease(struct shm *shm, void (*fn)(void *arg, struct space *s, uint32_t slot), void *arg);

/* Frees what the dead own, wakes whom a dead daemon owes it, begins to serve. */
int shm_start(struct shm *shm, int listen_fd);

/* --- space.c --- */

struct space_access {
	uid_t uid;
	gid_t gid;
	mode_t mode;
};

int space_create(struct shm *shm, const char *name, const struct space_access *access,
		 bool on_demand, struct space **ret);
int space_adopt(struct shm *shm, uint32_t id, struct space **ret);   /* broken is set where its segment is lost */
void space_free(struct space *s);
struct space *space_find(struct shm *shm, const char *name, size_t len);
void space_set_access(struct space *s, const struct space_access *access);
bool space_may(const struct space *s, uid_t uid, gid_t gid, const gid_t *groups, size_t n_groups);

/*
 * What was held in it is lost: its clients see ESTALE. It stays, broken, for whoever still has it
 * open; a new one takes its place, where the names that were leased start as owner-died.
 */
void space_break(struct space *s, const char *why);
unsigned space_end_some(struct space *s, unsigned max);    /* winds up a broken one; how many names it came to */
bool space_let_go(struct space *s);      /* true: nobody needs the broken one any more, it has been freed */

/*
 * The space of that name, for a client. One that is lost is made anew; one that is not there is
 * made where that is allowed. -EACCES, -ENOENT, -EAGAIN (broken too often), -EDQUOT (the user has
 * made too many that are in use), or as space_create().
 */
int space_get(struct shm *shm, const char *name, size_t len, const struct peer *p, struct space **ret);
bool space_sound(struct space *s);       /* false: its file is not what it was, and it has been broken */

static inline struct ledger_space *space_record(const struct space *s)
{
	return ledger_space(&s->shm->ledger, s->id);
}

/* --- name.c: names in a space, and their leases --- */

struct name_text {
	const char *p;
	size_t n;
};

static inline struct ledger_name *name_at(const struct space *s, uint32_t slot)
{
	return table_at(&s->names, slot);
}

/* LEDGER_NOTE where it is no name. */
static inline unsigned slot_kind(const struct space *s, uint32_t slot)
{
	return name_at(s, slot)->used >> LEDGER_KIND_SHIFT;
}

static inline bool name_is(const struct space *s, uint32_t slot)
{
	return table_in_use(&s->names, slot) && name_at(s, slot)->used && slot_kind(s, slot) != LEDGER_NOTE;
}

static inline bool note_is(const struct space *s, uint32_t slot)
{
	return table_in_use(&s->names, slot) && slot_kind(s, slot) == LEDGER_NOTE;
}

static inline struct ledger_note *note_at(const struct space *s, uint32_t slot)
{
	return table_at(&s->names, slot);
}

static inline enum kind name_kind(const struct space *s, uint32_t slot)
{
	unsigned kind = slot_kind(s, slot);

	return kind < KINDS ? (enum kind)kind : KIND_LOCK;
}

/* Its word is one of lockword.h. */
static inline bool name_is_lock(const struct space *s, uint32_t slot)
{
	return name_is(s, slot) && !kind_is_object(name_kind(s, slot));
}

/* What it holds can have a lock-delay (delay.c). */
static inline bool name_has_delay(const struct space *s, uint32_t slot)
{
	return name_is_lock(s, slot) || name_kind(s, slot) == KIND_SEM;
}

/* Another node waits for the lease, which has not been given back yet. */
static inline bool name_revoked(const struct ledger_name *n)
{
	return n->revoked && (n->state == NAME_LEASED || n->state == NAME_ASKED);
}

/* It has no lease, and stands in the queue for one. */
static inline bool name_claims(const struct ledger_name *n)
{
	return n->state == NAME_TRIED || (n->state == NAME_ASKED && !n->count);
}

struct name_grant {
	uint64_t first, count, number;   /* tokens; of the claim */
	bool lost;                       /* a former holder died, or was lost */
	struct shm_value value;          /* left behind by other nodes; heeded where the node held nothing of the name before */
	bool shared;                     /* a share of a lock */
};

struct name_text name_text(const struct space *s, uint32_t slot);

/* By what the cluster knows it: space, kind_mark(), name; without a zero byte. The length. */
uint16_t name_key(const char *space, enum kind kind, const char *text, size_t len, char ret[NAME_KEY_MAX]);
uint32_t name_find(const struct space *s, enum kind kind, const char *text, size_t len);
int name_make(struct space *s, enum kind kind, const char *text, size_t len, uint32_t *ret_slot);
int note_make(struct space *s, uint32_t parent, uint32_t client, uint32_t *ret_slot);    /* its slot is zeroed */
void note_drop(struct space *s, uint32_t slot);
void name_take_out(struct space *s, uint32_t slot);        /* found no more; space_forget() is next */
void name_index(struct space *s);        /* makes anew what the table does not keep over a restart */
int name_texts_sweep(struct space *s);   /* drops texts that a dead daemon left without a name. -ENOMEM */
void name_opened(struct space *s, uint32_t slot);  /* one client more */
void name_closed(struct space *s, uint32_t slot);  /* one client less */
bool name_soon(struct space *s, uint32_t slot);    /* a client means to take it: true, if a lease may come in a moment */
void name_unclaim(struct space *s, uint32_t slot); /* nobody waits for it any more: its place in the queue is given up */
void name_abandoned(struct space *s, uint32_t slot);       /* idle: it goes, where nobody has it open */
void name_reopen(struct space *s, uint32_t slot);  /* a share, for readers; the word is closed */
void name_end(struct space *s, uint32_t slot);     /* in a broken space: as if the last had closed it */
unsigned name_priority(const struct space *s, uint32_t slot);   /* the highest of those who wait for it */
unsigned name_priority_of(const struct space *s, uint32_t slot, uint32_t client);       /* of those of that client, which is in the space */
bool name_awaited(const struct space *s, uint32_t slot);         /* somebody sleeps on it */
uint64_t name_token(const struct space *s, uint32_t slot);      /* the last one given out, 0: none */

void space_ledger_grant(struct space *s, uint32_t slot, const struct name_grant *g);
/* Opens the word on the ledger's range. lost: nobody knows what the last holder left behind; robust takers are told. */
void space_granted(struct space *s, uint32_t slot, bool lost);
void space_lowered(struct space *s, uint32_t slot, uint64_t first, uint64_t count);
void space_refused(struct space *s, uint32_t slot);        /* the waiters ask again */
void space_ledger_release(struct space *s, uint32_t slot);
void space_forget(struct space *s, uint32_t slot);

/* --- value.c: what names carry --- */

int value_page_open(struct space *s, uint32_t slot);            /* there is a page. -ENOSPC … */
void value_page_drop(struct space *s, uint32_t slot);
void value_rest(struct space *s, uint32_t slot);               /* nobody has the name open, and it stays */
int value_page_ask(struct space *s, uint32_t slot);            /* a client asks for it: it says all that is known. Likewise */
struct value_page *value_page(const struct space *s, uint32_t slot);
/* A lease has come, whose tokens begin at `first`, and the word is closed still. */
void value_granted(struct space *s, uint32_t slot, const struct shm_value *v, uint64_t first);
/* What the clients of a closed word have left. false: not what the lease allows. ret->bytes is bytes[]. */
bool value_left(const struct space *s, uint32_t slot, struct shm_value *ret, uint8_t bytes[VALUE_MAX]);

/* --- elect.c: who leads. Slots of other kinds are ignored --- */

int elect_open(struct space *s, uint32_t slot);            /* somebody has it open. -ENOMEM, -ENOSPC … */
bool elect_close(struct space *s, uint32_t slot);          /* nobody has. Returns whether the core forgets it by itself */
void elect_adopt(struct space *s, uint32_t slot);
bool elect_watching(const struct space *s, uint32_t slot); /* the core knows its number, whether there is a lease or not */
void elect_unwatched(struct space *s, uint32_t slot);      /* the core could not; it is asked again */
void elect_untold(struct space *s, uint32_t slot);         /* what ops.leads was to tell it could not tell; it tries again */
void elects_watched(struct space *s);     /* somebody wants to know of all of them: leaders ring from now on */
void elect_polled(struct space *s, uint32_t slot);         /* somebody has dlock_elect_fd() */
void elect_granted(struct space *s, uint32_t slot, bool asked);  /* asked: other nodes want to know who leads */
void elect_asked(struct space *s, uint32_t slot);          /* so they do, of a lease that is here */
void elect_ring(struct space *s, uint32_t slot);           /* somebody has written to the page */
void elect_died(struct space *s, uint32_t slot, uint32_t client);        /* before its word is freed */
void elect_given(struct space *s, uint32_t slot);          /* the lease is about to go; the word is closed */
void elect_lapse(struct space *s, uint32_t slot);
void elect_news(struct space *s, uint32_t slot, const struct shm_value *v);
/* Who leads by a lease of this node, or that nobody does after ret->token. false: there is no lease. ret->bytes is bytes[]. */
bool elect_state(const struct space *s, uint32_t slot, struct shm_value *ret, uint8_t bytes[VALUE_MAX]);
uint64_t elect_leader(const struct space *s, uint32_t slot, char text[VALUE_MAX + 1]);  /* as this node knows it: the term, and what is said; 0: nobody */
void elects_free(struct space *s);

/* --- yield.c: the lease goes to another node --- */

void yields_init(struct space *s);
void yields_done(struct space *s);
void space_revoke_share(struct space *s, uint32_t slot);   /* the same, or ops.lowered where it is read: a share may be kept */
void space_revoke(struct space *s, uint32_t slot);         /* answered by ops.yielded, now or soon; nothing, where nothing is leased */
bool space_revoke_idle(struct space *s, uint32_t slot);    /* likewise, and now; false: it is in use, and stays */
void space_revoke_now(struct space *s, uint32_t slot);     /* for ourselves: without a burst, and nobody is promised it */
void yield_back(struct space *s, uint32_t slot);           /* granted, and the word is closed still: given back unused */
void yield_look(struct space *s, uint32_t slot);           /* its word may have become free */

/* --- lapse.c: the session ends, or is about to --- */

/* Publishes until when this node may be relied upon, in both measures; ticks 0: only the clock knows. */
void shm_deadline(struct shm *shm, uint64_t ns, uint64_t ticks);

/*
 * Whoever holds anything is told, by dlock_fd() and by the signal that it has asked for. ops.loss_done
 * follows when all have ended who are to end (dlock run, and those to whom KILL was sent), perhaps at once. Very many
 * names go in slices, since the beat that may save the session must not wait for them.
 */
void shm_loss(struct shm *shm);
void shm_loss_over(struct shm *shm);     /* it did not come to that */

/*
 * All that was held or asked for is lost. Claims that the core has not answered stand: those are asked
 * for, and have no lease. All other numbers of the core's are free by now.
 */
void shm_lapse(struct shm *shm);
bool name_retire_count(struct ledger_name *n, uint64_t was, uint32_t least);     /* a hold was lost: ranges begin above it. false: less than that is left */
void shm_lapse_told(struct shm *shm);    /* clients are there: whom a lapse before shm_start() concerned is told now */

/* --- watch.c --- */

int watch_start(struct space *s);
void watch_stop(struct space *s);
void watch_add(struct space *s, uint32_t slot);
void watch_owed(struct space *s, uint32_t slot);   /* a client that had it open is gone */
bool watch_scan(struct space *s);        /* somebody rang. Returns whether for a reason */
void watch_scan_all(struct space *s);    /* whatever the second level says */

/* --- client.c --- */

struct client {
	uint32_t index;
	int pidfd;                       /* -1: liveness is the anchor's alone */
	struct loop_watch *watch;
	struct conn *conn;               /* NULL: none at present */
	uint8_t suspect;                 /* how often its anchor is still to be looked at, and when next */
	nsec_t suspect_at;
	bool losing;                     /* lapse.c: it is to end before others are granted */
	struct hint **hints;             /* hint.c; NULL: none */
	uint16_t *spaces;                /* in which it has its area */
	uint16_t n_spaces, spaces_cap;
	uint32_t n_lines;                /* reader.c */
};

struct peer {
	int fd;
	pid_t pid;                       /* 0: not visible from the daemon's pid namespace */
	uid_t uid;
	gid_t gid;
	gid_t *groups;
	size_t n_groups;
	int pidfd;
};

/* Takes over peer->pidfd on success (-1 where it is not to be watched). ret_anchor: to be handed to the client, then closed. */
int client_new(struct shm *shm, struct peer *peer, uint32_t flags, struct client **ret, int *ret_anchor);
int peer_identify(struct shm *shm, int fd, struct peer *ret);   /* -ENOTSUP: it must answer a nonce first */
int peer_pidfd(struct peer *p);          /* by pid; to be confirmed by the nonce */
void peer_known(struct peer *p);         /* it is a client now: its process is watched by that */
void peer_done(struct peer *p);
int client_adopt(struct shm *shm, uint32_t index);         /* -ESRCH: it is gone; anything else: that cannot be found out now */
void client_gone(struct shm *shm, uint32_t index, const char *why);

struct client_what {
	enum kind kind;
	uint32_t arg;                    /* attach.h */
	const char *name;
	size_t len;
};

int client_open(struct client *c, struct shm *shm, struct space *s, const struct client_what *what,
		uint32_t *ret_slot, uint32_t *ret_account);
int client_close(struct client *c, struct shm *shm, struct space *s, uint32_t slot);
int client_onloss(struct client *c, struct shm *shm, struct space *s, uint32_t slot, uint32_t signo);
int client_permits_delay(struct client *c, struct shm *shm, struct space *s, uint32_t slot, uint32_t ms);
int client_value(struct client *c, struct shm *shm, struct space *s, uint32_t slot);     /* a page for what the name carries */
void client_free(struct shm *shm, struct client *c);       /* the record stays */
void client_release(struct shm *shm, uint32_t index, uint32_t open);     /* it is dead: what it owned there is free */
void client_leave(struct shm *shm, uint32_t index, uint32_t open);       /* one of its opens ends */
void client_forget(struct shm *shm, uint32_t index);       /* all of them have: the index is free */
bool client_is_in(const struct client *c, const struct space *s);        /* it has an area there. c may be NULL */
void client_area_forget(struct client *c, uint32_t space); /* c may be NULL */

/* --- anchor.c: whose address space is there --- */

int anchor_make(struct shm *shm, uint32_t index);         /* what the client gets */
int anchor_there(struct shm *shm, uint32_t index);        /* 1, 0; or negative: that cannot be found out now */
void anchor_remove(struct shm *shm, uint32_t index);
void anchors_recheck(void *arg);                           /* the timer */
void anchors_events(void *arg, const void *data, ssize_t n);       /* inotify's */

/* --- chore.c: what takes long is done in slices, one a turn --- */

void chores_init(struct shm *shm);
void chores_wake(struct shm *shm);
void chores_done(struct shm *shm);       /* leaves the rest for a successor */
void chore_leave(struct shm *shm, uint32_t index);         /* a dead client: what it owned is freed, then its opens go */

bool client_leaves(const struct shm *shm, uint32_t index); /* that is under way */

/* --- delay.c: lock-delay --- */

void delays_init(struct shm *shm);
void delay_asked(struct space *s, uint32_t slot, uint32_t open, uint16_t ms);    /* by a client that has the lock, or semaphore, open */
uint16_t delay_of(const struct space *s, uint32_t slot, uint32_t client);        /* that it has asked for */
void delay_adopt(struct space *s, const struct ledger_open *o);     /* the name, of one who has it open */
bool open_mourned(const struct ledger_open *o);
/* Its client is gone: what it held or read stays its own for a while. *ret_alone: the word too. */
bool open_mourn(struct shm *shm, uint32_t index, uint32_t open, uint64_t token, bool *ret_alone);
uint32_t delay_left(struct space *s, uint32_t slot);       /* in ms; 0: nobody who held it is mourned */

/* --- adopt.c --- */

void adopt_opens(struct shm *shm);       /* how many have each name open */
int adopt_clients(struct shm *shm);      /* finds out who of the ledger's clients is still there */
void adopt_words(struct space *s);       /* what the ledger and the living say against what the words say */
void adopt_end(int shm_dirfd);           /* an earlier session's segments: closed, and their sleepers woken */

/* --- reader.c: shared holds --- */

int readers_begin(struct space *s);
void readers_adopt(struct space *s);     /* the clients are there */
int reader_line(struct client *c, struct space *s, uint32_t *ret_line);  /* -ENOSPC */
/* It is dead: what it read is not read any more, but for what has a lock-delay. again: nor is that. */
void readers_forget(struct shm *shm, uint32_t client, bool again);
bool reader_is(const struct space *s, uint32_t slot, uint32_t client);   /* it is dead, and what it read has a lock-delay */
void reader_gone(struct space *s, uint32_t slot, uint32_t client);       /* ... which is over */
bool readers_inside_now(const struct space *s, uint32_t slot);
unsigned readers_cost(const struct space *s, uint32_t slot);       /* of looking for them, beyond a look at the word: in such looks */

/*
 * What those want who have gone to sleep since the last call: enum wants. A lease is asked for with it; until that is granted
 * (_over) it is remembered, for when the core does not take the claim, or another daemon has to make it (_again): they sleep on, and do not say it twice.
 */
uint32_t readers_want(struct space *s, uint32_t slot);
void readers_want_again(struct space *s, uint32_t slot, uint32_t which);
void readers_want_over(struct space *s, uint32_t slot);

bool readers_drained(struct space *s, uint32_t slot);      /* false: whoever is the last to leave rings */
/*
 * w: the word, which has not moved for two looks. An owner who is not inside, and has nobody to wait for, is stopped: he is passed over. Returns
 * whether he was.
 */
bool readers_pass_over(struct space *s, uint32_t slot, uint64_t w);
void readers_renew(struct space *s, uint32_t slot);        /* whatever is held shared is lost */
void readers_granted(struct space *s, uint32_t slot);      /* before the bias changes */
void upgrade_over(struct space *s, uint32_t slot, uint32_t client);
void upgrade_turn(struct space *s, uint32_t slot);         /* who upgrades looks at the word again */
/* Whoever reads, as the cells say; one that is in them twice comes twice. only: one slot; 0: all. */
void readers_each(struct space *s, uint32_t only, void (*fn)(struct space *s, uint32_t slot, uint32_t client, void *arg),
		  void *arg);

/* --- conn.c: the attach socket --- */

int conn_listen(struct shm *shm, int listen_fd);
void conn_close_all(struct shm *shm);
void conn_end(struct conn *c);
void conn_kept(struct shm *shm, const struct space *s, uint32_t slot);   /* the name has a lease, or gets none now: who opened it is answered. 0: all */

struct hatch_open;
bool conn_has_hatch(const struct conn *c);
bool conn_asked(const struct conn *c, const struct space *s, uint32_t asked);    /* and the answer is kept */
bool conn_settle(struct conn *c);        /* nothing is kept any more. false: nor is the connection */
void conn_ask(struct conn *c, struct space *s, uint32_t asked, const struct hatch_open *open);   /* answered by hatch_answer() */

/* --- hatch.c: requests by way of memory (proto/hatch.h) --- */

int hatches_begin(struct space *s);
void hatches_end(struct space *s);
void hatches_start(struct shm *shm);
bool hatch_bell(struct space *s, unsigned *cost);  /* somebody rang: was it for a hatch? And what it cost, in words looked at */
void hatches_hot(struct space *s);       /* it rang for a reason: the daemon is awake for it until it sleeps */
void hatches_serve(struct client *c, struct shm *shm);     /* all of its hatches, before it is heard elsewhere */
void hatches_void(struct client *c, struct shm *shm);      /* what stands there belongs to a connection that has ended */
void hatch_answer(struct space *s, uint32_t client, uint32_t asked, int error, uint32_t slot);

/* --- hint.c: FIFOs of dlock_fd() --- */

int hint_open(struct client *c, struct shm *shm, struct space *s, uint32_t slot, int *ret_fd);
void hint_ring(struct shm *shm, struct space *s, uint32_t slot);         /* to the one who holds it */
void hint_ring_readers(struct shm *shm, struct space *s, uint32_t slot); /* to those who read it: it is wanted, or lost */
void hint_ring_all(struct shm *shm, struct space *s);
void hint_ring_slot(struct shm *shm, struct space *s, uint32_t slot);    /* to all who have it open */
void hint_ring_lost(struct shm *shm, struct space *s, uint32_t slot, uint32_t client);   /* what it held, or is about to */
void hint_drop(struct client *c, struct shm *shm, uint32_t index, uint32_t space, uint32_t slot);  /* c: NULL where it was not adopted */
void hint_adopt(struct client *c, struct shm *shm);
void hint_close_all(struct client *c, struct shm *shm);    /* the FIFOs stay */

void shm_tell(struct shm *shm, const char *what, const struct space *s, uint32_t slot, pid_t pid,
	      uint64_t token, const char *detail);

#endif
