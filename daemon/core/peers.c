/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "peers.h"

void peers_init(struct peers *p, const struct core_memory *mem)
{
	memset(p, 0, sizeof *p);
	p->mem = mem;
	p->v = &p->own;
	p->n = p->max = 1;
}

void peers_done(struct peers *p)
{
	if (p->v && p->v != &p->own)
		p->mem->free(p->mem->arg, p->v, p->max * sizeof *p->v);
	p->v = NULL;
	p->n = 0;
}

int peers_reserve(struct peers *p)
{
	if (p->max == CORE_MEMBERS_MAX)
		return 0;
	struct peer *v = p->mem->alloc(p->mem->arg, CORE_MEMBERS_MAX * sizeof *v);

	if (!v)
		return -CORE_ENOMEM;
	memset(v, 0, CORE_MEMBERS_MAX * sizeof *v);
	v[0] = p->v[0];
	p->v = v;
	p->max = CORE_MEMBERS_MAX;
	return 0;
}

struct peer *peers_find(struct peers *p, uint64_t session)
{
	for (unsigned i = 0; i < p->n; i++)
		if (p->v[i].id.session == session)
			return session ? &p->v[i] : NULL;
	return NULL;
}

struct peer *peers_add(struct peers *p, uint64_t session)
{
	unsigned i = 1;

	while (i < p->n && p->v[i].id.session)
		i++;
	if (i == p->max)
		return NULL;
	if (i == p->n)
		p->n++;
	p->v[i] = (struct peer){ .id.session = session };
	return &p->v[i];
}
