/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <assert.h>
#include <liburing.h>
#include <stdlib.h>

#include "internal.h"

static_assert(sizeof(struct source) <= 72, "a client costs little");

void sources_init(struct sources *ss)
{
	*ss = (struct sources){.last = &ss->first};
}

static int chunk_add(struct sources *ss)
{
	struct source_chunk *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->next = ss->chunks;
	ss->chunks = c;
	for (size_t i = SOURCES_PER_CHUNK; i-- > 0;) {
		c->sources[i].next = ss->free;
		ss->free = &c->sources[i];
	}
	return 0;
}

void sources_done(struct loop *l)
{
	struct source_chunk *c, *next;

	for (c = l->sources.chunks; c; c = next) {
		next = c->next;
		for (size_t i = 0; i < SOURCES_PER_CHUNK; i++)
			free(c->sources[i].more);
		free(c);
	}
	sources_init(&l->sources);
}

struct source *source_new(struct loop *l, const struct source_kind *kind, int fd, void *arg)
{
	struct source *s;

	if (!l->sources.free && chunk_add(&l->sources) < 0)
		return NULL;
	s = l->sources.free;
	assert(s->state == SOURCE_FREE);
	l->sources.free = s->next;
	l->sources.used++;
	*s = (struct source){
		.kind = kind, .loop = l, .fd = fd, .arg = arg, .state = SOURCE_RESTING};
	return s;
}

static void source_free(struct source *s)
{
	struct sources *ss = &s->loop->sources;

	free(s->more);
	*s = (struct source){.state = SOURCE_FREE, .next = ss->free};
	ss->free = s;
	ss->used--;
}

static void list_append(struct source *s)
{
	struct sources *ss = &s->loop->sources;

	s->next = NULL;
	*ss->last = s;
	ss->last = &s->next;
}

static struct source *list_pop(struct sources *ss)
{
	struct source *s = ss->first;

	if (s) {
		ss->first = s->next;
		if (!ss->first)
			ss->last = &ss->first;
	}
	return s;
}

void source_want(struct source *s)
{
	assert(s->state == SOURCE_RESTING);
	s->state = SOURCE_WANTED;
	list_append(s);
}

void source_stop(struct source *s)
{
	switch ((enum source_state)s->state) {
	case SOURCE_RESTING:
		source_free(s);
		return;
	case SOURCE_WANTED:
		s->state = SOURCE_DROPPED;
		return;
	case SOURCE_ARMED:
		s->state = SOURCE_UNWANTED;
		list_append(s);
		return;
	case SOURCE_FREE:
	case SOURCE_UNWANTED:
	case SOURCE_LEAVING:
	case SOURCE_DROPPED:
		assert(!"a handle is stopped once");
	}
}

void sources_stop(struct loop *l)
{
	for (struct source_chunk *c = l->sources.chunks; c; c = c->next)
		for (size_t i = 0; i < SOURCES_PER_CHUNK; i++) {
			struct source *s = &c->sources[i];

			if (s->state == SOURCE_RESTING || s->state == SOURCE_WANTED ||
				s->state == SOURCE_ARMED)
				source_stop(s);
		}
}

static void submit_arm(struct source *s, struct io_uring_sqe *sqe)
{
	s->kind->arm(s, sqe);
	io_uring_sqe_set_data(sqe, s);
	s->state = SOURCE_ARMED;
	s->loop->sources.armed++;
}

/*
 * What it removes completes by itself; that it found nothing, since the last completion is on its
 * way, is no news.
 */
static void submit_cancel(struct source *s, struct io_uring_sqe *sqe)
{
	io_uring_prep_cancel(sqe, s, 0);
	sqe->flags |= IOSQE_CQE_SKIP_SUCCESS;
	io_uring_sqe_set_data64(sqe, TAG_IGNORED);
	s->state = SOURCE_LEAVING;
}

static void source_discard(struct source *s, const struct completion *c)
{
	if (s->kind->discard)
		s->kind->discard(s, c->res, c->flags);
}

bool source_flush(struct loop *l)
{
	struct sources *ss = &l->sources;
	struct io_uring_sqe *sqe;
	struct source *s;

	while ((s = ss->first)) {
		if (s->state == SOURCE_DROPPED) {
			list_pop(ss);
			source_free(s);
			continue;
		}
		sqe = ring_sqe(&l->ring);
		if (!sqe)
			return false;
		list_pop(ss);
		if (s->state == SOURCE_WANTED) {
			submit_arm(s, sqe);
		} else {
			assert(s->state == SOURCE_UNWANTED);
			submit_cancel(s, sqe);
		}
	}
	return true;
}

void source_complete(struct source *s, const struct completion *c)
{
	bool last = !(c->flags & IORING_CQE_F_MORE);

	if (last)
		s->loop->sources.armed--;
	switch ((enum source_state)s->state) {
	case SOURCE_ARMED:
		if (last)
			s->state = SOURCE_RESTING;
		s->kind->event(s, c->res, c->flags);
		return;
	case SOURCE_UNWANTED:
		source_discard(s, c);
		if (last)
			s->state = SOURCE_DROPPED;
		return;
	case SOURCE_LEAVING:
		source_discard(s, c);
		if (last)
			source_free(s);
		return;
	case SOURCE_FREE:
	case SOURCE_RESTING:
	case SOURCE_WANTED:
	case SOURCE_DROPPED:
		assert(!"the kernel completes only what it has");
	}
}
