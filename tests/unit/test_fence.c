/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The checker at the resource: through power failures, by many processes at once, killed anywhere, on a damaged file.
 *
 * A power failure is simulated at each fdatasync(): the disk then has what it had at the last one, and of each sector that was
 * changed since the old content, the new one, or, since the kernel may copy a page while it is written to, some words of each.
 */
#include <dlock.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../libclient/fence_file.h"

#define SECTOR 512
#define WORD 8
#define NAMES 5
#define IMAGE_MAX (1u << 20)

static char dir[64];
static uint64_t random_state;

static uint32_t below(uint32_t n)
{
	uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return (uint32_t)((z >> 32) % n);
}

static const char *in_dir(const char *name)
{
	static char path[4][100];
	static unsigned at;
	char *p = path[at++ % 4];

	snprintf(p, sizeof path[0], "%s/%s", dir, name);
	return p;
}

/* --- The disk --- */

static struct {
	bool watched;
	uint8_t disk[IMAGE_MAX], now[IMAGE_MAX], crash[IMAGE_MAX];
	size_t disk_n;
	uint64_t admitted[NAMES];        /* what somebody was told yes for */
	unsigned crashes, syncs, fail_in;
	unsigned asked;                  /* how often the disk was waited for, watched or not */
} power;

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);

