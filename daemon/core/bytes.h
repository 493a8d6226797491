/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Little-endian numbers in bytes, for records and frames. */
#ifndef DLOCK_CORE_BYTES_H
#define DLOCK_CORE_BYTES_H

#include "base.h"

/* n is up to 8, and nearly always a constant: then this is one load. */
static inline uint64_t le_load(const uint8_t *p, unsigned n)
{
	uint64_t v = 0;

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	__builtin_memcpy(&v, p, n);
#else
	for (unsigned i = 0; i < n; i++)
		v |= (uint64_t)p[i] << 8 * i;
#endif
	return v;
}

static inline void le_store(uint8_t *p, unsigned n, uint64_t v)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	__builtin_memcpy(p, &v, n);
#else
	for (unsigned i = 0; i < n; i++)
		p[i] = (uint8_t)(v >> 8 * i);
#endif
}

#endif
