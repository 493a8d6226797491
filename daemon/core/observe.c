/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "observe.h"

void observe_begin(struct observe *o)
{
	for (unsigned i = 0; i < o->n; i++)
		o->v[i].present = o->v[i].done = false;
}

/* The place of the first session that is not below this one. */
static unsigned place(const struct observe *o, uint64_t session)
{
	unsigned low = 0, high = o->n;

	while (low < high) {
		unsigned mid = (low + high) / 2;

		if (o->v[mid].id.session < session)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

struct observed *observe_find(const struct observe *o, uint64_t session)
{
	unsigned i = place(o, session);

	return i < o->n && o->v[i].id.session == session ? &o->v[i] : NULL;
}

static struct observed *make(struct observe *o, uint64_t session, bool member)
{
	unsigned i = place(o, session);
	struct observed *e = &o->v[i];

	if (i < o->n && e->id.session == session)
		return e;
	if (o->n >= (member ? OBSERVE_MAX : OBSERVE_OTHERS_MAX))
		return NULL;
	memmove(e + 1, e, (o->n++ - i) * sizeof *e);
	*e = (struct observed){ .id.session = session };
	return e;
}

void observe_beat(struct observe *o, const struct beat_value *v, uint64_t version, bool member, core_nsec_t now)
{
	struct observed *e = make(o, v->id.session, member);

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
	struct observed *e = make(o, session, true);

	if (!e)
		return;
	if (e->version || !e->since)
		*e = (struct observed){ .id.session = session, .since = now };
	e->present = true;
}

void observe_end(struct observe *o, core_nsec_t now)
{
	unsigned n = 0;

	(void)now;
	for (unsigned i = 0; i < o->n; i++)
		if (o->v[i].present)
			o->v[n++] = o->v[i];
	o->n = n;
}

struct observed *observe_expired(struct observe *o, unsigned from, core_nsec_t wait, core_nsec_t now)
{
	for (unsigned k = 0; k < o->n; k++) {
		struct observed *e = &o->v[(from + k) % o->n];

		if (!e->ended && !e->done && now - e->since >= wait)
			return e;
	}
	return NULL;
}
