/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* This node's place among others: lease, store, keys, masters, peers; and the clock that certificates are judged by. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <json-c/json.h>

#include "client.h"
#include "doctor.h"
#include "print.h"

#define CERT_SOON_S (14 * 24 * 3600LL)
#define PEERS_SHOWN 5            /* one after the other; then only how many */
#define YEAR_S (365 * 24 * 3600LL)

static long long wall_clock(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return ts.tv_sec;
}

static void check_lease(struct doctor_report *r, struct json_object *c)
{
	const char *name = field_text(c, "name"), *plain = field(c, "security") ? "" : ", on loopback in plain text";
	long long members = field_number(c, "members");

	if (!field_number(c, "leaseMs"))
		doctor_say(r, "cluster", DOCTOR_FAIL, "Look at the network and at the store: 'journalctl -b -u dlockd', and 'dlock status' "
			   "for the store's address. The node joins by itself once it reaches the store.",
			   "this node is not in the cluster %s now: whoever wants a lock waits%s%s", name,
			   field(c, "jeopardy") ? "; " : "", field_text(c, "jeopardy"));
	else if (field(c, "jeopardy"))
		doctor_say(r, "cluster", DOCTOR_WARN, "Look at the network and at the store, at once.",
			   "the lease cannot be renewed (%s); all that is held here is lost in %lld ms",
			   field_text(c, "jeopardy"), field_number(c, "leaseMs"));
	else
		doctor_say(r, "cluster", DOCTOR_OK, NULL, "in the cluster %s, of %lld member%s%s", name, members,
			   members == 1 ? "" : "s", plain);
}

/* A renewal has a fifth of the TTL; where the store takes a quarter of that now and then, a bad moment costs the lease. */
static void check_store(struct doctor_report *r, struct json_object *c)
{
	long long took = field_number(c, "storeUs"), worst = field_number(c, "storeWorstUs"), ttl = field_number(c, "ttlMs");

	if (!took || !ttl)
		return;
	if (worst > ttl * 1000 / 20)
		doctor_say(r, "store", DOCTOR_WARN, "Look at the store's disks and network (etcd: etcdctl endpoint status, its log); or choose a "
			   "longer TTL.", "the store took up to %lld ms in the last minute (%.1f ms as a rule), and a renewal may take %lld ms",
			   worst / 1000, (double)took / 1000, ttl / 5);
	else
		doctor_say(r, "store", DOCTOR_OK, NULL, "the store takes %.1f ms", (double)took / 1000);
}

static void check_records(struct doctor_report *r, struct json_object *c)
{
	long long odd = field_number(c, "odd"), left_out = field_number(c, "leftOut"), silent = field_number(c, "silent");

	if (left_out)
		doctor_say(r, "records", DOCTOR_FAIL, "Find out who writes to the store below this cluster's prefix, and stop that; what is no node's is "
			   "cleared away after a TTL.", "the store lists %lld members more than a cluster may have: where a master changes, locks wait",
			   left_out);
	else if (odd || silent)
		doctor_say(r, "records", DOCTOR_WARN, "They are cleared away after a TTL. If there are new ones: who writes to the store below this "
			   "cluster's prefix? Keys that no session can have stay; etcdctl del removes them.",
			   "in the store: %lld records that nobody can use, %lld members that have never lived or are long dead", odd, silent);
}

static void check_masters(struct doctor_report *r, struct json_object *c)
{
	long long orphans = field_number(c, "orphans"), opening = field_number(c, "opening");

	if (orphans)
		doctor_say(r, "masters", DOCTOR_WARN, "Wait for a TTL. If it stays so: may any node master ([Node] Master=), and does the "
			   "coordinator ('dlock members') reach the store?", "%lld of 64 shards have no master now: locks in them wait", orphans);
	else if (opening)
		doctor_say(r, "masters", DOCTOR_WARN, "Wait for a TTL. If it stays so 'dlock members' shows which node is not reached.",
			   "%lld shards of this node wait for what other nodes hold", opening);
	else if (field_number(c, "members"))
		doctor_say(r, "masters", DOCTOR_OK, NULL, "all shards have a master");
}

