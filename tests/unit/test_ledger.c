/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The ledger: who has what open, in many, and after a death in the middle of it. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm_rig.h"
#include "../../daemon/fault.h"
#include "../../daemon/shm/files.h"

#define LEDGER(name, title) { title, name, set_up, tear_down, NULL }

static char dir[128];
static int rundir;
static struct ledger_identity id = { .session = 5, .epoch = 3, .secret = { 1, 2, 3 } };

static int set_up(void **state)
{
	(void)state;
	rig_dir(dir, sizeof dir, "256m");
	rundir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return rundir < 0;
}

static int tear_down(void **state)
{
	(void)state;
	close(rundir);
	rig_dir_done(dir);
	return 0;
}

static uint32_t add_client(struct ledger *l)
{
	uint32_t i;

	assert_int_equal(table_take(&l->clients, &i), 0);
	table_commit(&l->clients, i, 1);
	return i;
}

static uint32_t add_space(struct ledger *l)
{
	uint32_t i;

	assert_int_equal(table_take(&l->spaces, &i), 0);
	table_commit(&l->spaces, i, SPACE_GOOD);
	return i;
}

static void fresh(struct ledger *l)
{
	assert_int_equal(ledger_open(l, rundir, &id, true), 0);
}

/* Each open is on its client's list once, and found; nothing else is. */
static void judge(const struct ledger *l)
{
	uint32_t listed = 0;

	for (uint32_t c = 0; (c = table_next(&l->clients, c));) {
		uint32_t before = 0;

		for (uint32_t o = ledger_client(l, c)->opens; o; o = ledger_open_at(l, o)->next) {
			const struct ledger_open *e = ledger_open_at(l, o);

			assert_true(table_in_use(&l->opens, o));
			assert_int_equal(e->client, c);
			assert_int_equal(e->prev, before);
			assert_int_equal(ledger_open_find(l, c, e->space, e->slot), o);
			before = o;
			assert_true(++listed <= l->opens.n);
		}
	}
	assert_int_equal(listed, l->opens.n);
}

static void many(void **state)
{
	enum { CLIENTS = 20, SLOTS = 2000 };
	struct ledger l;
	uint32_t c[CLIENTS], space, o;

	(void)state;
	fresh(&l);
	space = add_space(&l);
	for (int i = 0; i < CLIENTS; i++)
		c[i] = add_client(&l);
	for (uint32_t s = 1; s <= SLOTS; s++)
		for (int i = 0; i < CLIENTS; i++)
			assert_int_equal(ledger_open_add(&l, c[i], (uint16_t)space, s, &o), 0);
	judge(&l);
	assert_int_equal(ledger_open_add(&l, c[3], (uint16_t)space, 77, &o), -EEXIST);
	assert_int_equal(ledger_open_find(&l, c[3], (uint16_t)(space + 1), 77), 0);
	assert_int_equal(ledger_open_find(&l, c[3], (uint16_t)space, SLOTS + 1), 0);
	for (uint32_t s = 1; s <= SLOTS; s++)
		for (int i = 0; i < CLIENTS; i++)
			if ((s + (uint32_t)i) % 7)
				ledger_open_del(&l, ledger_open_find(&l, c[i], (uint16_t)space, s));
	judge(&l);
	assert_true(l.open_buckets_n <= 32768);
	for (int i = 0; i < CLIENTS; i++)
		while ((o = ledger_client(&l, c[i])->opens))
			ledger_open_del(&l, o);
	assert_int_equal(l.opens.n, 0);
	assert_true(l.open_buckets_n <= 2048);
	ledger_close(&l);
}

static void restart(void **state)
{
	struct ledger l;
	uint32_t c, d, space, o;

	(void)state;
	fresh(&l);
	space = add_space(&l);
	c = add_client(&l);
	d = add_client(&l);
	for (uint32_t s = 1; s < 100; s++) {
		assert_int_equal(ledger_open_add(&l, c, (uint16_t)space, s, &o), 0);
		assert_int_equal(ledger_open_add(&l, d, (uint16_t)space, s, &o), 0);
	}
	ledger_open_at(&l, 5)->next = 5;         /* lists are half-linked, as after a death */
	ledger_open_at(&l, 9)->hash_next = 9;
	ledger_client(&l, c)->opens = 70000;
	table_drop(&l.clients, d);               /* cannot be: its opens go before it */
	ledger_open_at(&l, 12)->slot = SEG_SLOTS_MAX;
	ledger_close(&l);
	assert_int_equal(ledger_open(&l, rundir, &id, false), 0);
	judge(&l);
	assert_true(l.opens.n == 98 || l.opens.n == 99);
	ledger_close(&l);
}

