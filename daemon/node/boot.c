/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "boot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../shm/files.h"
#include "../store/store.h"

#define SESSION_KEY "session"
#define SESSION_VERSION 1

/* The record in the store, little-endian as all that we run on. */
struct session_record {
	uint32_t version;
	uint32_t incarnation;
	uint64_t session;                /* the highest ever used by this store */
	uint64_t state_dev, state_ino;
	uint8_t boot_id[16], machine_id[16], secret[16], node_id[16];
};

const char *boot_text(enum boot_case what)
{
	switch (what) {
#define X(name, text)                                                                          \
	case BOOT_##name:                                                                      \
		return text;
		BOOT_CASES(X)
#undef X
	}
	return "?";
}

/* 32 hex digits, with or without dashes. */
static int read_id(const char *path, uint8_t ret[16])
{
	char text[64];
	int fd = open(path, O_RDONLY | O_CLOEXEC), digits = 0;
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, text, sizeof text);
	close(fd);
	memset(ret, 0, 16);
	for (ssize_t i = 0; i < n && digits < 32; i++) {
		int c = text[i], v;

		if (c == '-')
			continue;
		v = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
		if (v < 0)
			break;
		ret[digits / 2] = (uint8_t)(ret[digits / 2] << 4 | v);
		digits++;
	}
	return digits == 32 ? 0 : -EINVAL;
}

int boot_place(const char *state_dir, struct boot_place *ret)
{
	struct stat st;
	int r = read_id("/proc/sys/kernel/random/boot_id", ret->boot_id);

	if (r < 0)
		return r;
	if (read_id("/etc/machine-id", ret->machine_id) < 0)
		memset(ret->machine_id, 0, sizeof ret->machine_id);      /* a container may have none */
	if (stat(state_dir, &st) < 0)
		return -errno;
	ret->state_dev = st.st_dev;
	ret->state_ino = st.st_ino;
	return 0;
}

struct answer {
	int error;
	uint64_t version;
	size_t size;
	union {
		struct session_record session;
		char bytes[512];
	} value;
	bool done;
};

static void answered(void *arg, const struct store_result *res)
{
	struct answer *a = arg;

	a->done = true;
	a->error = res->error;
	a->version = res->version;
	if (res->error == 0 && res->n_records) {
		a->size = res->records->size;
		memcpy(a->value.bytes, res->records->value,
		       a->size < sizeof a->value ? a->size : sizeof a->value);
	}
}

static bool same_place(const struct session_record *r, const struct boot_place *here)
{
	/* The device number of a disk may change from boot to boot; within one it does not. */
	bool same_boot = !memcmp(r->boot_id, here->boot_id, 16);

	return !memcmp(r->machine_id, here->machine_id, 16) && r->state_ino == here->state_ino &&
	       (!same_boot || r->state_dev == here->state_dev);
}

static enum boot_case compare(const struct session_record *r, const struct boot_place *here,
			      const struct ledger_identity *ledger, int ledger_error)
{
	if (!same_place(r, here))
		return BOOT_COPIED;
	if (memcmp(r->boot_id, here->boot_id, 16))
		return BOOT_REBOOTED;
	if (ledger_error == -ENOENT || ledger_error == -ENOTDIR)
		return BOOT_LOST;
	if (ledger_error < 0)
		return BOOT_FOREIGN;
	if (memcmp(ledger->boot_id, here->boot_id, 16) || memcmp(ledger->secret, r->secret, 16))
		return ledger->session > r->session ? BOOT_ROLLED : BOOT_FOREIGN;
	if (ledger->session != r->session)
		return BOOT_FOREIGN;
	return ledger->incarnation > r->incarnation ? BOOT_ROLLED : BOOT_ADOPTED;
}

static int decide(struct session_record *r, bool known, const struct boot_place *here, int rundir_fd,
		  struct boot *ret)
{
	struct ledger_identity ledger = { 0 };
	int ledger_error = ledger_peek(rundir_fd, &ledger), e = 0;
	enum boot_case what = known ? compare(r, here, &ledger, ledger_error)
			      : ledger_error == 0 ? BOOT_ROLLED : BOOT_FIRST;

	if (!known || what == BOOT_COPIED)
		e = files_random(r->node_id, sizeof r->node_id);
	if (what == BOOT_ADOPTED) {
		r->incarnation++;
		ret->id.epoch = ledger.epoch;
	} else {
		/* Above every session that either of them remembers. */
		r->session = (ledger_error == 0 && ledger.session > r->session ? ledger.session : r->session) + 1;
		r->incarnation = 1;
		if (e == 0)
			e = files_random(r->secret, sizeof r->secret);
		ret->id.epoch = ledger_error == 0 ? ledger.epoch : 0;
	}
	if (e < 0)
		return e;
	memcpy(r->boot_id, here->boot_id, 16);
	memcpy(r->machine_id, here->machine_id, 16);
	r->state_dev = here->state_dev;
	r->state_ino = here->state_ino;
	r->version = SESSION_VERSION;
	ret->what = what;
	ret->fresh = what != BOOT_ADOPTED;
	ret->incarnation = r->incarnation;
	ret->id.session = r->session;
	ret->id.incarnation = r->incarnation;
	memcpy(ret->id.boot_id, r->boot_id, 16);
	memcpy(ret->id.secret, r->secret, 16);
	memcpy(ret->node_id, r->node_id, 16);
	return 0;
}

int boot_decide(struct store *store, const struct boot_place *here, int rundir_fd, struct boot *ret,
		const char **ret_why)
{
	struct answer a = { 0 }, written = { 0 };
	int r;

	store_get(store, SESSION_KEY, answered, &a);
	store_wait(store, &a.done);
	if (!a.done || a.error < 0) {
		*ret_why = store_explain(store);
		return a.done ? a.error : -EIO;
	}
	if (a.version && (a.size != sizeof a.value.session || a.value.session.version != SESSION_VERSION)) {
		*ret_why = "the record `session' in the store is not one of this release; use the release that wrote it";
		return -EUCLEAN;
	}
	if (a.version && a.value.session.incarnation == UINT32_MAX) {
		*ret_why = "the incarnation has reached its end";
		return -EOVERFLOW;
	}
	r = decide(&a.value.session, a.version != 0, here, rundir_fd, ret);
	if (r < 0) {
		*ret_why = "no random numbers from the kernel";
		return r;
	}
	store_cas(store, SESSION_KEY, a.version, &a.value.session, sizeof a.value.session, answered, &written);
	store_wait(store, &written.done);
	if (!written.done || written.error < 0) {
		*ret_why = store_explain(store);
		return written.done ? written.error : -EIO;
	}
	return 0;
}
