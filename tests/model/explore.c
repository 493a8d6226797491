/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "explore.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORLDS_MAX (UINT32_C(1) << 25)
#define ACTOR_SHIFT 28u
#define TARGET ((UINT32_C(1) << ACTOR_SHIFT) - 1)
#define NONE UINT32_MAX

static struct kept *worlds;
static uint32_t *parent;
static uint32_t worlds_count, worlds_room;
static uint32_t *places, places_count;  /* open addressing; number + 1 */
static uint32_t *edges, *edges_from;    /* edges_from[i] .. edges_from[i + 1] */
static uint32_t edges_count, edges_room;
static unsigned char *kind;             /* bits below */

enum { KIND_GOOD = 1, KIND_GUESS = 2 };

static void *grown(void *p, size_t bytes)
{
	p = realloc(p, bytes);
	if (!p) {
		fputs("out of memory\n", stderr);
		exit(1);
	}
	return p;
}

static uint64_t hash(const struct kept *k)
{
	uint32_t part[sizeof(*k) / 4];
	uint64_t h = 0;

	memcpy(part, k, sizeof(part));
	for (unsigned i = 0; i < sizeof(part) / 4; i++) {
		h = (h ^ part[i]) * UINT64_C(0x9e3779b97f4a7c15);
		h ^= h >> 29;
	}
	return h;
}

static uint32_t *place_of(const struct kept *k)
{
	uint32_t mask = places_count - 1, i = (uint32_t)(hash(k) >> 8) & mask;

	while (places[i] && memcmp(&worlds[places[i] - 1], k, sizeof(*k)) != 0)
		i = (i + 1) & mask;
	return &places[i];
}

static void make_room(void)
{
	worlds_room = worlds_room ? 2 * worlds_room : 1 << 16;
	worlds = grown(worlds, worlds_room * sizeof(*worlds));
	parent = grown(parent, worlds_room * sizeof(*parent));
	kind = grown(kind, worlds_room);
	edges_from = grown(edges_from, (worlds_room + 1) * sizeof(*edges_from));
	free(places);
	places_count = 2 * worlds_room;
	places = grown(NULL, places_count * sizeof(*places));
	memset(places, 0, places_count * sizeof(*places));
	for (uint32_t i = 0; i < worlds_count; i++)
		*place_of(&worlds[i]) = i + 1;
}

static uint32_t number_of(const struct world *w, uint32_t from)
{
	struct kept k;
	uint32_t *place;

	world_keep(w, &k);
	place = place_of(&k);
	if (*place)
		return *place - 1;
	if (worlds_count == worlds_room) {
		make_room();
		place = place_of(&k);
	}
	worlds[worlds_count] = k;
	parent[worlds_count] = from;
	*place = ++worlds_count;
	return worlds_count - 1;
}

static void add_edge(unsigned actor, uint32_t to)
{
	if (edges_count == edges_room) {
		edges_room = edges_room ? 2 * edges_room : 1 << 18;
		edges = grown(edges, edges_room * sizeof(*edges));
	}
	edges[edges_count++] = actor << ACTOR_SHIFT | to;
}

static void forget(void)
{
	free(worlds);
	free(parent);
	free(kind);
	free(places);
	free(edges);
	free(edges_from);
	worlds = NULL;
	parent = NULL;
	kind = NULL;
	places = edges = edges_from = NULL;
	worlds_count = worlds_room = places_count = edges_count = edges_room = 0;
}

/* --- Telling --- */

static void tell_one(uint32_t from, uint32_t to)
{
	struct step steps[STEPS_MAX];
	const char *wrong;
	unsigned at, n;
	bool fine;
	struct world w;

	world_recall(&worlds[from], &w);
	n = world_steps(&w, steps, &wrong, &at, &fine);
	for (unsigned i = 0; i < n; i++) {
		if (number_of(&steps[i].to, from) == to) {
			world_tell(&w, &steps[i]);
			return;
		}
	}
}

static uint32_t way_to(uint32_t number, uint32_t **ret_way)
{
	uint32_t n = 0, *way;

	for (uint32_t i = number; i != NONE; i = parent[i])
		n++;
	way = grown(NULL, n * sizeof(*way));
	for (uint32_t i = number, k = n; i != NONE; i = parent[i])
		way[--k] = i;
	*ret_way = way;
	return n - 1;
}

static void tell_way(uint32_t number, const struct step *last, struct found *found, bool tell)
{
	struct world w;
	uint32_t *way;

	found->length = way_to(number, &way) + (last != NULL);
	for (uint32_t i = 0; tell && i + 1 <= found->length - (last != NULL); i++)
		tell_one(way[i], way[i + 1]);
	if (tell && last) {
		world_recall(&worlds[number], &w);
		world_tell(&w, last);
	}
	free(way);
}

/* --- Circles: Tarjan's strongly connected components, without recursion --- */

