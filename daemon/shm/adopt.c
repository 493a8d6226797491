/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * After a restart: the ledger says who was here and what the node owns; the words in the segment
 * say the rest, as far as that agrees. Every step can be done again, should this daemon die too.
 */
#include <errno.h>
#include <fcntl.h>
#include <dirent.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "object.h"
#include "sigbus.h"
#include "sight.h"
#include "word.h"

#define COUNT_END (UINT64_C(1) << LOCK_COUNT_BITS)

/* How many have each name open; an open whose name is gone was being closed. */
void adopt_opens(struct shm *shm)
{
	for (uint32_t i = 0, next; (next = table_next(&shm->ledger.opens, i)); i = next) {
		const struct ledger_open *o = ledger_open_at(&shm->ledger, next);
		struct space *s = shm->spaces[o->space];

		quota_note(&shm->quotas, ledger_client(&shm->ledger, o->client)->uid, QUOTA_OPENS);
		/* In a lost space it stays until its client closes it: so long its line must not speak of another. */
		if (!s || s->broken)
			continue;
		if (name_is(s, o->slot)) {
			name_opened(s, o->slot);
			delay_adopt(s, o);
		} else {
			shm->opens_of[o->space]--;
			quota_give(&shm->quotas, ledger_client(&shm->ledger, o->client)->uid, QUOTA_OPENS);
			ledger_open_del(&shm->ledger, next);
		}
	}
}

/*
 * Where it cannot be found out (no descriptors, no memory) nobody is declared dead: whoever were
 * alive would go on in a lock that another is given.
 */
int adopt_clients(struct shm *shm)
{
	for (uint32_t i = 0, next; (next = table_next(&shm->ledger.clients, i)); i = next) {
		int r = client_adopt(shm, next);

		quota_note(&shm->quotas, ledger_client(&shm->ledger, next)->uid, QUOTA_CLIENTS);
		if (r == -ESRCH)
			client_gone(shm, next, "it ended while no daemon was there");
		else if (r < 0)
			return r;
	}
	return 0;
}

static bool owner_is_real(struct space *s, uint32_t slot, uint32_t client)
{
	uint32_t open = ledger_open_find(&s->shm->ledger, client, (uint16_t)s->id, slot);

	return open && (s->shm->clients[client] || open_mourned(ledger_open_at(&s->shm->ledger, open)));
}

/* Whatever stands there: nobody owns it. What is read goes on. */
static void adopt_share(struct space *s, uint32_t slot)
{
	struct seg_slot *g = seg_slot(s->base, slot);
	uint64_t was;

	if (!lock_is_share(LOCK_LOAD(&g->word)) || g->bias != name_at(s, slot)->first + name_at(s, slot)->count - 2) {
		lock_lower(&g->word, &was);
		name_reopen(s, slot);
	}
}

/* A word that says what the ledger cannot confirm loses: closed, and its holder sees ESTALE. */
static void adopt_word(struct space *s, uint32_t slot)
{
	const struct ledger_name *n = name_at(s, slot);
	struct seg_slot *g = seg_slot(s->base, slot);
	uint64_t w = LOCK_LOAD(&g->word), left = COUNT_END - lock_count(w), bias;

	if (!lock_is_free(w) && !owner_is_real(s, slot, (uint32_t)(w & LOCK_OWNER))) {
		lock_died(&g->word, (uint32_t)(w & LOCK_OWNER));
		w = LOCK_LOAD(&g->word);
	}
	/* Another node may have waited. It is said again where it still does. What goes back for our own sake stays as it is. */
	while ((w & LOCK_Y) && !n->raised && !LOCK_CAS(&g->word, &w, w & ~LOCK_Y, __ATOMIC_RELAXED))
		;
	if (!n->raised)
		w &= ~LOCK_Y;
	if (n->count && n->shared && lock_is_free(w)) {
		adopt_share(s, slot);
		return;
	}
	if (lock_is_share(w)) {          /* all of it was on its way from the ledger to the slot */
		lock_lower(&g->word, &w);
		w = LOCK_LOAD(&g->word);
	}
	bias = n->first - 1 - (COUNT_END - n->count);
	if (((w & LOCK_L) && left > n->count) ||
	    (!(w & LOCK_L) && lock_count(w) != 0) || (!lock_is_free(w) && (!n->count || g->bias != bias))) {
		shm_tell(s->shm, "scribbled", s, slot, 0, n->first, "its word is not what the ledger allows: holder lost");
		word_store(&g->word, (w & LOCK_W) | LOCK_D);
		readers_renew(s, slot);
		futex_wake_class(lock_futex(&g->word), INT_MAX, LOCK_CLASS_ANY);
	} else if (n->count && g->bias != bias) {
		word_store(&g->bias, bias);      /* the grant was on its way from the ledger to the slot */
	}
}

