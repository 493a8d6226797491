/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The heart of the lease plane (DESIGN S2 to S6, daemon/core): one shard, one exclusive lock.
 *
 * Never do two sessions that have not lapsed hold the lock, and its tokens rise. When nothing more
 * happens from outside, nobody is left waiting.
 *
 * An actor is a session, since that is what masters and maps know; a node that comes back is another
 * actor, which begins once the first has lapsed. A daemon that restarts is the same actor with the
 * next incarnation, which knows what the ledger says and nothing else. The store has a beat, a member
 * record and the map, each read by itself and at any time; only the list of members may be long under way
 * (an answer about the map that is late is the same as a late question, because there is one at a time).
 * A clock is one bit: a session may lapse at any step, and may be expired only after it has (beat.pml
 * shows why that is so).
 *
 * Connections are streams: what arrives is a beginning of what was sent. What is left of an older one is
 * dropped on arrival (S5), which is the same as lost; only with BREAK_CONN one such frame is kept.
 *
 * Bounds: SESSIONS 2 or 3, the first STARTED of them there from the start; STORE map changes, expiries and joins in
 * all; RESTARTS, RELINKS; CLAIMS numbers for each incarnation; QUEUE frames under way each way. MASTERS,
 * CLAIMERS and MORTALS (who may lapse) are bit sets of sessions. NO_RAISE: no master
 * is followed by itself. NO_CANCEL: who waits
 * does so until it is granted. SPLIT: a sync is three frames instead of one. REJOIN: the last
 * session is the first one's node, come back. Each BREAK_... takes one rule away.
 */
#ifndef SESSIONS
#define SESSIONS 3
#endif
#ifndef STARTED
#define STARTED 2
#endif
#ifndef STORE
#define STORE 3
#endif
#ifndef RESTARTS
#define RESTARTS 0
#endif
#ifndef RELINKS
#define RELINKS 0
#endif
#ifndef CLAIMS
#define CLAIMS 1
#endif
#ifndef QUEUE
#define QUEUE 2
#endif
#ifndef MASTERS
#define MASTERS 3
#endif
#ifndef MORTALS
#define MORTALS 7
#endif
#ifndef CLAIMERS
#define CLAIMERS 7
#endif
#define PAIRS (SESSIONS * SESSIONS)

#define BIT(s) (1 << (s))
#define HAS(set, s) ((set) & BIT(s))
#define TOKEN(epoch, n) ((epoch) * 8 + (n))

/* session.h; a crash leads back to BEATING, with the next incarnation */
#define OFF 0
#define BEATING 1
#define ENROLLING 2
#define LIVE 3
#define LAPSED 4

/* member.h, and the same of a claim at its master */
#define NONE 0
#define WAITING 1
#define HELD 2

/* frames (msg.h). FIRST and LAST are flags of SYNC there; SYNC alone stands for all three at once */
#define SYNC 1
#define FIRST 2
#define STATE 3
#define LAST 4
#define CLAIM 5
#define RELEASE 6
#define GRANT 7

/* --- The store --- */
byte beat[SESSIONS];                    /* 0 absent, else the incarnation in it */
byte tomb;                              /* set: beats that are tombstones */
byte member;                            /* set: member records */
byte map_epoch = 1;                     /* the map: epoch, and who reigns in it */
byte map_master;
byte map_inc;
byte stored = 0;                        /* events so far */

/* --- Sessions --- */
byte state[SESSIONS];
byte inc[SESSIONS];
byte list[SESSIONS];                    /* an answer under way: set of members. 0: none */
byte list_for;                          /* set: whose list was asked for after it had seen its epoch (members_for) */
byte listed[SESSIONS];                  /* as last answered */

/* members */
byte epoch[SESSIONS];                   /* of the shard, as last seen in the map; 0: not seen */
byte master[SESSIONS];                  /* ... and who reigns in it */
byte master_inc[SESSIONS];
byte told;                              /* set: the telling to the present epoch has begun */
byte claim[SESSIONS];
byte number[SESSIONS];
byte token[SESSIONS];                   /* of the last grant seen */

