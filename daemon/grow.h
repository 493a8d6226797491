/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Arrays that grow, twice as large each time. The owner keeps pointer, number and room, and frees the pointer:
 *
 *	struct ticket *v = grown(p->tickets, p->n_tickets, &p->tickets_cap, 4, sizeof *v);
 *
 *	if (!v)
 *		return -ENOMEM;
 *	p->tickets = v;
 *	p->tickets[p->n_tickets++] = ...
 */
#ifndef DLOCK_GROW_H
#define DLOCK_GROW_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* v with room for one more behind n; v itself where it has that. NULL: no memory, and v is as it was. first: its first room. */
static inline void *grown(void *v, uint32_t n, uint32_t *cap, uint32_t first, size_t size)
{
	uint32_t more = *cap ? *cap * 2 : first;

	if (n < *cap)
		return v;
	v = more > *cap ? reallocarray(v, more, size) : NULL;
	if (v)
		*cap = more;
	return v;
}

#endif
