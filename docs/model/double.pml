/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Double barriers (daemon/core/barrier.h): the round to leave by has the parties of the round by which they entered, and is the next one.
 * Masters change, daemons restart, connections break, processes die inside, a node ends.
 *
 * Of each round there is one verdict for all. Nobody hears that all have left before all who entered have said that they are done, and
 * so nobody hears that if one of them has died. A round breaks for a reason: somebody has died, lost patience, or gone with its
 * node. And whoever waits hears something: when nothing more happens nobody is inside.
 *
 *   party     OUT -comes-> IN e -announced: ledger-> TOLD e -go, passed: inside, the same ledger record-> IN e + 1
 *                 <-go, broken-'                               IN e + 1 -announced-> TOLD e + 1 -go-> OUT
 *   master    of e: all are IN -> PASSED; one wants out, or its node has ended -> BROKEN
 *             of e + 1, when nobody is TOLD e any more: fewer are IN e + 1 than there are parties, or one wants out -> BROKEN;
 *             all are ready -> PASSED
 *
 * Rounds to enter by are odd here, those to leave by even. As in barrier.pml a party says its whole state, a new master knows nothing and
 * opens once every party has synced to it or has ended, and a party is in the round to enter by as soon as it comes. Of a process that
 * has died another one of its node comes to the next round.
 *
 * Bounds: PARTIES on as many nodes, CYCLES of entering and leaving, REIGNS, ENDS of nodes, DEATHS of processes (or one loses patience),
 * RESTARTS of daemons, RELINKS, one frame under way each way. Each BREAK_... takes one rule away.
 */
#ifndef PARTIES
#define PARTIES 2
#endif
#ifndef CYCLES
#define CYCLES 1
#endif
#ifndef REIGNS
#define REIGNS 2
#endif
#ifndef ENDS
#define ENDS 1
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef RESTARTS
#define RESTARTS 1
#endif
#ifndef RELINKS
#define RELINKS 1
#endif

#define BIT(p) (1 << (p))
#define HAS(set, p) (((set) & BIT(p)) != 0)
#define ALL (BIT(PARTIES) - 1)
#define ROUNDS (2 * CYCLES)
#define LEAVES(r) ((r) % 2 == 0)

#define OUT 0
#define IN 1
#define TOLD 2

#define PASSED 1
#define BROKEN 2

#define ANNOUNCE 1
#define GO 2

/* parties; `gone` ones have no node any more */
byte state[PARTIES];
byte round[PARTIES];                    /* IN, TOLD: which. OUT: the last */
byte last[PARTIES];                     /* the round of which it knows the verdict ... */
byte verdict[PARTIES];                  /* ... which is this */
byte reign[PARTIES];                    /* that it last synced to */
byte ready;                             /* set: done inside */
byte wants;                             /* set: wants out */
byte dead;                              /* set: the process is, so it wants out until it is */
byte gone;                              /* set */

/* masters, by reign: what each party has said, and the verdicts that are known */
#define LINK(m, p) ((m) * PARTIES + (p))
#define LINKS ((REIGNS + 1) * PARTIES)
#define AT(m, r) ((m) * (ROUNDS + 1) + (r))
byte reigns = 1;
byte synced[REIGNS + 1];
byte s_state[LINKS];
byte s_round[LINKS];
byte s_ready[REIGNS + 1];               /* set */
byte s_wants[REIGNS + 1];               /* set */
byte says[(REIGNS + 1) * (ROUNDS + 1)];

/* state, round, last, verdict, ready, wants; to the party: kind, round, verdict */
chan up[LINKS] = [1] of { byte, byte, byte, byte, byte, byte };
chan down[LINKS] = [1] of { byte, byte, byte };
byte ends = 0, deaths = 0, restarts = 0, relinks = 0;

/* The judge: of each round who was done, and what was told of it. */
byte done[ROUNDS + 1];
byte told[ROUNDS + 1];

hidden byte f_kind, f_state, f_round, f_last, f_verdict, f_ready, f_wants;

#define LIVES(p) (!HAS(gone, p))
#define UP(p) up[LINK(reign[p], p)]
#define CAN_SAY(p) (reign[p] == 0 || len(UP(p)) == 0)
inline say(p) {
	if
	:: reign[p] != 0 -> UP(p)!state[p],round[p],last[p],verdict[p],HAS(ready, p),HAS(wants, p)
	:: else
	fi
}

/* --- A party --- */

/* It is told, and by the same record it is inside, or out. */
inline conclude(p, v) {
	assert(told[round[p]] == 0 || told[round[p]] == v);              /* one verdict for all */
	assert(v != BROKEN || deaths + ends > 0);                        /* for a reason */
	assert(v != PASSED || !LEAVES(round[p]) || done[round[p]] == ALL);       /* all who entered are done */
	told[round[p]] = v;
	last[p] = round[p]; verdict[p] = v;
	ready = ready & ~BIT(p);
	if
	:: v == PASSED && !LEAVES(round[p]) -> round[p]++; state[p] = IN; wants = wants & (~BIT(p) | dead)
	:: else -> state[p] = OUT; wants = wants & ~BIT(p); dead = dead & ~BIT(p)
	fi
}

