/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Breaking a rule of the word on purpose, without another copy of lockword.h: what its functions
 * ask of the world is bent on the way. All zero bends nothing.
 */
#ifndef MODEL_BEND_H
#define MODEL_BEND_H

#include <stdbool.h>
#include <stdint.h>

enum bend_when {
	BEND_ANY, BEND_TAKES, BEND_FREES, BEND_STAYS,
	BEND_TAKES_BACK,                 /* a wake that reached nobody: lock_nobody() */
};

struct bend {
	uint8_t fn;                      /* enum function; FN_NONE: each of them */
	uint8_t when;                    /* enum bend_when: which of its swaps */
	uint64_t clear;                  /* bits that the new word is robbed of */
	uint64_t keep;                   /* bits of the old word that stay in the new one */
	uint64_t add;                    /* to the new word */
	bool no_wake_one, no_wake_all;   /* its wakes are swallowed, and say that one was woken */
	bool wake_any;                   /* each wake goes to all classes */
	bool heir_in_line;               /* an heir sleeps in the class of the others */
};

uint64_t bend_cas(const struct bend *b, unsigned fn, uint64_t old, uint64_t new);
bool bend_swallows(const struct bend *b, unsigned fn, uint64_t n);

/* Bits in which the word differs from what a sleeper thinks it has announced. */
uint32_t bend_ignored(const struct bend *b);

#endif
