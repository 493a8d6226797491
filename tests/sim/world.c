/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Time, chance and the heap of events. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define EXAM (49 * SEC)

bool sim_safety_only;

/* splitmix64 */
uint64_t sim_random(struct sim *s, uint64_t n)
{
	uint64_t z = s->rng += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	z ^= z >> 31;
	return n ? z % n : z;
}

bool sim_chance(struct sim *s, unsigned percent)
{
	return sim_random(s, 100) < percent;
}

static bool before(const struct event *a, const struct event *b)
{
	return a->at < b->at || (a->at == b->at && a->number < b->number);
}

static void heap_put(struct sim *s, struct event *e)
{
	if (s->heap_n == s->heap_max) {
		s->heap_max = s->heap_max ? 2 * s->heap_max : 1024;
		s->heap = realloc(s->heap, s->heap_max * sizeof *s->heap);
		if (!s->heap)
			abort();
	}
	size_t i = s->heap_n++;
	for (; i && before(e, s->heap[(i - 1) / 2]); i = (i - 1) / 2)
		s->heap[i] = s->heap[(i - 1) / 2];
	s->heap[i] = e;
}

static struct event *heap_get(struct sim *s)
{
	struct event *first = s->heap[0], *last = s->heap[--s->heap_n];
	size_t i = 0, k;

	for (; (k = 2 * i + 1) < s->heap_n; i = k) {
		if (k + 1 < s->heap_n && before(s->heap[k + 1], s->heap[k]))
			k++;
		if (!before(s->heap[k], last))
			break;
		s->heap[i] = s->heap[k];
	}
	s->heap[i] = last;
	return first;
}

struct event *sim_after(struct sim *s, uint64_t span, event_fn fn, struct node *n, uint64_t a, uint64_t b)
{
	struct event *e = s->free;

	if (e)
		s->free = e->next;
	else if (!(e = malloc(sizeof *e)))
		abort();
	*e = (struct event){ .at = s->now + span, .number = ++s->events_made, .fn = fn, .node = n,
			     .generation = n ? n->generation : 0, .a = a, .b = b };
	heap_put(s, e);
	return e;
}

void sim_event_free(struct sim *s, struct event *e)
{
	if (e->data && e->data_done)
		e->data_done(e->data);
	free(e->data);
	e->next = s->free;
	s->free = e;
}

uint64_t node_clock(const struct sim *s, const struct node *n)
{
	return n->offset + (uint64_t)((unsigned __int128)s->now * (uint64_t)(1000000 + n->ppm) / 1000000);
}

/* When that node's clock shows this. */
uint64_t node_clock_at(const struct sim *s, const struct node *n, uint64_t local)
{
	if (local <= node_clock(s, n))
		return s->now;
	return (uint64_t)((unsigned __int128)(local - n->offset) * 1000000 / (uint64_t)(1000000 + n->ppm)) + 1;
}

void sim_no(struct sim *s, const char *format, ...)
{
	va_list ap;

	if (s->verdict[0])
		return;
	int n = snprintf(s->verdict, sizeof s->verdict, "at %llu.%06llu: ", (unsigned long long)(s->now / SEC),
			 (unsigned long long)(s->now % SEC / 1000));
	va_start(ap, format);
	vsnprintf(s->verdict + n, sizeof s->verdict - (size_t)n, format, ap);
	va_end(ap);
	sim_trace(s, "NO: %s", s->verdict);
}

void sim_trace(struct sim *s, const char *format, ...)
{
	va_list ap;

	if (!s->trace)
		return;
	fprintf(s->trace, "%3llu.%06llu ", (unsigned long long)(s->now / SEC), (unsigned long long)(s->now % SEC / 1000));
	va_start(ap, format);
	vfprintf(s->trace, format, ap);
	va_end(ap);
	fputc('\n', s->trace);
}

