/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The names that this process has open, in a hash table. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "conn.h"
#include "deadline.h"
#include "handle.h"
#include "proto/name.h"
#include "space.h"
#include "text.h"
#include "thread.h"

static struct {
	struct name **chain;
	size_t chains, n;                /* chains: a power of two */
} names;

/* FNV-1a. */
static uint64_t text_hash(const struct text *t, enum kind kind)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325) ^ kind;

	for (size_t i = 0; i < t->len; i++)
		h = (h ^ (uint8_t)t->s[i]) * UINT64_C(0x100000001b3);
	return h ^ h >> 32;
}

static struct name *name_find(const struct text *t, enum kind kind, uint64_t hash)
{
	struct name *n = names.chains ? names.chain[hash & (names.chains - 1)] : NULL;

	while (n && (n->hash != hash || n->kind != kind || n->len != t->len || memcmp(n->text, t->s, t->len)))
		n = n->next;
	return n;
}

/* Twice as many chains as names at most; where memory is short the chains grow longer. */
static int names_grow(void)
{
	size_t chains = names.chains ? names.chains * 2 : 64;
	struct name **chain, *n, *next;

	if (names.n < names.chains)
		return 0;
	chain = calloc(chains, sizeof *chain);
	if (!chain)
		return names.chains ? 0 : -ENOMEM;
	for (size_t i = 0; i < names.chains; i++) {
		for (n = names.chain[i]; n; n = next) {
			next = n->next;
			n->next = chain[n->hash & (chains - 1)];
			chain[n->hash & (chains - 1)] = n;
		}
	}
	free(names.chain);
	names.chain = chain;
	names.chains = chains;
	return 0;
}

static int name_make(const struct text *t, enum kind kind, uint64_t hash, struct name **ret)
{
	struct name *n;

	if (names_grow() < 0)
		return -ENOMEM;
	n = calloc(1, sizeof *n + t->len + 1);
	if (!n)
		return -ENOMEM;
	n->hash = hash;
	n->kind = kind;
	n->space_len = (uint8_t)t->space_len;
	n->len = (uint16_t)t->len;
	memcpy(n->text, t->s, t->len + 1);
	n->next = names.chain[hash & (names.chains - 1)];
	names.chain[hash & (names.chains - 1)] = n;
	names.n++;
	*ret = n;
	return 0;
}

static void name_free(struct name *n)
{
	struct name **at = &names.chain[n->hash & (names.chains - 1)];

	while (*at != n)
		at = &(*at)->next;
	*at = n->next;
	names.n--;
	space_put(n->target.space);
	free(n);
}

void names_each_handle(void (*fn)(struct dlock *l, uint32_t arg), uint32_t arg)
{
	for (size_t i = 0; i < names.chains; i++)
		for (struct name *n = names.chain[i]; n; n = n->next)
			for (struct dlock *l = n->handles; l; l = l->next)
				fn(l, arg);
}

void names_child(void)
{
	for (size_t i = 0; i < names.chains; i++)
		for (struct name *n = names.chain[i]; n; n = n->next) {
			n->target.epoch = 0;
			n->waiters = NULL;
		}
}

int name_join(struct dlock *l, const char *user)
{
	struct text t;
	struct name *n;
	uint64_t hash;
	int r = text_parse(&t, user);

	if (r < 0)
		return r;
	hash = text_hash(&t, l->kind);
	lib_lock();
	n = name_find(&t, l->kind, hash);
	r = n ? 0 : name_make(&t, l->kind, hash, &n);
	if (r == 0) {
		l->name = n;
		l->next = n->handles;
		n->handles = l;
	}
	lib_unlock();
	return r;
}

void name_leave(struct dlock *l)
{
	struct name *n = l->name;
	struct target last = { 0 };

	lib_lock();
	for (struct dlock **at = &n->handles; *at; at = &(*at)->next) {
		if (*at == l) {
			*at = l->next;
			break;
		}
	}
	binding_done(l);
	if (!n->handles) {
		last = n->target;
		name_free(n);
	}
	lib_unlock();
	if (last.epoch)
		conn_close(last.number, last.slot, last.epoch);
}

bool name_current(const struct name *n)
{
	const struct target *t = &n->target;

	return t->epoch && t->epoch == conn_epoch() && !deadline_gone(t->line);
}

/* Those that are bound to what was opened already stay as they are. Under lib. */
static int handles_bind(struct name *n)
{
	int r = 0;

	for (struct dlock *l = n->handles; l && r == 0; l = l->next) {
		if (!l->bindings)
			binding_init(l, &n->target);
		else if (binding_lost(l->binding))
			r = binding_renew(l, &n->target);
	}
	return r;
}

