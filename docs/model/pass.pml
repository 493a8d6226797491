/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A holder hands a name straight on to the heir that the master has named (DESIGN S11, daemon/core/master_pass.c).
 *
 * Never do two that have not ended hold it; tokens rise; who is granted it after a holder ended is told so. When nothing more happens
 * from outside, nobody is left waiting.
 *
 * MEMBERS claim, hold, pass on and give back; the master is another, which a later one may follow: REIGNS. A master that
 * is followed stops at once, but what it has sent arrives. Who opens when, and why what two reigns grant does not meet, is lease.pml's
 * matter: here a reign opens when all who have not ended have synced. Every reign but the first is suspect.
 * A member that ends holds nothing from then on; the master expires it at any time after.
 *
 * A grant is of two tokens, the second of which is used at any time while it lasts. Connections with the master are streams; PASS comes by another, so
 * at any time, or never. Bounds: CLAIMS numbers for each member, ENDS, RELINKS, REIGNS; OFFS heirs that somebody goes before. Each BREAK_... takes one rule away.
 */
#ifndef MEMBERS
#define MEMBERS 3
#endif
#ifndef CLAIMS
#define CLAIMS 1
#endif
#ifndef ENDS
#define ENDS 1
#endif
#ifndef RELINKS
#define RELINKS 0
#endif
#ifndef OFFS
#define OFFS 1
#endif
#ifndef REIGNS
#define REIGNS 1
#endif
#define QUEUE 2

#define NONE 0
#define WAITING 1
#define HELD 2

/* up: SYNC, SAY; down: GRANT, REVOKE */
#define SYNC 1
#define SAY 2
#define GRANT 3
#define REVOKE 4
#define OFF 5                           /* down: not to the heir; up: it will not (KEEP) */

#define BIT(s) (1 << (s))
#define HAS(set, s) ((set) & BIT(s))
#define ALL ((1 << MEMBERS) - 1)
#define TOKEN(n) (reign * 32 + (n))

/* --- Members --- */
byte ended = 0;                         /* set */
byte told = 0;                          /* set: have synced to `epoch` in the present connection */
byte epoch[MEMBERS];
byte claim[MEMBERS];
byte number[MEMBERS];
byte token[MEMBERS];                    /* of the last grant seen */
byte drawn = 0;                         /* set: have used the second token of it */
byte n_heir[MEMBERS];                   /* named: who, 1 for the first; 0: nobody */
byte n_number[MEMBERS];                 /* ... for which claim of its, ... */
byte n_token[MEMBERS];                  /* ... with what, ... */
byte n_epoch[MEMBERS];                  /* ... in which epoch; for the grant that it has */
byte p_heir[MEMBERS];                   /* passed on to, and not acknowledged yet: to whom ... */
byte p_token[MEMBERS];                  /* ... and with what */

/* --- The master of the present reign --- */
byte reign = 1;
byte open = 0;
byte synced = 0;
byte gone = 0;                          /* set: expired, as it knows */
byte q_state[MEMBERS];
byte q_number[MEMBERS];
byte q_token[MEMBERS];
byte q_lost = 0;                        /* set: the grant said that a holder was lost, and has not been seen yet */
byte asked = 0;                         /* set: the holder has been told of the heir */
byte heir = 0;                          /* 1 for the first; 0: nobody */
byte counter = 0;                       /* of the last grant; the heir's is the next */
bit off = 0;                            /* the holder has been asked not to pass it on to the heir */
bit lost = 0;
bit known = 0;                          /* not suspect, or not any more */

/* kind, epoch, number, claim, token seen, passed on to, with what; there is always room for OFF */
chan up[MEMBERS] = [QUEUE + OFFS + RELINKS] of { byte, byte, byte, byte, byte, byte, byte };
/* kind, epoch, number (REVOKE: the heir's), token (REVOKE: the holder's), lost (REVOKE: the heir), REVOKE: the heir's token */
chan down[MEMBERS] = [QUEUE] of { byte, byte, byte, byte, byte, byte };
/* epoch, number, token, lost */
chan pass[MEMBERS] = [1] of { byte, byte, byte, byte };

