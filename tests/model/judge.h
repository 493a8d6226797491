/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The judge knows who really holds the word, since it sees each swap. It keeps its books in the
 * world (holder, inside, lost, last_token, line) and believes nothing that the word says.
 *
 * exclusion   at most one is inside whose hold was not taken away, and it is who swapped last
 * identity    only the holder, or the daemon, frees; a lost hold's release says so and changes nothing
 * tokens      rise with each entry, and stay inside what the daemon has written down
 * D           is set when the daemon frees or a thread ends, and only goes by mending
 * order       sleepers enter in order of their first sleep, until a wake reached nobody or all
 */
#ifndef MODEL_JUDGE_H
#define MODEL_JUDGE_H

#include "world.h"

void judge_cas(struct world *w, unsigned role, unsigned fn, uint64_t old, uint64_t new);
void judge_enter(struct world *w, unsigned role, const struct ask *a);
void judge_posted(struct world *w, unsigned role, const struct ask *a);
void judge_mended(const struct world *w, unsigned role, bool said);

/* All sleepers were woken at once, or a wake was taken back: nobody is first any more. */
void judge_disorder(struct world *w);

/* What was wrong since the last call, or NULL. */
const char *judge_verdict(void);

#endif
