/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "core_rig.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/range.h"

#include <setjmp.h>
#include <cmocka.h>

#define TRACE_MAX (1 << 16)

static void *rig_alloc(void *arg, size_t n)
{
	struct rig *r = arg;

	if (!r->countdown)
		return NULL;
	if (r->countdown > 0)
		r->countdown--;
	r->bytes += n;
	r->allocs++;
	if (r->bytes > r->peak)
		r->peak = r->bytes;
	void *p = malloc(n);
	assert_non_null(p);
	memset(p, 0xa5, n);
	return p;
}

static void rig_free(void *arg, void *p, size_t n)
{
	struct rig *r = arg;

	assert_non_null(p);
	assert_true(r->bytes >= n);
	r->bytes -= n;
	free(p);
}

struct core_memory rig_memory(struct rig *r)
{
	return (struct core_memory){ .alloc = rig_alloc, .free = rig_free, .arg = r, .seed = { 1, 2 } };
}

void rig_init(struct rig *r)
{
	*r = (struct rig){ .countdown = -1, .now = 1000000000 };
	r->trace = calloc(1, TRACE_MAX);
	r->mem = rig_memory(r);
	assert_int_equal(core_create(&r->mem, &r->core), 0);
}

void rig_done(struct rig *r)
{
	core_free(r->core);
	assert_int_equal(r->bytes, 0);
	free(r->trace);
}

__attribute__((format(printf, 2, 3)))
static void trace(struct rig *r, const char *format, ...)
{
	va_list ap;

	if (r->silent)
		return;
	va_start(ap, format);
	int n = vsnprintf(r->trace + r->trace_len, TRACE_MAX - r->trace_len, format, ap);
	va_end(ap);
	assert_true(n >= 0 && r->trace_len + (size_t)n < TRACE_MAX);
	r->trace_len += (size_t)n;
}

void rig_forget(struct rig *r)
{
	r->trace_len = 0;
	r->trace[0] = '\0';
}

void rig_expect(struct rig *r, const char *text)
{
	assert_string_equal(r->trace, text);
	rig_forget(r);
}

const char *rig_errno_name(int error)
{
	switch (error) {
#define X(name, number) case -number: return #name;
	CORE_ERRNOS(X)
#undef X
	case -EIO: return "EIO";
	case -ENOSPC: return "ENOSPC";
	}
	return "?";
}

static void trace_event(struct rig *r, const struct core_event *ev)
{
	trace(r, "%s", core_event_name(ev->kind));
	switch (ev->kind) {
	case CORE_EV_START:
		trace(r, " %" PRIu64 ".%u", ev->start.session, ev->start.incarnation);
		break;
	case CORE_EV_ADOPT:
		trace(r, " %u %.*s", ev->adopt.ref, ev->adopt.key_len, (const char *)ev->adopt.key);
		break;
	case CORE_EV_CLAIM:
		trace(r, " %u %.*s", ev->claim.ref, ev->claim.key_len, (const char *)ev->claim.key);
		break;
	case CORE_EV_REFILL:
		trace(r, " %u %" PRIu64, ev->refill.ref, ev->refill.used);
		break;
	case CORE_EV_RELEASE:
		trace(r, " %u %" PRIu64, ev->release.ref, ev->release.used);
		break;
	case CORE_EV_STORE:
		if (ev->store.error)
			trace(r, " %s", rig_errno_name(ev->store.error));
		else
			trace(r, " version %" PRIu64, ev->store.version);
		break;
	case CORE_EV_CHANGE:
		trace(r, " %u %u %u", ev->change.ref, ev->change.held, ev->change.wanted);
		break;
	case CORE_EV_RESIZE:
		trace(r, " %u %u", ev->resize.ref, ev->resize.limit);
		break;
	case CORE_EV_ADOPT_BARRIER:
	case CORE_EV_ADOPT_PARTY:
	case CORE_EV_ARRIVE:
	case CORE_EV_WITHDRAW:
	case CORE_EV_DEPART:
	case CORE_EV_RESET:
	case CORE_EV_CLOSE:
		trace(r, " %u party %" PRIu64, ev->barrier.ref, ev->barrier.party);
		break;
	case CORE_EV_KEEP:
		trace(r, " %u", ev->keep.ref);
		break;
	case CORE_EV_PROCLAIM:
		trace(r, " %u", ev->proclaim.ref);
		break;
	case CORE_EV_OBSERVE:
		trace(r, " %u", ev->observe.ref);
		break;
	case CORE_EV_ENQUIRE:
	case CORE_EV_LINK_UP:
	case CORE_EV_LINK_DOWN:
	case CORE_EV_RECV:
	case CORE_EV_HINT:
	case CORE_EV_LOSS_DONE:
	case CORE_EV_DRAIN:
	case CORE_EV_LEAVE:
	case CORE_EV_TIMER:
	case CORE_EV_CONTINUE:
		break;
	}
	trace(r, "\n");
}

