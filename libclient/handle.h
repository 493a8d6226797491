/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Handles, the names behind them, and where a name's word lies.
 *
 *   struct dlock    what the user opened; many may share a name. Handles of other kinds begin with one
 *   struct name     one per (space, kind, name) of the process: what the daemon has opened for it
 *   struct binding  where the word lies and as whom it is taken, with the hold that was taken there
 *   struct space    a mapped segment of one generation
 *
 * What must hold:
 *
 *   Bindings  belong to one handle. Where the word lies, its line and the client's index never
 *             change in a binding, and it is not freed before its handle is closed: a thread in the
 *             fast path works with things that belong together, whatever happens meanwhile. A handle
 *             that has to be opened anew gets a new binding; the old ones stay in a list, so that a
 *             hold that was taken there is found and called lost.
 *   state     of a binding: whose hold it is, and how deep. It is written by the holder alone: set
 *             after the word was taken, and cleared before the word is released. So a free word
 *             with a state means that the hold was lost; then nobody takes the word through
 *             this binding any more (a holder that does not know yet could clear the state of the
 *             next), but through a new one.
 *   held      is the word as it was taken. A release is a compare-and-swap from it.
 *
 * The names, handles and bindings are changed under lib (thread.h); what is read without it is
 * published with release and read with acquire.
 */
#ifndef DLOCK_HANDLE_H
#define DLOCK_HANDLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attr.h"
#include "limit.h"
#include "proto/attach.h"
#include "proto/kind.h"
#include "proto/ranked.h"
#include "proto/lockword.h"
#include "proto/segment.h"
#include "space.h"

#define THREAD_SERIAL_MAX UINT32_C(0xfffffffe)
#define HOLDER_PROCESS    UINT32_C(0xffffffff)      /* whose hold belongs to the process */

/* A mask that no word passes: (w & 0) is not LOCK_L. */
#define SLOW_NEVER_TAKES UINT64_C(0)

struct binding {
	uint64_t *word;
	const struct node_line *line;
	uint64_t slow;                   /* the bits of the word that decide: LOCK_SLOW, or SLOW_NEVER_TAKES */
	uint64_t me;                     /* client index | LOCK_EXCLUSIVE */
	uint64_t state;                  /* low half: the holder, 0 none; high half: depth of recursion, and STATE_VALUE */
	uint64_t held;
	uint32_t widen;                  /* or-ed to the thread's serial gives the holder */
	uint32_t slot;
	uint32_t epoch;                  /* of the connection: another one means that all this is lost */
	uint32_t account;                /* objects: the slot of this client in it */
	struct space *space;             /* NULL: bound to nothing */
	uint64_t read_key;               /* read.h: of the lines in which its name is read; READ_NEVER: by the long way only */
	uint64_t read_as;                /* its name in a cell */
	uint32_t lane;                   /* and where that, and the record, lie in a thread's page */
	uint32_t lane_off, record_off;
	uint32_t quiet;                  /* so often in a row a taker has found no reader */
	uint64_t *own;                   /* objects: this client's words in it; never NULL */
	uint64_t woken_ticks;            /* since when its holders have seen K; 0: not */
	uint64_t looked_ticks;           /* when one has looked at the counter for that */
	uint32_t look_skip;              /* releases until the next such look */
	struct value_page *value;        /* of what the name carries; NULL: not asked for yet */
	uint64_t claim;                  /* STATE_VALUE: of the page (value.h) */
	struct binding *older;
} __attribute__((aligned(64)));

struct dlock {
	struct binding *binding;         /* the one to take through; one that cannot be, where the name has to be opened */
	struct binding *bindings;        /* all that there were, newest first */
	struct dlock_attr attr;
	enum kind kind;
	uint32_t arg;                    /* attach.h */
	bool soon;                       /* while it is being opened: it is expected to be taken at once */
	void (*wake)(struct dlock *l);   /* objects: wakes whoever sleeps through it, to look again. Under lib */
	struct name *name;
	struct dlock *next;              /* of the name's handles */