byte ends = 0, relinks = 0, offs = 0;
/* --- What the judge remembers --- */
byte last = 0;
bit unsaid = 0;                         /* a holder has ended, and nobody has been told */

hidden byte i, k;
hidden byte heard;
hidden byte f_kind, f_epoch, f_number, f_claim, f_token, f_heir, f_with, f_lost;

#define ALIVE(s) (!HAS(ended, s))
#define HOLDS(s) (ALIVE(s) && claim[s] == HELD)
#if MEMBERS == 3
#define NOBODY_HELD (q_state[0] != HELD && q_state[1] != HELD && q_state[2] != HELD)
#define ROOMS (ROOM(down[0]) && ROOM(down[1]) && ROOM(down[2]))
#else
#define NOBODY_HELD (q_state[0] != HELD && q_state[1] != HELD)
#define ROOMS (ROOM(down[0]) && ROOM(down[1]))
#endif
#define ROOM(c) (len(c) < QUEUE)

inline drain(c) {
	do
	:: len(c) > 0 -> c?f_kind,f_epoch,f_number,f_claim,f_token,f_heir,f_with
	:: else -> break
	od
}
inline drain_down(c) {
	do
	:: len(c) > 0 -> c?f_kind,f_epoch,f_number,f_token,f_lost,f_with
	:: else -> break
	od
}
inline forget() {
	f_kind = 0; f_epoch = 0; f_number = 0; f_claim = 0; f_token = 0; f_heir = 0; f_with = 0; f_lost = 0
}

inline uses(t) {
	assert(t > last);                /* tokens rise */
	last = t
}

/* By a GRANT or a PASS: f_token, f_lost. */
inline takes(s) {
	claim[s] = HELD; token[s] = f_token; drawn = drawn & ~BIT(s);
	n_heir[s] = 0; n_number[s] = 0; n_token[s] = 0; n_epoch[s] = 0;
	p_heir[s] = 0; p_token[s] = 0;
	i = 0; k = 0;
	do
	:: i < MEMBERS -> if :: HOLDS(i) -> k++ :: else fi; i++
	:: else -> break
	od;
	assert(k <= 1);                  /* two holders */
	assert(!unsaid || f_lost);       /* nobody was told that a holder was lost */
	unsaid = 0;
	i = 0; k = 0;
	uses(f_token)
}

inline say(s, kind) {
	up[s]!kind,epoch[s],number[s],claim[s],token[s],p_heir[s],p_token[s]
}
/* What it does not say now it says when it syncs. */
#define CAN_SAY(s) (!HAS(told, s) || ROOM(up[s]))
inline tells(s) {
	if :: HAS(told, s) -> say(s, SAY) :: else fi
}

/* --- What members do --- */

inline claims(s) {
	d_step {
		ALIVE(s) && claim[s] == NONE && number[s] < CLAIMS && CAN_SAY(s) ->
		claim[s] = WAITING; number[s]++;
		tells(s)
	}
}
inline withdraws(s) {
	d_step {
		ALIVE(s) && claim[s] == WAITING && CAN_SAY(s) ->
		claim[s] = NONE;
		tells(s)
	}
}
inline draws(s) {
	d_step {
		HOLDS(s) && !HAS(drawn, s) ->
		drawn = drawn | BIT(s);
		uses(token[s] + 1)
	}
}

/* In the epoch that it was told for. The connection may be full, or not there: then through the master. */
#define PASSES(s) (n_heir[s] != 0 && n_epoch[s] == epoch[s] && len(pass[n_heir[s] - 1]) == 0)
inline ends_hold(s, then) {
	if
	:: PASSES(s) ->
		pass[n_heir[s] - 1]!n_epoch[s],n_number[s],n_token[s],0;
		p_heir[s] = n_heir[s]; p_token[s] = n_token[s]
	:: else
	fi;
	n_heir[s] = 0; n_number[s] = 0; n_token[s] = 0; n_epoch[s] = 0;
	drawn = drawn & ~BIT(s);
	claim[s] = then;
	if :: then == WAITING -> number[s]++ :: else fi;
	tells(s)
}
inline gives_back(s) {
	d_step { HOLDS(s) && CAN_SAY(s) -> ends_hold(s, NONE) }
}
inline yields(s) {
	d_step { HOLDS(s) && number[s] < CLAIMS && CAN_SAY(s) -> ends_hold(s, WAITING) }
}

