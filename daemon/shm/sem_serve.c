/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Semaphores among the clients of this node: who gets what from whom. */
#include "sem.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stddef.h>

#include "sigbus.h"
#include "word.h"
#include "../../include/proto/futex.h"

#define SEM_STAY     (NSEC_PER_MSEC)     /* what was granted stays so long, though others wait */
#define SEM_PATIENCE (20 * NSEC_PER_MSEC)        /* what was granted and is not taken */
#define SLOW_PATIENCE (2 * NSEC_PER_MSEC)        /* once more, of one who did not take it before */
#define SLOW_AGAIN   (100 * NSEC_PER_MSEC)
#define LOOK_SOON    (300 * NSEC_PER_USEC)      /* after a client was barred: it may just have posted without having seen it */
#define LOOK_MIN     (10 * NSEC_PER_MSEC)
#define LOOK_MAX     (50 * NSEC_PER_MSEC)

static nsec_t now_of(const struct sem *m)
{
	return loop_now(m->o.space->shm->loop);
}

static void look_by(struct sem *m, nsec_t when)
{
	if (when < m->look_at)
		m->look_at = when;
}

/* --- Lists --- */

void sem_sum_set(struct sem *m, struct sem_client *c, uint32_t sum)
{
	c->sum = sum;
	if (sum && !c->holder_at) {
		c->holder_next = m->holders;
		c->holder_at = &m->holders;
		if (c->holder_next)
			c->holder_next->holder_at = &c->holder_next;
		m->holders = c;
	} else if (!sum && c->holder_at) {
		*c->holder_at = c->holder_next;
		if (c->holder_next)
			c->holder_next->holder_at = c->holder_at;
		c->holder_at = NULL;
	}
}

static bool before(const struct sem_client *a, const struct sem_client *b)
{
	return a->priority != b->priority ? a->priority > b->priority : a->came < b->came;
}

static void link_in(struct sem *m, struct sem_client *c)
{
	struct sem_client **at = m->last;

	if (m->first && before(c, (struct sem_client *)((char *)m->last - offsetof(struct sem_client, next))))
		for (at = &m->first; !before(c, *at); at = &(*at)->next)
			;
	c->at = at;
	c->next = *at;
	*at = c;
	if (c->next)
		c->next->at = &c->next;
	else
		m->last = &c->next;
}

static void link_out(struct sem *m, struct sem_client *c)
{
	*c->at = c->next;
	if (c->next)
		c->next->at = c->at;
	else
		m->last = c->at;
	c->at = NULL;
}

void sem_queue(struct sem *m, struct sem_client *c)
{
	uint8_t priority = (uint8_t)name_priority_of(m->o.space, m->o.slot, c->a.client);

	if (c->at && priority == c->priority)
		return;
	c->priority = priority;
	if (c->at) {
		link_out(m, c);
		link_in(m, c);
		return;
	}
	c->came = ++m->came;
	link_in(m, c);
	FAULT_AROUND(__atomic_fetch_or(&sem_words(c)->state, SEM_QUEUED, __ATOMIC_SEQ_CST));
}

void sem_unqueue(struct sem *m, struct sem_client *c)
{
	if (!c->at)
		return;
	link_out(m, c);
	if (!m->o.space->broken)
		FAULT_AROUND(__atomic_fetch_and(&sem_words(c)->state, ~SEM_QUEUED, __ATOMIC_SEQ_CST));
}

void sem_wake(const struct sem_client *c)
{
	uint32_t *bell = &sem_words(c)->bell;

	FAULT_AROUND(__atomic_fetch_add(bell, 1, __ATOMIC_SEQ_CST));
	futex_wake_class(bell, INT_MAX, LOCK_CLASS_ANY);
}

void sem_answer(struct sem_client *c, uint32_t turn, int error)
{
	word_store(&sem_words(c)->answer, (uint64_t)turn << 32 | (uint32_t)error);
	sem_unqueue(sem_of(c->a.object), c);
	sem_wake(c);
}

static void sem_bar(struct sem *m, struct sem_client *c)
{
	c->round = m->round;
	if (c->barred)
		return;
	c->barred = true;
	m->n_barred++;
	look_by(m, now_of(m) + LOOK_SOON);
	FAULT_AROUND(__atomic_fetch_or(&sem_words(c)->state, SEM_YIELD, __ATOMIC_SEQ_CST));
	sem_set(&sem_words(c)->word, SEM_A | SEM_B);
}

