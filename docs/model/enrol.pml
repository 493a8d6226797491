/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Who is a party of a barrier's round (daemon/core/barrier.h): a member confirms that it is IN before it is counted.
 *
 * When one has acted on "passed", the other has that verdict in its ledger, or has gone. The
 * steps of the verdict are barrier.pml's matter; here rounds have numbers that the masters give, and whoever waits is
 * put into one (ENROL), confirms (IN), is told (TOLD), and goes.
 *
 *   OUT   may leave at once: its number changes, and an ENROL under way is nobody's
 *   IN    asks (out), and waits; a later master that finds nobody TOLD puts it into a new round, unless it asks
 *   TOLD  waits for GO
 *
 * Bounds: two parties on as many nodes, REIGNS, three rounds, one frame under way each way. Each BREAK_... takes one rule away.
 */
#ifndef REIGNS
#define REIGNS 2
#endif
#ifndef ENDS
#define ENDS 1
#endif

#define P 2
#define ROUNDS 3
#define L(m, p) ((m) * P + (p))

#define OUT 0
#define IN 1
#define TOLD 2
#define ACTED 3                         /* has its verdict, or has left; comes no more */

#define PASSED 1
#define BROKEN 2

#define ENROL 1
#define ANNOUNCE 2
#define GO 3

byte st[P], rd[P], v[P], number[P], reign[P];
bool asks[P], gone[P];

byte reigns = 1, rounds = 0, ends = 0;
/* what a master has heard of each, and its round: forming, or announced with a verdict */
bool heard[(REIGNS + 1) * P];
byte h_st[(REIGNS + 1) * P], h_rd[(REIGNS + 1) * P], h_num[(REIGNS + 1) * P];
bool h_asks[(REIGNS + 1) * P], put_in[(REIGNS + 1) * P];
byte form[REIGNS + 1], says[REIGNS + 1], last[REIGNS + 1];
bool settled[REIGNS + 1];

chan up[(REIGNS + 1) * P] = [1] of { byte, byte, byte, byte, byte };
chan down[(REIGNS + 1) * P] = [1] of { byte, byte, byte, byte };

byte told[ROUNDS + 1];                  /* the judge: what those who acted were told */
byte acted[ROUNDS + 1];                 /* set of them */

hidden byte k, r, w, n, a;

#define UP(p) up[L(reign[p], p)]
#define CAN(p) (!gone[p] && reign[p] != 0 && len(UP(p)) == 0)
#define SAY(p) UP(p)!st[p],rd[p],v[p],number[p],asks[p]
#define THERE(q, x) (gone[q] || (st[q] == TOLD && rd[q] == x) || (acted[x] & (1 << q)))

inline act(p, x, y) {
	assert(told[x] == 0 || told[x] == y);           /* one verdict for all */
	acted[x] = acted[x] | (1 << p); told[x] = y;
	assert(y != PASSED || (THERE(0, x) && THERE(1, x)));
	st[p] = ACTED; asks[p] = false
}

inline sync(p) {
	d_step { !gone[p] && reign[p] < reigns ->
		if :: reign[p] != 0 && len(UP(p)) > 0 -> UP(p)?_,_,_,_,_ :: else fi;
		reign[p] = reigns; SAY(p) }
}
inline time_out(p) {
	d_step { CAN(p) && (st[p] == OUT || st[p] == IN) && !asks[p] ->
		if
		:: st[p] == OUT -> st[p] = ACTED; number[p] = 1
#ifdef BREAK_LEAVE
		:: st[p] == IN -> st[p] = ACTED; number[p] = 1; rd[p] = 0
#else
		:: st[p] == IN -> asks[p] = true
#endif
		fi;
		SAY(p) }
}
inline node_end(p) {
	d_step { !gone[p] && ends < ENDS -> ends++; gone[p] = true;
		if :: reign[p] != 0 && len(UP(p)) > 0 -> UP(p)?_,_,_,_,_ :: else fi }
}
inline hear(p, m) {
	d_step { len(down[L(m, p)]) > 0 && (m != reign[p] || gone[p] || CAN(p)) ->
		down[L(m, p)]?k,r,w,n;
		if
		:: m != reign[p] || gone[p]
		:: else ->
			if
			:: k == ENROL && n == number[p] && (st[p] == OUT || st[p] == IN) ->
				if
				:: st[p] == IN && rd[p] != r && asks[p] -> st[p] = ACTED; number[p] = 1
				:: else -> st[p] = IN; rd[p] = r
				fi;
				SAY(p)
			:: k == ANNOUNCE && st[p] == IN && rd[p] == r -> st[p] = TOLD; v[p] = w; SAY(p)
			:: k == GO && st[p] == TOLD && rd[p] == r -> act(p, r, v[p]); SAY(p)
			:: else
			fi
		fi;
		k = 0; r = 0; w = 0; n = 0 }
}

