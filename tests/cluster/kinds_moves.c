/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What is under way while masters change: whatever can be held (kinds.h) on its way to the next one, upgrades, downgrades, claims of more
 * permits, resizes, values, rounds of barriers. Of each there is one on host 2 who waits for what one on host 1 is to do. Hosts 3 and 4 master all
 * names, and have no clients; 4 coordinates.
 *
 * The masters are killed and come back, hand over, or are drained, before the one on host 1 does his part, or after: the other is not
 * through before that, and then is; and what both have is what they would have had.
 *
 * And hosts 1 and 3 die, while the master that is left, the coordinator, is killed again and again, every TTL / 2: whoever waits has what the dead
 * one held, or hears that his round is broken, within the bound of a single death (docs/LEASE.md).
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../e2e/harness.h"
#include "../e2e/kinds_stage.h"
#include "town.h"

#define TTL_MS   6000                    /* what is to be held over a restart is held on a busy machine */
#define BOUND_MS (TTL_MS * 6 / 5 + 2000) /* ttl + 2d + o: d is 3 %, o a twentieth and some requests */
#define TRIES    4                       /* where somebody lapses, or is late: what does not work fails each time */
#define CAST_MAX 40
#define STEPS    6
#define DUE      4

enum { ONE, TWO, THREE, ACTORS };        /* on hosts 1, 2 and 1 */
enum { READ, WRITE };                    /* roles of the row "read" */

struct step {
	unsigned who;
	actor_fn fn;                     /* NULL: there is none */
	uint64_t arg;
	int wanted;
	bool sleeps;                     /* what comes of it is asked for at the end */
};

struct play {
	const char *title;
	const char *kind;                /* the word of the row of kinds.h whose thing it is; or else: */
	int (*open)(void **ret, const char *name);
	struct step before[STEPS];
	struct step asks;                /* TWO, and sleeps ... */
	struct step gives[2];            /* ... until ONE does that */
	struct step ends;                /* and where this is given, until this, after the masters have moved */
	struct step after[STEPS];
	unsigned rounds;                 /* of a barrier: so many are told to be the serial one */
	bool stays;                      /* not of a holder that dies: there is none, or whoever waits may not have been heard before */
	int lost;                        /* what TWO is told where host 1 dies */
};

static struct cast {
	const struct play *play;
	const struct kind *kind;
	char name[64];
	struct actor actor[ACTORS];
	struct step due[ACTORS][DUE];
	unsigned due_n[ACTORS];
	uint64_t token, asked_token, gave_ns, had_ns;
	unsigned serials;
} cast[CAST_MAX];
static unsigned cast_n;

static struct shared {
	uint32_t waits[CAST_MAX];        /* at the condition, by the place in the cast */
} *shared;
static bool good;

#define EACH(c) for (struct cast *c = cast; c < cast + cast_n; c++)

/* --- What actors do; what they have open is scene.thing --- */

static int upgrades(struct stage *s, uint64_t unused)
{
	(void)s;
	(void)unused;
	return dlock_upgrade(scene.thing);
}

static int downgrades(struct stage *s, uint64_t unused)
{
	(void)s;
	(void)unused;
	return dlock_downgrade(scene.thing);
}

static int takes_n(struct stage *s, uint64_t n)
{
	(void)s;
	return dlock_sem_wait_n(scene.thing, (unsigned)n);
}

static int tries_n(struct stage *s, uint64_t n)
{
	(void)s;
	return dlock_sem_trywait_n(scene.thing, (unsigned)n);
}

static int gives_n(struct stage *s, uint64_t n)
{
	(void)s;
	return dlock_sem_post_n(scene.thing, (unsigned)n);
}

static int resizes(struct stage *s, uint64_t n)
{
	(void)s;
	return dlock_sem_resize(scene.thing, (unsigned)n);
}

static int sets(struct stage *s, uint64_t v)
{
	(void)s;
	return dlock_value_set(scene.thing, &v, sizeof v);
}

