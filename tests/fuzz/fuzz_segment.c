/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The segment as the daemon reads it, under a client that writes what it likes, where it likes, and
 * when it likes; that cuts, punches and enlarges the file; drains and floods the bell; and dies in
 * the middle of it. Meanwhile the daemon looks, answers questions, and is restarted.
 */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "node_world.h"
#include "../../include/proto/hatch.h"
#include "../../include/proto/kind.h"
#include "../../include/proto/lockword.h"
#include "../../include/proto/poolword.h"
#include "../../include/proto/semword.h"
#include "../../include/proto/small.h"
#include "../../include/proto/value.h"

/* Only where memory has been allocated would a client write; elsewhere it would make a hole a page. */
static void scribble(struct caller *c, struct input *in)
{
	uint8_t where = (uint8_t)input_number(in, 1);
	uint64_t value = input_number(in, where & 0x40 ? 8 : 1);
	uint32_t slot = where & 0x80 ? (uint32_t)input_number(in, 3) % SEG_SLOTS_MAX : 1 + (where >> 3 & 3);
	struct stat st;
	uint64_t *at;

	if (where & 0x20)
		value <<= LOCK_COUNT_SHIFT;
	switch (where & 7) {
	case 0: at = &seg_slot(world.base, slot)->word; break;
	case 1: at = &seg_slot(world.base, slot)->bias; break;
	case 2: at = &seg_level1(world.base, SEG_WATCH)[slot / 64]; break;
	case 3: at = &seg_level1(world.base, SEG_WANT)[slot / 64]; break;
	case 4: at = &seg_level2(world.base, slot & 1)[slot / 4096]; break;
	case 5: at = (uint64_t *)&seg_cells(world.base, c->client & 0xffff)[slot % SEG_CELLS]; break;
	case 6: at = (uint64_t *)world.base + slot % 512; break;
	default: at = (uint64_t *)seg_slot(world.base, slot) + 2 + value % 6; break;
	}
	if (fstat(world.segment, &st) == 0 && (uint64_t)st.st_size >= SEG_SIZE)
		__atomic_store_n(at, value, __ATOMIC_RELAXED);
}

/* By the hatch, and as whoever scribbles there. */
static void by_hatch(struct caller *c, struct input *in)
{
	struct hatch *h = seg_hatch(world.base, c->client & 0xffff);
	uint8_t what = (uint8_t)input_number(in, 1);
	struct stat st;

	if (fstat(world.segment, &st) < 0 || (uint64_t)st.st_size < SEG_SIZE)
		return;
	switch (what & 3) {
	case 0:
		h->drop[h->drops++ % HATCH_DROPS] = what & 4 ? (uint32_t)input_number(in, 4) : c->slot;
		break;
	case 1:
		h->open.flags = what >> 2 & 3;
		h->open.len = 1 + (what >> 4 & 3);
		memset(h->open.name, what & 0x40 ? '\n' : 'n', h->open.len);
		h->asked++;
		break;
	case 2:
		h->open.len = (uint8_t)input_number(in, 1);
		h->asked = (uint32_t)input_number(in, 4);
		break;
	default:
		((uint64_t *)h)[input_number(in, 2) % (sizeof *h / 8)] = input_number(in, 8);
		break;
	}
	if (seg_hatch_say(world.base, what & 0x80 ? (uint32_t)input_number(in, 2) % SEG_CLIENTS_MAX : c->client & 0xffff) &&
	    write(world.bell, "", 1) < 0)
		return;
}

/* What lies in the store is asked for by letter, and perhaps by one that nobody would write. */
static void ask(struct caller *c, struct input *in)
{
	uint8_t what = (uint8_t)input_number(in, 1);
	struct small_account *box = (struct small_account *)seg_slot(world.base, c->account % SEG_SLOTS_MAX);
	uint32_t number;
	struct stat st;

	if (!c->account || fstat(world.segment, &st) < 0 || (uint64_t)st.st_size < SEG_SIZE)
		return;
	number = (uint32_t)(__atomic_load_n(&box->request, __ATOMIC_RELAXED) >> 32) + (what >> 4 & 3);
	box->arg = what & 0x80 ? input_number(in, 4) : what & 0x40 ? number - 1 : 1;
	__atomic_store_n(&box->request, small_request(number, what & 15), __ATOMIC_RELEASE);
	seg_bit_set(world.base, SEG_WANT, c->account % SEG_SLOTS_MAX);
	if (what & 0x80)
		seg_bit_set(world.base, SEG_WANT, c->slot % SEG_SLOTS_MAX);
	if (write(world.bell, "", 1) < 0)
		return;
}