/* "7.1 epoch 2" if that holds for all shards, else the shards that differ from the first as well. */
static void trace_map(struct rig *r, const void *value, uint32_t len)
{
	struct map m;

	assert_int_equal(map_decode(value, len, &m), 0);
	for (unsigned i = 0; i < CORE_SHARDS; i++) {
		const struct map_reign *s = &m.shard[i];

		if (!i)
			trace(r, " %" PRIu64 ".%u epoch %u", s->master.session, s->master.incarnation, s->epoch);
		else if (!msg_peer_same(s->master, m.shard[0].master) || s->epoch != m.shard[0].epoch)
			trace(r, ", shard %u %" PRIu64 ".%u epoch %u", i, s->master.session, s->master.incarnation, s->epoch);
	}
}

static void trace_range(struct rig *r, struct core_range x)
{
	trace(r, " %u:%" PRIu64 "+%" PRIu64, token_epoch(x.first), token_counter(x.first), x.count);
}

static void trace_action(struct rig *r, const struct core_action *a)
{
	trace(r, "  %s", core_action_name(a->kind));
	switch (a->kind) {
	case CORE_ACT_STORE_GET:
		trace(r, " %s", a->store.key);
		break;
	case CORE_ACT_STORE_CAS:
		trace(r, " %s version %" PRIu64 ":", a->store.key, a->store.version);
		trace_map(r, a->store.value, a->store.value_len);
		break;
	case CORE_ACT_LEDGER_GRANT:
	case CORE_ACT_GRANT:
		trace(r, " %u", a->name.ref);
		trace_range(r, a->name.range);
		break;
	case CORE_ACT_LEDGER_RELEASE:
	case CORE_ACT_FORGOTTEN:
		trace(r, " %u", a->name.ref);
		break;
	case CORE_ACT_OPENED:
		trace(r, " epoch %u", a->node.epoch);
		break;
	case CORE_ACT_REFUSED:
		trace(r, " %u %s", a->name.ref, rig_errno_name(a->name.error));
		break;
	case CORE_ACT_STORE_LIST:
	case CORE_ACT_SEND:
	case CORE_ACT_LINK:
	case CORE_ACT_UNLINK:
	case CORE_ACT_RELAYED:
	case CORE_ACT_COMPLAINT:
	case CORE_ACT_ENDED:
	case CORE_ACT_ODD:
	case CORE_ACT_CUT_OFF:
	case CORE_ACT_DEADLINE:
	case CORE_ACT_JEOPARDY:
	case CORE_ACT_LOSS:
	case CORE_ACT_LAPSED:
	case CORE_ACT_SESSION:
	case CORE_ACT_DRAINED:
	case CORE_ACT_LEFT:
	case CORE_ACT_ACCOUNT:
		fail_msg("a node that is alone does not %s", core_action_name(a->kind));
		break;
	case CORE_ACT_REVOKE:
	case CORE_ACT_CHANGED:
	case CORE_ACT_RESIZED:
	case CORE_ACT_OBSERVED:
	case CORE_ACT_NEWS:
		trace(r, " %u %u", a->name.ref, a->name.weight);
		break;
	case CORE_ACT_LEDGER_ARRIVE:
		trace(r, " %u party %" PRIu64 " order %" PRIu64 "%s", a->barrier.ref, a->barrier.party, a->barrier.order,
		      a->barrier.yes ? " yes" : " no");
		break;
	case CORE_ACT_LEDGER_BARRIER: {
		static const char *const states[] = { "out", "in", "told" };
		const struct core_barrier *x = a->barrier.record;

		trace(r, " %u %s of %u", a->barrier.ref, states[x->state], x->parties);
		if (x->state != CORE_BARRIER_OUT)
			trace(r, " round %u:%" PRIu64 " upto %" PRIu64, token_epoch(x->now.round), token_counter(x->now.round), x->upto);
		break;
	}
	case CORE_ACT_VERDICT:
		trace(r, " %u party %" PRIu64 " round %u:%" PRIu64 " %s%s%s", a->barrier.ref, a->barrier.party,
		      token_epoch(a->barrier.round), token_counter(a->barrier.round),
		      a->barrier.error ? rig_errno_name(a->barrier.error) : "passed", a->barrier.yes ? " yes" : "",
		      a->barrier.serial ? " serial" : "");
		break;
	case CORE_ACT_RESET_DONE:
		trace(r, " %u", a->barrier.ref);
		break;
	case CORE_ACT_TIMER:
		trace(r, " in %" PRIu64 " ms", (a->timer.when - r->now) / 1000000);
		break;
	case CORE_ACT_FATAL:
		trace(r, " %s: %s", rig_errno_name(a->node.error), a->node.why);
		break;
	}
	trace(r, "\n");
}

