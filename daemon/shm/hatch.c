/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Requests by way of memory, and rings (hatch.h).
 *
 * A space is hot from when its bell has been rung for a reason until the daemon goes to sleep: then its clients need no bell,
 * since each turn, and each look before sleeping, sees their bits, and that they have rung. Some bits in a row behind which nothing stands, or rings
 * for nothing, end it, so that whoever sets them for fun has to ring for each, and the bell is rationed (watch.c).
 *
 * `heard` and `answered` are the daemon's, but clients can write to them. What comes of that is a client that says the same twice.
 */
#include <errno.h>
#include <fcntl.h>

#include "../../include/proto/hatch.h"
#include "files.h"
#include "shm.h"
#include "sigbus.h"
#include "word.h"

#define SWEEP_SPAN (4 * NSEC_PER_MSEC)   /* so long a drop may wait that nothing follows */
#define VAIN_MAX 8                       /* one may be heard twice: by the bell, and by what it has set before that */

static void hatch_sweep(void *arg);

static void awake_set(struct space *s, enum seg_awake to)
{
	FAULT_AROUND(__atomic_store_n(seg_awake(s->base), to, __ATOMIC_SEQ_CST));
}

int hatches_begin(struct space *s)
{
	uint64_t era;
	int r = files_random(&era, sizeof era);

	if (r < 0)
		return r;
	r = files_room(s->fd, (off_t)SEG_HATCH1_OFF, SEG_HATCH1_SIZE);
	if (r < 0)
		return r;
	word_store(seg_era(s->base), era | 1);
	__atomic_store_n(seg_belled(s->base), 0, __ATOMIC_SEQ_CST);
	awake_set(s, SEG_ASLEEP);
	loop_timer_init(&s->sweep_timer, hatch_sweep, s);
	return 0;
}

/* --- one hatch --- */

static bool hatch_drops(struct space *s, struct client *c, struct hatch *h)
{
	uint32_t heard = __atomic_load_n(&h->heard, __ATOMIC_RELAXED), n = __atomic_load_n(&h->drops, __ATOMIC_ACQUIRE) - heard;
	bool any = false;

	if (n > HATCH_DROPS)             /* scribbled: none of them means anything */
		FAULT_AROUND(__atomic_store_n(&h->heard, heard + n, __ATOMIC_RELEASE));
	for (n = n > HATCH_DROPS ? 0 : n; n; n--) {
		uint32_t slot = __atomic_load_n(&h->drop[heard % HATCH_DROPS], __ATOMIC_RELAXED);

		/* First: whoever is told that it was heard, but has no answer to anything later, says it again (conn.c of the library). */
		heard++;
		FAULT_AROUND(__atomic_store_n(&h->heard, heard, __ATOMIC_RELEASE));
		any |= client_close(c, s->shm, s, slot) == 0;
	}
	return any;
}

/* Returns whether there was anything to do. */
static bool hatch_serve(struct space *s, struct client *c)
{
	struct hatch *h = seg_hatch(s->base, c->index);
	uint32_t asked = __atomic_load_n(&h->asked, __ATOMIC_ACQUIRE);
	bool asks = asked != __atomic_load_n(&h->answered, __ATOMIC_RELAXED) && !conn_asked(c->conn, s, asked), any;
	struct hatch_open open;

	if (!asks && __atomic_load_n(&h->drops, __ATOMIC_RELAXED) == __atomic_load_n(&h->heard, __ATOMIC_RELAXED))
		return false;
	if (!conn_settle(c->conn))
		return false;
	any = hatch_drops(s, c, h);
	if (!asks)
		return any;
	open = h->open;
	conn_ask(c->conn, s, asked, &open);
	return true;
}

/* Before it is connected anew, what stands there is void. */
static bool may_serve(const struct space *s, const struct client *c)
{
	return !s->broken && c && c->conn && conn_has_hatch(c->conn);
}

void hatches_serve(struct client *c, struct shm *shm)
{
	for (uint16_t i = 0; i < c->n_spaces; i++) {
		struct space *s = shm->spaces[c->spaces[i]];

		if (s && may_serve(s, c))
			hatch_serve(s, c);
	}
}

void hatches_void(struct client *c, struct shm *shm)
{
	for (uint16_t i = 0; i < c->n_spaces; i++) {
		struct space *s = shm->spaces[c->spaces[i]];
		struct hatch *h = s && !s->broken ? seg_hatch(s->base, c->index) : NULL;

		if (!h)
			continue;
		FAULT_AROUND(__atomic_store_n(&h->heard, __atomic_load_n(&h->drops, __ATOMIC_RELAXED), __ATOMIC_RELEASE));
		FAULT_AROUND(__atomic_store_n(&h->answered, __atomic_load_n(&h->asked, __ATOMIC_RELAXED), __ATOMIC_RELEASE));
	}
}

void hatch_answer(struct space *s, uint32_t client, uint32_t asked, int error, uint32_t slot)
{
	struct hatch *h = seg_hatch(s->base, client);

	__atomic_store_n(&h->error, -error, __ATOMIC_RELAXED);
	__atomic_store_n(&h->slot, slot, __ATOMIC_RELAXED);
	FAULT_AROUND(__atomic_store_n(&h->answered, asked, __ATOMIC_SEQ_CST));
	if (__atomic_exchange_n(&h->sleeps, 0, __ATOMIC_SEQ_CST))
		loop_wake(s->shm->loop, &h->answered);
}

/* --- all of a space --- */

