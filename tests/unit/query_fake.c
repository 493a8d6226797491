/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "query_fake.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RUDE "sh -c \xff\xfe\x1b[31m\"red\"\n\xc3\xa9\xc2\x9b"

static void node(void *arg, struct query_node *ret)
{
	const struct fake *f = arg;

	*ret = (struct query_node) {
		.name = "alpha", .id = "0123456789abcdef0123456789abcdef",
		.version = "0.1.0", .state = "running",
		.run_dir = f->run_dir, .state_dir = f->state_dir ? f->state_dir : "/var/lib/dlock", .store = "file:/var/lib/dlock",
		.session = UINT64_C(0xfedcba9876543210), .incarnation = 3, .epoch = 7,
		.clients = 2, .names = f->n_open + f->n_private,
		.grants = 1200, .refills = 4, .releases = 1100, .uptime_ms = 7503000,
		.loss = f->loss, .clocksource = "tsc", .pid = 1234, .cluster = f->cluster.ttl_ms ? &f->cluster : NULL,
	};
}

static void spaces(void *arg, void (*fn)(void *ctx, const struct query_space *s), void *ctx)
{
	const struct fake *f = arg;
	struct query_space s = { .name = "default", .group = FAKE_GROUP, .mode = 0660, .names = f->n_open,
				 .clients = 2, .waiters = 5 };
	char name[32];

	fn(ctx, &s);
	s = (struct query_space) { .name = "private", .mode = 0600, .names = f->n_private, .broken = f->broken };
	fn(ctx, &s);
	for (unsigned i = 0; i < f->spaces_extra; i++) {
		snprintf(name, sizeof(name), "extra%u", i);
		s = (struct query_space) { .name = name, .mode = 0600 };
		fn(ctx, &s);
	}
}

static void links(void *arg, void (*fn)(void *ctx, const struct query_link *l), void *ctx)
{
	static const char *const local[] = { "127.0.0.1/8", "::1/128", NULL };
	struct query_link l = { .name = "lo", .index = 1, .mtu = 65536, .up = true, .running = true,
				.addresses = local };

	(void)arg;
	fn(ctx, &l);
	l = (struct query_link) { .name = "eth0", .index = 2, .mtu = 1500, .up = true };
	fn(ctx, &l);
}

static void members(void *arg, void (*fn)(void *ctx, const struct query_member *m), void *ctx)
{
	(void)arg;
	fn(ctx, &(struct query_member) { .name = "alpha", .state = "self", .self = true, .session = 7, .node = 1,
					 .incarnation = 3, .may_master = true, .coordinates = true, .shards = 40, .placed = 17, .address = "192.0.2.1:7420" });
	fn(ctx, &(struct query_member) { .name = "beta", .state = "waiting", .session = 8, .node = 2, .may_master = true,
					 .shards = 24, .address = "192.0.2.2:7420", .error = "nothing listens there" });
}

static int drain(void *arg, bool on)
{
	struct fake *f = arg;

	f->drains = on;
	return f->alone ? -ENOTSUP : 0;
}

static int leave(void *arg)
{
	struct fake *f = arg;

	f->left = true;
	return f->alone ? -ENOTSUP : 0;
}

/* One value, of the space default: "known", in version 5, says "hello"; all others are absent, "slow" is answered by fake_answer(). */
static void *value(void *arg, const struct query_value_call *call, query_value_fn done, void *ctx, int *ret_error)
{
	struct query_value_result res = { .error = -ENOENT };
	struct fake *f = arg;

	*ret_error = 0;
	f->written = call->op == QUERY_PUT ? call->n : 0;
	if (strcmp(call->name, "slow") == 0) {
		f->done = done;
		f->ctx = ctx;
		return f;
	}
	if (strcmp(call->name, "known") == 0)
		res = (struct query_value_result){ .version = 5, .bytes = "hello", .n = 5 };
	if (call->compare && call->version != res.version)
		res = (struct query_value_result){ .error = -EAGAIN, .version = res.version };
	else if (call->op == QUERY_PUT)
		res = (struct query_value_result){ .version = 6 };
	if (strcmp(call->name, "lost") == 0)
		res = (struct query_value_result){ .error = -ETIMEDOUT, .in_doubt = true, .why = "nobody there" };
	if (strcmp(call->name, "full") == 0)
		res = (struct query_value_result){ .error = -ENOSPC };
	done(ctx, &res);
	return NULL;
}

static void value_drop(void *arg, void *request)
{
	struct fake *f = arg;

	f->dropped += request == f;
	f->done = NULL;
}

/* Of the space default 70 latches, from left00 on, the value "known", and a semaphore whose name is a hash. */
static void *stored(void *arg, const struct query_stored_call *call, query_stored_fn done, void *ctx, int *ret_error)
{
	static char keys[70][16];
	struct query_stored v[QUERY_STORED_MAX];
	struct query_stored_result res = { .v = v };
	struct fake *f = arg;
	bool ours = strcmp(call->space, "default") == 0;

	*ret_error = 0;
	if (strcmp(call->kind, "latch") && strcmp(call->kind, "value") && strcmp(call->kind, "free semaphore")) {
		*ret_error = -EINVAL;
		return NULL;
	}
	if (call->name && strcmp(call->name, "slow") == 0) {
		f->stored_done = done;
		f->ctx = ctx;
		return f;
	}
	if (call->name && strcmp(call->name, "lost") == 0)
		res = (struct query_stored_result){ .error = -ETIMEDOUT, .why = "nobody there" };
	for (unsigned i = 0; ours && i < 70 && strcmp(call->kind, "latch") == 0; i++) {
		snprintf(keys[i], sizeof keys[i], "left%02u", i);
		if ((call->name && strcmp(call->name, keys[i])) || (call->after && strcmp(keys[i], call->after) <= 0))
			continue;
		if (res.n == call->max) {
			res.more = true;
			break;
		}
		v[res.n++] = (struct query_stored){ .name = keys[i], .key = keys[i], .counts = true, .count = 2, .limit = 5, .version = 7 };
	}
	if (ours && strcmp(call->kind, "value") == 0 && (!call->name || strcmp(call->name, "known") == 0))
		v[res.n++] = (struct query_stored){ .name = "known", .key = "known", .size = 5, .version = 5 };
	if (ours && strcmp(call->kind, "free semaphore") == 0 && !call->name)
		v[res.n++] = (struct query_stored){ .key = "%~0123", .counts = true, .count = 0, .version = 8 };
	done(ctx, &res);
	return NULL;
}

static void stored_drop(void *arg, void *request)
{
	struct fake *f = arg;

	f->dropped += request == f;
	f->stored_done = NULL;
}

/* In a cluster: the lock "elsewhere" is beta's, and 65 nodes wait, alpha first; gamma has 2 of 5 permits "some"; "mute" is not answered. */
static void *nodes(void *arg, const struct query_nodes_call *call, query_nodes_fn done, void *ctx, int *ret_error)
{
	static const struct query_share lock[] = { { "beta", QUERY_WEIGHT_ALL, 0 }, { "alpha", 0, 1 } }, permits = { "gamma", 2, 4 };
	struct query_nodes_result res = { .master = "beta" };
	struct fake *f = arg;

	*ret_error = !f->cluster.ttl_ms ? -ENOTSUP : strcmp(call->kind, "lock") && strcmp(call->kind, "semaphore") ? -EINVAL : 0;
	if (*ret_error)
		return NULL;
	if (strcmp(call->name, "slow") == 0) {
		f->nodes_done = done;
		f->ctx = ctx;
		return f;
	}
	if (strcmp(call->name, "mute") == 0)
		res.error = -EAGAIN;
	if (strcmp(call->name, "elsewhere") == 0 && strcmp(call->kind, "lock") == 0)
		res = (struct query_nodes_result){ 0, "beta", QUERY_WEIGHT_ALL, QUERY_WEIGHT_ALL, 2, 66, lock };
	if (strcmp(call->name, "some") == 0 && strcmp(call->kind, "semaphore") == 0)
		res = (struct query_nodes_result){ 0, "beta", 2, 5, 1, 1, &permits };
	done(ctx, &res);
	return NULL;
}

static void nodes_drop(void *arg, void *request)
{
	struct fake *f = arg;

	f->dropped += request == f;
	f->nodes_done = NULL;
}

void fake_answer(struct fake *f)
{
	query_value_fn done = f->done;

	f->done = NULL;
	if (done)
		done(f->ctx, &(struct query_value_result){ .version = 9, .bytes = "late", .n = 4 });
}

static void crowd(const char *name, query_name_fn fn, void *ctx)
{
	struct query_party *waiters = calloc(FAKE_CROWD, sizeof(*waiters));
	struct query_party holder = { .pid = 1000, .command = RUDE, .token = INT64_MAX };
	struct query_name n = { .space = "default", .name = name, .kind = "lock", .state = "held",
				.owner_died = true, .opens = FAKE_CROWD, .token = INT64_MAX,
				.holder = &holder, .waiters = waiters, .n_waiters = FAKE_CROWD };

	for (unsigned w = 0; waiters && w < FAKE_CROWD; w++)
		waiters[w] = (struct query_party) { .pid = 3000 + (pid_t)w, .command = RUDE };
	fn(ctx, &n);
	free(waiters);
}

static void one_name(const struct fake *f, unsigned i, query_name_fn fn, void *ctx)
{
	struct query_party holder = { .node = "alpha", .pid = 1000, .unit = "backup.service",
				      .command = "/usr/bin/backup --all", .token = 70 + i, .timed = true, .since_ms = 3210, .since_most_ms = 65432 };
	struct query_party waiters[5];
	char text[32];
	struct query_name n = {
		.space = i < f->n_open ? "default" : "private", .name = text, .kind = "lock",
		.state = i % 3 ? "free" : "held", .opens = 1, .token = 70 + i,
	};

	snprintf(text, sizeof(text), "n%08u", i);
	if (f->crowded) {
		crowd(text, fn, ctx);
		return;
	}
	for (unsigned w = 0; w < 5; w++)
		waiters[w] = (struct query_party) { .node = "alpha", .pid = 2000 + (pid_t)w, .uid = 65534,
						    .command = "worker", .timed = true, .since_ms = 100 * w };
	if (i % 3 == 0) {
		n.holder = &holder;
		n.waiters = waiters;
		n.n_waiters = i % 5;
	}
	fn(ctx, &n);
}

static int names(void *arg, const char *space, uint64_t *cursor, unsigned max, query_name_fn fn, void *ctx)
{
	struct fake *f = arg;
	uint64_t i = *cursor, end = f->n_open + f->n_private;

	if (space && strcmp(space, "default") != 0 && strcmp(space, "private") != 0)
		return -ENOENT;
	if (space && strcmp(space, "private") == 0)
		i = i < f->n_open ? f->n_open : i;
	else if (space)
		end = f->n_open;
	for (; i < end && max > 0; i++, max--, f->asked++)
		one_name(f, (unsigned)i, fn, ctx);
	*cursor = i < end ? i : 0;
	return 0;
}

static int show(void *arg, const char *space, const char *name, const char *kind, query_name_fn fn, void *ctx)
{
	const struct fake *f = arg;
	unsigned i;
	char end;

	if (kind && strcmp(kind, "lock") != 0)
		return -ENOENT;
	if (strcmp(name, "crowd") == 0 && strcmp(space, "default") == 0) {
		crowd(name, fn, ctx);
		return 0;
	}
	if (sscanf(name, "n%8u%c", &i, &end) != 1 || i >= f->n_open + f->n_private)
		return -ENOENT;
	if (strcmp(space, i < f->n_open ? "default" : "private") != 0)
		return -ENOENT;
	one_name(f, i, fn, ctx);
	return 0;
}

static bool may_see(void *arg, const char *space, uid_t uid, const gid_t *groups, size_t n_groups)
{
	(void)arg;
	if (strcmp(space, "default") == 0 || ((uid == 0 || uid == geteuid()) && strcmp(space, "private") == 0))
		return true;
	for (size_t i = 0; i < n_groups; i++)
		if (strcmp(space, "private") == 0 && groups[i] == FAKE_GROUP)
			return true;
	return false;
}

void fake_init(struct fake *f, unsigned n_open, unsigned n_private)
{
	*f = (struct fake) {
		.n_open = n_open, .n_private = n_private, .run_dir = "/run/dlock",
		.source = { .arg = f, .node = node, .spaces = spaces, .links = links, .names = names,
			    .show = show, .may_see = may_see, .members = members, .drain = drain, .leave = leave,
			    .value = value, .value_drop = value_drop, .stored = stored, .stored_drop = stored_drop,
			    .nodes = nodes, .nodes_drop = nodes_drop },
	};
}
