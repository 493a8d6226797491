/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Beats whose answers get lost, and an observer with another clock (DESIGN S1; daemon/core/beat.c, observe.c, coord.c).
 *
 * Once a session's beat is a tombstone, the node's own deadline has passed, and whatever it hears later
 * does not make it come again.
 *
 * Writes are compare-and-sets on the version; each may land at any time after it was sent, even long after
 * its sender has given up waiting, or never. Reads too are answered late, or never. Time is discrete, and kept as
 * ages: of each value since it was first sent, by the node's clock; of the version that the observer sees, since it
 * first saw it, by its own. Mostly both clocks tick at once; one may tick alone once in TTL ticks, so
 * within an observer's wait they drift apart by up to two, and MARGIN is one at each end.
 *
 * A session that has lapsed is over, so nothing is followed from there on.
 *
 * Bounds: VALUES counters, RESTARTS of the daemon. Each BREAK_... takes one rule away.
 */
#ifndef VALUES
#define VALUES 3
#endif
#ifndef RESTARTS
#define RESTARTS 1
#endif
#define TTL 8
#ifdef BREAK_MARGIN
#define MARGIN 0
#else
#define MARGIN 1
#endif
#ifdef BREAK_EARLY
#define WAIT (TTL / 2)
#else
#define WAIT (TTL + MARGIN)
#endif
#define NOTHING 255

/* The store: the beat record. Versions are never used twice. */
byte value = 1;                         /* the counter in it */
byte version = 1;
bool ended = false;                     /* it is a tombstone */

/* The node (struct beat) */
byte counter = 1;                       /* last.counter */
byte first = 1;                         /* the first of this incarnation: of earlier ones it knows no sendings */
byte known = 1;                         /* version of the record, as last known */
bool unsure = false;
byte age[VALUES + 1];                   /* since the first sending: `sent`, as an age */
byte deadline_age = 0;                  /* of the sending that the deadline counts from: landed */
byte asked = 0;                         /* 0 nothing, 1 a write, 2 a read */
byte answer = NOTHING;                  /* to a write: the version, 0 failed. To a read: the value, 0 a tombstone */
byte answer_version = 0;
byte expects[VALUES + 1];               /* writes under way: version they compare with. 0: none */
byte restarts = 0;

/* The observer (struct observed) */
byte seen = 0;                          /* version */
byte since = 0;                         /* an age */
byte burying = 0;                       /* a tombstone under way over this version. 0: none */

byte rested = TTL;                      /* ticks since a clock last ticked alone */
hidden byte i;

#define LAPSED (deadline_age >= TTL - MARGIN)

inline judge() {
	assert(!ended || LAPSED)
}

inline older(a, most) {
	if :: a < most -> a++ :: else fi
}

inline node_tick() {
	i = 1;
	do
	:: i <= VALUES -> if :: i <= counter -> older(age[i], TTL) :: else fi; i++
	:: else -> break
	od;
	i = 0;
	older(deadline_age, TTL)
}

/* A beat that lands only lengthens (deadline_renew). */
inline landed(v) {
#ifdef BREAK_REPLY
	deadline_age = 0;
#else
	if :: v >= first && age[v] < deadline_age -> deadline_age = age[v] :: else fi;
#endif
#ifdef BREAK_ADOPTED
	if :: v < first -> deadline_age = 0 :: else fi;
#endif
	judge()
}

inline forget_answer() {
	asked = 0; answer = NOTHING; answer_version = 0
}

active proctype all() {
end:	do
	/* time */
	:: d_step { !LAPSED -> node_tick(); older(since, WAIT); older(rested, TTL) }
	:: d_step { !LAPSED && rested == TTL -> node_tick(); rested = 0 }
	:: d_step { !LAPSED && rested == TTL -> older(since, WAIT); rested = 0 }

	/* the node writes: a value never sent before */
	:: d_step {
		!LAPSED && asked == 0 && !unsure && counter < VALUES ->
		counter++; age[counter] = 0; expects[counter] = known; asked = 1
	}
#ifdef BREAK_TWICE
	/* ... or the same once more, and counts from then */
	:: d_step {
		!LAPSED && asked == 0 && unsure && counter >= first && expects[counter] == 0 ->
		age[counter] = 0; expects[counter] = known; asked = 1
	}
#endif
	:: d_step { !LAPSED && asked == 0 && unsure -> asked = 2 }

	/* a write lands, the last one or an earlier one, or is lost */
	:: d_step {
		!LAPSED && expects[counter] != 0 ->
		if
		:: expects[counter] == version -> version++; value = counter; answer_version = version
		:: else -> answer_version = 0
		fi;
		expects[counter] = 0;
		if :: asked == 1 -> answer = 1 :: else -> answer_version = 0 fi
	}
	:: d_step {
		!LAPSED && counter > 1 && expects[counter - 1] != 0 ->
		if :: expects[counter - 1] == version -> version++; value = counter - 1 :: else fi;
		expects[counter - 1] = 0
	}
	:: d_step { !LAPSED && expects[counter] != 0 -> expects[counter] = 0 }
	:: d_step { !LAPSED && counter > 1 && expects[counter - 1] != 0 -> expects[counter - 1] = 0 }
	/* a read is carried out */
	:: d_step { !LAPSED && asked == 2 && answer == NOTHING -> answer = (ended -> 0 : value); answer_version = version }

	/* the answer comes */
	:: d_step {
		!LAPSED && asked == 1 && answer != NOTHING ->
		if
		:: answer_version != 0 -> known = answer_version; landed(counter)
		:: else -> unsure = true
		fi;
		forget_answer()
	}
	:: d_step {
		!LAPSED && asked == 2 && answer != NOTHING ->
		if
		:: answer == 0 -> deadline_age = TTL            /* BEAT_ENDED: lapses at once */
		:: else -> known = answer_version; unsure = false; landed(answer)
		fi;
		forget_answer()
	}
	/* ... or is not waited for any longer (-ETIMEDOUT) */
	:: d_step { !LAPSED && asked != 0 -> unsure = true; forget_answer() }

	/* another daemon, with the next incarnation: it knows the deadline from the ledger, and no sendings */
	:: d_step {
		!LAPSED && restarts < RESTARTS && counter < VALUES ->
		restarts++; first = counter + 1; unsure = true; forget_answer()
	}

	/* the observer looks; a late answer is a late look */
	:: d_step { !LAPSED && !ended && seen != version -> seen = version; since = 0 }
	:: d_step { !LAPSED && !ended && seen != 0 && since >= WAIT && burying == 0 -> burying = seen }
	:: d_step {
		!LAPSED && burying != 0 ->
#ifdef BREAK_BLIND
		ended = true; version++;
#else
		if :: burying == version && !ended -> ended = true; version++ :: else fi;
#endif
		burying = 0;
		judge()
	}
	od
}
