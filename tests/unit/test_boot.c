/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a starting daemon believes of the past: each case told apart, and no number used twice. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shm_rig.h"
#include "../../daemon/node/boot.h"
#include "../../daemon/shm/files.h"
#include "../../daemon/store/file.h"

#define BOOT(name, title) { title, name, set_up, tear_down, NULL }

static char dir[128], state[160];
static int rundir, base;
static struct boot_place here;

static int set_up(void **unused)
{
	(void)unused;
	rig_dir(dir, sizeof dir, "64m");
	snprintf(state, sizeof state, "%s/state", dir);
	base = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	rundir = files_dir(base, "run", 0755);
	here = (struct boot_place){ .boot_id = { 1 }, .machine_id = { 2 }, .state_dev = 3, .state_ino = 4 };
	return rundir < 0;
}

static int tear_down(void **unused)
{
	(void)unused;
	close(rundir);
	close(base);
	rig_dir_done(dir);
	return 0;
}

static struct store *open_store(void)
{
	struct store_why why;
	struct store *s;

	if (store_file_open(state, NULL, &s, &why) < 0)
		fail_msg("%s", why.text);
	return s;
}

/* One start of a daemon that then writes its ledger, and comes to epoch. 0: it dies before that. */
static struct boot run(uint32_t epoch)
{
	struct store *s = open_store();
	const char *why = NULL;
	struct boot b = { 0 };
	struct ledger l;

	assert_int_equal(boot_decide(s, &here, rundir, &b, &why), 0);
	assert_int_equal(b.fresh, b.what != BOOT_ADOPTED);
	assert_int_equal(memcmp(b.id.boot_id, here.boot_id, 16), 0);
	store_close(s);
	if (epoch) {
		assert_int_equal(ledger_open(&l, rundir, &b.id, b.fresh), 0);
		assert_int_equal(ledger_note_epoch(&l, epoch), 0);
		ledger_close(&l);
	}
	return b;
}

