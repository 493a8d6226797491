/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "value.h"

#include "base.h"

#define CLASS_BITS 27

static const uint16_t room[VALUE_CLASSES] = { 0, 16, 48, 112, 240, 496, CORE_VALUE_MAX };

_Static_assert(sizeof(struct value) == 16, "the classes' sizes are counted from it");

static unsigned class_of(size_t len)
{
	unsigned i = 0;

	while (room[i] < len)
		i++;
	return i;
}

void values_init(struct values *t, const struct core_memory *mem)
{
	for (unsigned i = 0; i < VALUE_CLASSES; i++)
		pool_init(&t->pool[i], mem, (uint32_t)sizeof(struct value) + room[i]);
	t->given_up = 0;
}

void values_done(struct values *t)
{
	for (unsigned i = 0; i < VALUE_CLASSES; i++)
		pool_done(&t->pool[i]);
}

struct value *value_at(const struct values *t, uint32_t handle)
{
	core_assert(handle >> CLASS_BITS < VALUE_CLASSES);
	return pool_at(&t->pool[handle >> CLASS_BITS], handle & ((1u << CLASS_BITS) - 1));
}

void values_collect(struct values *t)
{
	while (t->given_up) {
		uint32_t handle = t->given_up;

		t->given_up = (uint32_t)value_at(t, handle)->token;
		pool_give(&t->pool[handle >> CLASS_BITS], handle & ((1u << CLASS_BITS) - 1));
	}
}

int value_make(struct values *t, const struct core_value *v, uint32_t *ret)
{
	unsigned class = class_of(v->len);
	int r = pool_reserve(&t->pool[class], 1);

	if (r < 0)
		return r;
	*ret = class << CLASS_BITS | pool_take(&t->pool[class]);
	struct value *new = value_at(t, *ret);
	new->token = v->token;
	new->count = v->count;
	new->len = v->len;
	new->refs = 1;
	if (v->len)
		memcpy(new->bytes, v->bytes, v->len);
	return 0;
}

void value_drop(struct values *t, uint32_t handle)
{
	if (!handle)
		return;
	struct value *v = value_at(t, handle);

	core_assert(v->refs);
	if (--v->refs)
		return;
	v->token = t->given_up;
	t->given_up = handle;
}

struct core_value value_describe(const struct values *t, uint32_t handle)
{
	if (!handle)
		return (struct core_value){ .state = CORE_VALUE_NONE };
	const struct value *v = value_at(t, handle);

	return (struct core_value){ .state = CORE_VALUE_KNOWN, .len = v->len, .count = v->count,
				    .token = v->token, .bytes = v->bytes };
}

bool value_later(const struct values *t, uint32_t one, uint32_t other)
{
	if (!one || !other)
		return one;
	const struct value *a = value_at(t, one), *b = value_at(t, other);

	return a->token > b->token || (a->token == b->token && a->count > b->count);
}
