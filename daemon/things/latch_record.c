/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "latch_record.h"

#include <errno.h>

#include "../core/bytes.h"

int latch_decode(const void *bytes, size_t n, struct latch_record *ret)
{
	const uint8_t *b = bytes, *e;

	if (n < LATCH_HEAD || b[0] != LATCH_LAYOUT || b[1] || le_load(b + 20, 4))
		return -EBADMSG;
	ret->n = (uint32_t)le_load(b + 2, 2);
	ret->count = (uint32_t)le_load(b + 4, 4);
	ret->birth = le_load(b + 8, 8);
	ret->initial = (uint32_t)le_load(b + 16, 4);
	if (ret->n > LATCH_ENTRIES_MAX || n != LATCH_HEAD + (size_t)ret->n * LATCH_ENTRY || ret->count > ret->initial)
		return -EBADMSG;
	for (uint32_t i = 0; i < ret->n; i++) {
		e = b + LATCH_HEAD + (size_t)i * LATCH_ENTRY;
		ret->e[i] = (struct latch_entry){ le_load(e, 8), le_load(e + 8, 8), (uint32_t)le_load(e + 16, 4) };
		if (!ret->e[i].session || le_load(e + 20, 4))
			return -EBADMSG;
	}
	return 0;
}

size_t latch_encode(const struct latch_record *r, uint8_t ret[STORE_VALUE_MAX])
{
	memset(ret, 0, LATCH_HEAD + (size_t)r->n * LATCH_ENTRY);
	ret[0] = LATCH_LAYOUT;
	le_store(ret + 2, 2, r->n);
	le_store(ret + 4, 4, r->count);
	le_store(ret + 8, 8, r->birth);
	le_store(ret + 16, 4, r->initial);
	for (uint32_t i = 0; i < r->n; i++) {
		uint8_t *e = ret + LATCH_HEAD + (size_t)i * LATCH_ENTRY;

		le_store(e, 8, r->e[i].session);
		le_store(e + 8, 8, r->e[i].account);
		le_store(e + 16, 4, r->e[i].number);
	}
	return LATCH_HEAD + (size_t)r->n * LATCH_ENTRY;
}

void latch_begin(struct latch_record *r, uint64_t birth, uint32_t count)
{
	r->birth = birth;
	r->initial = r->count = count;
	r->n = 0;
}

static uint32_t find(const struct latch_record *r, uint64_t account)
{
	uint32_t i = 0;

	while (i < r->n && r->e[i].account != account)
		i++;
	return i;
}

uint32_t latch_short(uint64_t birth)
{
	return (uint32_t)(birth >> 32) | 1;
}

bool latch_counted(const struct latch_record *r, uint64_t account, uint32_t number)
{
	uint32_t i = find(r, account);

	return !r->count || (i < r->n && r->e[i].number >= number);
}

int latch_count(struct latch_record *r, const struct latch_entry *who, uint32_t n)
{
	uint32_t i = find(r, who->account);

	if (latch_counted(r, who->account, who->number))
		return 0;
	if (i == LATCH_ENTRIES_MAX && n < r->count)
		return -ENOSPC;
	r->count -= n < r->count ? n : r->count;
	if (!r->count) {
		r->n = 0;
		return 0;
	}
	r->e[i] = *who;
	r->n += i == r->n;
	return 0;
}

uint32_t latch_drop(struct latch_record *r, bool (*fn)(void *arg, const struct latch_entry *e), void *arg)
{
	uint32_t kept = 0, before = r->n;

	for (uint32_t i = 0; i < before; i++)
		if (!fn(arg, &r->e[i]))
			r->e[kept++] = r->e[i];
	r->n = kept;
	return before - kept;
}
