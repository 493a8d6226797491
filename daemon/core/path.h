/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Paths: two sessions that have no connection speak through a third one that has one with either (S12).
 *
 * A path stands for a connection, so what holds of connections must hold of it (S5): its number is above
 * all earlier paths' of the two, both ends know when it is the newest, and what arrives of it is a beginning of
 * what was sent by it, in order. Each end ties a path to the very connection with the relay by which it
 * was opened: it sends by no other, takes nothing of it by another, and the path is over when
 * that connection is. The relay keeps nothing: it hands on at once, by its present connection, what has come by
 * a present one, and says CLOSED if it has none. So if anything of a path is lost at the relay, one of its two
 * connections has been replaced; the end of that one takes nothing more of the path, and the other end
 * gets no more, because nothing more is sent, or taken by the relay.
 *
 * Numbers of the two ends differ in the lowest bit. An end that knows a higher one answers OLD with it.
 * A connection replaces a path; while there is one, no path is opened or accepted.
 *
 * Tried for whoever is listed and has not been reached for `detour`, if either masters anything, or this
 * node coordinates: through a few of those that are reached, others each time. The first OPEN that gets there counts.
 */
#ifndef DLOCK_CORE_PATH_H
#define DLOCK_CORE_PATH_H

#include "envelope.h"
#include "peers.h"
#include "step.h"

#define PATH_TRIES 8             /* relays asked at a time */

struct core;

/* The session is reached by this connection, or path: via is the relay, NULL is none. */
void path_reached(struct core *c, struct peer *p, uint64_t conn, uint32_t incarnation, const struct peer *via);

/* It is not any more. */
void path_lost(struct core *c, struct peer *p);

/* The paths that lead through it are over. */
void path_hop_lost(struct core *c, const struct peer *hop);

/* An envelope that came by a present connection with hop. -EBADMSG: nobody may send such */
int path_recv(struct core *c, struct peer *hop, const struct core_event *ev, struct step *s);

/* Looks whom to try, if it is time. */
void path_tick(struct core *c, core_nsec_t now);

/* Sends one OPEN. false: none is due. */
bool path_work(struct core *c, struct step *s);

/* How long one waits for a connection before a path is tried, and between two attempts. */
static inline core_nsec_t path_detour(const struct core_cluster *conf)
{
	return conf->grace / 8;
}

/* This session masters a shard, by the map. */
bool path_masters(const struct core *c, uint64_t session);

#endif