static void check_until(struct doctor_report *r, const char *what, long long until)
{
	long long left = until - wall_clock();
	time_t t = (time_t)until;
	char day[32] = "?";
	struct tm tm;

	if (!until)
		return;
	strftime(day, sizeof(day), "%Y-%m-%d %H:%M UTC", gmtime_r(&t, &tm));
	if (left <= 0)
		doctor_say(r, "certificate", DOCTOR_FAIL, "Renew it, write the file, systemctl reload dlockd. Connections that are up stay; new ones are "
			   "refused, and the daemon would not start anew.", "%s has expired (%s)", what, day);
	else if (left < CERT_SOON_S)
		doctor_say(r, "certificate", DOCTOR_WARN, "Renew it, write the file, systemctl reload dlockd.", "%s expires soon: %s", what, day);
	else
		doctor_say(r, "certificate", DOCTOR_OK, NULL, "%s is good until %s", what, day);
}

static void check_keys(struct doctor_report *r, struct json_object *c)
{
	const char *wrong = field_text(c, "keysWrong");

	if (wrong[0])
		doctor_say(r, "keys", DOCTOR_WARN, strstr(wrong, "has changed") ? "systemctl reload dlockd" : "Mend it: chmod o-rwx, owner dlock; if others "
			   "had access to a secret make a new one. Then systemctl reload dlockd.", "%s", wrong);
	else if (field(c, "security"))
		doctor_say(r, "keys", DOCTOR_OK, NULL, "%s", field_text(c, "security"));
	check_until(r, "this node's certificate", field_number(c, "certUntil"));
	check_until(r, "a certificate in CA=", field_number(c, "caUntil"));
}

void doctor_cluster(struct doctor_report *r, struct json_object *c)
{
	check_lease(r, c);
	check_store(r, c);
	check_records(r, c);
	check_masters(r, c);
	check_keys(r, c);
}

/* A key that differs, or a port that is closed, keeps nobody from the store: the node is a member, and gets no lock. */
void doctor_peers(struct doctor_report *r, struct client *c)
{
	struct json_object *message = NULL, *members;
	size_t n, missed = 0;

	if (client_send(c, "io.dlock.ListMembers", NULL, false) < 0 || client_receive(c, &message) <= 0) {
		doctor_say(r, "peers", DOCTOR_WARN, "Try again.", "the daemon does not say whom it reaches");
		json_object_put(message);
		return;
	}
	members = field(field(message, "parameters"), "members");
	n = json_object_is_type(members, json_type_array) ? json_object_array_length(members) : 0;
	for (size_t i = 0; i < n; i++) {
		struct json_object *m = json_object_array_get_idx(members, i);
		const char *state = field_text(m, "state"), *error = field_text(m, "error");

		if (strcmp(state, "self") == 0 || strcmp(state, "up") == 0 || strcmp(state, "relayed") == 0 || strcmp(state, "former") == 0)
			continue;
		if (missed++ < PEERS_SHOWN)
			doctor_say(r, "peers", DOCTOR_WARN, "Look at the log of both daemons; the port (7420) has to be open between all nodes.",
				   "%s, at %s, is not reached: %s", field_text(m, "name"), field_text(m, "address"), error[0] ? error : state);
	}
	if (missed > PEERS_SHOWN)
		doctor_say(r, "peers", DOCTOR_WARN, "'dlock members' has them all.", "%zu more of %zu members are not reached", missed - PEERS_SHOWN, n);
	if (n > 1 && !missed)
		doctor_say(r, "peers", DOCTOR_OK, NULL, "all other members are reached");
	json_object_put(message);
}

/* Locks do not look at the wall clock; certificates and ids do. */
void doctor_wall_clock(struct doctor_report *r)
{
	long long now = wall_clock(), from = (2024 - 1970) * YEAR_S, to = (2124 - 1970) * YEAR_S;

	if (now < from || now > to)
		doctor_say(r, "wall clock", DOCTOR_WARN, "Set it (timedatectl, chrony): certificates are refused and ids are wrong until then.",
			   "it is %lld seconds from 1970, which cannot be", now);
}
