/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The daemon's side of shared memory, with everything around it in the test's hand: the loop is
 * turned by hand, the core is one counter of tokens, and a client is an anchor that the test holds
 * open for as long as the client shall live.
 */
#ifndef DLOCK_SHM_RIG_H
#define DLOCK_SHM_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "../../daemon/shm/shm.h"
#include "../../daemon/shm/word.h"
#include "../fuzz/fake_loop.h"

#define STORY(name, title) { title, name, NULL, NULL, NULL }

struct rig {
	char dir[128];
	int rundir, listener;
	struct loop *loop;
	struct shm *shm;
	struct ledger_identity id;
	struct shm_config config;
	uint64_t next_token, number;
	uint64_t range;                  /* tokens a grant */
	bool silent;                     /* the core does not answer */
	uint32_t asked, asked_space;     /* the slot that was asked for last, meanwhile */
	unsigned wants, tries, releases, yields, loss_done;
	unsigned ranks, rank;            /* how often a priority was to be told, and the last one */
	bool observing;                  /* the core tells who leads elsewhere */
	int observes;                    /* names that it was asked for */
	unsigned leads;                  /* how often it was to tell others who leads here ... */
	bool led;
	struct shm_value leader;         /* ... and what, the last time */
	uint8_t leader_bytes[VALUE_MAX];
	uint64_t yield_used;             /* as the last yield said */
	bool yield_again, died;          /* what the last one said */
	bool lost;                       /* grants say so */
	bool sees;                       /* a look is due a tenth of a second after each open and grant (sight.h): else no timer is but what the test is about */
	bool late;                       /* when another daemon begins, the session is over */
	char events[4096];               /* what shm told, a line each: "what space/name" */
};

struct rig_client {
	struct client *c;
	uint32_t index;
	int anchor;                      /* close it, and the client is gone */
};

/* Once, in main(): a mount namespace of our own. False: not permitted; then only what fits any disk is tested. */
bool rig_private(void);

/* A directory, on a tmpfs of this size where that is permitted. */
void rig_dir(char *ret, size_t n, const char *size);
void rig_dir_done(const char *dir);

void rig_open(struct rig *r);                    /* a fresh session */
void rig_open_sized(struct rig *r, const char *size);
void rig_sees(struct rig *r);
void rig_done(struct rig *r);
void rig_stop(struct rig *r);                    /* the daemon ends, in good order or not; what it wrote stays */
int rig_adopt(struct rig *r);                    /* another begins, in the same session */
int rig_begin(struct rig *r);                    /* another begins, in a new one */
void rig_turn(struct rig *r);                    /* until nothing happens any more */
void rig_grant(struct rig *r, struct space *s, uint32_t slot);

struct space *rig_space(struct rig *r, const char *name);
struct rig_client rig_client(struct rig *r);
void rig_client_end(struct rig *r, struct rig_client *c);
uint32_t rig_name(struct rig *r, struct rig_client *c, struct space *s, const char *name);
uint64_t *rig_word(struct space *s, uint32_t slot);

/* As libdlock would, without sleeping: takes the word, or says that it would sleep. */
bool rig_take(struct space *s, uint32_t slot, struct rig_client *c);
void rig_say(struct space *s, uint32_t slot);   /* as a client that wants the lease, before it rings */
void rig_want(struct space *s, uint32_t slot);           /* sets the bit and rings */
void rig_watch(struct space *s, uint32_t slot);          /* likewise */
void rig_ring(struct space *s);

/* A lock that two have open, and whose lease is here. */
struct rig_two {
	struct rig r;
	struct space *s;
	struct rig_client a, b;
	uint32_t slot;
	uint64_t *word;
};

void rig_two(struct rig_two *x, uint32_t delay);         /* r is open; a asks for that lock-delay */
int rig_two_open(struct rig_two *x, struct rig_client *c, uint32_t delay);
uint64_t rig_two_take(struct rig_two *x, struct rig_client *c);          /* the word that this has made */
void rig_two_done(struct rig_two *x);

bool rig_said(const struct rig *r, const char *line);
unsigned rig_fds(void);                                  /* how many descriptors are open */
long rig_blocks(const struct rig *r);                    /* 512-byte blocks in use below the run directory */

#endif