struct frame {
	uint32_t node, edge;
};

static uint32_t *low, *order, *stack;
static uint32_t stack_count, ordered;

/* Does everybody who could take a step in the component take one, or have none in one of its worlds? */
static bool is_fair_circle(const uint32_t *member, uint32_t n, uint32_t id)
{
	unsigned moves = 0, blocked = 0, present = 0;

	for (uint32_t i = 0; i < n; i++) {
		unsigned can = 0;

		if (kind[member[i]] & KIND_GOOD)
			return false;
		for (uint32_t e = edges_from[member[i]]; e < edges_from[member[i] + 1]; e++) {
			unsigned actor = edges[e] >> ACTOR_SHIFT;

			if (actor >= ROLES)      /* need not come */
				continue;
			can |= 1u << actor;
			if (low[edges[e] & TARGET] == id)
				moves |= 1u << actor;
		}
		if (!(kind[member[i]] & KIND_GUESS))    /* else others could, but were not asked */
			blocked |= ~can;
		present |= can;
	}
	return moves != 0 && (present & ~(moves | blocked)) == 0;
}

/* Pops the component of node; its members get the component's id in low[], above all orders. */
static bool pop_component(uint32_t node)
{
	uint32_t begin = stack_count, id = NONE - 1 - order[node];

	while (stack[--begin] != node)
		;
	for (uint32_t i = begin; i < stack_count; i++)
		low[stack[i]] = id;
	uint32_t n = stack_count - begin;
	stack_count = begin;
	return is_fair_circle(stack + begin, n, id);
}

static uint32_t find_circle(void)
{
	struct frame *path = grown(NULL, worlds_count * sizeof(*path));
	uint32_t depth = 0, found = NONE;

	low = grown(NULL, worlds_count * sizeof(*low));
	order = grown(NULL, worlds_count * sizeof(*order));
	stack = grown(NULL, worlds_count * sizeof(*stack));
	memset(order, 0, worlds_count * sizeof(*order));
	stack_count = 0;
	ordered = 0;
	path[depth++] = (struct frame){ 0, edges_from[0] };
	order[0] = low[0] = ++ordered;
	stack[stack_count++] = 0;
	while (depth && found == NONE) {
		struct frame *f = &path[depth - 1];

		if (f->edge < edges_from[f->node + 1]) {
			uint32_t to = edges[f->edge++] & TARGET;

			if (!order[to]) {
				order[to] = low[to] = ++ordered;
				stack[stack_count++] = to;
				path[depth++] = (struct frame){ to, edges_from[to] };
			} else if (low[to] <= ordered && order[to] < low[f->node]) {
				low[f->node] = order[to];
			}
			continue;
		}
		uint32_t node = f->node;

		depth--;
		if (low[node] == order[node]) {
			if (pop_component(node))
				found = node;
		} else if (low[node] < low[path[depth - 1].node]) {
			low[path[depth - 1].node] = low[node];
		}
	}
	free(path);
	free(low);
	free(order);
	free(stack);
	return found;
}

/* --- Walking --- */

/* Returns whether all is right with this world and the steps from it. */
static bool visit(uint32_t number, struct found *found, bool tell)
{
	struct step steps[STEPS_MAX];
	struct world w;
	unsigned at, n;
	bool fine;

	world_recall(&worlds[number], &w);
	n = world_steps(&w, steps, &found->wrong, &at, &fine);
	kind[number] = (fine ? KIND_GOOD : 0) | (n && steps[0].guess ? KIND_GUESS : 0);
	if (found->wrong) {
		tell_way(number, at < n ? &steps[at] : NULL, found, tell);
		return false;
	}
	edges_from[number] = edges_count;
	for (unsigned i = 0; i < n; i++) {
		bool look = steps[i].actor == DAEMON && steps[i].event && steps[i].to.looks == w.looks;
		unsigned actor = steps[i].forced || look ? steps[i].actor : ROLES;

		add_edge(actor, number_of(&steps[i].to, number));
	}
	edges_from[number + 1] = edges_count;
	return true;
}

void explore(const struct scenario *s, bool tell, struct found *found)
{
	struct world begin;
	uint32_t circle;

	memset(found, 0, sizeof(*found));
	scenario = s;
	play_reset();
	world_begin(&begin);
	make_room();
	number_of(&begin, NONE);
	for (uint32_t i = 0; i < worlds_count && visit(i, found, tell); i++) {
		if (worlds_count > WORLDS_MAX) {
			found->full = true;
			break;
		}
	}
	found->worlds = worlds_count;
	found->steps = edges_count;
	found->players = play_players();
	found->copies = play_copies();
	if (!found->wrong && !found->full && (circle = find_circle()) != NONE) {
		found->wrong = "living players go round in a circle and one waits for ever";
		tell_way(circle, NULL, found, tell);
	}
	forget();
}
