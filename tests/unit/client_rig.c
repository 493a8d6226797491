/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client_rig.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

struct fake fake;

int rig_setup(void **state)
{
	(void)state;
	fake_start(&fake);
	return 0;
}

int rig_teardown(void **state)
{
	(void)state;
	fake_stop(&fake);
	return 0;
}

int rig_try_open(const char *name, unsigned flags, dlock_t **ret)
{
	dlock_attr_t *a;
	int r;

	ok(dlock_attr_create(&a));
	ok(dlock_attr_set_robust(a, flags & ROBUST));
	ok(dlock_attr_set_recursive(a, flags & RECURSIVE));
	ok(dlock_attr_set_owner(a, flags & PROCESS ? DLOCK_OWNER_PROCESS : DLOCK_OWNER_THREAD));
	ok(dlock_attr_set_failfast(a, flags & FAILFAST));
	ok(dlock_attr_set_wait_daemon(a, flags & WAIT_DAEMON));
	ok(dlock_attr_set_try_ms(a, 300));
	r = dlock_open(ret, name, a);
	dlock_attr_destroy(a);
	return r;
}

dlock_t *rig_open(const char *name, unsigned flags)
{
	dlock_t *l = NULL;

	ok(rig_try_open(name, flags, &l));
	assert_non_null(l);
	return l;
}

struct timespec after_ms(clockid_t clock, long ms)
{
	struct timespec t;

	clock_gettime(clock, &t);
	t.tv_sec += ms / 1000;
	t.tv_nsec += ms % 1000 * 1000000;
	if (t.tv_nsec >= 1000000000) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000;
	} else if (t.tv_nsec < 0) {
		t.tv_sec--;
		t.tv_nsec += 1000000000;
	}
	return t;
}

long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void nap_ms(long ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000 };

	while (nanosleep(&t, &t) < 0)
		;
}

static void *rig_thread_run(void *arg)
{
	struct rig_thread *t = arg;

	t->result = t->fn(t->arg);
	__atomic_store_n(&t->done, 1, __ATOMIC_RELEASE);
	return NULL;
}

void rig_spawn(struct rig_thread *t, rig_fn fn, void *arg)
{
	*t = (struct rig_thread){ .fn = fn, .arg = arg };
	ok(pthread_create(&t->id, NULL, rig_thread_run, t));
}

int rig_join(struct rig_thread *t)
{
	ok(pthread_join(t->id, NULL));
	return t->result;
}

bool rig_done(struct rig_thread *t)
{
	return __atomic_load_n(&t->done, __ATOMIC_ACQUIRE);
}

int rig_elsewhere(rig_fn fn, void *arg)
{
	struct rig_thread t;

	rig_spawn(&t, fn, arg);
	return rig_join(&t);
}

int rig_wait(void *l)
{
	return dlock_wait(l);
}

int rig_trywait(void *l)
{
	return dlock_trywait(l);
}

int rig_post(void *l)
{
	return dlock_post(l);
}

int rig_check(void *l)
{
	return dlock_check(l);
}

bool rig_sleeps_on(uint64_t *word)
{
	for (int i = 0; i < PATIENCE_MS; i++) {
		if (__atomic_load_n(word, __ATOMIC_ACQUIRE) & LOCK_W)
			return true;
		nap_ms(1);
	}
	return false;
}

int rig_child(rig_fn fn, void *arg)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);        /* it would wait for ever for a fake that is gone */
		_exit(fn(arg) & 0xff);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}
