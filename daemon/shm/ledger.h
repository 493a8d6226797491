/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The ledger: what the daemon alone writes down, on tmpfs, of clients, spaces, names and leases. A
 * restarted daemon believes this and nothing that a client could have written (DESIGN S8).
 *
 *   RUN/ledger/head          boot id, session and its secret; the session in the cluster, and its deadline
 *   RUN/ledger/clients       one record per attached process
 *   RUN/ledger/spaces        one per space
 *   RUN/ledger/opens         one per (client, name)
 *   RUN/ledger/names.SPACE   one per open name; its index is the slot
 *   RUN/ledger/lines.SPACE   one per reader's line of the segment; its index is the line
 *   RUN/ledger/long.SPACE    the text of names that do not fit there
 *
 * What must hold: a grant is here before it is in the slot; a release is taken from the slot, then
 * from here, and only then told. A name's lease is in force while count is not 0, and count is
 * written last.
 */
#ifndef DLOCK_LEDGER_H
#define DLOCK_LEDGER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "../../include/proto/attach.h"
#include "../../include/proto/kind.h"
#include "table.h"

#define LEDGER_OPENS_MAX  (UINT32_C(1) << 24)
#define LEDGER_SPACES_MAX UINT32_C(1024)

enum ledger_client_flags {
	CLIENT_INHERIT = 1,              /* liveness is the anchor's alone */
};

struct ledger_client {
	uint32_t used;                   /* 1 */
	uint32_t flags;
	int32_t pid;                     /* as the daemon sees it; 0: not visible from here */
	uint32_t uid, gid;
	uint32_t opens;                  /* head of its list, an index into opens; made anew at a restart */
	uint64_t start_time;             /* of the process, /proc/PID/stat field 22 */
	uint64_t nonce[2];
	uint64_t attached_ns;            /* CLOCK_BOOTTIME */
	uint64_t reserved;
};

enum ledger_space_used {
	SPACE_GOOD = 1,
	SPACE_GONE = 2,                  /* lost: its line must not be used again in this session */
};

struct ledger_space {
	uint32_t used;                   /* enum ledger_space_used */
	uint32_t uid, gid, mode;
	uint64_t generation;             /* of its segment */
	uint32_t on_demand;              /* made by a client, not by the configuration */
	uint32_t reserved;
	char name[ATTACH_SPACE_MAX];     /* zero-padded, not terminated at full length */
};

struct ledger_open {
	uint32_t client;                 /* not 0 */
	uint32_t slot;
	uint16_t space, flags;
	uint32_t next, prev;             /* of this client; made anew at a restart */
	uint32_t hash_next;
	uint32_t delay;                  /* of a lock or semaphore, ms: after its holder's death. delay.c: or when that is over */
};

enum ledger_open_flags {
	OPEN_HINT = 1,                   /* there is a FIFO for it */
	OPEN_LOST = 2,                   /* a hold of it was lost while no daemon was there: its client is to be told */
	OPEN_SIGNAL_SHIFT = 8,           /* the upper half: the signal for when a hold of it is lost; 0: none */
};

#define LEDGER_NAME_SHORT 16
#define LEDGER_DELAY_MAX  60000u

#define LEDGER_KIND_SHIFT 16
#define LEDGER_NOTE       0xffu          /* the kind of a struct ledger_note */

struct ledger_name {
	uint32_t used;                   /* length of the name, not 0 | kind << LEDGER_KIND_SHIFT */
	uint32_t ref;                    /* the core's; made anew at a restart */
	uint64_t first, count;           /* the range of tokens; count 0: no lease */
	uint64_t number;                 /* of the claim that it answers */
	uint16_t opens;                  /* how many clients; made anew at a restart */
	uint16_t delay;                  /* of a lock or semaphore, ms: the longest that one of them has asked for */
	uint32_t hash_next;              /* likewise */
	uint32_t text_long;              /* record in long, or 0: the text is here */
	uint32_t state : 3;              /* enum name_state; made anew at a restart */
	uint32_t raised : 1;             /* the claim that has been made, or granted, is of a shorter delay: it goes back */
	uint32_t revoked : 1;            /* another node waits for the lease; RETURNED: and it is wanted again; likewise */
	uint32_t paged : 1;              /* it has a page in the segment for what it carries (value.c) */
	uint32_t lost : 1;               /* what it carried is lost; and before anybody reads its page, that is put there (value.c) */
	uint32_t shared : 1;             /* of a lock: the lease is a share; whoever writes has to ask for all of it */
	uint32_t keeps : 1;              /* revoked: but for a share; made anew at a restart */
	uint32_t fresh : 1;              /* shared: nobody who was woken for it may have come yet; likewise */
	uint32_t room : 22;              /* not 0: a range has so many tokens at most (lockword.h: counts that come again) */
	char text[LEDGER_NAME_SHORT];
};