static int finds(struct stage *s, uint64_t v)
{
	uint64_t found = 0;
	size_t len = sizeof found;
	int r = dlock_value_get(scene.thing, &found, &len);

	(void)s;
	return r ? r : len == sizeof found && found == v ? 0 : EBADMSG;
}

/* Until another leads than at first, or the same anew. That nobody is known to, in between, says nothing. */
static int sees_the_next(struct stage *s, uint64_t unused)
{
	uint64_t first = 0, term;
	int r = dlock_elect_observe(scene.thing, &first);

	(void)s;
	(void)unused;
	for (term = first; r == 0 && (term == first || !term);)
		r = dlock_elect_observe(scene.thing, &term);
	return r ? r : term > first ? 0 : EPROTO;
}

/* The serial one is told apart by the token. */
static int serial_noted(struct stage *s, int r)
{
	s->token = r == DLOCK_SERIAL;
	return r == DLOCK_SERIAL ? 0 : r;
}

static int comes(struct stage *s, uint64_t unused)
{
	(void)unused;
	return serial_noted(s, dlock_barrier_wait(scene.thing));
}

static int resets(struct stage *s, uint64_t unused)
{
	(void)s;
	(void)unused;
	return dlock_barrier_reset(scene.thing);
}

/* All say yes but one. */
static int votes(struct stage *s, uint64_t yes)
{
	bool all = true;
	int r = serial_noted(s, dlock_barrier_vote(scene.thing, yes, &all));

	return r ? r : all ? EBADMSG : 0;
}

static int enters_it(struct stage *s, uint64_t unused)
{
	(void)unused;
	return serial_noted(s, dlock_barrier_enter(scene.thing));
}

static int leaves(struct stage *s, uint64_t unused)
{
	(void)unused;
	return serial_noted(s, dlock_barrier_leave(scene.thing));
}

static struct {
	dlock_cond_t *cond;
	dlock_t *lock;
	uint32_t *waits;
} room;

static int waits_in_room(struct stage *s, uint64_t unused)
{
	int r = dlock_wait(room.lock);

	(void)s;
	(void)unused;
	if (r)
		return r;
	__atomic_store_n(room.waits, 1, __ATOMIC_RELEASE);
	r = dlock_cond_wait(room.cond, room.lock);
	return r ? r : dlock_post(room.lock);
}

static int signals(struct stage *s, uint64_t unused)
{
	int r = 0, waits = 0;

	(void)s;
	(void)unused;
	while (r == 0 && !waits) {
		r = dlock_wait(room.lock);
		waits = (int)__atomic_load_n(room.waits, __ATOMIC_ACQUIRE);
		if (r == 0 && waits)
			r = dlock_cond_signal(room.cond);
		r = r ? r : dlock_post(room.lock);
	}
	return r;
}

/* --- What they open, where no row of kinds.h does --- */

static int attr_of(dlock_attr_t **ret, bool is_free)
{
	int r = dlock_attr_create(ret);

	if (r == 0)
		dlock_attr_set_wait_daemon(*ret, true);
	return r ? r : dlock_attr_set_free(*ret, is_free);
}

static int barrier_open(void **ret, const char *name, unsigned parties)
{
	dlock_attr_t *a;
	dlock_barrier_t *b = NULL;
	int r = attr_of(&a, false);

	r = r ? r : dlock_barrier_open(&b, name, parties, a);
	dlock_attr_destroy(a);
	*ret = b;
	return r;
}

static int open_for_two(void **ret, const char *name)
{
	return barrier_open(ret, name, 2);
}

static int open_for_three(void **ret, const char *name)
{
	return barrier_open(ret, name, 3);
}

static int open_pool(void **ret, const char *name)
{
	dlock_attr_t *a;
	dlock_sem_t *m = NULL;
	int r = attr_of(&a, true);

	r = r ? r : dlock_sem_open(&m, name, 0, a);
	dlock_attr_destroy(a);
	*ret = m;
	return r;
}

static int open_room(void **ret, const char *name)
{
	dlock_attr_t *a;
	int r = attr_of(&a, false);

	r = r ? r : dlock_cond_open(&room.cond, name, a);
	r = r ? r : dlock_open(&room.lock, name, a);
	dlock_attr_destroy(a);
	*ret = room.cond;
	return r;
}

