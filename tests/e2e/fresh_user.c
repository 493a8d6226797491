/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fresh_user PREFIX COUNT: takes and gives back PREFIX0, PREFIX1, ... in turn until it is ended, and has each of them open
 * for that long only, so that it is claimed each time. One whose former owner died is mended: its node would keep it else.
 */
#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dlock.h"

static void must(int r, const char *what)
{
	if (r)
		errx(1, "%s: %s", what, strerror(r));
}

int main(int argc, char **argv)
{
	unsigned count = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
	dlock_attr_t *attr;
	char name[64];
	dlock_t *l;
	int r;

	if (!count)
		errx(64, "usage: fresh_user PREFIX COUNT");
	must(dlock_attr_create(&attr), "dlock_attr_create");
	must(dlock_attr_set_robust(attr, true), "dlock_attr_set_robust");
	for (unsigned long n = 0; ; n++) {
		snprintf(name, sizeof name, "%s%lu", argv[1], n % count);
		must(dlock_open(&l, name, attr), "dlock_open");
		r = dlock_wait(l);
		must(r == EOWNERDEAD ? dlock_consistent(l) : r, "dlock_wait");
		must(dlock_post(l), "dlock_post");
		must(dlock_close(l), "dlock_close");
	}
}
