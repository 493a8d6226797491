/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A name that its holder hands straight on (DESIGN S11, daemon/core/master_pass.c). Node 0 is A, the holder, node 1 is B, who
 * waits; node 2 masters the name; node 3 is C, who waits behind B, or before it by priority. What is under way is held back
 * or lost by its kind.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cluster_rig.h"
#include "core/range.h"

#include <setjmp.h>
#include <cmocka.h>

enum { A, B, M, C, NODES };

#define REF 5
#define MSEC (CRIG_SECOND / 1000)
#define TO(node) (1u << (node))

static char key[16];

static void runs(struct crig *r)
{
	crig_run(r, 10 * MSEC);
	unsigned holders = 0;

	for (unsigned i = 0; i < NODES; i++)
		holders += r->node[i].core && !r->node[i].stopped && r->node[i].held[REF] == CORE_WEIGHT_ALL;
	assert_true(holders <= 1);
}

static void until_held(struct crig *r, unsigned node, core_nsec_t most)
{
	for (core_nsec_t span = 0; !r->node[node].held[REF]; span += 10 * MSEC) {
		assert_true(span < most);
		runs(r);
	}
}

static void claims(struct crig *r, unsigned node, uint8_t priority)
{
	struct core_event ev = { .kind = CORE_EV_CLAIM, .claim = { .ref = REF, .key = key, .key_len = (uint16_t)strlen(key), .priority = priority } };

	assert_int_equal(crig_give(r, node, &ev), 0);
	runs(r);
}

/* It leaves `left`, if that is not empty. */
static void gives_back(struct crig *r, unsigned node, const char *left, bool died)
{
	struct core_event ev = { .kind = CORE_EV_RELEASE, .release = { .ref = REF, .used = 7, .died = died } };

	if (*left)
		ev.release.value = (struct core_value){ .state = CORE_VALUE_KNOWN, .len = (uint16_t)strlen(left), .count = 1,
							.token = r->node[node].token[REF], .bytes = left };
	assert_int_equal(crig_give(r, node, &ev), 0);
}

/* A holds, B waits, and A has been told so. */
static void begin(struct crig *r)
{
	crig_init(r, NODES);
	crig_key(r, M, 0, key);
	claims(r, A, 0);
	assert_int_equal(r->node[A].held[REF], CORE_WEIGHT_ALL);
	claims(r, B, 0);
	assert_int_equal(r->node[A].revoked[REF], 0);
}

static void done(struct crig *r)
{
	crig_run(r, 10 * MSEC);
	crig_done(r);
}

/* --- The way of it --- */

static void one_way(void **state)
{
	(void)state;
	struct crig r;

	begin(&r);
	memset(r.frames, 0, sizeof r.frames);
	r.hold[MSG_RELEASE] = TO(M);
	gives_back(&r, A, "one", false);
	runs(&r);
	assert_int_equal(r.frames[MSG_PASS], 1);
	assert_int_equal(r.frames[MSG_RELEASE], 1);
	assert_int_equal(r.frames[MSG_GRANT], 0);        /* B has it, and the master has heard nothing yet */
	assert_int_equal(r.node[B].held[REF], CORE_WEIGHT_ALL);
	assert_string_equal(r.node[B].found[REF], "one");
	assert_false(r.node[B].lost[REF]);
	assert_true(r.node[B].token[REF] > r.node[A].token[REF]);
	crig_let_go(&r);
	runs(&r);
	assert_int_equal(r.frames[MSG_GRANT], 1);        /* the same again, should the PASS have been lost */
	assert_int_equal(r.frames[MSG_RELEASED], 1);
	uint64_t token = r.node[B].token[REF];
	gives_back(&r, B, "", false);
	claims(&r, C, 0);
	assert_string_equal(r.node[C].found[REF], "one");
	assert_true(r.node[C].token[REF] > token);
	done(&r);
}

/* Two who want it again at once: each hand-over is a CHANGE. */
static void to_and_fro(void **state)
{
	(void)state;
	struct crig r;
	uint64_t token = 0;

	begin(&r);
	memset(r.frames, 0, sizeof r.frames);
	for (unsigned i = 0; i < 10; i++) {
		unsigned from = i % 2 ? B : A, to = i % 2 ? A : B;
		struct core_event ev = { .kind = CORE_EV_CHANGE, .change = { .ref = REF, .wanted = CORE_WEIGHT_ALL, .used = 1 } };

		assert_int_equal(crig_give(&r, from, &ev), 0);
		runs(&r);
		assert_int_equal(r.node[to].held[REF], CORE_WEIGHT_ALL);
		assert_true(r.node[to].token[REF] > token);
		token = r.node[to].token[REF];
	}
	assert_int_equal(r.frames[MSG_PASS], 10);
	assert_int_equal(r.frames[MSG_CLAIM], 10);
	assert_int_equal(r.frames[MSG_GRANT], 10);
	assert_int_equal(r.frames[MSG_REVOKE], 10);
	done(&r);
}

