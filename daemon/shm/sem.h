/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Semaphores on this node: which of its permits lie in whose account, and who is next.
 *
 *   weight   permits that the node has from the cluster = free + the sums of all accounts
 *   free     lie with the daemon: nobody's at the moment, or being gathered for the first in line
 *   sum      of an account: what its process holds and what is cached there for its next wait
 *
 * What must hold:
 *  - A note is written before a grant reaches the account's word, and after what is taken back has left it
 *    (semword.h). So whenever the daemon dies, the sums of the words are at most those of the notes, and
 *    those at most the weight.
 *  - The accounts that wait are served by priority, then in order, all or nothing: what is gathered waits for the first of them.
 *  - Permits stay where they were granted for SEM_STAY, though others wait: so processes that take and post
 *    without end change places a thousand times a second, and not a million. What is only cached is taken
 *    after that, where it lies; of who holds, the next post gives (SEM_YIELD).
 *  - Who was granted something and does not take it, because it is stopped, keeps it for SEM_PATIENCE.
 */
#ifndef DLOCK_SEM_H
#define DLOCK_SEM_H

#include "../fault.h"
#include "object.h"

#ifdef DLOCK_FAULTS
#define SEM_OPS
#define SEM_LOAD(p, order) __atomic_load_n((p), (order))
#define SEM_STORE(p, v, order) FAULT_AROUND(__atomic_store_n((p), (v), (order)))
#define SEM_CAS(p, old, new, order) FAULT_CAS(p, old, new, order, __ATOMIC_RELAXED)
#endif
#include "../../include/proto/semword.h"

#define SEM_KEEP_ALL UINT32_MAX

/* A client's account. */
struct sem_client {
	struct account a;
	struct sem_client *next, **at;   /* of the queue; at NULL: it does not wait */
	struct sem_client *holder_next, **holder_at;     /* of those with a sum */
	uint32_t sum;
	uint64_t came;                   /* while it waits: its place among those of the same priority */
	uint8_t priority;                /* the highest of its waiting threads */
	uint32_t turn;                   /* of the want that was granted last */
	bool granted;                    /* and has not been seen to be taken since */
	bool slow;                       /* did not take what it was granted: stopped, it seems */
	bool barred;
	bool asks;                       /* has a question in its box */
	uint32_t round;                  /* of the sem, when it was last found to be in the way */
	nsec_t since;                    /* of the last grant */
	nsec_t begun;                    /* of the first one; 0: there has been none, or an earlier daemon's */
	bool recalled;
};

/* Towards the cluster, by the number of the name. */
enum sem_core {
	SEM_CORE_NONE,                   /* it knows nothing of it */
	SEM_CORE_IN,                     /* claimed or held */
	SEM_CORE_RELEASING,              /* given back; soon forgotten */
};

/*
 * Who wants more than there is, as far as this node knows: it is told of a resize only while it has a claim. So where it has none, one permit is
 * tried for, and when that is answered it knows: another limit is told before.
 */
enum sem_hears {
	SEM_HEARS_NOTHING,
	SEM_HEARS_SOON,                  /* has tried */
	SEM_HEARD,                       /* for those who wait now */
};

struct sem {
	struct object o;
	uint32_t opened, limit;          /* as it was opened; as it has been resized to */
	uint64_t stamp;                  /* of the limit; 0: it has not been resized */
	uint32_t weight, free;
	uint64_t token;                  /* of the grant that the node's permits ride on */
	struct sem_client *first, **last;        /* who waits */
	uint64_t came;
	struct sem_client *holders;
	uint32_t n_asks;                 /* accounts with a question that waits for its answer */
	uint32_t n_barred, n_slow;
	uint32_t round;                  /* of sem_serve() */

	enum sem_core core;
	enum sem_hears hears;
	uint32_t asked;                  /* of the core: the total that is waited for; 0: nothing */
	bool asked_tries;
	uint16_t asked_delay;
	uint16_t delay;                  /* that the claim named by which it has what it has */
	uint32_t again;                  /* of the free ones, so many are to be claimed anew for the first in line */
	uint8_t asked_priority;
	bool tries_kept;                 /* another node has tried, and wants an answer at once */
	bool leaving;                    /* the node leaves: nothing more is asked for */
	uint32_t keep;                   /* so many may be kept; SEM_KEEP_ALL: as many as there are */
	uint32_t resize;                 /* what is to be asked of the core, or has been; 0: nothing */
	bool resize_said;
	unsigned resize_told;            /* limits that have been told since */
	bool fresh;                      /* something has been granted by the cluster, and nobody here has had it yet */

