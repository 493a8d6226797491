/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Readers and owners in each other's way (proto/readers.h, proto/lockword.h): between any two of a reader's looks the others do what takes
 * the longest, and the judge counts who is inside.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#include <cmocka.h>

static void between(void);

static inline int wakes_one(const void *word, unsigned class)
{
	return word && class;
}

#define LOCK_OPS
#define LOCK_LOAD(p) (between(), __atomic_load_n((p), __ATOMIC_SEQ_CST))
#define LOCK_CAS(p, old, new, order)                                                           \
	(between(), __atomic_compare_exchange_n((p), (old), (new), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
#define LOCK_WAKE(p, n, class) wakes_one((p), (class))
#define READ_LOAD(p)     (between(), __atomic_load_n((p), __ATOMIC_SEQ_CST))
#define READ_EMPTY(p)    (between(), __atomic_store_n((p), 0, __ATOMIC_SEQ_CST))
#define READ_SWAP(p, v)  (between(), __atomic_exchange_n((p), (v), __ATOMIC_SEQ_CST))
#define READ_OR(p, v)    (between(), __atomic_fetch_or((p), (v), __ATOMIC_SEQ_CST))
#define READ_AND(p, v)   (between(), __atomic_fetch_and((p), (v), __ATOMIC_SEQ_CST))
#define READ_WAKE(p)     ((void)(p))
#include "proto/readers.h"

#define SLOT   7u
#define LINE   65u                       /* of the reader under test; 1 shares its mark */
#define USED   128u
#define WRITER 2u
#define OTHER  3u

static char *base;
static struct seg_slot *slot;
static long countdown;                   /* looks until the others have their turn; 0: they had it */
static void (*others)(void);

static bool writing;                     /* somebody is alone inside */
static uint64_t written;                 /* the highest number of one who was */

static void between(void)
{
	if (countdown && --countdown == 0)
		others();
}

static void begin(uint64_t word)
{
	if (base)
		munmap(base, SEG_SIZE);
	base = mmap(NULL, SEG_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_true(base != MAP_FAILED);
	slot = seg_slot(base, SLOT);
	slot->word = word;
	slot->gate = 5 * GATE_ERA_ONE + 3 * GATE_GRANT;
	writing = false;
	written = 0;
}

static bool is_read(void)
{
	return readers_inside(base, slot, cell_of(SLOT, slot->gate), USED, NULL);
}

/* As libclient/wait_shared.c, of one who does not wait. Whether he got in: writing. */
static uint64_t write_begin(bool drop)
{
	struct lock_waiter t = { .me = WRITER | LOCK_EXCLUSIVE };
	uint64_t w;

	if (lock_turn(&slot->word, &t, &w) != LOCK_TAKEN)
		return 0;
	if (is_read()) {
		lock_release(&slot->word, w, 0);
		return 0;
	}
	if ((w & LOCK_R) && !lock_enter(&slot->word, &w, drop))
		return 0;
	writing = true;
	written = slot->bias + lock_number(w);
	return w;
}

static void write_end(uint64_t w)
{
	if (w)
		lock_release(&slot->word, w, 0);
	writing = false;
}

/* One of another line, with the same mark, comes to read by owning the word. */
static void mark_and_read(void)
{
	struct lock_waiter t = { .me = OTHER };
	uint64_t w;

	if (lock_turn(&slot->word, &t, &w) != LOCK_TAKEN)
		return;
	READ_OR(&slot->readers, line_mark(LINE));
	READ_SWAP(&seg_line(base, LINE % 64)[0], cell_of(SLOT, slot->gate) | 1);
	lock_release(&slot->word, w, LOCK_READERS);
}

static void write_then_mark(void)
{
	write_end(write_begin(false));
	mark_and_read();
}

/* One whose hold was taken away before makes his mark at last, and someone is inside. */
static void late_mark(void)
{
	write_begin(false);
	READ_OR(&slot->readers, line_mark(LINE));
}

static void dropped_and_read_again(void)
{
	write_end(write_begin(true));
	mark_and_read();
}

/* Returns whether the others had their turn. */
static bool reader_meets(void (*turn)(void), bool marked, long at)
{
	uint64_t *cell, number = 0, gate;
	bool inside;

	begin(lock_range_word(1000) | LOCK_R);
	cell = &seg_line(base, LINE)[0];
	gate = slot->gate;
	slot->readers = marked ? line_mark(LINE) : 0;
	others = turn;
	countdown = at;
	inside = read_enter(slot, cell, cell_of(SLOT, gate), gate, line_mark(LINE), LOCK_SLOW, &number);
	if (inside && writing)
		fail_msg("at look %ld: a reader and a writer are inside", at);
	if (inside && number <= written)
		fail_msg("at look %ld: a reader's number is not above an earlier writer's", at);
	if (!inside)
		read_leave(slot, cell);
	return !countdown;
}

static void nobody_comes_beside_a_writer(void **state)
{
	static void (*const turns[])(void) = { write_then_mark, late_mark, dropped_and_read_again };

	(void)state;
	for (unsigned i = 0; i < 2 * sizeof turns / sizeof *turns; i++)
		for (long at = 1; reader_meets(turns[i / 2], i % 2, at); at++)
			;
	countdown = 0;
}

/* The daemon has seen all readers leave; until it closes the word, who goes before the queue has it, and reads again. */
static uint64_t upgraders;

static void upgrade(void)
{
	struct lock_waiter t = { .me = OTHER | LOCK_EXCLUSIVE, .first = true };

	if (lock_turn(&slot->word, &t, &upgraders) != LOCK_TAKEN)
		return;
	assert_true(lock_enter(&slot->word, &upgraders, false));
	READ_SWAP(&seg_line(base, LINE)[0], 0);
}

static void downgrade(void)
{
	if (!upgraders)
		return;
	READ_SWAP(&seg_line(base, LINE)[0], cell_of(SLOT, slot->gate) | 1);
	assert_true(lock_release(&slot->word, upgraders, LOCK_READERS));
	upgraders = 0;
}

static void upgrade_and_downgrade(void)
{
	upgrade();
	downgrade();
}

/* As daemon/shm/yield.c. */
static bool give_back(long downgrade_at)
{
	uint64_t seen, was;
	bool left;

	if (lock_close(&slot->word, 0, &was))
		return true;
	if (!lock_yield(&slot->word))
		return false;
	seen = LOCK_LOAD(&slot->word);
	if (!lock_is_free(seen))
		return false;
	left = !is_read();
	if (downgrade_at) {
		others = downgrade;
		countdown = downgrade_at;
	}
	return left && lock_close(&slot->word, seen, &was);
}

static void lease_stays_while_it_is_read(void **state)
{
	(void)state;
	for (long second = 0; second < 4; second++)
		for (long at = 1; at < 200; at++) {
			begin(lock_range_word(1000) | LOCK_R);
			slot->readers = line_mark(LINE);
			seg_line(base, LINE)[0] = cell_of(SLOT, slot->gate) | 1;
			upgraders = 0;
			others = second ? upgrade : upgrade_and_downgrade;
			countdown = at;
			if (give_back(second) && is_read())
				fail_msg("at look %ld: the lease was given back, and is read", at);
		}
	countdown = 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		{ "nobody comes in beside a writer, whoever else makes his mark meanwhile", nobody_comes_beside_a_writer, NULL, NULL, NULL },
		{ "a lease stays while somebody reads who went before the queue", lease_stays_while_it_is_read, NULL, NULL, NULL },
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
