/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Latches, conditions and worker ids on a store that does all that a store may do: answers late and in another
 * order, fails before or after it has done it, lets what is in doubt land much later. Some nodes, each with its own connection
 * to it; their processes ask one thing at a time, daemons end between any two turns and come back with what their ledger has.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/beat.h"
#include "store_contract.h"
#include "store_nasty.h"
#include "things/item.h"
#include "things/key.h"
#include "things/things.h"

#define NODES 3
#define PROCS 4
#define TURN_NS (NSEC_PER_MSEC / 2)

/* A process as its node's ledger and letter box have it. */
struct proc {
	struct party *party;
	uint64_t id;
	uint32_t number, op;             /* the last request, */
	uint64_t arg;                    /* and what it says */
	uint32_t answered;
	int error;
	uint64_t value;
	uint32_t passed, signalled;
};

struct node {
	struct things ts;
	struct store *store;
	struct thing *thing;
	struct proc proc[PROCS];
	uint64_t session;
	bool over, up;
	nsec_t wake;
	int64_t wall_ms;                 /* against the other clock */
	/* ids: the segment */
	uint64_t word, ceiling, worker, held_in;
	/* ids: the state directory; the file, and one that is being written */
	struct id_kept file, next_file;
	uint32_t in_file, in_next;
	bool keep, flies;
};

static struct world {
	struct nasty_world *nasty;
	struct nasty_knobs knobs;
	struct node node[NODES];
	enum kind kind;
	nsec_t now;
	uint64_t reserve_ms;
	uint64_t sessions, seed;
} w;

static uint64_t roll(uint64_t n)
{
	w.seed ^= w.seed << 13;
	w.seed ^= w.seed >> 7;
	w.seed ^= w.seed << 17;
	return w.seed % n;
}

/* --- what a daemon does around it --- */

static void on_answer(void *arg, struct party *p, int error, uint64_t value)
{
	struct proc *x = p->account;

	(void)arg;
	assert_int_equal(p->number, x->number);
	x->answered = p->answered;
	x->error = error;
	x->value = value;
}

static void on_passed(void *arg, struct party *p)
{
	struct proc *x = p->account;

	(void)arg;
	assert_true(p->passed >= x->passed);
	x->passed = p->passed;
	x->signalled = p->signalled;
}

static void on_latch(void *arg, struct thing *t)
{
	(void)arg;
	(void)t;
}

static uint64_t on_id_word(void *arg, struct thing *t, bool close)
{
	struct node *n = arg;
	uint64_t last = n->word;

	(void)t;
	if (close)
		n->word = ID_CLOSED;
	return last;
}

static void on_id_open(void *arg, struct thing *t, uint64_t last)
{
	struct node *n = arg;

	assert_true(t->shown >= n->ceiling || last);
	n->ceiling = t->shown;
	n->worker = t->worker;
	n->held_in = n->session;
	if (last)
		n->word = last;
}

static void on_over(void *arg, struct thing *t)
{
	struct node *n = arg;

	assert_true(t->unused);
	n->over = true;
}

static void on_wake(void *arg, nsec_t when)
{
	struct node *n = arg;

	n->wake = when < n->wake ? when : n->wake;
}

static void on_keep(void *arg)
{
	struct node *n = arg;

	n->keep = true;
}

static nsec_t on_now(void *arg)
{
	(void)arg;
	return w.now;
}

static uint64_t on_now_ms(void *arg)
{
	const struct node *n = arg;

	return UINT64_C(1000000) + (uint64_t)((int64_t)(w.now / NSEC_PER_MSEC) + n->wall_ms);
}

/* --- sessions --- */

static void noted(void *arg, const struct store_result *res)
{
	*(int *)arg = res->error ? res->error : 1;
}

static void beat_write(uint64_t session, bool ended)
{
	static const struct nasty_knobs friendly = { 0 };
	struct beat_value v = { .id = { session, 1 }, .counter = 1, .ended = ended };
	const struct store_record *r;
	char key[STORE_KEY_MAX + 1];
	uint8_t bytes[BEAT_BYTES];
	struct store *s;
	int done = 0;

	snprintf(key, sizeof key, "beat/%016llx", (unsigned long long)session);
	beat_encode(&v, bytes);
	assert_int_equal(nasty_open(w.nasty, &friendly, &s), 0);
	r = nasty_look(w.nasty, key);
	store_cas(s, key, r ? r->version : 0, bytes, sizeof bytes, noted, &done);
	while (!done)
		store_ready(s);
	assert_int_equal(done, 1);
	store_close(s);
}

/* --- the file of worker numbers: one name, so one entry --- */

