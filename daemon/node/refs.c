/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The core's numbers of names, and which name each stands for. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "node.h"

struct space *ref_space(const struct node *n, uint32_t ref)
{
	return n->shm.spaces[n->refs[ref] >> 20];
}

uint32_t ref_slot(const struct node *n, uint32_t ref)
{
	return n->refs[ref] & 0xfffff;
}

struct ledger_name *ref_name(const struct node *n, uint32_t ref)
{
	return name_at(ref_space(n, ref), ref_slot(n, ref));
}

bool ref_is(const struct node *n, uint32_t ref)
{
	return ref < n->n_refs && (n->ref_used[ref / 64] >> (ref % 64) & 1);
}

/* cap: a multiple of 64. */
static int refs_resize(struct node *n, uint32_t cap)
{
	uint32_t *refs = realloc(n->refs, cap * sizeof *refs);
	uint64_t *used;

	if (!refs)
		return -ENOMEM;
	n->refs = refs;
	used = realloc(n->ref_used, cap / 8);
	if (!used)
		return -ENOMEM;
	if (cap > n->refs_cap)
		memset((char *)used + n->refs_cap / 8, 0, (cap - n->refs_cap) / 8);
	n->ref_used = used;
	n->refs_cap = cap;
	return 0;
}

/* The lowest that is free, so that the arrays, and the core's, shrink when names go. */
int ref_take(struct node *n, struct space *s, uint32_t slot, uint32_t *ret)
{
	uint32_t ref = n->ref_hint;
	int r;

	while (ref < n->n_refs && ref_is(n, ref))
		ref = ref % 64 == 0 && n->ref_used[ref / 64] == UINT64_MAX ? ref + 64 : ref + 1;
	if (ref > n->n_refs)
		ref = n->n_refs;
	r = ref < n->refs_cap ? 0 : refs_resize(n, n->refs_cap ? n->refs_cap * 2 : 1024);
	if (r < 0)
		return r;
	n->ref_used[ref / 64] |= UINT64_C(1) << (ref % 64);
	n->refs[ref] = s->id << 20 | slot;
	n->ref_hint = ref + 1;
	n->n_live++;
	if (ref == n->n_refs)
		n->n_refs++;
	name_at(s, slot)->ref = ref;
	*ret = ref;
	return 0;
}

void ref_drop(struct node *n, uint32_t ref)
{
	ref_name(n, ref)->ref = UINT32_MAX;
	n->ref_used[ref / 64] &= ~(UINT64_C(1) << (ref % 64));
	n->n_live--;
	if (ref < n->ref_hint)
		n->ref_hint = ref;
	while (n->n_refs && !ref_is(n, n->n_refs - 1))
		n->n_refs--;
	if (n->refs_cap > 1024 && n->n_refs < n->refs_cap / 4)
		refs_resize(n, n->refs_cap / 2);         /* where it fails, they stay as large */
}

uint16_t ref_key(const struct node *n, uint32_t ref, char ret[CORE_KEY_MAX])
{
	const struct space *s = ref_space(n, ref);
	struct name_text t = name_text(s, ref_slot(n, ref));

	return name_key(s->name, name_kind(s, ref_slot(n, ref)), t.p, t.n, ret);
}
