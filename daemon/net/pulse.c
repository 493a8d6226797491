/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pulse.h"

#include <errno.h>
#include <string.h>

#define PROBE_MIN (300 * NSEC_PER_MSEC)   /* a busy host is not a dead one */
#define PROBE_ROUNDS 8

static void store(uint8_t *p, unsigned n, uint64_t v)
{
	for (unsigned i = 0; i < n; i++)
		p[i] = (uint8_t)(v >> 8 * i);
}

static uint64_t load(const uint8_t *p, unsigned n)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < n; i++)
		v |= (uint64_t)p[i] << 8 * i;
	return v;
}

void pulse_begin(struct pulse *p, nsec_t now)
{
	*p = (struct pulse){ .alive = now, .heard = now };
}

void pulse_encode(const struct pulse *p, nsec_t now, bool answer, uint8_t ret[PULSE_BYTES])
{
	store(ret, 2, PULSE_BYTES);
	ret[2] = 1;
	ret[3] = answer ? PULSE_NOW : 0;
	store(ret + 4, 8, now);
	store(ret + 12, 8, p->theirs);
	store(ret + 20, 8, p->theirs ? now - p->theirs_at : 0);
}

static void measure(struct pulse *p, nsec_t now, nsec_t stamp, nsec_t held)
{
	nsec_t rtt = now - stamp > held ? now - stamp - held : 1;

	p->rtt = p->rtt ? (p->rtt * 7 + rtt) / 8 : rtt;
	if (!p->rtt_min || rtt < p->rtt_min)
		p->rtt_min = rtt;
}

int pulse_hear(struct pulse *p, nsec_t now, const uint8_t *bytes, size_t n)
{
	if (n != PULSE_BYTES || load(bytes, 2) != n || bytes[2] != 1 || bytes[3] & ~PULSE_NOW)
		return -EBADMSG;

	uint64_t stamp = load(bytes + 4, 8), echo = load(bytes + 12, 8), held = load(bytes + 20, 8);

	if (echo > now)                          /* not one of ours */
		return -EBADMSG;
	p->theirs = stamp;
	p->theirs_at = now;
	if (echo > p->alive) {
		p->alive = echo;
		p->heard = now;
		measure(p, now, echo, held);
		if (p->probe && echo >= p->probe)
			p->probe = 0;
	}
	return bytes[3] & PULSE_NOW;
}

void pulse_probe(struct pulse *p, nsec_t now, nsec_t silence)
{
	nsec_t span = p->rtt * PROBE_ROUNDS;

	if (p->probe)
		return;
	if (span < PROBE_MIN)
		span = PROBE_MIN;
	p->probe = now;
	p->probe_until = now + (span < silence ? span : silence);
}

nsec_t pulse_deadline(const struct pulse *p, nsec_t silence)
{
	nsec_t at = p->alive + silence;

	return p->probe && p->probe_until < at ? p->probe_until : at;
}
