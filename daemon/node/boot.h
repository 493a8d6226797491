/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a starting daemon may believe of the past (DESIGN S3, S8).
 *
 * Two records stand against each other. The store, on disk, knows which session this node had,
 * in which boot of which machine, and with which secret. The ledger, on tmpfs, says what that
 * session held. Only where all of it agrees does the daemon go on in the old session, with the
 * incarnation raised. Everything else is a new session, and each case is told apart:
 *
 *   BOOT_FIRST     the store knows no session: this node has never run
 *   BOOT_ADOPTED   the same session goes on
 *   BOOT_REBOOTED  another boot id: every holder of then is gone with it
 *   BOOT_LOST      the same boot, but the ledger is missing: what was held is lost, not released
 *   BOOT_COPIED    the state directory is not where it was made, or on another machine
 *   BOOT_FOREIGN   a ledger is there, but it is of another session, or itself a copy
 *   BOOT_ROLLED    the ledger knows of later runs than the store: that is an older copy, or was removed
 */
#ifndef DLOCK_BOOT_H
#define DLOCK_BOOT_H

#include <stdbool.h>
#include <stdint.h>

#include "../shm/ledger.h"

struct store;

#define BOOT_CASES(X)                                                                          \
	X(FIRST, "first start")                                                                \
	X(ADOPTED, "the session goes on")                                                      \
	X(REBOOTED, "the machine was started anew: a new session")                             \
	X(LOST, "the ledger in the run directory is gone: what was held is lost, a new session") \
	X(COPIED, "the state directory is a copy, or on another machine: a new identity and session") \
	X(FOREIGN, "the ledger in the run directory is of another session, or a copy: not adopted, a new session") \
	X(ROLLED, "the store is older than the ledger, as after a restored backup: a new session above both")

enum boot_case {
#define X(name, text) BOOT_##name,
	BOOT_CASES(X)
#undef X
};

struct boot {
	enum boot_case what;
	struct ledger_identity id;
	uint32_t incarnation;
	uint8_t node_id[16];
	bool fresh;              /* everything but BOOT_ADOPTED */
};

/* What the system says about where and when we are. */
struct boot_place {
	uint8_t boot_id[16], machine_id[16];
	uint64_t state_dev, state_ino;
};

int boot_place(const char *state_dir, struct boot_place *ret);

/*
 * Decides, and writes the decision to the store before it returns: a session id is never used
 * twice, an incarnation neither. *ret_why on failure: a sentence that lives as long as the store.
 */
int boot_decide(struct store *store, const struct boot_place *here, int rundir_fd, struct boot *ret,
		const char **ret_why);

const char *boot_text(enum boot_case what);

/* Holders of then may be alive and have lost what they held. */
static inline bool boot_loses(enum boot_case what)
{
	return what != BOOT_FIRST && what != BOOT_ADOPTED && what != BOOT_REBOOTED;
}

#endif