void sem_unbar(struct sem *m, struct sem_client *c)
{
	if (!c->barred)
		return;
	c->barred = false;
	m->n_barred--;
	FAULT_AROUND(__atomic_fetch_and(&sem_words(c)->state, ~SEM_YIELD, __ATOMIC_SEQ_CST));
	sem_clear(&sem_words(c)->word, SEM_B);
}

enum served { SERVED, WAITS_HERE, WAITS_ELSEWHERE, WANTS_TOO_MUCH };

/* --- Taking back --- */

/* Whoever has been granted something and has not taken it yet; the daemon sees that by what it wants. */
static bool is_unused(struct sem *m, struct sem_client *c)
{
	uint64_t want = __atomic_load_n(&sem_words(c)->want, __ATOMIC_ACQUIRE);

	if (c->granted && (!(want & SEM_WANTS) || (uint32_t)(want >> 32) != c->turn)) {
		c->granted = false;
		m->n_slow -= c->slow;
		c->slow = false;
	}
	return c->granted;
}

enum how_soon {
	AFTER_STAY,                      /* others wait */
	AT_ONCE,                         /* there are fewer now */
	ONLY_IDLE,                       /* at once, what nobody holds: one who tries is not waited for */
};

/* May be asked to give now? Else look_at is set to when. */
static bool may_take(struct sem *m, struct sem_client *c, enum how_soon soon)
{
	nsec_t patience = c->slow ? SLOW_PATIENCE : SEM_PATIENCE, now = now_of(m);

	if (is_unused(m, c)) {
		if (now < c->since + patience) {
			look_by(m, c->since + patience);
			return false;
		}
		c->granted = false;
		if (!c->slow)
			m->n_slow++;
		c->slow = true;                  /* it rings when it runs again; and is looked at now and then */
		return true;
	}
	if (soon == AFTER_STAY && now < c->since + SEM_STAY) {
		look_by(m, c->since + SEM_STAY);
		return false;
	}
	return true;
}

/* What a client has scribbled over counts as held. */
static void account_mend(struct sem *m, struct sem_client *c)
{
	if (sem_sum(SEM_LOAD(&sem_words(c)->word, __ATOMIC_RELAXED)) == c->sum)
		return;
	shm_tell(m->o.space->shm, "scribbled", m->o.space, m->o.slot, 0, 0, "an account is not what the ledger allows: all held");
	sem_reset(sem_words(c), c->sum);
}

static uint32_t take_from(struct sem *m, struct sem_client *c, uint32_t most)
{
	uint32_t k;

	account_mend(m, c);
	k = sem_reclaim(sem_words(c), most, c->sum);
	if (!k)
		return 0;
	sem_sum_set(m, c, c->sum - k);
	word_store(&account_note(&c->a)->v[0], c->sum);
	m->free += k;
	if (!c->sum)
		sem_unbar(m, c);
	return k;
}

/*
 * Gathers what is missing from all but one; whoever holds is barred. Returns whether some lies where it is to stay for
 * a while: then nobody else is to be asked yet.
 */
static bool gather(struct sem *m, uint32_t missing, const struct sem_client *except, enum how_soon soon)
{
	bool stays = false;

	for (struct sem_client *c = m->holders, *next; c && missing; c = next) {
		next = c->holder_next;
		if (c == except)
			continue;
		if (!may_take(m, c, soon)) {
			stays = true;
			continue;
		}
		missing -= take_from(m, c, missing);
		if (missing && c->sum && soon != ONLY_IDLE)
			sem_bar(m, c);
	}
	return stays && missing;
}

/* Who was in the way, and is not any more. */
static void unbar_rest(struct sem *m)
{
	for (struct sem_client *c = m->holders; c && m->n_barred; c = c->holder_next)
		if (c->barred && c->round != m->round && !sem_later(m, c)) {
			sem_unbar(m, c);
			sem_wake(c);
		}
}

/* --- Lock-delay (delay.c) --- */

bool sem_later(const struct sem *m, const struct sem_client *c)
{
	const struct space *s = m->o.space;

	return s->shm->config.many && name_at(s, m->o.slot)->delay > m->delay && delay_of(s, m->o.slot, c->a.client) > m->delay;
}

bool sem_claims(const struct space *s, uint32_t slot)
{
	const struct object *o = object_at(s, slot);

	return o && sem_of((struct object *)o)->core == SEM_CORE_IN;
}