static void whose(void **state)
{
	struct ledger_identity other = id, seen;
	struct ledger l;

	(void)state;
	assert_int_equal(ledger_peek(rundir, &seen), -ENOENT);
	fresh(&l);
	assert_int_equal(ledger_note_epoch(&l, 17), 0);
	ledger_close(&l);
	assert_int_equal(ledger_peek(rundir, &seen), 0);
	assert_int_equal(seen.session, 5);
	assert_int_equal(seen.epoch, 17);
	assert_memory_equal(seen.secret, id.secret, sizeof seen.secret);
	other.session = 6;
	assert_int_equal(ledger_open(&l, rundir, &other, false), -ESTALE);
	assert_int_equal(ledger_open(&l, rundir, &other, true), 0);
	ledger_close(&l);
	assert_int_equal(ledger_open(&l, rundir, &id, false), -ESTALE);
}

static void torn(void **state)
{
	struct ledger_identity seen;
	struct ledger l;
	char bytes[512];
	ssize_t n;
	int fd;

	(void)state;
	fresh(&l);
	ledger_close(&l);
	fd = openat(rundir, "ledger/head", O_RDWR | O_CLOEXEC);
	n = read(fd, bytes, sizeof bytes);
	assert_true(n > 0);
	for (ssize_t cut = 0; cut < n; cut++) {
		assert_int_equal(ftruncate(fd, cut), 0);
		assert_int_equal(ledger_peek(rundir, &seen), -ESTALE);
	}
	assert_int_equal(pwrite(fd, bytes, (size_t)n, 0), n);
	assert_int_equal(ledger_peek(rundir, &seen), 0);
	assert_int_equal(unlinkat(rundir, "ledger/head", 0), 0);
	close(fd);
	fd = openat(rundir, "ledger/head", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(write(fd, bytes, (size_t)n), n);        /* the same bytes, in another file */
	close(fd);
	assert_int_equal(ledger_peek(rundir, &seen), -ESTALE);
	assert_int_equal(unlinkat(rundir, "ledger/opens", 0), 0);
	assert_int_equal(ledger_open(&l, rundir, &id, false), -ENOENT);
}

static void life(struct ledger *l, uint32_t space)
{
	uint32_t c = add_client(l), o;

	for (uint32_t s = 1; s <= 4; s++)
		assert_int_equal(ledger_open_add(l, c, (uint16_t)space, s, &o), 0);
	ledger_open_del(l, ledger_open_find(l, c, (uint16_t)space, 2));
	ledger_open_del(l, ledger_open_find(l, c, (uint16_t)space, 4));
	ledger_note_epoch(l, l->id.epoch + 1);
	while ((o = ledger_client(l, c)->opens))
		ledger_open_del(l, o);
	table_drop(&l->clients, c);
}

static void killed(void **state)
{
	struct ledger_identity seen;
	int status = 1, n;

	(void)state;
	for (n = 1; status; n++) {
		struct ledger l;
		uint32_t c, space, o;
		pid_t pid;

		fresh(&l);
		space = add_space(&l);
		c = add_client(&l);
		assert_int_equal(ledger_open_add(&l, c, (uint16_t)space, 9, &o), 0);
		pid = fork();
		if (pid == 0) {
			fault_arm(n);
			life(&l, space);
			_exit(0);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
		ledger_close(&l);
		assert_int_equal(ledger_peek(rundir, &seen), 0);
		assert_int_equal(ledger_open(&l, rundir, &id, false), 0);
		judge(&l);
		assert_int_not_equal(ledger_open_find(&l, c, (uint16_t)space, 9), 0);
		life(&l, space);
		judge(&l);
		ledger_close(&l);
	}
	assert_true(n > 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		LEDGER(many, "forty thousand opens are found, listed and removed, and the buckets shrink again"),
		LEDGER(restart, "lists that a death left half-linked are made anew, and nonsense is dropped"),
		LEDGER(whose, "a ledger is that of one session, and says which"),
		LEDGER(torn, "a torn head, a copied head and a missing part are told apart"),
		LEDGER(killed, "killed at any store it keeps what was there, and can go on"),
	};

	rig_private();
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
