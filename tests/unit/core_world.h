/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A node around a core: store, ledger, slots and clients, all from one seed, with judges.
 *
 * The world carries out a step's actions one by one, and may crash the daemon between any two:
 * store, ledger and slots stay, the core does not, and the next one adopts what the ledger says.
 * A reboot loses ledger and slots. The store loses answers before or after carrying out, repeats
 * what it had carried out, and fails. A crashed core may linger on as a zombie whose request to the
 * store is still under way. Honest clients take tokens no faster than one a nanosecond.
 *
 * What the judges say no to:
 *   a token that is not above every earlier one of its name;
 *   a grant that the ledger lacks, or in an epoch that the store does not give to this very run;
 *   a ref forgotten that the ledger still has;
 *   a grant that nobody waits for, or before OPENED;
 *   an epoch in the store that falls, or is taken back by an earlier incarnation;
 *   a shard that grants while its master does not know all that is held in it;
 *   somebody who still waits when faults have stopped.
 */
#ifndef DLOCK_TESTS_CORE_WORLD_H
#define DLOCK_TESTS_CORE_WORLD_H

#include <stdbool.h>
#include <stdint.h>

struct world_counts {
	uint64_t steps, grants, refills, releases, cancels, tokens, raises, adopted;
	uint64_t crashes, torn, reboots, zombies, lost_done, lost_undone, repeated, errors, fatal;
};

/* Runs one world; a judge's no is printed with seed and step, and returned as false. Adds to *counts. */
bool world_run(uint64_t seed, unsigned steps, struct world_counts *counts);

#endif
