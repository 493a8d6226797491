/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A latch in the store: how far it is from opening, and which countdowns have been counted already.
 *
 *   u8 layout, 1   u8 0   u16 entries   u32 count   u64 birth   u32 initial   u32 0
 *   entries: u64 session   u64 account   u32 number   u32 0
 *
 * Nothing else is one. Birth is random: a latch that was unlinked and made anew is another one.
 *
 * What must hold: each countdown is counted once, whatever answers of the store are lost. It is known by
 * (account, number); an account numbers its countdowns upwards, with one under way at a time. What is counted has
 * its entry written by the same compare-and-set. The entry stays until the account's daemon has noted that, or, of an
 * ended session, until there is no room: nobody counts anew for that one. At 0 no entries are needed: nothing is counted any more.
 */
#ifndef DLOCK_THINGS_LATCH_RECORD_H
#define DLOCK_THINGS_LATCH_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../store/store.h"

#define LATCH_LAYOUT 1
#define LATCH_HEAD 24
#define LATCH_ENTRY 24
#define LATCH_ENTRIES_MAX ((STORE_VALUE_MAX - LATCH_HEAD) / LATCH_ENTRY)

struct latch_entry {
	uint64_t session, account;
	uint32_t number;
};

struct latch_record {
	uint64_t birth;
	uint32_t initial, count;
	uint32_t n;
	struct latch_entry e[LATCH_ENTRIES_MAX];
};

/* -EBADMSG: it is none; *ret is then of no use. */
int latch_decode(const void *bytes, size_t n, struct latch_record *ret);
size_t latch_encode(const struct latch_record *r, uint8_t ret[STORE_VALUE_MAX]);

/* As it begins. */
void latch_begin(struct latch_record *r, uint64_t birth, uint32_t count);

/* By which clients know it: its birth in short, never 0. */
uint32_t latch_short(uint64_t birth);

/* Has this countdown been counted? */
bool latch_counted(const struct latch_record *r, uint64_t account, uint32_t number);

/* Counts down by n, unless it has. -ENOSPC: there is no room to remember it. */
int latch_count(struct latch_record *r, const struct latch_entry *who, uint32_t n);

/* Drops the entries for which fn says so; how many those are. */
uint32_t latch_drop(struct latch_record *r, bool (*fn)(void *arg, const struct latch_entry *e), void *arg);

#endif
