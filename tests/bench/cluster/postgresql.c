/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <glob.h>
#include <libpq-fe.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../cluster/lab.h"
#include "../../e2e/harness.h"
#include "rival.h"

#define PORT 5432

/* The folder of the newest version's programs; NULL: there is none. */
static const char *programs(void)
{
	static char path[200];
	glob_t g;

	if (glob("/usr/lib/postgresql/*/bin/initdb", 0, NULL, &g))
		return NULL;
	snprintf(path, sizeof path, "%s", g.gl_pathv[g.gl_pathc - 1]);
	*strrchr(path, '/') = 0;
	globfree(&g);
	return path;
}

/* It does not run as root, and only root can become another. */
static const char *missing(void)
{
	return !programs() ? "there is no postgresql" : !getpwnam("postgres") ? "there is no user postgres" :
	       geteuid() ? "postgresql needs root, to run as another" : NULL;
}

static void serve(void)
{
	const struct passwd *pw = getpwnam("postgres");
	char dir[100], command[800];

	snprintf(dir, sizeof dir, "%s/pg", harness.dir);
	if (mkdir(dir, 0700) < 0 || chown(dir, pw->pw_uid, pw->pw_gid) < 0)
		rival_fail("%s cannot be made", dir);
	snprintf(command, sizeof command,
		 "setpriv --reuid=postgres --regid=postgres --clear-groups %s/initdb -D %s -A trust -N >%s 2>&1 && "
		 "echo 'host all all 10.77.0.0/24 trust' >>%s/pg_hba.conf", programs(), dir, rival_log("initdb", 0), dir);
	if (system(command))
		rival_fail("initdb failed: %s", rival_log("initdb", 0));
	snprintf(command, sizeof command,
		 "exec setpriv --reuid=postgres --regid=postgres --clear-groups %s/postgres -D %s -h %s -p %d -k %s "
		 "-c max_connections=200 -c fsync=off -c dynamic_shared_memory_type=mmap", programs(), dir, lab_address(HOST_SERVER), PORT, dir);
	char *argv[] = { "sh", "-c", command, NULL };
	lab_pin(0);
	lab_spawn(HOST_SERVER, rival_log("postgresql", 0), argv, NULL);
	rival_await_port(HOST_SERVER, PORT, 20000);
	sleep(1);                                /* it accepts before it answers */
}

static PGresult *answer(PGconn *c, PGresult *r)
{
	if (PQresultStatus(r) != PGRES_TUPLES_OK && PQresultStatus(r) != PGRES_COMMAND_OK)
		rival_fail("postgresql: %s", PQerrorMessage(c));
	return r;
}

static void prepare(PGconn *c, const char *name, const char *text)
{
	PQclear(answer(c, PQprepare(c, name, text, 1, NULL)));
}

static void *connect_to(unsigned host)
{
	char text[200];

	(void)host;
	snprintf(text, sizeof text, "host=%s port=%d user=postgres dbname=postgres sslmode=disable", lab_address(HOST_SERVER), PORT);
	PGconn *c = PQconnectdb(text);
	if (PQstatus(c) != CONNECTION_OK)
		rival_fail("postgresql: %s", PQerrorMessage(c));
	prepare(c, "take", "SELECT pg_advisory_lock(hashtextextended($1, 0))");
	prepare(c, "give", "SELECT pg_advisory_unlock(hashtextextended($1, 0))");
	return c;
}

static void take(void *client, const char *name)
{
	PQclear(answer(client, PQexecPrepared(client, "take", 1, &name, NULL, NULL, 0)));
}

static void give(void *client, const char *name)
{
	PGresult *r = answer(client, PQexecPrepared(client, "give", 1, &name, NULL, NULL, 0));

	if (strcmp(PQgetvalue(r, 0, 0), "t"))
		rival_fail("postgresql: %s was not ours", name);
	PQclear(r);
}

const struct rival rival_postgresql = { "postgresql", missing, serve, connect_to, take, give, NULL, NULL };