/* --- The plays --- */

static const struct play row_of_kinds = {
	.before = { { ONE, act_take, 0, 0, false } }, .asks = { TWO, act_take, 1, 0, true }, .gives = { { ONE, act_give, 0, 0, true } },
	.after = { { TWO, act_still, 1, 0, false }, { TWO, act_give, 1, 0, false } },
};

static const struct play plays[] = {
	{ .title = "an upgrade", .kind = "read",
	  .before = { { ONE, act_take, READ, 0, false }, { TWO, act_take, READ, 0, false } },
	  .asks = { TWO, upgrades, 0, 0, true }, .gives = { { ONE, act_give, READ, 0, true } },
	  .after = { { THREE, act_try_it, READ, EBUSY, false }, { TWO, downgrades, 0, 0, false }, { THREE, act_take, READ, 0, false },
		     { THREE, act_give, READ, 0, false }, { TWO, act_give, READ, 0, false } } },
	{ .title = "a downgrade, and who wants to read", .kind = "read",
	  .before = { { ONE, act_take, WRITE, 0, false } },
	  .asks = { TWO, act_take, READ, 0, true }, .gives = { { ONE, downgrades, 0, 0, true } },
	  .after = { { ONE, act_still, READ, 0, false }, { THREE, act_try_it, WRITE, EBUSY, false }, { ONE, act_give, READ, 0, false },
		     { TWO, act_give, READ, 0, false } } },
	{ .title = "a downgrade, and who wants to write", .kind = "read",
	  .before = { { ONE, act_take, WRITE, 0, false } },
	  .asks = { TWO, act_take, WRITE, 0, true }, .gives = { { ONE, downgrades, 0, 0, true } }, .ends = { ONE, act_give, READ, 0, true },
	  .after = { { TWO, act_give, WRITE, 0, false } } },
	{ .title = "a permit beside one that it has", .kind = "sem",
	  .before = { { ONE, takes_n, 2, 0, false }, { TWO, takes_n, 1, 0, false } },
	  .asks = { TWO, takes_n, 1, 0, true }, .gives = { { ONE, gives_n, 1, 0, true } },
	  .after = { { THREE, tries_n, 1, EAGAIN, false }, { ONE, gives_n, 1, 0, false }, { TWO, gives_n, 2, 0, false },
		     { THREE, takes_n, 3, 0, false } } },
	{ .title = "a resize to more", .kind = "sem",
	  .before = { { ONE, takes_n, 3, 0, false } },
	  .asks = { TWO, takes_n, 2, 0, true }, .gives = { { ONE, resizes, 5, 0, true } },
	  .after = { { THREE, tries_n, 1, EAGAIN, false }, { ONE, act_still, 0, 0, false }, { ONE, gives_n, 3, 0, false },
		     { TWO, gives_n, 2, 0, false } } },
	{ .title = "a resize to fewer", .kind = "sem",
	  .before = { { ONE, takes_n, 2, 0, false } },
	  .asks = { TWO, takes_n, 3, EINVAL, true }, .gives = { { ONE, resizes, 2, 0, true } },
	  .after = { { ONE, gives_n, 2, 0, false }, { TWO, takes_n, 2, 0, false }, { THREE, tries_n, 1, EAGAIN, false } } },
	{ .title = "a value", .kind = "lock",
	  .before = { { ONE, act_take, 0, 0, false }, { ONE, sets, 7, 0, false } },
	  .asks = { TWO, act_take, 0, 0, true }, .gives = { { ONE, act_give, 0, 0, true } },
	  .after = { { TWO, finds, 7, 0, false }, { TWO, act_give, 0, 0, false } } },
	{ .title = "a next term, as others see it", .kind = "election",
	  .before = { { ONE, act_take, 0, 0, false } },
	  .asks = { TWO, sees_the_next, 0, 0, true }, .gives = { { ONE, act_give, 0, 0, true }, { ONE, act_take, 0, 0, true } },
	  .after = { { ONE, act_give, 0, 0, false } }, .stays = true },
	{ .title = "a post of a free semaphore", .open = open_pool,
	  .asks = { TWO, takes_n, 1, 0, true }, .gives = { { ONE, gives_n, 1, 0, true } },
	  .after = { { THREE, tries_n, 1, EAGAIN, false } }, .stays = true },
	{ .title = "a signal", .open = open_room,
	  .asks = { TWO, waits_in_room, 0, 0, true }, .gives = { { ONE, signals, 0, 0, true } }, .stays = true },
	{ .title = "a round", .open = open_for_three,
	  .before = { { THREE, comes, 0, 0, true } },
	  .asks = { TWO, comes, 0, 0, true }, .gives = { { ONE, comes, 0, 0, true } }, .rounds = 1, .stays = true },
	{ .title = "a reset", .open = open_for_three,
	  .asks = { TWO, comes, 0, EPIPE, true }, .gives = { { ONE, resets, 0, 0, true } }, .stays = true },
	{ .title = "a vote", .open = open_for_two,
	  .asks = { TWO, votes, true, 0, true }, .gives = { { ONE, votes, false, 0, true } }, .rounds = 1, .stays = true },
	{ .title = "an enter", .open = open_for_two,
	  .asks = { TWO, enters_it, 0, 0, true }, .gives = { { ONE, enters_it, 0, 0, true } }, .rounds = 1, .stays = true },
	{ .title = "a leave", .open = open_for_two,
	  .before = { { ONE, enters_it, 0, 0, true }, { TWO, enters_it, 0, 0, false } },
	  .asks = { TWO, leaves, 0, 0, true }, .gives = { { ONE, leaves, 0, 0, true } }, .rounds = 2, .lost = EPIPE },
};
#define PLAYS (sizeof plays / sizeof *plays)

