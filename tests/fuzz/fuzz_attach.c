/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Anything at the attach socket: packets of any length and content, in any order, with descriptors
 * that nobody asked for, from callers that come, go, return and die, over restarts of the daemon.
 */
#include <string.h>

#include "node_world.h"

static void raw(struct caller *c, struct input *in)
{
	uint8_t bytes[1024];
	size_t n = input_number(in, 2) & 1023;

	for (size_t i = 0; i < n; i++)
		bytes[i] = (uint8_t)input_number(in, 1);
	if (n >= sizeof(struct attach_head) && !(bytes[0] & 0x80))
		((struct attach_head *)bytes)->len = (uint16_t)n;
	caller_send(c, bytes, n, false);
}

static void open_any(struct caller *c, struct input *in)
{
	static const char *const spaces[] = { "default", "x", "node", "victim" };
	char name[ATTACH_NAME_MAX];
	size_t n = input_number(in, 1);
	const char *space = spaces[n & 3];

	n = n & 0x80 ? ATTACH_NAME_MAX : (n >> 2 & 7) + 1;
	for (size_t i = 0; i < n; i++)
		name[i] = (char)(i < 8 ? input_number(in, 1) : 'x');
	/* What the victim has is not this one's; it is not kept from the same user, but left alone here. */
	caller_open(c, strcmp(space, "victim") ? space : "default", name, n);
}

static void step(struct caller *c, uint8_t op, struct input *in)
{
	struct shm_config *config = &world.node->shm.config;
	struct attach_nonce nonce = { .head = { ATTACH_NONCE, sizeof nonce, 0 }, .nonce = { c->asked[0], c->asked[1] } };

	switch (op) {
	case 0: caller_connect(c); return;
	case 1: raw(c, in); return;
	case 2: caller_hello(c, ATTACH_INHERIT, false); return;
	case 3: caller_hello(c, (uint32_t)input_number(in, 1) & 3, false); return;
	case 4: caller_hello(c, ATTACH_INHERIT, true); return;
	case 5: open_any(c, in); return;
	case 6: caller_close_name(c, false); return;
	case 7: caller_close_name(c, true); return;
	case 8: caller_send(c, &nonce, sizeof nonce, false); return;
	case 9: caller_send(c, &nonce, input_number(in, 1), true); return;
	case 10: caller_disconnect(c); return;
	case 11: caller_die(c); return;
	case 12: world_turn(input_number(in, 1) * 50 * NSEC_PER_MSEC); return;
	case 13: caller_receive(c); return;
	case 14: config->no_peerpidfd = input_number(in, 1) & 1; return;
	case 15: world_restart(); return;
	case 16: c->slot = (uint32_t)input_number(in, 3); return;
	case 17: c->space = (uint32_t)input_number(in, 2); return;
	case 18: c->nonce[0] ^= input_number(in, 8); return;
	case 19: config->spaces_on_demand = input_number(in, 1) & 1; return;
	default: world_turn(0); return;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };

	world_begin();
	for (int steps = 0; in.n && steps < 200; steps++) {
		uint8_t op = (uint8_t)input_number(&in, 1);

		step(&world.caller[op & 3], op >> 2 & 31, &in);
	}
	world_end();
	return 0;
}