static const char *name_of(unsigned i)
{
	static const char *const names[NAMES] = { "a", "default/b", "other/c", "default/a much longer name, of which the record has several sectors or so: "
		"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "e" };

	return names[i];
}

static void after_power_failure(void)
{
	dlock_fence_t *f;
	int fd = open(in_dir("after"), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_int_equal(write(fd, power.crash, power.disk_n), (ssize_t)power.disk_n);
	close(fd);
	power.watched = false;
	assert_int_equal(dlock_fence_open(&f, in_dir("after")), 0);
	for (unsigned i = 0; i < NAMES; i++) {
		if (power.admitted[i] > 1)
			assert_int_equal(dlock_fence_admit(f, name_of(i), power.admitted[i] - 1), ESTALE);
		if (power.admitted[i])
			assert_in_set(dlock_fence_admit(f, name_of(i), power.admitted[i]), ((const unsigned long[]){ 0, ESTALE }), 2);
	}
	dlock_fence_close(f);
	power.watched = true;
	power.crashes++;
}

static void sector_fails(size_t at)
{
	unsigned way = memcmp(power.disk + at, power.now + at, SECTOR) ? below(3) : 0;

	for (size_t i = at; i < at + SECTOR; i += WORD)
		memcpy(power.crash + i, (way == 1 || (way == 2 && below(2)) ? power.now : power.disk) + i, WORD);
}

/* A file that grew has zeros on the disk where nothing was written yet. */
static void power_fails(int fd)
{
	ssize_t n = pread(fd, power.now, IMAGE_MAX, 0);

	assert_true(n >= 0 && n < IMAGE_MAX);
	if ((size_t)n > power.disk_n)
		memset(power.disk + power.disk_n, 0, (size_t)n - power.disk_n);
	power.disk_n = (size_t)n;
	for (unsigned tries = 0; tries < 3; tries++) {
		for (size_t at = 0; at < power.disk_n; at += SECTOR)
			sector_fails(at);
		after_power_failure();
	}
}

/* So many calls find that a signal has come. */
static unsigned interrupts;

static bool interrupted(void)
{
	interrupts -= interrupts > 0;
	return interrupts > 0;
}

int __real_posix_fallocate(int fd, off_t at, off_t n);
int __wrap_posix_fallocate(int fd, off_t at, off_t n);

int __wrap_posix_fallocate(int fd, off_t at, off_t n)
{
	return interrupted() ? EINTR : __real_posix_fallocate(fd, at, n);
}

static unsigned fsyncs, fsync_fails;     /* of the directory */

int __real_fsync(int fd);
int __wrap_fsync(int fd);

int __wrap_fsync(int fd)
{
	fsyncs++;
	if (fsync_fails) {
		fsync_fails--;
		errno = EIO;
		return -1;
	}
	return __real_fsync(fd);
}

int __wrap_fdatasync(int fd)
{
	power.asked++;
	if (interrupted()) {
		errno = EINTR;
		return -1;
	}
	if (!power.watched)
		return __real_fdatasync(fd);
	power.syncs++;
	power_fails(fd);
	if (power.fail_in && --power.fail_in == 0) {
		errno = EIO;
		return -1;
	}
	memcpy(power.disk, power.now, power.disk_n);
	return 0;
}

/* --- Stories --- */

static void tokens_rise(void **state)
{
	(void)state;
	dlock_fence_t *f, *g;
	uint64_t top = (UINT64_C(1) << 63) - 1;

	assert_int_equal(dlock_fence_open(&f, in_dir("plain")), 0);
	assert_int_equal(dlock_fence_admit(f, "x", 7), 0);
	assert_int_equal(dlock_fence_admit(f, "x", 7), 0);
	assert_int_equal(dlock_fence_admit(f, "x", 6), ESTALE);
	assert_int_equal(dlock_fence_admit(f, "default/x", 6), ESTALE);
	assert_int_equal(dlock_fence_admit(f, "y", 1), 0);
	assert_int_equal(dlock_fence_admit(f, "other/x", 1), 0);
	assert_int_equal(dlock_fence_admit(f, "x", top), 0);
	assert_int_equal(dlock_fence_admit(f, "x", 8), ESTALE);
	assert_int_equal(dlock_fence_open(&g, in_dir("plain")), 0);
	assert_int_equal(dlock_fence_admit(g, "x", top - 1), ESTALE);
	assert_int_equal(dlock_fence_admit(g, "y", 2), 0);
	assert_int_equal(dlock_fence_admit(f, "y", 1), ESTALE);
	dlock_fence_close(f);
	dlock_fence_close(g);
}

/* How often the disk was waited for since it was asked last. */
static unsigned syncs(void)
{
	unsigned n = power.asked;

	power.asked = 0;
	return n;
}

static void disk_is_waited_for_once_a_token(void **state)
{
	(void)state;
	dlock_fence_t *f, *g;

	assert_int_equal(dlock_fence_open(&f, in_dir("costs")), 0);
	assert_int_equal(dlock_fence_open(&g, in_dir("costs")), 0);
	syncs();
	assert_int_equal(dlock_fence_admit(f, "x", 5), 0);
	assert_in_range(syncs(), 1, 2);
	for (uint64_t token = 6; token < 20; token++) {
		assert_int_equal(dlock_fence_admit(f, "x", token), 0);
		assert_int_equal(syncs(), 1);
		assert_int_equal(dlock_fence_admit(g, "x", token), 0);
		assert_int_equal(dlock_fence_admit(f, "x", token), 0);
		assert_int_equal(dlock_fence_admit(g, "x", token - 1), ESTALE);
		assert_int_equal(syncs(), 0);
	}
	dlock_fence_close(f);
	dlock_fence_close(g);
}

static void nonsense(void **state)
{
	(void)state;
	dlock_fence_t *f = NULL;
	char garbage[1000];

	assert_int_equal(dlock_fence_open(&f, in_dir("plain")), 0);
	assert_int_equal(dlock_fence_admit(f, "x", 0), EINVAL);
	assert_int_equal(dlock_fence_admit(f, "x", UINT64_C(1) << 63), EINVAL);
	assert_int_equal(dlock_fence_admit(f, "", 1), EINVAL);
	assert_int_equal(dlock_fence_admit(f, NULL, 1), EINVAL);
	assert_int_equal(dlock_fence_admit(f, "a b/c", 1), EINVAL);
	dlock_fence_close(f);
	f = NULL;
	assert_int_equal(dlock_fence_open(&f, NULL), EINVAL);
	assert_int_equal(dlock_fence_open(&f, in_dir("no/such/folder")), ENOENT);
	int fd = open(in_dir("garbage"), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	memset(garbage, 'x', sizeof garbage);
	for (unsigned i = 0; i < 600; i++)
		assert_int_equal(write(fd, garbage, sizeof garbage), sizeof garbage);
	close(fd);
	assert_int_equal(dlock_fence_open(&f, in_dir("garbage")), EBADMSG);
	assert_int_equal(truncate(in_dir("garbage"), 100), 0);
	assert_int_equal(dlock_fence_open(&f, in_dir("garbage")), EBADMSG);
	assert_null(f);
	dlock_fence_close(NULL);
}

static void file_of(const char *path, size_t zeros, const char *then)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_int_equal(ftruncate(fd, (off_t)zeros), 0);
	assert_int_equal(pwrite(fd, then, strlen(then), (off_t)zeros), (ssize_t)strlen(then));
	close(fd);
}

/* Room for it was had in part, or in full, and then there was no more, or whoever made it was killed. */
static void begun(void **state)
{
	(void)state;
	static const size_t sizes[] = { 1, 100, 4096, FENCE_RECORDS_AT - 1, FENCE_RECORDS_AT };
	dlock_fence_t *f;

	for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		file_of(in_dir("begun"), sizes[i], "");
		assert_int_equal(dlock_fence_open(&f, in_dir("begun")), 0);
		assert_int_equal(dlock_fence_admit(f, "a", 2), 0);
		assert_int_equal(dlock_fence_admit(f, "a", 1), ESTALE);
		dlock_fence_close(f);
	}
}

/* After a power failure it would be gone, and all tokens with it. */
static void its_name_is_on_the_disk(void **state)
{
	(void)state;
	dlock_fence_t *f;

	fsync_fails = 1;
	assert_int_equal(dlock_fence_open(&f, in_dir("name")), EIO);
	fsyncs = 0;
	assert_int_equal(dlock_fence_open(&f, in_dir("name")), 0);
	assert_int_equal(fsyncs, 1);
	dlock_fence_close(f);
	assert_int_equal(dlock_fence_open(&f, in_dir("name")), 0);
	assert_int_equal(fsyncs, 1);
	dlock_fence_close(f);
}

/* tmpfs of older kernels gives up allocating for any signal, and others may do so as well. */
static void signals_come(void **state)
{
	(void)state;
	dlock_fence_t *f;
	char name[300];

	interrupts = 3;
	assert_int_equal(dlock_fence_open(&f, in_dir("signals")), 0);
	for (unsigned i = 0; i < 400; i++) {
		snprintf(name, sizeof name, "default/%0200u", i);
		interrupts = 1 + i % 4;
		assert_int_equal(dlock_fence_admit(f, name, 1), 0);
	}
	interrupts = 0;
	dlock_fence_close(f);
}

/* An image of a disk, say: many begin so. */
static void begins_with_zeros(void **state)
{
	(void)state;
	static const size_t zeros[] = { 8, sizeof(struct fence_header) + 8, 4096, FENCE_RECORDS_AT - 5, FENCE_RECORDS_AT };
	char read_back[8];
	dlock_fence_t *f;

	for (unsigned i = 0; i < sizeof zeros / sizeof zeros[0]; i++) {
		file_of(in_dir("image"), zeros[i], "mine");
		assert_int_equal(dlock_fence_open(&f, in_dir("image")), EBADMSG);
		int fd = open(in_dir("image"), O_RDONLY | O_CLOEXEC);
		assert_int_equal(pread(fd, read_back, sizeof read_back, (off_t)zeros[i]), 4);
		assert_memory_equal(read_back, "mine", 4);
		close(fd);
	}
}

/* Whatever part of a write the disk has got: what was admitted is not forgotten. Sometimes the disk says EIO, too. */
static void power_failures(void **state)
{
	(void)state;
	dlock_fence_t *f;
	unsigned failed = 0;

	memset(&power, 0, sizeof power);
	power.watched = true;
	assert_int_equal(dlock_fence_open(&f, in_dir("power")), 0);
	for (unsigned n = 0; n < 150; n++) {
		unsigned i = below(NAMES);
		uint64_t token = power.admitted[i] + below(3);

		power.fail_in = below(6) ? 0 : 1 + below(2);
		int r = token ? dlock_fence_admit(f, name_of(i), token) : 0;
		if (r == EIO)
			failed++;
		else
			assert_true(r == 0 || r == ESTALE);      /* stale: a failed one has got further */
		if (r == 0 && token > power.admitted[i])
			power.admitted[i] = token;
	}
	power.watched = false;
	dlock_fence_close(f);
	printf("# %u syncs, %u of them failed, %u power failures\n", power.syncs, failed, power.crashes);
	assert_true(power.crashes > 100 && failed > 2);
}

static void no_room(void **state)
{
	(void)state;
	struct rlimit old, small = { FENCE_RECORDS_AT + FENCE_GROW, RLIM_INFINITY };
	dlock_fence_t *f;
	char name[300];
	int r = 0;

	assert_int_equal(dlock_fence_open(&f, in_dir("small")), 0);
	getrlimit(RLIMIT_FSIZE, &old);
	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &small);
	for (unsigned i = 0; i < 1000 && !r; i++) {
		snprintf(name, sizeof name, "default/%0200u", i);
		r = dlock_fence_admit(f, name, 1);
	}
	assert_int_equal(r, EFBIG);
	assert_int_equal(dlock_fence_admit(f, name, 1), EFBIG);
	snprintf(name, sizeof name, "default/%0200u", 0);
	assert_int_equal(dlock_fence_admit(f, name, 2), 0);
	setrlimit(RLIMIT_FSIZE, &old);
	dlock_fence_close(f);
}

