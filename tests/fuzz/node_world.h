/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A whole node in one process, with a loop that the fuzzer turns: its store, core, segments and
 * sockets are real. A hostile user has sockets, mappings and anchors; a victim holds a lock in
 * another space and knows exactly what it must see there.
 *
 * After each input the hostile user ends, and the node must be as it was before.
 */
#ifndef DLOCK_NODE_WORLD_H
#define DLOCK_NODE_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../../daemon/node/node.h"
#include "fake_loop.h"

#define MUST(x)                                                                                \
	do {                                                                                   \
		if (!(x))                                                                      \
			world_fail(#x, __FILE__, __LINE__);                                    \
	} while (0)

void world_fail(const char *what, const char *file, int line) __attribute__((noreturn));

/* The bytes of an input, read from the front; zeroes behind the end. */
struct input {
	const uint8_t *p;
	size_t n;
};

uint64_t input_number(struct input *in, size_t bytes);

#define WORLD_CALLERS 4

struct caller {
	int fd;                          /* -1: not connected */
	int anchor[4];                   /* all that it was ever given; -1: none */
	uint32_t client;
	uint64_t nonce[2];
	uint64_t asked[2];               /* the nonce that it was asked for */
	uint32_t space, slot, account;   /* opened last */
};

struct world {
	struct loop *loop;
	struct node *node;
	struct caller caller[WORLD_CALLERS];
	void *base;                      /* the hostile space's segment, as a client has it mapped */
	int segment, bell;               /* -1: never opened */
	uint64_t generation;
};

extern struct world world;

void world_begin(void);                  /* before each input */
void world_end(void);                    /* after it: judges */
void world_turn(nsec_t span);            /* lets time go by; no turn may take long */
void world_restart(void);                /* the daemon ends, another takes over */

void caller_connect(struct caller *c);
void caller_send(struct caller *c, const void *packet, size_t n, bool with_fds);
void caller_hello(struct caller *c, uint32_t flags, bool resume);
void caller_open(struct caller *c, const char *space, const char *name, size_t name_len);
void caller_open_thing(struct caller *c, unsigned kind, const char *space, const char *name, size_t name_len);
void caller_close_name(struct caller *c, bool hint);
void caller_receive(struct caller *c);   /* takes what answers say */
void caller_disconnect(struct caller *c);
void caller_die(struct caller *c);       /* all its anchors go */

void world_ask(unsigned what);           /* as the query socket would */

#endif
