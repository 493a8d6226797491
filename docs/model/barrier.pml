/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The two steps of a barrier's verdict (DESIGN section 4), with masters that change.
 *
 * The code is daemon/core/barrier.h, whose members are OUT, IN (here ARRIVED) and TOLD (RECORDED).
 *
 * Of each round there is one verdict for all; nobody concludes before the master says go; a round never passes
 * with fewer than its parties.
 *
 *   party     IDLE -arrives-> ARRIVED -announced: ledger, acknowledge-> RECORDED -go-> DONE, and to the next round
 *   master    hears all, then: all have arrived -> PASSED; one asks to withdraw, or its node ended -> BROKEN
 *             announces to all who arrived; once each has acknowledged or ended: go
 *
 * Everything a party says is its whole state: round, what its ledger says, the last verdict that it knows. A new
 * master knows nothing. It opens once every party has synced to its reign or has ended; a verdict that one of them
 * has recorded is driven forward. The master before may go on for a while: who has synced to the next does not hear it.
 * A connection is a stream; when it breaks, what is under way is lost, and the party says its state anew.
 *
 * Bounds: PARTIES on as many nodes, ROUNDS, REIGNS, ENDS of nodes, RESTARTS of daemons, RELINKS, one frame under way
 * each way. Each BREAK_... takes one rule away.
 */
#ifndef PARTIES
#define PARTIES 2
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#ifndef REIGNS
#define REIGNS 3
#endif
#ifndef ENDS
#define ENDS 1
#endif
#ifndef RESTARTS
#define RESTARTS 1
#endif
#ifndef RELINKS
#define RELINKS 1
#endif

#define BIT(p) (1 << (p))
#define HAS(set, p) ((set) & BIT(p))
#define ALL (BIT(PARTIES) - 1)

#define IDLE 0
#define ARRIVED 1
#define RECORDED 2
#define DONE 3

#define PASSED 1
#define BROKEN 2

#define ANNOUNCE 1
#define GO 2

/* parties; `gone` ones have no node any more */
byte state[PARTIES];
byte round[PARTIES];                    /* from 1 */
byte verdict[PARTIES];                  /* RECORDED: in the ledger. DONE, IDLE: of the round before */
byte reign[PARTIES];                    /* that it last synced to */
byte withdraws;                         /* set: has asked to withdraw */
byte gone;                              /* set */

/* masters, by reign; of each round */
#define AT(m, r) ((m) * (ROUNDS + 1) + (r))
#define CELLS ((REIGNS + 1) * (ROUNDS + 1))
byte reigns = 1;
byte synced[REIGNS + 1];
byte arrived[CELLS];
byte acked[CELLS];
byte asked[CELLS];                      /* somebody asks to withdraw */
byte says[CELLS];                       /* the verdict that is announced */
#ifdef BREAK_TOTALS
byte count[CELLS];
#define ALL_ARRIVED(m, r) (count[AT(m, r)] >= PARTIES)
#else
#define ALL_ARRIVED(m, r) ((arrived[AT(m, r)] & ~gone) == ALL)
#endif

/* round, state, verdict, withdraws; to the party: kind, round, verdict */
#define LINK(m, p) ((m) * PARTIES + (p))
chan up[(REIGNS + 1) * PARTIES] = [1] of { byte, byte, byte, byte };
chan down[(REIGNS + 1) * PARTIES] = [1] of { byte, byte, byte };
byte ends = 0, restarts = 0, relinks = 0;

/* The judge: how often each arrived, and what each was told. */
byte came[ROUNDS + 1];
byte told[ROUNDS + 1];

hidden byte i, f_kind, f_round, f_state, f_verdict, f_asks;

inline conclude(p, v) {
	assert(told[round[p]] == 0 || told[round[p]] == v);     /* one verdict for all */
	assert(v != PASSED || came[round[p]] == ALL);           /* not with fewer */
	told[round[p]] = v;
	state[p] = DONE; verdict[p] = v; withdraws = withdraws & ~BIT(p)
}

#define LIVES(p) (!HAS(gone, p))
#define UP(p) up[LINK(reign[p], p)]
#define CAN_SAY(p) (reign[p] == 0 || len(UP(p)) == 0)
inline say(p) {
	if
	:: reign[p] != 0 -> UP(p)!round[p],state[p],verdict[p],HAS(withdraws, p)
	:: else
	fi
}

