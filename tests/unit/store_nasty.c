/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A request has a moment at which it is carried out and one at which it is answered; what it answers is what
 * was true at the first one, which lies between asking and answering: that is what linearizable means.
 */
#include "store_nasty.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define RECORDS_MAX	1024
#define CLIENTS_MAX	8

enum kind { GET, LIST, CAS };

struct record {
	char key[STORE_KEY_MAX + 1];
	char *value;
	size_t size;
	uint64_t version;
};

struct request {
	struct request *next;
	struct nasty *by;		/* NULL: nobody waits for the answer any more */
	enum kind kind;
	char key[STORE_KEY_MAX + 1];
	uint64_t expected;
	bool deletes;
	char *value;
	size_t size;
	store_done_fn done;
	void *arg;
	uint64_t act_at, answer_at;
	bool acted, never;
	int error;			/* that it will have, whatever it does */
	bool in_doubt;
	struct store_result result;
	struct store_record *records;
};

struct nasty {
	struct store base;
	struct nasty_world *world;
	struct nasty_knobs knobs;
	int fd;
	uint64_t hint_at;		/* 0: none is on its way */
};

struct nasty_world {
	uint64_t seed, turn, revision;
	struct record records[RECORDS_MAX];	/* by key */
	size_t n;
	struct request *requests;
	struct nasty *clients[CLIENTS_MAX];
	struct store_record looked_at;
};

static unsigned roll(struct nasty_world *w, unsigned sides)
{
	w->seed = w->seed * 6364136223846793005ull + 1442695040888963407ull;
	return sides ? (unsigned)(w->seed >> 33) % sides : 0;
}

static size_t find(const struct nasty_world *w, const char *key, bool *ret_there)
{
	size_t i = 0;

	while (i < w->n && strcmp(w->records[i].key, key) < 0)
		i++;
	*ret_there = i < w->n && strcmp(w->records[i].key, key) == 0;
	return i;
}

static void hints_send(struct nasty_world *w)
{
	for (size_t i = 0; i < CLIENTS_MAX; i++)
		if (w->clients[i] && !w->clients[i]->hint_at)
			w->clients[i]->hint_at = w->turn + 1 + roll(w, w->clients[i]->knobs.hint_turns + 1);
}

static struct store_record record_copy(const struct record *r)
{
	char *piece = malloc(strlen(r->key) + 1 + r->size + 1);

	if (!piece)
		abort();
	strcpy(piece, r->key);
	memcpy(piece + strlen(r->key) + 1, r->value, r->size);
	return (struct store_record){ piece, piece + strlen(r->key) + 1, r->size, r->version };
}

/* --- At the moment of truth --- */

static void act_read(struct nasty_world *w, struct request *r)
{
	size_t n = 0, prefix = strlen(r->key);

	r->records = calloc(w->n + 1, sizeof *r->records);
	if (!r->records)
		abort();
	for (size_t i = 0; i < w->n; i++)
		if (r->kind == LIST ? strncmp(w->records[i].key, r->key, prefix) == 0 : strcmp(w->records[i].key, r->key) == 0)
			r->records[n++] = record_copy(&w->records[i]);
	r->result = (struct store_result){
		.version = r->kind == GET && n ? r->records[0].version : 0, .records = r->records, .n_records = n,
	};
}

static void act_cas(struct nasty_world *w, struct request *r)
{
	bool there;
	size_t at = find(w, r->key, &there);
	struct record *p = &w->records[at];
	uint64_t version = there ? p->version : 0;

	r->result.version = version;
	if (version != r->expected) {
		r->result.error = -EAGAIN;
		return;
	}
	if (r->deletes) {
		r->result.version = 0;
		if (!there)
			return;
		w->revision++;
		free(p->value);
		memmove(p, p + 1, (--w->n - at) * sizeof *p);
		hints_send(w);
		return;
	}
	if (!there && w->n == RECORDS_MAX) {
		r->result.error = -EFBIG;
		return;
	}
	if (!there) {
		memmove(p + 1, p, (w->n++ - at) * sizeof *p);
		*p = (struct record){ .version = 0 };
		strcpy(p->key, r->key);
	}
	free(p->value);
	p->value = r->value;
	p->size = r->size;
	r->value = NULL;
	r->result.version = p->version = ++w->revision;
	hints_send(w);
}