	/*
	 * Waits that are going on, by parity of the cancel count that they began under. A cancel raises
	 * the count, and wakes until nobody waits under the old one.
	 */
	uint32_t cancels;
	uint32_t waits[2];
	uint32_t cancelling;             /* by one at a time */
	struct sleeper *sleepers;        /* who waits for the lock's sake, and sleeps elsewhere; under lib */

	struct hint {
		int fd;                  /* dlock_fd(); -1: none */
		uint32_t epoch, number, slot;    /* what it was asked for */
		uint64_t ino;            /* it is still that one, and no descriptor of the user's */
	} hint;
	struct binding first;
};

_Static_assert(offsetof(struct binding, widen) + sizeof(uint32_t) <= 64, "the fast path's part is one cache line");

/* On a condition: a cancel of the lock's waits wakes it on the word that it sleeps on. */
struct sleeper {
	struct sleeper *next;
	uint32_t *word;
};

/* What the daemon has opened for a name. */
struct target {
	struct space *space;
	const struct node_line *line;
	uint32_t client, number, slot;   /* number: of the space */
	uint32_t account;                /* objects: the slot of this client in it */
	uint32_t epoch;                  /* of the connection; 0: nothing is open */
	struct value_page *value;        /* NULL: not asked for yet */
};

struct name {
	struct name *next;               /* of the hash chain */
	uint64_t hash;
	struct dlock *handles;
	struct target target;
	enum kind kind;
	uint32_t arg;                    /* that it was opened with last */
	struct sem_waiter *waiters;      /* semaphores: the threads that wait, in order (sem_slow.c) */
	int onloss;                      /* what the daemon knows of it for `target` */
	uint32_t delay;                  /* likewise, of a semaphore: the longest that was asked for */
	uint8_t space_len;               /* of text, up to the slash */
	uint16_t len;
	char text[];                     /* "space/name" and a zero */
};

/* --- name.c --- */

/*
 * The handle's name, made where the process has none of it, with the handle in its list. Under
 * attach. -EINVAL, -ENAMETOOLONG, -ENOMEM.
 */
int name_join(struct dlock *l, const char *text);        /* l->kind is set */

/* Takes the handle out; the name is closed at the daemon after its last handle. Under attach. */
void name_leave(struct dlock *l);

/*
 * Opens the handle's name at the daemon, unless what was opened holds still, and binds all its handles anew.
 * The errors of dlock_open(), -ETIMEDOUT, -ECANCELED. Under attach.
 */
int name_attach(struct dlock *l, const struct limit *limit);

/* Rings for what has been set. A bell that the program has closed is asked for again: so without attach, and not in a signal handler. */
void name_ring(struct name *n, const struct binding *b, const struct limit *limit);

bool name_current(const struct name *n); /* what was opened holds still */

/* Under lib. */
void names_each_handle(void (*fn)(struct dlock *l, uint32_t arg), uint32_t arg);
void names_child(void);                  /* nothing is open at the daemon */

/* The page of what the name carries, of this binding. -ESTALE: the binding is lost. -ENOSPC, and as name_attach(). */
int name_value(struct dlock *l, struct binding *b, const struct limit *limit);

/* --- binding.c. Under lib, but for what only reads --- */

/* A value has been set in this hold: the release is more than the fast path's. */
#define STATE_VALUE (UINT64_C(1) << 63)
#define STATE_LEVEL (UINT64_C(1) << 32)          /* one level of recursion */

static inline uint32_t state_holder(uint64_t state)
{
	return (uint32_t)state;
}

static inline uint32_t state_depth(uint64_t state)
{
	return (uint32_t)((state & ~STATE_VALUE) / STATE_LEVEL);
}

/* The account's 8 words; the object's are at word. */
static inline uint64_t *binding_account(const struct binding *b)
{
	return (uint64_t *)seg_slot(b->space->base, b->account);
}

static inline struct binding *binding_now(const struct dlock *l)
{
	return __atomic_load_n(&l->binding, __ATOMIC_ACQUIRE);
}

