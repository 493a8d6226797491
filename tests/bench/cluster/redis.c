/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../cluster/lab.h"
#include "../../e2e/harness.h"
#include "rival.h"

#define PORT 6379
#define PX "10000"
#define RETRY_US 1000

struct client {
	redisContext *c;
	char token[32];
	char sha[64];
};

static const char *missing(void)
{
	return access("/usr/bin/redis-server", X_OK) ? "there is no redis-server" : NULL;
}

static void serve(void)
{
	char *argv[] = { "redis-server", "--bind", (char *)lab_address(HOST_SERVER), "--port", "6379", "--save", "", "--appendonly", "no",
			 "--protected-mode", "no", "--dir", harness.dir, NULL };

	lab_pin(0);
	lab_spawn(HOST_SERVER, rival_log("redis", 0), argv, NULL);
	rival_await_port(HOST_SERVER, PORT, 10000);
}

static redisReply *answer(struct client *c, redisReply *r)
{
	if (!r || r->type == REDIS_REPLY_ERROR)
		rival_fail("redis: %s", r ? r->str : c->c->errstr);
	return r;
}

static void *connect_to(unsigned host)
{
	struct client *c = calloc(1, sizeof *c);
	redisReply *r;

	c->c = redisConnect(lab_address(HOST_SERVER), PORT);
	if (!c->c || c->c->err)
		rival_fail("redis: %s", c->c ? c->c->errstr : "no memory");
	snprintf(c->token, sizeof c->token, "%u-%d", host, (int)getpid());
	r = answer(c, redisCommand(c->c, "SCRIPT LOAD %s",
				   "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"));
	snprintf(c->sha, sizeof c->sha, "%s", r->str);
	freeReplyObject(r);
	return c;
}

static void take(void *client, const char *name)
{
	struct client *c = client;

	for (;; usleep(RETRY_US)) {
		redisReply *r = answer(c, redisCommand(c->c, "SET %s %s NX PX " PX, name, c->token));
		bool ours = r->type == REDIS_REPLY_STATUS;

		freeReplyObject(r);
		if (ours)
			return;
	}
}

static void give(void *client, const char *name)
{
	struct client *c = client;
	redisReply *r = answer(c, redisCommand(c->c, "EVALSHA %s 1 %s %s", c->sha, name, c->token));

	if (r->integer != 1)
		rival_fail("redis: %s was not ours any more", name);
	freeReplyObject(r);
}

const struct rival rival_redis = { "redis", missing, serve, connect_to, take, give, NULL, NULL };
