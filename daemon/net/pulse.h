/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Whether a connection works both ways, and how long it takes. Each end sends a beat each interval: a stamp of its own clock, and
 * the last stamp of the other's that it has heard, with how long ago. An end that has not seen a stamp of its
 * own come back for `silence` has lost one direction or the other; both ends find so, whichever it was.
 *
 *   u16 length, 28   u8 kind, 1   u8 flags   u64 stamp   u64 echo   u64 held (ns between hearing echo and sending this)
 *
 * A length below that of the shortest frame tells beats from frames. No beat waits behind frames that wait: so bulk does not look like silence.
 */
#ifndef DLOCK_NET_PULSE_H
#define DLOCK_NET_PULSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../units.h"

#define PULSE_BYTES 28
#define PULSE_NOW 1              /* flag: answer at once */

struct pulse {
	nsec_t alive;                    /* when the newest stamp that came back was sent */
	nsec_t heard;                    /* when one came back last */
	nsec_t probe, probe_until;       /* a stamp that has to come back by then; 0: none */
	uint64_t theirs;                 /* the newest stamp heard */
	nsec_t theirs_at;
	nsec_t rtt, rtt_min;             /* 0: not measured */
};

void pulse_begin(struct pulse *p, nsec_t now);
void pulse_encode(const struct pulse *p, nsec_t now, bool answer, uint8_t ret[PULSE_BYTES]);

/* -EBADMSG; 1: answer at once */
int pulse_hear(struct pulse *p, nsec_t now, const uint8_t *bytes, size_t n);

/* A beat that is sent now has to come back in a few round trips, or within `silence` at most. */
void pulse_probe(struct pulse *p, nsec_t now, nsec_t silence);

/* When it is dead unless something comes back. */
nsec_t pulse_deadline(const struct pulse *p, nsec_t silence);

#endif
