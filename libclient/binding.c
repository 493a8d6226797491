/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "conn.h"
#include "deadline.h"
#include "handle.h"
#include "read.h"
#include "space.h"

/* Where a handle points that is bound to nothing: a word that cannot be taken, a line that is gone. */
static uint64_t no_word;
static uint64_t no_account[8] = { UINT64_C(1) << 63 | UINT64_C(1) << 31 };      /* semword.h: A B, nothing idle or held */
static const struct node_line no_line = { .ns = NODE_GONE };
static struct binding unbound = { .word = &no_word, .line = &no_line, .slow = SLOW_NEVER_TAKES, .read_key = READ_NEVER,
				  .own = no_account };

static void binding_publish(struct dlock *l, struct binding *b)
{
	b->older = l->bindings;
	__atomic_store_n(&l->bindings, b, __ATOMIC_RELEASE);
	__atomic_store_n(&l->binding, b, __ATOMIC_RELEASE);
}

void binding_close(struct dlock *l)
{
	__atomic_store_n(&l->binding, &unbound, __ATOMIC_RELEASE);
}

static void binding_fill(struct binding *b, const struct dlock *l, const struct target *t)
{
	bool process = l->attr.owner == DLOCK_OWNER_PROCESS;

	*b = (struct binding){
		.word = &seg_slot(t->space->base, t->slot)->word,
		.line = t->line,
		.slow = LOCK_SLOW | (l->attr.robust ? LOCK_D : 0),
		.me = t->client | LOCK_EXCLUSIVE,
		.widen = process ? HOLDER_PROCESS : 0,
		.slot = t->slot,
		.account = t->account,
		.epoch = t->epoch,
		.value = t->value,
		.space = space_ref(t->space),
		.read_key = process ? READ_NEVER : (uint64_t)t->space->serial << 32 | t->epoch,
		.read_as = cell_slot(t->slot),
		.lane = t->space->serial % READ_LANES,
		.own = t->account ? (uint64_t *)seg_slot(t->space->base, t->account) : no_account,
		.lane_off = lane_offset(t->space->serial % READ_LANES),
		.record_off = lane_offset(t->space->serial % READ_LANES) + (uint32_t)offsetof(struct read_line, hold) +
			      t->slot % SEG_LINE_CELLS * (uint32_t)sizeof(struct read_hold),
	};
	/* Any thread may change the depth, so it is done by swaps in slow.c; and no serial is the holder. */
	if (process && l->attr.recursive) {
		b->slow = SLOW_NEVER_TAKES;
		b->widen = 0;
	}
}

static struct binding *binding_new(void)
{
	return aligned_alloc(_Alignof(struct binding), sizeof(struct binding));
}

void binding_init(struct dlock *l, const struct target *t)
{
	binding_fill(&l->first, l, t);
	binding_publish(l, &l->first);
}

int binding_renew(struct dlock *l, const struct target *t)
{
	struct binding *b = binding_new();

	if (!b)
		return -ENOMEM;
	binding_fill(b, l, t);
	binding_publish(l, b);
	return 0;
}

int binding_retire(struct dlock *l, struct binding *b)
{
	struct binding *n;

	if (l->binding != b)
		return 0;                /* another thread did */
	n = binding_new();
	if (!n)
		return -ENOMEM;
	*n = (struct binding){           /* the rest of it is its holders' */
		.word = b->word, .line = b->line, .slow = b->slow, .me = b->me, .widen = b->widen,
		.slot = b->slot, .account = b->account, .epoch = b->epoch, .value = b->value, .space = space_ref(b->space),
		.read_key = b->read_key, .read_as = b->read_as, .lane = b->lane,
		.own = b->own,
		.lane_off = b->lane_off, .record_off = b->record_off,
	};
	binding_publish(l, n);
	return 0;
}

void binding_done(struct dlock *l)
{
	struct binding *b = l->bindings, *older;

	l->binding = &unbound;
	l->bindings = NULL;
	for (; b; b = older) {
		older = b->older;
		space_put(b->space);
		if (b != &l->first)
			free(b);
	}
}

/*
 * No other thread can be in the fast path, so the first is the first again. What the parent had in
 * others stays where it is: the heap may not be whole in a child that bare clone(2) has made.
 */
void binding_child(struct dlock *l)
{
	for (struct binding *b = l->bindings; b; b = b->older)
		b->space->refs--;
	l->bindings = NULL;
	binding_close(l);
}

bool binding_lost(const struct binding *b)
{
	return !b->space || b->epoch != conn_epoch() || deadline_gone(b->line);
}

/*
 * The state is read again after the word. A holder clears it before it releases the word, so what
 * still stands there and does not match the word was lost.
 */
enum hold binding_hold(const struct binding *b)
{
	uint64_t state, held, w;

	for (;;) {
		state = __atomic_load_n(&b->state, __ATOMIC_ACQUIRE);
		held = __atomic_load_n(&b->held, __ATOMIC_ACQUIRE);
		w = __atomic_load_n(b->word, __ATOMIC_ACQUIRE);
		if (!state)
			return HOLD_NONE;
		if (binding_lost(b))
			return HOLD_LOST;
		if (!((w ^ held) & LOCK_IDENTITY))
			return HOLD_GOOD;
		if (__atomic_load_n(&b->state, __ATOMIC_ACQUIRE) == state &&
		    __atomic_load_n(&b->held, __ATOMIC_ACQUIRE) == held)
			return HOLD_LOST;
	}
}

struct binding *binding_of(const struct dlock *l, uint32_t holder)
{
	struct binding *b = __atomic_load_n(&l->bindings, __ATOMIC_ACQUIRE);

	while (b && state_holder(__atomic_load_n(&b->state, __ATOMIC_ACQUIRE)) != holder)
		b = b->older;
	return b;
}

struct seg_cell *binding_show(const struct binding *b, unsigned priority)
{
	struct seg_cell *cells = seg_cells(b->space->base, (uint32_t)(b->me & LOCK_OWNER));
	uint32_t tid = (uint32_t)syscall(SYS_gettid);

	for (unsigned i = 0; i < 8; i++) {
		struct seg_cell *c = &cells[(tid + i) % SEG_CELLS];
		uint32_t none = 0;

		if (__atomic_load_n(&c->slot_plus_one, __ATOMIC_RELAXED) ||
		    !__atomic_compare_exchange_n(&c->slot_plus_one, &none, b->slot + 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			continue;
		__atomic_store_n(&c->tid, tid, __ATOMIC_RELAXED);
		__atomic_store_n(&c->since_ns, (boottime_ns() & SEG_SINCE) | (uint64_t)priority << SEG_SINCE_BITS, __ATOMIC_RELAXED);
		return c;
	}
	return NULL;
}

void binding_hide(struct seg_cell *cell)
{
	if (cell)
		__atomic_store_n(&cell->slot_plus_one, 0, __ATOMIC_RELEASE);
}