/* --- Many at once --- */

static struct {
	uint64_t told[NAMES];            /* the highest that somebody has been told yes for */
	uint64_t wrong, asked, admitted;
} *all;

static void told(unsigned i, uint64_t token)
{
	uint64_t old = __atomic_load_n(&all->told[i], __ATOMIC_SEQ_CST);

	while (old < token && !__atomic_compare_exchange_n(&all->told[i], &old, token, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
}

static void *asker(void *arg)
{
	dlock_fence_t *f = arg;
	unsigned seed = (unsigned)(uintptr_t)&f ^ (unsigned)getpid();

	for (unsigned n = 0; n < 3000; n++) {
		unsigned i = (unsigned)rand_r(&seed) % NAMES;
		uint64_t before = __atomic_load_n(&all->told[i], __ATOMIC_SEQ_CST);
		uint64_t token = before + (unsigned)rand_r(&seed) % 4;
		int r;

		token -= token > 1 && rand_r(&seed) % 2;
		if (!token)
			continue;
		r = dlock_fence_admit(f, name_of(i), token);
		__atomic_fetch_add(&all->asked, 1, __ATOMIC_RELAXED);
		if (r && r != ESTALE)
			__atomic_fetch_add(&all->wrong, 1, __ATOMIC_RELAXED);
		if (r == 0 && token < before)
			__atomic_fetch_add(&all->wrong, 1, __ATOMIC_RELAXED);
		if (r == 0) {
			told(i, token);
			__atomic_fetch_add(&all->admitted, 1, __ATOMIC_RELAXED);
		}
	}
	return NULL;
}

static pid_t crowd(const char *path, dlock_fence_t *inherited)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	pthread_t t[2];
	dlock_fence_t *f = inherited;

	if (!f && dlock_fence_open(&f, path))
		_exit(1);
	for (unsigned i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, asker, f);
	for (unsigned i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	_exit(0);
}

static void many_ask(void **state)
{
	(void)state;
	dlock_fence_t *f;
	pid_t pid[4];
	int status;

	memset(all, 0, sizeof *all);
	assert_int_equal(dlock_fence_open(&f, in_dir("many")), 0);
	for (unsigned i = 0; i < 4; i++)
		pid[i] = crowd(in_dir("many"), i % 2 ? f : NULL);
	for (unsigned i = 0; i < 4; i++) {
		waitpid(pid[i], &status, 0);
		assert_int_equal(status, 0);
	}
	assert_int_equal(all->wrong, 0);
	assert_true(all->admitted > 1000 && all->asked > all->admitted);
	for (unsigned i = 0; i < NAMES; i++)
		assert_int_equal(dlock_fence_admit(f, name_of(i), all->told[i] - 1), ESTALE);
	dlock_fence_close(f);
}

static void killed_anywhere(void **state)
{
	(void)state;
	dlock_fence_t *f;

	memset(all, 0, sizeof *all);
	for (unsigned n = 0; n < 60 || (all->admitted <= 100 && n < 5000); n++) {
		pid_t pid = crowd(in_dir("killed"), NULL);
		struct timespec t = { 0, (long)below(5000000) };

		nanosleep(&t, NULL);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
	assert_int_equal(all->wrong, 0);
	assert_true(all->admitted > 100);
	assert_int_equal(dlock_fence_open(&f, in_dir("killed")), 0);
	for (unsigned i = 0; i < NAMES; i++)
		if (all->told[i] > 1)
			assert_int_equal(dlock_fence_admit(f, name_of(i), all->told[i] - 1), ESTALE);
	dlock_fence_close(f);
}

/* Bytes that were changed, or cut off: an error or an answer, never a crash. */
static void damaged(void **state)
{
	(void)state;
	dlock_fence_t *f;
	unsigned refused = 0;

	for (unsigned n = 0; n < 300; n++) {
		struct stat st;

		unlink(in_dir("damaged"));
		assert_int_equal(dlock_fence_open(&f, in_dir("damaged")), 0);
		for (unsigned i = 0; i < NAMES; i++)
			assert_int_equal(dlock_fence_admit(f, name_of(i), 5), 0);
		dlock_fence_close(f);
		assert_int_equal(stat(in_dir("damaged"), &st), 0);
		int fd = open(in_dir("damaged"), O_RDWR | O_CLOEXEC);
		for (unsigned k = 0; k < 40; k++) {
			uint8_t byte = (uint8_t)below(256);
			off_t at = below(4) ? (off_t)(FENCE_RECORDS_AT + below(1200)) : (off_t)below((uint32_t)st.st_size);

			if (below(20) == 0 && n % 2)
				at = below(sizeof(struct fence_header));
			assert_int_equal(pwrite(fd, &byte, 1, at), 1);
		}
		if (below(4) == 0)
			assert_int_equal(ftruncate(fd, (off_t)below((uint32_t)st.st_size)), 0);
		close(fd);
		int r = dlock_fence_open(&f, in_dir("damaged"));
		refused += r != 0;
		for (unsigned i = 0; i < NAMES && !r; i++)
			refused += dlock_fence_admit(f, name_of(i), 5 + below(2)) != 0;
		if (!r)
			dlock_fence_close(f);
	}
	printf("# %u times refused\n", refused);
	assert_true(refused > 10);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		{ "the highest token is admitted, and lower ones never again", tokens_rise, NULL, NULL, NULL },
		{ "the disk is waited for once for each new token, and not for one that is known", disk_is_waited_for_once_a_token, NULL, NULL, NULL },
		{ "what cannot be is an error, and so is a file that is something else", nonsense, NULL, NULL, NULL },
		{ "a file that was begun and not finished is made", begun, NULL, NULL, NULL },
		{ "the file is of use only once its name is on the disk", its_name_is_on_the_disk, NULL, NULL, NULL },
		{ "a signal that comes meanwhile is no error", signals_come, NULL, NULL, NULL },
		{ "one that begins with zeros, and is not ours, is left as it is", begins_with_zeros, NULL, NULL, NULL },
		{ "a power failure at any moment, or a disk that fails, forgets nothing that was admitted", power_failures, NULL, NULL, NULL },
		{ "a file that cannot grow: an error, and the names that are in it go on", no_room, NULL, NULL, NULL },
		{ "many threads and processes at once: nothing lower after something higher", many_ask, NULL, NULL, NULL },
		{ "whoever is killed in the middle leaves it whole", killed_anywhere, NULL, NULL, NULL },
		{ "a damaged file never crashes who asks", damaged, NULL, NULL, NULL },
	};
	const char *seed = getenv("SEED");
	int failed;

	random_state = seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL);
	printf("# seed %llu\n", (unsigned long long)random_state);
	strcpy(dir, access("/dev/shm", W_OK) == 0 ? "/dev/shm/fence-XXXXXX" : "/tmp/fence-XXXXXX");
	if (!mkdtemp(dir))
		return 1;
	all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	cmocka_set_message_output(CM_OUTPUT_TAP);
	failed = cmocka_run_group_tests_name("fence", tests, NULL, NULL);
	char command[100];
	snprintf(command, sizeof command, "rm -rf %s", dir);
	return system(command) || failed;
}