static void pass_is_lost(void **state)
{
	(void)state;
	struct crig r;

	begin(&r);
	r.lose[MSG_PASS] = TO(B);
	gives_back(&r, A, "one", true);
	runs(&r);
	assert_int_equal(r.frames[MSG_PASS], 1);
	assert_int_equal(r.node[B].held[REF], CORE_WEIGHT_ALL);
	assert_string_equal(r.node[B].found[REF], "one");
	assert_true(r.node[B].lost[REF]);
	done(&r);
}

/* It comes after the GRANT, after the end of that hold, and while B waits anew. */
static void pass_is_late(void **state)
{
	(void)state;
	struct crig r;

	begin(&r);
	r.hold[MSG_PASS] = TO(B);
	gives_back(&r, A, "", false);
	runs(&r);
	assert_int_equal(r.node[B].held[REF], CORE_WEIGHT_ALL);
	gives_back(&r, B, "", false);
	claims(&r, C, 0);
	assert_int_equal(r.node[C].held[REF], CORE_WEIGHT_ALL);
	claims(&r, B, 0);
	crig_let_go(&r);
	runs(&r);
	assert_int_equal(r.node[B].held[REF], 0);
	gives_back(&r, C, "", false);
	runs(&r);
	assert_int_equal(r.node[B].held[REF], CORE_WEIGHT_ALL);
	assert_true(r.node[B].token[REF] > r.node[C].token[REF]);
	done(&r);
}

/* --- B is quicker than A's word to the master --- */

static void heir_speaks_first(void **state)
{
	(void)state;

	for (unsigned how = 0; how < 4; how++) {
		struct crig r;

		begin(&r);
		r.hold[MSG_RELEASE] = TO(M);
		gives_back(&r, A, "one", false);
		runs(&r);
		assert_int_equal(r.node[B].held[REF], CORE_WEIGHT_ALL);
		r.hold[MSG_RELEASE] = 0;
		if (how == 0) {                  /* gives it back, and leaves what it found */
			gives_back(&r, B, "", false);
		} else if (how == 1) {           /* ... or something else */
			gives_back(&r, B, "two", false);
		} else if (how == 2) {           /* wants more tokens */
			assert_int_equal(crig_give(&r, B, &(struct core_event){ .kind = CORE_EV_REFILL, .refill = { REF, RANGE_FIRST } }), 0);
			runs(&r);
			assert_true(r.node[B].token[REF] > r.node[A].token[REF] + RANGE_FIRST);
			gives_back(&r, B, "two", true);
		} else {                         /* connects anew */
			crig_block(&r, B, M, true);
			runs(&r);
			crig_block(&r, B, M, false);
			crig_run(&r, CRIG_SECOND);
			gives_back(&r, B, "", false);
		}
		runs(&r);
		uint64_t token = r.node[B].token[REF];
		claims(&r, C, 0);
		assert_int_equal(r.node[C].held[REF], CORE_WEIGHT_ALL);
		assert_string_equal(r.node[C].found[REF], how == 1 || how == 2 ? "two" : "one");
		assert_int_equal(r.node[C].lost[REF], how == 2);
		assert_true(r.node[C].token[REF] > token);
		crig_let_go(&r);                 /* A's word finds nothing to change */
		runs(&r);
		assert_int_equal(r.node[C].held[REF], CORE_WEIGHT_ALL);
		gives_back(&r, C, "", false);
		claims(&r, B, 0);
		assert_string_equal(r.node[B].found[REF], how == 1 || how == 2 ? "two" : "one");
		done(&r);
	}
}

