/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * This node's session: how it comes, is kept alive, and ends (S1, S2, S3).
 *
 *   NONE -start-> BEATING -> ENROLLING -> LIVE -----.
 *                    ^          (deadline passed    v
 *                    |           in any of these) LAPSED -> ENDING
 *                    '------ a new id ----------------------'
 *
 *   BEATING    the beat record is being made, or, after a restart, the incarnation raised in it
 *   ENROLLING  the beat is there, the member record is being made
 *   LIVE       both are there; only now may the map be read (S4)
 *   LAPSED     nothing is held any more. The session is ended only after the actions on loss are done
 *   ENDING     our own tombstone is being written; then anew, with another id, or, if the node leaves for good:
 *   CLEARING   our member record is being deleted
 *   LEFT       nothing comes any more
 *
 * Beats go on from BEATING to LIVE. An adopted session has its predecessor's deadline until a beat of
 * this incarnation has landed, and is not adopted at all once that has passed (S8).
 */
#ifndef DLOCK_CORE_SESSION_H
#define DLOCK_CORE_SESSION_H

#include "ask.h"
#include "beat.h"

#define MEMBER_PREFIX "member/"
#define MEMBER_HEAD 24
#define MEMBER_BYTES_MAX (MEMBER_HEAD + CORE_ADDRESS_MAX + CORE_NODE_NAME_MAX)
#define MEMBER_LAYOUT 2

#define SESSION_STATES(X) X(NONE) X(BEATING) X(ENROLLING) X(LIVE) X(LAPSED) X(ENDING) X(CLEARING) X(LEFT)

enum session_state {
#define X(name) SESSION_##name,
	SESSION_STATES(X)
#undef X
};

/*
 * The member record:
 *
 *   u8 layout, 2    u8 flags: 1 may master, 2 drains    u16 length of the address    u8 length of the name
 *   u8, u16 0    u64 session    u64 node    address    name
 *
 * Nothing else is one: the lengths are 1 to their maximum and fill the record, all their bytes are printable ASCII
 * without blanks.
 */
struct member_text {
	const char *address, *name;      /* not ended by a 0 */
	uint16_t address_len;
	uint8_t name_len;
};

struct member_record {
	uint64_t session, node;
	bool may_master, drains;
	struct member_text text;         /* decoded: lies in the bytes */
};

/* -EBADMSG; *ret is untouched then */
int member_record_decode(const void *bytes, size_t n, struct member_record *ret);

/* The length. */
uint32_t member_record_encode(const struct member_record *r, uint8_t ret[MEMBER_BYTES_MAX]);

/* -EINVAL: no text for a record. */
int member_text_of(const char *address, const char *name, struct member_text *ret);

struct session {
	const struct core_cluster *conf;
	struct member_text text;         /* of our own record */
	struct asks *asks;
	enum session_state state;
	struct msg_peer self;
	uint64_t ids;                    /* how many ids this run has had */
	uint64_t seed[2];
	struct beat beat;
	bool adopting;                   /* the incarnation has not been raised yet */
	bool beat_reading;               /* what the request under way is */
	bool record_reading;
	uint64_t record_version;
	bool record_stale;               /* it says something else than it should: may_master, drains */
	bool drains;
	bool condemned;                  /* beats no more: ends at the deadline */
	bool leaving;                    /* the last session of this run */
	unsigned ends;                   /* how often its end has been tried */
	core_nsec_t deadline;            /* 0: nothing may be held yet */
	core_nsec_t published;
	core_nsec_t beat_at, record_at;  /* not before */
	bool jeopardy;                   /* has been said */
	bool loss;                       /* actions on loss have begun ... */
	bool loss_done;                  /* ... and are through */
	int error;                       /* of the store, since it last worked */
};

void session_start(struct session *se, const struct core_cluster *conf, const struct member_text *text, struct asks *asks,
		   const uint64_t seed[2], struct msg_peer id, core_nsec_t adopted_deadline, struct step *s);

/* What is due now. Returns true if the session has just lapsed: the caller drops everything. */
bool session_tick(struct session *se, struct step *s);

/* Ends the last session: at once if nothing is held, else as condemned. */
void session_leave(struct session *se, bool holds, struct step *s);

/* The session shall end as soon as the actions on loss have had their time. */
void session_condemn(struct session *se, struct step *s);

/* The answer to ASK_BEAT or ASK_RECORD. Returns true if the session has lapsed by it. -ESTALE: superseded. */
int session_answer(struct session *se, enum ask_kind kind, const struct core_event *ev, struct step *s);

/* When to call session_tick() again; 0: an answer comes first. */
core_nsec_t session_next(const struct session *se);

/* What is taken off the deadline, and added to the observers' wait. */
static inline core_nsec_t session_margin(const struct core_cluster *c)
{
	return c->guard + c->ttl / 1000000 * c->drift_ppm;
}

/* It is neither over nor about to be. */
static inline bool session_on(const struct session *se)
{
	return se->state >= SESSION_BEATING && se->state <= SESSION_LIVE && !se->condemned;
}

static inline bool session_holds(const struct session *se, core_nsec_t now)
{
	return se->state >= SESSION_BEATING && se->state <= SESSION_LIVE && se->deadline && now < se->deadline;
}

#endif
