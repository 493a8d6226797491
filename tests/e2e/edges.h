/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What can be waited for, as one table: the stories of edges.c are told once, and run for each row.
 *
 * There are one who waits, and who is led through his call instruction by instruction; one whom he waits for; one who comes behind him;
 * and one who looks at what is left. All functions return 0, or what went wrong, and use what their process has open.
 */
#ifndef E2E_EDGES_H
#define E2E_EDGES_H

#include <stdbool.h>
#include <time.h>

enum edge_event { EDGE_TIME = 1, EDGE_CANCEL = 2, EDGE_KILL = 4, EDGE_STOP = 8 };

struct edge {
	const char *who;                 /* waits */
	const char *word;                /* part of the names of things */
	int (*open)(void);
	int (*ready)(void);              /* he, before his call; as the two others do meanwhile, if together. NULL: nothing */
	int (*wait)(const struct timespec *abs);         /* his call; NULL: as long as it takes */
	int (*after)(int r);             /* he: it is as he was told, and he gives back what he has */
	int (*cancel)(void);             /* another thread of his process; NULL: there is no such thing */
	int (*set)(void);                /* the other: so that he has to wait. NULL: he has anyway */
	int (*waits)(void);              /* the other: when one more waits than when he looked before. NULL: it is enough that he sleeps */
	int (*then)(void);               /* the other, once he waits. NULL: nothing */
	int (*grant)(void);              /* the other: he need not wait any more */
	int (*pass)(void);               /* who comes behind: waits as well, and gives back */
	int (*is_taken)(void);           /* who looks: 0 as long as somebody has what he waits for who comes behind. NULL: nobody ever has */
	int (*whole)(void);              /* who looks, at the end: nobody has any of it, and nobody waits */
	unsigned events;                 /* that can befall him */
	bool alone;                      /* what is granted is one's for good: each has to have a grant of his own */
	bool fits;                       /* who comes behind waits for him only: when he has gone, there is enough for that one */
	bool together;                   /* a party of three: the grant is the third one's coming, and all are told the same */
	bool asleep;                     /* only from his sleep on: who comes behind does not wait where he comes first */
	bool sure;                       /* he has it in any case, once it is granted, and is told so */
	bool anew;                       /* what was granted once is so for ever: each time another one */
};

extern const struct edge edges[];
extern const unsigned edges_count;

struct kind;
struct edge edge_of_kind(const struct kind *k);  /* of what can be held (kinds.h); scene.kind is that kind then */

extern char edge_name[64];               /* of the thing; in all processes */

#endif
