/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Spaces and the names in them: access, memory, and what becomes of one that a client has broken. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shm_rig.h"

/* Whoever allocates is stopped each other time, and goes on. */
static bool stopped, every_other;

int __real_fallocate(int fd, int mode, off_t at, off_t n);
int __wrap_fallocate(int fd, int mode, off_t at, off_t n);

int __wrap_fallocate(int fd, int mode, off_t at, off_t n)
{
	if (stopped && (every_other = !every_other)) {
		errno = EINTR;
		return -1;
	}
	return __real_fallocate(fd, mode, at, n);
}

static void stopped_while_allocating(void **state)
{
	struct rig_client c;
	uint32_t slot, line;
	struct space *s;
	struct rig r;

	(void)state;
	stopped = true;
	rig_open(&r);
	s = rig_space(&r, "x");
	c = rig_client(&r);
	slot = rig_name(&r, &c, s, "n");
	assert_int_equal(value_page_open(s, slot), 0);
	assert_int_equal(reader_line(c.c, s, &line), 0);
	stopped = false;
	rig_client_end(&r, &c);
	rig_done(&r);
}

static bool may(struct space *s, uid_t uid, gid_t gid, gid_t also)
{
	return space_may(s, uid, gid, &also, also ? 1 : 0);
}

static void access_rights(void **state)
{
	struct space_access access = { 10, 20, 0660 };
	struct space *s;
	struct rig r;

	(void)state;
	rig_open(&r);
	assert_int_equal(space_create(r.shm, "x", &access, false, &s), 0);
	assert_true(may(s, 0, 0, 0));
	assert_true(may(s, 10, 99, 0));
	assert_true(may(s, 11, 20, 0));
	assert_true(may(s, 11, 99, 20));         /* a supplementary group counts */
	assert_false(may(s, 11, 99, 21));
	access.mode = 0606;
	space_set_access(s, &access);
	assert_false(may(s, 11, 20, 0));         /* the group is who the mode shuts out */
	assert_true(may(s, 11, 21, 0));
	access.mode = 0064;
	space_set_access(s, &access);
	assert_false(may(s, 10, 20, 0));         /* and so is the owner */
	assert_true(may(s, 11, 20, 0));
	assert_false(may(s, 11, 21, 0));         /* reading alone is no lock */
	rig_done(&r);
}

static void on_demand(void **state)
{
	struct peer p = { .uid = 1000, .gid = 1000 }, q = { .uid = 1001, .gid = 1001 };
	struct space *s, *t;
	struct rig r;

	(void)state;
	rig_open(&r);
	assert_int_equal(space_get(r.shm, "mine", 4, &p, &s), -ENOENT);
	r.shm->config.spaces_on_demand = true;
	assert_int_equal(space_get(r.shm, "mine", 4, &p, &s), 0);
	assert_int_equal(space_get(r.shm, "mine", 4, &q, &t), -EACCES);
	assert_int_equal(space_get(r.shm, "mine", 4, &p, &t), 0);
	assert_ptr_equal(s, t);
	assert_int_equal(space_get(r.shm, "min", 3, &q, &t), 0);
	assert_ptr_not_equal(s, t);
	rig_done(&r);
}

/* Names of files that the daemon itself needs must not be in anybody's reach. */
static void odd_names(void **state)
{
	static const char *const names[] = { "node", "head", "clients", "spaces", "opens", "names", "long", "shm",
					     "a", "-", "_", "A", "default-bell" };
	struct rig r;

	(void)state;
	rig_open(&r);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		rig_space(&r, names[i]);
	rig_stop(&r);
	assert_int_equal(rig_adopt(&r), 0);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		assert_non_null(space_find(r.shm, names[i], strlen(names[i])));
	assert_int_equal(r.shm->ledger.spaces.n, sizeof names / sizeof *names);
	rig_done(&r);
}

