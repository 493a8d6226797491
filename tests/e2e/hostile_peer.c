/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A node that has all that it needs to be one, and says what it likes: hostile_peer SEED SECONDS OWN-SESSION {SESSION ADDRESS}…
 * (sessions in hexadecimal). It is connected to all of these, and sends them well-formed frames of every kind, as many as they
 * take (one kind that it never sent is a failure): of its own and of other sessions, of any epoch, with numbers as large as they come; the same again; and now and
 * then what is no frame. Of the name "default/count" it claims nothing in its own name, since it could keep that.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../daemon/core/frame.h"
#include "../../daemon/core/shard.h"
#include "../../daemon/loop/loop.h"
#include "../../daemon/net/net.h"

#define PEERS_MAX 8
#define BURST 64
#define WINDOW (1u << 20)
#define NAMES 3000
enum {
#define X(name, to) KIND_##name,
	MSG_KINDS(X)
#undef X
	KINDS
};

static struct {
	struct loop *loop;
	struct net *net;
	struct loop_defer more;
	struct loop_timer end;
	uint64_t own, seed;
	struct {
		uint64_t session, conn;
	} peer[PEERS_MAX];
	unsigned peers;
	uint8_t again[FRAME_MAX];
	uint32_t again_n;
	unsigned long long sent, ups, of_kind[KINDS];
} me;

static uint64_t chance(void)
{
	me.seed ^= me.seed << 13;
	me.seed ^= me.seed >> 7;
	return me.seed ^= me.seed << 17;
}

static uint64_t any_number(void)
{
	static const uint64_t far[] = { 0, 1, 2, UINT32_MAX, INT64_MAX, UINT64_MAX, UINT64_C(1) << 40, (UINT64_C(1) << 63) - 1 };

	return chance() % 2 ? chance() % 16 : chance() % 2 ? far[chance() % (sizeof far / sizeof *far)] : chance();
}

static uint32_t any_weight(void)
{
	return (uint32_t)(chance() % 2 ? MSG_WEIGHT_ALL : any_number());
}

/* Most kinds know but a few. */
static uint16_t any_flags(void)
{
	return (uint16_t)(chance() % 2 ? 0 : chance() % 2 ? 1u << chance() % 16 : chance());
}

static bool claims(enum msg_kind kind)
{
	return msg_receiver(kind) == MSG_TO_MASTER || msg_receiver(kind) == MSG_TO_BARRIER_MASTER;
}

static void forge(struct frame *f, char key[40], unsigned to)
{
	static uint8_t value[CORE_VALUE_MAX];
	enum msg_kind kind = (enum msg_kind)(chance() % KINDS);
	bool own = chance() % 4 != 0;
	int n = snprintf(key, 40, "default/%s", !claims(kind) || !own ? "count" : "");

	if (key[n - 1] == '/')
		n += snprintf(key + n, 40 - (size_t)n, "junk-%u", (unsigned)(chance() % NAMES));
	*f = (struct frame){ .conn = chance() % 8 ? me.peer[to].conn : chance() };
	f->msg = (struct msg){
		.kind = kind, .key = key, .key_len = (uint16_t)n, .shard = (uint8_t)shard_of(key, (size_t)n),
		.from = { own ? me.own : me.peer[chance() % me.peers].session, (uint32_t)(1 + chance() % 3) },
		.epoch = (uint32_t)(chance() % 4 ? 1 + chance() % 6 : any_number()), .held = any_weight(), .wanted = any_weight(),
		.limit = (uint32_t)any_number(), .number = any_number(), .stamp = any_number(), .seen = any_number(), .used = any_number(),
		.range = { any_number(), any_number() }, .error = -(int)(chance() % 120), .flags = any_flags(),
		.priority = (uint8_t)(chance() % 2 ? 0 : chance()), .term = any_number(), .count = (uint32_t)any_number(), .resize = (uint32_t)any_number(),
		.present = (uint32_t)any_number(), .limit_stamp = any_number(),
		.heir = { me.peer[chance() % me.peers].session, (uint32_t)(1 + chance() % 3) }, .heir_number = any_number(),
		.value = { .state = chance() % 2 ? CORE_VALUE_KNOWN : CORE_VALUE_NONE, .len = (uint16_t)(chance() % sizeof value), .count = 1, .token = any_number(), .bytes = value },
	};
	f->msg.last = chance() % 8 == 0;
}

