/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a daemon that starts believes of the past comes from its own ledger. Whatever was done to the
 * files meanwhile is told apart, by the log and by the session, and never adopted wrongly: a hold
 * is either good, or its holder sees ESTALE; who waits is served; and tokens rise in any case.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actor.h"
#include "harness.h"
#include "proto/lockword.h"
#include "proto/segment.h"

#define NAME    "past"
#define SOON_MS 1000u
#define NOBODY  (-1)

static struct daemon daemon_;
static uint64_t highest;                 /* token of all */

__attribute__((format(printf, 1, 2))) static void shell(const char *text, ...)
{
	char command[500];
	va_list ap;

	va_start(ap, text);
	vsnprintf(command, sizeof command, text, ap);
	va_end(ap);
	if (system(command))
		give_up("%s", command);
}

static unsigned long long session(void)
{
	static char text[1 << 16];
	char *at;

	dlock_command(text, sizeof text, "status --json");
	at = strstr(text, "\"session\": \"");
	return at ? strtoull(at + 12, NULL, 16) : 0;
}

/* --- What is done to the files while there is no daemon --- */

static void *map_segment(void)
{
	char path[80];
	void *base;
	int fd;

	snprintf(path, sizeof path, "%s/shm/default", harness.run);
	fd = open(path, O_RDWR | O_CLOEXEC);
	base = mmap(NULL, SEG_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	close(fd);
	if (base == MAP_FAILED)
		give_up("the segment is mapped");
	return base;
}

/* The slot that is held: there is but one. */
static struct seg_slot *held_slot(void *base)
{
	for (uint32_t i = 1; i < 4096; i++)
		if (LOCK_LOAD(&seg_slot(base, i)->word) & LOCK_OWNER)
			return seg_slot(base, i);
	give_up("a word is held");
}

static void nothing(void)
{
}

static void owner_of_nobody(void)
{
	struct seg_slot *s = held_slot(map_segment());

	s->word = (s->word & ~LOCK_OWNER) | 4711;
}

static void all_ones(void)
{
	held_slot(map_segment())->word = UINT64_MAX;
}

static void all_zeroes(void)
{
	held_slot(map_segment())->word = 0;
}

/* As if the word had been given a range that nobody granted. */
static void count_beyond(void)
{
	struct seg_slot *s = held_slot(map_segment());

	s->word = (s->word & ~LOCK_COUNT) | lock_range_word(UINT64_C(1) << 38);
}

static void bias_beyond(void)
{
	held_slot(map_segment())->bias += 1000;
}

static void no_ledger(void)
{
	shell("rm -r %s/ledger", harness.run);
}

static void copied_ledger(void)
{
	shell("cd %s && cp -a ledger copy && rm -r ledger && mv copy ledger", harness.run);
}

static void no_segment(void)
{
	shell("rm %s/shm/default", harness.run);
}

static void short_segment(void)
{
	shell("truncate -s 65536 %s/shm/default", harness.run);
}

static void no_names(void)
{
	shell("rm %s/ledger/names.default", harness.run);
}

static void moved_state(void)
{
	shell("cd %s && cp -a state copy && rm -r state && mv copy state", harness.dir);
}

/* What a backup gives back into the same directory: the store as it was before the last session. */
static void old_state(void)
{
	shell("cd %s && rm -rf old && cp -a state old && rm -r run/ledger", harness.dir);
	daemon_started(&daemon_);
	daemon_end(&daemon_, SIGKILL);
	shell("cd %s && rm -r state/* && cp -a old/. state/", harness.dir);
}

/* --- One start --- */

struct past {
	const char *title;
	void (*damage)(void);
	const char *said;                /* by the new daemon */
	int check;                       /* what the holder sees; NOBODY: touching the memory would end it */
	unsigned long long sessions;     /* how many later */
	bool reboot;
};

static const struct past pasts[] = {
	{ "nothing amiss", nothing, "the session goes on", 0, 0, false },
	{ "a slot owned by nobody that there is", owner_of_nobody, "the session goes on", ESTALE, 0, false },
	{ "a slot full of ones", all_ones, "the session goes on", ESTALE, 0, false },
	{ "a slot of zeroes", all_zeroes, "the session goes on", ESTALE, 0, false },
	{ "a slot with more tokens than were granted", count_beyond, "is not what the ledger allows", ESTALE, 0, false },
	{ "a slot with another bias", bias_beyond, "is not what the ledger allows", ESTALE, 0, false },
	{ "no ledger", no_ledger, "the ledger in the run directory is gone", ESTALE, 1, false },
	{ "a copied ledger", copied_ledger, "of another session, or a copy", ESTALE, 1, false },
	{ "no segment", no_segment, "its shared memory or its part of the ledger is gone", ESTALE, 0, false },
	{ "a short segment", short_segment, "is not what the daemon left", NOBODY, 0, false },
	{ "no list of names", no_names, "its shared memory or its part of the ledger is gone", ESTALE, 0, false },
	{ "a copied state directory", moved_state, "the state directory is a copy", ESTALE, 1, false },
	{ "an older state directory", old_state, "the store is older than the ledger", ESTALE, 2, false },
	{ "another boot", nothing, "the machine was started anew", ESTALE, 1, true },
};

/* With another boot id, in a mount namespace of its own. */
static bool start_rebooted(void)
{
	static const char id[] = "01234567-89ab-cdef-0123-456789abcdef\n";
	char path[60], program[600];
	FILE *f;

	snprintf(path, sizeof path, "%s/boot_id", harness.dir);
	f = fopen(path, "we");
	fputs(id, f);
	fclose(f);
	snprintf(program, sizeof program, "%s/rebooted", harness.dir);
	f = fopen(program, "we");
	fprintf(f, "#!/bin/sh\nmount --bind %s /proc/sys/kernel/random/boot_id && exec %s \"$@\"\n", path,
		built("daemon/dlockd"));
	fchmod(fileno(f), 0755);
	fclose(f);
	snprintf(path, sizeof path, "%s/start", harness.dir);
	f = fopen(path, "we");
	fprintf(f, "#!/bin/sh\nexec unshare -m %s \"$@\"\n", program);
	fchmod(fileno(f), 0755);
	fclose(f);
	return daemon_start(&daemon_, path, NULL, NULL);
}

static void begin(struct actor *a, const char *name)
{
	actor_begin(a);
	if (actor_do(a, act_open, OPEN_ROBUST, name).r)
		give_up("an actor opens %s", name);
}

static struct actor holder, waiter;
static const char *wrong;                /* the first thing that was */
static struct pace pace;                 /* of waiters, from the start of the daemon */

static void expect(bool good, const char *what)
{
	if (!good && !wrong)
		wrong = what;
}

static void set_up(void)
{
	struct result r;

	begin(&holder, NAME);
	begin(&waiter, NAME);
	r = actor_do(&holder, act_wait, 0, NULL);
	expect(taken(r.r) && r.token > highest, "the holder's token is not higher than all before");
	highest = r.token > highest ? r.token : highest;
	actor_do(&holder, act_consistent, 0, NULL);
	actor_send(&waiter, act_wait, 0, NULL);
	expect(asleep(waiter.pid), "the waiter does not sleep");
}

static void look_at_both(const struct past *p, uint64_t started)
{
	struct result r = { .r = -1 };
	int check = actor_do(&holder, act_check, 0, NULL).r;

	expect(check == p->check, "the holder's check");
	expect(check != 0 || !actor_result(&waiter, 100, &r), "the waiter is let in beside the holder");
	expect(actor_do(&holder, act_post, 0, NULL).r == p->check, "the holder's post");
	expect(actor_result(&waiter, PATIENCE_MS, &r), "the waiter sleeps on");
	expect(taken(r.r) && r.token > highest, "the waiter's token");
	pace_took(&pace, r.at_ns > started ? r.at_ns - started : 0, SOON_MS);
	highest = r.token > highest ? r.token : highest;
	expect(actor_do(&waiter, act_consistent, 0, NULL).r == (r.r == 0 ? EINVAL : 0), "the waiter's consistent");
	expect(actor_do(&waiter, act_post, 0, NULL).r == 0, "the waiter's post");
}

static void look_at_the_next(const struct past *p)
{
	struct actor late;
	struct result r;

	begin(&late, NAME);
	r = actor_do(&late, act_wait, 0, NULL);
	expect(taken(r.r) && r.token > highest, "the next one's token");
	highest = r.token > highest ? r.token : highest;
	expect(p->check == NOBODY || actor_do(&holder, act_try, 0, NULL).r == EBUSY, "the old holder gets in beside another");
	actor_kill(&late, SIGKILL);
}

static void play(const struct past *p)
{
	unsigned long long before = session();
	bool started;

	wrong = NULL;
	set_up();
	daemon_end(&daemon_, SIGKILL);
	p->damage();
	daemon_log_new();
	started = p->reboot ? start_rebooted() : daemon_start(&daemon_, built("daemon/dlockd"), NULL, NULL);
	if (!started)
		give_up("%s: the daemon starts", p->title);
	expect(daemon_said(p->said), "the log does not say so");
	expect(session() == before + p->sessions, "another session was expected");
	if (p->check != NOBODY)
		look_at_both(p, now_ns());
	look_at_the_next(p);
	actor_kill(&holder, SIGKILL);
	actor_kill(&waiter, SIGKILL);
}

static void test_pasts(const char *only)
{
	for (unsigned i = 0; i < sizeof pasts / sizeof *pasts; i++) {
		const struct past *p = &pasts[i];

		if (only && strcmp(p->title, only))
			continue;
		if (p->reboot && geteuid() != 0) {
			skip(p->title, "needs root");
			continue;
		}
		play(p);
		ok(!wrong, "%s: the holder %s, the waiter is served, tokens rise%s%s", p->title,
		   p->check ? "is told of its loss" : "keeps what it holds", wrong ? ": " : "", wrong ? wrong : "");
	}
}

/* A copy is started beside the original: both serve, and neither disturbs the other. */
static void test_copy_beside(void)
{
	struct actor here, there;
	struct daemon copy = { 0 };
	char run[60], dir[48];
	struct result r, r2;

	daemon_end(&daemon_, SIGTERM);   /* it may have thought of another boot */
	daemon_started(&daemon_);
	begin(&here, NAME);
	r = actor_do(&here, act_wait, 0, NULL);
	snprintf(dir, sizeof dir, "%s/second", harness.dir);
	shell("cd %s && mkdir second && cp -a run state second/", harness.dir);
	daemon_log_new();
	ok(daemon_start(&copy, built("daemon/dlockd"), (char *[]){ "--dir", dir, NULL }, NULL) &&
	   daemon_said("the state directory is a copy"),
	   "a copy of everything, started beside the original, takes itself for another node");
	snprintf(run, sizeof run, "%s/run", dir);
	setenv("DLOCK_RUN_DIR", run, 1);
	begin(&there, NAME);
	setenv("DLOCK_RUN_DIR", harness.run, 1);
	r2 = actor_do(&there, act_wait, 0, NULL);
	ok(taken(r.r) && taken(r2.r) && r2.token > highest, "it grants on its own, under higher tokens (%d, %d)", r.r, r2.r);
	ok(actor_do(&here, act_check, 0, NULL).r == 0, "and the original's holder holds");
	daemon_end(&copy, SIGTERM);
	daemon_end(&daemon_, SIGTERM);
	daemon_started(&daemon_);
	ok(actor_do(&here, act_check, 0, NULL).r == 0 && actor_do(&here, act_post, 0, NULL).r == 0,
	   "… over a restart of the original");
	actor_kill(&here, SIGKILL);
	actor_kill(&there, SIGKILL);
}

int main(int argc, char **argv)
{
	harness_begin(110);
	daemon_started(&daemon_);
	test_pasts(argc > 1 ? argv[1] : NULL);
	if (argc < 2) {
		ok(pace_is_quick(&pace), "who waits is served soon (%u of %u times within %u ms)", pace.quick, pace.times, SOON_MS);
		test_copy_beside();
	}
	daemon_end(&daemon_, SIGTERM);
	return harness_end();
}
