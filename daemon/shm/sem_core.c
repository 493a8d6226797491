/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A semaphore and the cluster: the node has one claim on the name, for all its clients, and says totals only (S10).
 * What comes from the core is written down here, and what follows from it done after the core's step (sem_soon).
 */
#include "sem.h"

#include <errno.h>

#include "word.h"

#define RETRY_SPAN (10 * NSEC_PER_MSEC)

static void say(struct sem *m, struct sem_say what)
{
	struct shm *shm = m->o.space->shm;

	sem_noted(m);
	shm->ops.sem(shm->ops.arg, m->o.space, m->o.slot, &what);
}

void sem_noted(struct sem *m)
{
	name_at(m->o.space, m->o.slot)->state = m->core == SEM_CORE_IN && !m->weight && m->asked ? NAME_ASKED : NAME_IDLE;
}

static struct sem *sem_at(const struct space *s, uint32_t slot)
{
	struct object *o = object_at(s, slot);

	return o && o->kind == KIND_SEM ? sem_of(o) : NULL;
}

static uint64_t *note(const struct sem *m)
{
	return object_note(&m->o)->v;
}

/* --- What it tells --- */

void sem_resize_say(struct sem *m)
{
	if (!m->resize || m->resize_said || m->core != SEM_CORE_IN)
		return;
	m->resize_said = true;
	m->resize_told = 0;
	say(m, (struct sem_say){ .what = SEM_SAY_RESIZE, .limit = m->resize });
}

static uint8_t priority_of(const struct sem *m)
{
	return m->first ? m->first->priority : 0;
}

/* To resize it the name has to be claimed. */
static void claim(struct sem *m, uint32_t wanted, bool tries)
{
	if (m->resize && !wanted)
		wanted = 1;
	if (!wanted || m->leaving)
		return;
	m->core = SEM_CORE_IN;
	m->asked = wanted;
	m->asked_tries = tries;
	m->asked_priority = priority_of(m);
	m->asked_delay = name_at(m->o.space, m->o.slot)->delay;
	say(m, (struct sem_say){ .what = SEM_SAY_CLAIM, .wanted = wanted, .tries = tries, .priority = m->asked_priority, .limit = m->opened,
				 .present = m->stamp ? m->limit : 0, .stamp = m->stamp });
}

static void change(struct sem *m, uint32_t give, uint32_t wanted, bool tries)
{
	uint8_t priority = wanted ? priority_of(m) : 0;
	uint16_t delay = name_at(m->o.space, m->o.slot)->delay;

	if (!give && wanted == m->asked && (!wanted || (tries == m->asked_tries && priority == m->asked_priority && delay == m->asked_delay)))
		return;
	m->asked_delay = delay;
	m->weight -= give;
	m->free -= give;
	m->asked = wanted;
	m->asked_tries = tries;
	m->asked_priority = priority;
	if (m->weight <= m->keep)
		m->keep = SEM_KEEP_ALL;
	say(m, (struct sem_say){ .what = SEM_SAY_CHANGE, .held = m->weight, .wanted = wanted, .tries = tries, .priority = priority });
}

void sem_tell(struct sem *m, uint32_t give, uint32_t wanted, bool tries)
{
	if (m->leaving || wanted <= m->weight - give)
		wanted = 0;
	switch (m->core) {
	case SEM_CORE_NONE:
		claim(m, wanted, tries);
		break;
	case SEM_CORE_IN:
		if (!wanted && m->resize && m->weight == give) {
			if (give)
				change(m, give, 1, false);
		} else if (!wanted && m->weight == give) {
			sem_release(m);
		} else {
			change(m, give, wanted, tries);
		}
		break;
	case SEM_CORE_RELEASING:
		break;                   /* again when it is forgotten */
	}
	sem_resize_say(m);
}

void sem_keep(struct sem *m)
{
	say(m, (struct sem_say){ .what = SEM_SAY_KEEP });
}

void sem_release(struct sem *m)
{
	m->weight = m->free = m->asked = 0;
	m->keep = SEM_KEEP_ALL;
	m->core = SEM_CORE_RELEASING;
	say(m, (struct sem_say){ .what = SEM_SAY_RELEASE });
}

void sem_zero(struct sem *m)
{
	m->weight = m->free = 0;
	word_store(&note(m)[0], note(m)[0] & SEM_NOTE_WHICH);
}

/* --- What it is told --- */

void sem_ledger_grant(struct space *s, uint32_t slot, const struct sem_grant *g)
{
	struct sem *m = sem_at(s, slot);
	uint64_t which;

	if (!m)
		return;
	which = ~note(m)[0] & SEM_NOTE_WHICH;
	word_store(&note(m)[which ? 3 : 1], g->first);
	word_store(&note(m)[which ? 4 : 2], g->count);
	word_store(&note(m)[0], which | g->weight);
}

bool sem_lease(const struct space *s, uint32_t slot, struct sem_lease *ret)
{
	const struct sem *m = sem_at(s, slot);
	const struct ledger_name *rec;
	bool which;

	if (!m || !m->o.note || !(uint32_t)note(m)[0])
		return false;
	rec = name_at(s, slot);
	which = note(m)[0] & SEM_NOTE_WHICH;
	*ret = (struct sem_lease){
		.weight = (uint32_t)note(m)[0], .first = note(m)[which ? 3 : 1], .count = note(m)[which ? 4 : 2],
		.stamp = note(m)[5], .opened = (uint32_t)rec->number, .limit = (uint32_t)(rec->number >> 32),
	};
	return true;
}