static void send_one(unsigned to)
{
	uint8_t bytes[FRAME_MAX];
	char key[40];
	struct frame f;
	uint32_t n;

	if (!me.again_n || chance() % 8) {
		struct frame back;

		forge(&f, key, to);
		n = frame_encode(&f, bytes);
		if (frame_decode(bytes, n, &back) == 0)
			me.of_kind[f.msg.kind]++;
		else if (chance() % 20000)
			return;                  /* it costs the connection: seldom enough that the others get through */
	} else {
		n = me.again_n;
		memcpy(bytes, me.again, n);
	}
	if (n < NET_FRAME_MIN)
		return;
	if (chance() % 16 == 0) {
		memcpy(me.again, bytes, n);
		me.again_n = n;
	}
	net_send(me.net, me.peer[to].session, me.peer[to].conn, bytes, n);
	me.sent++;
}

static void send_more(void *arg)
{
	(void)arg;
	for (unsigned i = 0; i < me.peers; i++)
		for (int k = 0; me.peer[i].conn && k < BURST && net_backlog(me.net) < WINDOW; k++)
			send_one(i);
	loop_defer(me.loop, &me.more);
}

static void link_up(void *arg, uint64_t session, uint32_t incarnation, uint64_t conn)
{
	(void)arg, (void)incarnation;
	me.ups++;
	for (unsigned i = 0; i < me.peers; i++)
		if (me.peer[i].session == session)
			me.peer[i].conn = conn;
}

static void link_down(void *arg, uint64_t session, uint64_t conn)
{
	(void)arg;
	for (unsigned i = 0; i < me.peers; i++)
		if (me.peer[i].session == session && me.peer[i].conn == conn)
			me.peer[i].conn = 0;
}

static int heard(void *arg, uint64_t session, uint64_t conn, const void *bytes, uint32_t n)
{
	(void)arg, (void)session, (void)conn;
	if (n <= sizeof me.again && chance() % 64 == 0) {
		memcpy(me.again, bytes, n);
		me.again_n = n;
	}
	return 0;
}

static void say(void *arg, enum log_level level, const char *text)
{
	(void)arg, (void)level;
	fprintf(stderr, "%s\n", text);
}

static void over(void *arg)
{
	(void)arg;
	loop_stop(me.loop, 0);
}

static bool all_sent(void)
{
	static const char *const names[] = {
#define X(name, to) #name,
		MSG_KINDS(X)
#undef X
	};
	bool all = true;

	for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
		if (!me.of_kind[i])
			printf("no frame %s; ", names[i]);
		all &= me.of_kind[i] > 0;
	}
	return all;
}

int main(int argc, char **argv)
{
	static const struct net_ops ops = { link_up, link_down, heard, say };
	struct net_options o = { .node = "hostile", .cluster = "test", .ttl = 4 * NSEC_PER_SEC };

	if (argc < 6)
		return 64;
	me.seed = strtoull(argv[1], NULL, 0) * 2 + 1;
	me.own = strtoull(argv[3], NULL, 16);
	log_open("hostile_peer", LOG_LEVEL_WARNING);
	if (loop_create(&me.loop) < 0 || net_create(me.loop, &o, &ops, NULL, &me.net) < 0 || net_listen(me.net, "127.0.0.1:0", NULL) < 0)
		return 1;
	net_session(me.net, me.own, 1);
	for (int i = 4; i + 1 < argc && me.peers < PEERS_MAX; i += 2) {
		me.peer[me.peers].session = strtoull(argv[i], NULL, 16);
		if (net_link(me.net, me.peer[me.peers++].session, argv[i + 1]) < 0)
			return 1;
	}
	loop_defer_init(&me.more, send_more, NULL);
	loop_defer(me.loop, &me.more);
	loop_timer_init(&me.end, over, NULL);
	loop_timer_set(me.loop, &me.end, loop_clock() + strtoull(argv[2], NULL, 0) * NSEC_PER_SEC);
	loop_run(me.loop);
	net_free(me.net);
	loop_free(me.loop);
	printf("%llu frames by %llu connections\n", me.sent, me.ups);
	return me.sent && all_sent() ? 0 : 1;
}
