/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Objects and accounts, whatever the kind: with one of the test's own, in which each client has a number that it may
 * raise by ringing. What the object has noted is the sum.
 */
#include <errno.h>
#include <unistd.h>

#include "../../daemon/shm/object.h"
#include "deaths.h"

#define SUM 0                            /* of the object's note, and of an account's: what it has */
#define ARG 1                            /* of the object's note */

static unsigned made, joined, adopted, left, died, ended, freed, lapsed, recalled;
static bool holds_on;                    /* unused() does not let it go */

static int sum_make(struct object *o, uint32_t arg)
{
	made++;
	if (arg == 13)
		return -EINVAL;
	word_store(&object_note(o)->v[ARG], arg);
	return 0;
}

static int sum_check(struct object *o, uint32_t arg)
{
	return arg && object_note(o)->v[ARG] != arg ? -EINVAL : 0;
}

static void sum_joined(struct object *o, struct account *a, bool was)
{
	(void)o;
	was ? adopted++ : joined++;
	assert_int_equal(account_note(a)->client, a->client);
}

/* The account first, then the sum: one who is killed in between has counted too little, and adopt() counts anew. */
static void sum_ring(struct object *o, struct account *a)
{
	if (!a)
		return;
	word_store(&account_note(a)->v[SUM], account_note(a)->v[SUM] + 1);
	word_store(&object_note(o)->v[SUM], object_note(o)->v[SUM] + 1);
	word_store(object_words(o, a->slot), account_note(a)->v[SUM]);
}

static void sum_leave(struct object *o, struct account *a, bool dead)
{
	left++;
	died += dead;
	word_store(&object_note(o)->v[SUM], object_note(o)->v[SUM] - account_note(a)->v[SUM]);
	word_store(&account_note(a)->v[SUM], 0);
}

static void sum_unused(struct object *o)
{
	if (holds_on)
		return;
	ended++;
	object_end(o);
}

static int sum_recall(struct object *o)
{
	recalled++;
	word_store(&object_note(o)->v[SUM], 0);
	for (struct account *a = o->accounts; a; a = a->next)
		word_store(&object_note(o)->v[SUM], object_note(o)->v[SUM] + account_note(a)->v[SUM]);
	return 0;
}

static void sum_lapse(struct object *o)
{
	lapsed++;
	word_store(&object_note(o)->v[SUM], 0);
	for (struct account *a = o->accounts; a; a = a->next)
		word_store(&account_note(a)->v[SUM], 0);
}

static void sum_free(struct object *o)
{
	(void)o;
	freed++;
}

static const struct object_kind sum_kind = {
	.size = sizeof(struct object), .account_size = sizeof(struct account), .make = sum_make, .check = sum_check,
	.joined = sum_joined, .ring = sum_ring, .leave = sum_leave, .unused = sum_unused, .recall = sum_recall,
	.lapse = sum_lapse, .free = sum_free,
};

/* --- the stage --- */

struct stage {
	struct rig r;
	struct space *s;
	struct rig_client a, b;
	uint32_t slot, of_a, of_b;
};

static int open_as(struct stage *t, struct rig_client *c, enum kind kind, uint32_t arg, uint32_t *slot, uint32_t *account)
{
	return client_open(c->c, t->r.shm, t->s, &(struct client_what){ kind, arg, "n", 1 }, slot, account);
}

static void stage_open(struct stage *t)
{
	made = joined = adopted = left = died = ended = freed = lapsed = recalled = 0;
	holds_on = false;
	rig_open(&t->r);
	t->s = rig_space(&t->r, "s");
	t->a = rig_client(&t->r);
	t->b = rig_client(&t->r);
	assert_int_equal(open_as(t, &t->a, KIND_COND, 5, &t->slot, &t->of_a), 0);
	assert_int_equal(open_as(t, &t->b, KIND_COND, 0, &t->slot, &t->of_b), 0);
	assert_int_equal(made, 1);
	assert_int_equal(joined, 2);
}

static void stage_done(struct stage *t)
{
	rig_client_end(&t->r, &t->a);
	rig_client_end(&t->r, &t->b);
	rig_turn(&t->r);
	rig_done(&t->r);
}

static void ring(struct stage *t, uint32_t account, unsigned times)
{
	while (times--) {
		rig_want(t->s, account);
		rig_turn(&t->r);
	}
}

static uint64_t sum(const struct stage *t)
{
	return object_note(object_at(t->s, t->slot))->v[SUM];
}

