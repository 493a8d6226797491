/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The node page (segment.h): per space, until when its clients may rely on it. Clients map it
 * read-only, the daemon alone writes. A page that an earlier session left is first marked GONE in
 * every line, for whoever still maps it, and then replaced: what it had promised is over.
 *
 * All lines that are good have the same deadline. A later one may be published in any order; one that
 * is taken back goes from the ticks first, since whoever finds these good asks no further.
 */
#ifndef DLOCK_PAGE_H
#define DLOCK_PAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "../../include/proto/segment.h"

struct page {
	int fd;                          /* opened read-only: this one is handed to clients */
	struct node_line *line;
	uint64_t ns, ticks;              /* what holds for all spaces that are good */
};

/* Far enough to be never, near enough to be compared: what the counter shows in about a century. */
#define PAGE_FAR_TICKS (UINT64_C(1) << 62)

/*
 * shm_dirfd: RUN/shm. fresh: end what is there. -ESTALE: not the page of this session. ns, ticks: the
 * deadline to begin with.
 */
int page_open(struct page *p, int shm_dirfd, uint64_t session, bool fresh, uint64_t ns, uint64_t ticks);
void page_close(struct page *p);

/* ticks 0: the clock has to be asked. */
void page_deadline(struct page *p, uint64_t ns, uint64_t ticks);
void page_loss_span(struct page *p, uint64_t span);

void page_space_good(struct page *p, uint32_t space, uint64_t generation);
void page_space_gone(struct page *p, uint32_t space);     /* for good: a line is not used again in its session */

#endif