/*
 * In the same table: what an object has noted, about itself or about one client that has it open. Its index is a slot as
 * well: of the account.
 */
struct ledger_note {
	uint32_t used;                   /* 1 | LEDGER_NOTE << LEDGER_KIND_SHIFT */
	uint32_t parent;                 /* the object's slot */
	uint32_t client;                 /* 0: the object's own */
	uint32_t made;                   /* the object's own: its kind has said what it is. A client's: not its account, but made by the kind besides */
	uint64_t v[6];                   /* the kind's */
};

struct ledger_line {
	uint32_t client;                 /* whose it is, not 0 */
	uint32_t reserved;
};

struct ledger_long {
	uint32_t used;                   /* 1 */
	char text[ATTACH_NAME_MAX + 1];
};

_Static_assert(sizeof(struct ledger_name) == 64, "memory per name");
_Static_assert(sizeof(struct ledger_note) == sizeof(struct ledger_name), "one table");
_Static_assert(sizeof(struct ledger_open) == 28, "memory per open");

struct ledger_identity {
	uint8_t boot_id[16];
	uint8_t secret[16];
	uint64_t session;
	uint32_t epoch;                  /* the highest that this session has reigned in */
	uint32_t incarnation;            /* of the last daemon that wrote here */
};

#define LEDGER_CLUSTER_LAYOUT 1

/* Of this node among others; all 0 in a node alone. What `id` says is of the node's own, and outlives a lapse. */
struct ledger_cluster {
	uint64_t session;                /* 0: none, or one that must not be adopted */
	uint64_t deadline;               /* CLOCK_BOOTTIME */
	uint64_t where;                  /* which cluster of which store: a hash */
	uint32_t incarnation;            /* of the last daemon that began in it */
	uint32_t layout;                 /* LEDGER_CLUSTER_LAYOUT */
};

struct ledger {
	int dirfd;                       /* RUN/ledger */
	int head;
	struct ledger_identity id;
	struct ledger_cluster cluster;
	struct table clients, spaces, opens;
	uint32_t *open_buckets;          /* hash (client, space, slot) -> opens */
	uint32_t open_buckets_n;
};

/*
 * Reads the head of what an earlier daemon left below rundir. -ENOENT: there is none. -ESTALE:
 * there is something, but it is torn, foreign, or a copy (its inode is another).
 */
int ledger_peek(int rundir_fd, struct ledger_identity *ret);

/* Goes on with what is there (fresh false), or starts anew and removes it. */
int ledger_open(struct ledger *l, int rundir_fd, const struct ledger_identity *id, bool fresh);
void ledger_close(struct ledger *l);
int ledger_note_epoch(struct ledger *l, uint32_t epoch);
int ledger_peek_cluster(int rundir_fd, struct ledger_cluster *ret);
int ledger_note_cluster(struct ledger *l, const struct ledger_cluster *c);

/* A client's opens. add: -EEXIST where it has it already. */
int ledger_open_add(struct ledger *l, uint32_t client, uint16_t space, uint32_t slot, uint32_t *ret);
uint32_t ledger_open_find(const struct ledger *l, uint32_t client, uint16_t space, uint32_t slot);
void ledger_open_del(struct ledger *l, uint32_t index);

static inline struct ledger_client *ledger_client(const struct ledger *l, uint32_t i)
{
	return table_at(&l->clients, i);
}

static inline struct ledger_space *ledger_space(const struct ledger *l, uint32_t i)
{
	return table_at(&l->spaces, i);
}

static inline struct ledger_open *ledger_open_at(const struct ledger *l, uint32_t i)
{
	return table_at(&l->opens, i);
}

#endif
