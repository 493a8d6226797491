/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A node among others: what it knows of the store's records, and its part in keeping them.
 *
 * Every node, once it is enrolled, looks at the map every `look`, and at the hint. Whenever that has changed
 * it lists the members after it (S4: the epoch is seen in the map, then the sessions are listed).
 * The map never goes back: a serial below the one known is an answer that was long under way.
 *
 * The coordinator (whose session the map names) and two deputies, the first in order of sessions,
 * also list the beats every `look`, end whoever has been silent, and clear away what is left. So do the
 * others, the n-th in order every n looks: then however many of the first are dead, somebody ends them, and all
 * together list no more often than the logarithm of their number. Each begins at another place, and goes on with the next
 * one without a list in between: hundreds of records that nobody renews are gone soon after their time is over. The coordinator writes the map: masters
 * that are gone, that drain, or that others should take over from, and the roster. If its session
 * has ended, who observes writes itself into the map as coordinator. All writes are compare-and-sets of
 * the whole map, so several who think they are it do no harm.
 *
 * What lies below member/ and beat/ and is not what its key says (odd) is a session all the same, by its key: a shard that
 * opens waits for it, and if its bytes do not change for the time of any other it is ended, and cleared away. A key that
 * no session can have is passed over. So whatever somebody writes there costs a TTL.
 */
#ifndef DLOCK_CORE_CLUSTER_H
#define DLOCK_CORE_CLUSTER_H

#include "ask.h"
#include "cut.h"
#include "delays.h"
#include "leave.h"
#include "frame.h"
#include "mapplan.h"
#include "observe.h"
#include "place.h"
#include "session.h"

#define CLUSTER_DEPUTIES 2

enum bury_what { BURY_END, BURY_MEMBER, BURY_BEAT, BURY_CUT };

/* What an ASK_BURY is about. */
struct bury {
	uint64_t session, version;
	enum bury_what what;
	char name[CORE_NODE_NAME_MAX + 1], address[CORE_ADDRESS_MAX + 1];
};

#define ODD_KEY_MAX 40

/* Records that are not what they should be, by the latest lists. */
struct odd {
	unsigned members, beats;
	unsigned left_out;               /* members for whom there is no room */
	unsigned said;                   /* of all these, the caller knows */
	char key[ODD_KEY_MAX];           /* one of them */
};

struct cluster {
	bool on;
	struct core_cluster conf;        /* its texts are these: */
	char address[CORE_ADDRESS_MAX + 1], name[CORE_NODE_NAME_MAX + 1];
	struct asks asks;
	struct session session;
	struct observe observe;
	struct clustermap map;           /* serial 0: not read in this session yet */
	uint64_t map_version;
	bool map_read;                   /* even if there is none: it was read in this session */
	shard_set_t members_for;         /* new reigns that the list under way is for */
	shard_set_t members_want;        /* ... that the next list shall be for */
	bool list_want;                  /* list the members, for whatever reason */
	bool beats_due;                  /* it is time for a look at the beats: after the next list of members */
	bool beats_want;
	bool beats_known;                /* the beats were listed since the members were */
	core_nsec_t look_at;             /* at the map */
	core_nsec_t list_at;             /* the members, if wanted: not before, after an error */
	core_nsec_t remind_at;           /* whom opening shards wait for */
	core_nsec_t beats_at, plan_at;
	bool plan_unread, plan_reading;  /* what became of the last plan is still to be read; is being read */
	bool plan_due;                   /* since the map was last planned the store, a link, a wish or the time may have changed what it should be */
	core_nsec_t path_at;             /* somebody may be reached through another; 0: nobody is to be */
	bool paths_opening;
	struct cut cut;
	struct delays delays;
	struct leave leave;
	struct bury bury[ASK_BURIALS];
	bool bury_news;                  /* since the last list something was done, or others have done it */
	struct bury told;                /* who has ended, for the caller; session 0: nobody */
	struct odd odd;
	struct place place;
	shard_set_t raise;               /* epochs that the master wants raised */
	bool nobody_asked;               /* in this step: no peer wants a link or is to be asked for a sync */
	core_nsec_t yielded;             /* a shard of ours has another master since then */
	bool drained;                    /* has been said */
	struct mapplan_node *nodes;      /* CORE_MEMBERS_MAX, for planning */
};

struct core;

/* -ENOMEM */
int cluster_start(struct core *c, const struct core_event *ev, struct step *s);
void cluster_done(struct core *c);
int cluster_answer(struct core *c, const struct core_event *ev, struct step *s);
void cluster_link_up(struct core *c, const struct core_event *ev);
void cluster_link_down(struct core *c, const struct core_event *ev);
int cluster_recv(struct core *c, const struct core_event *ev, struct step *s);

/* The session in a key of the store, behind its prefix. */
bool cluster_key_session(const char *key, unsigned prefix, uint64_t *ret);

/* That session has ended. */
void cluster_ended(struct core *c, struct peer *p);

/* Keeps the key of a record that is not what it should be. */
void odd_note(struct odd *o, unsigned *count, const char *key);

/* A frame by the present connection or path. */
int cluster_frame(struct core *c, struct peer *p, struct frame *f, struct step *s);
void cluster_drain(struct core *c, bool on);
void cluster_hint(struct core *c, core_nsec_t now);

/* What is due. */
void cluster_tick(struct core *c, struct step *s);
core_nsec_t cluster_next(const struct core *c, core_nsec_t now);

/* A message or an action that waits for room. false: none. */
bool cluster_work(struct core *c, struct step *s);
bool cluster_busy(const struct core *c);

#endif
