/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A semaphore that two threads open at the same moment has one address, as POSIX wants it: neither has found it when the other makes it. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "dlock/semaphore.h"
#include "harness.h"
#include "threads.h"

#define OPENERS 2

/* As the library has it: this is what it allocates when it has looked whether it knows the semaphore, or before it does. */
struct like_a_posix_sem {
	void *sem, *next;
	unsigned opens;
};

static unsigned come;                    /* atomic: so many openers are about to have one */
static __thread bool opens;

void *__libc_calloc(size_t n, size_t size);
void *calloc(size_t n, size_t size);

/* The library's, too. Whoever opens waits for the other here. */
void *calloc(size_t n, size_t size)
{
	if (opens && n * size == sizeof(struct like_a_posix_sem)) {
		__atomic_fetch_add(&come, 1, __ATOMIC_SEQ_CST);
		for (uint64_t until = now_ns() + PATIENCE_MS * MS; __atomic_load_n(&come, __ATOMIC_SEQ_CST) < OPENERS && now_ns() < until; nap_ns(MS))
			;
	}
	return __libc_calloc(n, size);
}

static int do_open(void *ret)
{
	dlock_posix_sem_t **got = ret;

	opens = true;
	*got = dlock_posix_sem_open("/one", O_CREAT, 0600, 1);
	opens = false;
	return *got == DLOCK_POSIX_SEM_FAILED ? errno : 0;
}

int main(void)
{
	static struct daemon node;
	dlock_posix_sem_t *got[OPENERS];
	struct thread opener[OPENERS];
	bool good = true;

	harness_begin(60);
	daemon_started(&node);
	for (unsigned i = 0; i < OPENERS; i++)
		spawn(&opener[i], do_open, &got[i]);
	for (unsigned i = 0; i < OPENERS; i++)
		good &= join(&opener[i]) == 0;
	ok(good && come == OPENERS, "two threads open a semaphore at the same moment");
	ok(good && got[0] == got[1], "they get the same address");
	ok(good && dlock_posix_sem_close(got[0]) == 0 && dlock_posix_sem_post(got[1]) == 0, "which is good until it has been closed as often");
	ok(good && dlock_posix_sem_close(got[1]) == 0 && dlock_posix_sem_close(got[1]) == -1 && errno == EINVAL, "and not longer");
	ok(dlock_posix_sem_unlink("/one") == 0, "it is unlinked");
	daemon_end(&node, SIGTERM);
	return harness_end();
}
