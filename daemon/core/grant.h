/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The grant rule of one name: in order of stamps while the weights fit, nobody overtakes the head; an
 * upgrade goes before the queue. Whoever stands in the way of the next one is asked, once, for what is
 * missing. A name's records are a master_name and its claims; `held` of the name is their sum.
 */
#ifndef DLOCK_CORE_GRANT_H
#define DLOCK_CORE_GRANT_H

#include "master.h"

/* At most so many messages come from one grant_serve(). */
#define GRANT_REVOKES 4

struct master_name *record_of(const struct master *m, name_t n);
struct master_name *record_make(struct master *m, name_t n, uint32_t limit);
void record_drop_if_idle(struct master *m, name_t n);
void record_list(struct master *m, name_t n);

uint32_t claim_find(const struct master *m, const struct master_name *r, unsigned peer);
uint32_t claim_make(struct master *m, name_t n, struct master_name *r, unsigned peer);
void claim_drop(struct master *m, name_t n, uint32_t handle);
static inline struct master_claim *claim_at(const struct master *m, uint32_t handle)
{
	return handle ? pool_at(&m->claims, handle) : NULL;
}

void claim_hold(struct master *m, struct master_name *r, struct master_claim *c, uint32_t held);
void claim_wait(struct master *m, struct master_name *r, uint32_t handle, uint64_t stamp);
void claim_wait_not(struct master *m, struct master_name *r, uint32_t handle);
void claim_answer(struct master *m, name_t n, const struct master_claim *c, struct step *s, struct msg *msg);
void claim_grant_say(struct master *m, name_t n, const struct master_claim *c, uint64_t stamp, struct step *s);

/* Grants to the next in line, or asks those in its way; what is left over is listed again. */
void grant_serve(struct master *m, name_t n, struct step *s);

#endif