void sem_granted(struct space *s, uint32_t slot, uint16_t delay)
{
	struct sem *m = sem_at(s, slot);
	struct sem_lease l;

	if (!m || !sem_lease(s, slot, &l))
		return;
	m->free += l.weight - m->weight;
	m->weight = l.weight;
	m->token = l.first;
	m->asked = 0;
	m->delay = delay;
	if (delay >= name_at(s, slot)->delay)
		name_at(s, slot)->raised = 0;
	m->keep = SEM_KEEP_ALL;
	m->fresh = true;
	if (m->hears == SEM_HEARS_SOON)
		m->hears = SEM_HEARD;
	sem_noted(m);
	shm_tell(s->shm, "grant", s, slot, 0, l.first, NULL);
	if (m->o.unused)
		sem_release(m);
	else
		sem_soon(m);
}

void sem_changed(struct space *s, uint32_t slot, const struct sem_grant *left)
{
	struct sem *m = sem_at(s, slot);

	if (!m)
		return;
	if (left->weight) {
		sem_ledger_grant(s, slot, left);
	} else {
		word_store(&note(m)[0], note(m)[0] & SEM_NOTE_WHICH);
		shm_tell(s->shm, "release", s, slot, 0, 0, NULL);
	}
}

void sem_forgotten(struct space *s, uint32_t slot)
{
	struct sem *m = sem_at(s, slot);

	if (!m)
		return;
	m->core = SEM_CORE_NONE;
	m->asked = 0;
	sem_noted(m);
	if (m->o.unused)
		object_end(&m->o);
	else
		sem_soon(m);
}

static void refuse_all(struct sem *m, int error)
{
	while (m->first) {
		struct sem_client *c = m->first;

		sem_answer(c, (uint32_t)(__atomic_load_n(&sem_words(c)->want, __ATOMIC_ACQUIRE) >> 32), error);
	}
	sem_boxes(m, error);
	m->resize = 0;
}

void sem_refused(struct space *s, uint32_t slot, int error)
{
	struct sem *m = sem_at(s, slot);
	struct sem_client *c = m ? m->first : NULL;
	uint64_t want = c ? __atomic_load_n(&sem_words(c)->want, __ATOMIC_ACQUIRE) : 0;
	bool hears = m && m->hears == SEM_HEARS_SOON;    /* and not what the first in line wants was asked for */

	if (!m)
		return;
	m->asked = 0;
	if (!m->weight)
		m->core = SEM_CORE_NONE;
	m->resize_said = false;
	if (hears)
		m->hears = error == -EBUSY ? SEM_HEARD : SEM_HEARS_NOTHING;
	sem_noted(m);
	if (m->o.unused) {
		if (m->core == SEM_CORE_NONE)
			object_end(&m->o);
		return;
	}
	if (error == -EINVAL)
		refuse_all(m, EINVAL);           /* another node has it open with another number */
	else if (error == -EBUSY && !hears && (want & SEM_TRIES))
		sem_answer(c, (uint32_t)(want >> 32), EAGAIN);
	else if (error == -ESHUTDOWN)
		m->leaving = true;
	if (error == -EBUSY || error == -EINVAL)
		sem_soon(m);
	else if (error != -ESHUTDOWN)
		loop_timer_set(s->shm->loop, &m->timer, loop_now(s->shm->loop) + RETRY_SPAN);
}

void sem_revoke(struct space *s, uint32_t slot, uint32_t weight, bool tries)
{
	struct sem *m = sem_at(s, slot);

	if (!m || m->core != SEM_CORE_IN || s->broken)
		return;
	m->keep = weight;
	m->tries_kept = tries;
	sem_soon(m);
}

/*
 * Ours, or another's that came before or after it: whoever asked is answered when it is the one asked for, or at the second; by
 * sem_serve(), once those who hold too many know it.
 */
void sem_resized(struct space *s, uint32_t slot, uint32_t limit, uint64_t stamp)
{
	struct sem *m = sem_at(s, slot);

	if (!m)
		return;
	m->limit = limit;
	m->stamp = stamp;
	word_store(&name_at(s, slot)->number, m->opened | (uint64_t)limit << 32);
	word_store(&note(m)[5], stamp);
	if (!s->broken && m->resize && (limit == m->resize || m->resize_told++))
		m->resize = 0;
	sem_soon(m);
}

void sem_failed(struct space *s, uint32_t slot, enum sem_say_what what, int error)
{
	struct sem *m = sem_at(s, slot);

	if (!m)
		return;
	switch (what) {
	case SEM_SAY_CLAIM:
		m->core = SEM_CORE_NONE;
		m->asked = 0;
		break;
	case SEM_SAY_CHANGE:             /* nothing has changed: what was to be given is there still */
		m->free += (uint32_t)note(m)[0] - m->weight;
		m->weight = (uint32_t)note(m)[0];
		m->asked = 0;
		break;
	case SEM_SAY_RELEASE:
		m->core = SEM_CORE_NONE;
		break;
	case SEM_SAY_RESIZE:
		m->resize_said = false;
		break;
	case SEM_SAY_KEEP:
		return;
	}
	m->leaving |= error == -ESHUTDOWN;
	sem_noted(m);
	if (m->o.unused && m->core == SEM_CORE_NONE)
		object_end(&m->o);
	else
		loop_timer_set(s->shm->loop, &m->timer, loop_now(s->shm->loop) + (m->leaving ? 0 : RETRY_SPAN));
}
