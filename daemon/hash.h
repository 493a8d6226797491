/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * FNV-1a, 64 bits, of bytes in several parts: each goes on from what the one before has given. For what nobody gains anything
 * by aiming at; a table that clients' names go into has a secret start besides (shm/name.c).
 */
#ifndef DLOCK_HASH_H
#define DLOCK_HASH_H

#include <stddef.h>
#include <stdint.h>

#define FNV1A_START UINT64_C(0xcbf29ce484222325)

static inline uint64_t fnv1a(uint64_t h, const void *bytes, size_t n)
{
	const uint8_t *p = bytes;

	for (size_t i = 0; i < n; i++)
		h = (h ^ p[i]) * UINT64_C(0x100000001b3);
	return h;
}

#endif
