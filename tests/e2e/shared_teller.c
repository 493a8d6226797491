/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* For shared_nodes.sh: does with the lock "up" what each letter that it reads says, and says what came of it. */
#include <stdio.h>

#include "dlock.h"

int main(void)
{
	dlock_t *l;
	int c;

	if (dlock_open(&l, "up", NULL))
		return 1;
	while ((c = getchar()) != EOF) {
		int r = 0;

		switch (c) {
		case 's': r = dlock_wait_shared(l); break;
		case 'w': r = dlock_wait(l); break;
		case 'u': r = dlock_upgrade(l); break;
		case 'd': r = dlock_downgrade(l); break;
		case 'p': r = dlock_post(l); break;
		default: continue;
		}
		printf("%c%d ", c, r);
		fflush(stdout);
	}
	return 0;
}