void sem_raised(struct space *s, uint32_t slot)
{
	struct object *o = object_at(s, slot);
	struct sem *m = sem_of(o);

	if (!o || s->broken)
		return;
	for (struct sem_client *c = m->holders, *next; c; c = next) {
		next = c->holder_next;
		if (!sem_later(m, c))
			continue;
		take_from(m, c, SEM_PERMITS_MAX);
		if (c->sum)
			sem_bar(m, c);
	}
	sem_soon(m);
}

bool sem_died(struct space *s, uint32_t slot, uint32_t client)
{
	struct account *a = name_kind(s, slot) == KIND_SEM ? account_of(s, slot, client) : NULL;
	struct sem *m = a ? sem_of(a->object) : NULL;

	if (!m || s->broken)
		return false;
	word_store(&sem_words(sem_client_of(a))->want, 0);       /* should the daemon be started anew meanwhile */
	sem_unqueue(m, sem_client_of(a));
	take_from(m, sem_client_of(a), SEM_PERMITS_MAX);
	sem_soon(m);
	return sem_client_of(a)->sum;
}

/* What it is to have is given back first, and asked for again. */
static enum served serve_later(struct sem *m, struct sem_client *c, uint32_t n, bool tries, uint32_t *ret_missing)
{
	bool stays = false;

	take_from(m, c, SEM_PERMITS_MAX);
	if (n > m->free)
		stays = gather(m, n - m->free, c, tries ? ONLY_IDLE : AFTER_STAY);
	m->again = n < m->free ? n : m->free;
	*ret_missing = n - m->again;
	if (m->again || (m->weight < m->limit && !stays))
		return m->leaving ? WAITS_HERE : WAITS_ELSEWHERE;
	if (tries)
		sem_answer(c, (uint32_t)(__atomic_load_n(&sem_words(c)->want, __ATOMIC_ACQUIRE) >> 32), EAGAIN);
	return tries ? SERVED : WAITS_HERE;
}

/* --- Granting --- */

static void grant(struct sem *m, struct sem_client *c, uint32_t k, uint32_t turn)
{
	uint32_t before = c->sum;

	sem_unbar(m, c);
	m->free -= k;
	sem_sum_set(m, c, before + k);
	word_store(&account_note(&c->a)->v[0], c->sum);
	word_store(&sem_words(c)->token, m->token);
	if (k && !sem_grant(sem_words(c), k, before))
		sem_reset(sem_words(c), c->sum);
	c->granted = true;
	c->turn = turn;
	c->since = now_of(m);
	if (!c->begun && !c->recalled)
		c->begun = c->since;
	sem_unqueue(m, c);
	sem_wake(c);
}

static uint32_t sem_idle_of(const struct sem_account *a)
{
	return sem_idle(SEM_LOAD(&a->word, __ATOMIC_RELAXED), SEM_LOAD(&a->given, __ATOMIC_ACQUIRE), SEM_LOAD(&a->lost, __ATOMIC_RELAXED));
}

static bool limit_may_be_old(const struct sem *m)
{
	if (!m->o.space->shm->config.many || m->leaving || m->hears == SEM_HEARD)
		return false;
	return m->hears == SEM_HEARS_SOON || m->core != SEM_CORE_IN;
}

/* The first in line. *ret_missing: beyond what the node has gathered. */
static enum served serve_first(struct sem *m, struct sem_client *c, uint32_t *ret_missing)
{
	uint64_t want = __atomic_load_n(&sem_words(c)->want, __ATOMIC_ACQUIRE);
	uint32_t n = (uint32_t)(want & SEM_WANTS), turn = (uint32_t)(want >> 32), idle, need;
	bool tries = want & SEM_TRIES, stays = false;

	if (!n) {
		sem_unqueue(m, c);
		return SERVED;
	}
	if (n > m->limit && limit_may_be_old(m))
		return WANTS_TOO_MUCH;
	if (n > m->limit) {
		sem_answer(c, turn, EINVAL);
		return SERVED;
	}
	if (sem_later(m, c) && m->weight)
		return serve_later(m, c, n, tries, ret_missing);
	account_mend(m, c);
	idle = sem_idle_of(sem_words(c));
	need = n > idle ? n - idle : 0;
	if (need > m->free)
		stays = gather(m, need - m->free, c, tries ? ONLY_IDLE : AFTER_STAY);
	if (need <= m->free) {
		grant(m, c, need, turn);
		return SERVED;
	}
	*ret_missing = need - m->free;
	if (m->weight < m->limit && !m->leaving)
		return stays ? WAITS_HERE : WAITS_ELSEWHERE;
	if (tries) {
		sem_answer(c, turn, EAGAIN);
		return SERVED;
	}
	return WAITS_HERE;
}