	struct loop_timer timer;
	struct loop_defer defer;
	nsec_t look_at;                  /* when something may be due; NSEC_NEVER */
	nsec_t look_span, slow_at;
};

static inline struct sem *sem_of(struct object *o)
{
	return (struct sem *)o;
}

static inline struct sem_client *sem_client_of(struct account *a)
{
	return (struct sem_client *)a;
}

/* What its process holds, as it says itself: not more than it has. */
uint32_t sem_held_by(const struct sem_client *c);

static inline struct sem_account *sem_words(const struct sem_client *c)
{
	return (struct sem_account *)object_words(c->a.object, c->a.slot);
}

extern const struct object_kind sem_kind;

/* sem_serve.c: among the clients of this node */
void sem_serve(void *arg);               /* all that can be done at this moment */
void sem_queue(struct sem *m, struct sem_client *c);       /* also one that waits already: its priority may be another */
void sem_unqueue(struct sem *m, struct sem_client *c);
void sem_answer(struct sem_client *c, uint32_t turn, int error);
void sem_sum_set(struct sem *m, struct sem_client *c, uint32_t sum);         /* in memory alone */
void sem_unbar(struct sem *m, struct sem_client *c);
void sem_wake(const struct sem_client *c);

/*
 * Its client has asked for a lock-delay that the claim does not name: so what is here is not for it before it has been given back and
 * claimed anew, nor what it holds, once it is posted.
 */
bool sem_later(const struct sem *m, const struct sem_client *c);
void sem_raised(struct space *s, uint32_t slot);        /* somebody has */
bool sem_claims(const struct space *s, uint32_t slot);  /* something is claimed, or held */

/* Its client is gone, and has asked for a delay. Returns whether it held permits: they stay its own. */
bool sem_died(struct space *s, uint32_t slot, uint32_t client);

/* After the step of the core that is under way: what it is told comes behind all that it has said. */
static inline void sem_soon(struct sem *m)
{
	loop_defer(m->o.space->shm->loop, &m->defer);
}

/* sem_core.c: towards the cluster, and back */

/* Gives back so many of the free ones, and waits for a total of `wanted` (0: nothing), unless that is so already. */
void sem_tell(struct sem *m, uint32_t give, uint32_t wanted, bool tries);
void sem_resize_say(struct sem *m);      /* what is to be asked, and has not been */
void sem_keep(struct sem *m);            /* the answer to one who only tried */
void sem_release(struct sem *m);         /* all of it */
void sem_noted(struct sem *m);           /* what node/lease.c sees in the name's record */
void sem_zero(struct sem *m);            /* nothing is held any more: in the note too */

struct sem_grant {
	uint32_t weight;
	uint64_t first, count;           /* tokens */
};
void sem_ledger_grant(struct space *s, uint32_t slot, const struct sem_grant *g);
void sem_granted(struct space *s, uint32_t slot, uint16_t delay);        /* by a claim that named it */
void sem_changed(struct space *s, uint32_t slot, const struct sem_grant *left);  /* weight 0: the lease is no more */
void sem_forgotten(struct space *s, uint32_t slot);
void sem_refused(struct space *s, uint32_t slot, int error);
void sem_revoke(struct space *s, uint32_t slot, uint32_t weight, bool tries);
void sem_resized(struct space *s, uint32_t slot, uint32_t limit, uint64_t stamp);

/* The core could not take what it was told. */
void sem_failed(struct space *s, uint32_t slot, enum sem_say_what what, int error);

/* For the core after a restart. false: nothing is held. */
struct sem_lease {
	uint32_t weight, opened, limit;
	uint64_t first, count, stamp;    /* tokens; of the limit */
};
bool sem_lease(const struct space *s, uint32_t slot, struct sem_lease *ret);

void sem_boxes(struct sem *m, int error);        /* sem.c: answers all who wait for a resize */

/* For people. */
struct sem_view {
	uint32_t limit, weight, held;    /* held: by the processes of this node */
	uint32_t first;                  /* the client that holds, or one of them; 0: none */
	uint64_t token;
};
/* Nothing, where it is no semaphore. */
void sem_each_holder(struct space *s, uint32_t slot, void (*fn)(struct space *s, uint32_t slot, uint32_t client, void *arg), void *arg);
void sem_look_at(const struct object *o, struct sem_view *ret);
/*
 * --- The notes ---
 *
 * An account's: its sum. The object's: weight, and which of two ranges of tokens goes with it, so that all of it
 * changes by one store; then the limit's stamp. The limits are in the name's own record, which for an object has room for them.
 */
#define SEM_NOTE_WHICH (UINT64_C(1) << 32)

#endif
