/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "observe.h"

void observe_begin(struct observe *o)
{
	for (unsigned i = 0; i < o->n; i++)
		o->v[i].present = false;
}

struct observed *observe_find(struct observe *o, uint64_t session)
{
	for (unsigned i = 0; i < o->n; i++)
		if (o->v[i].id.session == session)
			return &o->v[i];
	return NULL;
}

static struct observed *make(struct observe *o, uint64_t session)
{
	struct observed *e = observe_find(o, session);

	if (e || o->n == OBSERVE_MAX)
		return e;
	e = &o->v[o->n++];
	*e = (struct observed){ .id.session = session };
	return e;
}

void observe_beat(struct observe *o, const struct beat_value *v, uint64_t version, core_nsec_t now)
{
	struct observed *e = make(o, v->id.session);

	if (!e)
		return;
	if (e->version != version || !e->since)
		e->since = now;
	e->version = version;
	e->id = v->id;
	e->counter = v->counter;
	e->ended = v->ended;
	e->present = true;
}

void observe_absent(struct observe *o, uint64_t session, core_nsec_t now)
{
	struct observed *e = make(o, session);

	if (!e)
		return;
	if (e->version || !e->since)
		*e = (struct observed){ .id.session = session, .since = now };
	e->present = true;
}

void observe_end(struct observe *o, core_nsec_t now)
{
	(void)now;
	for (unsigned i = 0; i < o->n; )
		if (o->v[i].present)
			i++;
		else
			o->v[i] = o->v[--o->n];
}

struct observed *observe_expired(struct observe *o, core_nsec_t wait, core_nsec_t now)
{
	for (unsigned i = 0; i < o->n; i++)
		if (!o->v[i].ended && now - o->v[i].since >= wait)
			return &o->v[i];
	return NULL;
}
