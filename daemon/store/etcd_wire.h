/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What is said to etcd's JSON gateway, and what its answers mean. Pure, and nothing in an answer is
 * believed: whoever answers may be anybody.
 *
 * The gateway writes 64-bit numbers as strings and bytes in base64. Releases differ in whether what is
 * zero or empty is left out, and in how errors look; all of them are understood.
 */
#pragma once

#include "store.h"

/* A request's body. data is for free(). */
struct etcd_body {
	char *data;
	size_t size;
};

/* Each: 0 or -ENOMEM. Keys are whole, with all that stands before them in etcd. */
int etcd_wire_get(const char *key, struct etcd_body *ret);
/* From key from on, below key end, at most so many; of this revision, 0: the newest. */
int etcd_wire_page(const char *from, const char *end, unsigned limit, uint64_t revision,
		   struct etcd_body *ret);
int etcd_wire_cas(const char *key, uint64_t expected, const void *value, size_t size,
		  struct etcd_body *ret);
int etcd_wire_login(const char *user, const char *password, struct etcd_body *ret);
/* One more watch on all from key on, below end, put behind what is in *body. */
int etcd_wire_watch(const char *key, const char *end, struct etcd_body *body);

/* The first key behind all that begin with prefix (which is not empty, and printable), of strlen(prefix) + 1 bytes. */
void etcd_wire_end(const char *prefix, char *ret);

#define ETCD_MESSAGE_MAX 200

/* Of a record: key without what stands before it in etcd. */
struct etcd_answer {
	bool failed;			/* etcd says that it did not do it: code (as gRPC's) and message */
	int code;
	char message[ETCD_MESSAGE_MAX + 1];	/* printable */

	uint64_t cluster;		/* never 0, unless failed */
	uint64_t revision;		/* 0: not said */
	struct store_record *records;	/* of a range, or met by a cas */
	size_t n_records, bytes;
	char *last;			/* the last key of the range, as etcd has it; NULL: none */
	bool more;			/* a range goes on behind these */

	bool succeeded;			/* cas: the version was the expected one */
	bool deleted, ranged;		/* cas: that a delete was carried out, a range looked at */
	uint64_t written;		/* cas: the revision of what was written; 0: nothing, or a delete */
	uint64_t met;			/* cas that failed: the version there; 0: absent */

	char *token;			/* login */
	uint64_t leader;		/* status */
	bool created, canceled, events;	/* watch */
};

/*
 * before is what stands before keys in etcd. 0; -EBADMSG: this is no answer of an etcd; -ENOMEM. Keys
 * that dlock could not have made are passed over, and values above STORE_VALUE_MAX are empty. What is in *ret
 * is given back by etcd_answer_done(), which may be called after a failure too.
 */
int etcd_wire_decode(const char *before, const char *data, size_t size, struct etcd_answer *ret);
void etcd_answer_done(struct etcd_answer *a);
