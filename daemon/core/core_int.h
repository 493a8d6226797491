/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a core is made of: for core.c, and for the judges in tests/unit. */
#ifndef DLOCK_CORE_INT_H
#define DLOCK_CORE_INT_H

#include "barrier.h"
#include "cluster.h"
#include "core.h"
#include "master.h"
#include "member.h"
#include "msg.h"
#include "names.h"
#include "peers.h"
#include "reign.h"
#include "value.h"

struct core {
	struct core_memory mem;
	struct names names;
	struct values values;
	struct member member;
	struct master master;
	struct peers peers;
	struct reign reign;              /* alone */
	struct cluster cluster;          /* among others */
	struct msg_queue queue;          /* empty between steps */
	core_nsec_t now;                 /* the latest that an event said */
	core_nsec_t timer;               /* the timer that is out; 0: none */
	core_nsec_t delay_at;            /* a lock-delay ends; 0: none */
	core_nsec_t memory_at;           /* there was no memory to go on; not before this time; 0: there was */
	uint64_t raises;
	struct barriers barriers;
	struct core_barrier barrier[CORE_ACTIONS_MAX];
	uint8_t frame[CORE_ACTIONS_MAX][CORE_FRAME_MAX];
};

#endif
