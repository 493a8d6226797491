/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the files of the member share. */
#ifndef DLOCK_CORE_MEMBER_INT_H
#define DLOCK_CORE_MEMBER_INT_H

#include "member.h"

/* NULL: there is none, nor ever was one near it. */
struct lease *lease_at(const struct member *m, core_ref_t ref);

/* It has nothing and wants nothing, but perhaps to hear the news. */
void lease_end(struct member *m, core_ref_t ref);

/* The only place where a lease changes its state. */
void lease_become(struct member *m, struct lease *l, enum lease_state state);
enum lease_state lease_state(const struct lease *l);

/* Says all of it to its master. If the shard has none yet, or there is no way to it, the sync will tell. */
void tell(const struct member *m, enum msg_kind kind, const struct lease *l, struct step *s);

bool master_linked(const struct member *m, unsigned shard);
bool master_reached(const struct member *m, unsigned shard);

/* All that it has of these shards is to be told to their masters. */
void sync_begin(struct member *m, shard_set_t shards);

int lease_make(struct member *m, core_ref_t ref, const void *key, uint16_t key_len, struct lease **ret);
void lease_drop(struct member *m, core_ref_t ref);

/* What is left behind. lease_leave: whether there is something that no statement has said yet. */
void lease_value_set(struct member *m, struct lease *l, uint32_t value);
bool lease_leave(struct member *m, struct lease *l, uint32_t value, bool died);
struct core_value lease_value(const struct member *m, const struct lease *l);
void lease_forget_if_known(struct member *m, struct lease *l);

/* The master has answered to this number. */
void lease_known(struct member *m, struct lease *l);

static inline struct lease_more *more_at(const struct member *m, const struct lease *l)
{
	return l->more ? pool_at(&m->mores, l->more) : NULL;
}

/* NULL: no memory */
struct lease_more *more_make(struct member *m, struct lease *l);
void more_drop_if_empty(struct member *m, struct lease *l);

/* member_limit.c */

/* A wish may be as high as this; whether it can be had at present is another matter. */
uint32_t limit_most(const struct member *m, const struct lease *l);
void limit_say(const struct member *m, const struct lease *l, struct msg *msg);
void limit_known(struct member *m, struct lease *l, uint32_t present, uint64_t stamp);
void limit_receive(struct member *m, core_ref_t ref, struct lease *l, const struct msg *msg, struct step *s);

/* member_account.c */
void account_receive(struct member *m, const struct msg *msg, struct step *s);

void keep_say(const struct member *m, const struct lease *l, struct msg *msg, struct step *s);

/*
 * member_pass.c
 * heir_note: a REVOKE has been taken. pass_on: all of it is given back, which the ledger knows; `l` is still as it was granted, but for
 * what it leaves. Whether it went to the heir: then the caller gives the claim a new number.
 */
void heir_note(struct member *m, struct lease *l, const struct msg *msg, struct step *s);
void heir_forget(struct member *m, struct lease *l);
void secret_note(struct member *m, struct lease *l, const struct msg *stamp);
bool pass_on(struct member *m, struct lease *l, struct step *s);
void pass_say(const struct member *m, const struct lease *l, struct msg *msg);
void pass_known(struct lease_more *r);
void pass_receive(struct member *m, core_ref_t ref, struct lease *l, const struct msg *msg, struct step *s);

/* A lease that waits has all that it waits for, by the master's GRANT or by a PASS. */
void lease_granted(struct member *m, core_ref_t ref, struct lease *l, const struct msg *msg, struct step *s);

/* member_news.c */
bool observes(const struct member *m, const struct lease *l);
int watch_begin(struct member *m, core_ref_t ref, struct step *s);
void watch_end(struct member *m, struct lease *l, struct step *s);
void watch_say(const struct member *m, const struct lease *l, bool on, struct step *s);

/* Notes it; the caller tells. -ENOMEM, -EINVAL */
int proclaim(struct member *m, struct lease *l, const struct core_event *ev);
void news_say(const struct member *m, const struct lease *l, struct msg *msg);
void news_receive(struct member *m, core_ref_t ref, struct lease *l, const struct msg *msg, struct step *s);
void observed_receive(core_ref_t ref, const struct lease *l, const struct msg *msg, struct step *s);

#endif
