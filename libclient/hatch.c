/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "hatch.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

#include "deadline.h"
#include "proto/futex.h"
#include "proto/hatch.h"
#include "space.h"

#define SLICE_NS    UINT64_C(20000000)   /* until another look whether anybody is there */
#define SPIN_NS     UINT64_C(60000)      /* an answer that comes from another node takes about as long */
#define SPIN_LOOKS  32                   /* between two looks at the clock */
#define SPIN_MISSES 4                    /* in a row: then one time in SPIN_RETRY */
#define SPIN_RETRY  128

static uint32_t misses, turns;

bool hatch_drop(const struct space *s, uint32_t client, uint32_t slot)
{
	struct hatch *h = seg_hatch(s->base, client);
	uint32_t n = __atomic_load_n(&h->drops, __ATOMIC_RELAXED);

	if (n - __atomic_load_n(&h->heard, __ATOMIC_ACQUIRE) >= HATCH_DROPS)
		return false;
	__atomic_store_n(&h->drop[n % HATCH_DROPS], slot, __ATOMIC_RELAXED);
	__atomic_store_n(&h->drops, n + 1, __ATOMIC_RELEASE);
	if (seg_hatch_say_later(s->base, client))
		space_ring(s);
	return true;
}

static bool is_answered(const struct hatch *h, uint32_t asked)
{
	return __atomic_load_n(&h->answered, __ATOMIC_ACQUIRE) == asked;
}

/*
 * Whoever else wants this processor goes first: it may be the daemon. Where that has not helped several times in a row, others
 * want it for longer, and sleeping is cheaper.
 */
static bool spin(const struct hatch *h, uint32_t asked)
{
	uint64_t end;

	if (misses >= SPIN_MISSES && ++turns % SPIN_RETRY)
		return false;
	end = boottime_ns() + SPIN_NS;
	do {
		for (int i = 0; i < SPIN_LOOKS; i++) {
			if (is_answered(h, asked)) {
				misses = 0;
				return true;
			}
			cpu_pause();
		}
		sched_yield();
	} while (boottime_ns() < end);
	misses++;
	return false;
}

/* A slice of sleep. */
static void nap(struct hatch *h, uint32_t asked, const struct limit *limit)
{
	uint32_t seen = __atomic_load_n(&h->answered, __ATOMIC_ACQUIRE);
	struct timespec until = limit_timespec(limit_slice(limit, SLICE_NS));

	__atomic_store_n(&h->sleeps, 1, __ATOMIC_SEQ_CST);
	if (seen != asked && __atomic_load_n(&h->answered, __ATOMIC_SEQ_CST) == seen)
		futex_wait_class(&h->answered, seen, FUTEX_BITSET_MATCH_ANY, limit->clock, &until);
}

static int answer_await(const struct space *s, struct hatch *h, uint32_t client, uint32_t asked, const struct node_line *line,
			bool (*gone)(void), const struct limit *limit)
{
	int r = 0;

	if (spin(h, asked))
		return 0;
	nap(h, asked, limit);
	while (!is_answered(h, asked)) {
		r = limit_over(limit);
		if (r == 0 && gone())
			r = -EPIPE;
		if (r == 0 && __atomic_load_n(&line->generation, __ATOMIC_ACQUIRE) != s->generation)
			r = -EAGAIN;     /* nobody looks at it any more */
		if (r < 0)
			return r;
		if (seg_hatch_say(s->base, client))
			space_ring(s);
		nap(h, asked, limit);
	}
	return 0;
}

int hatch_open(const struct space *s, uint32_t client, const struct conn_what *what, const struct node_line *line, bool (*gone)(void),
	       const struct limit *limit, uint32_t *ret_slot)
{
	struct hatch *h = seg_hatch(s->base, client);
	uint32_t asked = __atomic_load_n(&h->asked, __ATOMIC_RELAXED) + 1;
	int r;

	h->open.flags = what->soon ? ATTACH_SOON : 0;
	h->open.len = (uint8_t)what->name_len;
	memcpy(h->open.name, what->name, what->name_len);
	__atomic_store_n(&h->sleeps, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&h->asked, asked, __ATOMIC_RELEASE);
	if (seg_hatch_say(s->base, client) && !__atomic_exchange_n(seg_belled(s->base), 1, __ATOMIC_SEQ_CST))
		space_ring(s);
	r = answer_await(s, h, client, asked, line, gone, limit);
	if (r < 0)
		return r;
	if (__atomic_load_n(&h->error, __ATOMIC_RELAXED))
		return -EAGAIN;
	*ret_slot = __atomic_load_n(&h->slot, __ATOMIC_RELAXED);
	return *ret_slot && *ret_slot < SEG_SLOTS_MAX ? 0 : -EAGAIN;
}