static void keep_load(struct node *n)
{
	struct id_kept *v = NULL;

	if (!w.reserve_ms)
		return;
	if (n->in_file) {
		v = malloc(sizeof *v);
		assert_non_null(v);
		*v = n->file;
	}
	things_keep_load(&n->ts, v, n->in_file, w.reserve_ms);
	n->keep = n->flies = false;
}

static void keep_land(struct node *n)
{
	n->file = n->next_file;
	n->in_file = n->in_next;
}

static unsigned kept_ends[4];            /* how often each kind of end has come */

/* A file is begun, or has come to its end, of whatever kind. */
static void keep_step(struct node *n)
{
	struct id_kept *v;
	enum kept_end end;

	if (!n->flies && n->keep) {
		n->keep = false;
		n->flies = true;
		n->in_next = things_keep_begin(&n->ts, &v);
		assert_true(n->in_next <= 1);
		if (n->in_next)
			n->next_file = *v;
		free(v);
	} else if (n->flies && roll(300) == 0) {
		end = roll(2) ? KEPT_SAVED : (enum kept_end[]){ KEPT_OLD, KEPT_GONE, KEPT_DOUBT }[roll(3)];
		if (end == KEPT_SAVED || (end == KEPT_DOUBT && roll(2)))
			keep_land(n);
		if (end == KEPT_GONE)
			n->in_file = 0;
		n->flies = false;
		n->keep |= end != KEPT_SAVED;
		kept_ends[end]++;
		things_keep_end(&n->ts, &n->next_file, n->in_next, end);
	}
}

/* In the midst of it: the one or the other. */
static void keep_cut(struct node *n)
{
	if (n->flies && roll(2))
		keep_land(n);
	n->flies = false;
}

static void proc_tell(struct node *n, struct proc *x)
{
	(void)n;
	if (x->number != x->answered)
		assert_int_equal(party_request(x->party, x->number, x->op, x->arg), 0);
}

static void node_up(struct node *n, bool adopted)
{
	static const struct things_ops ops = { .answer = on_answer, .passed = on_passed, .latch = on_latch, .id_word = on_id_word,
		.id_open = on_id_open, .over = on_over, .wake_at = on_wake, .now = on_now, .now_ms = on_now_ms, .keep = on_keep };
	struct things_ops mine = ops;
	uint8_t id[16] = { [8] = (uint8_t)(n - w.node) };       /* all want the same numbers */

	mine.arg = n;
	n->wake = NSEC_NEVER;
	n->over = false;
	n->up = true;
	assert_int_equal(nasty_open(w.nasty, &w.knobs, &n->store), 0);
	things_init(&n->ts, n->store, true, id, roll(UINT64_MAX), &mine);
	keep_load(n);
	n->thing = thing_new(&n->ts, w.kind, "default", "x", 1, n);
	if (w.kind == KIND_ID && n->ceiling && !(n->word & ID_CLOSED) &&
	    ((adopted && n->held_in == n->session) || things_keeps(&n->ts, n->thing->key, (uint32_t)n->worker)))
		thing_adopt_id(n->thing, (uint32_t)n->worker, n->ceiling, n->held_in);
	else
		n->word = ID_CLOSED;
	for (int i = 0; i < PROCS; i++) {
		struct proc *x = &n->proc[i];

		x->party = party_new(n->thing, x->id, x);
		if (adopted)
			party_adopt(x->party, x->answered, x->passed, x->signalled);
	}
	for (int i = 0; i < PROCS; i++)
		proc_tell(n, &n->proc[i]);
	things_session(&n->ts, n->session);
}

static void node_down(struct node *n)
{
	n->up = false;
	keep_cut(n);
	thing_free(n->thing);
	things_done(&n->ts);
	store_close(n->store);
}

static void node_restart(struct node *n)
{
	node_down(n);
	node_up(n, true);
}

static void new_session(struct node *n)
{
	n->session = ++w.sessions;
	beat_write(n->session, false);
}

static void world_begin(enum kind kind, const struct nasty_knobs *knobs)
{
	const char *given = getenv("DLOCK_SEED");
	static uint64_t worlds;
	uint64_t seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL) * 1000 + worlds++;

	print_message("# seed: DLOCK_SEED=%llu\n", (unsigned long long)seed);
	w = (struct world){ .nasty = nasty_world_new(seed), .knobs = *knobs, .kind = kind, .now = NSEC_PER_SEC, .seed = seed * 2 + 1 };
	for (int i = 0; i < NODES; i++) {
		for (int k = 0; k < PROCS; k++)
			w.node[i].proc[k].id = roll(UINT64_MAX);
		w.node[i].word = ID_CLOSED;
		new_session(&w.node[i]);
		node_up(&w.node[i], false);
	}
}

static void world_end(void)
{
	for (int i = 0; i < NODES; i++)
		if (w.node[i].up)
			node_down(&w.node[i]);
	nasty_world_free(w.nasty);
}

