/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The store plane: latches, condition variables and worker ids, each a record (or one of 1024) of the store that all nodes
 * change by compare-and-set; and users' small values (item.h).
 *
 *   struct thing    one for each name that somebody here has open
 *   struct party    one for each process of this node that has it open, with the request it waits for
 *
 * What must hold:
 *  - A request is answered when the store has it, and once: what became of it is read from the record, never
 *    concluded from an answer that came, or did not.
 *  - Nothing is asked of the store while this node has no session that it may rely on: what is written carries its number.
 *  - All of it can be begun anew by the next daemon: from what is noted of a party (its id, the number of the last answer), the
 *    request that is still in its letter box, and the record.
 *
 * Pure but for the store: what concerns the segment goes through struct things_ops, time is what it says.
 */
#ifndef DLOCK_THINGS_H
#define DLOCK_THINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "cond_record.h"
#include "id_kept.h"
#include "id_record.h"
#include "latch_record.h"
#include "proto/kind.h"
#include "proto/small.h"
#include "record.h"

#define THINGS_AGAIN (5 * NSEC_PER_SEC)  /* hints get lost, perhaps */
#define THINGS_OPEN NSEC_PER_SEC         /* so late is it looked whether an open latch is still there, once others have written */
#define THINGS_LAZY (100 * NSEC_PER_MSEC)        /* entries that nobody needs any more may wait for another write */
#define THINGS_HINT_GAP (10 * NSEC_PER_MSEC)

struct things;
struct thing;

/* A thread that waits on a condition. */
struct ticket {
	uint32_t number;
	bool entered;                    /* has been seen in the record */
	bool signalled;                  /* has been told so; its entry may go */
	bool cancelled;
};

struct signal {
	bool sent;                       /* in the last write */
	uint32_t number;
};

struct party {
	struct party *next, **at;
	struct thing *thing;
	void *account;                   /* the owner's */
	uint64_t id;                     /* random, never used again */
	uint32_t answered;               /* the number of the last answer */
	/* the request under way; SMALL_NONE: none */
	enum small_op op;
	uint32_t number, arg;
	uint64_t moment;                 /* what it needs is read no earlier (record.h) */
	uint64_t birth;                  /* of the latch that it is about; 0: not known yet */
	uint32_t meant;                  /* the same, latch_short(), as the client has it; 0: whichever is there */
	struct signal signal;
	bool adopted;                    /* its tickets are still to be read from the record */
	struct ticket *tickets;
	uint32_t n_tickets, tickets_cap;
	uint32_t passed, signalled;      /* the highest ticket told; how many have been */
};

enum id_state { ID_NONE, ID_LISTING, ID_CLAIMING, ID_HELD, ID_UNKEEPING, ID_RETURNING };

struct thing {
	struct thing *next, **at;
	struct things *in;
	void *object;                    /* the owner's */
	enum kind kind;
	char key[STORE_KEY_MAX + 1];     /* of ids: what stands before the number */
	struct record record;
	bool has_record;
	struct party *parties;
	bool twin;                       /* another of the same key may be there: of a space that was lost */
	bool unused;                     /* nobody has it open: what is ours in the record goes */
	bool over;                       /* that is through */
	int error;                       /* of the store, as long as it fails */
	nsec_t again, lazy;              /* looks anew then; NSEC_NEVER */

	/* latch */
	enum latch_state state;
	uint32_t count, initial;
	uint64_t birth;
	/* condition */
	uint32_t owed;                   /* signals of those who died before they ran */
	uint64_t owed_moment;
	struct signal owing;
	struct ghost {
		uint64_t account;
		uint32_t ticket;
	} *ghosts;                       /* entries of those who left after they had run */
	uint32_t n_ghosts;
	uint32_t queued;                 /* entries, as last seen */
	/* ids */
	enum id_state id;
	uint32_t worker;
	struct id_record left, offered;  /* how this node has left the record; what it has written, perhaps (ceiling 0: nothing) */
	uint64_t start, until;           /* where to begin; wanted */
	uint64_t shown;                  /* clients take ids below it */
	uint64_t on_disk, flying;        /* the `next` that the file has for this number, and that of a file under way; ID_UNKEPT: none */
	nsec_t parked;                   /* nobody has it open since then; 0: somebody has */
	nsec_t blocked;                  /* since then the file keeps ids back that the store has granted; 0: it does not */
	bool leaves;                     /* the file under way is without it */
	struct id_list *list;
};

struct things_ops {
	void *arg;
	/* The request of p is over: noted, then told. value as in small.h. */
	void (*answer)(void *arg, struct party *p, int error, uint64_t value);
	/* p->passed has risen: noted, told, and its threads are woken. */
	void (*passed)(void *arg, struct party *p);
	/* The latch's state or count is another. */
	void (*latch)(void *arg, struct thing *t);
	/* The last id given out, with ID_CLOSED if there are none; close: and no more from now on. */
	uint64_t (*id_word)(void *arg, struct thing *t, bool close);
	/* t->worker and t->shown are good: noted, then the word is opened, after `last`; 0: the ceiling alone has risen. */
	void (*id_open)(void *arg, struct thing *t, uint64_t last);
	/* The thing is over (unused, and nothing of it is left): thing_free() may be called, but not from in here. */
	void (*over)(void *arg, struct thing *t);
	/* Timer: call things_turn() then. */
	void (*wake_at)(void *arg, nsec_t when);         /* the earliest counts */
	nsec_t (*now)(void *arg);        /* CLOCK_BOOTTIME */
	int (*room)(void *arg);          /* record.h; may be NULL */
	uint64_t (*now_ms)(void *arg);   /* since ID_EPOCH_MS, by the wall clock */
	/* What things_keep_begin() says is another: to be written. NULL: nothing is kept. */
	void (*keep)(void *arg);
};

