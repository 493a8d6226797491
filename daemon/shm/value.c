/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The values that locks carry (include/proto/value.h), on the daemon's side.
 *
 * What must hold:
 *  - What others have left is in the page before the ledger has the lease, and that before the word opens: so nobody
 *    who holds reads what was left in an earlier lease.
 *  - What this node tells others is read from the page when the word has been closed. It is its clients' own statement, and
 *    a client of the space may state anything, as he may in the word. So there is nothing about it that a
 *    restarted daemon would have to remember: it reads the page as this one does, and as this one it believes no token
 *    that the lease has not (S8). The ledger says only whether there is a page. One that is gone is gone with its
 *    space, and all that was held there is lost.
 *  - Where there is no memory for a page, what others have left is not known on this node, and still known to them.
 *  - After a fail-over what nearly all names have carried is lost, also what has never carried anything. That needs no page each: a bit
 *    of the ledger says so, until a client asks for the page (ATTACH_VALUE). Before he is answered it has been put there; until then
 *    nobody has the page, so nobody has published anything that this undoes.
 */
#include <errno.h>
#include <fcntl.h>

#include "files.h"
#include "shm.h"
#include "word.h"

struct value_page *value_page(const struct space *s, uint32_t slot)
{
	return (struct value_page *)((char *)s->base + SEG_VALUE_OFF + (uint64_t)slot * SEG_VALUE_SIZE);
}

static off_t page_at(uint32_t slot)
{
	return (off_t)(SEG_VALUE_OFF + (uint64_t)slot * SEG_VALUE_SIZE);
}

static void page_punch(const struct space *s, uint32_t slot)
{
	fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, page_at(slot), SEG_VALUE_SIZE);
}

/* Zeroed, whatever somebody scribbled there. */
int value_page_open(struct space *s, uint32_t slot)
{
	struct ledger_name *n = name_at(s, slot);
	int r;

	if (n->paged)
		return 0;
	page_punch(s, slot);
	r = files_room(s->fd, page_at(slot), SEG_VALUE_SIZE);
	if (r < 0)
		return r;
	FAULT_AROUND(n->paged = 1);
	return 0;
}

void value_page_drop(struct space *s, uint32_t slot)
{
	struct ledger_name *n = name_at(s, slot);

	if (!n->paged)
		return;
	FAULT_AROUND(n->paged = 0);
	page_punch(s, slot);
}

void value_rest(struct space *s, uint32_t slot)
{
	struct ledger_name *n = name_at(s, slot);
	struct value_head h;
	uint8_t bytes[VALUE_MAX];

	if (!n->paged || value_read(value_page(s, slot), &h, bytes, sizeof bytes) < 0 || h.state != VALUE_LOST)
		return;
	FAULT_AROUND(n->lost = 1);
	value_page_drop(s, slot);
}

/* A client that claims again and again loses: then it is unknown, and what it says next below the floor. */
static void page_set(struct value_page *p, const struct value_head *h, const void *bytes)
{
	for (unsigned tries = 0; tries < VALUE_TRIES; tries++) {
		uint64_t claim;

		if (!value_claim(p, value_load(p), &claim))
			continue;
		value_fill(p, claim, h, bytes);
		if (value_publish(p, claim, h, true, false) == 0)
			return;
	}
}

/* Whoever holds it has a token of the present range: more are granted only while nobody does. */
int value_page_ask(struct space *s, uint32_t slot)
{
	static const struct value_head lost = { .state = VALUE_LOST };
	struct ledger_name *n = name_at(s, slot);
	int r = value_page_open(s, slot);

	if (r < 0 || !n->lost)
		return r;
	word_store(&value_page(s, slot)->floor, n->count ? n->first : 0);
	page_set(value_page(s, slot), &lost, NULL);
	FAULT_AROUND(n->lost = 0);
	return 0;
}

void value_granted(struct space *s, uint32_t slot, const struct shm_value *v, uint64_t first)
{
	struct value_head h = { .state = v->state, .token = v->token, .count = v->count, .len = v->len };
	struct ledger_name *n = name_at(s, slot);

	if (s->broken)
		return;
	if (!n->paged && v->state != VALUE_KNOWN) {
		if (n->lost != (v->state == VALUE_LOST))
			FAULT_AROUND(n->lost = v->state == VALUE_LOST);
		return;
	}
	if (n->lost)
		FAULT_AROUND(n->lost = 0);
	if (value_page_open(s, slot) < 0) {
		shm_tell(s->shm, "value-lost", s, slot, 0, v->token, "no memory for it");
		return;
	}
	word_store(&value_page(s, slot)->floor, first);
	page_set(value_page(s, slot), &h, v->bytes);
}

bool value_left(const struct space *s, uint32_t slot, struct shm_value *ret, uint8_t bytes[VALUE_MAX])
{
	const struct ledger_name *n = name_at(s, slot);
	struct value_head h;

	*ret = (struct shm_value){ .state = n->lost ? VALUE_LOST : VALUE_NONE };
	if (s->broken || n->lost || !n->paged)
		return true;
	if (value_read(value_page(s, slot), &h, bytes, VALUE_MAX) < 0)
		return false;
	if (h.state == VALUE_KNOWN && (!h.token || !h.count || h.token >= n->first + n->count))
		return false;
	*ret = (struct shm_value){ .state = h.state };
	if (h.state == VALUE_KNOWN)
		*ret = (struct shm_value){ h.state, h.count, h.len, h.token, bytes };
	return true;
}
