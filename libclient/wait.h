/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A wait that is going on: slow.c, and wait_shared.c where readers are about. */
#ifndef DLOCK_WAIT_H
#define DLOCK_WAIT_H

#include "read.h"

#define SPIN_TURNS   100u                /* before sleep: a few microseconds; bounded, so that single-stepping ends */
#define SPIN_BEHIND  8u                  /* of them behind others who sleep */
#define SPIN_GAP     8u                  /* of them between two looks, at most */

struct wait {
	struct dlock *l;
	struct limit limit;
	unsigned how;                    /* enum wait_how */
	bool try;
	uint32_t holder;                 /* who waits */
	struct lock_waiter turn;
	uint64_t force_ns;               /* when an heir may force the hand-over */
	struct seg_cell *cell;
	struct read_line *line;          /* WAIT_SHARED: where it will read */
	struct read_hold *read;          /* ... NULL: it has no place yet, or holds */
	struct read_hold *upgrades;      /* WAIT_UPGRADE: what it has ... */
	struct binding *upgrades_by;     /* ... through this */
};

/* --- slow.c: for those who look --- */

void wait_show(struct wait *x, const struct binding *b);
void wait_hide(struct wait *x);

#define WAIT_READS 2                     /* it reads */

/* --- wait_shared.c. All return 0, 1: look again, or a negative error --- */

/* The waiter holds the name already, in a way that this wait can only wait for. */
int wait_in_itself(const struct wait *x);

/* Before a wait: does the waiter read already, and has it a place to read from? -EALREADY: it holds once more. */
int wait_beside_readers(struct wait *x, struct binding *b);
int wait_upgrade_over(struct wait *x, struct binding *b);  /* somebody goes before all others */
int wait_still_reads(const struct wait *x, const struct binding *b);
int wait_still_read(const struct wait *x, struct binding *b, uint64_t w);       /* until it owned the word, w; else it lets go of that */
bool wait_in_vain(uint64_t w);           /* to upgrade: for tokens, while another node waits for all who read */

/* It owns the word, w, and lets go of it where it returns anything but 0: to read, or to be alone once the readers have left. */
int wait_reads(struct wait *x, struct binding *b, uint64_t w);
int wait_readers(struct wait *x, struct binding *b, uint64_t *w);
int wait_reads_share(struct wait *x, struct binding *b);   /* also WAIT_READS, -EOWNERDEAD: it reads, and owns nothing */
void wait_wants(const struct wait *x, struct binding *b);  /* for the daemon, should it have to ask for a lease */
void wait_unread(struct wait *x);        /* the place to read from is given back, where it was not used */

#endif