/* masters: what is of no use is zero, so that equal states are equal */
byte open;                              /* set */
byte listed_for;                        /* set: a list counted for this reign (master.listed) */
byte needed[SESSIONS];
byte synced[SESSIONS];
byte counter[SESSIONS];
byte q_state[PAIRS];                    /* [master * SESSIONS + member] */
byte q_number[PAIRS];
byte q_token[PAIRS];
#ifdef SPLIT
byte hearing[SESSIONS];
byte said[SESSIONS];                    /* set: claims stated in the present connection (round) */
byte walk[SESSIONS];                    /* of the member's sync: 0 none, or the frame that is next */
#endif

/* kind, epoch, number, claim's state, token seen or granted */
chan net[PAIRS] = [QUEUE] of { byte, byte, byte, byte, byte };
byte restarts = 0, relinks = 0;
#ifdef CALM
bit calm;                               /* nothing more happens from outside, nobody gives up waiting */
#define OUTSIDE (FREE && calm == 0)
#define GIVES_UP(s) (claim[s] == HELD || calm == 0)
#else
#define OUTSIDE FREE
#ifdef NO_CANCEL
#define GIVES_UP(s) (claim[s] == HELD)
#else
#define GIVES_UP(s) true
#endif
#endif
bit due;                                /* a master is to grant before anything else happens */
/* What is between a node's member and its master is said and heard in one step of the core. */
#if SESSIONS == 3
#define FREE (due == 0 && empty(net[0]) && empty(net[4]) && empty(net[8]))
#else
#define FREE (due == 0 && empty(net[0]) && empty(net[3]))
#endif
#ifdef BREAK_CONN
byte o_kind, o_pair, o_epoch, o_number, o_claim, o_token;
#endif

/* --- What the judge remembers --- */
byte last_token;

hidden byte i, j, k, p;
hidden byte f_kind, f_epoch, f_number, f_claim, f_token;

#define PAIR(from, to) ((from) * SESSIONS + (to))
#define NODE(s) ((s) == SESSIONS - 1 -> 0 : (s))
#ifdef REJOIN
#define MAY_BEGIN(s) (state[0] == LAPSED)
#else
#define MAY_BEGIN(s) true
#endif

/* Does the session s reign, by what the map says of it? */
#ifdef BREAK_NODE
#define REIGNS(s, of, of_inc) (NODE(of) == NODE(s) && (of != s || of_inc == inc[s]))
#define TO(s) ((state[SESSIONS - 1] == LIVE && NODE(master[s]) == 0) -> SESSIONS - 1 : master[s])
#else
#ifdef BREAK_INCARNATION
#define REIGNS(s, of, of_inc) (of == s)
#else
#define REIGNS(s, of, of_inc) (of == s && of_inc == inc[s])
#endif
#define TO(s) (master[s])
#endif
#define MASTER(s) (epoch[s] != 0 && REIGNS(s, master[s], master_inc[s]))

#define HOLDS(s) (claim[s] == HELD && state[s] != LAPSED)
#define ALIVE(s) (state[s] == BEATING || state[s] == LIVE)

inline judge() {
	i = 0; k = 0;
	do
	:: i < SESSIONS -> if :: HOLDS(i) -> k++ :: else fi; i++
	:: else -> break
	od;
	assert(k <= 1);                 /* two holders */
	i = 0; k = 0
}

#define ROOM(s, n) (len(net[PAIR(s, TO(s))]) + (n) <= QUEUE)
#define LINKED(s) (epoch[s] != 0 && state[TO(s)] == LIVE)

/* A frame of an epoch that its receiver has left behind will be dropped: it is not even sent. */
#ifdef BREAK_EPOCH
#define OF_USE(to, e) true
#else
#define OF_USE(to, e) (state[to] == LIVE && (e) >= epoch[to])
#endif
inline send(from, to, kind, e, n, c, t) {
	if
	:: OF_USE(to, e) -> net[PAIR(from, to)]!kind,e,n,c,t
	:: else
	fi
}
/* ... or is taken away when the receiver goes on. */
inline prune(s) {
	i = 0;
	do
	:: i < SESSIONS ->
		j = len(net[PAIR(i, s)]);
		do
		:: j > 0 ->
			net[PAIR(i, s)]?f_kind,f_epoch,f_number,f_claim,f_token;
			send(i, s, f_kind, f_epoch, f_number, f_claim, f_token);
			j--
		:: else -> break
		od;
		i++
	:: else -> break
	od;
	i = 0; f_kind = 0; f_epoch = 0; f_number = 0; f_claim = 0; f_token = 0
}

