/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * This process's side of the hatches (proto/hatch.h). All under attach.
 */
#ifndef DLOCK_CLIENT_HATCH_H
#define DLOCK_CLIENT_HATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "conn.h"

struct space;

/* Says that the slot is closed. false: there is no room. */
bool hatch_drop(const struct space *s, uint32_t client, uint32_t slot);

/*
 * Asks for a lock to be opened, and waits. gone() is asked now and then: the daemon is not there any more. -EPIPE: so it is. -EAGAIN: it is
 * to be asked for by the socket. -ETIMEDOUT, -ECANCELED: the limit's; as after -EPIPE the hatch is void until the next WELCOME.
 */
int hatch_open(const struct space *s, uint32_t client, const struct conn_what *what, const struct node_line *line, bool (*gone)(void),
	       const struct limit *limit, uint32_t *ret_slot);

#endif