static void turn(void)
{
	w.now += TURN_NS;
	for (int i = 0; i < NODES; i++) {
		struct node *n = &w.node[i];

		if (!n->up)
			continue;
		store_ready(n->store);
		if (store_changed(n->store))
			things_hint(&n->ts);
		if (n->wake <= w.now) {
			n->wake = NSEC_NEVER;
			things_turn(&n->ts);
		}
		keep_step(n);
	}
}

static bool idle(const struct proc *x)
{
	return x->answered == x->number;
}

static void ask_op(struct node *n, struct proc *x, uint32_t op, uint64_t arg)
{
	x->number++;
	x->op = op;
	x->arg = arg;
	proc_tell(n, x);
}

static void settle(struct proc *x)
{
	for (int i = 0; !idle(x); i++) {
		assert_true(i < 200000);
		turn();
	}
}

static const struct nasty_knobs nasty = { 4, 5, 15, 6, 5 };

/* --- latches --- */

static struct latch_record latch;

static uint32_t latch_now(void)
{
	const struct store_record *r;

	while (!nasty_quiet(w.nasty))
		turn();
	r = nasty_look(w.nasty, "latch/default/x");
	assert_non_null(r);
	assert_int_equal(latch_decode(r->value, r->size, &latch), 0);
	return latch.count;
}

static void test_latch_counts(void **state)
{
	uint32_t total = 0, restarts = 0;

	(void)state;
	world_begin(KIND_LATCH, &nasty);
	ask_op(&w.node[0], &w.node[0].proc[0], SMALL_OPEN, 1000000);
	settle(&w.node[0].proc[0]);
	assert_int_equal(w.node[0].proc[0].error, 0);
	for (int i = 0; i < 20000; i++) {
		struct node *n = &w.node[roll(NODES)];
		struct proc *x = &n->proc[roll(PROCS)];

		if (idle(x) && i < 18000 && roll(4) == 0) {
			assert_int_equal(x->error, 0);
			ask_op(n, x, SMALL_COUNT, 1 + (uint32_t)roll(3));
			total += x->arg;
		}
		if (roll(300) == 0) {
			node_restart(n);
			restarts++;
		}
		turn();
	}
	for (int i = 0; i < NODES; i++)
		for (int k = 0; k < PROCS; k++)
			settle(&w.node[i].proc[k]);
	print_message("# counted %u over %u restarts, %u entries are left\n", total, restarts, latch.n);
	assert_int_equal(latch_now(), 1000000 - total);
	assert_true(total > 500 && restarts > 20);
	assert_true(latch.n <= NODES * (8 + PROCS));
	world_end();
}

static void test_latch_opens(void **state)
{
	uint64_t birth, former;

	(void)state;
	world_begin(KIND_LATCH, &nasty);
	for (int i = 0; i < NODES; i++)          /* all of them are right: whoever was first has made it */
		ask_op(&w.node[i], &w.node[i].proc[0], SMALL_OPEN, 5);
	for (int i = 0; i < NODES; i++) {
		settle(&w.node[i].proc[0]);
		assert_int_equal((uint32_t)w.node[i].proc[0].value, 5);
		assert_int_equal(w.node[i].proc[0].value, w.node[0].proc[0].value);
	}
	former = w.node[0].proc[0].value >> 32;
	assert_int_not_equal(former, 0);
	for (int i = 0; i < NODES; i++)
		ask_op(&w.node[i], &w.node[i].proc[1], SMALL_COUNT, former << 32 | 2);
	for (int i = 0; i < NODES; i++)
		settle(&w.node[i].proc[1]);
	for (int i = 0; i < 20000; i++)
		turn();
	for (int i = 0; i < NODES; i++)
		assert_int_equal(w.node[i].thing->state, LATCH_OPEN);
	assert_int_equal(latch_now(), 0);
	assert_int_equal(latch.n, 0);
	/* Unlinked once; all others see that, and what is made anew is another one. */
	for (int i = 0; i < NODES; i++)
		ask_op(&w.node[i], &w.node[i].proc[2], SMALL_UNLINK, 0);
	for (int i = 0; i < NODES; i++)
		settle(&w.node[i].proc[2]);
	ask_op(&w.node[1], &w.node[1].proc[1], SMALL_LOOK, 0);
	settle(&w.node[1].proc[1]);
	assert_int_equal(w.node[1].proc[1].error, ENOENT);
	ask_op(&w.node[1], &w.node[1].proc[1], SMALL_COUNT, 1);
	settle(&w.node[1].proc[1]);
	assert_int_equal(w.node[1].proc[1].error, ENOENT);
	ask_op(&w.node[2], &w.node[2].proc[0], SMALL_OPEN, 7);
	settle(&w.node[2].proc[0]);
	birth = w.node[2].proc[0].value >> 32;
	assert_int_equal((uint32_t)w.node[2].proc[0].value, 7);
	assert_int_not_equal(birth, former);
	for (int i = 0; i < NODES; i++) {
		ask_op(&w.node[i], &w.node[i].proc[0], SMALL_COUNT, former << 32 | 1);
		ask_op(&w.node[i], &w.node[i].proc[1], SMALL_LOOK, former << 32);
		ask_op(&w.node[i], &w.node[i].proc[2], SMALL_COUNT, birth << 32 | 1);
		for (int k = 0; k < 3; k++)
			settle(&w.node[i].proc[k]);
		assert_int_equal(w.node[i].proc[0].error, ENOENT);
		assert_int_equal(w.node[i].proc[1].error, ENOENT);
		assert_int_equal(w.node[i].proc[2].error, 0);
	}
	assert_int_equal(latch_now(), 7 - NODES);
	world_end();
}

