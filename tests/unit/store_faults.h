/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A bad disk for the embedded store. Every system call that the store makes is one step; at a chosen
 * step it fails, or the process ends, or the power goes. Writes are cut into small pieces, so that
 * there are steps in the middle of a file.
 */
#pragma once

#include "store/file.h"

enum fault_kind {
	FAULT_NONE,
	FAULT_ERROR,		/* the call fails with the errno */
	FAULT_EXIT_BEFORE,	/* the process ends instead of the call */
	FAULT_EXIT_AFTER,	/* … right after it */
	FAULT_POWER_BEFORE,	/* the same, and what no fsync has covered is lost */
	FAULT_POWER_AFTER,
};

#define FAULT_EXIT_CODE 86

struct fault {
	enum fault_kind kind;
	long at;		/* the step, counted from 1 */
	int error;
	long steps;		/* that have been made since fault_set() */
	const char *hit;	/* name of the call that it hit; NULL: not reached */
};

extern struct fault fault;
extern const struct store_file_io fault_io;

/* dir: of the store; the file that a rename replaces is kept beside it, as dir.saved. */
void fault_set(enum fault_kind kind, long at, int error, const char *dir);

/* Power goes now: whatever was not fsynced is lost. Does not return. */
void fault_power_cut(int exit_code);