inline syncs(s) {
	d_step {
		ALIVE(s) && !HAS(told, s) && ROOM(up[s]) ->
		epoch[s] = reign; told = told | BIT(s);
		say(s, SYNC)
	}
}
/* An answer of the master's to what it has heard. */
inline acknowledged(s) {
	d_step {
		ALIVE(s) && p_heir[s] != 0 && HAS(told, s) && epoch[s] == reign && HAS(synced, s) && empty(up[s]) ->
		p_heir[s] = 0; p_token[s] = 0
	}
}

#ifdef BREAK_EPOCH
#define CURRENT(s) true
#else
#define CURRENT(s) (f_epoch == epoch[s])
#endif
#ifdef BREAK_NUMBER
#define FOR_CLAIM(s) true
#else
#define FOR_CLAIM(s) (f_number == number[s])
#endif
inline hears_pass(s) {
	d_step {
		ALIVE(s) && len(pass[s]) > 0 ->
		pass[s]?f_epoch,f_number,f_token,f_lost;
		if
		:: CURRENT(s) && FOR_CLAIM(s) && claim[s] == WAITING -> takes(s)
		:: else
		fi;
		forget()
	}
}
inline loses_pass(s) {
	d_step {
		len(pass[s]) > 0 -> pass[s]?f_epoch,f_number,f_token,f_lost; forget()
	}
}
inline hears(s) {
	d_step {
		ALIVE(s) && len(down[s]) > 0 ->
		down[s]?f_kind,f_epoch,f_number,f_token,f_lost,f_with;
		if
		:: f_epoch == epoch[s] && f_kind == GRANT && claim[s] == WAITING && f_number == number[s] -> takes(s)
		:: f_epoch == epoch[s] && f_kind == REVOKE && claim[s] == HELD && f_token == token[s] ->
			n_heir[s] = f_lost; n_number[s] = f_number; n_token[s] = f_with; n_epoch[s] = f_epoch
		:: f_epoch == epoch[s] && f_kind == OFF && claim[s] == HELD && f_token == token[s] ->
			n_heir[s] = 0; n_number[s] = 0; n_token[s] = 0; n_epoch[s] = 0;
			if :: HAS(told, s) -> up[s]!OFF,epoch[s],0,0,0,0,f_with :: else fi
		:: else
		fi;
		forget()
	}
}

/* --- What the master does --- */

inline to_member(s, kind, n, t, l, with) {
	if :: ALIVE(s) -> down[s]!kind,reign,n,t,l,with :: else fi
}

/* Whoever waits by that claim has it from now on. */
inline granted(s) {
	counter = counter + 2; heir = 0; off = 0; asked = 0;
	q_state[s] = HELD; q_token[s] = TOKEN(counter);
	if :: lost || !known -> q_lost = q_lost | BIT(s) :: else -> q_lost = q_lost & ~BIT(s) fi;
	to_member(s, GRANT, q_number[s], q_token[s], (HAS(q_lost, s) -> 1 : 0), 0);
	lost = 0; known = 1
}

inline heir_gone() {
	counter = counter + 2; heir = 0; off = 0
}
/* It has not been given it. What the holder was asked is about the range, which is used no more then. */
inline heir_end() {
	if :: off -> counter = counter + 2 :: else fi;
	heir = 0; off = 0
}

