/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The grant rule of one name: in order of priorities and then of stamps while the weights fit, nobody overtakes the
 * head; an upgrade goes before the queue. Who only tries is refused if others wait, and as soon as a holder has answered
 * that it uses what it has. Whoever stands in the way of the next one is asked, once, for what is
 * missing. A name's records are a master_name and its claims; `held` of the name is their sum.
 */
#ifndef DLOCK_CORE_GRANT_H
#define DLOCK_CORE_GRANT_H

#include "master.h"

/* At most so many messages come from one grant_serve(). */
#define GRANT_REVOKES 4

/* master_record.c; a record's turn comes when it is listed: now, or then. */
/* NULL: there is none. */
static inline struct master_name *record_of(const struct master *m, name_t n)
{
	uint32_t handle = names_at(m->names, n)->record;

	return handle ? pool_at(&m->records, handle) : NULL;
}

struct master_name *record_make(struct master *m, name_t n, uint32_t limit);
void record_drop_if_idle(struct master *m, name_t n);
void record_list(struct master *m, name_t n);
void record_list_later(struct master *m, name_t n, core_nsec_t when);

uint32_t claim_find(const struct master *m, const struct master_name *r, unsigned peer);
uint32_t claim_make(struct master *m, name_t n, struct master_name *r, unsigned peer);
void claim_drop(struct master *m, name_t n, uint32_t handle);
static inline struct master_claim *claim_at(const struct master *m, uint32_t handle)
{
	return handle ? pool_at(&m->claims, handle) : NULL;
}

/* NULL: it waits for nothing. */
static inline struct master_wait *wait_at(const struct master *m, const struct master_claim *c)
{
	return c->wait ? pool_at(&m->waits, c->wait) : NULL;
}

/* NULL: nobody waits. */
static inline struct master_queue *queue_at(const struct master *m, const struct master_name *r)
{
	return r->queue ? pool_at(&m->queues, r->queue) : NULL;
}

/* When its lock-delay ends; 0: there is none. */
static inline core_nsec_t not_before_of(const struct master *m, const struct master_name *r)
{
	return r->queue ? queue_at(m, r)->not_before : 0;
}

/* 0: at once. */
static inline core_nsec_t look_at_of(const struct master *m, const struct master_name *r)
{
	return r->queue ? queue_at(m, r)->look_at : 0;
}

static inline core_nsec_t delay_span(uint16_t ms)
{
	return ms * (core_nsec_t)1000000;
}

/* Whoever held it alone is lost, or what it left is. From then on its delay runs. There is room for a queue. */
void lost_alone(struct master *m, struct master_name *r, core_nsec_t from);

static inline struct master_extra *extra_at(const struct master *m, const struct master_name *r)
{
	return r->extra ? pool_at(&m->extras, r->extra) : NULL;
}

/* What was left behind; a handle, 0: nothing is known. */
static inline uint32_t value_of(const struct master *m, const struct master_name *r)
{
	return r->extra ? extra_at(m, r)->value : 0;
}

static inline struct core_value value_state(const struct master *m, const struct master_name *r)
{
	return r->blank ? (struct core_value){ .state = CORE_VALUE_LOST } : value_describe(m->values, value_of(m, r));
}

/* There is room for one: reserved before each message. */
struct master_extra *extra_make(struct master *m, struct master_name *r);
void extra_drop_if_empty(struct master *m, struct master_name *r);

/* Nothing of the name is remembered. */
void extra_forget(struct master *m, struct master_name *r);

/* master_limit.c */
void limit_hear(struct master *m, name_t n, struct master_name *r, const struct msg *msg);
void limit_begin(struct master *m, struct master_name *r, uint32_t limit, bool open);
bool limit_agrees(const struct master *m, const struct master_name *r, const struct msg *msg);
void limit_resize(struct master *m, name_t n, struct master_name *r, const struct msg *msg);
void limit_tell(struct master *m, name_t n, struct master_claim *c, struct step *s);
void limit_answer(struct master *m, name_t n, struct master_claim *c, const struct msg *msg, struct step *s);

/* A piece of telling all who have the name open. false: all know. */
bool limit_work(struct master *m, name_t n, struct step *s);

/* Nobody waits: what is held beyond the limit is asked for. */
void limit_enforce(struct master *m, name_t n, struct step *s);

/* master_news.c */
void observe_take(struct master *m, name_t n, unsigned peer, const struct msg *msg);
void news_hear(struct master *m, name_t n, const struct master_name *r, const struct msg *msg);
void news_ask_again(const struct master *m, const struct master_name *r);
void watchers_forget(struct master *m, struct master_name *r);
void watchers_synced(struct master *m, struct peer *p, unsigned shard);

/* Drops the first of what an ended session observes. */
void watcher_ended(struct master *m, struct peer *p);

static inline bool is_watched(const struct master *m, const struct master_name *r)
{
	return r->extra && extra_at(m, r)->watchers;
}

