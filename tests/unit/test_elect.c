/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Elections, the daemon's part (daemon/shm/elect.c): the page names a leader while he leads, and nobody else; it never goes back; others are
 * told what is new to them.
 */
#include <unistd.h>

#include "deaths.h"

struct stage {
	struct rig r;
	struct space *s;
	struct rig_client a, b;
	uint32_t slot;
};

static void opens(struct stage *t, struct rig_client *c)
{
	uint32_t unused;

	assert_int_equal(client_open(c->c, t->r.shm, t->s, &(struct client_what){ KIND_ELECT, 0, "n", 1 }, &t->slot, &unused), 0);
}

static void stage_open(struct stage *t)
{
	memset(t, 0, sizeof *t);
	rig_open(&t->r);
	t->s = rig_space(&t->r, "s");
	t->a = rig_client(&t->r);
	t->b = rig_client(&t->r);
	opens(t, &t->a);
	opens(t, &t->b);
}

static void stage_done(struct stage *t)
{
	close(t->a.anchor);
	close(t->b.anchor);
	rig_done(&t->r);
}

static struct value_page *page(const struct stage *t)
{
	return value_page(t->s, t->slot);
}

static uint64_t leader(const struct stage *t)
{
	char text[VALUE_MAX + 1];

	return elect_leader(t->s, t->slot, text);
}

static void rings(struct stage *t)
{
	rig_want(t->s, t->slot);
	rig_turn(&t->r);
}

/* As the library does it: the word first, then what it says of itself. */
static uint64_t leads(struct stage *t, struct rig_client *c)
{
	struct value_head h = { .state = VALUE_KNOWN, .count = 1, .len = 2 };

	rings(t);
	assert_true(rig_take(t->s, t->slot, c));
	h.token = name_token(t->s, t->slot);
	value_tell(page(t), &h, "me", false);
	rings(t);
	return h.token;
}

static void says(struct stage *t, uint64_t token, uint32_t count)
{
	value_tell(page(t), &(struct value_head){ .state = VALUE_KNOWN, .token = token, .count = count, .len = 4 }, "news", false);
	rings(t);
}

static void lets_go(struct stage *t)
{
	uint64_t *word = rig_word(t->s, t->slot);

	assert_true(lock_release(word, LOCK_LOAD(word), 0));
}

static void led(void **state)
{
	struct stage t;
	uint64_t token, next;

	(void)state;
	stage_open(&t);
	assert_int_equal(leader(&t), 0);
	token = leads(&t, &t.a);
	assert_int_equal(leader(&t), token);
	lets_go(&t);                     /* and is stopped before he takes it back; the other way round is the library's */
	rings(&t);
	assert_int_equal(leader(&t), 0);
	next = leads(&t, &t.b);
	assert_true(next > token);
	says(&t, token, 2);              /* who was stopped in the midst of it */
	assert_int_equal(leader(&t), next);
	stage_done(&t);
}

static void dies(void **state)
{
	struct stage t;
	struct value_head h;
	uint64_t token;

	(void)state;
	stage_open(&t);
	token = leads(&t, &t.a);
	rig_client_end(&t.r, &t.b);      /* somebody else */
	assert_int_equal(leader(&t), token);
	rig_client_end(&t.r, &t.a);
	assert_int_equal(leader(&t), 0);
	t.b = rig_client(&t.r);
	t.a = rig_client(&t.r);
	opens(&t, &t.b);
	assert_int_equal(value_read(page(&t), &h, NULL, 0), 0);
	assert_true(h.state != VALUE_KNOWN);
	stage_done(&t);
}

static void told(void **state)
{
	struct stage t;
	uint64_t token;

	(void)state;
	stage_open(&t);
	token = leads(&t, &t.a);
	assert_int_equal(t.r.leads, 0);  /* nobody has asked */
	elect_asked(t.s, t.slot);
	assert_int_equal(t.r.leads, 1);
	assert_true(t.r.led && t.r.leader.state == VALUE_KNOWN && t.r.leader.token == token && t.r.leader.count == 1);
	rings(&t);
	assert_int_equal(t.r.leads, 1);  /* nothing new */
	says(&t, token, 2);
	assert_int_equal(t.r.leads, 2);
	assert_int_equal(t.r.leader.count, 2);
	elect_untold(t.s, t.slot);
	fake_loop_advance(t.r.loop, NSEC_PER_SEC);
	assert_int_equal(t.r.leads, 3);
	lets_go(&t);
	rings(&t);
	assert_true(t.r.leads > 3 && t.r.leader.state == VALUE_NONE);
	stage_done(&t);
}