/*
 * From the unlink's return on nobody counts at it any more, also where it was open, and nothing has been heard of its end; and sooner or
 * later that is heard of everywhere.
 */
static void test_latch_unlinked(void **state)
{
	(void)state;
	for (int round = 0; round < 20; round++) {
		uint64_t birth;

		world_begin(KIND_LATCH, &nasty);
		for (int i = 0; i < NODES; i++) {
			ask_op(&w.node[i], &w.node[i].proc[0], SMALL_OPEN, 1);
			settle(&w.node[i].proc[0]);
		}
		birth = w.node[0].proc[0].value >> 32;
		for (int i = 0; i < NODES; i++) {
			ask_op(&w.node[i], &w.node[i].proc[1], SMALL_COUNT, birth << 32 | 1);
			settle(&w.node[i].proc[1]);
			assert_int_equal(w.node[i].proc[1].error, 0);
		}
		ask_op(&w.node[0], &w.node[0].proc[2], SMALL_UNLINK, 0);
		settle(&w.node[0].proc[2]);
		assert_int_equal(w.node[0].proc[2].error, 0);
		for (int k = 0; k < 10000 * (round % 2); k++)
			turn();
		for (int i = 0; i < NODES * (round % 2); i++)
			assert_int_equal(w.node[i].thing->state, LATCH_GONE);
		for (int i = 0; i < NODES; i++)
			ask_op(&w.node[i], &w.node[i].proc[1], SMALL_COUNT, birth << 32 | 1);
		for (int i = 0; i < NODES; i++) {
			settle(&w.node[i].proc[1]);
			assert_int_equal(w.node[i].proc[1].error, ENOENT);
		}
		world_end();
	}
}

/* --- conditions --- */

static unsigned told(void)
{
	unsigned n = 0;

	for (int i = 0; i < NODES; i++)
		for (int k = 0; k < PROCS; k++)
			n += w.node[i].proc[k].passed == w.node[i].proc[k].number && w.node[i].proc[k].op == SMALL_ENTER;
	return n;
}

static uint32_t cond_left_over(void)
{
	static struct cond_record rec;
	const struct store_record *r;

	for (int i = 0; i < 3000 || !nasty_quiet(w.nasty); i++)
		turn();
	r = nasty_look(w.nasty, "cond/default/x");
	if (!r)
		return 0;
	assert_int_equal(cond_decode(r->value, r->size, &rec), 0);
	return rec.n;
}

/* Each process but the last of each node waits; that one signals. Daemons restart. */
static void test_cond_signals(void **state)
{
	unsigned twice = 0, restarts = 0;

	(void)state;
	for (int round = 0; round < 12; round++) {
		unsigned waiting = 0, sent = 0;

		world_begin(KIND_COND, &nasty);
		for (int i = 0; i < NODES; i++)
			for (int k = 0; k + 1 < PROCS; k++, waiting++)
				ask_op(&w.node[i], &w.node[i].proc[k], SMALL_ENTER, 0);
		for (int i = 0; i < NODES; i++)
			for (int k = 0; k + 1 < PROCS; k++)
				settle(&w.node[i].proc[k]);
		assert_int_equal(told(), 0);
		for (int s = 0; s < 6; s++) {
			struct node *n = &w.node[roll(NODES)];

			if (!idle(&n->proc[PROCS - 1]))
				settle(&n->proc[PROCS - 1]);
			ask_op(n, &n->proc[PROCS - 1], SMALL_SIGNAL, 1);
			sent++;
			for (uint64_t t = roll(20); t; t--)
				turn();
			if (roll(3) == 0) {
				node_restart(&w.node[roll(NODES)]);
				restarts++;
			}
		}
		for (int i = 0; i < NODES; i++)
			settle(&w.node[i].proc[PROCS - 1]);
		assert_true(cond_left_over() <= waiting - sent);
		assert_true(told() >= sent);
		twice += told() - sent;
		ask_op(&w.node[1], &w.node[1].proc[PROCS - 1], SMALL_SIGNAL, UINT32_MAX);
		settle(&w.node[1].proc[PROCS - 1]);
		assert_int_equal(cond_left_over(), 0);
		assert_int_equal(told(), waiting);
		world_end();
	}
	print_message("# %u woke for nothing\n", twice);
	assert_true(twice <= 12 * 6 && restarts);
}