static bool hatch_any(const struct space *s)
{
	const uint64_t *two = seg_hatch_level2(s->base);
	uint64_t any = __atomic_load_n(seg_rung(s->base), __ATOMIC_SEQ_CST);

	for (unsigned i = 0; i < SEG_HATCH2_WORDS; i++)
		any |= __atomic_load_n(&two[i], __ATOMIC_SEQ_CST);
	return any;
}

static bool hatch_word(struct space *s, uint32_t i, unsigned *cost)
{
	bool any = false;

	for (uint64_t bits = __atomic_exchange_n(&seg_hatch_level1(s->base)[i], 0, __ATOMIC_SEQ_CST); bits; bits &= bits - 1) {
		struct client *c = s->shm->clients[i * 64 + (uint32_t)__builtin_ctzll(bits)];

		++*cost;
		if (client_is_in(c, s) && may_serve(s, c))
			any |= hatch_serve(s, c);
	}
	return any;
}

/* Each bit is cleared before what it stands for is read. */
static bool hatch_scan(struct space *s, unsigned *cost)
{
	uint64_t *two = seg_hatch_level2(s->base);
	bool any = false;

	for (uint32_t i = 0; i < SEG_HATCH2_WORDS && !s->broken; i++) {
		if (!__atomic_load_n(&two[i], __ATOMIC_RELAXED))
			continue;
		for (uint64_t bits = __atomic_exchange_n(&two[i], 0, __ATOMIC_SEQ_CST); bits; bits &= bits - 1) {
			++*cost;
			any |= hatch_word(s, i * 64 + (uint32_t)__builtin_ctzll(bits), cost);
		}
	}
	return any;
}

/* Afterwards it rings who comes. Whoever came before that has his bit set: it is for the caller to look once more. What is in no hurry waits for the sweep. */
void hatches_end(struct space *s)
{
	struct space **at = &s->shm->hot;

	if (!s->hot)
		return;
	while (*at != s)
		at = &(*at)->hot_next;
	*at = s->hot_next;
	s->hot = false;
	awake_set(s, SEG_DOZES);         /* the sweep is under way, and ends that */
}

bool hatch_bell(struct space *s, unsigned *cost)
{
	*cost = 0;
	__atomic_store_n(seg_belled(s->base), 0, __ATOMIC_SEQ_CST);
	__atomic_exchange_n(seg_rung(s->base), 0, __ATOMIC_SEQ_CST);
	return hatch_scan(s, cost);
}

void hatches_hot(struct space *s)
{
	if (s->hot || s->broken || !s->shm->running)
		return;
	s->hot = true;
	s->in_vain = 0;
	s->hot_next = s->shm->hot;
	s->shm->hot = s;
	awake_set(s, SEG_AWAKE);
	if (!s->sweep_timer.queued)
		loop_timer_set(s->shm->loop, &s->sweep_timer, loop_now(s->shm->loop) + SWEEP_SPAN);
}

/* What was said without hurry. */
static void hatch_sweep(void *arg)
{
	struct space *s = arg;
	unsigned cost = 0;

	if (s->broken)
		return;
	if (!s->hot)
		awake_set(s, SEG_ASLEEP);
	for (uint32_t i = 0; i < SEG_HATCH_WORDS && !s->broken; i++)
		if (__atomic_load_n(&seg_hatch_level1(s->base)[i], __ATOMIC_SEQ_CST))
			hatch_word(s, i, &cost);
	if (sigbus_hit(s->base))
		space_break(s, "a client truncated or punched its shared memory");
	else if (s->hot)
		loop_timer_set(s->shm->loop, &s->sweep_timer, loop_now(s->shm->loop) + SWEEP_SPAN);
}

/* --- what the loop asks --- */

/* Returns whether there was a reason. */
static bool hatch_look(struct space *s)
{
	unsigned cost = 0;

	return __atomic_load_n(seg_rung(s->base), __ATOMIC_RELAXED) ? watch_scan(s) : hatch_scan(s, &cost);
}

static bool look_peek(void *arg)
{
	const struct shm *shm = arg;

	for (const struct space *s = shm->hot; s; s = s->hot_next)
		if (hatch_any(s))
			return true;
	return false;
}

static bool look_run(void *arg)
{
	struct shm *shm = arg;
	bool any = false;

	for (struct space *s = shm->hot, *next; s; s = next) {
		next = s->hot_next;
		if (!hatch_any(s))
			continue;
		if (hatch_look(s)) {
			s->in_vain = 0;
			any = true;
		} else if (++s->in_vain == VAIN_MAX) {
			hatches_end(s);
			if (!s->broken)
				hatch_look(s);
		}
		if (sigbus_hit(s->base))
			space_break(s, "a client truncated or punched its shared memory");
	}
	return any;
}

static bool look_rest(void *arg)
{
	struct shm *shm = arg;
	bool more = false;

	for (struct space *s = shm->hot, *next; s; s = next) {
		next = s->hot_next;
		__atomic_store_n(seg_belled(s->base), 0, __ATOMIC_SEQ_CST);
		awake_set(s, SEG_DOZES);
		if (hatch_any(s)) {
			awake_set(s, SEG_AWAKE);
			more = true;
		} else {
			hatches_end(s);
		}
	}
	return !more;
}

void hatches_start(struct shm *shm)
{
	shm->look = (struct loop_look){ look_peek, look_run, look_rest, shm };
	loop_set_look(shm->loop, &shm->look);
}
