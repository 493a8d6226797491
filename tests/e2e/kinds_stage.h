/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A row of kinds.h on the stage: what its actors do, and what the audience has to see. */
#ifndef E2E_KINDS_STAGE_H
#define E2E_KINDS_STAGE_H

#include "actor.h"
#include "harness.h"
#include "kinds.h"

#define LIMIT_MS 100

/* Actors inherit it as it is when they enter. */
extern struct scene {
	const struct kind *kind;         /* the row that is played */
	char name[64];                   /* of the thing */
	void *thing;                     /* in an actor: its handle */
} scene;

void scene_new(void);                    /* of that kind, with a name that nobody has used */
void enters(struct actor *a);            /* and opens the thing */

/* In the actors. wants: in the role of who wants it, 0: of who holds it. */
int act_take(struct stage *s, uint64_t wants);
int act_try_it(struct stage *s, uint64_t wants);
int act_give(struct stage *s, uint64_t wants);
int act_still(struct stage *s, uint64_t wants);
int act_take_and_give(struct stage *s, uint64_t wants);

uint64_t takes(struct actor *holder);    /* the token */
void waits(struct actor *a, actor_fn fn);        /* in the second role; it sleeps when this returns */

/* With a token above that. Whether it was within LIMIT_MS after since_ns, or after a lock-delay since then, is noted in served_pace, and in served_late. */
bool served(struct actor *a, uint64_t since_ns, uint64_t above, const char *who);
bool inherits(struct actor *a, uint64_t since_ns, uint64_t above, const char *who);      /* a process has ended that held it: not before the lock-delay is over */
extern struct pace served_pace;          /* since somebody set it to zeroes */
extern bool served_late;                 /* the last one */

#endif