/* --- The stage --- */

static void expect(const struct cast *c, bool right, const char *what, int r)
{
	if (right)
		return;
	note("%s: %s (%s)", c->play->title ? c->play->title : c->kind->name, what, r < 0 ? "nothing came" : r ? strerror(r) : "0");
	good = false;
}

static int act_open_it(struct stage *s, uint64_t i)
{
	room.waits = &shared->waits[i];
	return (cast[i].kind ? cast[i].kind->open : cast[i].play->open)(&scene.thing, s->text);
}

static void came(struct cast *c, const struct step *s, struct result r)
{
	expect(c, r.r == s->wanted, s->who == ONE ? "on host 1" : s->who == TWO ? "on host 2" : "another on host 1", r.r);
	c->serials += c->play->rounds && r.r == 0 && r.token;
}

/* Its answers come in their order. */
static void collect(struct cast *c, unsigned who, struct result *ret_last)
{
	for (unsigned i = 0; i < c->due_n[who]; i++) {
		*ret_last = (struct result){ .r = -1 };
		actor_result(&c->actor[who], PATIENCE_MS, ret_last);
		came(c, &c->due[who][i], *ret_last);
	}
	c->due_n[who] = 0;
}

static void does(struct cast *c, const struct step *s)
{
	struct result r;

	if (!s->sleeps) {
		collect(c, s->who, &r);
		r = actor_do(&c->actor[s->who], s->fn, s->arg, NULL);
		came(c, s, r);
		if (s->who == ONE && r.token)
			c->token = r.token;
		return;
	}
	if (!actor_send(&c->actor[s->who], s->fn, s->arg, NULL) || c->due_n[s->who] == DUE)
		give_up("an actor has gone, or has too much to do");
	c->due[s->who][c->due_n[s->who]++] = *s;
}

static void do_all(struct cast *c, const struct step *s, unsigned max)
{
	for (unsigned i = 0; i < max && s[i].fn; i++) {
		does(c, &s[i]);
		if (s == c->play->before && s[i].sleeps && !asleep(c->actor[s[i].who].pid))
			give_up("%s: one who is to wait waits", c->play->title);
	}
}