inline drain(pair) {
	do
	:: len(net[pair]) > 0 -> net[pair]?_,_,_,_,_
	:: else -> break
	od
}

/* Every connection of s is gone, and with it what was under way. */
inline unlink(s) {
	i = 0;
	do
	:: i < SESSIONS ->
		drain(PAIR(s, i)); drain(PAIR(i, s));
		synced[i] = synced[i] & ~BIT(s);
#ifdef SPLIT
		hearing[i] = hearing[i] & ~BIT(s); said[i] = said[i] & ~BIT(s);
#endif
		if :: epoch[i] != 0 && TO(i) == s -> told = told & ~BIT(i) :: else fi;
		i++
	:: else -> break
	od;
	i = 0
}

inline claim_forget(m, s) {
	q_state[PAIR(m, s)] = NONE; q_number[PAIR(m, s)] = 0; q_token[PAIR(m, s)] = 0
}

/* master_reign() begins so, master_yield() and a lapse end so. */
inline reign_clear(m) {
	open = open & ~BIT(m); listed_for = listed_for & ~BIT(m);
	needed[m] = 0; synced[m] = 0; counter[m] = 0;
#ifdef SPLIT
	hearing[m] = 0; said[m] = 0;
#endif
	i = 0;
	do
	:: i < SESSIONS -> claim_forget(m, i); i++
	:: else -> break
	od;
	i = 0
}

inline daemon_clear(s) {
	reign_clear(s); unlink(s);
	list[s] = 0; list_for = list_for & ~BIT(s); listed[s] = 0;
	epoch[s] = 0; master[s] = 0; master_inc[s] = 0; told = told & ~BIT(s)
#ifdef SPLIT
	; walk[s] = 0
#endif
}

inline lapse(s) {
	daemon_clear(s);
	state[s] = LAPSED; claim[s] = NONE; number[s] = 0; token[s] = 0
}

/* --- The master hears --- */

#ifdef BREAK_OPEN
#define ALL_SYNCED(s) true
#else
#define ALL_SYNCED(s) ((needed[s] & listed[s] & ~synced[s]) == 0)
#endif
inline open_when_synced(s) {
	if
	:: MASTER(s) && HAS(listed_for, s) && ALL_SYNCED(s) -> open = open | BIT(s)
	:: else
	fi
}

#if SESSIONS == 3
#define NOBODY_HOLDS(m) (q_state[PAIR(m, 0)] != HELD && q_state[PAIR(m, 1)] != HELD && q_state[PAIR(m, 2)] != HELD)
#define SOME_WAITS(m) (q_state[PAIR(m, 0)] == WAITING || q_state[PAIR(m, 1)] == WAITING || q_state[PAIR(m, 2)] == WAITING)
#define ROOM_FOR_GRANTS(m) (len(net[PAIR(m, 0)]) < QUEUE && len(net[PAIR(m, 1)]) < QUEUE && len(net[PAIR(m, 2)]) < QUEUE)
#else
#define ROOM_FOR_GRANTS(m) (len(net[PAIR(m, 0)]) < QUEUE && len(net[PAIR(m, 1)]) < QUEUE)
#define NOBODY_HOLDS(m) (q_state[PAIR(m, 0)] != HELD && q_state[PAIR(m, 1)] != HELD)
#define SOME_WAITS(m) (q_state[PAIR(m, 0)] == WAITING || q_state[PAIR(m, 1)] == WAITING)
#endif
/* The master grants in the same step: nothing else happens in between. */
inline work(m) {
	if
	:: HAS(open, m) && NOBODY_HOLDS(m) && SOME_WAITS(m) && ROOM_FOR_GRANTS(m) -> due = 1
	:: else
	fi
}


inline grant_say(m, s) {
	if
	:: len(net[PAIR(m, s)]) < QUEUE -> send(m, s, GRANT, epoch[m], q_number[PAIR(m, s)], 0, q_token[PAIR(m, s)])
	:: else                                /* as if lost: the next connection says it again */
	fi
}

inline hear_release(m, s) {
	if
	:: q_state[PAIR(m, s)] != NONE && q_number[PAIR(m, s)] <= f_number -> claim_forget(m, s)
	:: else
	fi
}

