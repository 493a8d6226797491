/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "judge.h"

#include <string.h>

#include "proto/lockword.h"

static const char *wrong;

static void judge(bool right, const char *rule)
{
	if (!right && !wrong)
		wrong = rule;
}

const char *judge_verdict(void)
{
	const char *w = wrong;

	wrong = NULL;
	return w;
}

static int64_t token_of(const struct world *w, uint64_t word)
{
	return w->bias + world_count(word);
}

/* A wake that reached nobody was taken back, or all were woken at once: who is first is not known any more. */
void judge_disorder(struct world *w)
{
	if (!scenario->in_order)
		return;
	w->crowd = 1;
	memset(w->line, 0, sizeof(w->line));
	w->in_line = 0;
}

/* Who passed by which sleepers? S lets none pass who has not slept. */
static void judge_order(struct world *w, unsigned role, uint64_t old)
{
	unsigned place = 0;

	while (place < w->in_line && w->line[place] != role)
		place++;
	judge(place == 0 || place == w->in_line, "a sleeper was overtaken by one behind it");
	judge(!(old & LOCK_S) || place < w->in_line || w->crowd, "S was passed by a newcomer");
	world_take_out(w->line, &w->in_line, role);
}

static void judge_taken(struct world *w, unsigned role, uint64_t old, uint64_t new)
{
	judge(role != DAEMON && (new & LOCK_OWNER) == scenario->players.index[role], "a stranger's name in the word");
	judge(old & LOCK_L, "a closed word was taken");
	judge(!(old & LOCK_Y) || (old & LOCK_K), "taken while it is another node's turn");
	judge(((old ^ new) & LOCK_D) == 0, "a taker changed D");
	judge(lock_count(new - LOCK_ONE) == lock_count(old), "a taker did not count");
	if (scenario->in_order)
		judge_order(w, role, old);
	w->holder = (uint8_t)(role + 1);
}

static void judge_freed(struct world *w, unsigned role, uint64_t old, uint64_t new)
{
	unsigned holder = w->holder - 1u;

	judge(w->holder != 0, "freed twice");
	judge(((old ^ new) & LOCK_COUNT) == 0, "a release counted");
	judge(!(old & LOCK_D) || (new & LOCK_D), "a release mended");
	if (role == DAEMON) {
		judge(new & LOCK_D, "nobody will be told that the owner died");
		if (w->who[holder])
			w->lost |= 1u << holder;
	} else {
		judge(role == holder, "a lost hold's release freed another's");
	}
	w->holder = 0;
}

void judge_cas(struct world *w, unsigned role, unsigned fn, uint64_t old, uint64_t new)
{
	if (lock_is_free(old) && !lock_is_free(new)) {
		judge_taken(w, role, old, new);
	} else if (!lock_is_free(old) && lock_is_free(new)) {
		judge_freed(w, role, old, new);
	} else {
		judge(((old ^ new) & (LOCK_OWNER | LOCK_MODE)) == 0, "the owner was changed");
		judge(((old ^ new) & LOCK_COUNT) == 0 || (fn == FN_GRANT && !(old & LOCK_L)) || fn == FN_CLOSE,
		      "the count was changed");
		judge(((old ^ new) & LOCK_D) == 0 || (fn == FN_MEND && w->holder == role + 1u), "D was changed");
	}
	if (fn == FN_LEAVE)
		world_take_out(w->line, &w->in_line, role);
	if (fn == FN_RELEASE && lock_is_free(old) == lock_is_free(new) && (old & ~new & LOCK_K))
		judge_disorder(w);
}

void judge_enter(struct world *w, unsigned role, const struct ask *a)
{
	int64_t token = token_of(w, a->a);

	judge(((a->a ^ w->word) & LOCK_IDENTITY) == 0, "who entered does not own the word");
	judge(w->holder == role + 1u, "who entered did not take the word");
	judge((w->inside & ~w->lost) == 0, "two inside");
	judge(token > w->last_token, "the token did not rise");
	judge(token <= w->bias, "the token is beyond the range");
	w->last_token = (uint8_t)token;
	w->inside |= 1u << role;
}

void judge_posted(struct world *w, unsigned role, const struct ask *a)
{
	bool lost = w->lost & 1u << role;

	judge(a->a == !lost, lost ? "the release of a lost hold said yes" : "the release of a good hold said no");
	w->lost &= ~(1u << role);
}

void judge_mended(const struct world *w, unsigned role, bool said)
{
	judge(said == !(w->lost & 1u << role), "mending said the wrong thing");
}
