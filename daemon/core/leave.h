/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Leaving for good, which a daemon that is only stopped does not do: that one drains, and its successor adopts the
 * session, the leases and the clients.
 *
 * Who leaves masters nothing any more (as with a drain), refuses whoever waits, wants out of its barriers' rounds, asks back
 * what is held, and when nothing is left, or the patience is over, ends its own session: what is held then is lost as at any
 * lapse, with LOSS first, and who has no verdict yet hears ESTALE. The tombstone is its own, the member record goes after it, so the others wait for no TTL. It begins no other.
 */
#ifndef DLOCK_CORE_LEAVE_H
#define DLOCK_CORE_LEAVE_H

#include "member.h"

struct leave {
	bool on;
	bool walking;                    /* leases are to be refused or asked back from `cursor` on */
	core_ref_t cursor;
	core_nsec_t until;               /* holders have so long */
};

struct core;

void leave_begin(struct core *c, core_nsec_t patience);

/* Ends the session if it is time. */
void leave_tick(struct core *c, struct step *s);

/* false: nothing to do. */
bool leave_work(struct core *c, struct step *s);

#endif
