/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A condition variable in the store: who waits, in the order of coming, over the whole cluster.
 *
 *   u8 layout, 1   u8 0   u16 entries   u32 0
 *   entries: u64 session   u64 account   u32 ticket   u32 signal: 0 waiting, else what reached it
 *
 * Nothing else is one. A ticket is a number of its account (one process of one node), and rises there with each
 * wait; so an account's entries stand in the order of their tickets, and those that are signalled are the first of them.
 *
 * What must hold: no signal is lost that came after a wait began. A signal marks the first that waits; only the daemon
 * of its account takes a marked entry out, when it has woken the thread. If that daemon's session has ended, or the process
 * has died before the thread could run, the signal goes on to the next: cond_leave(), cond_end(). The other way round a signal
 * may be given twice, to two; waits may return for nothing (POSIX allows it), but not sleep on.
 */
#ifndef DLOCK_THINGS_COND_RECORD_H
#define DLOCK_THINGS_COND_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../store/store.h"

#define COND_LAYOUT 1
#define COND_HEAD 8
#define COND_ENTRY 24
#define COND_ENTRIES_MAX ((STORE_VALUE_MAX - COND_HEAD) / COND_ENTRY)

struct cond_entry {
	uint64_t session, account;
	uint32_t ticket, signal;
};

struct cond_record {
	uint32_t n;
	struct cond_entry e[COND_ENTRIES_MAX];
};

/* -EBADMSG */
int cond_decode(const void *bytes, size_t n, struct cond_record *ret);
size_t cond_encode(const struct cond_record *r, uint8_t ret[STORE_VALUE_MAX]);

/* NULL: it is not there. */
struct cond_entry *cond_find(struct cond_record *r, uint64_t account, uint32_t ticket);

/* At the end of the queue, unless it is in it. -ENOSPC. */
int cond_enter(struct cond_record *r, uint64_t session, uint64_t account, uint32_t ticket);

/* The first n that wait; how many there were. UINT32_MAX: all. signal is not 0. */
uint32_t cond_signal(struct cond_record *r, uint32_t n, uint32_t signal);

/* Has it reached anybody who is still there? */
bool cond_reached(const struct cond_record *r, uint32_t signal);

/* Takes an entry out. pass: its signal, if it has one, goes to the next. Whether it was there. */
bool cond_leave(struct cond_record *r, uint64_t account, uint32_t ticket, bool pass);

/* Takes out all of a session that has ended. Whether there were any. */
bool cond_end(struct cond_record *r, uint64_t session);

#endif