static void act(struct nasty_world *w, struct request *r)
{
	r->acted = true;
	if (r->never)
		return;
	if (r->kind == CAS)
		act_cas(w, r);
	else
		act_read(w, r);
}

/* --- Turns --- */

static void request_free(struct request *r)
{
	for (size_t i = 0; i < r->result.n_records; i++)
		free((char *)r->records[i].key);
	free(r->records);
	free(r->value);
	free(r);
}

static void answer(struct request *r)
{
	struct nasty *c = r->by;

	if (r->error) {
		snprintf(c->base.why.text, sizeof c->base.why.text, "the nasty engine %s.", r->in_doubt ? "does not say whether "
			 "it has done that" : "does not want to");
		r->done(r->arg, &(struct store_result){ .error = r->error, .in_doubt = r->in_doubt });
	} else {
		r->done(r->arg, &r->result);
	}
}

/* The first that c is to be answered now; taken out, unless it is still to be carried out. */
static struct request *answerable(struct nasty_world *w, struct nasty *c)
{
	for (struct request **p = &w->requests; *p; p = &(*p)->next) {
		struct request *r = *p;

		if (r->by != c || w->turn < r->answer_at)
			continue;
		if (r->acted)
			*p = r->next;
		return r;
	}
	return NULL;
}

static void acts(struct nasty_world *w)
{
	struct request **p = &w->requests;

	while (*p) {
		struct request *r = *p;

		if (!r->acted && w->turn >= r->act_at)
			act(w, r);
		if (!r->acted || r->by) {
			p = &r->next;
			continue;
		}
		*p = r->next;
		request_free(r);
	}
}

/* Readable while anything is still to come, so that waiting for it never ends. */
static void fd_set_readable(struct nasty *c)
{
	bool more = c->hint_at;
	uint64_t n;

	for (struct request *r = c->world->requests; r; r = r->next)
		more |= r->by == c;
	if (read(c->fd, &n, sizeof n) < 0)
		n = 0;
	n = 1;
	if (more && write(c->fd, &n, sizeof n) != sizeof n)
		abort();
}

static void nasty_ready(struct store *s)
{
	struct nasty *c = (struct nasty *)s;
	struct nasty_world *w = c->world;
	struct request *r;

	w->turn++;
	acts(w);
	while ((r = answerable(w, c))) {
		struct request early = *r;

		/* Answered before it was carried out: only what is in doubt. It stays, and nobody hears of it. */
		if (!r->acted) {
			r->by = NULL;
			answer(&early);
			continue;
		}
		answer(r);
		request_free(r);
	}
	if (roll(w, 100) < c->knobs.false_hint_percent)
		c->hint_at = w->turn;
	if (c->hint_at && w->turn >= c->hint_at) {
		c->hint_at = 0;
		store_raise_change(s);
	}
	fd_set_readable(c);
}

/* --- The contract --- */

static struct request *ask(struct nasty *c, enum kind kind, const char *key, store_done_fn done, void *arg)
{
	struct nasty_world *w = c->world;
	struct request *r = calloc(1, sizeof *r), **end = &w->requests;

