/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The word of a free semaphore (proto/poolword.h), as the daemon changes it beside those who take and post. */
#include <limits.h>

#include "../../include/proto/futex.h"
#include "pool.h"
#include "word.h"

void pool_word_wake(struct pool *p)
{
	futex_wake_class(lock_futex(&pool_words(p)->value), INT_MAX, LOCK_CLASS_ANY);
}

uint32_t pool_word_value(const struct pool *p)
{
	return (uint32_t)(__atomic_load_n(&pool_words(p)->value, __ATOMIC_SEQ_CST) & POOL_VALUE_MAX);
}

void pool_word_set(struct pool *p, uint32_t value)
{
	uint64_t v = __atomic_load_n(&pool_words(p)->value, __ATOMIC_SEQ_CST);

	word_store(&pool_words(p)->value, (v & ~(uint64_t)POOL_VALUE_MAX) | value);
	pool_word_wake(p);
}

void pool_word_close(struct pool *p)
{
	FAULT_AROUND(__atomic_fetch_or(&pool_words(p)->value, POOL_CLOSED, __ATOMIC_SEQ_CST));
	pool_word_wake(p);
}

void pool_word_open(struct pool *p)
{
	word_store(&pool_words(p)->written, 0);
	FAULT_AROUND(__atomic_fetch_and(&pool_words(p)->value, ~POOL_CLOSED, __ATOMIC_SEQ_CST));
	pool_posts_add(p);
}

void pool_word_rings(struct pool *p)
{
	FAULT_AROUND(__atomic_store_n(&pool_words(p)->written, 1, __ATOMIC_SEQ_CST));
}

bool pool_word_awaited(const struct pool *p)
{
	const struct pool_words *w = pool_words(p);

	return __atomic_load_n(&w->waiters, __ATOMIC_SEQ_CST) && futex_sleepers((uint32_t *)&w->value, (uint32_t)w->value) != 0;
}

/* --- Posts that come while it is closed --- */

bool pool_has_posts(const struct pool *p)
{
	const struct pool_words *w = pool_words(p);

	return !p->o.space->broken && pool_pending(__atomic_load_n(&w->value, __ATOMIC_SEQ_CST), __atomic_load_n(&w->posts, __ATOMIC_SEQ_CST));
}

/* One swap adds them, and says how many have been added. */
void pool_posts_add(struct pool *p)
{
	uint64_t *value = &pool_words(p)->value, v = __atomic_load_n(value, __ATOMIC_SEQ_CST), n, sum;
	bool done;

	do {
		n = __atomic_load_n(&pool_words(p)->posts, __ATOMIC_SEQ_CST) & UINT32_MAX;
		if (!pool_pending(v, n))
			return;
		sum = (v & POOL_VALUE_MAX) + pool_pending(v, n);
		sum = (sum < POOL_VALUE_MAX ? sum : POOL_VALUE_MAX) | (v & POOL_CLOSED) | n << 32;
		FAULT_AROUND(done = __atomic_compare_exchange_n(value, &v, sum, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
	} while (!done);
	pool_word_wake(p);
}
