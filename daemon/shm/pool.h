/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Free semaphores (proto/poolword.h): the daemon's part. The value belongs to the cluster, and rests in a record of the
 * store; the node that has the name's lease, an exclusive one as a lock's, has it in its segment meanwhile.
 *
 *   state      lease  word
 *   NONE       -      closed   somebody wants it: claims -> ASKED
 *   ASKED      -      closed   granted -> READING
 *   READING    yes    closed   the record is read, then written with this lease's token -> OPEN
 *   OPEN       yes    open     written again when its value is another, a second after the last time. Another node
 *                              wants it, or nobody has it open: the word is closed -> WRITING
 *   WRITING    yes    closed   written -> RELEASING
 *   RELEASING  -      closed   forgotten -> NONE
 *
 * A node on which somebody waits while the value is 0 keeps the lease for a while though others want it, longer each time that it was in vain:
 * else those who only wait would hand it round without end. But not if the next one has posts to bring (priority 1): that is what
 * is waited for.
 *
 * What must hold:
 *  - A record is written only if it still has the version that this node has read or written. Whoever gets the lease writes
 *    it before it opens the word: so one that had it before, and comes late, finds another version.
 *  - The lease is given back after the value is in the store. What a host that dies, or a session that lapses, had
 *    not written is lost: the next finds the value of a second ago.
 *  - There is one request to the store at a time.
 */
#ifndef DLOCK_SHM_POOL_H
#define DLOCK_SHM_POOL_H

#include "../../include/proto/poolword.h"
#include "object.h"

#define POOL_RECORD_SIZE 16

enum pool_state { POOL_NONE, POOL_ASKED, POOL_READING, POOL_OPEN, POOL_WRITING, POOL_RELEASING };

enum pool_store { POOL_GET, POOL_PUT, POOL_REMOVE };

struct pool {
	struct object o;
	enum pool_state state;
	bool revoked;
	bool pressed;                    /* by one who brings posts */
	bool presses;                    /* ASKED: for posts of ours */
	bool wanted;                     /* somebody has asked for it since it was closed */
	bool exists;                     /* there is a record */
	bool read;                       /* READING: it has been read, and is to be written */
	bool leaving;
	uint64_t token;                  /* of the lease */
	uint64_t version;                /* of the record */
	uint32_t stored;                 /* the value there */
	uint32_t writing;                /* the value that is being written */
	unsigned dry;                    /* so often in a row it was opened for waiters and had nothing for them */
	nsec_t opened, written;
	struct loop_timer timer;
	struct loop_defer defer;
	struct loop_timer watch;         /* pool_watch.c */
	nsec_t watch_span;
	uint64_t watch_seen;             /* the value, at the last look */
	/* The request under way. */
	bool busy;
	enum pool_store op;
	void *request;                   /* the node's */
	struct account *asker;           /* whose question it answers; NULL */
};

/* What came of a request: error 0, -ENOENT, -EAGAIN (another version), others: try again. */
struct pool_answer {
	int error;
	uint64_t version;
	const void *bytes;
	size_t n;
};

struct pool_ops {
	void (*claim)(void *arg, struct pool *p);        /* with p->presses as its priority */
	void (*press)(void *arg, struct pool *p);        /* the claim that waits, too */
	void (*release)(void *arg, struct pool *p);      /* also of one that waits */
	/* PUT, REMOVE: if it has p->version. Answered by pool_answered(), perhaps at once. -ENOMEM, or what keeps the store closed. */
	int (*store)(void *arg, struct pool *p, const void *bytes, size_t n);
	void (*drop)(void *arg, struct pool *p); /* the answer is not wanted any more */
};

extern const struct object_kind pool_kind;

static inline struct pool_words *pool_words(const struct pool *p)
{
	return (struct pool_words *)object_words(&p->o, p->o.slot);
}

void pool_answered(struct pool *p, const struct pool_answer *a);

struct pool_lease {
	uint64_t first, count;
};
void pool_ledger_grant(struct space *s, uint32_t slot, const struct pool_lease *l);
void pool_granted(struct space *s, uint32_t slot);
void pool_ledger_release(struct space *s, uint32_t slot);
void pool_forgotten(struct space *s, uint32_t slot);
void pool_refused(struct space *s, uint32_t slot, int error);
void pool_revoke(struct space *s, uint32_t slot, bool pressed);  /* again when that has changed */
bool pool_lease(const struct space *s, uint32_t slot, struct pool_lease *ret);
struct pool *pool_in(const struct space *s, uint32_t slot);

/* --- pool_word.c: the word in the segment --- */

uint32_t pool_word_value(const struct pool *p);   /* OPEN: the value */
void pool_word_set(struct pool *p, uint32_t value);      /* as it is in the store: while nobody changes it, or may. Wakes all */
void pool_word_close(struct pool *p);    /* wakes all */
void pool_word_open(struct pool *p);     /* wakes nobody yet, unless there are posts */
void pool_word_rings(struct pool *p);    /* from here on, when it is changed */
bool pool_word_awaited(const struct pool *p);    /* somebody sleeps on it */
void pool_word_wake(struct pool *p);
bool pool_has_posts(const struct pool *p);       /* that came while it was closed: who posts and goes must not be forgotten */
void pool_posts_add(struct pool *p);

/* --- pool_record.c: what lies in the store --- */

void pool_record_write(uint8_t ret[POOL_RECORD_SIZE], uint32_t value, uint64_t token);
bool pool_record_read(const void *bytes, size_t n, uint32_t *ret_value, uint64_t *ret_token);     /* false: it is none */

/* --- pool_watch.c: who sleeps while there is something --- */

void pool_watch_begin(struct pool *p);
void pool_watch(struct pool *p);         /* somebody may sleep */
void pool_watch_end(struct pool *p);

#endif
