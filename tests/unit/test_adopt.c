/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A daemon takes over what its predecessor left, whatever clients, the kernel or a death did to it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "deaths.h"

#define MS NSEC_PER_MSEC

/* Two clients, both have "held" and "free" open; a owns "held". */
struct stage {
	struct rig r;
	struct space *s;
	struct rig_client a, b;
	uint32_t held, free;
	uint64_t word, bias;             /* of "held" */
};

static void stage_open(struct stage *t)
{
	rig_open(&t->r);
	t->s = rig_space(&t->r, "x");
	t->a = rig_client(&t->r);
	t->b = rig_client(&t->r);
	t->held = rig_name(&t->r, &t->a, t->s, "held");
	t->free = rig_name(&t->r, &t->a, t->s, "free, and with a name that does not fit");
	rig_name(&t->r, &t->b, t->s, "held");
	rig_name(&t->r, &t->b, t->s, "free, and with a name that does not fit");
	rig_want(t->s, t->held);
	rig_want(t->s, t->free);
	rig_turn(&t->r);
	assert_true(rig_take(t->s, t->free, &t->b));
	assert_true(lock_release(rig_word(t->s, t->free), LOCK_LOAD(rig_word(t->s, t->free)), false));
	assert_true(rig_take(t->s, t->held, &t->a));
	t->word = *rig_word(t->s, t->held);
	t->bias = seg_slot(t->s->base, t->held)->bias;
}

static void adopt(struct stage *t)
{
	if (t->r.shm)
		rig_stop(&t->r);
	assert_int_equal(rig_adopt(&t->r), 0);
	t->s = space_find(t->r.shm, "x", 1);
	assert_non_null(t->s);
	t->a.c = t->r.shm->clients[t->a.index];
	t->b.c = t->r.shm->clients[t->b.index];
	rig_turn(&t->r);
}

static bool is_held(const struct stage *t)
{
	return !((LOCK_LOAD(rig_word(t->s, t->held)) ^ t->word) & LOCK_IDENTITY) &&
	       seg_slot(t->s->base, t->held)->bias == t->bias;
}

/* What the ledger says of itself must agree. */
static void judge(const struct rig *r)
{
	uint32_t opens = 0;

	for (uint32_t i = 0; i < LEDGER_SPACES_MAX; i++) {
		const struct space *s = r->shm->spaces[i];
		uint32_t longs = 0;

		for (uint32_t n = 0; s && !s->broken && (n = table_next(&s->names, n));) {
			struct name_text text = name_text(s, n);
			uint32_t has = 0;

			assert_true(text.n > 0);
			assert_int_equal(name_find(s, KIND_LOCK, text.p, text.n), n);
			for (uint32_t o = 0; (o = table_next(&r->shm->ledger.opens, o));)
				has += ledger_open_at(&r->shm->ledger, o)->space == i &&
				       ledger_open_at(&r->shm->ledger, o)->slot == n;
			assert_int_equal(has, name_at(s, n)->opens);
			assert_true(has || (LOCK_LOAD(rig_word((struct space *)s, n)) & LOCK_D));
			longs += name_at(s, n)->text_long != 0;
			opens += has;
		}
		if (s && !s->broken)
			assert_int_equal(s->longs.n, longs);
	}
	assert_true(opens <= r->shm->ledger.opens.n);
}