/* --- A party --- */

inline sync(p) {
	d_step {
		LIVES(p) && reign[p] < reigns ->
		if
		:: reign[p] != 0 && len(UP(p)) > 0 -> UP(p)?_,_,_,_      /* the old master's mail is its own loss */
		:: else
		fi;
		reign[p] = reigns;
		say(p)
	}
}
inline arrive(p) {
	d_step {
		LIVES(p) && (state[p] == IDLE || state[p] == DONE) && round[p] < ROUNDS && CAN_SAY(p) ->
		round[p]++; state[p] = ARRIVED; came[round[p]] = came[round[p]] | BIT(p);
		say(p)
	}
}
inline time_out(p) {
	d_step {
		LIVES(p) && state[p] == ARRIVED && !HAS(withdraws, p) && CAN_SAY(p) ->
#ifdef BREAK_ALONE
		conclude(p, BROKEN);
#else
		withdraws = withdraws | BIT(p);
#endif
		say(p)
	}
}
#ifdef BREAK_ROUND
#define FOR_THIS_ROUND(p) true
#else
#define FOR_THIS_ROUND(p) (f_round == round[p])
#endif
inline hear(p, m) {
	d_step {
		len(down[LINK(m, p)]) > 0 && (LIVES(p) && CAN_SAY(p) || m != reign[p]) ->
		down[LINK(m, p)]?f_kind,f_round,f_verdict;
		if
		:: m != reign[p] || !LIVES(p) || !FOR_THIS_ROUND(p)
		:: else ->
			if
			:: f_kind == ANNOUNCE && state[p] == ARRIVED ->
#ifdef BREAK_ONE_STEP
				conclude(p, f_verdict);
#else
				state[p] = RECORDED; verdict[p] = f_verdict;
#endif
				say(p)
			:: f_kind == ANNOUNCE && state[p] == RECORDED ->
				assert(verdict[p] == f_verdict);         /* a record is only driven forward */
				say(p)
			:: f_kind == GO && state[p] == RECORDED -> conclude(p, f_verdict)
			:: else
			fi
		fi;
		f_kind = 0; f_round = 0; f_verdict = 0
	}
}

/* --- A master; m is its reign --- */

inline knows(m, r, v) {
	if :: says[AT(m, r)] == 0 -> says[AT(m, r)] = v :: else fi
}
inline listen(m, p) {
	d_step {
		m <= reigns && len(up[LINK(m, p)]) > 0 ->
		up[LINK(m, p)]?f_round,f_state,f_verdict,f_asks;
		synced[m] = synced[m] | BIT(p);
#ifdef BREAK_TOTALS
		if :: f_state == ARRIVED && count[AT(m, f_round)] < PARTIES -> count[AT(m, f_round)] = count[AT(m, f_round)] + 1 :: else fi;
#endif
		if
		:: f_state != IDLE ->
			arrived[AT(m, f_round)] = arrived[AT(m, f_round)] | BIT(p);
			if :: f_state == ARRIVED && f_asks != 0 -> asked[AT(m, f_round)] = 1 :: else fi
		:: else
		fi;
		if
		:: f_state == RECORDED || f_state == DONE ->
			acked[AT(m, f_round)] = acked[AT(m, f_round)] | BIT(p);
#ifndef BREAK_FORGETS
			knows(m, f_round, f_verdict)
#endif
		:: f_state == ARRIVED && f_round > 1 ->
			acked[AT(m, f_round - 1)] = acked[AT(m, f_round - 1)] | BIT(p);
			arrived[AT(m, f_round - 1)] = arrived[AT(m, f_round - 1)] | BIT(p);
#ifndef BREAK_FORGETS
			knows(m, f_round - 1, f_verdict)
#endif
		:: else
		fi;
		f_round = 0; f_state = 0; f_verdict = 0; f_asks = 0
	}
}