void adopt_words(struct space *s)
{
	for (uint32_t i = 0, next; (next = table_next(&s->names, i)); i = next) {
		struct ledger_name *n = name_at(s, next);
		uint64_t w;

		if (name_is(s, next) && kind_is_object(name_kind(s, next))) {
			object_adopt(s, next);
			continue;
		}
		if (!name_is_lock(s, next))
			continue;
		adopt_word(s, next);
		readers_want_again(s, next, WANTS);
		if (n->raised && n->count)
			space_revoke_now(s, next);
		seg_watched_set(s->base, next, false);
		sight_lock(s, next);
		w = LOCK_LOAD(&seg_slot(s->base, next)->word);
		if (w & LOCK_W) {
			seg_bit_set(s->base, SEG_WATCH, next);
			watch_add(s, next);
			lock_look(&seg_slot(s->base, next)->word);
		}
		elect_adopt(s, next);
		if (!n->opens && (!(w & LOCK_D) || name_kind(s, next) == KIND_ELECT || s->shm->config.many)) {
			name_opened(s, next);    /* as if its last client had just left */
			name_closed(s, next);
		} else if (lock_is_free(w) && !(w & LOCK_L) && (w & LOCK_W)) {
			s->shm->ops.want(s->shm->ops.arg, s, next);
		}
	}
	watch_scan_all(s);
}

/* --- what an earlier session left: its clients live, and may cut their segment at any moment --- */

static void end_slots(char *base, int fd)
{
	off_t at = (off_t)SEG_SLOT_OFF, end;

	while (at < (off_t)SEG_SIZE && (at = lseek(fd, at, SEEK_DATA)) >= 0 && (end = lseek(fd, at, SEEK_HOLE)) >= 0) {
		for (uint64_t off = ((uint64_t)at + 63) & ~UINT64_C(63);
		     off + 64 <= (uint64_t)end && off + 64 <= SEG_SIZE; off += 64) {
			uint64_t *word = &((struct seg_slot *)(base + off))->word;

			__atomic_store_n(word, 0, __ATOMIC_RELEASE);
			futex_wake_class(lock_futex(word), INT_MAX, LOCK_CLASS_ANY);
		}
		at = end;
	}
}

static void end_segment(int dirfd, const char *name)
{
	int fd = openat(dirfd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct stat st;
	void *p;

	if (fd < 0)
		return;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
		p = mmap(NULL, SEG_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
		if (p != MAP_FAILED && sigbus_guard(p, SEG_SIZE) == 0) {
			end_slots(p, fd);
			sigbus_unguard(p);
		}
		if (p != MAP_FAILED)
			munmap(p, SEG_SIZE);
	}
	close(fd);
}

void adopt_end(int shm_dirfd)
{
	int fd = openat(shm_dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (e->d_name[0] != '.')
			end_segment(shm_dirfd, e->d_name);
	if (d)
		closedir(d);
	else if (fd >= 0)
		close(fd);
}
