/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sigbus.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>

static struct {
	char *base;
	size_t size;
	volatile sig_atomic_t hit;
} regions[SIGBUS_REGIONS_MAX];

static volatile sig_atomic_t any;

static void sigbus_handle(int signo, siginfo_t *si, void *context)
{
	char *at = (char *)((uintptr_t)si->si_addr & ~(uintptr_t)4095);

	(void)context;
	for (int i = 0; i < SIGBUS_REGIONS_MAX; i++)
		if (regions[i].base && at >= regions[i].base && at < regions[i].base + regions[i].size &&
		    mmap(at, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
			 -1, 0) != MAP_FAILED) {
			regions[i].hit = 1;
			any = 1;
			return;
		}
	signal(signo, SIG_DFL);          /* the access is repeated, and kills */
}

int sigbus_install(void)
{
	struct sigaction sa = { .sa_sigaction = sigbus_handle, .sa_flags = SA_SIGINFO };

	return sigaction(SIGBUS, &sa, NULL) < 0 ? -errno : 0;
}

int sigbus_guard(void *base, size_t size)
{
	for (int i = 0; i < SIGBUS_REGIONS_MAX; i++)
		if (!regions[i].base) {
			regions[i].size = size;
			regions[i].hit = 0;
			regions[i].base = base;
			return 0;
		}
	return -ENOSPC;
}

void sigbus_unguard(void *base)
{
	for (int i = 0; i < SIGBUS_REGIONS_MAX; i++)
		if (regions[i].base == base)
			regions[i].base = NULL;
}

bool sigbus_hit(void *base)
{
	if (!any)
		return false;
	for (int i = 0; i < SIGBUS_REGIONS_MAX; i++)
		if (regions[i].base == base)
			return regions[i].hit;
	return false;
}
