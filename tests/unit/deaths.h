/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A daemon that dies at one of its stores (daemon/fault.h), for tests that are compiled with faults. */
#ifndef UNIT_DEATHS_H
#define UNIT_DEATHS_H

#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../daemon/fault.h"
#include "shm_rig.h"

/* A child, who has a copy of the daemon's memory, does that and dies at the n-th store. false: it has come through before. */
static inline bool dies_at(int n, void (*fn)(void *arg), void *arg)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		fault_arm(n);
		fn(arg);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
	return status != 0;
}

#endif