/* A place in the queue that is told late is no word of what came with the pass. */
static void stamp_is_late(void **state)
{
	(void)state;
	struct crig r;

	begin(&r);
	r.hold[MSG_STAMP] = TO(B);
	crig_block(&r, B, M, true);
	runs(&r);
	crig_block(&r, B, M, false);
	crig_run(&r, CRIG_SECOND);               /* it has synced, and is answered */
	r.hold[MSG_RELEASE] = TO(M);
	gives_back(&r, A, "one", false);
	runs(&r);
	assert_int_equal(r.node[B].held[REF], CORE_WEIGHT_ALL);
	struct crig_event *release = r.held->next;
	r.held->next = NULL;                     /* the STAMP alone */
	crig_let_go(&r);
	r.held = release;
	gives_back(&r, B, "", false);
	claims(&r, C, 0);
	assert_string_equal(r.node[C].found[REF], "one");
	done(&r);
}

/* The secret is the master's, and only holder and heir are told it. */
static void another_says_so(void **state)
{
	(void)state;
	struct crig r;
	uint8_t bytes[CORE_FRAME_MAX];

	begin(&r);
	unsigned shard = shard_of(key, strlen(key));
	const struct member *m = &r.node[B].core->member;
	struct frame f = { .conn = r.conn[B][C], .msg = {
		.kind = MSG_PASS, .shard = (uint8_t)shard, .key = key, .key_len = (uint16_t)strlen(key), .from = { r.node[C].session, r.node[C].incarnation },
		.epoch = m->epoch[shard], .number = m->number, .used = 1, .range = { token_make(m->epoch[shard], 1u << 30), 1 } } };
	struct core_event ev = { .kind = CORE_EV_RECV, .recv = { .conn = f.conn, .session = r.node[C].session, .bytes = bytes } };

	ev.recv.n = frame_encode(&f, bytes);
	assert_int_equal(crig_give(&r, B, &ev), 0);
	assert_int_equal(r.node[B].held[REF], 0);
	runs(&r);

	/* Who has not heard from the master believes nobody, and waits for its grant. */
	done(&r);
	crig_init(&r, NODES);
	crig_key(&r, M, 0, key);
	claims(&r, A, 0);
	r.hold[MSG_STAMP] = TO(B);
	claims(&r, B, 0);
	r.hold[MSG_RELEASE] = TO(M);
	gives_back(&r, A, "one", false);
	runs(&r);
	assert_int_equal(r.frames[MSG_PASS], 1);
	assert_int_equal(r.node[B].held[REF], 0);
	crig_let_go(&r);
	runs(&r);
	assert_int_equal(r.node[B].held[REF], CORE_WEIGHT_ALL);
	assert_string_equal(r.node[B].found[REF], "one");
	done(&r);
}

/* --- Who goes --- */

/* Nobody but B, whatever stands before it: it may have it. */
static void holder_dies_afterwards(void **state)
{
	(void)state;
	struct crig r;

	begin(&r);
	r.lose[MSG_RELEASE] = TO(M);
	gives_back(&r, A, "one", false);
	crig_kill(&r, A);
	claims(&r, C, 9);
	assert_int_equal(r.node[B].held[REF], CORE_WEIGHT_ALL);
	for (unsigned i = 0; i < 500; i++)
		runs(&r);                        /* A's session has ended long since */
	assert_int_equal(r.node[B].held[REF], CORE_WEIGHT_ALL);
	assert_int_equal(r.node[C].held[REF], 0);
	assert_int_equal(r.node[B].revoked[REF], 0);
	r.lose[MSG_RELEASE] = 0;
	gives_back(&r, B, "two", false);
	runs(&r);
	assert_int_equal(r.node[C].held[REF], CORE_WEIGHT_ALL);
	assert_string_equal(r.node[C].found[REF], "two");
	assert_true(r.node[C].token[REF] > r.node[B].token[REF]);
	done(&r);
}

static void holder_dies_before(void **state)
{
	(void)state;
	struct crig r;

	begin(&r);
	crig_kill(&r, A);
	claims(&r, C, 9);
	until_held(&r, B, 6 * CRIG_SECOND);
	assert_true(r.node[B].lost[REF]);
	assert_string_equal(r.node[B].found[REF], "?");
	assert_int_equal(r.node[C].held[REF], 0);
	gives_back(&r, B, "", false);
	runs(&r);
	assert_int_equal(r.node[C].held[REF], CORE_WEIGHT_ALL);
	assert_false(r.node[C].lost[REF]);
	done(&r);
}

