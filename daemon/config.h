/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The daemon's configuration: dlockd.conf, then all that ends in .conf in dlockd.conf.d, by name;
 * what comes later wins. The format is systemd's:
 *
 *	[Node]		Name=, SpacesOnDemand=, Listen=, Address=, Master=, Burst=, BurstTime=
 *	[Cluster]	Name=, Store=, TTL=, IdReserve=, Placement=, Key=, Cert=, CertKey=, CA=, CRL=,
 *			StoreUser=, StorePasswordFile=, StoreCA=, StoreCert=, StoreCertKey=
 *	[Space NAME]	Owner=, Group=, Mode=		one section for each space
 *
 * A comment begins with # or ;, at the start of a line or after white space. An empty value means
 * the default again. Unknown sections and keys are warned of and passed over, so that the file of a
 * newer release can be read; a wrong value is an error, and all errors of all files are found in
 * one go. What only a cluster has is an error where the store is the embedded one, which no other
 * node can use: to ignore it would leave somebody believing in a protection that is not there.
 */
#ifndef DLOCK_CONFIG_H
#define DLOCK_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "units.h"

struct tls_files;

#define CONFIG_NAME_MAX		64		/* bytes: of nodes, clusters and spaces */
#define CONFIG_TTL_MIN		((msec_t)500)
#define CONFIG_TTL_MAX		(3600 * MSEC_PER_SEC)
#define CONFIG_BURST_MAX	1000000000u
#define CONFIG_BURST_TIME_MAX	(60 * MSEC_PER_SEC)
#define CONFIG_ID_RESERVE	(3600 * MSEC_PER_SEC)
#define CONFIG_ID_RESERVE_MAX	(7 * 24 * 3600 * MSEC_PER_SEC)
#define CONFIG_SPACES_MAX	256
#define CONFIG_FILE_MAX		(1024 * 1024)	/* bytes */
#define CONFIG_LINE_MAX		2048		/* bytes, without the newline */
#define CONFIG_MESSAGES_MAX	100		/* more are only counted */

struct config_space {
	char name[CONFIG_NAME_MAX + 1];
	uid_t owner;
	gid_t group;
	mode_t mode;		/* within 0666 */
	bool has_owner, has_group, has_mode;	/* said in a file; else config_load()'s default */
};

/* Values that are kept as they were written. */
enum config_text {
	CONFIG_LISTEN, CONFIG_ADDRESS, CONFIG_STORE, CONFIG_KEY, CONFIG_CERT, CONFIG_CERT_KEY, CONFIG_CA, CONFIG_CRL,
	CONFIG_STORE_USER, CONFIG_STORE_PASSWORD, CONFIG_STORE_CA, CONFIG_STORE_CERT, CONFIG_STORE_CERT_KEY,
	CONFIG_TEXTS
};

struct config {
	char *run_dir;		/* absolute */
	char *state_dir;	/* absolute */
	char node_name[CONFIG_NAME_MAX + 1];
	char cluster_name[CONFIG_NAME_MAX + 1];	/* may be empty */
	bool spaces_on_demand;
	bool master;
	unsigned burst;		/* hand-overs within the node after another has asked; 0: none */
	msec_t burst_time;	/* and for so long; 0: none */
	msec_t ttl;
	msec_t id_reserve;	/* worker ids without the store, for so long; 0: none */
	bool placement;		/* shards go where they are used */
	char *text[CONFIG_TEXTS];	/* NULL: not given */
	bool ttl_given, id_reserve_given;	/* which only a cluster has */
	struct config_space *spaces;	/* after config_load() one of them is "default" */
	size_t n_spaces;
};

enum config_level { CONFIG_WARNING, CONFIG_ERROR };

struct config_message {
	enum config_level level;
	char *text;		/* "FILE:LINE: what is wrong, and what would be right" */
};

struct config_messages {
	struct config_message *list;
	size_t n;
	size_t hidden;		/* beyond CONFIG_MESSAGES_MAX, or no memory to keep them */
};

/* How names become numbers; a parameter, so that parsing touches nothing. -ENOENT: no such name. */
struct config_lookup {
	int (*user)(void *arg, const char *name, uid_t *ret);
	int (*group)(void *arg, const char *name, gid_t *ret);
	void *arg;
};

/*
 * Reads everything. path: the file, which must exist, with its drop-ins in PATH.d; NULL:
 * DIR/dlockd.conf if dir is given, else /etc/dlock/dlockd.conf, and neither need exist. dir: the
 * directory that keeps everything (DIR/run, DIR/state; spaces belong to the caller); NULL:
 * /run/dlock and /var/lib/dlock, or what $RUNTIME_DIRECTORY and $STATE_DIRECTORY name.
 *
 * 0, or a negative errno with an error among the messages (-EINVAL: a file's contents); *ret is
 * untouched then. Warnings may come with 0. Messages are added to *m; the caller frees it either way.
 */
int config_load(const char *path, const char *dir, struct config *ret, struct config_messages *m);

/* What config_load() does, with this lookup instead of the system's users and groups. */
int config_load_with(const char *path, const char *dir, const struct config_lookup *lookup,
		     struct config *ret, struct config_messages *m);

/* Is the store one that other nodes use too? */
bool config_is_cluster(const struct config *c);

/*
 * config_check.c: what one line alone cannot tell, and what files have to be looked at for: the store, the keys,
 * whether it may listen where it shall. 0, or a negative errno with an error among the messages.
 */
int config_check(const struct config *c, struct config_messages *m);
const char *config_listen(const struct config *c);       /* in a cluster: Listen=, or all addresses */
struct tls_files config_tls(const struct config *c);     /* net/keys.h; lives as long as the configuration */

/* An empty configuration: what parsing starts from. */
void config_init(struct config *c);

/*
 * Lays one file's text over c. file is its name for messages. 0, -EINVAL or -ENOMEM; on an error
 * the rest of the text has been read nevertheless, and c has whatever was right.
 */
int config_parse_text(const char *file, const char *text, size_t n,
		      const struct config_lookup *lookup, struct config *c,
		      struct config_messages *m);

/* NULL: there is none. */
const struct config_space *config_space_find(const struct config *c, const char *name);

/* Finds or makes. -ENOSPC: there are CONFIG_SPACES_MAX; -ENOMEM. */
int config_space_add(struct config *c, const char *name, struct config_space **ret);

/* 1 to 64 of A–Z a–z 0–9 _ -; names of nodes and clusters may have dots too. */
bool config_space_name_valid(const char *name);
bool config_node_name_valid(const char *name);

/* "5s", "500ms", "2min", "1h"; without a unit it is seconds. -EINVAL, -ERANGE. */
int config_parse_span(const char *text, msec_t *ret);

/* For those who add messages: file NULL or line 0 leaves that part out. */
__attribute__((format(printf, 5, 6)))
void config_message_add(struct config_messages *m, enum config_level level, const char *file,
			unsigned line, const char *format, ...);

void config_done(struct config *c);
void config_messages_done(struct config_messages *m);

#endif
