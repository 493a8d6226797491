/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A core on the bench: counted memory that can run out, and a trace of what goes in and comes out.
 *
 * An event is a line of the trace, its actions are indented below it:
 *
 *   CLAIM 0 default/a
 *     LEDGER_GRANT 0 1:1+1048576        ref, epoch:counter of the first token, how many
 *     GRANT 0 1:1+1048576
 *   CLAIM 0 default/a
 *     = EALREADY
 */
#ifndef DLOCK_TESTS_CORE_RIG_H
#define DLOCK_TESTS_CORE_RIG_H

#include "core/core_int.h"

struct rig {
	struct core *core;
	struct core_memory mem;
	size_t bytes, peak, allocs;
	long countdown;                  /* this many allocations succeed from now on; -1: all do */
	core_nsec_t now;
	struct core_actions actions;
	char *trace;
	size_t trace_len;
	bool silent;                     /* no trace */
};

void rig_init(struct rig *r);
void rig_done(struct rig *r);
struct core_memory rig_memory(struct rig *r);

/* Each is one core_step() at r->now, and returns what it returns. */
int rig_step(struct rig *r, const struct core_event *ev);
int rig_start(struct rig *r, uint64_t session, uint32_t incarnation);
int rig_adopt(struct rig *r, core_ref_t ref, const char *key, uint32_t epoch, uint64_t counter, uint64_t count);
int rig_claim(struct rig *r, core_ref_t ref, const char *key);
int rig_refill(struct rig *r, core_ref_t ref, uint64_t used);
int rig_release(struct rig *r, core_ref_t ref, uint64_t used);
int rig_timer(struct rig *r);
int rig_continue(struct rig *r);

/* The store's answers: to the last request, whatever its number. */
int rig_store(struct rig *r, int error, const void *value, uint32_t len, uint64_t version);
int rig_store_error(struct rig *r, int error);
int rig_store_absent(struct rig *r);
int rig_store_map(struct rig *r, uint64_t version, uint64_t session, uint32_t incarnation, uint32_t epoch);
int rig_store_landed(struct rig *r, uint64_t version);

/* Fails the test unless the trace since the last look is this. */
void rig_expect(struct rig *r, const char *text);
void rig_forget(struct rig *r);

/* An opened core of session 7, incarnation 1, epoch 1, with an empty trace. */
void rig_open(struct rig *r);

const char *rig_errno_name(int error);
struct map rig_map(uint64_t session, uint32_t incarnation, uint32_t epoch);

#endif
