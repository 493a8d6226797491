/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A daemon for tests of the library: a thread that speaks the attach protocol, grants ranges of
 * tokens and looks after sleepers, and can be told to do it wrong. It keeps no ledger, watches no
 * process and knows of no other node. Its knobs may be turned while it runs.
 */
#ifndef FAKE_DAEMON_H
#define FAKE_DAEMON_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/attach.h"
#include "proto/lockword.h"
#include "proto/segment.h"

#define FAKE_SPACES 8
#define FAKE_NAMES  64
#define FAKE_CONNS  64

struct fake_space {
	char name[ATTACH_SPACE_MAX + 1];
	uint64_t generation;
	int fd, bell;
	void *base;
	bool gone;
};

struct fake_name {
	uint32_t space, slot;
	char name[ATTACH_NAME_MAX + 1];
	unsigned opens;
	int hint;                        /* FIFO of dlock_fd(), -1 */
	unsigned signo;                  /* for when a hold is lost */
};

struct fake {
	/* Knobs. */
	uint64_t range;                  /* tokens a grant; 0: it does not grant */
	bool nonce;                      /* asks for credentials first */
	bool forget;                     /* knows no client that comes back */
	bool mute;                       /* does not answer requests */
	bool mute_hints;                 /* nor those for a descriptor */
	bool blind;                      /* looks at nothing that no bell has rung for, and after no sleeper */
	int error;                       /* of the next request */
	int hello_error;                 /* of the next HELLO */
	int64_t boottime_off;            /* ns, of what WELCOME says */
	bool short_segment;              /* sends a segment that is too small */
	bool strange_segment;            /* sends a segment of another layout */
	bool no_descriptors;
	uint32_t open_slot;              /* answers OPEN with this slot, when not 0 */

	/* What happened. */
	unsigned hellos, resumed, opens, soons, closes, hints, wants, grants, looks, unnonced;

	char dir[64];
	int listen, conn[FAKE_CONNS];
	uint32_t conn_client[FAKE_CONNS];
	int page_fd;
	struct node_line *page;
	struct fake_space spaces[FAKE_SPACES + 1];       /* from 1 */
	struct fake_name names[FAKE_NAMES];
	uint32_t n_spaces, n_names, last_client, last_line;
	uint64_t next_token;
	pthread_mutex_t lock;
	pthread_t thread;
	bool stop;
};

/* One at a time; DLOCK_RUN_DIR points to it, and the library finds it there. */
void fake_start(struct fake *f);
void fake_stop(struct fake *f);

/* Its thread holds the lock while it does anything. */
#define FAKE_SET(f, knob, value)                                                               \
	do {                                                                                   \
		pthread_mutex_lock(&(f)->lock);                                                \
		(f)->knob = (value);                                                           \
		pthread_mutex_unlock(&(f)->lock);                                              \
	} while (0)
#define FAKE_GET(f, counter) ({                                                                \
	__typeof__((f)->counter) value_;                                                       \
	pthread_mutex_lock(&(f)->lock);                                                        \
	value_ = (f)->counter;                                                                 \
	pthread_mutex_unlock(&(f)->lock);                                                      \
	value_;                                                                                \
})

uint64_t *fake_word(struct fake *f, const char *name);   /* in the space "default" */
struct seg_slot *fake_slot(struct fake *f, const char *name);
struct node_line *fake_line(struct fake *f, const char *space);

/* Nobody waits for the answer to a CLOSE: how many there were, as soon as there are n, or after a second. */
unsigned fake_closed(struct fake *f, unsigned n);

void fake_away(struct fake *f, bool away);       /* closes the socket and all connections */
void fake_break(struct fake *f, const char *space);      /* its line is gone; the next open gets a new generation */
void fake_release(struct fake *f, const char *name);     /* a forced release: the hold is lost, others go on */
void fake_hint(struct fake *f, const char *name);        /* a byte into its FIFO */

#endif