static void copy(const char *from, const char *to)
{
	char buf[65536];
	int a = openat(base, from, O_RDONLY | O_CLOEXEC), b = openat(base, to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ssize_t n;

	assert_true(a >= 0 && b >= 0);
	while ((n = read(a, buf, sizeof buf)) > 0)
		assert_int_equal(write(b, buf, (size_t)n), n);
	close(a);
	close(b);
}

static void first(void **unused)
{
	struct boot b;

	(void)unused;
	b = run(1);
	assert_int_equal(b.what, BOOT_FIRST);
	assert_int_equal(b.id.session, 1);
	assert_int_equal(b.incarnation, 1);
	assert_int_equal(b.id.epoch, 0);
}

static void adopted(void **unused)
{
	struct boot a, b;

	(void)unused;
	a = run(5);
	b = run(6);
	assert_int_equal(b.what, BOOT_ADOPTED);
	assert_int_equal(b.id.session, a.id.session);
	assert_int_equal(b.incarnation, a.incarnation + 1);
	assert_int_equal(b.id.epoch, 5);
	assert_memory_equal(b.id.secret, a.id.secret, 16);
	assert_memory_equal(b.node_id, a.node_id, 16);
	assert_int_equal(run(0).what, BOOT_ADOPTED);     /* dies before it has a ledger of its own */
	assert_int_equal(run(7).incarnation, a.incarnation + 3);
}

static void rebooted(void **unused)
{
	struct boot a, b;

	(void)unused;
	a = run(5);
	here.boot_id[0] = 9;
	here.state_dev = 77;             /* disks may be found in another order */
	files_empty(rundir, "ledger");
	b = run(6);
	assert_int_equal(b.what, BOOT_REBOOTED);
	assert_int_equal(b.id.session, a.id.session + 1);
	assert_int_equal(b.incarnation, 1);
	assert_memory_equal(b.node_id, a.node_id, 16);
	assert_memory_not_equal(b.id.secret, a.id.secret, 16);
	/* The run directory is on a disk, so that the ledger outlives the boot. */
	here.boot_id[0] = 10;
	assert_int_equal(run(7).what, BOOT_REBOOTED);
}

static void lost(void **unused)
{
	struct boot a, b;

	(void)unused;
	a = run(5);
	assert_int_equal(unlinkat(rundir, "ledger/head", 0), 0);
	b = run(6);
	assert_int_equal(b.what, BOOT_LOST);
	assert_int_equal(b.id.session, a.id.session + 1);
	files_empty(rundir, "ledger");
	assert_int_equal(unlinkat(rundir, "ledger", AT_REMOVEDIR), 0);
	assert_int_equal(run(7).what, BOOT_LOST);
}

static void copied(void **unused)
{
	struct boot a, b;

	(void)unused;
	a = run(5);
	here.state_ino = 40;             /* cp -a state elsewhere */
	b = run(6);
	assert_int_equal(b.what, BOOT_COPIED);
	assert_int_equal(b.id.session, a.id.session + 1);
	assert_memory_not_equal(b.node_id, a.node_id, 16);
	here.machine_id[0] = 99;
	here.boot_id[0] = 98;
	assert_int_equal(run(7).what, BOOT_COPIED);
	here.state_dev = 5;              /* the same boot, another disk */
	assert_int_equal(run(8).what, BOOT_COPIED);
	assert_int_equal(run(9).what, BOOT_ADOPTED);
}

static void foreign(void **unused)
{
	struct boot a, b;

	(void)unused;
	a = run(5);
	copy("run/ledger/head", "head");
	assert_int_equal(renameat(base, "head", base, "run/ledger/head"), 0);
	b = run(6);
	assert_int_equal(b.what, BOOT_FOREIGN);          /* the same bytes, but not the file */
	assert_int_equal(b.id.session, a.id.session + 1);
	run(0);                                          /* a new session, without a ledger of its own yet */
	copy("state/store", "store");
	assert_int_equal(run(7).what, BOOT_ADOPTED);
	here.boot_id[0] = 50;
	run(0);
	assert_int_equal(run(8).what, BOOT_FOREIGN);     /* that ledger is of the boot before */
}

static void rolled(void **unused)
{
	struct boot a, b;

	(void)unused;
	a = run(5);
	copy("state/store", "store");
	assert_int_equal(run(6).what, BOOT_ADOPTED);
	copy("store", "state/store");
	b = run(7);
	assert_int_equal(b.what, BOOT_ROLLED);           /* within a session the incarnation tells */
	assert_true(b.id.session > a.id.session);
	assert_int_equal(b.id.epoch, 6);
	copy("store", "state/store");
	a = b;
	b = run(8);
	assert_int_equal(b.what, BOOT_ROLLED);
	assert_true(b.id.session > a.id.session);
	assert_int_equal(b.id.epoch, 7);
}

static void store_gone(void **unused)
{
	struct boot a, b;

	(void)unused;
	a = run(5);
	files_empty(base, "state");
	b = run(6);
	assert_int_equal(b.what, BOOT_ROLLED);           /* not "first start": the ledger knows better */
	assert_true(b.id.session > a.id.session);
	assert_int_equal(b.id.epoch, 5);
}

static void keep_answer(void *arg, const struct store_result *r)
{
	*(uint64_t *)arg = r->version;
}

static void corrupted(void **unused)
{
	struct store *s;
	const char *why = NULL;
	uint64_t version = 0;
	struct boot b;

	(void)unused;
	run(5);
	s = open_store();
	for (size_t n = 0; n < 200; n += 10) {
		char bytes[200] = { 0 };

		store_get(s, "session", keep_answer, &version);
		store_cas(s, "session", version, bytes, n, keep_answer, &version);
		assert_int_equal(boot_decide(s, &here, rundir, &b, &why), -EUCLEAN);
		assert_non_null(why);
	}
	store_close(s);
}

static void never_twice(void **unused)
{
	uint64_t last_session = 0;
	uint32_t last_incarnation = 0;
	unsigned kinds = 0;

	(void)unused;
	srand(1);
	for (int i = 0; i < 60; i++) {
		struct boot b;

		int kind = rand() % 6;

		kinds |= 1u << kind;
		switch (kind) {
		case 0: here.boot_id[0]++; files_empty(rundir, "ledger"); break;
		case 1: files_empty(rundir, "ledger"); break;
		case 2: here.state_ino++; break;
		case 3: copy("run/ledger/head", "head"); renameat(base, "head", base, "run/ledger/head"); break;
		default: break;
		}
		b = run(rand() % 3 ? (uint32_t)i + 1 : 0);
		if (faccessat(rundir, "ledger/head", F_OK, 0) < 0)
			b = run((uint32_t)i + 1);
		assert_true(b.id.session > last_session ||
			    (b.id.session == last_session && b.incarnation > last_incarnation));
		last_session = b.id.session;
		last_incarnation = b.incarnation;
	}
	assert_int_equal(kinds, 0x3f);
}

static void place(void **unused)
{
	struct boot_place a, b;

	(void)unused;
	assert_int_equal(boot_place(dir, &a), 0);
	assert_int_equal(boot_place(dir, &b), 0);
	assert_memory_equal(&a, &b, sizeof a);
	assert_int_equal(boot_place("/nonexistent/x", &b), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		BOOT(first, "a first start"),
		BOOT(adopted, "the same session goes on, in the next incarnation"),
		BOOT(rebooted, "a reboot, with and without a ledger that outlived it"),
		BOOT(lost, "the ledger is gone"),
		BOOT(copied, "the state directory is a copy, on this machine or another"),
		BOOT(foreign, "the ledger is a copy, or of another session"),
		BOOT(rolled, "the store is an older copy, of this session or the one before"),
		BOOT(store_gone, "the store was removed under a ledger"),
		BOOT(corrupted, "a record of another size or version is refused, and not reset"),
		BOOT(never_twice, "sixty starts of all kinds: session and incarnation always rise"),
		BOOT(place, "the place is what the system says"),
	};

	rig_private();
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
