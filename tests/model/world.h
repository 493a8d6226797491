/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The world of the model: the word, the kernel's queue of sleepers, the bits that call the daemon,
 * who is alive, and the judge who knows who really holds the word. All steps are sequentially
 * consistent, and one step of one player leads from a world to the next.
 *
 * The kernel is as futex(7) says: a sleeper's comparison and its going to sleep are one step; a wake
 * takes the first sleepers whose class it meets, in order; a sleep may end by its deadline at any
 * moment, and a few times in a run for no reason.
 */
#ifndef MODEL_WORLD_H
#define MODEL_WORLD_H

#include "bend.h"
#include "players.h"
#include "play.h"

#include <stdbool.h>
#include <stdint.h>

#define ROLES (CLIENTS_MAX + 1)

enum fault { FAULT_NONE = 0, FAULT_KILL = 1, FAULT_STOP = 2, FAULT_DAEMON = 4 };

#define RANGES_MAX 4u
#define RESCUES_MAX 1u                 /* looks that one fault may make necessary */

struct scenario {
	const char *title;
	struct players players;
	uint8_t ranges[RANGES_MAX];      /* tokens of the first grant, the second, …; the last goes on */
	bool closed;                     /* the word begins closed: the first range must be asked for */
	bool watched;                    /* the daemon has it on its list, as if sleepers had just gone */
	bool in_order;                   /* sleepers must be served in order of their first sleep */
	uint8_t faults;                  /* one of these kinds may happen, once */
	uint8_t victims;                 /* clients 1 to this; others with the same script need no fault of their own */
	uint8_t looks, closes, steals, spurious; /* how many may happen when nothing requires them */
	struct bend bend;
};

struct world {
	uint64_t word;
	uint32_t who[ROLES];             /* number of the player; 0: dead, or none */
	uint8_t queue[CLIENTS_MAX], sleepers;
	uint8_t line[CLIENTS_MAX], in_line; /* in order of the first sleep of the wait */
	uint8_t crowd;                   /* order is judged no more, see lose_order() */
	uint8_t flags;                   /* bit of enum flag */
	uint8_t dead, stopped;           /* bit of a role */
	uint8_t death;                   /* bit of a client whose death the daemon has yet to hear of */
	uint8_t inside;                  /* bit of a role in its critical section */
	uint8_t lost;                    /* … whose hold was taken away */
	uint8_t holder;                  /* role + 1 that took the word */
	uint8_t last_token;              /* given to a taker */
	uint8_t bias;                    /* in the slot: the last token of the newest range */
	uint8_t grants, faults, looks, closes, steals, spurious; /* used up */
	uint8_t rescues;                 /* looks that were needed, since all else was at rest */
};

/* A world as it is kept, one to one. */
struct kept {
	uint32_t word : 24, count : 8;
	uint32_t who0 : 24, queue : 8;
	uint32_t who1 : 24, line : 8;
	uint32_t who2 : 24, flags : 6, closes : 2;
	uint32_t who3 : 24, last_token : 6, looks : 2;
	uint32_t crowd : 1, dead : 3, stopped : 3, death : 3, inside : 3, lost : 3, holder : 2, bias : 6, grants : 3,
		 faults : 1, steals : 1, spurious : 1, rescues : 2;
};

struct step {
	struct world to;
	uint8_t actor;                   /* role; the daemon's for events that reach it */
	bool forced;                     /* a player's own step: it will come; not a deadline or fault */
	bool guess;                      /* the others' steps were left out, since no order matters */
	const char *event;               /* for the telling: what happened if it was not an answer */
};
#define STEPS_MAX 24u

extern const struct scenario *scenario;

/* A range ends where the count does, and a closed word's count is 0: counts are negative but for that. */
static inline int64_t world_count(uint64_t word)
{
	return (int64_t)word >> 24;
}

static inline void world_take_out(uint8_t *list, uint8_t *n, unsigned role)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < *n; i++)
		if (list[i] != role)
			list[kept++] = list[i];
	for (unsigned i = kept; i < *n; i++)
		list[i] = 0;
	*n = (uint8_t)kept;
}

void world_begin(struct world *ret_world);

void world_keep(const struct world *w, struct kept *ret_kept);
void world_recall(const struct kept *k, struct world *ret_world);

/*
 * All steps from here. *ret_wrong is set to what is wrong with this world, or with a step from it
 * (then *ret_step is that step), NULL if nothing is. *ret_good: no living player is kept waiting.
 */
unsigned world_steps(const struct world *w, struct step *ret_steps, const char **ret_wrong, unsigned *ret_step,
		     bool *ret_good);

/* Prints what the step does, and the word after it. */
void world_tell(const struct world *from, const struct step *step);

#endif
