/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Futexes that are woken at the end of the turn, in the system call that the loop makes anyway. Who is woken by a call of its own and runs
 * on this processor goes first when that call returns: so each of many cost a call, and a switch to him and back, before
 * the next one was woken. They go before what is to be sent, which takes longer; another processor can begin with them meanwhile.
 *
 * Before Linux 6.7 the ring does not know futexes, and each is woken at once.
 */
#include "../../include/proto/futex.h"
#include "internal.h"

#define OP_FUTEX_WAKE 52         /* IORING_OP_FUTEX_WAKE */
#define SHARED_32_BITS 2         /* FUTEX2_SIZE_U32 */

static void wake_now(uint32_t *word)
{
	futex_wake_class(word, 1, FUTEX_BITSET_MATCH_ANY);
}

void wakes_init(struct loop *l)
{
	struct io_uring_probe *p = io_uring_get_probe_ring(&l->ring.uring);

	l->wakes = (struct wakes){.together = p && io_uring_opcode_supported(p, OP_FUTEX_WAKE)};
	io_uring_free_probe(p);
}

void loop_wake(struct loop *l, uint32_t *word)
{
	struct wakes *w = &l->wakes;

	if (w->together && w->n < WAKES_MAX)
		w->v[w->n++] = word;
	else
		wake_now(word);
}

/* Where nobody sleeps by now, or the word is no memory any more, that is nobody's concern. */
static void wake_arm(struct io_uring_sqe *sqe, uint32_t *word)
{
	io_uring_prep_rw(OP_FUTEX_WAKE, sqe, SHARED_32_BITS, word, 0, 1);
	sqe->addr3 = FUTEX_BITSET_MATCH_ANY;
	sqe->flags |= IOSQE_CQE_SKIP_SUCCESS;
	io_uring_sqe_set_data64(sqe, TAG_IGNORED);
}

void wakes_flush(struct loop *l)
{
	struct wakes *w = &l->wakes;

	for (unsigned i = 0; i < w->n; i++) {
		struct io_uring_sqe *sqe = ring_sqe(&l->ring);

		if (sqe)
			wake_arm(sqe, w->v[i]);
		else
			wake_now(w->v[i]);
	}
	w->n = 0;
}

void wakes_end(struct loop *l)
{
	while (l->wakes.n)
		wake_now(l->wakes.v[--l->wakes.n]);
}
