/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What holders leave behind: values, and word of a death; and who judges what the next one reads.
 *
 * A value is a number, said over and over in as many bytes as the number asks for. Published is what an exclusive
 * holder leaves when it gives back, by its node's own clock in time.
 */
#include <string.h>

#include "sim.h"

static uint16_t value_len(uint64_t id)
{
	return (uint16_t)(8 + (id % 8 ? id % 40 : id * 7919 % (CORE_VALUE_MAX - 7)));
}

static void value_write(uint64_t id, uint8_t bytes[CORE_VALUE_MAX])
{
	for (unsigned i = 0; i < value_len(id); i++)
		bytes[i] = (uint8_t)(id >> i % 8 * 8);
}

struct left left_of(struct sim *s, const struct core_value *v)
{
	struct left l = { .state = v->state, .token = v->token, .count = v->count };
	uint8_t bytes[CORE_VALUE_MAX];

	if (v->state != CORE_VALUE_KNOWN)
		return l;
	if (v->len >= 8)
		memcpy(&l.id, v->bytes, 8);
	value_write(l.id, bytes);
	if (v->len != value_len(l.id) || memcmp(bytes, v->bytes, v->len))
		sim_no(s, "a value is read that nobody has written");
	return l;
}

struct core_value left_value(const struct left *l, uint8_t bytes[CORE_VALUE_MAX])
{
	struct core_value v = { .state = l->state };

	if (l->state != CORE_VALUE_KNOWN)
		return v;
	value_write(l->id, bytes);
	return (struct core_value){ .state = l->state, .len = value_len(l->id), .count = l->count, .token = l->token, .bytes = bytes };
}

static void read_judged(struct sim *s, const struct node *n, unsigned name)
{
	const struct judge_name *j = &s->name[name];
	const struct left *l = &n->slot[name].left;

	s->counts->values_read += l->state == CORE_VALUE_KNOWN;
	s->counts->values_lost += l->state == CORE_VALUE_LOST;
	if (l->state != CORE_VALUE_LOST && (l->state == CORE_VALUE_KNOWN ? l->id : 0) != j->published)
		sim_no(s, "%s: node %u reads the value %llu, and %llu was published last", j->key, n->id,
		       (unsigned long long)l->id, (unsigned long long)j->published);
}

/* A client has it: what it finds. */
void left_found(struct sim *s, struct node *n, const struct client *c)
{
	struct judge_name *j = &s->name[c->name];
	struct slot *sl = &n->slot[c->name];

	if (c->mode == PERMITS)
		return;
	read_judged(s, n, c->name);
	if (c->mode != EXCLUSIVE)
		return;
	if (j->death && !sl->owner_died)
		sim_no(s, "%s: node %u is not told that who held it before has died", j->key, n->id);
	s->counts->deaths_told += sl->owner_died;
	/* Not all of them mend it. */
	if (sl->owner_died && sim_chance(s, 80))
		sl->owner_died = j->death = false;
	else
		j->death |= sl->owner_died;
}

/* An exclusive holder gives back, or becomes a reader. */
void left_publish(struct sim *s, struct node *n, const struct client *c)
{
	struct judge_name *j = &s->name[c->name];
	struct slot *sl = &n->slot[c->name];

	if (c->mode != EXCLUSIVE || c->lost || !holds(s, n) || !sim_chance(s, 50))
		return;
	s->counts->values_published++;
	j->published = ++s->values;
	sl->left = (struct left){ CORE_VALUE_KNOWN, j->published, c->token, sl->left.token == c->token ? sl->left.count + 1 : 1 };
	sl->left_fresh = true;
	sim_trace(s, "%u: publishes %llu for %s", n->id, (unsigned long long)j->published, j->key);
}

/* An exclusive holder dies. */
void left_death(struct sim *s, struct node *n, const struct client *c)
{
	if (c->mode != EXCLUSIVE || c->lost || !holds(s, n))
		return;
	s->counts->owner_deaths++;
	s->name[c->name].death = true;
	n->slot[c->name].owner_died = true;
	sim_trace(s, "%u: a holder of %s dies", n->id, s->name[c->name].key);
}

/* The node gives back what it held exclusively: what it has to say with that. */
struct core_value left_give(struct slot *sl, bool *ret_died, uint8_t bytes[CORE_VALUE_MAX])
{
	struct core_value v = { .state = CORE_VALUE_NONE };

	*ret_died = sl->held == CORE_WEIGHT_ALL && sl->owner_died;
	if (sl->held != CORE_WEIGHT_ALL)
		return v;
	if (sl->left_fresh)
		v = left_value(&sl->left, bytes);
	sl->left_fresh = sl->owner_died = false;
	sl->death_owed |= *ret_died;
	return v;
}

void left_granted(struct sim *s, struct slot *sl, const struct core_action *a)
{
	if (!sl->held) {
		sl->left = left_of(s, &a->name.value);
		sl->left_fresh = false;
	}
	sl->owner_died |= a->name.lost && a->name.weight == CORE_WEIGHT_ALL;
	sl->death_owed = false;
}

static bool later(const struct left *a, const struct left *b)
{
	return a->token > b->token || (a->token == b->token && a->count > b->count);
}

/* The ledger knows what grants said, the slot what was published since. */
void left_adopt(struct slot *sl, const struct ledger_entry *l)
{
	if (l->range.first != sl->range.first) {
		sl->owner_died |= l->lost;
		if (!sl->held || later(&l->left, &sl->left))
			sl->left = l->left;
	}
	/* It was being given back, and is not. */
	sl->owner_died |= l->held == CORE_WEIGHT_ALL && sl->death_owed;
}