static unsigned files_in(const struct rig *r, const char *name)
{
	int fd = openat(r->rundir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fdopendir(fd);
	unsigned n = 0;

	assert_non_null(d);
	for (struct dirent *e; (e = readdir(d));)
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

/* Everybody goes: nothing is left but names that somebody has to be told of. */
static void stage_done(struct stage *t)
{
	rig_client_end(&t->r, &t->a);
	rig_client_end(&t->r, &t->b);
	fake_loop_advance(t->r.loop, 100 * MS);
	judge(&t->r);
	assert_int_equal(t->r.shm->ledger.clients.n, 0);
	assert_int_equal(t->r.shm->ledger.opens.n, 0);
	assert_int_equal(files_in(&t->r, "anchor"), 0);
	assert_int_equal(files_in(&t->r, "hint"), 0);
	assert_int_equal(fake_loop_next_timer(t->r.loop), NSEC_NEVER);
	rig_done(&t->r);
}

static void goes_on(void **state)
{
	struct stage t;

	(void)state;
	stage_open(&t);
	assert_false(rig_take(t.s, t.held, &t.b));       /* W is set; its bell was never heard */
	for (int i = 0; i < 3; i++) {
		adopt(&t);
		assert_true(is_held(&t));
		assert_false(rig_said(&t.r, "scribbled"));
		assert_int_equal(t.s->n_watch, 1);
		judge(&t.r);
	}
	assert_true(rig_take(t.s, t.free, &t.b));
	assert_int_equal(t.r.wants, 0);
	stage_done(&t);
}

/* They say it once, and sleep; the claim that was made with it may come to nothing, or its daemon to an end. */
static void wants_are_remembered(void **state)
{
	struct stage t;
	uint32_t slot;

	(void)state;
	stage_open(&t);
	t.r.silent = true;
	slot = rig_name(&t.r, &t.a, t.s, "wanted");
	READ_OR(&seg_slot(t.s->base, slot)->wants, (uint32_t)WANTS_SHARED);
	assert_int_equal(readers_want(t.s, slot), WANTS_SHARED);
	assert_int_equal(readers_want(t.s, slot), 0);

	READ_OR(&seg_slot(t.s->base, slot)->wants, (uint32_t)WANTS_SHARED);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(readers_want(t.s, slot), WANTS_SHARED);
		if (i == 1)
			adopt(&t);
		else
			space_refused(t.s, slot);
	}
	readers_want_over(t.s, slot);
	adopt(&t);
	assert_int_equal(readers_want(t.s, slot), 0);

	/* Who upgrades is told that he may not. The other sleeps on. */
	READ_OR(&seg_slot(t.s->base, slot)->wants, (uint32_t)(WANTS_UPGRADE | WANTS_EXCLUSIVE));
	assert_int_equal(readers_want(t.s, slot), WANTS_UPGRADE | WANTS_EXCLUSIVE);
	space_refused(t.s, slot);
	assert_int_equal(readers_want(t.s, slot), WANTS_EXCLUSIVE);
	stage_done(&t);
}

static void died_meanwhile(void **state)
{
	struct stage t;

	(void)state;
	stage_open(&t);
	rig_stop(&t.r);
	close(t.a.anchor);
	adopt(&t);
	assert_true(rig_said(&t.r, "owner-died x/held\n"));
	assert_true(rig_take(t.s, t.held, &t.b));
	assert_true(LOCK_LOAD(rig_word(t.s, t.held)) & LOCK_D);
	t.a = rig_client(&t.r);
	stage_done(&t);
}

/* By pid, start time and anchor: all three have to be those of then. */
static void pid_again(void **state)
{
	for (int what = 0; what < 3; what++) {
		struct peer p = { .fd = -1, .pid = getpid(), .pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0) };
		struct ledger_client *rec;
		struct client *c;
		struct stage t;
		uint32_t slot, account, index;
		int anchor;

		(void)state;
		stage_open(&t);
		assert_int_equal(client_new(t.r.shm, &p, 0, &c, &anchor), 0);
		index = c->index;
		assert_int_equal(client_open(c, t.r.shm, t.s, &(struct client_what){ .name = "n", .len = 1 }, &slot, &account), 0);
		rec = ledger_client(&t.r.shm->ledger, index);
		assert_int_not_equal(rec->start_time, 0);
		if (what == 1)
			rec->start_time++;
		if (what == 2)
			rec->pid = 0x3fffffff;
		adopt(&t);
		assert_int_equal(table_in_use(&t.r.shm->ledger.clients, index), what == 0);
		assert_int_equal(name_find(t.s, KIND_LOCK, "n", 1) != 0, what == 0);
		close(anchor);
		stage_done(&t);
	}
}

static void anchor_inherited(void **state)
{
	struct stage t;
	int copy;

	(void)state;
	stage_open(&t);
	copy = fcntl(t.a.anchor, F_DUPFD_CLOEXEC, 3);
	close(t.a.anchor);
	adopt(&t);
	assert_true(is_held(&t));
	t.a.anchor = copy;
	stage_done(&t);
}