/* Who gives up meanwhile is told whether a signal was his; if it was not, the next has it. */
static void test_cond_cancels(void **state)
{
	unsigned restarts = 0;

	(void)state;
	for (int round = 0; round < 12; round++) {
		unsigned waiting = 0, gave_up = 0, had_it = 0;

		world_begin(KIND_COND, &nasty);
		for (int i = 0; i < NODES; i++)
			for (int k = 0; k + 1 < PROCS; k++, waiting++)
				ask_op(&w.node[i], &w.node[i].proc[k], SMALL_ENTER, 0);
		for (uint64_t t = roll(40); t; t--)
			turn();
		for (int i = 0; i < NODES; i++)
			settle(&w.node[i].proc[1]);
		ask_op(&w.node[0], &w.node[0].proc[PROCS - 1], SMALL_SIGNAL, 2);
		for (uint64_t t = roll(30); t; t--)
			turn();
		for (int i = 0; i < NODES; i++) {        /* over an answer that has not come yet, too */
			struct proc *x = &w.node[i].proc[0];

			ask_op(&w.node[i], x, SMALL_CANCEL, x->number);
		}
		if (roll(2)) {
			node_restart(&w.node[roll(NODES)]);
			restarts++;
		}
		for (int i = 0; i < NODES; i++)
			for (int k = 0; k < PROCS; k++)
				settle(&w.node[i].proc[k]);
		for (int i = 0; i < NODES; i++) {
			gave_up++;
			had_it += w.node[i].proc[0].value;
		}
		assert_int_equal(w.node[0].proc[PROCS - 1].error, 0);
		assert_true(cond_left_over() <= waiting - gave_up - (2 - had_it));
		assert_true(told() + had_it >= 2);
		world_end();
	}
	assert_true(restarts);
}

/* Who looks only long after he was told is told once more: a signal that was his is not lost because his time is over by then. */
static void test_cond_is_slow(void **state)
{
	struct node *n = &w.node[0], *other = &w.node[1];

	(void)state;
	for (int round = 0; round < 6; round++) {
		world_begin(KIND_COND, &nasty);
		ask_op(n, &n->proc[0], SMALL_ENTER, 0);
		settle(&n->proc[0]);
		ask_op(other, &other->proc[0], SMALL_SIGNAL, 1);
		settle(&other->proc[0]);
		assert_int_equal(cond_left_over(), 0);
		if (round % 2)
			node_restart(n);
		ask_op(n, &n->proc[0], SMALL_CANCEL, n->proc[0].number);
		settle(&n->proc[0]);
		assert_int_equal(n->proc[0].value, 1);
		world_end();
	}
}

/* A node ends with signals that were meant for its processes, and a process between its signal and its running. */
static void test_cond_deaths(void **state)
{
	(void)state;
	for (int round = 0; round < 8; round++) {
		struct node *dead = &w.node[0];

		world_begin(KIND_COND, &nasty);
		ask_op(dead, &dead->proc[0], SMALL_ENTER, 0);
		settle(&dead->proc[0]);
		for (int i = 1; i < NODES; i++) {
			ask_op(&w.node[i], &w.node[i].proc[0], SMALL_ENTER, 0);
			settle(&w.node[i].proc[0]);
		}
		if (round % 2) {
			node_down(dead);
			ask_op(&w.node[1], &w.node[1].proc[1], SMALL_SIGNAL, 1);
			for (uint64_t t = roll(100); t; t--)
				turn();
			beat_write(dead->session, true);
		} else {
			ask_op(&w.node[1], &w.node[1].proc[1], SMALL_SIGNAL, 1);
			for (uint64_t t = roll(100); t; t--)
				turn();
			party_free(dead->proc[0].party, true, 0);
			dead->proc[0].party = NULL;
			dead->proc[0].op = 0;
		}
		settle(&w.node[1].proc[1]);
		for (int i = 0; i < 25000 && !(w.node[1].proc[0].passed || w.node[2].proc[0].passed); i++)
			turn();
		assert_true(w.node[1].proc[0].passed || w.node[2].proc[0].passed);
		world_end();
	}
}