/* A piece of telling observers. */
void news_work(struct master *m, name_t n, struct step *s);

void value_take(struct master *m, struct master_name *r, uint32_t value);
void value_blank(struct master *m, struct master_name *r);

/*
 * master_pass.c
 * pass_secret: what a PASS to that claim must know. heir_make: whether the one that waits is named as the heir of the holder now. heir_overtaken: somebody
 * has come who goes before it, and the holder has not been asked yet; heir_hear: before the statement of a
 * claim is looked at; whether it proves that the heir has it. pass_heard: the holder says that it has passed the name on; pass_remember: so it does while the shard
 * opens, and pass_settle, before the first grant, looks what became of that one.
 */
uint64_t pass_secret(const struct master *m, name_t n, const struct master_claim *c);
bool heir_make(struct master *m, name_t n, const struct master_claim *from, uint32_t handle, core_nsec_t now);
void heir_say(const struct master *m, const struct master_name *r, const struct master_claim *from, struct msg *revoke);
void heir_gone(struct master *m, unsigned shard, struct master_queue *q);
void heir_end(struct master *m, unsigned shard, struct master_queue *q);
bool heir_overtaken(struct master_queue *q);
bool heir_hear(struct master *m, name_t n, struct master_name *r, uint32_t handle, const struct msg *msg);
/* The holder says that it will not be passed on to the heir. Whether there was one. */
bool heir_spared(struct master *m, const struct master_name *r, const struct master_claim *c, const struct msg *msg);
void pass_heard(struct master *m, name_t n, struct master_name *r, const struct msg *msg, struct step *s);
void pass_remember(struct master *m, struct master_name *r, const struct msg *msg);
void pass_settle(struct master *m, unsigned shard, struct master_name *r);

/* master_account.c */
void account_say(struct master *m, const struct msg *msg, struct step *s);

/*
 * mourn.c
 * mourn: so much was lost, and counts as held for the name's delay. mourn_frozen: what the claims of a name hold is in doubt from now on;
 * they go. mourn_settle: the shard has opened. mourn_purge: nothing is known any more. mourn_tick: returns when the next one ends, 0: never.
 */
void mourn(struct master *m, name_t n, uint32_t weight, core_nsec_t from);
void mourn_frozen(struct master *m, name_t n);
void mourn_settle(struct master *m, unsigned shard);
void mourn_purge(struct master *m, unsigned shard);
core_nsec_t mourn_tick(struct master *m, core_nsec_t now);

/* Of a MARK with SHARED; and the next one for the next master. false: there is none. */
void mourn_mark(struct master *m, name_t n, const struct msg *msg);
bool mourn_say(struct master *m, struct msg *mark, name_t *ret);

/* There may be lost ones that nobody knows of, and they count for so long. */
bool mourn_unknown(const struct master *m, unsigned shard, core_nsec_t *ret_left);

struct master_queue *queue_make(struct master *m, struct master_name *r);
void queue_drop_if_idle(struct master *m, struct master_name *r);

/* The next in line; 0: nobody waits. */
static inline uint32_t queue_head(const struct master *m, const struct master_name *r)
{
	const struct master_queue *q = queue_at(m, r);

	return !q ? 0 : q->heir ? q->heir : q->upgrade ? q->upgrade : q->first;
}

/* In steps of 256 ns, which is enough for 18 years, rounded down: what time allows is never taken for less than it was. */
static inline core_nsec_t claim_granted_at(const struct master_claim *c)
{
	return (core_nsec_t)c->granted << 8;
}

static inline void claim_granted(struct master_claim *c, core_nsec_t now)
{
	c->granted = now >> 8;
}

void claim_hold(struct master *m, struct master_name *r, struct master_claim *c, uint32_t held);
void claim_wait(struct master *m, struct master_name *r, uint32_t handle, const struct master_wait *what);
void claim_wait_not(struct master *m, struct master_name *r, uint32_t handle);
void claim_answer(struct master *m, name_t n, const struct master_claim *c, struct step *s, struct msg *msg);
void revoke_say(struct master *m, name_t n, const struct master_claim *c, struct step *s);
void claim_grant_say(struct master *m, name_t n, const struct master_claim *c, uint64_t stamp, struct step *s);

/* What it waits for is its own from now on. */
void claim_grant(struct master *m, name_t n, uint32_t handle, struct step *s);

void claim_refuse(struct master *m, name_t n, uint32_t handle, int error, struct step *s);

/* Grants to the next in line, or asks those in its way; what is left over is listed again. */
void grant_serve(struct master *m, name_t n, struct step *s);

/* master.c, master_take.c */
void open_when_synced(struct master *m);

/* A grant that its member will never take: nobody has used it, but nobody can tell; and nobody has heard what it said. */
void grant_void(struct master *m, unsigned shard, struct master_name *r, struct master_claim *c);

#endif
