/* SPDX-License-Identifier: LGPL-2.1-or-later */
#define THREADED
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zookeeper/zookeeper.h>

#include "../../cluster/lab.h"
#include "../../e2e/harness.h"
#include "rival.h"

#define PORT 2181
#define MEMBERS 3

struct client {
	zhandle_t *z;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	bool connected, gone;
	char ours[200];                  /* the node that is our place */
};

static const char *missing(void)
{
	return access("/usr/share/java/zookeeper.jar", R_OK) ? "there is no zookeeper" :
	       access("/usr/bin/java", X_OK) ? "there is no java, which zookeeper needs" : NULL;
}

static void serve_one(unsigned i)
{
	char dir[100], path[140], config[140], command[600];

	snprintf(dir, sizeof dir, "%s/zk%u", harness.dir, i);
	mkdir(dir, 0755);
	snprintf(path, sizeof path, "%s/myid", dir);
	FILE *f = fopen(path, "we");
	fprintf(f, "%u\n", i + 1);
	fclose(f);
	snprintf(config, sizeof config, "%s/zoo.cfg", dir);
	f = fopen(config, "we");
	fprintf(f, "tickTime=500\ninitLimit=20\nsyncLimit=10\ndataDir=%s\nclientPort=%d\nforceSync=no\nadmin.enableServer=false\n"
		"maxClientCnxns=0\n", dir, PORT);
	for (unsigned k = 0; k < MEMBERS; k++)
		fprintf(f, "server.%u=%s:2888:3888\n", k + 1, lab_address(HOST_MEMBERS + k));
	fclose(f);
	snprintf(command, sizeof command,
		 "exec java -Xmx256m -Dzookeeper.forceSync=no -cp /usr/share/zookeeper/bin/../conf:/etc/zookeeper/conf:"
		 "$(ls /usr/share/java/*.jar | tr '\\n' ':') org.apache.zookeeper.server.quorum.QuorumPeerMain %s", config);
	char *argv[] = { "sh", "-c", command, NULL };
	lab_pin((int)i);
	lab_spawn(HOST_MEMBERS + i, rival_log("zookeeper", i), argv, NULL);
}

static void serve(void)
{
	for (unsigned i = 0; i < MEMBERS; i++)
		serve_one(i);
	for (unsigned i = 0; i < MEMBERS; i++)
		rival_await_port(HOST_MEMBERS + i, PORT, 60000);
}

static void on_event(zhandle_t *z, int type, int state, const char *path, void *arg)
{
	struct client *c = arg;

	(void)z, (void)path;
	pthread_mutex_lock(&c->mutex);
	if (type == ZOO_SESSION_EVENT)
		c->connected = state == ZOO_CONNECTED_STATE;
	else
		c->gone = true;
	pthread_cond_broadcast(&c->cond);
	pthread_mutex_unlock(&c->mutex);
}

static void await(struct client *c, const bool *what)
{
	pthread_mutex_lock(&c->mutex);
	while (!*what)
		pthread_cond_wait(&c->cond, &c->mutex);
	pthread_mutex_unlock(&c->mutex);
}

static void *connect_to(unsigned host)
{
	struct client *c = calloc(1, sizeof *c);
	char text[100];

	pthread_mutex_init(&c->mutex, NULL);
	pthread_cond_init(&c->cond, NULL);
	zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
	snprintf(text, sizeof text, "%s:%d", lab_address(HOST_MEMBERS + host % MEMBERS), PORT);
	c->z = zookeeper_init(text, on_event, 20000, NULL, c, 0);
	if (!c->z)
		rival_fail("zookeeper: %s", strerror(errno));
	await(c, &c->connected);
	return c;
}

static int by_sequence(const void *a, const void *b)
{
	return strcmp(strrchr(*(char *const *)a, '-'), strrchr(*(char *const *)b, '-'));
}

/* The node before ours; false: ours is the first. */
static bool before(struct client *c, const char *dir, char *ret, size_t n)
{
	struct String_vector v;
	const char *ours = strrchr(c->ours, '/') + 1;
	int32_t i = 0;

	int r = zoo_get_children(c->z, dir, 0, &v);
	if (r)
		rival_fail("zookeeper: %s", zerror(r));
	qsort(v.data, (size_t)v.count, sizeof *v.data, by_sequence);
	while (i < v.count && strcmp(v.data[i], ours))
		i++;
	if (i == v.count)
		rival_fail("zookeeper: our node has gone");
	if (i)
		snprintf(ret, n, "%s/%s", dir, v.data[i - 1]);
	deallocate_String_vector(&v);
	return i > 0;
}

static void take(void *client, const char *name)
{
	struct client *c = client;
	char dir[100], path[120], previous[300];
	int r;

	snprintf(dir, sizeof dir, "/%s", name);
	snprintf(path, sizeof path, "/%s/n-", name);
	while ((r = zoo_create(c->z, path, NULL, -1, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL | ZOO_SEQUENCE, c->ours, sizeof c->ours)) == ZNONODE) {
		r = zoo_create(c->z, dir, NULL, -1, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0);
		if (r && r != ZNODEEXISTS)
			rival_fail("zookeeper: %s", zerror(r));
	}
	if (r)
		rival_fail("zookeeper: %s", zerror(r));
	while (before(c, dir, previous, sizeof previous)) {
		struct Stat stat;

		c->gone = false;
		r = zoo_wexists(c->z, previous, on_event, c, &stat);
		if (r == ZOK)
			await(c, &c->gone);
		else if (r != ZNONODE)
			rival_fail("zookeeper: %s", zerror(r));
	}
}

static void give(void *client, const char *name)
{
	struct client *c = client;
	int r = zoo_delete(c->z, c->ours, -1);

	(void)name;
	if (r)
		rival_fail("zookeeper: %s", zerror(r));
}

/* Nobody else wants it: an ephemeral node of that name. */
static void take_bare(void *client, const char *name)
{
	struct client *c = client;
	char path[100];

	snprintf(path, sizeof path, "/%s", name);
	int r = zoo_create(c->z, path, NULL, -1, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL, NULL, 0);
	if (r)
		rival_fail("zookeeper: %s", zerror(r));
}

static void give_bare(void *client, const char *name)
{
	struct client *c = client;
	char path[100];

	snprintf(path, sizeof path, "/%s", name);
	int r = zoo_delete(c->z, path, -1);
	if (r)
		rival_fail("zookeeper: %s", zerror(r));
}

const struct rival rival_zookeeper = { "zookeeper", missing, serve, connect_to, take, give, take_bare, give_bare };