inline sync(p) {
	d_step {
		LIVES(p) && reign[p] < reigns ->
		if
		:: reign[p] != 0 && len(UP(p)) > 0 -> UP(p)?_,_,_,_,_,_  /* the old master's mail is its own loss */
		:: else
		fi;
		reign[p] = reigns;
		say(p)
	}
}
#define NEXT(p) (round[p] + 1 + round[p] % 2)            /* the next round to enter by, also after one that broke */
inline come(p) {
	d_step {
		LIVES(p) && state[p] == OUT && NEXT(p) <= ROUNDS && CAN_SAY(p) ->
		round[p] = NEXT(p); state[p] = IN;
		say(p)
	}
}
inline is_done(p) {
	d_step {
		LIVES(p) && state[p] == IN && LEAVES(round[p]) && !HAS(ready, p) && !HAS(dead, p) && CAN_SAY(p) ->
		ready = ready | BIT(p); done[round[p]] = done[round[p]] | BIT(p);
		say(p)
	}
}
inline die(p) {
	d_step {
		LIVES(p) && state[p] != OUT && !HAS(dead, p) && deaths < DEATHS && CAN_SAY(p) ->
		deaths++; wants = wants | BIT(p); dead = dead | BIT(p);
		say(p)
	}
}
inline lose_patience(p) {
	d_step {
		LIVES(p) && state[p] == IN && !HAS(wants, p) && deaths < DEATHS && CAN_SAY(p) ->
		deaths++; wants = wants | BIT(p);
		say(p)
	}
}
inline hear(p, m) {
	d_step {
		len(down[LINK(m, p)]) > 0 && (LIVES(p) && CAN_SAY(p) || m != reign[p]) ->
		down[LINK(m, p)]?f_kind,f_round,f_verdict;
		if
		:: m != reign[p] || !LIVES(p) || f_round != round[p]
		:: else ->
			if
			:: f_kind == ANNOUNCE && state[p] == IN ->
				state[p] = TOLD; last[p] = f_round; verdict[p] = f_verdict;
				say(p)
			:: f_kind == ANNOUNCE && state[p] == TOLD ->
				assert(verdict[p] == f_verdict);         /* a record is only driven forward */
				say(p)
			:: f_kind == GO && state[p] == TOLD ->
				conclude(p, verdict[p]);
				say(p)
			:: else
			fi
		fi;
		f_kind = 0; f_round = 0; f_verdict = 0
	}
}

/* --- A master; m is its reign --- */

inline listen(m, p) {
	d_step {
		m <= reigns && len(up[LINK(m, p)]) > 0 ->
		up[LINK(m, p)]?f_state,f_round,f_last,f_verdict,f_ready,f_wants;
		synced[m] = synced[m] | BIT(p);
		s_state[LINK(m, p)] = f_state; s_round[LINK(m, p)] = f_round;
		s_ready[m] = (s_ready[m] & ~BIT(p)) | (f_ready << p);
		s_wants[m] = (s_wants[m] & ~BIT(p)) | (f_wants << p);
#ifndef BREAK_FORGETS
		if :: f_last != 0 && says[AT(m, f_last)] == 0 -> says[AT(m, f_last)] = f_verdict :: else fi;
#endif
		f_state = 0; f_round = 0; f_last = 0; f_verdict = 0; f_ready = 0; f_wants = 0
	}
}

#ifdef BREAK_OPEN
#define OPEN(m) ((m) <= reigns)
#else
#define OPEN(m) ((m) <= reigns && (ALL & ~gone & ~synced[m]) == 0)
#endif
#define SAID(m, p, st, r) (!HAS(gone, p) && HAS(synced[m], p) && s_state[LINK(m, p)] == st && s_round[LINK(m, p)] == (r))
#if PARTIES == 3
#define ANY(m, st, r) (SAID(m, 0, st, r) || SAID(m, 1, st, r) || SAID(m, 2, st, r))
#define COUNT(m, r) (SAID(m, 0, IN, r) + SAID(m, 1, IN, r) + SAID(m, 2, IN, r))
#define SET(m, r) ((SAID(m, 0, IN, r) << 0) | (SAID(m, 1, IN, r) << 1) | (SAID(m, 2, IN, r) << 2))
#else
#define ANY(m, st, r) (SAID(m, 0, st, r) || SAID(m, 1, st, r))
#define COUNT(m, r) (SAID(m, 0, IN, r) + SAID(m, 1, IN, r))
#define SET(m, r) ((SAID(m, 0, IN, r) << 0) | (SAID(m, 1, IN, r) << 1))
#endif
#define WANTED(m, r) ((SET(m, r) & s_wants[m]) != 0)

inline enter(m, r) {
	d_step {
		OPEN(m) && says[AT(m, r)] == 0 && ANY(m, IN, r) && (COUNT(m, r) == PARTIES || WANTED(m, r) || gone != 0) ->
		if
		:: WANTED(m, r) || gone != 0 -> says[AT(m, r)] = BROKEN
		:: else -> says[AT(m, r)] = PASSED
		fi
	}
}