/* What a leader says of himself, or something else that lies there. */
static void speak(struct caller *c, struct input *in)
{
	uint8_t what = (uint8_t)input_number(in, 1);
	off_t at = (off_t)SEG_VALUE_OFF + (off_t)(c->slot % 64) * SEG_VALUE_SIZE;
	struct value_head h = { .state = VALUE_KNOWN, .count = what >> 2 & 3, .len = 8 };
	uint64_t junk = input_number(in, 8);
	_Alignas(64) struct value_page p;
	struct stat st;

	if (fstat(world.segment, &st) < 0 || (uint64_t)st.st_size < SEG_FILE_SIZE || pread(world.segment, &p, sizeof p, at) != sizeof p)
		return;
	h.token = seg_slot(world.base, c->slot % SEG_SLOTS_MAX)->bias + (what >> 4);
	if (what & 1)
		value_tell(&p, &h, "a leader", what & 2);
	else
		((uint64_t *)&p)[(what >> 1) % (sizeof p / 8)] = junk;
	if (pwrite(world.segment, &p, sizeof p, at) < 0)
		return;
	seg_bit_set(world.base, SEG_WANT, c->slot % SEG_SLOTS_MAX);
}

/* As libdlock does it. */
static void behave(struct caller *c, struct input *in)
{
	struct lock_waiter t = { .me = c->client | LOCK_EXCLUSIVE };
	uint8_t what = (uint8_t)input_number(in, 1);
	uint64_t *word = &seg_slot(world.base, c->slot % SEG_SLOTS_MAX)->word, w;
	struct stat st;

	if (fstat(world.segment, &st) < 0 || (uint64_t)st.st_size < SEG_SIZE)
		return;
	switch (what & 3) {
	case 0:
		if (lock_turn(word, &t, &w) == LOCK_SLEEP)
			seg_bit_set(world.base, SEG_WATCH, c->slot % SEG_SLOTS_MAX);
		break;
	case 1:
		lock_release(word, LOCK_LOAD(word), what & 4);
		break;
	case 2:
		seg_bit_set(world.base, SEG_WANT, c->slot % SEG_SLOTS_MAX);
		break;
	case 3:
		lock_leave(word, &t);
		break;
	}
	if (write(world.bell, "", 1) < 0)
		return;
}

static void cut(struct input *in)
{
	uint8_t how = (uint8_t)input_number(in, 1);
	off_t at = (off_t)(input_number(in, 2) << 12);

	switch (how & 7) {
	case 0: (void)!ftruncate(world.segment, 0); break;
	case 1: (void)!ftruncate(world.segment, at); break;
	case 2: (void)!ftruncate(world.segment, (off_t)SEG_SIZE + at); break;
	case 3: (void)!ftruncate(world.segment, (off_t)SEG_SIZE); break;
	case 4: (void)!fallocate(world.segment, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, 1 << 20); break;
	case 5: (void)!fallocate(world.segment, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)SEG_SLOT_OFF, 1 << 20); break;
	case 6: fcntl(world.segment, F_SETFL, O_APPEND | O_NONBLOCK); break;
	case 7: fcntl(world.bell, F_SETFL, at ? O_NONBLOCK : O_NONBLOCK | O_ASYNC); break;
	}
}

static void bell(struct input *in)
{
	static const char bytes[4096];
	char drained[4096];
	size_t n = input_number(in, 2) % sizeof bytes;

	fcntl(world.bell, F_SETFL, O_NONBLOCK);
	if (n & 1)
		(void)!write(world.bell, bytes, n);
	else
		(void)!read(world.bell, drained, n);
}

static void step(struct caller *c, uint8_t op, struct input *in)
{
	static const char names[] = "abcdefgh";
	static const unsigned kinds[] = { KIND_LOCK, KIND_LATCH, KIND_COND, KIND_ID, KIND_ELECT, KIND_DOUBLE, KIND_ELECT, KIND_POOL };
	uint8_t which;

	switch (op) {
	case 0:
		caller_connect(c);
		caller_hello(c, ATTACH_INHERIT, false);
		/* fall through */
	case 1:
		which = (uint8_t)input_number(in, 1);
		caller_open_thing(c, kinds[which >> 3 & 7], "default", names + which % 8, 1);
		world_turn(0);
		caller_receive(c);
		return;
	case 2: caller_close_name(c, false); world_turn(0); caller_receive(c); return;
	case 3: caller_close_name(c, true); world_turn(0); caller_receive(c); return;
	case 4: caller_die(c); return;
	case 5: world_turn(input_number(in, 1) * NSEC_PER_MSEC); return;
	case 6: world_restart(); return;
	case 7: world_ask((unsigned)input_number(in, 1)); return;
	}
	if (!world.base)
		return;
	switch (op) {
	case 8: case 9: scribble(c, in); return;
	case 10: by_hatch(c, in); world_turn(0); return;
	case 11: behave(c, in); return;
	case 12: speak(c, in); return;
	case 13: cut(in); return;
	case 14: bell(in); return;
	default: ask(c, in); world_turn(0); return;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };

	world_begin();
	for (int steps = 0; in.n && steps < 200; steps++) {
		uint8_t op = (uint8_t)input_number(&in, 1);

		step(&world.caller[op & 3], op >> 2 & 15, &in);
	}
	world_end();
	return 0;
}