void binding_init(struct dlock *l, const struct target *t);      /* the first */
int binding_renew(struct dlock *l, const struct target *t);
void binding_close(struct dlock *l);     /* bound to nothing: the next wait opens the name anew */
int binding_retire(struct dlock *l, struct binding *b);   /* a new one beside a lost hold */
void binding_done(struct dlock *l);      /* all of them */
void binding_child(struct dlock *l);     /* the only thread of a new child begins anew */
bool binding_lost(const struct binding *b);
enum hold { HOLD_NONE, HOLD_GOOD, HOLD_LOST };
enum hold binding_hold(const struct binding *b);          /* at one moment during the call */

/* For those who look: this thread waits there. NULL: no cell is free, and it waits unseen. */
struct seg_cell *binding_show(const struct binding *b, unsigned priority);
void binding_hide(struct seg_cell *cell);        /* may be NULL */

struct binding *binding_of(const struct dlock *l, uint32_t holder);      /* NULL: it holds nothing here */

/* --- handle.c --- */

/*
 * *ret: a handle of `size` bytes, a multiple of struct dlock's alignment; its first member is a struct dlock, the others are 0.
 * wake: as in struct dlock. Positive errors, as dlock_open(); errno stays.
 */
int handle_open(void **ret, size_t size, const char *name, const struct dlock_attr *attr, enum kind kind, uint32_t arg,
		void (*wake)(struct dlock *));
int handle_close(struct dlock *l);       /* NULL is allowed. EBUSY: it holds or waits; else it is freed. errno stays */

void handles_child(void);                /* after a fork: nothing is held, nothing is bound */
void handles_lost(void);                 /* the daemon counts this process as new. Under lib */
void handles_thread_end(uint32_t serial);

/* --- slow.c --- */

enum wait_how {
	WAIT_TRY = 1,
	WAIT_SHARED = 2,
	WAIT_UPGRADE = 4,
};

int slow_wait(struct dlock *l, const struct limit *limit, unsigned how);
/* The holder reads, and wants to be alone; it reads no more if this returns 0 or -EOWNERDEAD. Negative errors. */
struct read_hold;
int slow_upgrade(struct dlock *l, struct read_hold *h, bool try);
int slow_post(struct dlock *l);
/* Any wait for the lock's sake: dlock_cancel() ends what uses that limit. Between enter and exit nothing may wait without it for long. */
void waits_enter(struct dlock *l, struct limit *limit);
void waits_exit(struct dlock *l, const struct limit *limit);
void sleeper_add(struct dlock *l, struct sleeper *s);
void sleeper_remove(struct dlock *l, struct sleeper *s);
void waits_look_again(struct dlock *l);  /* wakes whoever sleeps through this handle */

/* Gives back a hold whose state is cleared. 0, ESTALE: it was lost. */
int hold_give(struct binding *b, uint64_t held);

/* After a release: tells the daemon, where that waits for it. */
void hold_yielded(struct binding *b);

/* The caller's hold through this handle. The newest binding is where it is, nearly always. -EPERM: there is none. */
int hold_find(const struct dlock *l, struct binding **ret);
int hold_shared(const struct dlock *l, uint64_t *ret_number, struct binding **ret);     /* as read_check(), of the caller's */
bool hold_good(const struct binding *b); /* not lost, at this moment */
int hold_token(const struct binding *b, uint64_t *ret);    /* -ESTALE: lost */

int hold_mend(struct binding *b);        /* nobody needs to know any more that the last holder died. -ESTALE: lost */

/* --- elect.c --- */

void elect_ended(const struct binding *b);       /* whoever leads by this hold leads no more; before its release */

/* --- value.c --- */

void value_turn(struct binding *b);      /* what was set in this hold is published; before its release */

/* Gives back what was taken and turned out to be past its deadline. */
void hold_undo(struct binding *b);

/* The serial with the handle's owner attribute applied. -ENOMEM. */
int holder_of(const struct dlock *l, uint32_t *ret);

/* --- hint.c --- */

void hint_done(struct dlock *l);         /* also in a child, where it is the parent's */
void hint_drain(struct dlock *l);
/* Bound anew: the same descriptor number. Under attach. */
void hint_renew(struct dlock *l, const struct limit *limit);

#endif