static void adopt(struct stage *t)
{
	assert_int_equal(rig_adopt(&t->r), 0);
	rig_turn(&t->r);
	t->s = space_find(t->r.shm, "s", 1);
	assert_non_null(t->s);
	t->a.c = t->r.shm->clients[t->a.index];
	t->b.c = t->r.shm->clients[t->b.index];
}

/* --- stories --- */

static void accounts_apart(void **state)
{
	struct stage t;
	uint32_t slot, account;

	(void)state;
	stage_open(&t);
	assert_int_not_equal(t.of_a, t.of_b);
	ring(&t, t.of_a, 3);
	ring(&t, t.of_b, 1);
	rig_want(t.s, t.slot);           /* the object's own */
	rig_turn(&t.r);
	assert_int_equal(*object_words(object_at(t.s, t.slot), t.of_a), 3);
	assert_int_equal(sum(&t), 4);
	assert_int_equal(open_as(&t, &t.a, KIND_COND, 5, &slot, &account), 0);
	assert_int_equal(slot, t.slot);
	assert_int_equal(account, t.of_a);
	assert_int_equal(open_as(&t, &t.a, KIND_COND, 6, &slot, &account), -EINVAL);
	assert_int_equal(client_close(t.a.c, t.r.shm, t.s, t.slot), 0);
	assert_int_equal(sum(&t), 1);
	assert_int_equal(died, 0);
	assert_null(account_of(t.s, t.slot, t.a.index));
	rig_want(t.s, t.of_a);           /* whose it was is nobody's now */
	rig_turn(&t.r);
	assert_int_equal(sum(&t), 1);
	rig_client_end(&t.r, &t.b);
	rig_turn(&t.r);
	assert_int_equal(died, 1);
	assert_int_equal(ended, 1);
	assert_int_equal(freed, 1);
	assert_int_equal(t.s->names.n, 0);
	stage_done(&t);
}

static void kinds_apart(void **state)
{
	struct stage t;
	uint32_t slot, account;

	(void)state;
	stage_open(&t);
	assert_int_equal(open_as(&t, &t.a, KIND_LOCK, 0, &slot, &account), 0);
	assert_int_equal(account, 0);
	assert_int_not_equal(slot, t.slot);
	assert_int_equal(open_as(&t, &t.a, KIND_ELECT, 0, &account, &account), 0);
	assert_int_not_equal(name_find(t.s, KIND_ELECT, "n", 1), slot);
	rig_want(t.s, slot);
	rig_turn(&t.r);
	assert_true(rig_take(t.s, slot, &t.a));
	/* An object's word is none of lockword.h, whatever its clients set. */
	word_store(object_words(object_at(t.s, t.slot), t.slot), LOCK_W);
	rig_watch(t.s, t.slot);
	rig_watch(t.s, t.of_a);
	rig_turn(&t.r);
	assert_int_equal(t.s->n_watch, 0);
	assert_int_equal(*object_words(object_at(t.s, t.slot), t.slot), LOCK_W);
	stage_done(&t);
}

static void refused(void **state)
{
	struct stage t;
	uint32_t slot, account;
	struct client_what what = { KIND_COND, 13, "unlucky", 7 };

	(void)state;
	stage_open(&t);
	assert_int_equal(client_open(t.a.c, t.r.shm, t.s, &what, &slot, &account), -EINVAL);
	assert_int_equal(name_find(t.s, KIND_COND, "unlucky", 7), 0);
	assert_int_equal(t.s->names.n, 4);
	assert_int_equal(open_as(&t, &t.b, KIND_COND, 5, &slot, &account), 0);
	stage_done(&t);
}

/* Until it may go it can be opened again. */
static void comes_back(void **state)
{
	struct stage t;
	uint32_t slot, account;

	(void)state;
	stage_open(&t);
	holds_on = true;
	assert_int_equal(client_close(t.a.c, t.r.shm, t.s, t.slot), 0);
	assert_int_equal(client_close(t.b.c, t.r.shm, t.s, t.slot), 0);
	assert_non_null(object_at(t.s, t.slot));
	assert_int_equal(open_as(&t, &t.b, KIND_COND, 6, &slot, &account), -EINVAL);
	assert_int_equal(open_as(&t, &t.b, KIND_COND, 5, &slot, &account), 0);
	assert_int_equal(slot, t.slot);
	assert_int_equal(made, 1);
	ring(&t, account, 2);
	assert_int_equal(sum(&t), 2);
	holds_on = false;
	assert_int_equal(client_close(t.b.c, t.r.shm, t.s, t.slot), 0);
	assert_int_equal(ended, 1);
	assert_int_equal(t.s->names.n, 0);
	stage_done(&t);
}

