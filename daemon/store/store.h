/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The store: a handful of small records under linearizable compare-and-set. One contract, one file
 * per engine. Nothing else is asked of an engine: no leases, no timers, no ordered watch.
 *
 * What must be true of every engine (tests/unit/store_contract.h asks it of each):
 *
 *  - get, list and cas are linearizable; what cas acknowledged is never lost again.
 *  - A record is a key, a value and a version. Version 0 means absent. A version of a key is never
 *    used twice, not even over delete and re-create: who saw (key, version) knows the value.
 *  - A request completes exactly once: its callback runs either before the request function
 *    returns or later, from store_ready(). The file engine always completes before it returns;
 *    callers must cope with both. store_close() completes what is pending with -ECANCELED.
 *  - What a result points to lives until its callback returns. The callback may make further
 *    requests (the old result stays readable meanwhile), but must not close the store.
 *  - The hint is level-triggered: whatever happened, one flag goes up, and stays up until
 *    store_changed() takes it. Take it first, read afterwards; then nothing can be missed. It may go
 *    up for nothing; what it says is "read again", never "this changed".
 *
 * One thread, the loop's, uses a store. An engine that speaks to hosts may have the C library look up
 * their names in threads of its own; these touch nothing of ours. The process ignores SIGPIPE.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STORE_KEY_MAX	255		/* bytes, without the terminating NUL */
#define STORE_VALUE_MAX	(64 * 1024)	/* bytes */

struct store_record {
	const char *key;
	const void *value;	/* size bytes; not NULL, even when size is 0 */
	size_t size;
	uint64_t version;
};

/*
 * error     0, or a negative errno. -EAGAIN: a cas met another version, and changed nothing.
 *           -EINVAL: key or prefix not valid. -E2BIG: value above STORE_VALUE_MAX. -EFBIG: the store's
 *           own limit is reached. Anything else is the engine's; store_explain() then has a sentence.
 * in_doubt  error is set, and the write may nevertheless take effect, now or after a restart. Only a
 *           fresh read on a working store can tell.
 * version   cas: the version that the key has now: the new one, 0 after a delete, or, with -EAGAIN,
 *           the one that was met. get: the record's, 0 when absent.
 * records   get: one, or none when absent. list: all whose key begins with the prefix, by key.
 */
struct store_result {
	int error;
	bool in_doubt;
	uint64_t version;
	const struct store_record *records;
	size_t n_records;
};

typedef void (*store_done_fn)(void *arg, const struct store_result *result);
typedef void (*store_changed_fn)(void *arg);

/* Why something failed, for people: which file or host, what happened, what to do. */
struct store_why {
	char text[1024];
};

struct store;

/* What an engine provides. Arguments have been checked by the functions below. */
struct store_ops {
	const char *engine;
	void (*get)(struct store *s, const char *key, store_done_fn done, void *arg);
	void (*list)(struct store *s, const char *prefix, store_done_fn done, void *arg);
	void (*cas)(struct store *s, const char *key, uint64_t expected, const void *value,
		    size_t size, store_done_fn done, void *arg);
	int (*fd)(const struct store *s);
	void (*ready)(struct store *s);
	void (*close)(struct store *s);
};

/* The part of a store that engines share; each embeds it as its first member. */
struct store {
	const struct store_ops *ops;
	struct store_why why;
	bool changed;
	store_changed_fn on_change;
	void *on_change_arg;
};

/* 1 to 255 characters of printable ASCII without space. A prefix may also be empty. */
bool store_key_valid(const char *key);
bool store_prefix_valid(const char *prefix);

void store_get(struct store *s, const char *key, store_done_fn done, void *arg);
void store_list(struct store *s, const char *prefix, store_done_fn done, void *arg);

/* Writes value if the key's version is expected (0: if it is absent); value NULL deletes. To delete
 * what is absent succeeds and changes nothing. */
void store_cas(struct store *s, const char *key, uint64_t expected, const void *value, size_t size,
	       store_done_fn done, void *arg);

/*
 * A descriptor to watch for reading, and what to call then; -1: this engine needs no watching. It
 * stays the same until store_close(). An engine's own times (of giving up, of trying again) make it
 * readable too: nobody else has to set a timer. One call does all that there is to do.
 */
int store_fd(const struct store *s);
void store_ready(struct store *s);

/*
 * For a start, before there is a loop: waits until *done, which a callback sets. Ends without a
 * limit of its own, since every request completes within the engine's.
 */
void store_wait(struct store *s, const bool *done);

/* fn is called each time the hint goes from down to up, after the callback of the request that
 * caused it, if one did. NULL: nobody is called, the hint alone stays. */
void store_on_change(struct store *s, store_changed_fn fn, void *arg);

/* Takes the hint: was it up? It is down afterwards. */
bool store_changed(struct store *s);

/* The sentence for the last request that failed with an error of the engine; never NULL. */
const char *store_explain(const struct store *s);

/* Takes NULL. */
void store_close(struct store *s);

/* --- Opening --- */

#define STORE_URL_MAX		1024	/* bytes */
#define STORE_REQUEST_MS	1000

/*
 * url         "file:", the embedded store in state_dir; or "etcd://HOST[:PORT],…[/PREFIX]", with TLS
 *             "etcds://…": see etcd.h. Nobody but one node can use the first.
 * cluster     the cluster's name, or NULL or "": keeps two apart in one etcd.
 * request_ms  every request is over after so long, come what may; 0: STORE_REQUEST_MS. For a session
 *             with a TTL a fifth of that leaves room for a second try.
 * hints       prefixes, ended by NULL, of the keys that the hint is about; NULL: all keys. It may still go
 *             up for others. It lets a node pass over what the others write every second.
 * user … cert_key: of etcd only, NULL or "" where there is none. The files are read when they are
 *             needed, so that they can be replaced.
 */
struct store_options {
	const char *url;
	const char *state_dir;
	const char *cluster;
	unsigned request_ms;
	const char *const *hints;
	const char *user, *password_file;
	const char *ca, *cert, *cert_key;
};

/*
 * Opens what the url names. Does not wait for anybody: whether an etcd is there, is one, and lets us
 * in, shows at the first request. On failure: the error, *ret untouched, and the sentence in *why.
 */
int store_open(const struct store_options *options, struct store **ret, struct store_why *why);

/* Is this a Store= that store_open() takes? 0, or -EINVAL or -ENOTSUP with the sentence. Opens nothing. */
int store_url_check(const char *url, struct store_why *why);

/* Can several nodes use what this names? */
bool store_url_shared(const char *url);

/* For engines: put the hint up, and tell. */
void store_raise_change(struct store *s);