static void news(struct stage *t, enum value_state state, uint64_t token, uint32_t count)
{
	elect_news(t->s, t->slot, &(struct shm_value){ state, count, state == VALUE_KNOWN ? 5 : 0, token, (const uint8_t *)"there" });
}

static void elsewhere(void **state)
{
	struct stage t;

	(void)state;
	stage_open(&t);
	news(&t, VALUE_KNOWN, 100, 1);
	assert_int_equal(leader(&t), 100);
	news(&t, VALUE_KNOWN, 50, 7);
	assert_int_equal(leader(&t), 100);
	news(&t, VALUE_NONE, 50, VALUE_NOBODY);
	assert_int_equal(leader(&t), 100);
	news(&t, VALUE_NONE, 100, VALUE_NOBODY);
	assert_int_equal(leader(&t), 0);
	news(&t, VALUE_KNOWN, 100, 2);   /* late */
	assert_int_equal(leader(&t), 0);
	news(&t, VALUE_KNOWN, 101, 1);
	assert_int_equal(leader(&t), 101);
	stage_done(&t);
}

static void lapsed(void **state)
{
	struct stage t;
	uint64_t token;

	(void)state;
	stage_open(&t);
	token = leads(&t, &t.a);
	elect_lapse(t.s, t.slot);
	assert_int_equal(leader(&t), 0);
	news(&t, VALUE_KNOWN, token + 5, 1);
	assert_int_equal(leader(&t), token + 5);
	elect_lapse(t.s, t.slot);
	assert_int_equal(leader(&t), 0);
	news(&t, VALUE_KNOWN, token + 5, 1);     /* the same is told again */
	assert_int_equal(leader(&t), token + 5);
	stage_done(&t);
}

/* Whatever stands there: nobody is named who does not lead. */
static void scribbled(void **state)
{
	struct stage t;

	(void)state;
	stage_open(&t);
	leads(&t, &t.a);
	for (unsigned i = 0; i < sizeof(struct value_page) / 8; i++) {
		((uint64_t *)page(&t))[i] = UINT64_MAX << i % 64;
		rings(&t);
	}
	lets_go(&t);
	rings(&t);
	assert_true(leader(&t) == 0 || leader(&t) != name_token(t.s, t.slot));
	assert_false(t.s->broken);
	stage_done(&t);
}

/* --- killed --- */

static void life(void *arg)
{
	struct stage *t = arg;

	elect_asked(t->s, t->slot);
	leads(t, &t->a);
	lets_go(t);
	rings(t);
	leads(t, &t->b);
	rig_client_end(&t->r, &t->b);
}

static void killed(void **state)
{
	bool died = true;
	int n;

	(void)state;
	for (n = 1; died; n++) {
		struct stage t;

		stage_open(&t);
		died = dies_at(n, life, &t);
		rig_stop(&t.r);
		assert_int_equal(rig_adopt(&t.r), 0);
		rig_turn(&t.r);
		t.s = rig_space(&t.r, "s");
		if (leader(&t))
			assert_true(!lock_is_free(LOCK_LOAD(rig_word(t.s, t.slot))) && leader(&t) == name_token(t.s, t.slot));
		stage_done(&t);
	}
	print_message("# %d places\n", n - 2);
	assert_true(n > 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		STORY(led, "the page names who leads, until he lets go, and nobody of before"),
		STORY(dies, "a leader who has died leads no more"),
		STORY(told, "others are told what is new, once they have asked"),
		STORY(elsewhere, "what other nodes tell never goes back"),
		STORY(lapsed, "after the session's end nobody is known, until it is told again"),
		STORY(scribbled, "whatever stands in the page, it names nobody who does not lead"),
		STORY(killed, "killed at any store: the next daemon names nobody who does not lead"),
	};

	rig_private();
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
