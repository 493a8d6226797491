/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the core has instead of a C library: four memory functions, the error numbers that it
 * returns, and three kinds of doubt. core_assert() is for what is proven, and stays in every build:
 * a core that has lost its way must not grant. NEVER() is for what we believe, and has code behind it.
 */
#ifndef DLOCK_CORE_BASE_H
#define DLOCK_CORE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *memcpy(void *restrict to, const void *restrict from, size_t n);
void *memset(void *to, int byte, size_t n);
void *memmove(void *to, const void *from, size_t n);
int memcmp(const void *a, const void *b, size_t n);

/* As in Linux's <errno.h>, which a freestanding file cannot have; test_core_pieces compares them. */
#define CORE_ERRNOS(X)                                                                         \
	X(ENOENT, 2) X(EAGAIN, 11) X(ENOMEM, 12) X(EBUSY, 16) X(EEXIST, 17) X(EINVAL, 22)      \
	X(EPIPE, 32) X(EDEADLK, 35)                                                            \
	X(EBADMSG, 74) X(EOVERFLOW, 75) X(EPROTONOSUPPORT, 93) X(ETIMEDOUT, 110)               \
	X(ESHUTDOWN, 108) X(EALREADY, 114) X(ESTALE, 116) X(ENOTRECOVERABLE, 131)

enum core_errno {
#define X(name, number) CORE_##name = number,
	CORE_ERRNOS(X)
#undef X
};

#define core_assert(x) do { if (__builtin_expect(!(x), 0)) __builtin_trap(); } while (0)

static inline bool NEVER(bool x)
{
#ifdef CORE_NEVER_TRAPS
	core_assert(!x);
#endif
	return __builtin_expect(x, 0);
}

#define CORE_ARRAY_N(a) (sizeof(a) / sizeof *(a))

static inline uint64_t min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }

#endif
