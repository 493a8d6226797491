/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Any bytes as an embedded store, as they are and once more with a checksum that fits, since chance
 * would never find one. The judge: what is accepted has one form only, so encoding it gives the
 * same bytes again.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "store/crc32c.h"
#include "store/file.h"
#include "store/file_format.h"

#define MUST(x) do { if (!(x)) abort(); } while (0)

static void decode(const uint8_t *data, size_t size)
{
	struct file_table t;
	uint8_t *again;
	size_t again_size;

	if (file_format_decode(data, size, &t) < 0)
		return;
	for (size_t i = 0; i < t.n; i++) {
		MUST(store_key_valid(t.records[i]->key));
		MUST(t.records[i]->version >= 1 && t.records[i]->version <= t.revision);
	}
	MUST(file_format_encode(&t, &again, &again_size) == 0);
	MUST(again_size == size && memcmp(again, data, size) == 0);
	free(again);
	file_table_done(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *copy;
	uint32_t crc;

	decode(data, size);
	if (size < 4 || !(copy = malloc(size)))
		return 0;
	memcpy(copy, data, size);
	crc = crc32c(0, copy, size - 4);
	for (size_t i = 0; i < 4; i++)
		copy[size - 4 + i] = (uint8_t)(crc >> 8 * i);
	decode(copy, size);
	free(copy);
	return 0;
}