/* The heir has it: whoever held it has given it back. */
inline proves(s) {
	i = 0;
	do
	:: i < MEMBERS -> if :: q_state[i] == HELD -> q_state[i] = NONE; q_token[i] = 0 :: else fi; i++
	:: else -> break
	od;
	i = 0;
	counter = counter + 2; heir = 0; off = 0;
	q_state[s] = HELD; q_token[s] = f_token; q_lost = q_lost & ~BIT(s); known = 1
}
#ifdef BREAK_PROOF
#define PROVES(s) false
#else
#define PROVES(s) (f_token == TOKEN(counter + 2))
#endif
inline hears_heir(s) {
	if
	:: heir == s + 1 && f_number >= q_number[s] ->
		if
		:: PROVES(s) -> proves(s)
		:: else -> if :: f_number > q_number[s] || f_claim == NONE -> heir_end() :: else fi
		fi
	:: else
	fi
}
#ifdef BREAK_GONE
#define HEIR_LOST false
#else
#define HEIR_LOST (!(heir != 0 && f_with == TOKEN(counter + 2)) && HAS(gone, f_heir - 1))
#endif
inline hears_new(s) {
	if
	:: q_state[s] == HELD && f_token != q_token[s] ->                /* has never seen it */
		if :: HAS(q_lost, s) -> lost = 1 :: else fi
	:: q_state[s] == HELD && f_token == q_token[s] && f_heir != 0 && open ->
		heard = 1;
		if :: heir != 0 && f_with != TOKEN(counter + 2) -> heir_end() :: else fi;
		if :: HEIR_LOST -> lost = 1 :: else fi
	:: q_state[s] == HELD && f_token == q_token[s] && f_heir == 0 && f_claim != HELD && heir != 0 -> heir_end()
	:: else
	fi;
	q_lost = q_lost & ~BIT(s);
	q_state[s] = f_claim; q_number[s] = f_number;
	if :: f_claim == HELD -> q_token[s] = f_token; known = 1 :: else -> q_token[s] = 0 fi;
#ifndef BREAK_HEARD
	if
	:: heard != 0 && heir != 0 && f_with == TOKEN(counter + 2) -> k = heir - 1; granted(k); k = 0
	:: else
	fi;
#endif
	heard = 0
}
inline hears_statement(s) {
	hears_heir(s);
	if
	:: f_number < q_number[s]
	:: f_number == q_number[s] && f_claim == WAITING && q_state[s] == HELD ->
		to_member(s, GRANT, f_number, q_token[s], (HAS(q_lost, s) -> 1 : 0), 0)
	:: f_number == q_number[s] && f_claim == HELD && q_state[s] == HELD -> q_lost = q_lost & ~BIT(s)
	:: f_number == q_number[s] && f_claim == WAITING && q_state[s] != HELD && q_state[s] != NONE
	:: else ->
		if
		:: open && f_claim == HELD && q_state[s] != HELD             /* more than was granted */
		:: else -> hears_new(s)
		fi
	fi;
	if
	:: f_kind == SYNC ->
		synced = synced | BIT(s);
		asked = asked & ~BIT(s);
		if :: (synced | gone) == ALL -> open = 1 :: else fi
	:: else
	fi
}
inline master_hears(s) {
	d_step {
		len(up[s]) > 0 && ROOMS ->
		up[s]?f_kind,f_epoch,f_number,f_claim,f_token,f_heir,f_with;
		if
		:: f_epoch == reign && !HAS(gone, s) && f_kind != OFF -> hears_statement(s)
		:: f_epoch == reign && !HAS(gone, s) && f_kind == OFF ->
			if :: heir != 0 && off && f_with == TOKEN(counter + 2) -> heir_end() :: else fi
		:: else
		fi;
		forget()
	}
}

#ifdef BREAK_RANGE
#define SET_ASIDE (TOKEN(counter + 1))
#else
#define SET_ASIDE (TOKEN(counter + 2))
#endif
#ifdef BREAK_OFF
#define ASKED heir = 0
#else
#define ASKED off = 1
#endif
/* Somebody goes before the heir. */
inline unnames(s) {
	d_step {
		open && q_state[s] == HELD && heir != 0 && (off -> !HAS(asked, s) : offs < OFFS) && ROOM(down[s]) && !HAS(gone, s) ->
		if :: !off -> offs++ :: else fi;
		asked = asked | BIT(s);
		to_member(s, OFF, 0, q_token[s], 0, TOKEN(counter + 2));
		ASKED
	}
}
#ifdef BREAK_HEIR
#define NAME(t) skip
#else
#define NAME(t) heir = t + 1
#endif
inline names(s, t) {
	d_step {
		open && q_state[s] == HELD && q_state[t] == WAITING && (heir == 0 || (heir == t + 1 && !off && !HAS(asked, s))) && ROOM(down[s]) && !HAS(gone, s) ->
		NAME(t); asked = asked | BIT(s);
		to_member(s, REVOKE, q_number[t], q_token[s], t + 1, SET_ASIDE)
	}
}

