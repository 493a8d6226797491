/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Whether the rounds of a barrier are rounds. Who passes one raises a word of its own before the next, and looks now and then at
 * another's: nobody may be more than one round ahead.
 */
#ifndef BENCH_ROUNDS_H
#define BENCH_ROUNDS_H

#include <err.h>
#include <stdbool.h>
#include <stdint.h>

struct round_party {
	uint64_t passed, serial;
} __attribute__((aligned(64)));

/* Party i of so many has passed one, and was told that it is the serial one. */
static inline void round_passed(struct round_party *per, unsigned parties, unsigned i, bool serial)
{
	uint64_t n = ++per[i].passed, other;

	per[i].serial += serial;
	other = __atomic_load_n(&per[(i + n) % parties].passed, __ATOMIC_RELAXED);
	if (other + 1 < n || other > n + 1)
		errx(2, "party %u passes round %llu, another %llu", i, (unsigned long long)n, (unsigned long long)other);
}

#endif
