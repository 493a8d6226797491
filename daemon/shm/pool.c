/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "../../include/proto/futex.h"
#include "../../include/proto/semword.h"
#include "sigbus.h"
#include "word.h"

#define RETRY_SPAN (100 * NSEC_PER_MSEC)
#define REST_SPAN  NSEC_PER_SEC          /* between two writes of a value that changes */
#define KEEP_MIN   (2 * NSEC_PER_MSEC)   /* what was opened stays open so long, though others wait */
#define DRY_MAX    7                     /* ... and twice as long each time that there was nothing: up to a quarter of a second */

/*
 *   notes    v[0] first token, 0: no lease   v[1] how many   v[2] version   v[3] bit 0: it has been opened, bit 1: it exists, value stored << 32
 */
#define NOTE_OPENED UINT64_C(1)
#define NOTE_EXISTS UINT64_C(2)

static struct pool *pool_of(struct object *o)
{
	return (struct pool *)o;
}

struct pool *pool_in(const struct space *s, uint32_t slot)
{
	struct object *o = object_at(s, slot);

	return o && o->kind == KIND_POOL ? pool_of(o) : NULL;
}

static uint64_t *note(const struct pool *p)
{
	return object_note(&p->o)->v;
}

static const struct shm_ops *ops_of(const struct pool *p)
{
	return &p->o.space->shm->ops;
}

static nsec_t now_of(const struct pool *p)
{
	return loop_now(p->o.space->shm->loop);
}

static void soon(struct pool *p)
{
	loop_defer(p->o.space->shm->loop, &p->defer);
}

static void by(struct pool *p, nsec_t when)
{
	if (!p->timer.queued || when < p->timer.when)
		loop_timer_set(p->o.space->shm->loop, &p->timer, when);
}

static void become(struct pool *p, enum pool_state state)
{
	p->state = state;
	name_at(p->o.space, p->o.slot)->state = state == POOL_ASKED ? NAME_ASKED : NAME_IDLE;   /* lease.c: it only waits */
}

static void note_record(struct pool *p)
{
	word_store(&note(p)[2], p->version);
	word_store(&note(p)[3], (p->state == POOL_OPEN || p->state == POOL_WRITING ? NOTE_OPENED : 0) | (p->exists ? NOTE_EXISTS : 0) |
				(uint64_t)p->stored << 32);
}

/* --- The word --- */

static void word_open(struct pool *p)
{
	p->opened = now_of(p);
	pool_word_open(p);
	p->dry = pool_word_value(p) ? 0 : p->dry < DRY_MAX ? p->dry + 1 : DRY_MAX;
	pool_word_wake(p);
}

static bool is_wanted(const struct pool *p)
{
	return p->wanted || pool_has_posts(p) || pool_word_awaited(p);
}

/* --- Asking the store --- */

static void ask(struct pool *p, enum pool_store op, uint32_t value, struct account *asker)
{
	const struct pool_ops *ops = ops_of(p)->pool;
	uint8_t bytes[POOL_RECORD_SIZE];

	p->busy = true;
	p->op = op;
	p->asker = asker;
	p->writing = value;
	pool_record_write(bytes, value, p->token);
	if (ops->store(ops_of(p)->arg, p, bytes, op == POOL_PUT ? sizeof bytes : 0) == 0)
		return;
	p->busy = false;
	by(p, now_of(p) + RETRY_SPAN);
}

/* --- What clients ask --- */

static void answer(struct account *a, int error)
{
	uint64_t *box = &((struct sem_account *)object_words(a->object, a->slot))->box;

	word_store(box, (uint64_t)(uint32_t)error << 32 | (error ? SEM_BOX_FAILED : SEM_BOX_DONE));
	futex_wake_class(lock_futex(box), INT_MAX, LOCK_CLASS_ANY);
}

static uint64_t question(const struct account *a)
{
	uint64_t box = __atomic_load_n(&((struct sem_account *)object_words(a->object, a->slot))->box, __ATOMIC_ACQUIRE);
	uint32_t what = (uint32_t)box;

	return what >= POOL_BOX_OPEN && what <= POOL_BOX_UNLINK ? box : 0;
}

