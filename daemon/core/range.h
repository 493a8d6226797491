/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Tokens, ranges of them, and how much of a client's word about its use is believed.
 *
 * A token is epoch << 40 | counter; counter 0 is never used. A range lies within one epoch. The
 * first token of a grant is also the grant's number: no two grants of a name share it, because a
 * release leaves the floor at it or above.
 *
 * What a client says it used comes out of memory that the client can scribble on. It matters in
 * two places: the floor that its shard is left with, and the size of its next range. Both are
 * bounded by physics: nobody acquires a lock faster than once in a nanosecond, so in t ns no more
 * than t tokens can have been used (t/64 more for clocks that drift, and RANGE_SLACK for a clock
 * that is read once for several events). Hence
 *
 *  - a release raises the floor by what time allows, whatever it claims: floors climb by about one
 *    a nanosecond, however many names the client has, since a floor is a maximum and names that are
 *    open at the same time do not add up. RANGE_SLACK more for each release, which is a trip
 *    through the daemon;
 *  - a refill skips the whole former range, so ranges must not grow by lying: sixteen times the
 *    former one only if time allows that it was used, else no more than time allows. That leaves
 *    RANGE_FIRST for each claim and its first refill, which are two trips.
 *
 * Together a client that does nothing else burns less than 2^5 counters a nanosecond, so it ends an
 * epoch's 2^40 in half a minute at the earliest, and the 2^23 epochs in eight years. What it spoils
 * is its own name: if it hands out tokens that time does not allow, the name's next holder may get
 * smaller ones. Whoever can write to the slot could have told any number to the resource anyhow.
 */
#ifndef DLOCK_CORE_RANGE_H
#define DLOCK_CORE_RANGE_H

#include "base.h"
#include "core.h"

#define EPOCH_MAX ((uint32_t)(1u << TOKEN_EPOCH_BITS) - 1)
#define COUNTER_END ((uint64_t)1 << TOKEN_COUNTER_BITS)
#define RANGE_MIN ((uint64_t)1 << 16)
#define RANGE_FIRST ((uint64_t)1 << 20)
#define RANGE_MAX ((uint64_t)1 << 36)
#define RANGE_GROWTH 16
#define RANGE_SLACK ((uint64_t)1 << 16)

/* A range may begin at this counter, and then ends before COUNTER_END whatever its size. */
#define COUNTER_LAST_FIRST (COUNTER_END - RANGE_MAX)

static inline uint64_t token_make(uint32_t epoch, uint64_t counter)
{
	return (uint64_t)epoch << TOKEN_COUNTER_BITS | counter;
}

static inline uint32_t token_epoch(uint64_t token)
{
	return (uint32_t)(token >> TOKEN_COUNTER_BITS);
}

static inline uint64_t token_counter(uint64_t token)
{
	return token & (COUNTER_END - 1);
}

static inline bool range_valid(struct core_range r)
{
	return token_epoch(r.first) > 0 && token_epoch(r.first) <= EPOCH_MAX && token_counter(r.first) > 0 &&
	       r.count > 0 && r.count <= COUNTER_END - token_counter(r.first);
}

/* How many of the range's tokens were used, as far as it can be; at least one, so that grants differ. */
static inline uint64_t range_believed(struct core_range r, uint64_t used, core_nsec_t elapsed)
{
	uint64_t possible = min_u64(elapsed, COUNTER_END);

	possible += possible / 64 + RANGE_SLACK;
#ifdef CORE_BREAK_BELIEF
	possible = COUNTER_END;
#endif
	return max_u64(1, min_u64(min_u64(used, r.count), possible));
}

/* The size of the range after one of this size, which is used up. */
static inline uint64_t range_next_count(uint64_t count, core_nsec_t elapsed)
{
#ifdef CORE_BREAK_BELIEF
	elapsed = COUNTER_END;
#endif
	if (elapsed < count)
		return max_u64(RANGE_MIN, elapsed);
	return count >= RANGE_MAX / RANGE_GROWTH ? RANGE_MAX : count * RANGE_GROWTH;
}

#endif
