/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The file of worker numbers (things/id_kept.h) in the state directory of a node among others: read once, written by a thread, since
 * a disk may take as long as it likes and the daemon has beats to send.
 *
 * What must hold: one file is written at a time, and the next says what was wanted in the meantime; nobody else touches the job until the
 * thread has rung. The state directory is this daemon's as long as its own store is open (file_dir.h, lock): so kept_close() waits.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../hash.h"
#include "../log.h"
#include "../things/things.h"
#include "node.h"

#define AGAIN (5 * NSEC_PER_SEC)         /* after a failure */
#define STACK_SIZE (128 * 1024)

struct kept {
	struct node *node;
	struct things *ts;
	int dir, bell;
	struct kept_place here;
	struct loop_read *read;
	struct loop_defer begin;
	struct loop_timer again;
	bool wanted, running, failing;
	/* the thread's, from its start until it rings */
	pthread_t thread;
	struct id_kept *v;
	uint32_t n;
	enum kept_end end;
	int error;
};

/* --- the thread --- */

static void *write_file(void *arg)
{
	struct kept *k = arg;
	uint64_t one = 1;

	k->end = kept_save(k->dir, &store_file_io_system, &k->here, k->v, k->n, &k->error);
	while (write(k->bell, &one, sizeof one) < 0 && errno == EINTR)
		;
	return NULL;
}

/* Signals are the loop's. */
static int thread_start(struct kept *k)
{
	pthread_attr_t attr;
	sigset_t all, before;
	int r;

	sigfillset(&all);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_SIZE);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&k->thread, &attr, write_file, k);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return -r;
}

/* --- the loop's side --- */

static void tell(struct kept *k)
{
	if (k->end == KEPT_SAVED) {
		if (k->failing)
			log_notice("worker numbers: the file `" KEPT_NAME "' in the state directory is written again");
		k->failing = false;
		return;
	}
	if (!k->failing)
		log_warning("worker numbers: %s/" KEPT_NAME " cannot be written: %s. As long as that is so no new ids can be had where the store "
			    "cannot be reached%s", k->node->config.state_dir, strerrordesc_np(-k->error),
			    k->end == KEPT_GONE ? "" : ", and this node takes other numbers than those in it");
	k->failing = true;
}

static void ended(struct kept *k)
{
	struct id_kept *v = k->v;

	k->v = NULL;
	k->running = false;
	tell(k);
	if (k->end != KEPT_SAVED)
		loop_timer_set(k->node->loop, &k->again, loop_now(k->node->loop) + AGAIN);
	things_keep_end(k->ts, v, k->n, k->end);
	free(v);
	if (k->wanted)
		kept_want(k);
}

static void begin(void *arg)
{
	struct kept *k = arg;
	int r;

	if (k->running || k->again.queued)
		return;
	k->wanted = false;
	k->n = things_keep_begin(k->ts, &k->v);
	k->running = true;
	r = thread_start(k);
	if (r < 0) {
		k->end = KEPT_OLD;
		k->error = r;
		ended(k);
	}
}

static void rung(void *arg, const void *data, ssize_t n)
{
	struct kept *k = arg;

	(void)data;
	if (n <= 0 || !k->running)
		return;
	pthread_join(k->thread, NULL);
	ended(k);
}

void kept_want(struct kept *k)
{
	if (!k)
		return;
	k->wanted = true;
	loop_defer(k->node->loop, &k->begin);
}

/* --- beginning and end --- */

static uint64_t text_hash(uint64_t h, const char *p)
{
	return fnv1a(p ? fnv1a(h, p, strlen(p)) : h, "\xff", 1);
}

static int place_of(struct kept *k)
{
	const struct config *c = &k->node->config;
	struct boot_place here;
	int r = boot_place(c->state_dir, &here);

	if (r < 0)
		return r;
	memcpy(k->here.node, k->node->boot.node_id, 16);
	memcpy(k->here.machine, here.machine_id, 16);
	k->here.dir_ino = here.state_ino;
	k->here.cluster = text_hash(text_hash(FNV1A_START, c->cluster_name), c->text[CONFIG_STORE]);
	return 0;
}

/* What this daemon was before is what wrote the file: else it is somebody else's. */
static bool boot_keeps(enum boot_case what)
{
	return what == BOOT_ADOPTED || what == BOOT_REBOOTED || what == BOOT_LOST;
}

static void say_found(const struct kept *k, enum kept_find f, int error, uint32_t n)
{
	const char *dir = k->node->config.state_dir;

	if (f == KEPT_GOOD && n)
		log_info("worker numbers: %u are known from %s/" KEPT_NAME, n, dir);
	else if (f != KEPT_GOOD && f != KEPT_NONE)
		log_warning("worker numbers: %s/" KEPT_NAME " %s%s%s: not used; new ones are taken when the store can be reached", dir,
			    kept_text(f), f == KEPT_UNREADABLE ? ": " : "", f == KEPT_UNREADABLE ? strerrordesc_np(-error) : "");
}

static void forget(const struct kept *k)
{
	int r = kept_remove(k->dir, &store_file_io_system);

	if (r < 0)
		log_error("worker numbers: %s/" KEPT_NAME " cannot be removed: %s", k->node->config.state_dir, strerrordesc_np(-r));
}

/* What is not believed goes, so that nobody believes it later. */
static void load(struct kept *k)
{
	struct node *n = k->node;
	enum kept_find f = KEPT_ELSEWHERE;
	struct id_kept *v = NULL;
	uint32_t count = 0;
	int error = 0;

	if (boot_keeps(n->boot.what) || faccessat(k->dir, KEPT_NAME, F_OK, 0) < 0)
		f = kept_load(k->dir, &store_file_io_system, &k->here, &v, &count, &error);
	say_found(k, f, error, count);
	if (f != KEPT_GOOD && f != KEPT_NONE)
		forget(k);
	things_keep_load(k->ts, v, count, n->config.id_reserve);
}

static int wire(struct kept *k)
{
	struct loop *loop = k->node->loop;

	k->dir = open(k->node->config.state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	k->bell = k->dir < 0 ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (k->dir < 0 || k->bell < 0)
		return -errno;
	loop_defer_init(&k->begin, begin, k);
	loop_timer_init(&k->again, begin, k);
	return loop_read_start(loop, k->bell, sizeof(uint64_t), rung, k, &k->read);
}

int kept_open(struct node *n, struct things *ts, struct kept **ret)
{
	struct kept *k = calloc(1, sizeof *k);
	int r = k ? 0 : -ENOMEM;

	if (r < 0)
		return r;
	k->node = n;
	k->ts = ts;
	k->dir = k->bell = -1;
	r = wire(k);
	if (r == 0)
		r = place_of(k);
	if (r < 0) {
		kept_close(k);
		return r;
	}
	if (n->config.id_reserve)
		load(k);
	else
		forget(k);
	*ret = k;
	return 0;
}

void kept_close(struct kept *k)
{
	if (!k)
		return;
	if (k->running)
		pthread_join(k->thread, NULL);
	if (k->read) {
		loop_read_stop(k->read);
		loop_defer_cancel(k->node->loop, &k->begin);
		loop_timer_cancel(k->node->loop, &k->again);
	}
	free(k->v);
	if (k->bell >= 0)
		close(k->bell);
	if (k->dir >= 0)
		close(k->dir);
	free(k);
}