/* What a client may have written while nobody looked, and whether the holder can keep its lock. */
static void scribbled(void **state)
{
	enum { HELD, OTHERS, NOBODY, LONG, SHORT, ZERO, ONES, STRANGER, GHOST, COUNTED, CASES };
	struct stage t;

	(void)state;
	for (int what = 0; what < CASES; what++) {
		uint64_t *word;

		stage_open(&t);
		word = rig_word(t.s, t.held);
		switch (what) {
		case HELD: break;
		case OTHERS: *word = (*word & ~LOCK_OWNER) | t.b.index; break;   /* it has the name open: believed */
		case NOBODY: *word &= ~(LOCK_OWNER | LOCK_MODE); break;
		case LONG: *word = lock_range_word(t.r.range + 1) | t.a.index | LOCK_EXCLUSIVE; break;
		case SHORT: *word = lock_range_word(1) | t.a.index | LOCK_EXCLUSIVE; break;
		case ZERO: *word = 0; break;
		case ONES: *word = UINT64_MAX; break;
		case STRANGER: *word = (*word & ~LOCK_OWNER) | 4711; break;
		case GHOST: *word = (*word & ~LOCK_COUNT) | 5 * LOCK_ONE; break;
		case COUNTED: *word = 5 * LOCK_ONE; break;
		}
		seg_bit_set(t.s->base, SEG_WANT, 12345);
		adopt(&t);
		assert_int_equal(rig_said(&t.r, "scribbled x/held\n"), what == LONG || what == GHOST || what == COUNTED);
		assert_int_equal(is_held(&t), what == HELD);
		/* Whatever it was: when the holder is gone others get in, with tokens that rise. */
		rig_client_end(&t.r, &t.a);
		rig_want(t.s, t.held);
		rig_turn(&t.r);
		if ((LOCK_LOAD(rig_word(t.s, t.held)) & LOCK_OWNER) != t.b.index)
			assert_true(rig_take(t.s, t.held, &t.b));
		assert_true(seg_slot(t.s->base, t.held)->bias + lock_count(*rig_word(t.s, t.held)) >= t.bias + lock_count(t.word) ||
			    what == OTHERS || what == SHORT);
		assert_true(rig_take(t.s, t.free, &t.b));
		t.a = rig_client(&t.r);
		stage_done(&t);
	}
}

static void bias_scribbled(void **state)
{
	struct stage t;
	uint64_t free_bias;

	(void)state;
	stage_open(&t);
	free_bias = seg_slot(t.s->base, t.free)->bias;
	seg_slot(t.s->base, t.free)->bias = 1;
	adopt(&t);
	assert_int_equal(seg_slot(t.s->base, t.free)->bias, free_bias);
	assert_true(is_held(&t));
	seg_slot(t.s->base, t.held)->bias = 1;
	adopt(&t);
	assert_true(rig_said(&t.r, "scribbled x/held\n"));
	assert_false(is_held(&t));
	stage_done(&t);
}

static void owner_without_open(void **state)
{
	struct stage t;
	struct rig_client c;
	uint32_t own;

	(void)state;
	stage_open(&t);
	c = rig_client(&t.r);
	own = rig_name(&t.r, &c, t.s, "own");
	*rig_word(t.s, t.held) = (t.word & ~LOCK_OWNER) | c.index;       /* it lives, but has not opened this one */
	adopt(&t);
	assert_true(LOCK_LOAD(rig_word(t.s, t.held)) & LOCK_D);
	assert_true(rig_take(t.s, t.held, &t.b));
	/* Leased says the word, but not the ledger. */
	*rig_word(t.s, own) = lock_range_word(100) | c.index | LOCK_EXCLUSIVE;
	adopt(&t);
	assert_true(rig_said(&t.r, "scribbled x/own\n"));
	assert_true(lock_is_free(LOCK_LOAD(rig_word(t.s, own))));
	assert_false(rig_take(t.s, own, &c));
	rig_client_end(&t.r, &c);
	stage_done(&t);
}