/* take_statement(): the number says what is new, `seen` what became of the last grant. */
inline hear_statement(m, s) {
	p = PAIR(m, s);
#ifdef SPLIT
	if :: q_state[p] != NONE -> said[m] = said[m] | BIT(s) :: else fi;
#endif
	if
	:: q_state[p] != NONE && f_number < q_number[p]
	:: q_state[p] != NONE && f_number == q_number[p] ->
		if
		:: f_claim == WAITING && q_state[p] == HELD && f_token != q_token[p] -> grant_say(m, s)
		:: else
		fi
	:: else ->
		if
		:: HAS(open, m) && f_claim == HELD && q_state[p] != HELD      /* more than was granted */
		:: else ->
			if :: q_state[p] == NONE || (f_claim == HELD && f_token != q_token[p]) -> q_token[p] = f_token :: else fi;
			q_state[p] = f_claim; q_number[p] = f_number;
			if :: f_claim != HELD -> q_token[p] = 0 :: else fi;
#ifdef SPLIT
			said[m] = said[m] | BIT(s)
#endif
		fi
	fi;
	p = 0
}

inline hear_sync(m, s) {
	if
	:: f_claim != NONE -> hear_statement(m, s)
	:: else -> claim_forget(m, s)
	fi;
	synced[m] = synced[m] | BIT(s);
	open_when_synced(m)
}

#ifdef SPLIT
#ifdef BREAK_RESYNC
#define HEARD(m, s) true
#else
#define HEARD(m, s) HAS(hearing[m], s)
#endif
inline hear_last(m, s) {
	if
	:: HEARD(m, s) ->
		if :: !HAS(said[m], s) && m != s -> claim_forget(m, s) :: else fi;
		synced[m] = synced[m] | BIT(s);
		open_when_synced(m)
	:: else
	fi
}
#endif

/* --- The member hears --- */

#ifdef BREAK_EPOCH
#define GRANT_CURRENT(s, m) true
#else
#define GRANT_CURRENT(s, m) (HAS(told, s) && f_epoch == epoch[s] && m == TO(s))
#endif
#ifdef BREAK_WAITS
#define GRANT_WANTED(s) (claim[s] != HELD && f_number == number[s])
#else
#define GRANT_WANTED(s) (claim[s] == WAITING && f_number == number[s])
#endif

inline hear_grant(s, m) {
	if
	:: GRANT_CURRENT(s, m) && GRANT_WANTED(s) ->
		claim[s] = HELD; token[s] = f_token;
		assert(f_token > last_token);    /* tokens rise */
		last_token = f_token;
		judge()
	:: else
	fi
}

inline hear(from, to) {
	if
	:: state[to] != LIVE
	:: state[to] == LIVE && f_kind == GRANT -> hear_grant(to, from)
	:: state[to] == LIVE && f_kind != GRANT ->
		if
		:: MASTER(to) && f_epoch == epoch[to] && (from == to || HAS(listed[to], from)) ->
			if
			:: f_kind == SYNC -> hear_sync(to, from)
			:: f_kind == CLAIM || f_kind == STATE -> hear_statement(to, from)
			:: f_kind == RELEASE -> hear_release(to, from)
#ifdef SPLIT
			:: f_kind == FIRST -> hearing[to] = hearing[to] | BIT(from)
			:: f_kind == LAST -> hear_last(to, from)
#endif
			fi;
			work(to)
		:: else
		fi
	fi;
	f_kind = 0; f_epoch = 0; f_number = 0; f_claim = 0; f_token = 0
}

/* --- What a session does --- */

#ifdef BREAK_LIST_REIGN
#define LIST_OF_BEFORE(s) skip
#else
#define LIST_OF_BEFORE(s) list_for = list_for & ~BIT(s)
#endif
#define SEE(s) \
	epoch[s] = map_epoch; master[s] = map_master; master_inc[s] = map_inc; told = told & ~BIT(s); WALK_OFF(s) LIST_OF_BEFORE(s); reign_clear(s); prune(s)
#ifdef SPLIT
#define WALK_OFF(s) walk[s] = 0;
#else
#define WALK_OFF(s)
#endif

/* map_apply(): the epochs that there were in between are not seen. */
inline see_map(s) {
	d_step {
		FREE && state[s] == LIVE && epoch[s] < map_epoch ->
		SEE(s)
	}
}
/*
 * The members are listed at any time; a list that would change nothing is left out, as its answer does nothing.
 * `since` and `ended` of a peer: it was listed once, and is not any more.
 */
