/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "ask.h"

#define KIND_MASK 15u

_Static_assert(ASK_N <= KIND_MASK + 1, "the kind in the low bits of op");

void ask_key(struct ask *a, const char *prefix, uint64_t session)
{
	unsigned n = 0;

	for (; prefix[n]; n++)
		a->key[n] = prefix[n];
	for (int shift = 60; session && shift >= 0; shift -= 4)
		a->key[n++] = "0123456789abcdef"[session >> shift & 15];
	core_assert(n < ASK_KEY_MAX);
	a->key[n] = 0;
}

static struct core_action *ask(struct asks *a, enum ask_kind kind, enum core_action_kind what, struct step *s)
{
	struct ask *k = &a->v[kind];
	struct core_action *act = step_act(s, what);

	core_assert(!k->op);
	a->op += KIND_MASK + 1;
	if (!(a->op & ~KIND_MASK))
		a->op = KIND_MASK + 1;
	k->op = a->op | kind;
	k->stale = false;
	act->store.op = k->op;
	act->store.key = k->key;
	return act;
}

void ask_get(struct asks *a, enum ask_kind kind, struct step *s)
{
	ask(a, kind, CORE_ACT_STORE_GET, s);
}

void ask_list(struct asks *a, enum ask_kind kind, struct step *s)
{
	ask(a, kind, CORE_ACT_STORE_LIST, s);
}

void ask_cas(struct asks *a, enum ask_kind kind, uint64_t version, uint32_t len, struct step *s)
{
	struct core_action *act = ask(a, kind, CORE_ACT_STORE_CAS, s);

	act->store.value = a->v[kind].value;
	act->store.value_len = len;
	act->store.version = version;
}

void ask_delete(struct asks *a, enum ask_kind kind, uint64_t version, struct step *s)
{
	ask(a, kind, CORE_ACT_STORE_CAS, s)->store.version = version;
}

void ask_forget(struct asks *a, enum ask_kind kind)
{
	a->v[kind].stale = true;
}

int ask_answered(struct asks *a, uint32_t op)
{
	unsigned kind = op & KIND_MASK;

	if (!op || kind >= ASK_N || a->v[kind].op != op)
		return -CORE_EINVAL;
	a->v[kind].op = 0;
	return a->v[kind].stale ? ASK_N : (int)kind;
}
