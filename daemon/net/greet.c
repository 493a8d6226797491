/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "greet.h"

#include <errno.h>
#include <string.h>

static const uint8_t magic[8] = "dlock\0\r\n";

struct cursor {
	uint8_t *p;
	const uint8_t *from, *end;
	bool bad;
};

static void put(struct cursor *c, unsigned n, uint64_t v)
{
	for (unsigned i = 0; i < n; i++)
		*c->p++ = (uint8_t)(v >> 8 * i);
}

static void put_text(struct cursor *c, const char *text, size_t max)
{
	size_t n = strnlen(text, max);

	put(c, 1, n);
	memcpy(c->p, text, n);
	c->p += n;
}

static uint64_t get(struct cursor *c, unsigned n)
{
	uint64_t v = 0;

	if ((size_t)(c->end - c->from) < n) {
		c->bad = true;
		return 0;
	}
	for (unsigned i = 0; i < n; i++)
		v |= (uint64_t)*c->from++ << 8 * i;
	return v;
}

/* Printable ASCII only: it goes into logs and tables. */
static void get_text(struct cursor *c, char *ret, size_t max)
{
	size_t n = get(c, 1);

	if (n > max || (size_t)(c->end - c->from) < n) {
		c->bad = true;
		return;
	}
	for (size_t i = 0; i < n; i++) {
		c->bad |= c->from[i] < ' ' || c->from[i] > '~';
		ret[i] = (char)c->from[i];
	}
	ret[n] = 0;
	c->from += n;
}

size_t greet_encode(const struct greeting *g, uint8_t ret[GREET_MAX])
{
	struct cursor c = { .p = ret + sizeof magic };
	size_t n;

	memcpy(ret, magic, sizeof magic);
	put(&c, 2, 0);
	put(&c, 2, g->kind);
	put(&c, 1, g->version_min);
	put(&c, 1, g->version_max);
	put(&c, 2, 0);
	switch (g->kind) {
	case GREET_HELLO:
	case GREET_WELCOME:
		put(&c, 8, g->session);
		put(&c, 4, g->incarnation);
		put(&c, 4, 0);
		put(&c, 8, g->to);
		put(&c, 8, g->conn);
		put_text(&c, g->cluster, GREET_NAME_MAX);
		put_text(&c, g->node, GREET_NAME_MAX);
		break;
	case GREET_READY:
		put(&c, 8, g->conn);
		break;
	case GREET_REFUSED:
		put(&c, 1, g->reason);
		put_text(&c, g->text, GREET_TEXT_MAX);
		break;
	}
	n = (size_t)(c.p - ret);
	c.p = ret + sizeof magic;
	put(&c, 2, n);
	return n;
}

int greet_length(const void *bytes, size_t n)
{
	struct cursor c = { .from = bytes, .end = (const uint8_t *)bytes + n };
	uint64_t length;

	if (memcmp(bytes, magic, n < sizeof magic ? n : sizeof magic) != 0)
		return -EBADMSG;
	if (n < GREET_HEAD)
		return 0;
	c.from += sizeof magic;
	length = get(&c, 2);
	return length < GREET_HEAD || length > GREET_MAX ? -EBADMSG : (int)length;
}

uint8_t greet_version(uint8_t a_min, uint8_t a_max, uint8_t b_min, uint8_t b_max)
{
	uint8_t min = a_min > b_min ? a_min : b_min, max = a_max < b_max ? a_max : b_max;

	return min <= max ? max : 0;
}

static bool has_version(const struct greeting *g, uint8_t min, uint8_t max)
{
	return greet_version(g->version_min, g->version_max, min, max) != 0;
}

int greet_decode(const void *bytes, size_t n, uint8_t our_min, uint8_t our_max, struct greeting *ret)
{
	struct cursor c = { .from = (const uint8_t *)bytes + sizeof magic, .end = (const uint8_t *)bytes + n };
	struct greeting g = { 0 };

	if (greet_length(bytes, n) != (int)n || get(&c, 2) != n)
		return -EBADMSG;
	g.kind = (enum greet_kind)get(&c, 1);
	(void)get(&c, 1);
	g.version_min = (uint8_t)get(&c, 1);
	g.version_max = (uint8_t)get(&c, 1);
	(void)get(&c, 2);
	if (!g.version_min || g.version_min > g.version_max)
		return -EBADMSG;
	if (g.kind != GREET_REFUSED && !has_version(&g, our_min, our_max)) {
		*ret = g;
		return -EPROTONOSUPPORT;
	}
	switch (g.kind) {
	case GREET_HELLO:
	case GREET_WELCOME:
		g.session = get(&c, 8);
		g.incarnation = (uint32_t)get(&c, 4);
		(void)get(&c, 4);
		g.to = get(&c, 8);
		g.conn = get(&c, 8);
		get_text(&c, g.cluster, GREET_NAME_MAX);
		get_text(&c, g.node, GREET_NAME_MAX);
		c.bad |= !g.session || !g.incarnation || (g.kind == GREET_WELCOME && !g.conn);
		break;
	case GREET_READY:
		g.conn = get(&c, 8);
		c.bad |= !g.conn;
		break;
	case GREET_REFUSED:
		g.reason = (uint8_t)get(&c, 1);
		get_text(&c, g.text, GREET_TEXT_MAX);
		break;
	default:                                 /* a byte from outside */
		return -EBADMSG;
	}
	if (c.bad)
		return -EBADMSG;
	*ret = g;
	return 0;
}

bool greet_loud(uint8_t reason)
{
	static const bool loud[] = {
#define X(name, loud) loud,
		GREET_REASONS(X)
#undef X
	};

	return reason >= GREET_REASONS_N || loud[reason];
}

static uint64_t number_floor(uint32_t a, uint32_t b)
{
	return ((uint64_t)a + b) << GREET_COUNTER_BITS;
}

uint64_t greet_number(uint64_t self, uint64_t other, uint32_t self_incarnation, uint32_t other_incarnation, uint64_t above)
{
	uint64_t floor = number_floor(self_incarnation, other_incarnation);
	uint64_t n = (above > floor ? above : floor) + 1;

	if ((n & 1) != (self > other))
		n++;
	return n >> GREET_COUNTER_BITS == floor >> GREET_COUNTER_BITS ? n : 0;
}

bool greet_number_possible(uint32_t a, uint32_t b, uint64_t number)
{
	return number >> GREET_COUNTER_BITS <= (uint64_t)a + b;
}