#ifdef BREAK_LIST
#define LIST_USEFUL(s) (member != listed[s] || MASTER(s) && !HAS(listed_for, s) || epoch[s] < map_epoch)
#else
#define LIST_USEFUL(s) (member != listed[s] || MASTER(s) && !HAS(listed_for, s))
#endif
inline list_ask(s) {
	d_step {
		FREE && state[s] == LIVE && HAS(MASTERS, s) && epoch[s] != 0 && list[s] == 0 && LIST_USEFUL(s) ->
		list[s] = member;
		if :: MASTER(s) && !HAS(listed_for, s) -> list_for = list_for | BIT(s) :: else fi
	}
}
#ifdef BREAK_LIST
#define LIST_COUNTS(s) (MASTER(s) && !HAS(listed_for, s))
#else
#define LIST_COUNTS(s) (MASTER(s) && !HAS(listed_for, s) && HAS(list_for, s))
#endif
inline list_answer(s) {
	d_step {
		FREE && list[s] != 0 ->
		i = 0;
		do
		:: i < SESSIONS ->
			if :: HAS(listed[s], i) && !HAS(list[s], i) -> claim_forget(s, i); synced[s] = synced[s] & ~BIT(i) :: else fi;
			i++
		:: else -> break
		od;
		i = 0;
		listed[s] = list[s];
		if :: LIST_COUNTS(s) -> needed[s] = listed[s]; listed_for = listed_for | BIT(s) :: else fi;
		list[s] = 0; list_for = list_for & ~BIT(s);
		open_when_synced(s);
		work(s)
	}
}

/* Any that waits may be the next: a superset of the order of stamps. */
inline grant(m, s) {
	d_step {
		state[m] == LIVE && MASTER(m) && HAS(open, m) && q_state[PAIR(m, s)] == WAITING && len(net[PAIR(m, s)]) < QUEUE &&
		NOBODY_HOLDS(m) && (due || FREE) ->
		due = 0;
		counter[m] = counter[m] + 1;
		q_state[PAIR(m, s)] = HELD; q_token[PAIR(m, s)] = TOKEN(epoch[m], counter[m]);
		send(m, s, GRANT, epoch[m], q_number[PAIR(m, s)], 0, q_token[PAIR(m, s)])
	}
}
#ifdef SPLIT
#define WALK_DONE(s) && walk[s] == 0
#else
#define WALK_DONE(s)
#endif

/* REIGN: who has not synced is asked. It has no fields that could be old, so it is not a frame here. */
inline remind(m, s) {
	d_step {
		FREE && state[m] == LIVE && state[s] == LIVE && MASTER(m) && epoch[m] == epoch[s] && HAS(listed[m], s) && !HAS(synced[m], s) &&
		HAS(told, s) && empty(net[PAIR(s, m)]) WALK_DONE(s) ->
		told = told & ~BIT(s)
	}
}
#ifndef SPLIT
inline sync(s) {
	d_step {
		FREE && state[s] == LIVE && LINKED(s) && !HAS(told, s) && ROOM(s, 1) ->
		told = told | BIT(s);
		send(s, TO(s), SYNC, epoch[s], number[s], claim[s], token[s])
	}
}
#else
/* One name, so the walk has three steps; whatever the member does meanwhile it may say meanwhile. */
inline sync(s) {
	d_step {
		FREE && state[s] == LIVE && LINKED(s) && !HAS(told, s) && ROOM(s, 1) ->
		told = told | BIT(s); walk[s] = STATE;
		send(s, TO(s), FIRST, epoch[s], 0, 0, 0)
	}
}
inline sync_walk(s) {
	d_step {
		FREE && state[s] == LIVE && walk[s] != 0 && ROOM(s, 1) ->
		if
		:: walk[s] == STATE ->
			walk[s] = LAST;
			if :: claim[s] != NONE -> send(s, TO(s), STATE, epoch[s], number[s], claim[s], token[s]) :: else fi
		:: else ->
			walk[s] = 0;
			send(s, TO(s), LAST, epoch[s], 0, 0, 0)
		fi
	}
}
#endif

/* tell(): nothing, if the shard's master has not been told the rest. */
inline tell(s, kind) {
	if
	:: HAS(told, s) && LINKED(s) -> send(s, TO(s), kind, epoch[s], number[s], claim[s], token[s])
	:: else
	fi
}
#define CAN_TELL(s) (!(HAS(told, s) && LINKED(s)) || ROOM(s, 1))