/* --- ids --- */

#define IDS_MAX (1 << 18)
static uint64_t ids[IDS_MAX], last_of[ID_WORKERS];
static uint32_t n_ids, away;             /* away: without a session */

/* One process takes some; never back, on any worker. */
static void take_ids(struct node *n, unsigned count)
{
	for (; count && n_ids < IDS_MAX && !(n->word & ID_CLOSED); count--) {
		uint64_t id = id_after(n->word, on_now_ms(n));
		uint32_t worker = (uint32_t)(id >> 12 & 1023);

		if (id >> ID_MS_SHIFT >= n->ceiling || id >> ID_MS_SHIFT > on_now_ms(n) + ID_AHEAD_MS)
			return;
		assert_true(id > last_of[worker]);
		assert_int_equal(worker, n->worker);
		last_of[worker] = ids[n_ids++] = n->word = id;
		away += !n->ts.store.open;
	}
}

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* The machine is started anew, and finds the store away for a while. */
static void node_reboot(struct node *n)
{
	uint64_t was = n->session;

	n->session = 0;
	node_down(n);
	if (roll(2))
		beat_write(was, true);
	n->wall_ms -= roll(2) ? (int64_t)roll(50000) : 0;
	n->word = ID_CLOSED;
	n->ceiling = 0;
	for (int k = 0; k < PROCS; k++)
		n->proc[k] = (struct proc){ .id = roll(UINT64_MAX) };
	node_up(n, false);
}

static void node_lapse(struct node *n, bool stays)
{
	uint64_t was = n->session;

	n->session = 0;
	things_lapsed(&n->ts);
	assert_true(w.reserve_ms || n->word & ID_CLOSED);
	beat_write(was, true);           /* ends, before others may take what it had */
	if (!stays)
		return;
	node_down(n);
	node_up(n, false);
}

static void node_joins(struct node *n)
{
	new_session(n);
	things_session(&n->ts, n->session);
}

static void node_closes(struct node *n)
{
	thing_unused(n->thing);
	for (int k = 0; k < 400000 && !n->over; k++) {
		if (!n->session)
			node_joins(n);
		turn();
	}
	assert_true(n->over);
	assert_true(n->word & ID_CLOSED);
	node_down(n);
	n->ceiling = 0;
	node_up(n, false);
}

static uint32_t ids_story(uint64_t reserve_ms)
{
	uint32_t lapses = 0, restarts = 0, closes = 0, reboots = 0;

	n_ids = away = 0;
	memset(last_of, 0, sizeof last_of);
	world_begin(KIND_ID, &nasty);
	w.reserve_ms = reserve_ms;
	for (int i = 0; i < NODES; i++) {
		node_down(&w.node[i]);
		node_up(&w.node[i], false);
	}
	for (int i = 0; i < 60000; i++) {
		struct node *n = &w.node[roll(NODES)];
		struct proc *x = &n->proc[roll(PROCS)];

		if (idle(x) && roll(20) == 0)
			ask_op(n, x, SMALL_RESERVE, 0);
		if (roll(5) == 0)
			take_ids(n, (unsigned)roll(20));
		if (!(n->word & ID_CLOSED) && (n->word >> ID_MS_SHIFT) + ID_LOW_MS > n->ceiling && roll(10) == 0)
			thing_low(n->thing);
		if (roll(2000) == 0) {
			node_restart(n);
			restarts++;
		}
		if (n->session && roll(5000) == 0) {
			node_lapse(n, reserve_ms && roll(2));
			lapses++;
		} else if (reserve_ms && n->session && roll(n->flies ? 500 : 4000) == 0) {
			node_reboot(n);
			reboots++;
		} else if (!n->session && roll(reserve_ms ? 1000 : 1) == 0) {
			node_joins(n);
		}
		if (i == 40000 || roll(reserve_ms ? 15000 : 4000) == 0) {
			node_closes(n);
			closes++;
		}
		if (roll(3000) == 0)
			n->wall_ms += (int64_t)roll(reserve_ms ? 40000 : 1) - (int64_t)roll(2000);
		turn();
	}
	qsort(ids, n_ids, sizeof *ids, by_number);
	for (uint32_t i = 1; i < n_ids; i++)
		assert_true(ids[i] != ids[i - 1]);
	print_message("# %u ids, %u of them without a session, %u restarts, %u lapses, %u reboots, %u closed and opened\n", n_ids, away,
		      restarts, lapses, reboots, closes);
	assert_true(n_ids > 10000 && restarts > 3 && lapses && (closes || reserve_ms));
	assert_true(!reserve_ms || (reboots && away > 1000));
	world_end();
	return closes;
}

static void test_ids(void **state)
{
	(void)state;
	ids_story(0);
}