/* Any that waits may be the next; but an heir before all. */
inline grants(s) {
	d_step {
		open && q_state[s] == WAITING && NOBODY_HELD && (heir == 0 || heir == s + 1) && ROOM(down[s]) ->
		granted(s)
	}
}

#ifdef BREAK_ENDED
#define HEIR_ENDS heir = 0; off = 0
#else
#define HEIR_ENDS skip
#endif
inline expires(s) {
	d_step {
		HAS(ended, s) && !HAS(gone, s) ->
		gone = gone | BIT(s);
		if :: heir == s + 1 -> heir_gone() :: else fi;
		if
		:: q_state[s] == HELD -> lost = 1; HEIR_ENDS
		:: else
		fi;
		q_state[s] = NONE; q_token[s] = 0; q_lost = q_lost & ~BIT(s);
		if :: (synced | gone) == ALL -> open = 1 :: else fi
	}
}

/* --- What happens to them --- */

inline dies(s) {
	d_step {
		ALIVE(s) && ends < ENDS ->
		ends++;
		ended = ended | BIT(s);
		if :: claim[s] == HELD -> unsaid = 1 :: else fi;
		claim[s] = NONE; token[s] = 0; drawn = drawn & ~BIT(s);
		n_heir[s] = 0; n_number[s] = 0; n_token[s] = 0; n_epoch[s] = 0; p_heir[s] = 0; p_token[s] = 0;
		epoch[s] = 0; drain_down(down[s]);
		if :: len(pass[s]) > 0 -> pass[s]?f_epoch,f_number,f_token,f_lost :: else fi;
		forget()
	}
}
inline relinked(s) {
	d_step {
		ALIVE(s) && relinks < RELINKS && HAS(told, s) ->
		relinks++;
		drain(up[s]); drain_down(down[s]); forget();
		told = told & ~BIT(s); synced = synced & ~BIT(s); asked = asked & ~BIT(s)
	}
}
/* The next master has heard nothing yet; what the one before has sent is under way. */
inline follows() {
	d_step {
		reign < REIGNS ->
		reign++;
		open = 0; synced = 0; asked = 0; heir = 0; off = 0; counter = 0; lost = 0; known = 0; q_lost = 0; told = 0;
		i = 0;
		do
		:: i < MEMBERS ->
			q_state[i] = NONE; q_number[i] = 0; q_token[i] = 0;
			drain(up[i]); i++
		:: else -> break
		od;
		i = 0; forget()
	}
}

/* Nothing more can happen. */
inline quiet() {
	i = 0;
	do
	:: i < MEMBERS -> assert(!(ALIVE(i) && claim[i] == WAITING)); i++
	:: else -> break
	od;
	i = 0
}

#ifdef NO_CANCEL
#define WITHDRAWS(s)
#else
#define WITHDRAWS(s) :: withdraws(s)
#endif
#define MEMBER(s) \
	:: claims(s) WITHDRAWS(s) :: draws(s) :: gives_back(s) :: yields(s) :: syncs(s) :: acknowledged(s) \
	:: hears_pass(s) :: loses_pass(s) :: hears(s) :: master_hears(s) :: grants(s) :: expires(s) :: dies(s) :: relinked(s) :: unnames(s)

active proctype all() {
	known = 1;                       /* the first reign of all */
end:	do
	MEMBER(0)
	MEMBER(1)
	:: names(0, 1) :: names(1, 0)
#if MEMBERS == 3
	MEMBER(2)
	:: names(0, 2) :: names(1, 2) :: names(2, 0) :: names(2, 1)
#endif
	:: follows()
	:: else -> quiet(); break
	od
}
