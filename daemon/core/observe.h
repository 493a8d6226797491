/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Observing the beats of others (S1): a session is ended by whoever has seen one and the same version
 * of its beat for ttl + margin of its own clock, by compare-and-set of exactly that version to a
 * tombstone. If a beat lands first the tombstone fails, and the other way round. The store never uses
 * a version twice, so the version stands for the value, also where that cannot be read.
 *
 * Beats that no listed member has get a part of the room only, so that whoever fills the store with them does not hide those
 * of members.
 */
#ifndef DLOCK_CORE_OBSERVE_H
#define DLOCK_CORE_OBSERVE_H

#include "beat.h"

#define OBSERVE_MAX (4 * CORE_MEMBERS_MAX)
#define OBSERVE_OTHERS_MAX (2 * CORE_MEMBERS_MAX)

struct observed {
	struct msg_peer id;
	uint64_t counter;
	uint64_t version;                /* 0: a member without a beat */
	core_nsec_t since;               /* first seen with this version */
	uint64_t record;                 /* of a session that has ended: the version of its member record; 0: it has none any more */
	bool ended, present;
	bool done;                       /* there is nothing to do about it before the next list */
};

struct observe {
	struct observed *v;              /* OBSERVE_MAX of them, by session */
	unsigned n;
};

/* A list of the beats has come: between _begin and _end one _beat for each; member: of a session that is listed. */
void observe_begin(struct observe *o);
void observe_beat(struct observe *o, const struct beat_value *v, uint64_t version, bool member, core_nsec_t now);
void observe_end(struct observe *o, core_nsec_t now);

/* A member that the list of beats lacks. */
void observe_absent(struct observe *o, uint64_t session, core_nsec_t now);

/* NULL: not seen. */
struct observed *observe_find(const struct observe *o, uint64_t session);

/* One whose version has stood for so long, the first from the place `from` on, and round. NULL: none. */
struct observed *observe_expired(struct observe *o, unsigned from, core_nsec_t wait, core_nsec_t now);

#endif
