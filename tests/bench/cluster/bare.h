/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a barrier over the hosts of bench_rounds.c costs without a lock service. */
#ifndef BENCH_BARE_H
#define BENCH_BARE_H

#include <stdbool.h>

#define BARE_HOSTS 3
#define BARE_EACH  8

/* Microseconds a round, of so many. confirmed: the verdict has reached all hosts before anybody goes on. */
double bare_round(unsigned rounds, bool confirmed);

#endif