static void names_of_all_lengths(void **state)
{
	char text[ATTACH_NAME_MAX + 1];
	struct rig_client c;
	struct name_text t;
	struct space *s;
	struct rig r;

	(void)state;
	rig_open(&r);
	s = rig_space(&r, "x");
	c = rig_client(&r);
	memset(text, 'n', sizeof text);
	for (size_t n = 1; n <= ATTACH_NAME_MAX; n++) {
		uint32_t slot, account;

		assert_int_equal(client_open(c.c, r.shm, s, &(struct client_what){ .name = text, .len = n }, &slot, &account), 0);
		assert_int_equal(slot, n);
		t = name_text(s, slot);
		assert_int_equal(t.n, n);
		assert_memory_equal(t.p, text, n);
	}
	assert_int_equal(s->longs.n, ATTACH_NAME_MAX - LEDGER_NAME_SHORT);
	for (size_t n = 1; n <= ATTACH_NAME_MAX; n++)
		assert_int_equal(name_find(s, KIND_LOCK, text, n), n);
	assert_int_equal(name_find(s, KIND_LOCK, "m", 1), 0);
	rig_stop(&r);
	assert_int_equal(rig_adopt(&r), 0);
	s = rig_space(&r, "x");
	for (size_t n = 1; n <= ATTACH_NAME_MAX; n++)
		assert_int_equal(name_find(s, KIND_LOCK, text, n), n);
	rig_client_end(&r, &c);
	assert_int_equal(s->names.n, 0);
	assert_int_equal(s->longs.n, 0);
	rig_done(&r);
}

static void many_names(void **state)
{
	enum { N = 20000 };
	struct rig_client c;
	struct space *s;
	char text[40];
	struct rig r;
	long before;

	(void)state;
	rig_open(&r);
	s = rig_space(&r, "x");
	c = rig_client(&r);
	rig_name(&r, &c, s, "first");
	before = rig_blocks(&r);
	for (int i = 0; i < N; i++) {
		snprintf(text, sizeof text, i % 2 ? "%d" : "%d-and-so-long-that-it-lies-elsewhere", i);
		rig_name(&r, &c, s, text);
	}
	assert_true(s->n_buckets >= N / 2);
	for (int i = 0; i < N; i++) {
		snprintf(text, sizeof text, i % 2 ? "%d" : "%d-and-so-long-that-it-lies-elsewhere", i);
		uint32_t slot = name_find(s, KIND_LOCK, text, strlen(text));

		assert_int_not_equal(slot, 0);
		assert_int_equal(client_close(c.c, r.shm, s, slot), 0);
		assert_int_equal(name_find(s, KIND_LOCK, text, strlen(text)), 0);
	}
	assert_int_equal(s->names.n, 1);
	assert_int_equal(s->n_buckets, 64);
	assert_true(rig_blocks(&r) <= before + 2 * 128 + 16);    /* the first chunk of a table, and pages of bits, stay */
	rig_client_end(&r, &c);
	rig_done(&r);
}

static void slot_again(void **state)
{
	struct rig_client a, b;
	struct space *s;
	uint32_t slot;
	struct rig r;

	(void)state;
	rig_open(&r);
	s = rig_space(&r, "x");
	a = rig_client(&r);
	b = rig_client(&r);
	slot = rig_name(&r, &a, s, "one");
	rig_want(s, slot);
	rig_turn(&r);
	assert_true(rig_take(s, slot, &a));
	*rig_word(s, slot) &= ~(LOCK_OWNER | LOCK_MODE);
	assert_int_equal(client_close(a.c, r.shm, s, slot), 0);
	*rig_word(s, slot) = UINT64_MAX;         /* who has closed it scribbles nevertheless */
	seg_slot(s->base, slot)->bias = 77;
	seg_bit_set(s->base, SEG_WATCH, slot);
	seg_bit_set(s->base, SEG_WANT, slot);
	assert_int_equal(rig_name(&r, &b, s, "two"), slot);
	assert_int_equal(*rig_word(s, slot), 0);
	rig_ring(s);
	rig_turn(&r);
	assert_int_equal(r.wants, 1);
	assert_false(rig_take(s, slot, &b));
	rig_want(s, slot);
	rig_turn(&r);
	assert_true(rig_take(s, slot, &b));
	*rig_word(s, slot) &= ~(LOCK_OWNER | LOCK_MODE);
	assert_int_equal(seg_slot(s->base, slot)->bias + lock_count(*rig_word(s, slot)), r.next_token - r.range);
	rig_client_end(&r, &a);
	rig_client_end(&r, &b);
	assert_int_equal(s->names.n, 0);
	rig_done(&r);
}