static void enter_all(struct cast *c)
{
	for (unsigned who = 0; who < ACTORS; who++) {
		int r;

		setenv("DLOCK_RUN_DIR", town_run_dir(who == TWO ? 2 : 1), 1);
		scene.kind = c->kind;
		actor_begin(&c->actor[who]);
		r = actor_do(&c->actor[who], act_open_it, (uint64_t)(c - cast), c->name).r;
		if (r)
			give_up("%s cannot be opened: %s", c->name, strerror(r));
	}
}

static void cast_add(const struct play *p, const struct kind *k)
{
	static unsigned number;
	struct cast *c = &cast[cast_n++];

	*c = (struct cast){ .play = p, .kind = k };
	snprintf(c->name, sizeof c->name, "moves-%u", number++);
}

static const struct kind *kind_of(const char *word)
{
	for (unsigned i = 0; word && i < kinds_count; i++)
		if (!strcmp(kinds[i].word, word))
			return &kinds[i];
	return NULL;
}

static void curtain_up(bool of_the_dead)
{
	if (kinds_count + PLAYS > CAST_MAX)
		give_up("more plays than this test has room for");
	cast_n = 0;
	memset(shared, 0, sizeof *shared);
	for (unsigned i = 0; i < kinds_count; i++)
		cast_add(&row_of_kinds, &kinds[i]);
	for (unsigned i = 0; i < PLAYS; i++)
		if (!of_the_dead || !plays[i].stays)
			cast_add(&plays[i], kind_of(plays[i].kind));
	good = true;
	EACH(c) {
		enter_all(c);
		do_all(c, c->play->before, STEPS);
		does(c, &c->play->asks);
		if (!asleep(c->actor[TWO].pid))
			give_up("%s: who asks sleeps", c->name);
	}
	nap_ns(random_below(200) * MS);          /* by then masters have heard of it, or not */
}

static void curtain_down(void)
{
	EACH(c)
		for (unsigned who = 0; who < ACTORS; who++)
			actor_kill(&c->actor[who], SIGKILL);
}

static void gives(struct cast *c)
{
	c->gave_ns = now_ns();
	do_all(c, c->play->gives, 2);
}

static void comes_to_its_end(struct cast *c)
{
	struct result r;

	collect(c, ONE, &r);
	if (c->play->ends.fn) {
		nap_ns(20 * MS);
		c->gave_ns = now_ns();
		does(c, &c->play->ends);
	}
	collect(c, TWO, &r);
	expect(c, r.at_ns >= c->gave_ns, "it was through before the other had done his part", 0);
	if (c->play == &row_of_kinds)
		expect(c, r.token > c->token, "its token is not above the last one's", 0);
	collect(c, ONE, &r);
	collect(c, THREE, &r);
	do_all(c, c->play->after, STEPS);
	expect(c, c->serials == c->play->rounds, "more or fewer serial parties than rounds", 0);
}

/* How often a lease has ended so far, as none here is to. */
static unsigned lapses(void)
{
	static char log[1 << 20];
	unsigned n = 0;

	for (unsigned i = 1; i <= town.hosts; i++) {
		read_file(town_log("daemon", i), log, sizeof log);
		for (const char *at = log; (at = strstr(at, "its time is over")); at++)
			n++;
	}
	return n;
}

static void all_there(void)
{
	for (unsigned i = 1; i <= town.hosts; i++)
		daemon_await(i);
}

/* --- Masters move --- */

struct way {
	const char *title;
	void (*begins)(void), (*goes_on)(void);
};

static void killed(void)
{
	daemon_kill(3, SIGKILL);
	daemon_kill(4, SIGKILL);
}

static void back(void)
{
	daemon_begin(3);
	daemon_begin(4);
	all_there();
}

static void told_to_stop(void)
{
	kill(town.daemon[4], SIGTERM);
}

static void stopped_and_back(void)
{
	daemon_kill(4, SIGTERM);
	daemon_begin(4);
	daemon_await(4);
}

static void drained(void)
{
	char said[400];

	if (town_command(3, said, sizeof said, "node drain"))
		give_up("drain: %s", said);
}