/* Under lib. */
static int name_opened(struct name *n, const struct conn_opened *o)
{
	struct space *s;
	int r;

	r = space_get(n->text, n->space_len, o->generation, o->segment, o->bell, &s);
	if (r == 0) {
		r = space_reach(s, o->client, o->slot);
		if (r == 0 && !o->by_hatch)
			space_opened(s, o->number, o->epoch);
		if (r == 0 && o->account)
			r = space_reach(s, o->client, o->account);
		if (r < 0)
			space_put(s);
	}
	if (r < 0)
		return r;
	space_put(n->target.space);
	n->onloss = 0;
	n->delay = 0;
	n->target = (struct target){
		.space = s,
		.line = conn_line(o->number),
		.client = o->client,
		.number = o->number,
		.slot = o->slot,
		.account = o->account,
		.epoch = o->epoch,
	};
	return 0;
}

/* anew: also the descriptors of a segment that is mapped. */
static int name_open(struct name *n, uint32_t arg, bool anew, bool soon, const struct limit *limit)
{
	const struct conn_what what = { .space = n->text, .space_len = n->space_len, .name = n->text + n->space_len + 1,
					.name_len = (size_t)(n->len - n->space_len - 1), .kind = n->kind, .arg = arg, .soon = soon };
	struct target old = n->target;
	struct conn_opened o;
	uint64_t mapped;
	int r;

	lib_lock();
	mapped = anew ? 0 : space_newest(n->text, n->space_len);
	lib_unlock();
	r = conn_open(&what, mapped, limit, &o);
	if (r < 0)
		return r;
	n->arg = arg;
	lib_lock();
	r = name_opened(n, &o);
	lib_unlock();
	if (r < 0)
		conn_close(o.number, o.slot, o.epoch);
	else if (old.epoch == o.epoch && (old.number != o.number || old.slot != o.slot))
		conn_close(old.number, old.slot, old.epoch);
	return r;
}

void name_ring(struct name *n, const struct binding *b, const struct limit *limit)
{
	if (space_ring(b->space) || attach_lock(limit) < 0)
		return;
	if (!name_current(n) || name_open(n, n->arg, true, false, limit) == 0)
		space_ring(b->space);
	attach_unlock();
}

/* The page of what was opened. */
static int name_page(struct name *n, const struct limit *limit)
{
	struct target *t = &n->target;
	struct value_page *page;
	int fd = -1, r;

	if (t->value)
		return 0;
	r = conn_value(t->number, t->slot, t->epoch, limit, &fd);
	if (r < 0)
		return r;
	lib_lock();
	r = space_value(t->space, t->slot, fd, &page);
	lib_unlock();
	close(fd);
	if (r == 0)
		t->value = page;
	return r;
}

int name_value(struct dlock *l, struct binding *b, const struct limit *limit)
{
	const struct target *t = &l->name->target;
	int r;

	if (t->space != b->space || t->slot != b->slot || t->epoch != b->epoch)
		return -ESTALE;
	r = name_page(l->name, limit);
	if (r == 0)
		__atomic_store_n(&b->value, t->value, __ATOMIC_RELEASE);
	return r;
}

static int name_onloss(struct name *n, const struct limit *limit)
{
	const struct target *t = &n->target;
	int signo = 0, r;

	for (struct dlock *l = n->handles; l; l = l->next)       /* newest first */
		if (l->attr.onloss && (!signo || l->attr.onloss == SIGKILL))
			signo = l->attr.onloss;
	if (signo == n->onloss)
		return 0;
	r = conn_onloss(t->number, t->slot, t->epoch, limit, signo);
	if (r == 0)
		n->onloss = signo;
	return r == -ESTALE ? -ENOTCONN : r;     /* the daemon has changed just now */
}

/* The longest delay that any handle asks for. The daemon knows no handles. */
static uint32_t name_delay(const struct name *n)
{
	uint32_t most = name_current(n) && !kind_is_object(n->kind) ? n->arg : 0;

	for (const struct dlock *l = n->handles; l; l = l->next)
		most = l->attr.delay_ms > most ? l->attr.delay_ms : most;
	return most;
}

/* The number of permits is all that there is room for where it is opened. */
static int name_permits_delay(struct name *n, const struct limit *limit)
{
	const struct target *t = &n->target;
	uint32_t ms = n->kind == KIND_SEM ? name_delay(n) : 0;
	int r;

	if (ms <= n->delay)
		return 0;
	r = conn_delay(t->number, t->slot, t->epoch, limit, ms);
	if (r == 0)
		n->delay = ms;
	return r == -ESTALE ? -ENOTCONN : r;
}

int name_attach(struct dlock *l, const struct limit *limit)
{
	struct name *n = l->name;
	uint32_t arg = kind_is_object(n->kind) ? l->arg : name_delay(n);
	int r = name_current(n) && n->arg == arg ? 0 : name_open(n, arg, false, l->soon, limit); /* whether it may be that, the daemon knows */

	if (r == 0 && n->kind == KIND_ELECT) {
		r = name_page(n, limit);
		r = r == -ESTALE ? -ENOTCONN : r;
	}
	if (r == 0)
		r = name_onloss(n, limit);
	if (r == 0)
		r = name_permits_delay(n, limit);
	if (r < 0)
		return r;
	lib_lock();
	r = handles_bind(n);
	lib_unlock();
	for (l = n->handles; l && r == 0; l = l->next)
		hint_renew(l, limit);           /* the list changes under attach only */
	return r;
}
