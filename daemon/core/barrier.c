/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What member and master of barriers share: memory, and whether there is work. */
#include "barrier.h"

#include "master.h"

void barriers_init(struct barriers *b, const struct core_memory *mem, struct member *member, struct master *master,
		   struct peers *peers)
{
	memset(b, 0, sizeof *b);
	b->mem = mem;
	b->member = member;
	b->master = master;
	b->peers = peers;
	pool_init(&b->records, mem, sizeof(struct barrier));
	pool_init(&b->parties, mem, sizeof(struct barrier_party));
	pool_init(&b->rounds, mem, sizeof(struct barrier_round));
	pool_init(&b->claims, mem, sizeof(struct barrier_claim));
}

void barriers_done(struct barriers *b)
{
	pool_done(&b->records);
	pool_done(&b->parties);
	pool_done(&b->rounds);
	pool_done(&b->claims);
	if (b->names.mem)
		names_done(&b->names);
}

int barriers_reserve(struct barriers *b)
{
	struct pool *const pools[] = { &b->records, &b->parties, &b->rounds, &b->claims };

	if (!b->names.mem) {
		int r = names_init(&b->names, b->mem);
		if (r < 0) {
			names_done(&b->names);
			b->names.mem = NULL;
			return r;
		}
	}
	for (unsigned i = 0; i < CORE_ARRAY_N(pools); i++) {
		int r = pool_reserve(pools[i], 1);
		if (r < 0)
			return r;
	}
	return 0;
}

bool barriers_busy(const struct barriers *b)
{
	return b->due_first || b->ready & b->master->open;
}