/* Those who did not take what they were granted have another chance now and then, should their ring be lost. */
static void slow_again(struct sem *m)
{
	if (!m->n_slow)
		return;
	if (now_of(m) >= m->slow_at) {
		m->slow_at = now_of(m) + SLOW_AGAIN;
		for (struct account *a = m->o.accounts; a; a = a->next) {
			struct sem_client *c = sem_client_of(a);

			if (c->slow && !c->granted && (__atomic_load_n(&sem_words(c)->want, __ATOMIC_ACQUIRE) & SEM_WANTS))
				sem_queue(m, c);
		}
	}
	look_by(m, m->slow_at);
}

/* How many of the free ones go back to the others. */
static uint32_t give_back(struct sem *m)
{
	uint32_t most = m->keep < m->limit ? m->keep : m->limit, excess = m->weight > most ? m->weight - most : 0;

	if (excess > m->free)
		gather(m, excess - m->free, NULL, m->weight > m->limit ? AT_ONCE : m->tries_kept ? ONLY_IDLE : AFTER_STAY);
	if (m->tries_kept && excess > m->free) {         /* it is in use */
		m->tries_kept = false;
		m->keep = SEM_KEEP_ALL;
		sem_keep(m);
		return 0;
	}
	m->tries_kept = false;
	return excess < m->free ? excess : m->free;
}

static void serve_round(struct sem *m, bool *ret_waits)
{
	enum served how = SERVED;
	uint32_t missing = 0, give, wanted = 0;
	bool tries = false;

	m->round++;
	m->again = 0;
	while (m->fresh && how == SERVED && m->first)   /* what is granted is used once, however soon others want it */
		how = serve_first(m, m->first, &missing);
	m->fresh = false;
	how = SERVED;
	give = give_back(m);
	if (give)
		sem_tell(m, give, m->asked, m->asked_tries);
	while (how == SERVED && m->first)
		how = serve_first(m, m->first, &missing);
	if (how == WAITS_ELSEWHERE) {
		tries = __atomic_load_n(&sem_words(m->first)->want, __ATOMIC_ACQUIRE) & SEM_TRIES;
		wanted = missing < m->limit - m->weight ? m->weight + missing : m->limit;
	}
	if (how == WANTS_TOO_MUCH) {
		tries = true;
		wanted = m->weight + 1;
		m->hears = SEM_HEARS_SOON;
	} else if (m->hears == SEM_HEARD) {
		m->hears = SEM_HEARS_NOTHING;
	}
	give = how == WAITS_ELSEWHERE ? m->again : 0;
	/* While it waits for others to give here, nothing more is asked for; what has been asked for stands. */
	if (how != WAITS_HERE || (m->asked && m->asked > m->limit))
		sem_tell(m, give, wanted, tries);
	else
		sem_resize_say(m);
	if (m->hears == SEM_HEARS_SOON && m->core != SEM_CORE_IN)
		m->hears = SEM_HEARS_NOTHING;    /* it could not be asked */
	unbar_rest(m);
	*ret_waits = m->first || (m->keep < m->weight && m->weight);
}

void sem_serve(void *arg)
{
	struct sem *m = arg;
	bool waits, resized;

	if (m->o.space->broken || m->o.unused)
		return;
	m->look_at = NSEC_NEVER;
	slow_again(m);
	resized = m->n_asks && !m->resize;
	serve_round(m, &waits);
	if (resized && !m->resize)
		sem_boxes(m, 0);
	if (sigbus_hit(m->o.space->base)) {
		space_break(m->o.space, "a client truncated or punched its shared memory");
		return;
	}
	if (waits) {                     /* a ring may be lost with the one who owed it */
		m->look_span = m->look_span < LOOK_MIN ? LOOK_MIN : m->look_span < LOOK_MAX / 2 ? m->look_span * 2 : LOOK_MAX;
		look_by(m, now_of(m) + m->look_span);
	} else {
		m->look_span = 0;
	}
	loop_timer_set(m->o.space->shm->loop, &m->timer, m->look_at);
}
