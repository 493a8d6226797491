/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The map as the store may hand it over: any bytes. What is taken for a map is one, and encodes to
 * the very same bytes; and a core that is started on those bytes either stops with a sentence or
 * wants to write a map of its own in a higher epoch.
 */
#include <stdlib.h>
#include <string.h>

#include "core/map.h"
#include "core/range.h"

static void *plain_alloc(void *arg, size_t n)
{
	(void)arg;
	return malloc(n);
}

static void plain_free(void *arg, void *p, size_t n)
{
	(void)arg, (void)n;
	free(p);
}

static void check(bool right)
{
	if (!right)
		abort();
}

static void core_reads(const uint8_t *data, size_t size, const struct map *m)
{
	const struct core_memory mem = { .alloc = plain_alloc, .free = plain_free };
	struct core_event ev = { .kind = CORE_EV_START, .start = { .session = 7, .incarnation = 2 } };
	struct core_actions acts;
	struct core *c;

	check(core_create(&mem, &c) == 0);
	check(core_step(c, &ev, &acts) == 0 && acts.n == 1 && acts.v[0].kind == CORE_ACT_STORE_GET);
	ev = (struct core_event){ .kind = CORE_EV_STORE, .store = {
		.op = acts.v[0].store.op, .value = data, .value_len = (uint32_t)size, .version = 1 } };
	check(core_step(c, &ev, &acts) == 0 && acts.n == 1);
	if (acts.v[0].kind == CORE_ACT_STORE_CAS) {
		struct map next;

		check(m && acts.v[0].store.version == 1);
		check(map_decode(acts.v[0].store.value, acts.v[0].store.value_len, &next) == 0);
		check(map_epoch_max(&next) == map_epoch_max(m) + 1);
	} else {
		check(acts.v[0].kind == CORE_ACT_FATAL && acts.v[0].node.error < 0 && acts.v[0].node.why);
	}
	core_free(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t back[MAP_BYTES];
	struct map m;
	bool is_map = map_decode(data, size, &m) == 0;

	if (is_map) {
		check(size == MAP_BYTES && map_epoch_max(&m) >= 1 && map_epoch_max(&m) <= EPOCH_MAX);
		map_encode(&m, back);
		check(memcmp(back, data, size) == 0);
	}
	core_reads(data, size, is_map ? &m : NULL);
	return 0;
}