/* It had it, and nobody has heard it say so: what it left is lost. */
static void heir_dies(void **state)
{
	(void)state;

	for (unsigned passed = 0; passed < 2; passed++) {
		struct crig r;

		begin(&r);
		claims(&r, C, 0);
		if (passed) {
			r.hold[MSG_RELEASE] = TO(M);
			gives_back(&r, A, "one", false);
			runs(&r);
			assert_int_equal(r.node[B].held[REF], CORE_WEIGHT_ALL);
		}
		crig_kill(&r, B);
		r.node[B].held[REF] = 0;
		crig_run(&r, 6 * CRIG_SECOND);
		if (passed) {
			assert_int_equal(r.node[C].held[REF], 0);
			crig_let_go(&r);
		} else {
			gives_back(&r, A, "one", false);
		}
		runs(&r);
		assert_int_equal(r.node[C].held[REF], CORE_WEIGHT_ALL);
		assert_int_equal(r.node[C].lost[REF], passed);
		assert_string_equal(r.node[C].found[REF], passed ? "?" : "one");
		assert_int_equal(r.frames[MSG_PASS], 1);         /* C is the heir once B has gone */
		assert_true(r.node[C].token[REF] > r.node[A].token[REF]);
		done(&r);
	}
}

static void heir_withdraws(void **state)
{
	(void)state;
	struct crig r;

	begin(&r);
	claims(&r, C, 0);
	r.hold[MSG_PASS] = TO(B);
	gives_back(&r, B, "", false);            /* it only waits */
	gives_back(&r, A, "one", false);         /* ... and A has not heard of that */
	runs(&r);
	assert_int_equal(r.node[C].held[REF], CORE_WEIGHT_ALL);
	assert_string_equal(r.node[C].found[REF], "one");
	claims(&r, B, 0);
	crig_let_go(&r);
	runs(&r);
	assert_int_equal(r.node[B].held[REF], 0);
	done(&r);
}

/* ... in time for A to be told of another. */
static void heir_follows(void **state)
{
	(void)state;
	struct crig r;

	begin(&r);
	claims(&r, C, 0);
	gives_back(&r, B, "", false);
	runs(&r);
	r.hold[MSG_RELEASE] = TO(M);
	gives_back(&r, A, "", false);
	runs(&r);
	assert_int_equal(r.node[C].held[REF], CORE_WEIGHT_ALL);
	done(&r);
}

/* Somebody comes who goes before the heir: the holder is asked first. */
static void heir_overtaken(void **state)
{
	(void)state;
	struct crig r;

	begin(&r);
	claims(&r, C, 9);
	r.hold[MSG_RELEASE] = TO(M);
	gives_back(&r, A, "one", false);
	runs(&r);
	assert_int_equal(r.node[C].held[REF], CORE_WEIGHT_ALL);
	assert_string_equal(r.node[C].found[REF], "one");
	crig_let_go(&r);
	gives_back(&r, C, "", false);
	runs(&r);
	assert_int_equal(r.node[B].held[REF], CORE_WEIGHT_ALL);
	done(&r);

	/* It has passed it on before it hears that it shall not. */
	begin(&r);
	r.hold[MSG_REVOKE] = TO(A);
	claims(&r, C, 9);
	gives_back(&r, A, "one", false);
	runs(&r);
	assert_int_equal(r.node[B].held[REF], CORE_WEIGHT_ALL);
	crig_let_go(&r);
	gives_back(&r, B, "", false);
	runs(&r);
	assert_int_equal(r.node[C].held[REF], CORE_WEIGHT_ALL);
	done(&r);

	/* Its answer is lost with the connection: it is asked again. */
	begin(&r);
	r.lose[MSG_KEEP] = TO(M);
	claims(&r, C, 9);
	crig_block(&r, A, M, true);
	runs(&r);
	r.lose[MSG_KEEP] = 0;
	crig_block(&r, A, M, false);
	crig_run(&r, CRIG_SECOND);
	gives_back(&r, A, "one", false);
	runs(&r);
	assert_int_equal(r.node[C].held[REF], CORE_WEIGHT_ALL);
	done(&r);
}

/* --- Masters change --- */

/* The map names another while a pass is under way: it is nobody's, or B has taken it and says so when it syncs. */
static void reign_changes(void **state)
{
	(void)state;

	for (unsigned taken = 0; taken < 2; taken++) {
		struct crig r;

		begin(&r);
		claims(&r, C, 0);
		r.hold[MSG_PASS] = taken ? 0 : TO(B);
		r.lose[MSG_RELEASE] = TO(M);
		gives_back(&r, A, "one", true);
		runs(&r);
		assert_int_equal(r.node[B].held[REF], taken ? CORE_WEIGHT_ALL : 0);
		crig_give(&r, M, &(struct core_event){ .kind = CORE_EV_DRAIN });
		crig_run(&r, CRIG_SECOND);
		assert_true(crig_master(&r, shard_of(key, strlen(key))) != M);
		until_held(&r, B, 6 * CRIG_SECOND);
		assert_true(r.node[B].lost[REF]);
		assert_string_equal(r.node[B].found[REF], "one");
		uint64_t token = r.node[B].token[REF];
		crig_let_go(&r);
		runs(&r);
		assert_int_equal(r.node[B].token[REF], token);
		gives_back(&r, B, "", false);
		runs(&r);
		assert_int_equal(r.node[C].held[REF], CORE_WEIGHT_ALL);
		assert_string_equal(r.node[C].found[REF], "one");
		assert_true(r.node[C].token[REF] > token);
		done(&r);
	}
}

