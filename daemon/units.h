/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One type per unit of time. Where nothing else is said a moment is one of CLOCK_BOOTTIME, which
 * goes on over a suspend and never steps; a span has the same type and is named for what it spans.
 *
 * No header is included here, so that freestanding code can use it too.
 */
#ifndef DLOCK_UNITS_H
#define DLOCK_UNITS_H

typedef __UINT64_TYPE__ nsec_t;
typedef __UINT64_TYPE__ usec_t;
typedef __UINT64_TYPE__ msec_t;

#define NSEC_PER_USEC ((nsec_t)1000)
#define NSEC_PER_MSEC ((nsec_t)1000000)
#define NSEC_PER_SEC ((nsec_t)1000000000)
#define USEC_PER_MSEC ((usec_t)1000)
#define USEC_PER_SEC ((usec_t)1000000)
#define MSEC_PER_SEC ((msec_t)1000)

#define NSEC_NEVER ((nsec_t)-1) /* a moment that does not come */

#endif