/* With the record known. Returns whether the store has to be asked. */
static bool serve_one(struct pool *p, struct account *a, uint64_t q)
{
	uint32_t initial = (uint32_t)(q >> 32) & POOL_VALUE_MAX;

	switch ((enum pool_box)(uint32_t)q) {
	case POOL_BOX_OPEN:
		answer(a, p->exists ? 0 : ENOENT);
		return false;
	case POOL_BOX_CREATE:
	case POOL_BOX_CREATE_NEW:
		if (p->exists) {
			answer(a, (uint32_t)q == POOL_BOX_CREATE ? 0 : EEXIST);
			return false;
		}
		p->version = 0;
		ask(p, POOL_PUT, initial, a);
		return true;
	case POOL_BOX_UNLINK:
		if (!p->exists) {
			answer(a, ENOENT);
			return false;
		}
		ask(p, POOL_REMOVE, 0, a);
		return true;
	}
	return false;
}

static void serve_questions(struct pool *p)
{
	for (struct account *a = p->o.accounts; a && !p->busy; a = a->next) {
		uint64_t q = question(a);

		if (q && serve_one(p, a, q))
			return;
	}
}

static bool is_questioned(const struct pool *p)
{
	for (struct account *a = p->o.accounts; a; a = a->next)
		if (question(a))
			return true;
	return false;
}

/* --- The states --- */

static void give_lease(struct pool *p)
{
	const struct pool_ops *ops = ops_of(p)->pool;

	become(p, POOL_RELEASING);
	p->revoked = p->pressed = p->wanted = false;
	ops->release(ops_of(p)->arg, p);
}

static void drive_none(struct pool *p)
{
	const struct pool_ops *ops = ops_of(p)->pool;

	if (p->o.unused && (p->leaving || !pool_has_posts(p))) {
		object_end(&p->o);
		return;
	}
	if (p->leaving || (!is_wanted(p) && !is_questioned(p)))
		return;
	become(p, POOL_ASKED);
	p->presses = pool_has_posts(p);
	ops->claim(ops_of(p)->arg, p);
}

static void drive_asked(struct pool *p)
{
	const struct pool_ops *ops = ops_of(p)->pool;

	if (p->presses || !pool_has_posts(p))
		return;
	p->presses = true;
	ops->press(ops_of(p)->arg, p);
}

static void drive_reading(struct pool *p)
{
	if (!p->read)
		ask(p, POOL_GET, 0, NULL);
	else if (p->exists)
		ask(p, POOL_PUT, p->stored, NULL);
}

/* May the others have it? */
static bool is_due(struct pool *p)
{
	nsec_t until = p->opened + (pool_word_value(p) ? KEEP_MIN : KEEP_MIN << p->dry);

	if (p->o.unused)
		return true;
	if (!p->revoked)
		return false;
	if (now_of(p) >= until || !is_wanted(p) || (p->pressed && !pool_word_value(p)))
		return true;
	/* A post here makes it due earlier. */
	pool_word_rings(p);
	if (pool_word_value(p))
		until = p->opened + KEEP_MIN;
	by(p, until);
	return now_of(p) >= until;
}

static void drive_open(struct pool *p)
{
	pool_posts_add(p);
	serve_questions(p);
	if (p->busy)
		return;
	if (is_due(p)) {
		pool_word_close(p);
		become(p, POOL_WRITING);
		note_record(p);
		soon(p);
	} else if (p->exists && now_of(p) < p->written + REST_SPAN) {
		by(p, p->written + REST_SPAN);
	} else if (p->exists) {          /* what is changed from here on rings */
		pool_word_rings(p);
		if (pool_word_value(p) != p->stored)
			ask(p, POOL_PUT, pool_word_value(p), NULL);
	}
}

static void drive_writing(struct pool *p)
{
	if (p->exists && pool_word_value(p) != p->stored)
		ask(p, POOL_PUT, pool_word_value(p), NULL);
	else
		give_lease(p);
}

static void drive(void *arg)
{
	struct pool *p = arg;

	if (p->o.space->broken || p->busy)
		return;
	if (sigbus_hit(p->o.space->base)) {
		space_break(p->o.space, "a client truncated or punched its shared memory");
		return;
	}
	switch (p->state) {
	case POOL_NONE:
		drive_none(p);
		return;
	case POOL_READING:
		drive_reading(p);
		return;
	case POOL_OPEN:
		drive_open(p);
		return;
	case POOL_WRITING:
		drive_writing(p);
		return;
	case POOL_ASKED:
		drive_asked(p);
		return;
	case POOL_RELEASING:
		return;
	}
}

/* The value is in the word before the note says so: a daemon that comes after this one believes the word then. */
static void open_it(struct pool *p, uint32_t value)
{
	pool_word_set(p, value);
	become(p, POOL_OPEN);
	p->wanted = false;
	p->written = now_of(p);
	note_record(p);
	word_open(p);
}

/* --- What the store says --- */

