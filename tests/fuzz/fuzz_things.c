/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Whatever is taken for the record of a latch, a condition or a worker's number is one: said again it has the same bytes, and
 * what may become of it fits into a record.
 */
#include <stdlib.h>
#include <string.h>

#include "things/cond_record.h"
#include "things/id_record.h"
#include "things/latch_record.h"

static uint8_t again[STORE_VALUE_MAX];

static void check(bool right)
{
	if (!right)
		abort();
}

static void same(const uint8_t *data, size_t size, size_t n)
{
	check(n == size && !memcmp(again, data, size));
}

static void try_latch(const uint8_t *data, size_t size)
{
	static struct latch_record r;
	struct latch_entry who = { 1, 2, 3 };
	uint32_t before;

	if (latch_decode(data, size, &r) < 0)
		return;
	same(data, size, latch_encode(&r, again));
	before = r.count;
	if (latch_count(&r, &who, 2) == 0)
		check(latch_counted(&r, 2, 3) && (r.count == before || before - r.count <= 2));
	check(latch_encode(&r, again) <= STORE_VALUE_MAX);
}

static void try_cond(const uint8_t *data, size_t size)
{
	static struct cond_record r;
	uint32_t n;

	if (cond_decode(data, size, &r) < 0)
		return;
	same(data, size, cond_encode(&r, again));
	n = r.n;
	cond_signal(&r, 2, 7);
	if (cond_enter(&r, 1, 2, 3) == 0)
		check(cond_find(&r, 2, 3));
	check(r.n <= n + 1 && cond_encode(&r, again) <= STORE_VALUE_MAX);
	cond_end(&r, n ? r.e[0].session : 1);
	check(r.n <= n + 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct id_record id;

	try_latch(data, size);
	try_cond(data, size);
	if (id_decode(data, size, &id) == 0) {
		id_encode(&id, again);
		same(data, size, ID_BYTES);
	}
	return 0;
}