inline claim_make(s) {
	d_step {
		OUTSIDE && state[s] == LIVE && HAS(CLAIMERS, s) && claim[s] == NONE && number[s] % 8 < CLAIMS && CAN_TELL(s) ->
		claim[s] = WAITING; number[s]++;
		tell(s, CLAIM)
	}
}

/* A release, or a wait that is given up. */
inline claim_end(s) {
	d_step {
		FREE && state[s] == LIVE && claim[s] != NONE && GIVES_UP(s) && CAN_TELL(s) ->
		claim[s] = NONE; token[s] = 0;
		tell(s, RELEASE)
	}
}

/* A lease that is handed on and wanted again at once: one statement. */
inline claim_yield(s) {
	d_step {
		OUTSIDE && state[s] == LIVE && claim[s] == HELD && number[s] % 8 < CLAIMS && CAN_TELL(s) ->
		claim[s] = WAITING; number[s]++;
		tell(s, CLAIM)
	}
}

inline receive(from, to) {
	d_step {
		(from == to && !due || FREE) && len(net[PAIR(from, to)]) > 0 ->
		net[PAIR(from, to)]?f_kind,f_epoch,f_number,f_claim,f_token;
		hear(from, to)
	}
}

/* --- What happens to it --- */

inline begin(s) {
	d_step {
		OUTSIDE && s >= STARTED && state[s] == OFF && stored < STORE && MAY_BEGIN(s) ->
		stored++; state[s] = ENROLLING; inc[s] = 1; beat[s] = 1
	}
}
inline enroll(s) {
	d_step { FREE && state[s] == ENROLLING -> state[s] = LIVE; member = member | BIT(s) }
}
#ifdef BREAK_MAP
/* The map is read before the member record is there. */
inline see_map_early(s) {
	d_step { FREE && state[s] == ENROLLING && epoch[s] < map_epoch -> SEE(s) }
}
#endif

/* The daemon ends and another begins; its clients go on. The ledger knows what is held, under a new number. */
inline crash(s) {
	d_step {
		OUTSIDE && state[s] == LIVE && restarts < RESTARTS ->
		restarts++;
		daemon_clear(s);
		state[s] = BEATING; inc[s]++;
		number[s] = inc[s] * 8 - 8;
		if
		:: claim[s] == HELD -> number[s]++
		:: else -> claim[s] = NONE; token[s] = 0
		fi
	}
}
/* It has read the beat, and raises the incarnation in it by compare-and-set. */
inline adopt(s) {
	d_step {
		FREE && state[s] == BEATING ->
		if
		:: HAS(tomb, s) -> lapse(s)
		:: else -> beat[s] = inc[s]; state[s] = LIVE
		fi
	}
}

#ifdef BREAK_ADOPT
byte late;                              /* set: whose deadline has passed, unnoticed by the daemon that adopts */
#define EXPIRABLE(s) (state[s] == LAPSED || HAS(late, s))
#else
#ifdef BREAK_EVICT
#define EXPIRABLE(s) (state[s] == LIVE || state[s] == LAPSED)
#else
#define EXPIRABLE(s) (state[s] == LAPSED)
#endif
#endif
#ifdef BREAK_ADOPT
#define NOTICES(s) (state[s] == LIVE)
inline deadline_missed(s) {
	d_step { OUTSIDE && state[s] == BEATING && !HAS(late, s) -> late = late | BIT(s) }
}
#define MISSED(s) :: deadline_missed(s)
#else
#define NOTICES(s) true
#define MISSED(s)
#endif
inline deadline(s) {
	d_step { OUTSIDE && HAS(MORTALS, s) && ALIVE(s) && NOTICES(s) -> lapse(s) }
}
inline expire(s) {
	d_step {
		OUTSIDE && EXPIRABLE(s) && !HAS(tomb, s) && HAS(member, s) && stored < STORE ->
		stored++; tomb = tomb | BIT(s); member = member & ~BIT(s)
	}
}
#ifdef NO_RAISE
#define MAY_FOLLOW(s) (map_master != s || map_inc != beat[s])
#else
#define MAY_FOLLOW(s) true
#endif
inline reassign(s) {
	d_step {
		OUTSIDE && HAS(MASTERS, s) && HAS(member, s) && stored < STORE && MAY_FOLLOW(s) ->
		stored++; map_epoch++;
		map_master = s; map_inc = beat[s]
	}
}