inline listen(m, p) {
	d_step { len(up[L(m, p)]) > 0 ->
		up[L(m, p)]?k,r,w,n,a;
		heard[L(m, p)] = true; h_st[L(m, p)] = k; h_rd[L(m, p)] = r; h_num[L(m, p)] = n; h_asks[L(m, p)] = a;
		if :: k == ACTED && says[m] == 0 -> put_in[L(m, p)] = false :: else fi;
#ifndef BREAK_DRIVE
		if :: k == TOLD && says[m] == 0 && r > last[m] -> form[m] = r; says[m] = w; settled[m] = true :: else fi;
#endif
		if :: k == ACTED && r > last[m] && w != 0 -> last[m] = r :: else fi; /* PAST */
		k = 0; r = 0; w = 0; n = 0; a = 0 }
}

#define OPEN(m) (m <= reigns && (heard[L(m, 0)] || gone[0]) && (heard[L(m, 1)] || gone[1]))
#define IS_IN(m, p, x) (heard[L(m, p)] && !gone[p] && h_st[L(m, p)] == IN && h_rd[L(m, p)] == x)
#define WAITS(m, p) (heard[L(m, p)] && !gone[p] && (h_st[L(m, p)] == OUT || h_st[L(m, p)] == IN))
/* Somebody is in a round of an earlier reign, and asks or has lost a companion: it has come to nothing. */
inline settle(m, p) {
	d_step { OPEN(m) && !settled[m] && says[m] == 0 && form[m] == 0 && WAITS(m, p) && h_st[L(m, p)] == IN &&
		 (h_asks[L(m, p)] || gone[1 - p]) ->
		settled[m] = true; form[m] = h_rd[L(m, p)]; says[m] = BROKEN }
}
inline enrol(m) {
	d_step { OPEN(m) && says[m] == 0 && form[m] == 0 && (WAITS(m, 0) || WAITS(m, 1)) && rounds < ROUNDS ->
		settled[m] = true; rounds++; form[m] = rounds }
}
#ifdef BREAK_CONFIRM
#define COUNTS(m, p) WAITS(m, p)
#else
#define COUNTS(m, p) IS_IN(m, p, form[m])
#endif
inline tell_enrol(m, p) {
	d_step { OPEN(m) && says[m] == 0 && form[m] != 0 && WAITS(m, p) && !IS_IN(m, p, form[m]) && len(down[L(m, p)]) == 0 ->
		put_in[L(m, p)] = true; down[L(m, p)]!ENROL,form[m],0,h_num[L(m, p)] }
}
inline decide(m) {
	d_step { OPEN(m) && says[m] == 0 && form[m] != 0 ->
		if
		:: (IS_IN(m, 0, form[m]) && h_asks[L(m, 0)]) || (IS_IN(m, 1, form[m]) && h_asks[L(m, 1)]) ||
		   (put_in[L(m, 0)] && gone[0]) || (put_in[L(m, 1)] && gone[1]) -> says[m] = BROKEN
		:: else -> if :: COUNTS(m, 0) && COUNTS(m, 1) -> says[m] = PASSED :: else fi
		fi }
}
inline announce(m, p) {
	d_step { says[m] != 0 && IS_IN(m, p, form[m]) && len(down[L(m, p)]) == 0 -> down[L(m, p)]!ANNOUNCE,form[m],says[m],0 }
}
#ifdef BREAK_STEP
#define ALL_TOLD(m) true
#else
#define ALL_TOLD(m) (!IS_IN(m, 0, form[m]) && !IS_IN(m, 1, form[m]))
#endif
inline go(m, p) {
	d_step { OPEN(m) && says[m] != 0 && ALL_TOLD(m) && heard[L(m, p)] && !gone[p] &&
		 h_st[L(m, p)] == TOLD && h_rd[L(m, p)] == form[m] && len(down[L(m, p)]) == 0 ->
		down[L(m, p)]!GO,form[m],0,0 }
}
inline new_reign() { d_step { reigns < REIGNS -> reigns++ } }

#define PARTY(p) :: sync(p) :: time_out(p) :: node_end(p)
#define LINKED(m, p) :: hear(p, m) :: listen(m, p) :: settle(m, p) :: tell_enrol(m, p) :: announce(m, p) :: go(m, p)
#define MASTER(m) :: enrol(m) :: decide(m) LINKED(m, 0) LINKED(m, 1)

active proctype all() {
end:	do
	PARTY(0) PARTY(1)
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
