/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A great many names, opened, taken once, and closed, by several processes: afterwards the blocks of
 * the segment and of the ledger and the daemon's memory are where they were, within a tenth; and a
 * name that comes again has a higher token. A million of them; four with $DLOCK_CHECK_FULL.
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actor.h"
#include "harness.h"

#define WORKERS 4
#define ALL     (harness.full ? 4000000u : 1000000u)
#define AT_ONCE 20000u                   /* open by one process at the same time */
#define WARM    8000u
#define GRAIN   65536u                   /* bytes that come and go together */

static struct daemon daemon_;

struct size {
	uint64_t segment, ledger, memory;
};

/* What the files below a directory take up. */
static uint64_t blocks(const char *dir)
{
	uint64_t n = 0;
	char path[400];
	struct dirent *e;
	struct stat st;
	DIR *d = opendir(dir);

	while (d && (e = readdir(d))) {
		snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
		if (lstat(path, &st) == 0 && S_ISREG(st.st_mode))
			n += (uint64_t)st.st_blocks * 512;
	}
	if (d)
		closedir(d);
	return n;
}

static uint64_t memory(pid_t pid)
{
	char path[60], text[4096], *at;

	snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
	read_file(path, text, sizeof text);
	at = strstr(text, "\nVmRSS:");
	return at ? strtoull(at + 7, NULL, 10) * 1024 : 0;
}

static struct size measure(void)
{
	char path[80];
	struct size s;

	snprintf(path, sizeof path, "%s/shm", harness.run);
	s.segment = blocks(path);
	snprintf(path, sizeof path, "%s/ledger", harness.run);
	s.ledger = blocks(path);
	s.memory = memory(daemon_.pid);
	return s;
}

/* --- Workers --- */

static uint32_t names_each;

/* Opens its share of names in portions; takes each tenth; closes them in another order. */
static int work(struct stage *s, uint64_t which)
{
	dlock_t **l = calloc(AT_ONCE, sizeof *l);
	uint32_t n = names_each;
	char name[40];
	int r = 0;

	(void)s;
	for (uint32_t from = 0; from < n && r == 0; from += AT_ONCE) {
		uint32_t count = n - from < AT_ONCE ? n - from : AT_ONCE;

		for (uint32_t i = 0; i < count && r == 0; i++) {
			snprintf(name, sizeof name, "%s%u-%u", i % 2 ? "" : "a longer name for ", (unsigned)which, from + i);
			r = dlock_open(&l[i], name, NULL);
			if (r == 0 && i % 10 == 0)
				r = dlock_wait(l[i]);
			if (r == 0 && i % 10 == 0)
				r = dlock_post(l[i]);
		}
		for (uint32_t i = 0; i < count && r == 0; i++)
			r = dlock_close(l[(uint64_t)i * 7919 % count]);
	}
	free(l);
	return r;
}

static int work_all(uint32_t all)
{
	struct actor a[WORKERS];
	struct result r;
	int error = 0;

	names_each = all / WORKERS;
	for (uint64_t i = 0; i < WORKERS; i++) {
		actor_begin(&a[i]);
		actor_send(&a[i], work, i, NULL);
	}
	for (int i = 0; i < WORKERS; i++) {
		if (!actor_result(&a[i], 600000, &r) || r.r)
			error = r.r ? r.r : -1;
		actor_kill(&a[i], SIGKILL);
	}
	return error;
}

static void settled(void)
{
	for (uint64_t until = now_ns() + PATIENCE_MS * MS; (status_number("clients") > 1 || status_number("names") > 1) && now_ns() < until;)
		nap_ns(10 * MS);
}

static bool back(uint64_t now, uint64_t before)
{
	return now <= before + before / 10 + GRAIN;
}

static bool all_back(const struct size *now, const struct size *before)
{
	return back(now->segment, before->segment) && back(now->ledger, before->ledger) && back(now->memory, before->memory);
}

static uint64_t token_of(struct actor *a, const char *name)
{
	struct result r;

	if (actor_do(a, act_open, 1, name).r)
		give_up("%s is opened", name);
	r = actor_do(a, act_pass, 1, NULL);
	if (r.r || actor_do(a, act_close, 1, NULL).r)
		give_up("%s is taken and closed", name);
	return r.token;
}

int main(void)
{
	static const char *const again[] = { "0-10", "a longer name for 2-70", "never used" };
	struct size before, after;
	struct actor witness;
	uint64_t token[3], began;
	int r;

	harness_begin(getenv("DLOCK_CHECK_FULL") ? 900 : 170);
	daemon_started(&daemon_);
	actor_begin(&witness);
	/* Not before the first chunks are there, which stay. */
	if (actor_do(&witness, act_open, 0, "witness").r || actor_do(&witness, act_wait, 0, NULL).r)
		give_up("the witness holds");
	for (int i = 0; i < 3; i++)
		token[i] = token_of(&witness, again[i]);
	/* What the daemon needs for any clients at all, such as room for their packets, is used once. */
	if (work_all(WARM))
		give_up("some names are opened and closed");
	settled();
	before = measure();
	began = now_ns();
	r = work_all(ALL);
	ok(r == 0, "%u names are opened, and closed (%d), in %.1f s", ALL, r, (double)(now_ns() - began) / 1e9);
	settled();
	for (uint64_t until = now_ns() + PATIENCE_MS * MS; after = measure(), !all_back(&after, &before) && now_ns() < until;)
		nap_ns(100 * MS);
	note("segment %llu to %llu, ledger %llu to %llu, memory %llu to %llu bytes", (unsigned long long)before.segment,
	     (unsigned long long)after.segment, (unsigned long long)before.ledger, (unsigned long long)after.ledger,
	     (unsigned long long)before.memory, (unsigned long long)after.memory);
	ok(status_number("names") == 1, "the daemon knows but one name any more");
	ok(back(after.segment, before.segment), "the segment's blocks are back");
	ok(back(after.ledger, before.ledger), "the ledger's blocks are back");
	ok(back(after.memory, before.memory), "the daemon's memory is back");
	for (int i = 0; i < 3; i++)
		ok(token_of(&witness, again[i]) > token[i], "a name that comes again, \"%s\", has a higher token", again[i]);
	ok(actor_do(&witness, act_check, 0, NULL).r == 0, "and who held all the time holds");
	actor_kill(&witness, SIGKILL);
	daemon_end(&daemon_, SIGTERM);
	return harness_end();
}
