/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Barriers among nodes: what the parties of this node want becomes events of the core, and its answers go to them. */
#include <errno.h>
#include <string.h>

#include "../grow.h"
#include "../log.h"
#include "../shm/barrier.h"
#include "node.h"

_Static_assert(NAME_KEY_MAX <= CORE_KEY_MAX, "a key fits");

void node_arrive(void *arg)
{
	struct node *n = arg;
	unsigned count = n->n_arrivals;

	n->n_arrivals = 0;
	for (unsigned i = 0; i < count; i++) {
		struct node_arrival a = n->arrivals[i];

		node_give(n, (struct node_event){ .kind = CORE_EV_ARRIVE, .ref = a.barrier, .party = a.party,
						  .further = i + 1 < count && n->arrivals[i + 1].barrier == a.barrier });
	}
}

static bool arrival_put(struct node *n, uint32_t barrier, uint32_t party)
{
	struct node_arrival *v = grown(n->arrivals, n->n_arrivals, &n->arrivals_cap, 64, sizeof *v);

	if (!v)
		return false;
	n->arrivals = v;
	n->arrivals[n->n_arrivals++] = (struct node_arrival){ barrier, party };
	loop_defer(n->loop, &n->arrive);
	return true;
}

/* Arrivals can wait until the end of the turn, if whatever follows is told after them. */
void node_barrier(void *arg, enum shm_barrier what, uint32_t barrier, uint32_t party)
{
	struct node *n = arg;
	static const enum core_event_kind kinds[] = {
		[SHM_ARRIVE] = CORE_EV_ARRIVE, [SHM_WITHDRAW] = CORE_EV_WITHDRAW,
		[SHM_DEPART] = CORE_EV_DEPART, [SHM_RESET] = CORE_EV_RESET, [SHM_CLOSE] = CORE_EV_CLOSE,
	};

	if (what == SHM_ARRIVE && arrival_put(n, barrier, party))
		return;
	node_arrive(n);
	node_give(n, (struct node_event){ .kind = kinds[what], .ref = barrier, .party = party });
}

bool of_a_barrier(enum core_event_kind kind)
{
	return kind == CORE_EV_ARRIVE || kind == CORE_EV_WITHDRAW || kind == CORE_EV_DEPART || kind == CORE_EV_RESET ||
	       kind == CORE_EV_CLOSE;
}

/* --- What the ledger knows --- */

static struct core_verdict verdict_from(const struct rounds_verdict *v)
{
	return (struct core_verdict){ .round = v->round, .serial = v->serial, .passed = v->passed, .yes = v->yes };
}

static struct rounds_verdict verdict_to(const struct core_verdict *v)
{
	return (struct rounds_verdict){ .round = v->round, .serial = v->serial, .passed = v->passed, .yes = v->yes };
}

static struct core_barrier record_from(const struct rounds_state *s)
{
	return (struct core_barrier){
		.state = (enum core_barrier_state)s->state, .parties = s->parties, .session = s->session, .by = s->by,
		.upto = s->upto, .now = verdict_from(&s->now), .last = verdict_from(&s->last),
		.ask_round = s->ask_round, .ask_session = s->ask_session, .ask_upto = s->ask_upto,
	};
}

static struct rounds_state record_to(const struct core_barrier *b)
{
	return (struct rounds_state){
		.state = b->state, .parties = b->parties, .session = b->session, .by = b->by,
		.upto = b->upto, .now = verdict_to(&b->now), .last = verdict_to(&b->last),
		.ask_round = b->ask_round, .ask_session = b->ask_session, .ask_upto = b->ask_upto,
	};
}

void event_of_barrier(struct node *n, const struct node_event *q, struct core_event *ret)
{
	const struct rounds *r = &n->shm.rounds;
	const struct ledger_barrier *b = rounds_barrier(r, q->ref);
	static struct core_barrier record;

	ret->barrier.ref = q->ref;
	ret->barrier.key = b->key;
	ret->barrier.key_len = (uint16_t)b->used;
	ret->barrier.parties = b->parties;
	ret->barrier.paired = rounds_paired(b);
	if (q->party) {
		ret->barrier.party = q->party;
		ret->barrier.order = rounds_party(r, q->party)->order;
		ret->barrier.yes = rounds_party(r, q->party)->yes;
		ret->barrier.further = q->further;
	}
	if (q->kind == CORE_EV_ADOPT_BARRIER) {
		record = record_from(rounds_state(&n->shm, q->ref));
		ret->barrier.record = &record;
	}
}

