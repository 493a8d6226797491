/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The sessions that the store lists, and our links to them. Place 0 is this node itself, which is
 * always linked. A session keeps its place until it has ended and the master has dropped its claims.
 *
 * Of a session only the newest connection counts (S5): its number is above all earlier ones, so a
 * frame that was under way on an old one is known by its number and dropped. Where there is none, a path
 * through another node stands for it (path.h), with numbers of its own.
 */
#ifndef DLOCK_CORE_PEERS_H
#define DLOCK_CORE_PEERS_H

#include "msg.h"
#include "shard.h"

struct peer {
	struct msg_peer id;              /* session 0: the place is free */
	uint64_t node;
	uint64_t record;                 /* version of its member record */
	uint16_t hash_next;              /* the next place with this hash; 0: none */
	uint64_t conn;                   /* 0: no link */
	uint64_t conn_last;              /* the highest that there was */
	uint64_t via, hop;               /* conn is a path through this session, by this connection with it; 0: it is not */
	uint64_t path_last, path_open;   /* the highest path, and the one that we have asked for */
	core_nsec_t cut;                 /* not reached since then; 0: reached, or not listed yet */
	core_nsec_t sought;              /* not reached since then, though a path was worth it: one of us masters; 0: reached, or not worth it */
	core_nsec_t path_at;             /* try a path not before */
	core_nsec_t shunned;             /* more than half of those that count name it, since then; 0: not so many */
	core_nsec_t avoid_until;         /* is given no shards before */
	core_nsec_t since;               /* first seen in the store's list */
	shard_set_t synced;              /* has told all in the shard's present epoch */
	shard_set_t needed;              /* was listed when these were listed for: they open with it, or without it once it has ended */
	shard_set_t hearing;             /* its sync to the present epoch has been heard from the first word on */
	shard_set_t ask;                 /* is to be asked to sync these */
	uint32_t barriers;               /* the same, of claims at barriers */
	uint32_t claims;                 /* the first that the master has of it */
	uint16_t named;                  /* so many records of others say that they do not reach it */
	uint16_t path_next;              /* the relay asked last */
	uint8_t path_left;               /* more are to be asked */
	uint32_t watches;                /* the first name that it observes */
	uint16_t round;                  /* counts the connections: claims not said in the present one are old */
	bool listed;                     /* in the latest list */
	bool seen;                       /* in the list that is being read */
	bool ended;                      /* was listed and is not any more */
	bool may_master, drains;
	bool met;                        /* has been reached in this session of ours */
	bool blames;                     /* it masters, and its record says that we are in its way */
	bool complained, complain_say;   /* our record says that it is in our way; the caller is to be told */
	bool link_wanted;                /* the caller has been told to keep a link */
	uint8_t name_len;
	uint16_t address_len;
	char *text;                      /* address, 0, name, 0; NULL: not known */
};

struct peers {
	const struct core_memory *mem;
	struct peer *v;
	unsigned n;                      /* places in use or free below this */
	unsigned max;
	uint16_t hash[CORE_MEMBERS_MAX]; /* by session: the first place of those that are not 0 */
	struct peer own;                 /* the only place when alone */
};

void peers_init(struct peers *p, const struct core_memory *mem);
void peers_done(struct peers *p);

/* Makes room for a cluster. -ENOMEM */
int peers_reserve(struct peers *p);

/* NULL: there is none. */
struct peer *peers_find(struct peers *p, uint64_t session);

/* A place for it. NULL: there are too many. */
struct peer *peers_add(struct peers *p, uint64_t session);

/* Its address and name. true: they are others than before. Without memory they stay unknown. */
bool peers_text(struct peers *p, struct peer *peer, const char *address, uint16_t address_len, const char *name, uint8_t name_len);

/* The place becomes free. */
void peers_drop(struct peers *p, struct peer *peer);

static inline const char *peer_address(const struct peer *peer)
{
	return peer->text ? peer->text : "";
}

static inline const char *peer_name(const struct peer *peer)
{
	return peer->text ? peer->text + peer->address_len + 1 : "";
}

static inline struct peer *peers_self(struct peers *p)
{
	return &p->v[0];
}

static inline unsigned peers_index(const struct peers *p, const struct peer *peer)
{
	return (unsigned)(peer - p->v);
}

/* Frames reach it. */
static inline bool peer_linked(const struct peers *p, const struct peer *peer)
{
	return peer && peer->id.session && (peer == p->v || peer->conn);
}

#endif