struct ended {
	uint64_t session;
	bool ended, asking;
	nsec_t asked;
};

struct things {
	struct record_store store;
	struct things_ops ops;
	bool shared;                     /* other nodes use the store too */
	uint64_t session;
	uint8_t node[16];
	struct thing *first;
	struct ended *ended;
	uint32_t n_ended, ended_cap;
	struct things_ask *asks;         /* under way */
	nsec_t hint_at;                  /* NSEC_NEVER: there was none */
	bool learnt;                     /* that a session has ended */
	/* Worker numbers in the state directory (id_kept.h) */
	uint64_t reserve_ms;             /* how far ahead the ceilings of such are; 0: none are kept */
	struct id_kept *kept;            /* of before, for which nobody has come yet */
	uint32_t n_kept;
};

void things_init(struct things *ts, struct store *store, bool shared, const uint8_t node[16], uint64_t random,
		 const struct things_ops *ops);
void things_done(struct things *ts);     /* all things are free */

/* The session to write for; 0: there is none now, and nothing is asked. */
void things_session(struct things *ts, uint64_t session);
void things_lapsed(struct things *ts);   /* what it had is lost */
void things_hint(struct things *ts);     /* the store has changed */
void things_turn(struct things *ts);     /* a timer */

struct thing *thing_new(struct things *ts, enum kind kind, const char *space, const char *name, size_t len, void *object);
void thing_free(struct thing *t);        /* parties and all */
/* Of ids, after a restart: what it had, in that session. */
void thing_adopt_id(struct thing *t, uint32_t worker, uint64_t shown, uint64_t session);
void thing_used(struct thing *t);        /* it is open again */
void thing_unused(struct thing *t);
void thing_low(struct thing *t);         /* of ids: the ceiling is near */

/* id: a random one, or, adopted, the one of before, with the number of its last answer, and what it had been told. NULL: no memory. */
struct party *party_new(struct thing *t, uint64_t id, void *account);
void party_adopt(struct party *p, uint32_t answered, uint32_t passed, uint32_t signalled);
/* What its letter box says: a new request, or one already known. -EINVAL: it cannot be one. */
int party_request(struct party *p, uint32_t number, uint32_t op, uint64_t arg);
void party_free(struct party *p, bool died, uint64_t taken);     /* taken: as it says (small.h) */

/*
 * Worker numbers in the state directory. v is from malloc(), and theirs. A file with what begin() says is written, of any age and by
 * anybody, then end() is told what became of it; one at a time.
 */
void things_keep_load(struct things *ts, struct id_kept *v, uint32_t n, uint64_t reserve_ms);
uint32_t things_keep_begin(struct things *ts, struct id_kept **ret);     /* *ret is for free(), NULL where there are none */
void things_keep_end(struct things *ts, const struct id_kept *v, uint32_t n, enum kept_end end);
bool things_keeps(const struct things *ts, const char *key, uint32_t worker);    /* it is of before, and good */

/* --- within this folder --- */

void thing_later(struct thing *t, nsec_t span);
void thing_is_over(struct thing *t);
void party_answer(struct party *p, int error, uint64_t value);
struct party *thing_party(const struct thing *t, uint64_t id);
bool session_ended(struct things *ts, uint64_t session); /* surely; false: it is asked about, and things are looked at again when that is known */
bool thing_ours(const struct thing *t, uint64_t session, uint64_t account);      /* an entry in the record */
uint64_t things_random(struct things *ts);

extern const struct record_ops latch_ops, cond_ops, id_ops;
void cond_cancel(struct party *p, uint32_t ticket);
void cond_lapse(struct thing *t);
void cond_left(struct party *p, bool died, uint64_t taken);
void id_want(struct thing *t);           /* somebody wants ids, and there are none, or soon none */
void id_close(struct thing *t);          /* gives the number back */
void id_lapse(struct thing *t);
void id_list_free(struct thing *t);
void id_returns(struct thing *t, bool unkept);   /* the file is without its number now; or cannot be, then it stays ours */
uint64_t id_target(const struct thing *t, uint64_t from);

#define ID_UNKEPT UINT64_MAX
bool id_keep_take(struct thing *t, struct id_kept *ret); /* what the file has for it, if that is of use now */
bool id_keep_adopt(struct thing *t, uint32_t worker, struct id_kept *ret);
void id_keep_changed(struct thing *t);
void id_keep_shown(struct thing *t);     /* t->shown has risen */
void id_keep_left(struct thing *t);      /* t goes, and its number stays ours */
static inline bool id_is_kept(const struct thing *t)
{
	return t->on_disk != ID_UNKEPT;
}

#endif