#ifdef BREAK_ENTERS
#define ENTERING(m, r) false
#else
#define ENTERING(m, r) ANY(m, TOLD, (r) - 1)
#endif
#ifdef BREAK_FEW
#define FEW(m, r) false
#else
#define FEW(m, r) (COUNT(m, r) != PARTIES)
#endif
#ifdef BREAK_DEATH
#define OVER(m, r) FEW(m, r)
#else
#define OVER(m, r) (FEW(m, r) || WANTED(m, r))
#endif
#ifdef BREAK_READY
#define ALL_READY(m, r) ((SET(m, r) & s_ready[m]) != 0)
#else
#define ALL_READY(m, r) ((SET(m, r) & ~s_ready[m]) == 0)
#endif
inline leave(m, r) {
	d_step {
		OPEN(m) && says[AT(m, r)] == 0 && ANY(m, IN, r) && !ENTERING(m, r) && (OVER(m, r) || ALL_READY(m, r)) ->
		if
		:: OVER(m, r) -> says[AT(m, r)] = BROKEN
		:: else -> says[AT(m, r)] = PASSED
		fi
	}
}
inline announce(m, r, p) {
	d_step {
		OPEN(m) && says[AT(m, r)] != 0 && SAID(m, p, IN, r) && state[p] == IN && round[p] == r && len(down[LINK(m, p)]) == 0 ->
		down[LINK(m, p)]!ANNOUNCE,r,says[AT(m, r)]
	}
}
#ifdef BREAK_STEP
#define ALL_TOLD(m, r) true
#else
#define ALL_TOLD(m, r) (!ANY(m, IN, r))
#endif
inline go(m, r, p) {
	d_step {
		OPEN(m) && says[AT(m, r)] != 0 && SAID(m, p, TOLD, r) && ALL_TOLD(m, r) && state[p] == TOLD && round[p] == r &&
		len(down[LINK(m, p)]) == 0 ->
		down[LINK(m, p)]!GO,r,0
	}
}

/* --- What happens to them --- */

inline new_reign() {
	d_step { reigns < REIGNS -> reigns++ }
}
/* The node's session is expired, and nothing of it counts. */
inline node_end(p) {
	d_step {
		LIVES(p) && ends < ENDS ->
		ends++; gone = gone | BIT(p);
		if :: reign[p] != 0 && len(UP(p)) > 0 -> UP(p)?_,_,_,_,_,_ :: else fi;
		wants = wants & ~BIT(p); dead = dead & ~BIT(p); ready = ready & ~BIT(p); reign[p] = 0
	}
}
inline cut(p) {
	if :: reign[p] != 0 && len(UP(p)) > 0 -> UP(p)?_,_,_,_,_,_ :: else fi;
	if :: len(down[LINK(reign[p], p)]) > 0 -> down[LINK(reign[p], p)]?_,_,_ :: else fi
}
inline relink(p) {
	d_step { LIVES(p) && reign[p] != 0 && relinks < RELINKS -> relinks++; cut(p); say(p) }
}
/* The daemon begins anew: of who is inside it knows what is in the ledger, and who wants what it is told again. */
inline restart(p) {
	d_step {
		LIVES(p) && reign[p] != 0 && restarts < RESTARTS ->
		restarts++; cut(p);
#ifdef BREAK_LEDGER
		if :: state[p] == IN && LEAVES(round[p]) -> state[p] = OUT; round[p]-- :: else fi;
#endif
		say(p)
	}
}

#define PARTY(p) \
	:: sync(p) :: come(p) :: is_done(p) :: die(p) :: lose_patience(p) :: node_end(p) :: relink(p) :: restart(p)
#define TELLS(m, r, p) \
	:: announce(m, r, p) :: go(m, r, p)
#if CYCLES == 2
#define CYCLE2(m) :: enter(m, 3) :: leave(m, 4)
#define TELLS2(m, p) TELLS(m, 3, p) TELLS(m, 4, p)
#else
#define CYCLE2(m)
#define TELLS2(m, p)
#endif
#define LINKED(m, p) \
	:: hear(p, m) :: listen(m, p) TELLS(m, 1, p) TELLS(m, 2, p) TELLS2(m, p)
#if PARTIES == 3
#define LINKED3(m) LINKED(m, 2)
#else
#define LINKED3(m)
#endif
#define MASTER(m) \
	:: enter(m, 1) :: leave(m, 2) CYCLE2(m) LINKED(m, 0) LINKED(m, 1) LINKED3(m)

#define AT_REST(p) (!LIVES(p) || state[p] == OUT)

active proctype all() {
	do
	PARTY(0) PARTY(1)
#if PARTIES == 3
	PARTY(2)
#endif
	MASTER(1)
#if REIGNS > 1
	MASTER(2)
#endif
	:: new_reign()
	:: timeout ->
		assert(AT_REST(0) && AT_REST(1));                        /* nobody is left waiting */
#if PARTIES == 3
		assert(AT_REST(2));
#endif
		break
	od
}
