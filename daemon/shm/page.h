/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The node page (segment.h): per space, until when its clients may rely on it. Clients map it
 * read-only, the daemon alone writes. A page that an earlier session left is first marked GONE in
 * every line, for whoever still maps it, and then replaced: what it had promised is over.
 */
#ifndef DLOCK_PAGE_H
#define DLOCK_PAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "../../include/proto/segment.h"

struct page {
	int fd;                          /* opened read-only: this one is handed to clients */
	struct node_line *line;
	bool counter;                    /* publish deadlines in counter ticks too (for measuring) */
};

/* shm_dirfd: RUN/shm. fresh: end what is there. -ESTALE: not the page of this session. */
int page_open(struct page *p, int shm_dirfd, uint64_t session, bool fresh, bool counter);
void page_close(struct page *p);

void page_space_good(struct page *p, uint32_t space, uint64_t generation);
void page_space_gone(struct page *p, uint32_t space);     /* for good: a line is not used again in its session */

#endif