/* The next master knows of no heir, and grants it to whoever is first; B still waits by the claim that the pass was for. */
static void pass_of_before(void **state)
{
	(void)state;
	struct crig r;

	begin(&r);
	r.lose[MSG_REVOKE] = TO(A);
	claims(&r, C, 9);
	r.hold[MSG_PASS] = TO(B);
	r.lose[MSG_RELEASE] = TO(M);
	gives_back(&r, A, "one", false);
	crig_give(&r, M, &(struct core_event){ .kind = CORE_EV_DRAIN });
	until_held(&r, C, 6 * CRIG_SECOND);
	crig_let_go(&r);
	runs(&r);
	assert_int_equal(r.node[B].held[REF], 0);
	gives_back(&r, C, "two", false);
	runs(&r);
	assert_string_equal(r.node[B].found[REF], "two");
	done(&r);
}

/* ... and B, which had it, dies before it has told anybody: the next master has A's word that B may have had it. */
static void reign_changes_heir_dies(void **state)
{
	(void)state;
	struct crig r;

	begin(&r);
	r.lose[MSG_RELEASE] = TO(M);
	gives_back(&r, A, "one", false);
	runs(&r);
	assert_int_equal(r.node[B].held[REF], CORE_WEIGHT_ALL);
	crig_kill(&r, B);
	r.node[B].held[REF] = 0;
	crig_give(&r, M, &(struct core_event){ .kind = CORE_EV_DRAIN });
	crig_run(&r, 6 * CRIG_SECOND);
	claims(&r, C, 0);
	until_held(&r, C, 6 * CRIG_SECOND);
	assert_true(r.node[C].lost[REF]);
	assert_string_equal(r.node[C].found[REF], "?");
	done(&r);
}

/* What A was told by the former master it does not heed under the next one. */
static void told_by_another(void **state)
{
	(void)state;
	struct crig r;

	begin(&r);
	r.lose[MSG_REVOKE] = TO(A);              /* the next master's */
	crig_give(&r, M, &(struct core_event){ .kind = CORE_EV_DRAIN });
	crig_run(&r, CRIG_SECOND);
	gives_back(&r, A, "one", false);
	runs(&r);
	assert_int_equal(r.frames[MSG_PASS], 0);
	assert_int_equal(r.node[B].held[REF], CORE_WEIGHT_ALL);
	assert_string_equal(r.node[B].found[REF], "one");
	done(&r);
}

/* --- Through the master as ever --- */

static void not_passed(void **state)
{
	(void)state;
	struct crig r;

	/* Holder or heir on the master's own node. */
	for (unsigned master = A; master <= B; master++) {
		crig_init(&r, NODES);
		crig_key(&r, master, 0, key);
		claims(&r, A, 0);
		claims(&r, B, 0);
		gives_back(&r, A, "", false);
		runs(&r);
		assert_int_equal(r.node[B].held[REF], CORE_WEIGHT_ALL);
		assert_int_equal(r.frames[MSG_PASS], 0);
		done(&r);
	}

	/* No connection between the two, or one through a third. */
	begin(&r);
	crig_block(&r, A, B, true);
	crig_run(&r, CRIG_SECOND);
	gives_back(&r, A, "one", false);
	runs(&r);
	assert_int_equal(r.node[B].held[REF], CORE_WEIGHT_ALL);
	assert_string_equal(r.node[B].found[REF], "one");
	assert_int_equal(r.frames[MSG_PASS], 0);
	done(&r);

	/* Somebody observes it. */
	crig_init(&r, NODES);
	crig_key(&r, M, 0, key);
	crig_give(&r, C, &(struct core_event){ .kind = CORE_EV_OBSERVE, .observe = { .ref = REF, .key = key, .key_len = (uint16_t)strlen(key), .on = true } });
	runs(&r);
	claims(&r, A, 0);
	claims(&r, B, 0);
	gives_back(&r, A, "", false);
	runs(&r);
	assert_int_equal(r.node[B].held[REF], CORE_WEIGHT_ALL);
	assert_int_equal(r.frames[MSG_PASS], 0);
	done(&r);

	/* B only reads, or only tries, or has asked for a lock-delay. */
	for (unsigned how = 0; how < 3; how++) {
		struct core_event ev = { .kind = CORE_EV_CLAIM, .claim = { .ref = REF, .key = key, .weight = how == 0, .tries = how == 1,
									  .delay = how == 2 ? 100 : 0 } };

		crig_init(&r, NODES);
		crig_key(&r, M, 0, key);
		ev.claim.key_len = (uint16_t)strlen(key);
		claims(&r, A, 0);
		crig_give(&r, B, &ev);
		runs(&r);
		gives_back(&r, A, "", false);
		crig_run(&r, CRIG_SECOND / 10);
		assert_true(r.node[B].held[REF]);
		assert_int_equal(r.frames[MSG_PASS], 0);
		done(&r);
	}
}

