/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the files of the member share. */
#ifndef DLOCK_CORE_MEMBER_INT_H
#define DLOCK_CORE_MEMBER_INT_H

#include "member.h"

/* NULL: there is none, nor ever was one near it. */
struct lease *lease_at(const struct member *m, core_ref_t ref);
enum lease_state lease_state(const struct lease *l);

/* Says all of it to its master. If the shard has none yet, or there is no way to it, the sync will tell. */
void tell(const struct member *m, enum msg_kind kind, const struct lease *l, struct step *s);

/* member_limit.c */
static inline struct lease_limit *limit_at(const struct member *m, const struct lease *l)
{
	return l->resized ? pool_at(&m->limits, l->resized) : NULL;
}

/* A wish may be as high as this; whether it can be had at present is another matter. */
uint32_t limit_most(const struct member *m, const struct lease *l);
void limit_say(const struct member *m, const struct lease *l, struct msg *msg);
void limit_adopt(struct member *m, struct lease *l, const struct core_event *ev);
void limit_forget(struct member *m, struct lease *l);

/* A master has answered: it knows of the wish. */
void limit_known(struct member *m, struct lease *l);
void limit_receive(struct member *m, core_ref_t ref, struct lease *l, const struct msg *msg, struct step *s);

#endif