static void answered_get(struct pool *p, const struct pool_answer *a)
{
	uint64_t token = 0;

	if (a->error == -ENOENT) {       /* unlinked: who still has it open goes on with what he has */
		p->exists = false;
		p->version = 0;
		if (p->state == POOL_READING)
			open_it(p, pool_word_value(p));
		return;
	}
	if (a->error)
		return;
	p->version = a->version;
	p->exists = pool_record_read(a->bytes, a->n, &p->stored, &token);
	p->read = true;
	if (p->state == POOL_READING && !p->exists)
		open_it(p, pool_word_value(p));       /* what is there is none of ours, and stays */
	else if (p->state != POOL_READING && token != p->token)
		p->exists = false;               /* somebody else has had the lease since: what we have is of no use */
	else if (p->asker && p->exists) {        /* it has been made, and the answer was lost */
		pool_word_set(p, p->stored);
		note_record(p);
		answer(p->asker, 0);
	}
}

static void answered_put(struct pool *p, const struct pool_answer *a)
{
	if (a->error == -EAGAIN) {       /* perhaps our own write, whose answer was lost */
		p->read = false;
		if (p->asker)
			p->version = 0;
		ask(p, POOL_GET, 0, NULL);
		return;
	}
	if (a->error == -ENOSPC && p->asker)
		answer(p->asker, ENOSPC);
	if (a->error)
		return;
	p->version = a->version;
	p->stored = p->writing;
	p->exists = true;
	p->written = now_of(p);
	if (p->asker && p->state != POOL_READING)
		pool_word_set(p, p->stored);          /* before the note, as in open_it() */
	note_record(p);
	if (p->state == POOL_READING)
		open_it(p, p->stored);
	else if (p->asker)
		answer(p->asker, 0);
}

static void answered_remove(struct pool *p, const struct pool_answer *a)
{
	if (a->error == -EAGAIN) {
		ask(p, POOL_GET, 0, NULL);
		return;
	}
	if (a->error && a->error != -ENOENT)
		return;
	p->exists = false;
	p->version = 0;
	note_record(p);
	if (p->asker)
		answer(p->asker, 0);
}

void pool_answered(struct pool *p, const struct pool_answer *a)
{
	p->busy = false;
	p->request = NULL;
	if (p->o.space->broken)
		return;
	if (a->error && a->error != -ENOENT && a->error != -EAGAIN)
		by(p, now_of(p) + RETRY_SPAN);
	switch (p->op) {
	case POOL_GET:
		answered_get(p, a);
		break;
	case POOL_PUT:
		answered_put(p, a);
		break;
	case POOL_REMOVE:
		answered_remove(p, a);
		break;
	}
	if (!p->busy && !(a->error && a->error != -ENOENT && a->error != -EAGAIN))
		soon(p);
}

/* --- What the core says --- */

void pool_ledger_grant(struct space *s, uint32_t slot, const struct pool_lease *l)
{
	struct pool *p = pool_in(s, slot);

	if (!p)
		return;
	word_store(&note(p)[3], 0);
	word_store(&note(p)[1], l->count);
	word_store(&note(p)[0], l->first);
}

void pool_granted(struct space *s, uint32_t slot)
{
	struct pool *p = pool_in(s, slot);

	if (!p || p->state != POOL_ASKED)
		return;
	p->token = note(p)[0];
	p->revoked = p->pressed = p->read = false;
	become(p, POOL_READING);
	shm_tell(s->shm, "grant", s, slot, 0, p->token, NULL);
	if (p->o.unused && !pool_has_posts(p))
		give_lease(p);
	else
		soon(p);
}

void pool_ledger_release(struct space *s, uint32_t slot)
{
	struct pool *p = pool_in(s, slot);

	if (!p)
		return;
	word_store(&note(p)[0], 0);
	shm_tell(s->shm, "release", s, slot, 0, 0, NULL);
}

void pool_forgotten(struct space *s, uint32_t slot)
{
	struct pool *p = pool_in(s, slot);

	if (!p)
		return;
	become(p, POOL_NONE);
	if (p->o.space->broken && p->o.unused)
		object_end(&p->o);
	else
		soon(p);
}

void pool_refused(struct space *s, uint32_t slot, int error)
{
	struct pool *p = pool_in(s, slot);

	if (!p || p->state != POOL_ASKED)
		return;
	become(p, POOL_NONE);
	p->leaving |= error == -ESHUTDOWN;
	if (p->o.space->broken && p->o.unused)
		object_end(&p->o);
	else
		by(p, loop_now(s->shm->loop) + RETRY_SPAN);
}

