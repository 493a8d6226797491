/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* u32 layout, 1   u32 value   u64 token of the lease under which it was written. Nothing else is one. Little-endian, as all that shares a store. */
#include <string.h>

#include "pool.h"

void pool_record_write(uint8_t ret[POOL_RECORD_SIZE], uint32_t value, uint64_t token)
{
	uint64_t v[2] = { (uint64_t)value << 32 | 1, token };

	memcpy(ret, v, POOL_RECORD_SIZE);
}

bool pool_record_read(const void *bytes, size_t n, uint32_t *ret_value, uint64_t *ret_token)
{
	uint64_t v[2];

	if (n != POOL_RECORD_SIZE)
		return false;
	memcpy(v, bytes, sizeof v);
	if ((uint32_t)v[0] != 1 || v[0] >> 63)
		return false;
	*ret_value = (uint32_t)(v[0] >> 32);
	*ret_token = v[1];
	return true;
}
