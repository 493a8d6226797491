/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Steps in words. A word is shown as [owner flags count], the count as what is left of the range.
 */
#include "world.h"

#include <stdio.h>

#include "proto/lockword.h"

static void tell_word(uint64_t w)
{
	static const struct { uint64_t bit; char name; } bits[] = {
		{ LOCK_L, 'L' }, { LOCK_W, 'W' }, { LOCK_K, 'K' }, { LOCK_H, 'H' },
		{ LOCK_S, 'S' }, { LOCK_Y, 'Y' }, { LOCK_D, 'D' },
	};

	printf("[%u ", (unsigned)(w & LOCK_OWNER));
	for (unsigned i = 0; i < sizeof(bits) / sizeof(*bits); i++)
		putchar(w & bits[i].bit ? bits[i].name : '-');
	printf(" %+d]", (int)((int64_t)w >> LOCK_COUNT_SHIFT));
}

static void tell_ask(const struct ask *a)
{
	static const char *const functions[] = {
		[FN_NONE] = "", [FN_FAST] = "fast path: ", [FN_TURN] = "lock_turn: ",
		[FN_RELEASE] = "lock_release: ", [FN_LEAVE] = "lock_leave: ", [FN_MEND] = "lock_mend: ",
		[FN_LOOK] = "lock_look: ", [FN_DIED] = "lock_died: ", [FN_GRANT] = "lock_grant: ",
		[FN_CLOSE] = "lock_close: ", [FN_YIELD] = "lock_yield: ", [FN_CANCEL] = "cancel: ",
	};
	static const char *const flags[] = {
		[FLAG_WATCH] = "WATCH", [FLAG_WANT] = "WANT", [FLAG_WATCHED] = "watched", [FLAG_BELL] = "the bell",
		[FLAG_CANCEL] = "cancel", [FLAG_CANCELLABLE] = "cancellable",
	};

	printf("%s", functions[a->fn]);
	switch (a->kind) {
	case ASK_LOAD:
		printf("loads");
		break;
	case ASK_CAS:
		printf("swaps ");
		tell_word(a->a);
		printf(" for ");
		tell_word(a->b);
		break;
	case ASK_WAKE:
		printf("wakes %s of class %u", a->a == 1 ? "one" : "all", (unsigned)a->b);
		break;
	case ASK_SLEEP:
		printf("goes to sleep, class %u", (unsigned)a->b);
		break;
	case ASK_SLEEPERS:
		printf("counts the sleepers");
		break;
	case ASK_GET:
	case ASK_SET:
		printf("%s %s", a->kind == ASK_GET ? "reads" : a->b ? "sets" : "clears", flags[a->a]);
		break;
	case ASK_LEAVE:
		printf("leaves its critical section");
		break;
	case ASK_RANGE:
		printf("writes the next range down");
		break;
	default:
		printf("goes on");
	}
}

void world_tell(const struct world *from, const struct step *step)
{
	const struct world *to = &step->to;
	static const char *const names[ROLES] = { "client A", "client B", "client C", "daemon  " };

	printf("#   %s ", names[step->actor]);
	if (step->event)
		printf("%s", step->event);
	else
		tell_ask(play_ask(from->who[step->actor]));
	printf(" => ");
	tell_word(to->word);
	printf(" asleep:");
	for (unsigned i = 0; i < to->sleepers; i++)
		printf(" %c", 'A' + to->queue[i]);
	printf("%s\n", to->sleepers ? "" : " nobody");
}
