/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "envelope.h"

#include "bytes.h"

uint32_t envelope_encode(const struct envelope *e, uint8_t ret[CORE_FRAME_MAX])
{
	uint32_t n = ENVELOPE_HEAD + e->n;

	core_assert(n <= CORE_FRAME_MAX);
	if (e->n && e->frame != ret + ENVELOPE_HEAD)
		memcpy(ret + ENVELOPE_HEAD, e->frame, e->n);
	le_store(ret, 2, n);
	ret[2] = FRAME_LAYOUT;
	ret[3] = ENVELOPE_KIND;
	ret[4] = (uint8_t)e->what;
	ret[5] = e->from;
	le_store(ret + 6, 2, 0);
	le_store(ret + 8, 8, e->sender.session);
	le_store(ret + 16, 4, e->sender.incarnation);
	le_store(ret + 20, 4, e->incarnation);
	le_store(ret + 24, 8, e->conn);
	le_store(ret + 32, 8, e->far);
	le_store(ret + 40, 8, e->path);
	return n;
}

int envelope_decode(const void *bytes, size_t n, struct envelope *ret)
{
	const uint8_t *p = bytes;

	if (n < ENVELOPE_HEAD || n > CORE_FRAME_MAX || le_load(p, 2) != n || p[3] != ENVELOPE_KIND)
		return -CORE_EBADMSG;
	if (p[2] != FRAME_LAYOUT)
		return -CORE_EPROTONOSUPPORT;
	struct envelope e = {
		.what = (enum envelope_what)p[4], .from = p[5], .sender = { le_load(p + 8, 8), (uint32_t)le_load(p + 16, 4) },
		.incarnation = (uint32_t)le_load(p + 20, 4), .conn = le_load(p + 24, 8), .far = le_load(p + 32, 8),
		.path = le_load(p + 40, 8), .frame = p + ENVELOPE_HEAD, .n = (uint32_t)n - ENVELOPE_HEAD,
	};
	if (p[4] >= ENVELOPE_N || p[5] > 1 || p[6] || p[7] || !e.sender.session || !e.sender.incarnation || !e.incarnation ||
	    !e.far || !e.path || (e.what == ENVELOPE_FRAME) != (e.n > 0))
		return -CORE_EBADMSG;
	*ret = e;
	return 0;
}