/* A name with a lease whose tokens are used up; the core is asked for more. */
static uint32_t name_that_asks(struct rig *r, struct rig_client *a, struct space *s)
{
	uint32_t slot = rig_name(r, a, s, "n");
	uint64_t was;

	r->silent = false;
	rig_want(s, slot);
	rig_turn(r);
	r->silent = true;
	assert_true(lock_close(rig_word(s, slot), 0, &was));
	rig_want(s, slot);
	rig_turn(r);
	return slot;
}

static void close_races_the_answer(void **state)
{
	struct rig_client a;
	struct space *s;
	uint32_t slot;
	struct rig r;

	(void)state;
	rig_open(&r);
	s = rig_space(&r, "x");
	a = rig_client(&r);
	slot = name_that_asks(&r, &a, s);
	assert_int_equal(r.wants, 2);
	assert_int_equal(client_close(a.c, r.shm, s, slot), 0);
	assert_int_equal(s->names.n, 1);         /* the answer has to find it */
	assert_int_equal(rig_name(&r, &a, s, "n"), slot);        /* opened again meanwhile: the same one */
	assert_int_equal(client_close(a.c, r.shm, s, slot), 0);
	rig_grant(&r, s, slot);
	assert_int_equal(r.releases, 1);
	assert_int_equal(s->names.n, 0);
	slot = name_that_asks(&r, &a, s);
	assert_int_equal(client_close(a.c, r.shm, s, slot), 0);
	space_refused(s, slot);
	assert_int_equal(s->names.n, 0);
	rig_client_end(&r, &a);
	rig_done(&r);
}

