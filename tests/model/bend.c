/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "bend.h"
#include "play.h"

#include <limits.h>

#include "proto/lockword.h"

static bool applies(const struct bend *b, unsigned fn, uint64_t old, uint64_t new)
{
	bool was = lock_is_free(old), is = lock_is_free(new);

	if (b->fn != FN_NONE && b->fn != fn)
		return false;
	switch ((enum bend_when)b->when) {
	case BEND_ANY:
		return true;
	case BEND_TAKES:
		return was && !is;
	case BEND_FREES:
		return !was && is;
	case BEND_STAYS:
		return was == is;
	case BEND_TAKES_BACK:
		return was == is && (old & ~new & LOCK_K) && fn != FN_TURN && fn != FN_LEAVE;
	}
	return false;
}

uint64_t bend_cas(const struct bend *b, unsigned fn, uint64_t old, uint64_t new)
{
	return applies(b, fn, old, new) ? ((new & ~b->clear) | (old & b->keep)) + b->add : new;
}

bool bend_swallows(const struct bend *b, unsigned fn, uint64_t n)
{
	if (b->fn != FN_NONE && b->fn != fn)
		return false;
	return n == INT_MAX ? b->no_wake_all : b->no_wake_one;
}

uint32_t bend_ignored(const struct bend *b)
{
	return b->fn == FN_TURN && b->when == BEND_STAYS ? (uint32_t)(b->clear | b->keep) : 0;
}
