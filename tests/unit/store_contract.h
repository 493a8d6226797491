/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What daemon/store/store.h promises, as tests that any engine can be run through.
 *
 * An engine's test program has a setup that makes *state a struct store_contract with an open, empty
 * store, a teardown that undoes it, and STORE_CONTRACT_TESTS(setup, teardown) among its tests.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "store/store.h"

struct store_contract {
	struct store *store;
	/* Closes and opens again what is the same store; the new one is put into ->store. */
	void (*reopen)(struct store_contract *c);
	/* Waits for and processes events; NULL for an engine that completes at once. */
	void (*pump)(struct store_contract *c);
};

/* Requests as functions that return what came back; the caller frees by answer_done(). */
struct answer {
	int calls;
	int error;
	bool in_doubt;
	uint64_t version;
	size_t n;
	struct {
		char key[STORE_KEY_MAX + 1];
		char *value;	/* with a NUL behind it */
		size_t size;
		uint64_t version;
	} *records;
};

struct answer ask_get(struct store_contract *c, const char *key);
struct answer ask_list(struct store_contract *c, const char *prefix);
struct answer ask_cas(struct store_contract *c, const char *key, uint64_t expected,
		      const void *value, size_t size);
void answer_done(struct answer *a);

/* A cas of a text that must succeed; the new version. */
uint64_t put(struct store_contract *c, const char *key, uint64_t expected, const char *text);

/* The key holds this text; NULL: it is absent. */
void expect_text(struct store_contract *c, const char *key, const char *text);

void contract_absent(void **state);
void contract_create(void **state);
void contract_mismatch(void **state);
void contract_delete(void **state);
void contract_versions(void **state);
void contract_values(void **state);
void contract_keys(void **state);
void contract_list(void **state);
void contract_reopen(void **state);
void contract_hint(void **state);
void contract_nested(void **state);
void contract_story(void **state);

#define STORY(title, fn, setup, teardown) { title, fn, setup, teardown, NULL }

#define STORE_CONTRACT_TESTS(s, t) \
	STORY("an absent key has version 0 and no record", contract_absent, s, t), \
	STORY("cas with version 0 creates, get gives back every byte", contract_create, s, t), \
	STORY("cas with another version changes nothing and tells the right one", \
	      contract_mismatch, s, t), \
	STORY("delete needs the right version, and of nothing it is no change", \
	      contract_delete, s, t), \
	STORY("no version of a key comes twice, over delete and re-opening too", \
	      contract_versions, s, t), \
	STORY("values of 0 and 64 KiB are kept, one byte more is refused", contract_values, s, t), \
	STORY("keys of 1 to 255 printable bytes are taken, all others refused", \
	      contract_keys, s, t), \
	STORY("list gives all with the prefix, in order, and no others", contract_list, s, t), \
	STORY("what was acknowledged is there after re-opening", contract_reopen, s, t), \
	STORY("a change puts the hint up once, until it is taken; a failure does not", \
	      contract_hint, s, t), \
	STORY("a callback may make requests and still read its own result", contract_nested, s, t), \
	STORY("a thousand random requests agree with a model", contract_story, s, t)
