/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A few cores, a store and a network without troubles but those that the test makes: one clock, everything
 * arrives at once and in order. For stories; what chance does to a cluster is the simulator's matter (tests/sim).
 */
#ifndef DLOCK_TESTS_CLUSTER_RIG_H
#define DLOCK_TESTS_CLUSTER_RIG_H

#include "core/core_int.h"

#define CRIG_NODES 65
#define CRIG_RECORDS (4 * CRIG_NODES)
#define CRIG_REFS 256
#define CRIG_SECOND 1000000000ull

struct crig_record {
	char key[32];
	uint8_t value[1200];
	uint32_t size;
	uint64_t version;                /* 0: absent */
};

struct crig_node {
	struct core *core;
	struct core_memory mem;
	struct core_cluster conf;
	char name[16], address[24];
	struct core_actions actions;
	uint64_t session, timer, deadline;
	uint32_t incarnation;
	uint64_t wants[CRIG_NODES];
	unsigned wants_n;
	bool stopped;                    /* takes part in nothing */
	bool loss_slow;                  /* the test says LOSS_DONE */
	unsigned ended, odd, left_out;
	unsigned relayed, complaints, cut_offs, losses, lapses, drained, left;
	int left_error;
	uint32_t held[CRIG_REFS];
	bool lost[CRIG_REFS];            /* its last grant said so */
	uint64_t token[CRIG_REFS];       /* the first of its last grant ... */
	char found[CRIG_REFS][8];         /* ... and the value that came with it; "?": lost */
	int refused[CRIG_REFS];
	struct core_action account;      /* the last one, if its kind is ACCOUNT ... */
	struct core_party party[CORE_PARTIES_MAX];      /* ... and who was in it */
	uint32_t revoked[CRIG_REFS];     /* CORE_WEIGHT_ALL: not; else what may be kept */
};

struct crig_event {
	unsigned node;
	core_nsec_t at;                  /* not before */
	struct core_event ev;
	uint8_t bytes[CORE_FRAME_MAX];
	struct core_record *records;
	struct crig_event *next;
};

struct crig {
	unsigned n;
	core_nsec_t now;
	struct crig_node node[CRIG_NODES];
	struct crig_record record[CRIG_RECORDS];
	unsigned records_n;
	uint64_t version, conn_number;
	uint64_t conn[CRIG_NODES][CRIG_NODES];   /* 0: none */
	core_nsec_t place;               /* of nodes that start from now on */
	bool blocked[CRIG_NODES][CRIG_NODES];
	bool store_cut[CRIG_NODES];
	core_nsec_t store_span;          /* how long the store takes to answer: less and less is not allowed */
	core_nsec_t turn;                /* how often nodes have a processor: then they take what has come, and look at the clock after that. 0: each millisecond */
	struct crig_event *first, **end;
	struct crig_event *answers;      /* of the store, under way */
	unsigned frames[256];            /* sent, by kind; of the inner frame, if it is relayed */
	unsigned relayed_frames;
	unsigned lose[256];              /* frames of this kind to these nodes (bit i: node i, of the first 32) vanish */
	unsigned hold[256];              /* ... or wait for crig_let_go() */
	struct crig_event *held;
	void (*barrier)(struct crig *r, unsigned node, const struct core_action *a); /* NULL: nobody cares */
	unsigned syncs_of_no_name[CRIG_NODES];   /* FIRST and LAST, by sender */
	unsigned syncs_of_names[CRIG_NODES];
};

/* Nodes 0 to n-1, each started, linked, and a second later: the map is there, everything is open. */
void crig_init(struct crig *r, unsigned n);

/* The same, and shards go where they are used for so long. */
void crig_init_placing(struct crig *r, unsigned n, core_nsec_t place);
void crig_done(struct crig *r);
void crig_start(struct crig *r, unsigned node);
int crig_give(struct crig *r, unsigned node, const struct core_event *ev);
void crig_run(struct crig *r, core_nsec_t span);

/* Neither hears the other from now on, and both have noticed; or they connect again. */
void crig_block(struct crig *r, unsigned a, unsigned b, bool blocked);

/* What was held back arrives now, in its order. From now on nothing is. */
void crig_let_go(struct crig *r);

/* The node dies. */
void crig_kill(struct crig *r, unsigned node);

/* ... and another begins, goes on with the session after adopt() has told it what the ledger has, and has a second for that. */
void crig_restart(struct crig *r, unsigned node, void (*adopt)(struct crig *r, unsigned node));

int crig_claim(struct crig *r, unsigned node, core_ref_t ref, const char *key);
int crig_release(struct crig *r, unsigned node, core_ref_t ref);

/* NULL: there is none. */
const struct crig_record *crig_record(const struct crig *r, const char *key);
unsigned crig_records(const struct crig *r, const char *prefix);

/* Somebody's write lands. */
void crig_plant(struct crig *r, const char *key, const void *value, uint32_t size);

/* By the map in the store. */
unsigned crig_master(const struct crig *r, unsigned shard);
uint32_t crig_epoch(const struct crig *r, unsigned shard);
unsigned crig_shards(const struct crig *r, unsigned node);

/* "test/N" whose shard that node masters, the n-th such. */
const char *crig_key(const struct crig *r, unsigned node, unsigned n, char ret[16]);

#endif
