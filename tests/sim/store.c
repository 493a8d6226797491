/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The store: linearizable underneath, and as unreliable as a network makes it. A request travels,
 * takes effect at one moment or never, and its answer travels back, or is lost.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/beat.h"
#include "core/map.h"
#include "sim.h"

struct request {
	enum core_action_kind kind;
	const struct node *by;
	uint32_t op;
	char key[32];
	uint8_t value[1200];
	uint32_t size;
	bool erase;
	uint64_t version;
	int error;                       /* the answer's */
	bool lost;
	struct record *found;            /* copies */
	size_t found_n;
};

static uint64_t latency(struct sim *s, const struct node *n)
{
	uint64_t span = MSEC + sim_random(s, 8 * MSEC);

	if (s->now < n->store_lag_until && sim_chance(s, 50))
		span += sim_random(s, 2 * SEC);
	return span;
}

/* How late the answer to a read may come, where each kind of read has its own troubles. Beats are not touched. */
static uint64_t read_lag(struct sim *s, const struct node *n, const struct request *r)
{
	uint64_t until = r->kind == CORE_ACT_STORE_LIST ? n->list_lag_until :
			 r->kind == CORE_ACT_STORE_GET && !strcmp(r->key, "map") ? n->get_lag_until : 0;

	if (s->now >= until || sim_chance(s, 20))
		return 0;
	s->counts->late_reads++;
	return 200 * MSEC + sim_random(s, 1300 * MSEC);
}

static struct record *record_find(struct sim *s, const char *key)
{
	for (size_t i = 0; i < s->records_n; i++)
		if (!strcmp(s->records[i].key, key))
			return &s->records[i];
	return NULL;
}

static void copy(struct request *r, const struct record *from)
{
	struct record *to = &r->found[r->found_n++];

	*to = *from;
	to->value = malloc(from->size + 1);
	memcpy(to->value, from->value, from->size);
}

static void hint(struct sim *s, struct event *e)
{
	if (e->node->generation == e->generation && node_ready(s, e->node)) {
		s->counts->hints++;
		node_give(s, e->node, &(struct core_event){ .kind = CORE_EV_HINT });
	}
	sim_event_free(s, e);
}

static void cas(struct sim *s, struct request *r)
{
	struct record *rec = record_find(s, r->key);

	if ((rec ? rec->version : 0) != r->version) {
		r->error = -EAGAIN;
		return;
	}
	if (!rec) {
		s->records = realloc(s->records, (s->records_n + 1) * sizeof *s->records);
		rec = &s->records[s->records_n++];
		memset(rec, 0, sizeof *rec);
		snprintf(rec->key, sizeof rec->key, "%s", r->key);
	}
	judge_record(s, r->by, r->key, r->value, r->size);
	free(rec->value);
	rec->value = malloc(r->size + 1);
	memcpy(rec->value, r->value, r->size);
	rec->size = r->size;
	rec->version = r->erase ? 0 : ++s->version;
	r->version = rec->version;
	for (unsigned i = 0; strncmp(r->key, "beat/", 5) && i < s->nodes; i++)
		if (sim_chance(s, 50))
			sim_after(s, latency(s, &s->node[i]), hint, &s->node[i], 0, 0);
}

static void execute(struct sim *s, struct request *r)
{
	const struct record *rec;

	s->counts->store_ops++;
	switch (r->kind) {
	case CORE_ACT_STORE_GET:
		r->found = calloc(1, sizeof *r->found);
		rec = record_find(s, r->key);
		if (rec && rec->version)
			copy(r, rec);
		r->version = rec ? rec->version : 0;
		return;
	case CORE_ACT_STORE_LIST:
		r->found = calloc(s->records_n + 1, sizeof *r->found);
		for (size_t i = 0; i < s->records_n; i++)
			if (s->records[i].version && !strncmp(s->records[i].key, r->key, strlen(r->key)))
				copy(r, &s->records[i]);
		return;
	default:
		cas(s, r);
	}
}

static void request_done(void *data)
{
	struct request *r = data;

	for (size_t i = 0; i < r->found_n; i++)
		free(r->found[i].value);
	free(r->found);
	r->found = NULL;
	r->found_n = 0;
}

static void answered(struct sim *s, struct event *e)
{
	struct node *n = e->node;
	struct request *r = e->data;

	if (!node_takes(s, e, true))
		return;
	struct core_event ev = { .kind = CORE_EV_STORE, .store = { .op = r->op, .error = r->error } };
	struct core_record *list = calloc(r->found_n + 1, sizeof *list);

	if (!r->error) {
		ev.store.version = r->version;
		for (size_t i = 0; i < r->found_n; i++)
			list[i] = (struct core_record){ r->found[i].key, r->found[i].value, r->found[i].size, r->found[i].version };
		ev.store.records = list;
		ev.store.records_n = (uint32_t)r->found_n;
		if (r->kind == CORE_ACT_STORE_GET && r->found_n) {
			ev.store.value = list[0].value;
			ev.store.value_len = list[0].value_len;
		}
	}
	node_give(s, n, &ev);
	free(list);
	sim_event_free(s, e);
}

