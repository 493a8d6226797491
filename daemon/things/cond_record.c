/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "cond_record.h"

#include <errno.h>

#include "../core/bytes.h"

int cond_decode(const void *bytes, size_t n, struct cond_record *ret)
{
	const uint8_t *b = bytes, *e;

	if (n < COND_HEAD || b[0] != COND_LAYOUT || b[1] || le_load(b + 4, 4))
		return -EBADMSG;
	ret->n = (uint32_t)le_load(b + 2, 2);
	if (ret->n > COND_ENTRIES_MAX || n != COND_HEAD + (size_t)ret->n * COND_ENTRY)
		return -EBADMSG;
	for (uint32_t i = 0; i < ret->n; i++) {
		e = b + COND_HEAD + (size_t)i * COND_ENTRY;
		ret->e[i] = (struct cond_entry){ le_load(e, 8), le_load(e + 8, 8), (uint32_t)le_load(e + 16, 4), (uint32_t)le_load(e + 20, 4) };
		if (!ret->e[i].session)
			return -EBADMSG;
	}
	return 0;
}

size_t cond_encode(const struct cond_record *r, uint8_t ret[STORE_VALUE_MAX])
{
	memset(ret, 0, COND_HEAD);
	ret[0] = COND_LAYOUT;
	le_store(ret + 2, 2, r->n);
	for (uint32_t i = 0; i < r->n; i++) {
		uint8_t *e = ret + COND_HEAD + (size_t)i * COND_ENTRY;

		le_store(e, 8, r->e[i].session);
		le_store(e + 8, 8, r->e[i].account);
		le_store(e + 16, 4, r->e[i].ticket);
		le_store(e + 20, 4, r->e[i].signal);
	}
	return COND_HEAD + (size_t)r->n * COND_ENTRY;
}

struct cond_entry *cond_find(struct cond_record *r, uint64_t account, uint32_t ticket)
{
	for (uint32_t i = 0; i < r->n; i++)
		if (r->e[i].account == account && r->e[i].ticket == ticket)
			return &r->e[i];
	return NULL;
}

int cond_enter(struct cond_record *r, uint64_t session, uint64_t account, uint32_t ticket)
{
	if (cond_find(r, account, ticket))
		return 0;
	if (r->n == COND_ENTRIES_MAX)
		return -ENOSPC;
	r->e[r->n++] = (struct cond_entry){ session, account, ticket, 0 };
	return 0;
}

uint32_t cond_signal(struct cond_record *r, uint32_t n, uint32_t signal)
{
	uint32_t done = 0;

	for (uint32_t i = 0; i < r->n && done < n; i++) {
		if (r->e[i].signal)
			continue;
		r->e[i].signal = signal;
		done++;
	}
	return done;
}

bool cond_reached(const struct cond_record *r, uint32_t signal)
{
	for (uint32_t i = 0; i < r->n; i++)
		if (r->e[i].signal == signal)
			return true;
	return false;
}

bool cond_leave(struct cond_record *r, uint64_t account, uint32_t ticket, bool pass)
{
	struct cond_entry *e = cond_find(r, account, ticket);
	uint32_t signal;

	if (!e)
		return false;
	signal = e->signal;
	for (r->n--; e < r->e + r->n; e++)
		*e = e[1];
	if (signal && pass)
		cond_signal(r, 1, signal);
	return true;
}

static const struct cond_entry *one_of(const struct cond_record *r, uint64_t session)
{
	for (uint32_t i = 0; i < r->n; i++)
		if (r->e[i].session == session)
			return &r->e[i];
	return NULL;
}

/* Those that wait go first: no signal may go on to one of them. */
bool cond_end(struct cond_record *r, uint64_t session)
{
	const struct cond_entry *e;
	uint32_t kept = 0, before = r->n;

	for (uint32_t i = 0; i < before; i++)
		if (r->e[i].session != session || r->e[i].signal)
			r->e[kept++] = r->e[i];
	r->n = kept;
	while ((e = one_of(r, session)))
		cond_leave(r, e->account, e->ticket, true);
	return r->n < before;
}