static void test_ids_kept(void **state)
{
	uint32_t closes = 0;

	(void)state;
	for (int i = 0; i < 3; i++)
		closes += ids_story(3600 * 1000);
	print_message("# files saved %u, of which it is the old one that is there, or none, %u and %u, in doubt %u\n", kept_ends[KEPT_SAVED],
		      kept_ends[KEPT_OLD], kept_ends[KEPT_GONE], kept_ends[KEPT_DOUBT]);
	assert_true(closes && kept_ends[KEPT_SAVED] && kept_ends[KEPT_OLD] && kept_ends[KEPT_GONE] && kept_ends[KEPT_DOUBT]);
}

/* All numbers are taken by sessions that live; when one of them ends, its number is to be had. */
static void pump(struct store_contract *c)
{
	store_ready(c->store);
}

static void test_ids_full(void **state)
{
	struct id_record rec = { .session = 99, .ceiling = 123 };
	uint8_t bytes[ID_BYTES];
	struct store_contract c = { .pump = pump };
	static const struct nasty_knobs friendly = { 0 };

	(void)state;
	world_begin(KIND_ID, &friendly);
	assert_int_equal(nasty_open(w.nasty, &friendly, &c.store), 0);
	for (int i = 1; i < NODES; i++)
		node_down(&w.node[i]);
	beat_write(99, false);
	beat_write(98, false);
	for (unsigned i = 0; i < 1000; i++) {    /* as many as the world has room for; the others are another's whom nobody ends */
		char key[64];
		struct answer a;

		snprintf(key, sizeof key, "id/default/x/%04u", i);
		rec.session = i == 500 ? 98 : 99;
		id_encode(&rec, bytes);
		a = ask_cas(&c, key, 0, bytes, sizeof bytes);
		assert_int_equal(a.error, 0);
		answer_done(&a);
	}
	ask_op(&w.node[0], &w.node[0].proc[0], SMALL_RESERVE, 0);
	settle(&w.node[0].proc[0]);
	assert_int_equal(w.node[0].proc[0].error, 0);
	assert_true(w.node[0].worker >= 1000);
	thing_unused(w.node[0].thing);
	for (int k = 0; k < 2000; k++)
		turn();
	assert_true(w.node[0].over);
	store_close(c.store);
	world_end();
}

/* --- values --- */

static struct items items[NODES];

struct rise {
	uint64_t version;
	int value;
	bool busy, writes;
	unsigned acked, doubts, raced;
};

static void on_item(void *arg, const struct item_result *res)
{
	struct rise *r = arg;

	r->busy = false;
	if (!r->writes) {
		assert_true(res->error == 0 || res->error == -ENOENT || res->error == -ETIMEDOUT);
		r->version = res->error ? 0 : res->version;
		r->value = res->error || !res->n ? 0 : ((const uint8_t *)res->bytes)[0] | ((const uint8_t *)res->bytes)[1] << 8;
		r->writes = res->error != -ETIMEDOUT;
		return;
	}
	r->writes = false;
	r->acked += res->error == 0;
	r->doubts += res->error && res->in_doubt;
	r->raced += res->error == -EAGAIN && !res->in_doubt;
	assert_true(res->error == 0 || res->error == -EAGAIN || res->error == -ETIMEDOUT);
}

static void rise_step(int i, struct rise *r)
{
	uint8_t next[2] = { (uint8_t)(r->value + 1), (uint8_t)((r->value + 1) >> 8) };
	struct item_call c = { .op = r->writes ? ITEM_PUT : ITEM_GET, .key = "value/default/n", .bytes = next, .n = r->writes ? 2 : 0,
			       .compare = true, .version = r->version };

	r->busy = true;
	assert_non_null(item_start(&items[i], &c, on_item, r));
}

/* Compare-and-set by version: what is acknowledged is in it, and what is said to have failed is not. */
static void test_values(void **state)
{
	static struct rise rises[NODES];
	unsigned acked = 0, doubts = 0, raced = 0;
	const struct store_record *rec;
	int counted;

	(void)state;
	memset(rises, 0, sizeof rises);
	world_begin(KIND_LATCH, &nasty);
	for (int i = 0; i < NODES; i++)
		items[i] = (struct items){ .in = &w.node[i].ts.store };
	for (int t = 0; t < 30000; t++) {
		for (int i = 0; i < NODES; i++) {
			if (!rises[i].busy && roll(3) == 0)
				rise_step(i, &rises[i]);
			items_turn(&items[i], w.now);
		}
		turn();
	}
	for (int i = 0; i < NODES; i++) {
		items_done(&items[i]);
		acked += rises[i].acked;
		doubts += rises[i].doubts;
		raced += rises[i].raced;
	}
	while (!nasty_quiet(w.nasty))
		turn();
	rec = nasty_look(w.nasty, "value/default/n");
	counted = ((const uint8_t *)rec->value)[0] | ((const uint8_t *)rec->value)[1] << 8;
	print_message("# counted %d, acknowledged %u, in doubt %u, raced %u\n", counted, acked, doubts, raced);
	assert_true(counted >= (int)acked && counted <= (int)(acked + doubts));
	assert_true(acked > 100 && raced > 10 && doubts);
	world_end();
}