static bool masters_none(unsigned host)
{
	static char text[4000];

	return !town_command(host, text, sizeof text, "status") && strstr(text, " 0 of 64 shards");
}

static void masters_nothing(void)
{
	char said[400];

	for (uint64_t until = now_ns() + PATIENCE_MS * MS; !masters_none(3);)
		if (now_ns() > until)
			give_up("host 3 does not hand its shards over");
		else
			nap_ns(20 * MS);
	if (town_command(3, said, sizeof said, "node undrain"))
		give_up("undrain: %s", said);
}

/* Every other one does its part at once, those between when masters are there again; odd: the other way round. */
static void move(const struct way *w, unsigned odd)
{
	curtain_up(false);
	w->begins();
	EACH(c)
		if ((unsigned)(c - cast) % 2 == odd)
			gives(c);
	w->goes_on();
	EACH(c)
		if ((unsigned)(c - cast) % 2 != odd)
			gives(c);
	EACH(c)
		comes_to_its_end(c);
	curtain_down();
}

static void story_move(const struct way *w, unsigned odd)
{
	unsigned before, tries = 0;

	do {
		before = lapses();
		move(w, odd);
		all_there();
	} while (lapses() != before && ++tries < TRIES);
	ok(good, "%s: what is under way comes to its end, as it would have", w->title);
}

/* --- The dead holder --- */

static unsigned still_due(uint64_t until)
{
	unsigned n = 0;

	EACH(c) {
		struct result r = { .r = -1 };
		uint64_t now = now_ns();

		if (c->had_ns)
			continue;
		if (!actor_result(&c->actor[TWO], now < until ? (unsigned)((until - now) / MS) : 0, &r)) {
			n++;
			continue;
		}
		c->had_ns = r.at_ns;
		expect(c, r.r == c->play->lost, "who waits for a dead one", r.r);
	}
	return n;
}

/* From the death to when the last one had it, in ms. */
static unsigned death(void)
{
	uint64_t since = now_ns(), last = since;
	unsigned kills = 0;

	daemon_kill(1, SIGKILL);
	daemon_kill(3, SIGKILL);
	EACH(c) {
		actor_kill(&c->actor[ONE], SIGKILL);
		actor_kill(&c->actor[THREE], SIGKILL);
	}
	do {
		daemon_kill(4, SIGKILL);
		daemon_begin(4);
		kills++;
	} while (still_due(since + kills * (TTL_MS / 2) * MS) && kills < 8);
	still_due(now_ns() + PATIENCE_MS * MS);
	EACH(c)
		expect(c, c->had_ns, "who waits for a dead one is forgotten", 0);
	EACH(c)
		if (c->had_ns > last)
			last = c->had_ns;
	note("the coordinator killed %u times: what the dead one held was had, by the last one, after %.0f ms", kills, (double)(last - since) / 1e6);
	return (unsigned)((last - since) / MS);
}

static void story_death(void)
{
	unsigned before, took, tries = 0;
	bool once_more;

	do {
		before = lapses();
		curtain_up(true);
		took = death();
		once_more = lapses() != before || (good && took > BOUND_MS);
		curtain_down();
		town_mend();
		all_there();
	} while (once_more && ++tries < TRIES);
	ok(good && took <= BOUND_MS, "a dead holder, and the master and coordinator killed every TTL / 2: whoever waits is served within %u ms (%u)", BOUND_MS, took);
}

int main(void)
{
	static const struct way kills = { "masters are killed and come back", killed, back },
		stops = { "a master is told to stop, hands over and comes back", told_to_stop, stopped_and_back },
		drains = { "a master is drained", drained, masters_nothing };

	harness_begin(240);
	if (!town_possible())
		return harness_end();
	shared = shared_memory(sizeof *shared);
	town.meek = 2;
	town_begin(4, TTL_MS);
	story_move(&kills, 0);
	story_move(&kills, 1);
	story_move(&stops, 0);
	story_move(&drains, 1);
	story_death();
	return harness_end();
}