static void adopt_party(void *arg, uint32_t party)
{
	struct node *n = arg;

	node_give(n, (struct node_event){ .kind = CORE_EV_ADOPT_PARTY, .ref = rounds_party(&n->shm.rounds, party)->barrier,
					  .party = party });
}

int node_barriers_adopt(struct node *n)
{
	const struct rounds *r = &n->shm.rounds;
	int e = 0;

	for (uint32_t i = 0; e == 0 && (i = table_next(&r->barriers, i));) {
		if (!rounds_state(&n->shm, i))
			continue;
		node_give(n, (struct node_event){ .kind = CORE_EV_ADOPT_BARRIER, .ref = i });
		e = rounds_each_party(&n->shm, i, adopt_party, n);
	}
	return e;
}

/* --- The core's answers --- */

static enum barrier_verdict verdict_of(const struct core_action *a)
{
	switch (a->barrier.error) {
	case 0:
		return a->barrier.yes ? BARRIER_PASSED : BARRIER_VETOED;
	case -EPIPE:
		return BARRIER_BROKEN;
	case -ETIMEDOUT:
		return BARRIER_TIMED_OUT;
	case -EINVAL:
		return BARRIER_MISMATCH;
	case -ESHUTDOWN:
		return BARRIER_LEFT;
	default:
		return BARRIER_STALE;
	}
}

void act_barrier(struct node *n, const struct core_action *a)
{
	uint32_t barrier = a->barrier.ref, party = (uint32_t)a->barrier.party;
	struct rounds_state state;

	switch (a->kind) {
	case CORE_ACT_LEDGER_ARRIVE:
		rounds_arrived(&n->shm, party, a->barrier.order);
		return;
	case CORE_ACT_LEDGER_BARRIER:
		state = record_to(a->barrier.record);
		rounds_note(&n->shm, barrier, &state);
		return;
	case CORE_ACT_VERDICT:
		if (a->barrier.inside)
			barrier_entered(&n->shm, party, a->barrier.serial);
		else
			barrier_verdict(&n->shm, party, verdict_of(a), a->barrier.serial);
		return;
	case CORE_ACT_RESET_DONE:
		barrier_reset_done(&n->shm, barrier);
		return;
	default:
		return;
	}
}

/* Whoever could not come is told why; what is to be tried again is. */
void barrier_step_failed(struct node *n, const struct node_event *q, int error)
{
	enum barrier_verdict v = error == -EINVAL ? BARRIER_MISMATCH : error == -ESHUTDOWN ? BARRIER_LEFT : BARRIER_AGAIN;

	if (!rounds_is(&n->shm, q->ref, q->party))
		return;
	if (q->kind == CORE_EV_ARRIVE)
		barrier_verdict(&n->shm, q->party, v, false);
	else if (q->kind == CORE_EV_RESET)
		barrier_reset_done(&n->shm, q->ref);
	else if (q->kind == CORE_EV_CLOSE)
		barrier_closed(&n->shm, q->ref, error == -ENOENT);
	if (error == -ENOMEM)
		log_limited(loop_now(n->loop), LOG_LEVEL_ERROR, "core: %s: %s", core_event_name(q->kind), strerror(-error));
}

bool is_barrier(enum kind k)
{
	return object_kinds[k] == &barrier_kind;
}

void barrier_show(struct object *o, struct query_name *q)
{
	bool inside;

	q->limit = barrier_of(o)->parties;
	q->count = barrier_here(o, &inside);
	q->counts = true;
	q->state = inside ? "inside" : q->count ? "forming" : "free";
	q->token = 0;
	q->holder = NULL;
	q->owner_died = false;
}