static void restarted(void **state)
{
	struct stage t;

	(void)state;
	stage_open(&t);
	ring(&t, t.of_a, 3);
	ring(&t, t.of_b, 2);
	word_store(object_words(object_at(t.s, t.slot), t.of_a), 77);    /* it may say what it likes */
	rig_stop(&t.r);
	rig_client_end(&t.r, &t.b);
	adopt(&t);
	assert_int_equal(adopted, 2);
	assert_int_equal(recalled, 1);
	assert_int_equal(died, 1);
	assert_int_equal(sum(&t), 3);
	ring(&t, t.of_a, 1);
	assert_int_equal(sum(&t), 4);
	t.b = rig_client(&t.r);
	stage_done(&t);
}

static void session_over(void **state)
{
	struct stage t;

	(void)state;
	stage_open(&t);
	ring(&t, t.of_a, 3);
	shm_lapse(t.r.shm);
	assert_int_equal(lapsed, 1);
	assert_int_equal(sum(&t), 0);
	assert_int_equal(client_close(t.a.c, t.r.shm, t.s, t.slot), 0);
	stage_done(&t);
}

/* The space is cut: its objects go, and their clients close what is no more. */
static void space_broken(void **state)
{
	struct stage t;
	uint32_t id;

	(void)state;
	stage_open(&t);
	ring(&t, t.of_a, 3);
	id = t.s->id;
	space_break(t.s, "for a test");
	rig_turn(&t.r);
	assert_int_equal(freed, 1);
	assert_int_equal(client_close(t.a.c, t.r.shm, t.r.shm->spaces[id], t.slot), 0);
	t.s = rig_space(&t.r, "s");
	assert_int_equal(open_as(&t, &t.a, KIND_COND, 7, &t.slot, &t.of_a), 0);
	ring(&t, t.of_a, 1);
	assert_int_equal(sum(&t), 1);
	stage_done(&t);
}

/* Opens, rings, closes and opens again. */
static void life(void *arg)
{
	struct stage *t = arg;
	uint32_t slot, account;

	ring(t, t->of_a, 2);
	client_close(t->b.c, t->r.shm, t->s, t->slot);
	open_as(t, &t->b, KIND_COND, 5, &slot, &account);
	ring(t, account, 1);
	client_close(t->b.c, t->r.shm, t->s, t->slot);
	client_close(t->a.c, t->r.shm, t->s, t->slot);
	open_as(t, &t->b, KIND_COND, 6, &slot, &account);
}

static void judge(struct stage *t)
{
	uint32_t slot = name_find(t->s, KIND_COND, "n", 1);
	uint64_t n = 0;
	unsigned accounts = 0;

	for (uint32_t i = 0; (i = table_next(&t->s->names, i));) {
		if (!note_is(t->s, i)) {
			assert_int_equal(i, slot);
			continue;
		}
		assert_int_equal(note_at(t->s, i)->parent, slot);
		if (!note_at(t->s, i)->client)
			continue;
		n += note_at(t->s, i)->v[SUM];
		accounts++;
		assert_non_null(account_of(t->s, slot, note_at(t->s, i)->client));
	}
	if (!slot)
		return;
	t->slot = slot;
	assert_int_equal(sum(t), n);
	assert_int_equal(object_at(t->s, slot)->n_accounts, accounts);
	assert_true(name_at(t->s, slot)->opens >= accounts);     /* one has had no answer yet */
}

static void killed(void **state)
{
	bool died = true;
	int n;

	(void)state;
	for (n = 1; died; n++) {
		struct stage t;
		uint32_t slot, account;

		stage_open(&t);
		died = dies_at(n, life, &t);
		/* What our copy of the daemon remembers is of before. */
		rig_stop(&t.r);
		adopt(&t);
		judge(&t);
		assert_int_equal(open_as(&t, &t.a, KIND_COND, 0, &slot, &account), 0);
		judge(&t);
		stage_done(&t);
	}
	print_message("# %d places\n", n - 2);
	assert_true(n > 60);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		STORY(accounts_apart, "each client has an account of its own, and what it had goes with it"),
		STORY(kinds_apart, "a name of one kind is no other's, and an object's slot is no lock's"),
		STORY(refused, "what is refused leaves nothing behind"),
		STORY(comes_back, "what nobody has open may be opened again until it goes"),
		STORY(restarted, "after a restart the notes say what was, and who died meanwhile has left"),
		STORY(session_over, "a lapse is told to every object"),
		STORY(space_broken, "a space that is lost takes its objects along"),
		STORY(killed, "killed at any store: the next daemon finds whole objects, and no note astray"),
	};

	object_kinds[KIND_COND] = &sum_kind;
	rig_private();
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
