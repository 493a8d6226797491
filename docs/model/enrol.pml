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
 * With PLACES those parties have a place in the first round, given with the verdict of the one before: they may be IN at once
 * when they come. The master decides nothing while one of them has its place left: it tells them that it is not good any more
 * (VOID), and waits until they have said so.
 *
 * Bounds: P parties on as many nodes, two of whom make a round; REIGNS, ROUNDS, one frame under way each way. Each BREAK_... takes one
 * rule away. PATIENT: nobody leaves.
 */
#ifndef REIGNS
#define REIGNS 2
#endif
#ifndef ENDS
#define ENDS 1
#endif

#ifndef P
#define P 2
#endif
#ifndef ROUNDS
#define ROUNDS 3
#endif
#ifndef PLACES
#define PLACES 0                        /* set of parties */
#endif
#define PARTIES 2                       /* of a round */
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
#define VOID 4

#if P == 2
#define SUM(f) (f(0) + f(1))
#define EACH_HEARD(m) ((heard[L(m, 0)] || gone[0]) && (heard[L(m, 1)] || gone[1]))
#else
#define SUM(f) (f(0) + f(1) + f(2))
#define EACH_HEARD(m) ((heard[L(m, 0)] || gone[0]) && (heard[L(m, 1)] || gone[1]) && (heard[L(m, 2)] || gone[2]))
#endif

byte st[P], rd[P], v[P], number[P], reign[P];
bool asks[P], gone[P];
bool place[P];                          /* in round 1 */

byte reigns = 1, rounds = 0, ends = 0;
/* what a master has heard of each, and its round: forming, or announced with a verdict */
bool heard[(REIGNS + 1) * P];
byte h_st[(REIGNS + 1) * P], h_rd[(REIGNS + 1) * P], h_num[(REIGNS + 1) * P];
bool h_asks[(REIGNS + 1) * P], put_in[(REIGNS + 1) * P], h_place[(REIGNS + 1) * P];
byte form[REIGNS + 1], says[REIGNS + 1], last[REIGNS + 1];
bool settled[REIGNS + 1];

chan up[(REIGNS + 1) * P] = [1] of { byte, byte, byte, byte, byte };
chan down[(REIGNS + 1) * P] = [1] of { byte, byte, byte, byte };

byte told[ROUNDS + 1];                  /* the judge: what those who acted were told */
byte acted[ROUNDS + 1];                 /* set of them */

hidden byte k, r, w, n, a, x_, m_;

#define UP(p) up[L(reign[p], p)]
#define CAN(p) (!gone[p] && reign[p] != 0 && len(UP(p)) == 0)
#define SAY(p) UP(p)!st[p],rd[p],v[p],number[p],asks[p] + 2 * place[p]
#define THERE(q) (gone[q] || (st[q] == TOLD && rd[q] == x_) || (acted[x_] & (1 << q)) != 0)
#define HAS_ACTED(q) ((acted[x_] & (1 << q)) != 0)

inline act(p, x, y) {
	assert(told[x] == 0 || told[x] == y);           /* one verdict for all */
	acted[x] = acted[x] | (1 << p); told[x] = y;
	x_ = x;
	assert(y != PASSED || SUM(THERE) >= PARTIES);
	assert(y != PASSED || SUM(HAS_ACTED) <= PARTIES);
	x_ = 0;
	st[p] = ACTED; asks[p] = false; place[p] = false
}

inline sync(p) {
	d_step { !gone[p] && reign[p] < reigns ->
		if :: reign[p] != 0 && len(UP(p)) > 0 -> UP(p)?_,_,_,_,_ :: else fi;
		reign[p] = reigns;
		if :: reign[p] > 1 -> place[p] = false :: else fi;
		SAY(p) }
}
#if PLACES
inline come(p) {
	d_step { CAN(p) && st[p] == OUT && place[p] -> st[p] = IN; rd[p] = 1; SAY(p) }
}
#endif
inline time_out(p) {
	d_step { CAN(p) && (st[p] == OUT || st[p] == IN) && !asks[p] ->
		if
		:: st[p] == OUT -> st[p] = ACTED; number[p] = 1; place[p] = false
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
				place[p] = false;
				if
				:: st[p] == IN && rd[p] != r && asks[p] -> st[p] = ACTED; number[p] = 1
				:: else -> rd[p] = r; if :: r == 0 -> st[p] = OUT :: else -> st[p] = IN fi
				fi;
				SAY(p)
			:: k == VOID && (st[p] == OUT || st[p] == IN) -> place[p] = false; SAY(p)
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
		heard[L(m, p)] = true; h_st[L(m, p)] = k; h_rd[L(m, p)] = r; h_num[L(m, p)] = n;
		h_asks[L(m, p)] = a & 1; h_place[L(m, p)] = a >> 1;
		if :: k == ACTED && says[m] == 0 -> put_in[L(m, p)] = false :: else fi;
#ifndef BREAK_DRIVE
		if :: k == TOLD && says[m] == 0 && r > last[m] -> form[m] = r; says[m] = w; settled[m] = true :: else fi;
#endif
		if :: k == ACTED && r > last[m] && w != 0 -> last[m] = r :: else fi; /* PAST */
		k = 0; r = 0; w = 0; n = 0; a = 0 }
}