/* A becomes a reader instead, and then wants all of it again: it goes before the queue, and what it was told first is void. */
static void holder_keeps_a_share(void **state)
{
	(void)state;
	struct crig r;
	struct core_event lowers = { .kind = CORE_EV_CHANGE, .change = { .ref = REF, .held = 1, .used = 1 } };
	struct core_event upgrades = { .kind = CORE_EV_CHANGE, .change = { .ref = REF, .held = 1, .wanted = CORE_WEIGHT_ALL, .upgrade = true } };

	begin(&r);
	assert_int_equal(crig_give(&r, A, &lowers), 0);
	r.node[A].held[REF] = 1;
	runs(&r);
	r.lose[MSG_REVOKE] = TO(A);
	assert_int_equal(crig_give(&r, A, &upgrades), 0);
	runs(&r);
	assert_int_equal(r.node[A].held[REF], CORE_WEIGHT_ALL);
	gives_back(&r, A, "", false);
	runs(&r);
	assert_int_equal(r.frames[MSG_PASS], 0);
	assert_int_equal(r.node[B].held[REF], CORE_WEIGHT_ALL);
	assert_true(r.node[B].token[REF] > r.node[A].token[REF]);
	done(&r);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		{ "who waits has it one way after the holder gives it back, with what was left, before the master has heard", one_way, NULL, NULL, NULL },
		{ "to and fro between two nodes: four messages each time, tokens rise", to_and_fro, NULL, NULL, NULL },
		{ "a pass that is lost is the master's grant instead", pass_is_lost, NULL, NULL, NULL },
		{ "a pass that is late is nobody's", pass_is_late, NULL, NULL, NULL },
		{ "what the heir says before the master has heard of the pass is believed", heir_speaks_first, NULL, NULL, NULL },
		{ "an answer of before the pass does not acknowledge what came with it", stamp_is_late, NULL, NULL, NULL },
		{ "nobody but the holder can pass a name on", another_says_so, NULL, NULL, NULL },
		{ "a holder dies after it has passed the name on: the heir has it, and nobody else is granted it", holder_dies_afterwards, NULL, NULL, NULL },
		{ "a holder dies before: the heir is granted it, and told", holder_dies_before, NULL, NULL, NULL },
		{ "an heir dies: the next one is told, if it had it", heir_dies, NULL, NULL, NULL },
		{ "an heir that withdraws while a pass is under way has nothing", heir_withdraws, NULL, NULL, NULL },
		{ "... and the next in line is the heir", heir_follows, NULL, NULL, NULL },
		{ "who goes before the heir is the heir, once the holder has said that it will not pass it on to that one", heir_overtaken, NULL, NULL, NULL },
		{ "the master changes while a pass is under way, or has just been taken", reign_changes, NULL, NULL, NULL },
		{ "... and the next one has granted it to another", pass_of_before, NULL, NULL, NULL },
		{ "... and the heir that took it dies: the next master knows of it by the holder's word", reign_changes_heir_dies, NULL, NULL, NULL },
		{ "an heir is that of one reign", told_by_another, NULL, NULL, NULL },
		{ "it goes through the master where that is on the way, where there is no connection, for observers, readers, delays, and who tries", not_passed, NULL, NULL, NULL },
		{ "a holder that keeps a share passes nothing on", holder_keeps_a_share, NULL, NULL, NULL },
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("core_pass", tests, NULL, NULL);
}
