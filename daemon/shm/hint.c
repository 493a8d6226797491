/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * FIFOs behind dlock_fd(): RUN/hint/CLIENT.SPACE.SLOT, a byte when the hold is wanted by another or
 * lost. Open for reading and writing on both sides, so that a restarted daemon opens the same one
 * by its path and the client notices nothing.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "files.h"
#include "shm.h"
#include "word.h"

#define HINT_BUCKETS 256

struct hint {
	struct hint *next;
	uint32_t space, slot;
	int fd;
	uint64_t rung;                   /* identity of the hold that has been told already */
};

static void hint_path(char *ret, size_t n, uint32_t client, uint32_t space, uint32_t slot)
{
	snprintf(ret, n, "%u.%u.%u", client, space, slot);
}

/* Where it is, or would be. A client may have thousands. */
static struct hint **hint_at(const struct client *c, uint32_t space, uint32_t slot)
{
	struct hint **at = &c->hints[slot % HINT_BUCKETS];

	while (*at && ((*at)->space != space || (*at)->slot != slot))
		at = &(*at)->next;
	return at;
}

static struct hint *hint_find(const struct client *c, uint32_t space, uint32_t slot)
{
	return c->hints ? *hint_at(c, space, slot) : NULL;
}

static int hint_add(struct client *c, struct shm *shm, uint32_t space, uint32_t slot)
{
	struct hint *h = calloc(1, sizeof *h);
	char path[40];
	int fd;

	if (h && !c->hints)
		c->hints = calloc(HINT_BUCKETS, sizeof(struct hint *));
	hint_path(path, sizeof path, c->index, space, slot);
	fd = h && c->hints ? files_fifo(shm->hint_dirfd, path) : -ENOMEM;
	if (fd < 0) {
		free(h);
		return fd;
	}
	*h = (struct hint){ .space = space, .slot = slot, .fd = fd };
	*hint_at(c, space, slot) = h;
	return 0;
}

static int hint_make(struct client *c, struct shm *shm, uint32_t space, uint32_t slot)
{
	uid_t uid = ledger_client(&shm->ledger, c->index)->uid;
	int r = quota_take(&shm->quotas, uid, QUOTA_HINTS);

	if (r < 0)
		return r;
	r = hint_add(c, shm, space, slot);
	if (r < 0)
		quota_give(&shm->quotas, uid, QUOTA_HINTS);
	return r;
}

int hint_open(struct client *c, struct shm *shm, struct space *s, uint32_t slot, int *ret_fd)
{
	uint32_t open = ledger_open_find(&shm->ledger, c->index, (uint16_t)s->id, slot);
	char path[40];
	int fd, r = 0;

	if (!open)
		return -EINVAL;
	/* First of all, so that the FIFO is removed whatever happens now. */
	__atomic_fetch_or(&ledger_open_at(&shm->ledger, open)->flags, OPEN_HINT, __ATOMIC_RELEASE);
	if (!hint_find(c, s->id, slot))
		r = hint_make(c, shm, s->id, slot);
	if (r < 0)
		return r;
	hint_path(path, sizeof path, c->index, s->id, slot);
	fd = files_fifo(shm->hint_dirfd, path);
	if (fd < 0)
		return fd;
	*ret_fd = fd;
	hint_ring(shm, s, slot);
	elect_polled(s, slot);
	return 0;
}

static void hint_write(struct hint *h)
{
	if (write(h->fd, "!", 1) < 0)
		return;                  /* full: the client has a byte to read already */
}

void hint_ring(struct shm *shm, struct space *s, uint32_t slot)
{
	uint64_t w = LOCK_LOAD(&seg_slot(s->base, slot)->word);
	struct client *c = shm->clients[w & LOCK_OWNER];
	struct hint *h = c ? hint_find(c, s->id, slot) : NULL;

	if (h && !(w & LOCK_W))
		h->rung = 0;                     /* nobody waits any more: the next one is news */
	if (!h || !(w & LOCK_W) || h->rung == (w & LOCK_IDENTITY))
		return;
	h->rung = w & LOCK_IDENTITY;
	hint_write(h);
}

static void ring_reader(struct space *s, uint32_t slot, uint32_t client, void *unused)
{
	(void)unused;
	hint_ring_lost(s->shm, s, slot, client);
}

void hint_ring_readers(struct shm *shm, struct space *s, uint32_t slot)
{
	(void)shm;
	if (LOCK_LOAD(&seg_slot(s->base, slot)->word) & LOCK_R)
		readers_each(s, slot, ring_reader, NULL);
}

void hint_ring_lost(struct shm *shm, struct space *s, uint32_t slot, uint32_t client)
{
	struct client *c = shm->clients[client];
	struct hint *h = c ? hint_find(c, s->id, slot) : NULL;

	if (h)
		hint_write(h);
}

void hint_ring_slot(struct shm *shm, struct space *s, uint32_t slot)
{
	for (uint32_t i = 0; (i = table_next(&shm->ledger.clients, i));)
		hint_ring_lost(shm, s, slot, i);
}

void hint_ring_all(struct shm *shm, struct space *s)
{
	for (uint32_t i = 0; (i = table_next(&shm->ledger.clients, i));) {
		struct client *c = shm->clients[i];

		for (unsigned b = 0; c && c->hints && b < HINT_BUCKETS; b++)
			for (struct hint *h = c->hints[b]; h; h = h->next)
				if (h->space == s->id)
					hint_write(h);
	}
}

/* Takes it out, and gives back what it was. */
static void hint_end(struct client *c, struct shm *shm, struct hint **at)
{
	struct hint *h = *at;

	*at = h->next;
	close(h->fd);
	free(h);
	quota_give(&shm->quotas, ledger_client(&shm->ledger, c->index)->uid, QUOTA_HINTS);
}

void hint_drop(struct client *c, struct shm *shm, uint32_t index, uint32_t space, uint32_t slot)
{
	char path[40];

	hint_path(path, sizeof path, index, space, slot);
	unlinkat(shm->hint_dirfd, path, 0);
	if (c && hint_find(c, space, slot))
		hint_end(c, shm, hint_at(c, space, slot));
}

void hint_adopt(struct client *c, struct shm *shm)
{
	for (uint32_t i = ledger_client(&shm->ledger, c->index)->opens; i;
	     i = ledger_open_at(&shm->ledger, i)->next) {
		const struct ledger_open *o = ledger_open_at(&shm->ledger, i);

		if ((o->flags & OPEN_HINT) && !hint_find(c, o->space, o->slot))
			hint_make(c, shm, o->space, o->slot);
	}
}

void hint_close_all(struct client *c, struct shm *shm)
{
	for (unsigned b = 0; c->hints && b < HINT_BUCKETS; b++)
		while (c->hints[b])
			hint_end(c, shm, &c->hints[b]);
	free(c->hints);
	c->hints = NULL;
}
