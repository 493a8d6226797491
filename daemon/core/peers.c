/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "peers.h"

void peers_init(struct peers *p, const struct core_memory *mem)
{
	memset(p, 0, sizeof *p);
	p->mem = mem;
	p->v = &p->own;
	p->n = p->max = 1;
}

static size_t text_size(const struct peer *peer)
{
	return (size_t)peer->address_len + peer->name_len + 2;
}

static void text_drop(struct peers *p, struct peer *peer)
{
	if (peer->text)
		p->mem->free(p->mem->arg, peer->text, text_size(peer));
	peer->text = NULL;
	peer->address_len = peer->name_len = 0;
}

void peers_done(struct peers *p)
{
	for (unsigned i = 0; i < p->n; i++)
		text_drop(p, &p->v[i]);
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

/* Sessions are random numbers; those that are not are no more than there are places. */
static uint16_t *chain(struct peers *p, uint64_t session)
{
	return &p->hash[session % CORE_ARRAY_N(p->hash)];
}

struct peer *peers_find(struct peers *p, uint64_t session)
{
	if (!session)
		return NULL;
	if (p->v[0].id.session == session)
		return &p->v[0];
	for (unsigned i = *chain(p, session); i; i = p->v[i].hash_next)
		if (p->v[i].id.session == session)
			return &p->v[i];
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
	p->v[i] = (struct peer){ .id.session = session, .hash_next = *chain(p, session) };
	*chain(p, session) = (uint16_t)i;
	return &p->v[i];
}

bool peers_text(struct peers *p, struct peer *peer, const char *address, uint16_t address_len, const char *name, uint8_t name_len)
{
	if (peer->text && peer->address_len == address_len && peer->name_len == name_len &&
	    !memcmp(peer->text, address, address_len) && !memcmp(peer_name(peer), name, name_len))
		return false;
	text_drop(p, peer);
	peer->address_len = address_len;
	peer->name_len = name_len;
	peer->text = p->mem->alloc(p->mem->arg, text_size(peer));
	if (!peer->text) {
		peer->address_len = peer->name_len = 0;
		return false;
	}
	memcpy(peer->text, address, address_len);
	peer->text[address_len] = 0;
	memcpy(peer->text + address_len + 1, name, name_len);
	peer->text[address_len + 1 + name_len] = 0;
	return true;
}

void peers_drop(struct peers *p, struct peer *peer)
{
	uint16_t *at = chain(p, peer->id.session);

	while (*at && *at != peers_index(p, peer))
		at = &p->v[*at].hash_next;
	if (*at)
		*at = peer->hash_next;
	text_drop(p, peer);
	*peer = (struct peer){ 0 };
}
