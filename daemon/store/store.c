/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What all engines have in common. Arguments are checked here, once, so that no engine sees a key
 * that another one could not keep.
 */
#include "store.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>

/* The characters of s if all of them may stand in a key, SIZE_MAX otherwise. */
static size_t key_length(const char *s)
{
	for (size_t n = 0; n <= STORE_KEY_MAX; n++) {
		if (!s[n])
			return n;
		if (s[n] < '!' || s[n] > '~')
			return SIZE_MAX;
	}
	return SIZE_MAX;
}

bool store_key_valid(const char *key)
{
	size_t n = key_length(key);

	return n >= 1 && n <= STORE_KEY_MAX;
}

bool store_prefix_valid(const char *prefix)
{
	return key_length(prefix) <= STORE_KEY_MAX;
}

static void refuse(int error, store_done_fn done, void *arg)
{
	done(arg, &(struct store_result){ .error = error });
}

void store_get(struct store *s, const char *key, store_done_fn done, void *arg)
{
	if (!store_key_valid(key))
		refuse(-EINVAL, done, arg);
	else
		s->ops->get(s, key, done, arg);
}

void store_list(struct store *s, const char *prefix, store_done_fn done, void *arg)
{
	if (!store_prefix_valid(prefix))
		refuse(-EINVAL, done, arg);
	else
		s->ops->list(s, prefix, done, arg);
}

void store_cas(struct store *s, const char *key, uint64_t expected, const void *value, size_t size,
	       store_done_fn done, void *arg)
{
	assert(value || size == 0);

	if (!store_key_valid(key))
		refuse(-EINVAL, done, arg);
	else if (size > STORE_VALUE_MAX)
		refuse(-E2BIG, done, arg);
	else
		s->ops->cas(s, key, expected, value, size, done, arg);
}

int store_fd(const struct store *s)
{
	return s->ops->fd ? s->ops->fd(s) : -1;
}

void store_ready(struct store *s)
{
	if (s->ops->ready)
		s->ops->ready(s);
}

void store_wait(struct store *s, const bool *done)
{
	struct pollfd p = { .fd = store_fd(s), .events = POLLIN };

	while (!*done && p.fd >= 0) {
		poll(&p, 1, -1);
		store_ready(s);
	}
}

void store_on_change(struct store *s, store_changed_fn fn, void *arg)
{
	s->on_change = fn;
	s->on_change_arg = arg;
}

bool store_changed(struct store *s)
{
	bool was = s->changed;

	s->changed = false;
	return was;
}

const char *store_explain(const struct store *s)
{
	return s->why.text;
}

void store_close(struct store *s)
{
	if (s)
		s->ops->close(s);
}

void store_raise_change(struct store *s)
{
	if (s->changed)
		return;
	s->changed = true;
	if (s->on_change)
		s->on_change(s->on_change_arg);
}