/* --- records --- */

static void test_keys(void **state)
{
	char key[STORE_KEY_MAX + 1], other[STORE_KEY_MAX + 1], name[256];
	char space[65];

	(void)state;
	thing_key(THING_VALUES, "s", "a b/c%\xc3\xa9", 8, key);
	assert_string_equal(key, "value/s/a%20b%2Fc%25%C3%A9");
	memset(space, 's', 64);
	space[64] = 0;
	memset(name, 'n', 255);
	name[255] = 0;
	thing_key(THING_LATCHES, space, name, 255, key);
	assert_true(store_key_valid(key) && strlen(key) < 240);
	name[254] = 'm';
	thing_key(THING_LATCHES, space, name, 255, other);
	assert_string_not_equal(key, other);
	/* What looks like a hash is a name like others. */
	thing_key(THING_VALUES, "s", "%~0", 3, key);
	assert_string_equal(key, "value/s/%25%7E0");
}

static void test_order(void **state)
{
	static struct cond_record r;
	uint8_t bytes[STORE_VALUE_MAX];

	(void)state;
	r.n = 0;
	for (uint32_t i = 0; i < COND_ENTRIES_MAX; i++)
		assert_int_equal(cond_enter(&r, 1 + i % 2, i, 1), 0);
	assert_int_equal(cond_enter(&r, 1, 9999999, 1), -ENOSPC);
	assert_true(cond_encode(&r, bytes) <= STORE_VALUE_MAX);
	assert_int_equal(cond_signal(&r, 3, 77), 3);
	assert_true(cond_leave(&r, 1, 1, true));         /* signalled: goes on to the fourth */
	assert_true(cond_find(&r, 3, 1)->signal && !cond_find(&r, 4, 1)->signal);
	assert_true(cond_end(&r, 1));                    /* 0 and 2 had one: the next two of the others */
	assert_true(cond_find(&r, 3, 1)->signal && cond_find(&r, 5, 1)->signal && cond_find(&r, 7, 1)->signal);
	assert_false(cond_find(&r, 9, 1)->signal);
	assert_null(cond_find(&r, 4, 1));
}

static void test_count(void **state)
{
	static struct latch_record r;
	struct latch_entry a = { 1, 10, 1 }, b = { 1, 11, 1 };

	(void)state;
	latch_begin(&r, 5, 3);
	assert_int_equal(latch_count(&r, &a, 1), 0);
	assert_int_equal(latch_count(&r, &a, 1), 0);
	assert_int_equal(r.count, 2);
	a.number = 2;
	assert_int_equal(latch_count(&r, &a, 1), 0);
	assert_int_equal(r.count, 1);
	assert_int_equal(latch_count(&r, &b, 7), 0);
	assert_int_equal(r.count, 0);
	assert_int_equal(r.n, 0);
	assert_true(latch_counted(&r, 12, 1));
}

#define STORY_(title, f) { title, f, NULL, NULL, NULL }

int main(void)
{
	const struct CMUnitTest tests[] = {
		STORY_("names become keys of their own, however long they are", test_keys),
		STORY_("waiters are signalled in their order, and a signal of the dead goes on", test_order),
		STORY_("a countdown is counted once, and never below 0", test_count),
		STORY_("countdowns of three nodes are counted once each, over lost answers and restarts", test_latch_counts),
		STORY_("a latch is made once, opens for all, and is unlinked for all", test_latch_opens),
		STORY_("whoever counts after an unlink is told, on all nodes", test_latch_unlinked),
		STORY_("signals after waits began all arrive, over lost answers and restarts", test_cond_signals),
		STORY_("who gives up leaves no signal behind", test_cond_cancels),
		STORY_("who gives up long after he was signalled is told so", test_cond_is_slow),
		STORY_("a signal for a node or process that dies goes on to the next", test_cond_deaths),
		STORY_("values: what is acknowledged under a version is there, what failed is not", test_values),
		STORY_("ids: none twice, none back, over lost answers, restarts, lapses and a clock that goes back", test_ids),
		STORY_("ids: nor with a file of numbers, over its failures, reboots, and a store that is away then", test_ids_kept),
		STORY_("ids: a number that nobody has is found among very many", test_ids_full),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("things", tests, NULL, NULL);
}