static struct event *later(struct sim *s, uint64_t span, event_fn fn, struct node *n, struct request *r)
{
	struct event *e = sim_after(s, span, fn, n, 0, 0);

	e->data = r;
	e->data_done = request_done;
	return e;
}

/* The request arrives, if it does. */
static void arrives(struct sim *s, struct event *e)
{
	struct request *r = e->data;
	bool reachable = !s->store_down && !e->node->store_cut;
	uint64_t back = latency(s, e->node);

	if (!reachable) {
		r->error = -ETIMEDOUT;
		back = 100 * MSEC + sim_random(s, 500 * MSEC);
	} else if (s->faults && s->now < e->node->unwritable_until && r->kind == CORE_ACT_STORE_CAS) {
		r->error = -EIO;
		s->counts->store_full++;
	} else if (s->faults && sim_random(s, 1000) < s->rate[0]) {
		r->error = sim_chance(s, 50) ? -EIO : -ETIMEDOUT;
		s->counts->store_errors++;
	} else {
		execute(s, r);
		back += read_lag(s, e->node, r);
		if (s->faults && sim_random(s, 1000) < s->rate[1]) {
			r->error = -ETIMEDOUT;
			s->counts->store_lost_after++;
			back = 100 * MSEC + sim_random(s, 500 * MSEC);
			/* Which may be how it begins: what became of it can be read, but no more is written. */
			if (!strncmp(r->key, BEAT_PREFIX, sizeof BEAT_PREFIX - 1) && sim_chance(s, 10))
				e->node->unwritable_until = s->now + 1 * SEC + sim_random(s, 3 * SEC);
		}
	}
	struct event *answer = later(s, back, answered, e->node, r);
	answer->generation = e->generation;
	e->data = NULL;
	sim_event_free(s, e);
}

/* It said that it had timed out, and arrives after all. */
static void arrives_late(struct sim *s, struct event *e)
{
	struct request *r = e->data;

	execute(s, r);
	sim_event_free(s, e);
}

void store_request(struct sim *s, struct node *n, const struct core_action *a)
{
	struct request *r = calloc(1, sizeof *r);

	r->kind = a->kind;
	r->by = n;
	r->op = a->store.op;
	snprintf(r->key, sizeof r->key, "%s", a->store.key);
	r->version = a->kind == CORE_ACT_STORE_CAS ? a->store.version : 0;
	r->erase = !a->store.value;
	r->size = a->store.value ? a->store.value_len : 0;
	if (r->size > sizeof r->value)
		abort();
	if (r->size)
		memcpy(r->value, a->store.value, r->size);
	if (a->kind == CORE_ACT_STORE_CAS && s->faults && sim_random(s, 1000) < s->rate[2]) {
		struct request *late = malloc(sizeof *late);

		*late = *r;
		s->counts->store_lost_before++;
		later(s, sim_random(s, 3 * SEC), arrives_late, n, late);
		r->error = -ETIMEDOUT;
		later(s, 100 * MSEC + sim_random(s, 500 * MSEC), answered, n, r);
		return;
	}
	uint64_t span = latency(s, n);
	if (a->kind == CORE_ACT_STORE_CAS && s->now < n->record_lag_until && !strncmp(r->key, "member/", 7)) {
		span += 200 * MSEC + sim_random(s, 800 * MSEC);
		s->counts->late_records++;
	}
	later(s, span, arrives, n, r);
}

/* false: there is none. */
bool store_map(struct sim *s, struct clustermap *ret)
{
	const struct record *r = record_find(s, MAP_KEY);

	return r && r->version && clustermap_decode(r->value, r->size, ret) == 0;
}

/* The first node if there is none. */
struct node *store_coordinator(struct sim *s)
{
	struct clustermap m;

	for (unsigned i = 0; store_map(s, &m) && i < s->nodes; i++)
		if (s->node[i].session == m.coordinator)
			return &s->node[i];
	return &s->node[0];
}

bool store_session_ended(struct sim *s, uint64_t session)
{
	char key[32];
	struct beat_value v;

	snprintf(key, sizeof key, BEAT_PREFIX "%016llx", (unsigned long long)session);
	const struct record *r = record_find(s, key);
	return r && r->version && beat_decode(r->value, r->size, &v) == 0 && v.ended;
}

void store_done(struct sim *s)
{
	for (size_t i = 0; i < s->records_n; i++)
		free(s->records[i].value);
	free(s->records);
}