#define OPEN(m) (m <= reigns && EACH_HEARD(m))
#define IS_IN(m, p, x) (heard[L(m, p)] && !gone[p] && h_st[L(m, p)] == IN && h_rd[L(m, p)] == x)
/* IN the forming round; may be so without our knowing; is about to be, by our word. */
#define IS_HERE(q) IS_IN(m_, q, form[m_])
#ifdef BREAK_PLACES
#define IS_LEFT(q) 0
#else
#define IS_LEFT(q) (h_place[L(m_, q)] && !gone[q] && !IS_HERE(q))
#endif
#define IS_PUT(q) (put_in[L(m_, q)] && WAITS(m_, q) && !IS_HERE(q))
#define IS_OUTSIDE(q) (WAITS(m_, q) && !IS_HERE(q) && !h_place[L(m_, q)])
#define ASKS(q) (IS_HERE(q) && h_asks[L(m_, q)])
#define LOST(q) ((put_in[L(m_, q)] || h_place[L(m_, q)]) && gone[q])
#define WAITS(m, p) (heard[L(m, p)] && !gone[p] && (h_st[L(m, p)] == OUT || h_st[L(m, p)] == IN))
#define IS_GONE(q) gone[q]
/* Somebody is in a round of an earlier reign, and asks or has lost a companion: it has come to nothing. */
inline settle(m, p) {
	d_step { OPEN(m) && !settled[m] && says[m] == 0 && form[m] == 0 && WAITS(m, p) && h_st[L(m, p)] == IN &&
		 (h_asks[L(m, p)] || SUM(IS_GONE) > 0) ->
		settled[m] = true; form[m] = h_rd[L(m, p)]; says[m] = BROKEN }
}
#if P == 2
#define SUM_WAITS(m) (WAITS(m, 0) + WAITS(m, 1))
#else
#define SUM_WAITS(m) (WAITS(m, 0) + WAITS(m, 1) + WAITS(m, 2))
#endif
inline enrol(m) {
	d_step { OPEN(m) && says[m] == 0 && form[m] == 0 && SUM_WAITS(m) > 0 && rounds < ROUNDS ->
		settled[m] = true; rounds++; form[m] = rounds }
}
#ifdef BREAK_CONFIRM
#define COUNTS(q) WAITS(m_, q)
#define NONE_PUT true
#else
#define COUNTS(q) IS_HERE(q)
#define NONE_PUT (SUM(IS_PUT) == 0)
#endif
inline tell_enrol(m, p) {
	d_step { OPEN(m) && says[m] == 0 && form[m] != 0 && WAITS(m, p) && !IS_IN(m, p, form[m]) && len(down[L(m, p)]) == 0 ->
		m_ = m;
		if
		:: put_in[L(m, p)] || SUM(IS_HERE) + SUM(IS_PUT) < PARTIES ->
			put_in[L(m, p)] = true; down[L(m, p)]!ENROL,form[m],0,h_num[L(m, p)]
		:: else
		fi;
		m_ = 0 }
}
#if PLACES
#ifdef BREAK_FIT
/* More are in than make a round: one of them is told that it is not. */
inline put_out(m, p) {
	d_step { OPEN(m) && says[m] == 0 && IS_IN(m, p, form[m]) && !put_in[L(m, p)] && len(down[L(m, p)]) == 0 ->
		m_ = m;
		if :: SUM(IS_HERE) + SUM(IS_PUT) > PARTIES -> down[L(m, p)]!ENROL,0,0,h_num[L(m, p)] :: else fi;
		m_ = 0 }
}
#endif
/* More are in than make a round: they go on in another. */
inline renumber(m) {
	d_step { OPEN(m) && says[m] == 0 && form[m] != 0 && rounds < ROUNDS ->
		m_ = m;
		if
		:: SUM(IS_LEFT) == 0 && SUM(ASKS) + SUM(LOST) == 0 && SUM(IS_HERE) > PARTIES ->
			rounds++; form[m] = rounds;
			for (k : 0 .. P - 1) { put_in[L(m, k)] = false }
			k = 0
		:: else
		fi;
		m_ = 0 }
}
inline tell_void(m, p) {
	d_step { OPEN(m) && says[m] == 0 && h_place[L(m, p)] && !gone[p] && !IS_IN(m, p, form[m]) && len(down[L(m, p)]) == 0 ->
		m_ = m;
		if :: SUM(IS_OUTSIDE) + SUM(ASKS) + SUM(LOST) > 0 -> down[L(m, p)]!VOID,0,0,0 :: else fi;
		m_ = 0 }
}
#endif
inline decide(m) {
	d_step { OPEN(m) && says[m] == 0 && form[m] != 0 ->
		m_ = m;
		if
		:: SUM(IS_LEFT) > 0
		:: else ->
			if
			:: SUM(ASKS) + SUM(LOST) > 0 -> says[m] = BROKEN
			:: else -> if :: SUM(COUNTS) == PARTIES && NONE_PUT -> says[m] = PASSED :: else fi
			fi
		fi;
		m_ = 0 }
}
inline announce(m, p) {
	d_step { says[m] != 0 && IS_IN(m, p, form[m]) && len(down[L(m, p)]) == 0 -> down[L(m, p)]!ANNOUNCE,form[m],says[m],0 }
}
#ifdef BREAK_STEP
#define ALL_TOLD(m) true
#else
#if P == 2
#define ALL_TOLD(m) (!IS_IN(m, 0, form[m]) && !IS_IN(m, 1, form[m]))
#else
#define ALL_TOLD(m) (!IS_IN(m, 0, form[m]) && !IS_IN(m, 1, form[m]) && !IS_IN(m, 2, form[m]))
#endif
#endif
inline go(m, p) {
	d_step { OPEN(m) && says[m] != 0 && ALL_TOLD(m) && heard[L(m, p)] && !gone[p] &&
		 h_st[L(m, p)] == TOLD && h_rd[L(m, p)] == form[m] && len(down[L(m, p)]) == 0 ->
		down[L(m, p)]!GO,form[m],0,0 }
}
inline new_reign() { d_step { reigns < REIGNS -> reigns++ } }