int rig_step(struct rig *r, const struct core_event *event)
{
	struct core_event ev = *event;

	ev.now = r->now;
	trace_event(r, &ev);
	int e = core_step(r->core, &ev, &r->actions);
	for (unsigned i = 0; i < r->actions.n; i++)
		trace_action(r, &r->actions.v[i]);
	if (e < 0) {
		assert_int_equal(r->actions.n, 0);
		trace(r, "  = %s\n", rig_errno_name(e));
	}
	if (r->actions.more)
		trace(r, "  ...\n");
	return e;
}

int rig_start(struct rig *r, uint64_t session, uint32_t incarnation)
{
	return rig_step(r, &(struct core_event){ .kind = CORE_EV_START, .start = { .session = session, .incarnation = incarnation } });
}

int rig_adopt(struct rig *r, core_ref_t ref, const char *key, uint32_t epoch, uint64_t counter, uint64_t count)
{
	return rig_step(r, &(struct core_event){ .kind = CORE_EV_ADOPT, .adopt = {
		.ref = ref, .key = key, .key_len = (uint16_t)strlen(key),
		.range = { token_make(epoch, counter), count } } });
}

int rig_claim(struct rig *r, core_ref_t ref, const char *key)
{
	return rig_step(r, &(struct core_event){ .kind = CORE_EV_CLAIM, .claim = { ref, key, (uint16_t)strlen(key) } });
}

int rig_refill(struct rig *r, core_ref_t ref, uint64_t used)
{
	return rig_step(r, &(struct core_event){ .kind = CORE_EV_REFILL, .refill = { ref, used } });
}

int rig_release(struct rig *r, core_ref_t ref, uint64_t used)
{
	return rig_step(r, &(struct core_event){ .kind = CORE_EV_RELEASE, .release = { ref, used } });
}

int rig_timer(struct rig *r)
{
	return rig_step(r, &(struct core_event){ .kind = CORE_EV_TIMER });
}

int rig_continue(struct rig *r)
{
	return rig_step(r, &(struct core_event){ .kind = CORE_EV_CONTINUE });
}

int rig_store(struct rig *r, int error, const void *value, uint32_t len, uint64_t version)
{
	return rig_step(r, &(struct core_event){ .kind = CORE_EV_STORE, .store = {
		.op = r->core->reign.op, .error = error, .value = value, .value_len = len, .version = version } });
}

int rig_store_error(struct rig *r, int error)
{
	return rig_store(r, error, NULL, 0, 0);
}

int rig_store_absent(struct rig *r)
{
	return rig_store(r, 0, NULL, 0, 0);
}

int rig_store_landed(struct rig *r, uint64_t version)
{
	return rig_store(r, 0, NULL, 0, version);
}

struct map rig_map(uint64_t session, uint32_t incarnation, uint32_t epoch)
{
	struct map m;

	for (unsigned i = 0; i < CORE_SHARDS; i++)
		m.shard[i] = (struct map_reign){ { session, incarnation }, epoch };
	return m;
}

int rig_store_map(struct rig *r, uint64_t version, uint64_t session, uint32_t incarnation, uint32_t epoch)
{
	struct map m = rig_map(session, incarnation, epoch);
	uint8_t bytes[MAP_BYTES];

	map_encode(&m, bytes);
	return rig_store(r, 0, bytes, sizeof bytes, version);
}

void rig_open(struct rig *r)
{
	rig_init(r);
	assert_int_equal(rig_start(r, 7, 1), 0);
	assert_int_equal(rig_store_absent(r), 0);
	assert_int_equal(rig_store_landed(r, 1), 0);
	rig_expect(r, "START 7.1\n  STORE_GET map\n"
		   "STORE version 0\n  STORE_CAS map version 0: 7.1 epoch 1\n"
		   "STORE version 1\n  OPENED epoch 1\n");
}