#ifdef BREAK_CONN
/* One of the frames under way, any, will still arrive. */
inline keep_one(pair) {
	do
	:: nempty(net[pair]) && o_kind == 0 -> net[pair]?o_kind,o_epoch,o_number,o_claim,o_token; o_pair = pair; break
	:: nempty(net[pair]) -> net[pair]?_,_,_,_,_
	:: empty(net[pair]) -> break
	od
}
#define KEEP_ONE(pair) keep_one(pair)
#else
#define KEEP_ONE(pair) skip
#endif
/* The member's connection to its master is made anew. */
inline relink(s, m) {
	atomic {
		OUTSIDE && relinks < RELINKS && s != m && state[s] == LIVE && state[m] == LIVE && epoch[s] != 0 && TO(s) == m && HAS(told, s) ->
		KEEP_ONE(PAIR(s, m));
		KEEP_ONE(PAIR(m, s));
		d_step {
			relinks++;
			drain(PAIR(s, m)); drain(PAIR(m, s));
			told = told & ~BIT(s); synced[m] = synced[m] & ~BIT(s);
#ifdef SPLIT
			walk[s] = 0; hearing[m] = hearing[m] & ~BIT(s); said[m] = said[m] & ~BIT(s)
#endif
		}
	}
}

#define DEAD(s) (HAS(member, s) && state[s] != LIVE)
#if SESSIONS == 3
#define NOBODY_DEAD (!DEAD(0) && !DEAD(1) && !DEAD(2))
#else
#define NOBODY_DEAD (!DEAD(0) && !DEAD(1))
#endif

#ifdef BREAK_CONN
inline receive_old(from, to) {
	d_step {
		FREE && o_kind != 0 && o_pair == PAIR(from, to) ->
		f_kind = o_kind; f_epoch = o_epoch; f_number = o_number; f_claim = o_claim; f_token = o_token;
		o_kind = 0; o_pair = 0; o_epoch = 0; o_number = 0; o_claim = 0; o_token = 0;
		hear(from, to)
	}
}
#define OLD(a, b) :: receive_old(a, b)
#else
#define OLD(a, b)
#endif

/*
 * Nothing more can happen, so no budget is left or nobody wants anything. If then the master lives, and nobody
 * has died who was not expired, nobody waits.
 */
inline quiet() {
	if
	:: REIGNS(map_master, map_master, map_inc) && state[map_master] == LIVE && NOBODY_DEAD ->
		i = 0;
		do
		:: i < SESSIONS -> assert(!(state[i] == LIVE && claim[i] == WAITING)); i++
		:: else -> break
		od;
		i = 0
	:: else
	fi
}
#ifdef SPLIT
#define SYNC_WALK(s) :: sync_walk(s)
#else
#define SYNC_WALK(s)
#endif
#ifdef BREAK_MAP
#define SEE_MAP_EARLY(s) :: see_map_early(s)
#else
#define SEE_MAP_EARLY(s)
#endif
#define SESSION(s) \
	:: see_map(s) SEE_MAP_EARLY(s) :: list_ask(s) :: list_answer(s) :: sync(s) SYNC_WALK(s) \
	:: claim_make(s) :: claim_end(s) :: claim_yield(s) \
	:: begin(s) :: enroll(s) :: crash(s) :: adopt(s) :: deadline(s) MISSED(s) :: expire(s) :: reassign(s)
#define BOTH(a, b) \
	:: receive(a, b) :: grant(a, b) :: remind(a, b) :: relink(a, b) OLD(a, b)

active proctype all() {
	d_step {
		map_inc = 1;
		i = 0;
		do
		:: i < STARTED -> state[i] = LIVE; inc[i] = 1; beat[i] = 1; member = member | BIT(i); i++
		:: else -> break
		od;
		i = 0
	}
end:	do
	SESSION(0)
	SESSION(1)
	BOTH(0, 0) BOTH(0, 1) BOTH(1, 0) BOTH(1, 1)
#if SESSIONS == 3
	SESSION(2)
	BOTH(0, 2) BOTH(1, 2) BOTH(2, 0) BOTH(2, 1) BOTH(2, 2)
#endif
#ifdef CALM
	:: calm == 0 -> calm = 1
#endif
	:: else -> quiet(); break
	od
}