/* A space that is not what the daemon left is lost, and only it. */
static void lost_space(void **state)
{
	enum { GONE, CUT, GROWN, HEAD, GENERATION, LINK, NO_NAMES, NO_LONGS, NAMES_CUT, NO_BELL, BELL_FILE, CASES };
	struct stage t;

	(void)state;
	for (int what = 0; what < CASES; what++) {
		struct space *y;
		uint32_t other, slot;
		int shm, ledger, cut;
		bool kept = what == NO_BELL;

		stage_open(&t);
		y = rig_space(&t.r, "y");
		other = rig_name(&t.r, &t.a, y, "n");
		rig_want(y, other);
		rig_turn(&t.r);
		assert_true(rig_take(y, other, &t.a));
		shm = openat(t.r.rundir, "shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		ledger = openat(t.r.rundir, "ledger", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		switch (what) {
		case GONE: unlinkat(shm, "x", 0); break;
		case CUT: assert_int_equal(ftruncate(t.s->fd, SEG_SLOT_OFF), 0); break;
		case GROWN: assert_int_equal(ftruncate(t.s->fd, SEG_SIZE + 1), 0); break;
		case HEAD: *(uint64_t *)t.s->base = 0; break;
		case GENERATION: ((struct seg_head *)t.s->base)->generation ^= 2; break;
		case LINK: unlinkat(shm, "x", 0); assert_int_equal(symlinkat("y", shm, "x"), 0); break;
		case NO_NAMES: unlinkat(ledger, "names.x", 0); break;
		case NO_LONGS: unlinkat(ledger, "long.x", 0); break;
		case NAMES_CUT:
			rig_stop(&t.r);
			cut = openat(ledger, "names.x", O_RDWR | O_CLOEXEC);
			assert_int_equal(ftruncate(cut, 8192), 0);
			close(cut);
			break;
		case NO_BELL: unlinkat(shm, "x.bell", 0); break;
		case BELL_FILE:
			unlinkat(shm, "x.bell", 0);
			close(openat(shm, "x.bell", O_RDWR | O_CREAT | O_CLOEXEC, 0600));
			break;
		}
		close(shm);
		close(ledger);
		adopt(&t);
		y = space_find(t.r.shm, "y", 1);
		assert_int_equal(LOCK_LOAD(rig_word(y, other)) & LOCK_OWNER, t.a.index);
		assert_int_equal(rig_said(&t.r, "space-broken x/"), !kept);
		assert_int_equal(rig_said(&t.r, "space-broken y/"), 0);
		assert_int_equal(t.r.shm->ledger.spaces.n, kept ? 2 : 3);
		if (!kept) {
			slot = rig_name(&t.r, &t.b, t.s, "held");
			if (what < NO_NAMES)     /* the ledger still knew who had what */
				assert_true(LOCK_LOAD(rig_word(t.s, slot)) & LOCK_D);
			rig_want(t.s, slot);
			rig_turn(&t.r);
			assert_true(rig_take(t.s, slot, &t.b));
			/* Both have names open in the lost one: its line stays, also for the next daemon. */
			adopt(&t);
			assert_int_equal(t.r.shm->ledger.spaces.n, 3);
			assert_int_equal(LOCK_LOAD(rig_word(t.s, slot)) & LOCK_OWNER, t.b.index);
		}
		stage_done(&t);
	}
}