	if (!r)
		abort();
	r->by = c;
	r->kind = kind;
	strcpy(r->key, key);
	r->done = done;
	r->arg = arg;
	r->act_at = w->turn + 1 + roll(w, c->knobs.late_turns + 1);
	r->answer_at = r->act_at + roll(w, c->knobs.late_turns + 1);
	if (roll(w, 100) < c->knobs.fail_percent) {
		r->error = -EIO;
		r->never = true;
	} else if (kind == CAS && roll(w, 100) < c->knobs.doubt_percent) {
		r->error = -ETIMEDOUT;
		r->in_doubt = true;
		r->never = roll(w, 3) == 0;
		if (roll(w, 2) == 0)
			r->act_at = r->answer_at + 1 + roll(w, 4 * c->knobs.late_turns + 1);
	}
	while (*end)
		end = &(*end)->next;
	*end = r;
	return r;
}

static void nasty_get(struct store *s, const char *key, store_done_fn done, void *arg)
{
	ask((struct nasty *)s, GET, key, done, arg);
	fd_set_readable((struct nasty *)s);
}

static void nasty_list(struct store *s, const char *prefix, store_done_fn done, void *arg)
{
	ask((struct nasty *)s, LIST, prefix, done, arg);
	fd_set_readable((struct nasty *)s);
}

static void nasty_cas(struct store *s, const char *key, uint64_t expected, const void *value, size_t size,
		      store_done_fn done, void *arg)
{
	struct request *r = ask((struct nasty *)s, CAS, key, done, arg);

	r->expected = expected;
	r->deletes = !value;
	r->value = malloc(size + 1);
	if (!r->value)
		abort();
	if (size)
		memcpy(r->value, value, size);
	r->value[size] = 0;
	r->size = size;
	fd_set_readable((struct nasty *)s);
}

static int nasty_fd(const struct store *s)
{
	return ((const struct nasty *)s)->fd;
}

/* What was sent may still arrive. */
static void nasty_close(struct store *s)
{
	struct nasty *c = (struct nasty *)s;
	struct nasty_world *w = c->world;

	for (struct request *r = w->requests; r; r = r->next) {
		if (r->by != c)
			continue;
		r->by = NULL;
		r->done(r->arg, &(struct store_result){ .error = -ECANCELED, .in_doubt = r->kind == CAS });
	}
	for (size_t i = 0; i < CLIENTS_MAX; i++)
		if (w->clients[i] == c)
			w->clients[i] = NULL;
	close(c->fd);
	free(c);
}

static const struct store_ops nasty_ops = {
	.engine = "nasty",
	.get = nasty_get,
	.list = nasty_list,
	.cas = nasty_cas,
	.fd = nasty_fd,
	.ready = nasty_ready,
	.close = nasty_close,
};

int nasty_open(struct nasty_world *w, const struct nasty_knobs *knobs, struct store **ret)
{
	struct nasty *c = calloc(1, sizeof *c);
	size_t i = 0;

	while (i < CLIENTS_MAX && w->clients[i])
		i++;
	if (!c || i == CLIENTS_MAX) {
		free(c);
		return -ENOMEM;
	}
	c->base.ops = &nasty_ops;
	c->world = w;
	c->knobs = *knobs;
	c->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (c->fd < 0) {
		free(c);
		return -errno;
	}
	w->clients[i] = c;
	*ret = &c->base;
	return 0;
}

struct nasty_world *nasty_world_new(uint64_t seed)
{
	struct nasty_world *w = calloc(1, sizeof *w);

	if (w)
		w->seed = seed;
	return w;
}

void nasty_world_free(struct nasty_world *w)
{
	if (!w)
		return;
	while (w->requests) {
		struct request *r = w->requests;

		w->requests = r->next;
		request_free(r);
	}
	for (size_t i = 0; i < w->n; i++)
		free(w->records[i].value);
	free(w);
}

const struct store_record *nasty_look(const struct nasty_world *w, const char *key)
{
	struct nasty_world *own = (struct nasty_world *)w;
	bool there;
	const struct record *r = &w->records[find(w, key, &there)];

	if (!there)
		return NULL;
	own->looked_at = (struct store_record){ r->key, r->value, r->size, r->version };
	return &own->looked_at;
}

bool nasty_quiet(const struct nasty_world *w)
{
	return !w->requests;
}