/* Takes what is left of the file system. */
static void fill(const struct rig *r)
{
	int fd = openat(r->rundir, "fill", O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	for (off_t at = 0; posix_fallocate(fd, at, 4096) == 0; at += 4096)
		;
	close(fd);
}

static void full(void **state)
{
	struct rig_client c;
	struct space *s, *t = NULL;
	struct space_access access = { 0, 0, 0660 };
	uint32_t slot, account, n = 0;
	struct rig r;
	unsigned fds;
	long before;
	char text[240];
	int e;

	if (!*(bool *)*state)
		skip();
	rig_open_sized(&r, "1600k");
	s = rig_space(&r, "x");
	c = rig_client(&r);
	rig_name(&r, &c, s, "first");
	fds = rig_fds();
	memset(text, '.', sizeof text);
	for (;; n++) {
		int len = snprintf(text, sizeof text, "%u", n);

		text[len] = '.';
		e = client_open(c.c, r.shm, s, &(struct client_what){ .name = text, .len = sizeof text }, &slot, &account);
		if (e < 0)
			break;
	}
	assert_int_equal(e, -ENOSPC);
	assert_true(n > 500);
	fill(&r);
	before = rig_blocks(&r);
	for (int i = 0; i < 100; i++) {
		text[0] = '!';
		assert_int_equal(client_open(c.c, r.shm, s, &(struct client_what){ .name = text, .len = sizeof text }, &slot, &account), -ENOSPC);
		e = space_create(r.shm, "another", &access, false, &t);
		assert_int_equal(e, -ENOSPC);
	}
	assert_int_equal(rig_blocks(&r), before);
	assert_int_equal(rig_fds(), fds);
	assert_int_equal(s->names.n, n + 1);
	assert_int_equal(s->longs.n, n);
	assert_int_equal(r.shm->ledger.opens.n, n + 1);
	assert_int_equal(r.shm->ledger.spaces.n, 1);
	rig_want(s, 1);
	rig_turn(&r);
	assert_true(rig_take(s, 1, &c));         /* what is there goes on */
	*rig_word(s, 1) &= ~(LOCK_OWNER | LOCK_MODE);
	rig_client_end(&r, &c);
	fake_loop_advance(r.loop, NSEC_PER_SEC);
	assert_int_equal(s->names.n, 0);
	assert_int_equal(space_create(r.shm, "another", &access, false, &t), 0);
	rig_done(&r);
}

/* --- broken ones --- */

static void broken(void **state)
{
	struct rig_client a, b;
	struct space *s, *t, *other;
	uint32_t held, idle, slot, elsewhere;
	uint64_t generation;
	struct rig r;

	(void)state;
	rig_open(&r);
	s = rig_space(&r, "x");
	other = rig_space(&r, "y");
	a = rig_client(&r);
	b = rig_client(&r);
	held = rig_name(&r, &a, s, "held");
	rig_name(&r, &b, s, "held");
	idle = rig_name(&r, &a, s, "idle");
	elsewhere = rig_name(&r, &a, other, "e");
	rig_want(s, held);
	rig_want(other, elsewhere);
	rig_turn(&r);
	assert_true(rig_take(s, held, &a));
	assert_true(rig_take(other, elsewhere, &a));
	assert_false(rig_take(s, held, &b));
	generation = s->generation;
	space_break(s, "test");
	assert_int_equal(r.shm->page.line[s->id].ns, NODE_GONE);
	assert_int_equal(r.shm->page.line[s->id].ticks, 0);
	t = space_find(r.shm, "x", 1);
	assert_non_null(t);
	assert_ptr_not_equal(t, s);
	assert_int_not_equal(t->generation, generation);
	assert_int_equal(r.shm->page.line[t->id].ns, NODE_NEVER);
	slot = rig_name(&r, &b, t, "held");      /* before it has been wound up */
	assert_true(LOCK_LOAD(rig_word(t, slot)) & LOCK_D);
	rig_turn(&r);
	assert_int_equal(LOCK_LOAD(rig_word(s, held)), 0);
	assert_true(LOCK_LOAD(rig_word(t, slot)) & LOCK_D);
	assert_int_equal(name_find(t, KIND_LOCK, "idle", 4), 0);
	assert_int_equal(r.releases, 1);
	assert_int_equal(LOCK_LOAD(rig_word(other, elsewhere)) & LOCK_OWNER, a.index);
	assert_int_equal(r.shm->page.line[other->id].ns, NODE_NEVER);
	/* The old one goes when nobody has it open any more. */
	assert_int_equal(client_close(a.c, r.shm, s, held), 0);
	assert_int_equal(client_close(b.c, r.shm, s, held), 0);
	rig_turn(&r);
	assert_ptr_equal(r.shm->spaces[s->id], s);
	assert_int_equal(client_close(a.c, r.shm, s, idle), 0);
	uint32_t id = s->id;
	rig_turn(&r);
	assert_null(r.shm->spaces[id]);
	assert_int_equal(ledger_space(&r.shm->ledger, id)->used, SPACE_GONE);
	rig_name(&r, &a, t, "again");
	rig_client_end(&r, &a);
	rig_client_end(&r, &b);
	rig_done(&r);
}

/* On a node alone it stays, and so does the mark; among others it goes back with the lease. */
static void unmended(void **state)
{
	struct rig_client a;
	struct space *s;
	uint32_t slot;
	struct rig r;

	(void)state;
	for (unsigned many = 0; many < 2; many++) {
		rig_open(&r);
		r.shm->config.many = many;
		s = rig_space(&r, "x");
		a = rig_client(&r);
		slot = rig_name(&r, &a, s, "n");
		r.lost = true;
		rig_want(s, slot);
		rig_turn(&r);
		assert_true(LOCK_LOAD(rig_word(s, slot)) & LOCK_D);
		assert_int_equal(client_close(a.c, r.shm, s, slot), 0);
		rig_turn(&r);
		assert_int_equal(r.releases, many);
		assert_true(r.died == many);
		assert_int_equal(name_find(s, KIND_LOCK, "n", 1) != 0, !many);
		rig_client_end(&r, &a);
		rig_done(&r);
	}
}

/* The same name in the space that comes after could not be claimed beside it. */
static void broken_while_it_claims(void **state)
{
	struct rig_client a;
	struct space *s;
	uint32_t asked, tried;
	struct rig r;

	(void)state;
	rig_open(&r);
	s = rig_space(&r, "x");
	a = rig_client(&r);
	asked = rig_name(&r, &a, s, "asked");
	tried = rig_name(&r, &a, s, "tried");
	r.silent = true;
	rig_want(s, asked);
	rig_turn(&r);
	assert_int_equal(r.wants, 1);
	assert_true(name_soon(s, tried));
	space_break(s, "test");
	rig_turn(&r);
	assert_int_equal(r.releases, 2);
	assert_int_equal(client_close(a.c, r.shm, s, asked), 0);
	assert_int_equal(client_close(a.c, r.shm, s, tried), 0);
	rig_client_end(&r, &a);
	rig_done(&r);
}

static void cut(void **state)
{
	struct rig_client a;
	struct space *s;
	uint32_t slot;
	struct rig r;
	int how;

	(void)state;
	for (how = 0; how < 4; how++) {
		rig_open(&r);
		s = rig_space(&r, "x");
		a = rig_client(&r);
		slot = rig_name(&r, &a, s, "n");
		rig_want(s, slot);
		fake_loop_advance(r.loop, 10 * NSEC_PER_MSEC);   /* it sleeps, and does not look for itself */
		assert_int_equal(ftruncate(s->fd, how == 1 ? (off_t)SEG_SIZE + 4096 : how == 3 ? 8192 : 0), 0);
		switch (how) {
		case 0: rig_ring(s); break;
		case 1: assert_false(space_sound(s)); break;
		case 2: rig_client_end(&r, &a); rig_ring(s); break;
		case 3: assert_int_equal(client_close(a.c, r.shm, s, slot), 0); rig_ring(s); break;
		}
		rig_turn(&r);
		assert_true(rig_said(&r, "space-broken x/"));
		s = space_find(r.shm, "x", 1);
		assert_non_null(s);
		a = rig_client(&r);
		slot = rig_name(&r, &a, s, "n");
		rig_want(s, slot);
		rig_turn(&r);
		assert_true(rig_take(s, slot, &a));
		rig_client_end(&r, &a);
		rig_done(&r);
	}
}

/* A client breaks its space as often as it can, and lets go of nothing. */
static void broken_often(void **state)
{
	struct peer p = { .uid = 10, .gid = 20 };
	struct space_access access = { 10, 20, 0600 };
	struct rig_client a;
	struct space *s, *other;
	unsigned fds, made = 0;
	struct rig r;

	(void)state;
	rig_open(&r);
	other = rig_space(&r, "y");
	assert_int_equal(space_create(r.shm, "x", &access, false, &s), 0);
	a = rig_client(&r);
	fds = rig_fds();
	for (int i = 0; i < 2000; i++) {
		int e = space_get(r.shm, "x", 1, &p, &s);

		assert_true(e == 0 || e == -EAGAIN);
		if (e == 0) {
			made++;
			rig_name(&r, &a, s, "n");
			space_break(s, "test");
		}
		fake_loop_advance(r.loop, 10 * NSEC_PER_MSEC);
	}
	assert_true(made >= 16 && made <= 40);   /* in twenty seconds */
	assert_true(rig_fds() <= fds + 6 * made);
	rig_name(&r, &a, other, "n");
	assert_int_equal(space_get(r.shm, "z", 1, &p, &s), -ENOENT);
	r.shm->config.spaces_on_demand = true;
	p.uid = 11;
	assert_int_equal(space_get(r.shm, "x", 1, &p, &s), -EACCES);     /* nobody takes its name meanwhile */
	rig_client_end(&r, &a);
	fake_loop_advance(r.loop, 20 * NSEC_PER_SEC);
	assert_true(rig_fds() <= fds + 6);
	p.uid = 10;
	assert_int_equal(space_get(r.shm, "x", 1, &p, &s), 0);
	assert_int_equal(space_record(s)->gid, 20);
	assert_int_equal(space_record(s)->mode, 0600);
	rig_done(&r);
}

static void lines_return(void **state)
{
	struct space_access access = { 0, 0, 0600 };
	struct rig_client a;
	struct space *s, *kept;
	uint32_t slot;
	struct rig r;
	char name[20];

	(void)state;
	rig_open(&r);
	a = rig_client(&r);
	kept = rig_space(&r, "kept");
	slot = rig_name(&r, &a, kept, "n");
	uint32_t id = kept->id;
	space_break(kept, "test");
	for (int i = 0; i < 3000; i++) {
		snprintf(name, sizeof name, "s%d", i / 3);
		if (!(s = space_find(r.shm, name, strlen(name))))
			assert_int_equal(space_create(r.shm, name, &access, true, &s), 0);
		assert_int_not_equal(s->id, id);         /* somebody still looks at that line */
		space_record(s)->on_demand = 1;
		space_break(s, "test");
		s = space_find(r.shm, name, strlen(name));
		space_break(s, "test");
		rig_turn(&r);
	}
	assert_int_equal(client_close(a.c, r.shm, kept, slot), 0);
	rig_client_end(&r, &a);
	rig_done(&r);
}

static void no_room_to_replace(void **state)
{
	struct space_access access = { 10, 20, 0600 };
	struct peer p = { .uid = 11, .gid = 21 };
	struct space *s;
	struct rig r;

	if (!*(bool *)*state)
		skip();
	rig_open_sized(&r, "4m");
	r.shm->config.spaces_on_demand = true;
	assert_int_equal(space_create(r.shm, "x", &access, false, &s), 0);
	fill(&r);
	space_break(s, "test");
	assert_true(rig_said(&r, "space-lost x/"));
	assert_null(space_find(r.shm, "x", 1));
	assert_int_equal(unlinkat(r.rundir, "fill", 0), 0);
	assert_int_equal(space_get(r.shm, "x", 1, &p, &s), -EACCES);
	p.uid = 10;
	assert_int_equal(space_get(r.shm, "x", 1, &p, &s), 0);
	assert_int_equal(space_record(s)->gid, 20);
	rig_done(&r);
}

/* --- much at once --- */

static void long_ends_in_slices(void **state)
{
	enum { N = 30000 };
	struct rig_client a, b;
	struct space *s;
	uint32_t slot[2] = { 0 };
	unsigned turns = 0;
	char text[20];
	struct rig r;

	(void)state;
	rig_open(&r);
	s = rig_space(&r, "x");
	a = rig_client(&r);
	b = rig_client(&r);
	for (int i = 0; i < N; i++) {
		uint32_t n;

		snprintf(text, sizeof text, "%d", i);
		n = rig_name(&r, &a, s, text);
		slot[i > 0] = n;
	}
	for (int i = 0; i < 2; i++) {
		rig_want(s, slot[i]);
		rig_turn(&r);
		assert_true(rig_take(s, slot[i], &a));
	}
	snprintf(text, sizeof text, "%d", N - 1);
	rig_name(&r, &b, s, text);
	close(a.anchor);
	while (s->names.n > 2) {                 /* b's, and the one whose owner died */
		unsigned before = s->names.n;

		fake_loop_turn(r.loop);
		assert_true(before - s->names.n <= 200);
		assert_true(++turns < 10000);
		if (turns == N / 1024 + 2) {     /* what it owned is free long before the rest is cleared away */
			assert_true(s->names.n > N / 2);
			assert_true(rig_take(s, slot[1], &b));
		}
	}
	rig_turn(&r);
	assert_int_equal(r.shm->ledger.clients.n, 1);
	for (int i = 0; i < N; i++) {
		snprintf(text, sizeof text, "%d", i);
		rig_name(&r, &b, s, text);
	}
	space_break(s, "test");
	turns = 0;
	for (unsigned n = s->names.n, m; (m = n); turns++) {
		fake_loop_turn(r.loop);
		n = s->names.n;
		assert_true(m - n <= 200);
	}
	assert_true(turns > 100);
	rig_client_end(&r, &b);
	rig_done(&r);
}

static enum value_state value_of(const struct space *s, uint32_t slot)
{
	uint8_t bytes[VALUE_MAX];
	struct value_head h;

	assert_int_equal(value_read(value_page(s, slot), &h, bytes, sizeof bytes), 0);
	return h.state;
}

/* Whatever is leased is said to have lost what it carried. */
static struct space *lost_space(struct rig *r)
{
	rig_open(r);
	r->lost = true;
	return rig_space(r, "x");
}

/* After a fail-over nearly all names are such: they may not fill the disk, nor forget what they carried. */
static void lost_and_closed(void **state)
{
	enum { N = 640 };
	uint8_t bytes[VALUE_MAX];
	struct shm_value left;
	struct rig_client a;
	struct space *s;
	uint32_t slot;
	char text[20];
	struct rig r;
	long blocks;

	(void)state;
	s = lost_space(&r);
	a = rig_client(&r);
	blocks = rig_blocks(&r);
	for (int i = 0; i < N; i++) {
		snprintf(text, sizeof text, "%d", i);
		slot = rig_name(&r, &a, s, text);
		rig_want(s, slot);
		fake_loop_advance(r.loop, 20 * NSEC_PER_MSEC);           /* bells are rationed */
		if (i % 10 == 0) {
			assert_int_equal(client_value(a.c, r.shm, s, slot), 0);
			assert_int_equal(value_of(s, slot), VALUE_LOST);
		}
		assert_int_equal(client_close(a.c, r.shm, s, slot), 0);
		assert_true(value_left(s, slot, &left, bytes));
		assert_int_equal(left.state, VALUE_LOST);
	}
	rig_turn(&r);
	assert_int_equal(s->names.n, N);         /* they stay, for whoever wants to know that an owner died ... */
	assert_true(rig_blocks(&r) - blocks < N * 2);    /* ... and have a kilobyte each at most */
	rig_client_end(&r, &a);
	rig_stop(&r);
	assert_int_equal(rig_adopt(&r), 0);
	s = rig_space(&r, "x");
	a = rig_client(&r);
	slot = rig_name(&r, &a, s, "7");
	assert_int_equal(client_value(a.c, r.shm, s, slot), 0);
	assert_int_equal(value_of(s, slot), VALUE_LOST);
	rig_client_end(&r, &a);
	rig_done(&r);
}

static void publish(struct space *s, uint32_t slot, uint64_t token)
{
	struct value_head h = { .state = VALUE_KNOWN, .token = token, .count = 1, .len = 3 };
	struct value_page *p = value_page(s, slot);
	uint64_t claim = 0;

	assert_true(value_claim(p, value_load(p), &claim));
	value_fill(p, claim, &h, "new");
	assert_int_equal(value_publish(p, claim, &h, true, false), 0);
}

static void lost_and_open(void **state)
{
	enum { N = 640 };
	uint8_t bytes[VALUE_MAX];
	struct shm_value left;
	struct rig_client a, b;
	struct space *s;
	uint32_t slot;
	char text[20];
	struct rig r;
	long blocks;

	(void)state;
	s = lost_space(&r);
	a = rig_client(&r);
	b = rig_client(&r);
	slot = rig_name(&r, &a, s, "first");
	rig_name(&r, &b, s, "first");
	blocks = rig_blocks(&r);
	for (int i = 0; i < N; i++) {
		snprintf(text, sizeof text, "%d", i);
		rig_want(s, rig_name(&r, &a, s, text));
		fake_loop_advance(r.loop, 20 * NSEC_PER_MSEC);
	}
	assert_true(rig_blocks(&r) - blocks < N * 2);    /* as above; a page is eight of them */
	rig_want(s, slot);
	fake_loop_advance(r.loop, 20 * NSEC_PER_MSEC);
	assert_true(value_left(s, slot, &left, bytes) && left.state == VALUE_LOST);
	assert_int_equal(client_value(a.c, r.shm, s, slot), 0);
	assert_int_equal(value_of(s, slot), VALUE_LOST);
	assert_int_equal(value_page(s, slot)->floor, name_at(s, slot)->first);
	assert_true(value_left(s, slot, &left, bytes) && left.state == VALUE_LOST);
	publish(s, slot, name_at(s, slot)->first);
	assert_int_equal(client_value(b.c, r.shm, s, slot), 0);          /* who asks later undoes nothing */
	assert_int_equal(value_of(s, slot), VALUE_KNOWN);
	assert_true(value_left(s, slot, &left, bytes) && left.state == VALUE_KNOWN && left.len == 3);
	rig_client_end(&r, &a);
	rig_client_end(&r, &b);
	rig_done(&r);
}

static void dies_while_leaving(void **state)
{
	enum { N = 5000 };
	struct rig_client a;
	struct space *s;
	char text[20];
	struct rig r;

	(void)state;
	rig_open(&r);
	s = rig_space(&r, "x");
	a = rig_client(&r);
	for (int i = 0; i < N; i++) {
		snprintf(text, sizeof text, "%d", i);
		rig_name(&r, &a, s, text);
	}
	close(a.anchor);
	for (int i = 0; i < 20; i++)
		fake_loop_turn(r.loop);
	assert_true(s->names.n > 0 && s->names.n < N);
	rig_stop(&r);
	assert_int_equal(rig_adopt(&r), 0);
	rig_turn(&r);
	assert_int_equal(rig_space(&r, "x")->names.n, 0);
	assert_int_equal(r.shm->ledger.clients.n, 0);
	assert_int_equal(r.shm->ledger.opens.n, 0);
	rig_done(&r);
}

int main(void)
{
	static bool small;
	const struct CMUnitTest tests[] = {
		STORY(access_rights, "a space is open to its owner, its group, supplementary groups and others as its mode says"),
		STORY(on_demand, "a space on demand belongs to who asked for it first"),
		STORY(odd_names, "no name of a space gets in the way of the daemon's own files"),
		STORY(names_of_all_lengths, "names of one to 255 bytes are kept, found, and found after a restart"),
		STORY(stopped_while_allocating, "a daemon that is stopped while it allocates, and goes on, has what it wanted"),
		STORY(many_names, "twenty thousand names come and go, and their memory with them"),
		STORY(slot_again, "a slot that is used again starts closed, whatever was scribbled there"),
		STORY(close_races_the_answer, "a name that is closed while the core is asked is given back with the answer"),
		{ "where memory is full an open fails with ENOSPC, and nothing leaks", full, NULL, NULL, &small },
		STORY(lost_and_closed, "whose value is lost, and whom nobody has open, needs no page to know it"),
		STORY(lost_and_open, "whose value is lost has no page before a client asks for it; then it says so, until he has published another"),
		STORY(broken, "a broken space is replaced; what was leased starts as owner-died; others notice nothing"),
		STORY(cut, "a segment that is truncated or enlarged is noticed, survived and replaced"),
		STORY(unmended, "a name that was left unmended stays, unless others can be told"),
		STORY(broken_while_it_claims, "a space that breaks takes back what it has claimed"),
		STORY(broken_often, "who breaks its space again and again has to wait, and holds up nobody else"),
		STORY(lines_return, "lines of lost spaces return, but none that somebody looks at"),
		{ "a space that cannot be replaced at once is made later, with the access that it had", no_room_to_replace, NULL, NULL, &small },
		STORY(long_ends_in_slices, "a client and a space with very many names end in slices, what was owned first"),
		STORY(dies_while_leaving, "a daemon that dies amidst such an end leaves it to its successor"),
	};

	small = rig_private();
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