static void page_of_another(void **state)
{
	struct stage t;
	int fd;

	(void)state;
	stage_open(&t);
	rig_stop(&t.r);
	t.r.id.session++;
	assert_int_equal(rig_adopt(&t.r), -ESTALE);
	t.r.id.session--;
	rig_stop(&t.r);
	assert_int_equal(unlinkat(t.r.rundir, "shm/node.page", 0), 0);
	assert_int_equal(rig_adopt(&t.r), -ENOENT);
	rig_stop(&t.r);
	fd = openat(t.r.rundir, "shm/node.page", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(ftruncate(fd, NODE_PAGE_SIZE), 0);
	close(fd);
	assert_int_equal(rig_adopt(&t.r), -ESTALE);
	close(t.a.anchor);
	close(t.b.anchor);
	rig_done(&t.r);
}

/* --- a new session --- */

static void new_session(void **state)
{
	struct stage t;
	const struct node_line *line;
	uint64_t *word;
	void *base, *page;
	int fd;

	(void)state;
	for (int what = 0; what < 4; what++) {
		stage_open(&t);
		/* As a client has them mapped. */
		fd = dup(t.s->fd);
		base = mmap(NULL, SEG_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
		page = mmap(NULL, NODE_PAGE_SIZE, PROT_READ, MAP_SHARED, t.r.shm->page.fd, 0);
		line = (const struct node_line *)page + t.s->id;
		word = &seg_slot(base, t.held)->word;
		rig_stop(&t.r);
		if (what == 1)
			assert_int_equal(ftruncate(fd, (off_t)SEG_SIZE + 8192), 0);
		if (what == 2)
			assert_int_equal(ftruncate(fd, (off_t)SEG_SLOT_OFF + 100), 0);
		if (what == 3)
			assert_int_equal(ftruncate(fd, 0), 0);
		t.r.id.session++;
		assert_int_equal(rig_begin(&t.r), 0);
		assert_int_equal(line->ns, NODE_GONE);
		assert_int_equal(line->ticks, 0);
		if (what < 2)
			assert_int_equal(LOCK_LOAD(word), 0);
		assert_int_equal(t.r.shm->ledger.clients.n, 0);
		t.s = rig_space(&t.r, "x");
		close(t.a.anchor);
		close(t.b.anchor);
		munmap(base, SEG_SIZE);
		munmap(page, NODE_PAGE_SIZE);
		close(fd);
		rig_done(&t.r);
	}
}

/* --- killed --- */

/* One of everything that the daemon does. */
static void life(void *arg)
{
	struct stage *t = arg;
	struct rig *r = &t->r;
	struct rig_client c = rig_client(r);
	uint32_t own, shared;
	struct space *y;
	int fd;

	shared = rig_name(r, &t->b, t->s, "another name that is too long to be kept there");
	own = rig_name(r, &c, t->s, "own");
	rig_want(t->s, own);
	rig_want(t->s, shared);
	rig_turn(r);
	rig_take(t->s, own, &c);
	rig_take(t->s, own, &t->b);
	rig_watch(t->s, own);
	rig_turn(r);
	hint_open(t->b.c, r->shm, t->s, shared, &fd);
	/* The last token of a range, and the next range. */
	*rig_word(t->s, shared) = (LOCK_COUNT & lock_range_word(1)) | LOCK_W;
	rig_take(t->s, shared, &t->b);
	lock_release(rig_word(t->s, shared), LOCK_LOAD(rig_word(t->s, shared)), false);
	rig_want(t->s, shared);
	rig_turn(r);
	rig_take(t->s, shared, &t->b);
	client_close(t->b.c, r->shm, t->s, shared);
	rig_client_end(r, &c);
	y = rig_space(r, "y");
	own = rig_name(r, &t->b, y, "n");
	rig_want(y, own);
	rig_turn(r);
	rig_take(y, own, &t->b);
	space_break(y, "test");
	fake_loop_advance(r->loop, 20 * MS);
	if ((y = space_find(r->shm, "y", 1)))
		rig_name(r, &t->b, y, "n");
	rig_turn(r);
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
		adopt(&t);
		assert_true(is_held(&t));
		assert_false(rig_said(&t.r, "scribbled"));
		judge(&t.r);
		life(&t);
		assert_true(is_held(&t));
		stage_done(&t);
	}
	print_message("# %d places\n", n - 2);
	assert_true(n > 140);
}

static void take_over(void *arg)
{
	adopt(arg);
}

static void killed_while_adopting(void **state)
{
	bool died = true;
	int n;

	(void)state;
	for (n = 1; died; n++) {
		struct stage t;
		struct rig_client c;
		uint32_t slot;

		stage_open(&t);
		c = rig_client(&t.r);
		slot = rig_name(&t.r, &c, t.s, "left behind");
		rig_name(&t.r, &t.b, t.s, "left behind");
		rig_want(t.s, slot);
		rig_name(&t.r, &c, t.s, "and alone");
		rig_turn(&t.r);
		rig_take(t.s, slot, &c);
		rig_take(t.s, slot, &t.b);
		seg_slot(t.s->base, t.free)->bias = 1;
		rig_stop(&t.r);
		close(c.anchor);
		died = dies_at(n, take_over, &t);
		adopt(&t);
		assert_true(is_held(&t));
		judge(&t.r);
		assert_int_equal(t.s->names.n, 3);
		assert_true(rig_take(t.s, slot, &t.b));
		assert_true(LOCK_LOAD(rig_word(t.s, slot)) & LOCK_D);
		stage_done(&t);
	}
	print_message("# %d places\n", n - 2);
	assert_true(n > 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		STORY(goes_on, "holders hold on, waiters are watched, and nothing is asked for anew"),
		STORY(wants_are_remembered, "what those want who sleep is said once, and remembered until it is granted"),
		STORY(died_meanwhile, "who died while no daemon was there is found dead"),
		STORY(pid_again, "a pid that another process has by now is not the client's"),
		STORY(anchor_inherited, "who still has its anchor somewhere lives"),
		STORY(scribbled, "a word that the ledger cannot confirm loses its holder, and nothing else"),
		STORY(bias_scribbled, "a bias is what the ledger says"),
		STORY(owner_without_open, "nobody owns what it has not opened, or what is not leased"),
		STORY(lost_space, "a space whose parts are gone, cut, foreign or links is lost, and only it"),
		STORY(page_of_another, "a node page of another session, a missing and an empty one are refused"),
		STORY(new_session, "a new session ends what the old one promised, whatever its segments look like"),
		STORY(killed, "killed at any store of its life: the next one completes it"),
		STORY(killed_while_adopting, "killed at any store of taking over: the one after completes that"),
	};

	rig_private();
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