void pool_revoke(struct space *s, uint32_t slot, bool pressed)
{
	struct pool *p = pool_in(s, slot);

	if (!p || s->broken)
		return;
	p->revoked = true;
	p->pressed = pressed;
	soon(p);
}

bool pool_lease(const struct space *s, uint32_t slot, struct pool_lease *ret)
{
	const struct pool *p = pool_in(s, slot);

	if (!p || !p->o.note || !note(p)[0])
		return false;
	*ret = (struct pool_lease){ note(p)[0], note(p)[1] };
	return true;
}

/* --- As an object --- */

static void begin(struct pool *p)
{
	loop_timer_init(&p->timer, drive, p);
	loop_defer_init(&p->defer, drive, p);
	pool_watch_begin(p);
}

static int make(struct object *o, uint32_t arg)
{
	struct pool *p = pool_of(o);

	(void)arg;
	if (!ops_of(p)->pool)
		return -ENOTSUP;
	begin(p);
	for (unsigned i = 1; i < 8; i++)
		word_store(&object_words(o, o->slot)[i], 0);
	word_store(&pool_words(p)->value, POOL_CLOSED);
	return 0;
}

static void ring(struct object *o, struct account *a)
{
	struct pool *p = pool_of(o);

	(void)a;
	if (o->space->broken)
		return;
	p->wanted |= p->state == POOL_NONE || p->state == POOL_RELEASING;
	pool_watch(p);
	soon(p);
}

/* It may have owed a wake-up to others, or the daemon a ring, or had one that was for them. */
static void leave(struct object *o, struct account *a, bool died)
{
	struct pool *p = pool_of(o);

	if (p->asker == a)
		p->asker = NULL;
	if (!died || o->space->broken)
		return;
	pool_word_wake(p);
	soon(p);
}

/* The value goes to the store, then the lease back. In a broken space there is no value any more. */
static void unused(struct object *o)
{
	struct pool *p = pool_of(o);
	const struct pool_ops *ops = ops_of(p)->pool;

	if (o->space->broken) {
		if (p->busy)
			ops->drop(ops_of(p)->arg, p);
		p->busy = false;
	}
	if (p->state == POOL_NONE && !pool_has_posts(p))
		object_end(o);
	else if (((p->state == POOL_ASKED || p->state == POOL_READING) && !pool_has_posts(p)) ||
		 (o->space->broken && p->state != POOL_RELEASING))
		give_lease(p);
	else if (!o->space->broken)
		soon(p);
}

static int recall(struct object *o)
{
	struct pool *p = pool_of(o);
	struct pool_lease l;

	begin(p);
	if (!pool_lease(o->space, o->slot, &l))
		return 0;
	p->token = l.first;
	p->version = note(p)[2];
	p->exists = note(p)[3] & NOTE_EXISTS;
	p->stored = (uint32_t)(note(p)[3] >> 32);
	p->state = note(p)[3] & NOTE_OPENED ? POOL_OPEN : POOL_READING;
	return 0;
}

/* What was closed on its way to the store is opened again: it has not gone. All are woken, and whoever sleeps again rings. */
static void adopt(struct object *o)
{
	struct pool *p = pool_of(o);

	FAULT_AROUND(seg_watched_set(o->space->base, o->slot, false));
	if (p->state == POOL_OPEN)
		word_open(p);
	else
		pool_word_close(p);
	p->wanted = true;
	soon(p);
}

static void lapse(struct object *o)
{
	struct pool *p = pool_of(o);
	const struct pool_ops *ops = ops_of(p)->pool;

	if (p->busy)
		ops->drop(ops_of(p)->arg, p);
	p->busy = false;
	p->revoked = p->pressed = false;
	word_store(&note(p)[0], 0);
	if (!o->space->broken)
		pool_word_close(p);
	if (p->state != POOL_ASKED)
		become(p, POOL_NONE);
	if (o->unused && p->state == POOL_NONE && (o->space->broken || !pool_has_posts(p)))
		object_end(o);
	else if (!o->space->broken)
		soon(p);
}

static void done(struct object *o)
{
	struct pool *p = pool_of(o);
	const struct pool_ops *ops = ops_of(p)->pool;

	if (p->busy)
		ops->drop(ops_of(p)->arg, p);
	pool_watch_end(p);
	loop_timer_cancel(o->space->shm->loop, &p->timer);
	loop_defer_cancel(o->space->shm->loop, &p->defer);
}

const struct object_kind pool_kind = {
	.size = sizeof(struct pool), .account_size = sizeof(struct account),
	.make = make, .ring = ring, .leave = leave, .unused = unused, .broken = unused, .recall = recall, .adopt = adopt, .lapse = lapse, .free = done,
};