static void conf_draw(struct sim *s)
{
	s->conf = (struct core_cluster){
		.ttl = 2 * SEC, .guard = 40 * MSEC, .drift_ppm = 10000, .beat = 500 * MSEC,
		.look = (100 + sim_random(s, 300)) * MSEC, .steady = sim_chance(s, 50) ? 50 * MSEC : 1 * SEC, .loss = 200 * MSEC,
	};
	s->delay = sim_chance(s, 50) ? 300 : 0;
	s->nodes = sim_chance(s, 5) ? 10 + (unsigned)sim_random(s, NODES_MAX - 9) : 3 + (unsigned)sim_random(s, 4);
	if (s->kind == RUN_STORM)
		s->nodes = 5 + (unsigned)sim_random(s, 2);
	/* Few pairs, and much that each of them has to tell the other. */
	if (s->star)
		s->nodes = 3 + (unsigned)sim_random(s, 2);
	if (s->kind == RUN_CALM)
		s->nodes = 5 + (unsigned)sim_random(s, 3);
	s->names = s->kind == RUN_STORM || s->star ? NAMES_MAX : 2 + (unsigned)sim_random(s, 10);
	for (unsigned i = 0; i < s->names; i++) {
		snprintf(s->name[i].key, sizeof s->name[i].key, "sim/%u", (unsigned)sim_random(s, 1000) * 100 + i);
		s->name[i].limit = sim_chance(s, 70) ? CORE_WEIGHT_ALL : 1 + (uint32_t)sim_random(s, 6);
		s->name[i].limit_most = s->name[i].limit;
	}
	for (unsigned i = 0; i < s->nodes; i++) {
		struct node *n = &s->node[i];

		n->id = i;
		n->host = true;
		n->generation = 1;
		n->ppm = (int64_t)sim_random(s, 10001) - 5000;
		n->offset = sim_random(s, 1000 * SEC) + SEC;
		n->inbox_end = &n->inbox;
		/* Where a name is seldom asked for, what is wrong with it is not soon mended by the next who asks. */
		n->think_max = s->kind == RUN_STORM ? 50 * MSEC : s->star ? 100 * MSEC : sim_flaps(s) && sim_chance(s, 60) ? 4 * SEC : 150 * MSEC;
	}
}

static void begins(struct sim *s, struct event *e)
{
	if (!e->node->core)
		node_start(s, e->node, false);
	clients_start(s, e->node);
	parties_start(s, e->node);
	sim_event_free(s, e);
}

static void exam(struct sim *s, struct event *e)
{
	place_exam(s);
	s->exam = s->now;
	sim_trace(s, "the end begins: each name is asked for whole");
	for (unsigned i = 0; i < s->nodes * CLIENTS_MAX; i++) {
		struct node *n = &s->node[i / CLIENTS_MAX];
		if (n->client[i % CLIENTS_MAX].state == IDLE && n->host)
			client_idle(s, n, i % CLIENTS_MAX);
	}
	sim_event_free(s, e);
}

static void sim_done(struct sim *s)
{
	struct event *next;

	for (unsigned i = 0; i < s->nodes; i++) {
		core_free(s->node[i].core);
		for (struct event *e = s->node[i].inbox; e; e = next) {
			next = e->next;
			sim_event_free(s, e);
		}
	}
	while (s->heap_n)
		sim_event_free(s, heap_get(s));
	net_done(s);
	for (struct event *e = s->free; e; e = next) {
		next = e->next;
		free(e);
	}
	free(s->heap);
	store_done(s);
}

bool sim_run(uint64_t seed, struct sim_counts *counts, FILE *trace, char ret_verdict[200])
{
	struct sim *s = calloc(1, sizeof *s);
	bool ok;

	if (!s)
		abort();
	s->seed = seed;
	s->rng = seed * 0x9e3779b97f4a7c15;
	s->counts = counts;
	s->trace = trace;
	s->faults = true;
	s->healed_at = SIM_FAULTS;
	s->kind = seed % 8 == 0 ? RUN_CALM : seed % 8 == 4 ? RUN_STORM : seed % 8 == 2 ? RUN_FLAPS :
		  seed % 8 == 6 ? RUN_CUTS : RUN_MIXED;
	s->calm = s->kind == RUN_CALM;
	s->star = seed % 16 == 6;
	s->cuts_judged = s->kind == RUN_CUTS && !s->star && sim_chance(s, 80);
	conf_draw(s);
	place_draw(s);
	barriers_draw(s);
	net_start(s);
	for (unsigned i = 0, spread = sim_chance(s, 60); i < s->nodes; i++) {
		if (sim_wild(s) && sim_chance(s, 20))
			s->node[i].store_lag_until = sim_random(s, 3 * SEC);
		sim_after(s, spread ? sim_random(s, 1500 * MSEC) : 0, begins, &s->node[i], 0, 0);
	}
	script_start(s);
	sim_after(s, EXAM, exam, NULL, 0, 0);
	sim_after(s, SIM_STILL + 10 * MSEC, elect_last, NULL, 0, 0);
	while (s->heap_n && s->heap[0]->at < SIM_RUN && !s->verdict[0]) {
		struct event *e = heap_get(s);

		s->now = e->at;
		e->fn(s, e);
	}
	if (!s->verdict[0])
		judge_end(s);
	judge_barriers_end(s);
	ok = !s->verdict[0];
	snprintf(ret_verdict, 200, "%s", s->verdict);
	sim_done(s);
	free(s);
	return ok;
}
