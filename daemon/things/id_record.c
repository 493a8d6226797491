/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "id_record.h"

#include <errno.h>

#include "../core/bytes.h"
#include "proto/small.h"

int id_decode(const void *bytes, size_t n, struct id_record *ret)
{
	const uint8_t *b = bytes;

	if (n != ID_BYTES || b[0] != ID_LAYOUT || le_load(b + 1, 7) || le_load(b + 16, 8) > ID_MS_MAX)
		return -EBADMSG;
	ret->session = le_load(b + 8, 8);
	ret->ceiling = le_load(b + 16, 8);
	memcpy(ret->node, b + 24, 16);
	return 0;
}

void id_encode(const struct id_record *r, uint8_t ret[ID_BYTES])
{
	memset(ret, 0, ID_BYTES);
	ret[0] = ID_LAYOUT;
	le_store(ret + 8, 8, r->session);
	le_store(ret + 16, 8, r->ceiling);
	memcpy(ret + 24, r->node, 16);
}

struct id_record id_raised(const struct id_record *r, uint64_t session, const uint8_t node[16], uint64_t until)
{
	struct id_record next = { .session = session, .ceiling = min_u64(max_u64(r->ceiling, until), ID_MS_MAX) };

	memcpy(next.node, node, 16);
	return next;
}

struct id_record id_given_back(const struct id_record *r, uint64_t next)
{
	struct id_record back = *r;

	back.session = 0;
	back.ceiling = min_u64(next, r->ceiling);
	return back;
}
