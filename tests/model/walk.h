/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The worlds that have been come to, numbered, and the ways between them: for explorers that keep all of one `struct world`
 * (without holes: worlds are compared by their bytes), which they define before they include this, once.
 */
#ifndef MODEL_WALK_H
#define MODEL_WALK_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static struct world *worlds;
static uint32_t *parent, *places, n_worlds, cap_worlds, n_places, *edge, n_edges, cap_edges;
static uint8_t *good;

static void *grown(void *p, size_t n)
{
	p = realloc(p, n);
	if (!p)
		exit(1);
	return p;
}

static uint64_t hash_of(const struct world *w)
{
	const unsigned char *p = (const unsigned char *)w;
	uint64_t h = 0, part;

	for (size_t i = 0; i + 8 <= sizeof *w; i += 8) {
		memcpy(&part, p + i, 8);
		h = (h ^ part) * UINT64_C(0x9e3779b97f4a7c15);
		h ^= h >> 29;
	}
	return h;
}

static uint32_t *place_of_world(const struct world *w)
{
	uint32_t i = (uint32_t)hash_of(w) & (n_places - 1);

	while (places[i] && memcmp(&worlds[places[i] - 1], w, sizeof *w))
		i = (i + 1) & (n_places - 1);
	return &places[i];
}

static uint32_t number_of(const struct world *w, uint32_t from)
{
	uint32_t *p;

	if (n_worlds == cap_worlds) {
		cap_worlds = cap_worlds ? 2 * cap_worlds : 1 << 14;
		worlds = grown(worlds, cap_worlds * sizeof *worlds);
		parent = grown(parent, cap_worlds * sizeof *parent);
		n_places = 4 * cap_worlds;
		free(places);
		places = calloc(n_places, sizeof *places);
		for (uint32_t i = 0; places && i < n_worlds; i++)
			*place_of_world(&worlds[i]) = i + 1;
	}
	p = place_of_world(w);
	if (!*p) {
		worlds[n_worlds] = *w;
		parent[n_worlds] = from;
		*p = ++n_worlds;
	}
	return *p - 1;
}

static void edge_add(uint32_t from, uint32_t to)
{
	if (n_edges + 2 > cap_edges) {
		cap_edges = cap_edges ? 2 * cap_edges : 1 << 16;
		edge = grown(edge, cap_edges * sizeof *edge);
	}
	edge[n_edges++] = from;
	edge[n_edges++] = to;
}

/* A good end can be reached from everywhere, or *ret is from where not. */
static bool all_end(uint32_t *ret)
{
	bool more = true;

	while (more) {
		more = false;
		for (uint32_t i = n_edges; i; i -= 2)
			if (good[edge[i - 1]] && !good[edge[i - 2]]) {
				good[edge[i - 2]] = 1;
				more = true;
			}
	}
	for (*ret = 0; *ret < n_worlds; ++*ret)
		if (!good[*ret])
			return false;
	return true;
}

#endif