#ifdef BREAK_OPEN
#define OPEN(m) ((m) <= reigns)
#else
#define OPEN(m) ((m) <= reigns && (ALL & ~gone & ~synced[m]) == 0)
#endif
inline decide(m, r) {
	d_step {
		OPEN(m) && says[AT(m, r)] == 0 && ALL_ARRIVED(m, r) -> says[AT(m, r)] = PASSED
	}
}
inline give_up(m, r) {
	d_step {
		OPEN(m) && says[AT(m, r)] == 0 && (arrived[AT(m, r)] & ~gone) != 0 && (asked[AT(m, r)] || gone != 0) ->
		says[AT(m, r)] = BROKEN
	}
}
#define WAITS(m, r, p) (HAS(arrived[AT(m, r)], p) && !HAS(gone, p))
inline announce(m, r, p) {
	d_step {
		OPEN(m) && says[AT(m, r)] != 0 && WAITS(m, r, p) && !HAS(acked[AT(m, r)], p) && len(down[LINK(m, p)]) == 0 ->
		down[LINK(m, p)]!ANNOUNCE,r,says[AT(m, r)]
	}
}
#ifdef BREAK_ACKS
#define ALL_ACKED(m, r) (acked[AT(m, r)] != 0)
#else
#define ALL_ACKED(m, r) ((arrived[AT(m, r)] & ~acked[AT(m, r)] & ~gone) == 0)
#endif
/* Said to others it changes nothing, unless they take it for another round. */
#ifdef BREAK_ROUND
#define GO_IS_NEWS(p, r)
#else
#define GO_IS_NEWS(p, r) && state[p] == RECORDED && round[p] == r
#endif
inline go(m, r, p) {
	d_step {
		OPEN(m) && says[AT(m, r)] != 0 && WAITS(m, r, p) && ALL_ACKED(m, r) &&
		len(down[LINK(m, p)]) == 0 GO_IS_NEWS(p, r) ->
		down[LINK(m, p)]!GO,r,says[AT(m, r)]
	}
}

/* --- What happens to them --- */

inline new_reign() {
	d_step { reigns < REIGNS -> reigns++ }
}
/* The node's session is expired: its party is told ESTALE, and nothing of it counts. */
inline node_end(p) {
	d_step {
		LIVES(p) && ends < ENDS ->
		ends++; gone = gone | BIT(p);
		if :: reign[p] != 0 && len(UP(p)) > 0 -> UP(p)?_,_,_,_ :: else fi;
		withdraws = withdraws & ~BIT(p); reign[p] = 0
	}
}
inline cut(p) {
	if :: reign[p] != 0 && len(UP(p)) > 0 -> UP(p)?_,_,_,_ :: else fi;
	if :: len(down[LINK(reign[p], p)]) > 0 -> down[LINK(reign[p], p)]?_,_,_ :: else fi
}
inline relink(p) {
	d_step { LIVES(p) && reign[p] != 0 && relinks < RELINKS -> relinks++; cut(p); say(p) }
}
/* The daemon begins anew: the client waits on; of the verdict it knows what is in the ledger. */
inline restart(p) {
	d_step {
		LIVES(p) && reign[p] != 0 && restarts < RESTARTS ->
		restarts++; cut(p);
#ifdef BREAK_LEDGER
		if :: state[p] == RECORDED -> state[p] = ARRIVED; verdict[p] = 0 :: else fi;
#endif
		say(p)
	}
}

#define PARTY(p) \
	:: sync(p) :: arrive(p) :: time_out(p) :: node_end(p) :: relink(p) :: restart(p)
#define ROUND(m, r) \
	:: decide(m, r) :: give_up(m, r)
#define TELLS(m, r, p) \
	:: announce(m, r, p) :: go(m, r, p)
#if ROUNDS == 2
#define ROUND2(m) ROUND(m, 2)
#define TELLS2(m, p) TELLS(m, 2, p)
#else
#define ROUND2(m)
#define TELLS2(m, p)
#endif
#define LINKED(m, p) \
	:: hear(p, m) :: listen(m, p) TELLS(m, 1, p) TELLS2(m, p)
#define MASTER(m) \
	ROUND(m, 1) ROUND2(m) LINKED(m, 0) LINKED(m, 1) LINKED3(m)
#if PARTIES == 3
#define LINKED3(m) LINKED(m, 2)
#else
#define LINKED3(m)
#endif

active proctype all() {
end:	do
	PARTY(0) PARTY(1)
#if PARTIES == 3
	PARTY(2)
#endif
	MASTER(1)
#if REIGNS > 1
	MASTER(2)
#endif
#if REIGNS > 2
	MASTER(3)
#endif
	:: new_reign()
	od
}