#if PLACES
#define COMES(p) :: come(p)
#define RENUMBERS(m) :: renumber(m)
#ifdef BREAK_FIT
#define PLACED(m, p) :: put_out(m, p) :: tell_void(m, p)
#else
#define PLACED(m, p) :: tell_void(m, p)
#endif
#else
#define COMES(p)
#define RENUMBERS(m)
#define PLACED(m, p)
#endif
#ifdef PATIENT
#define LEAVES(p)
#else
#define LEAVES(p) :: time_out(p)
#endif
#define PARTY(p) :: sync(p) :: node_end(p) LEAVES(p) COMES(p)
#define LINKED(m, p) :: hear(p, m) :: listen(m, p) :: settle(m, p) :: tell_enrol(m, p) :: announce(m, p) :: go(m, p) PLACED(m, p)
#if P == 2
#define MASTER(m) :: enrol(m) :: decide(m) RENUMBERS(m) LINKED(m, 0) LINKED(m, 1)
#else
#define MASTER(m) :: enrol(m) :: decide(m) RENUMBERS(m) LINKED(m, 0) LINKED(m, 1) LINKED(m, 2)
#endif

active proctype all() {
#if PLACES
	d_step {
		place[0] = PLACES & 1; h_place[L(1, 0)] = PLACES & 1;
		place[1] = PLACES >> 1 & 1; h_place[L(1, 1)] = PLACES >> 1 & 1;
		rounds = 1; form[1] = 1; settled[1] = true
	}
#endif
end:	do
	PARTY(0) PARTY(1)
#if P > 2
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
