/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The insides of the etcd engine, shared by its parts:
 *
 *	etcd.c		the contract: requests, and one step that drives everything
 *	etcd_open.c	from options to an engine, and its end
 *	etcd_hosts.c	which host is asked: probes, back-off, one cluster
 *	etcd_login.c	the token
 *	etcd_watch.c	the stream that makes hints
 *	etcd_why.c	what a failed call means, in a number and a sentence
 *
 * All of them look only at e->now, which is read once for each entry from outside.
 */
#pragma once

#include "etcd.h"
#include "etcd_http.h"
#include "etcd_url.h"
#include "etcd_wire.h"

#define BACKOFF_MIN_MS	100
#define BACKOFF_MAX_MS	5000
#define RUNNING_MAX	16	/* requests at the hosts at a time */
#define WHY_MAX		320
#define BEFORE_MAX	(ETCD_PREFIX_MAX + 80)	/* prefix, cluster's name, slashes, NUL */
#define WIRE_KEY_MAX	(BEFORE_MAX + STORE_KEY_MAX + 2)

/* What to do after a call that did not bring what it was for. */
enum etcd_next {
	ETCD_FINE,	/* it did */
	ETCD_FINAL,	/* the request fails; the host is not to blame */
	ETCD_ELSEWHERE,	/* the host is: ask another one */
	ETCD_LOGIN,	/* the token is not valid any more; nothing was done */
	ETCD_OLD,	/* the revision of a list has been compacted away: begin anew */
};

struct etcd_verdict {
	enum etcd_next next;
	int error;
	bool undone;	/* etcd has surely not done it */
	char why[WHY_MAX];
};

enum host_state {
	HOST_DOWN,	/* not asked before retry_at */
	HOST_PROBED,	/* asked who it is */
	HOST_UP,	/* one of our cluster, which has a leader */
};

struct etcd_host {
	struct etcd *e;
	char label[ETCD_HOST_MAX + 9];	/* "h1:2379", for people */
	char *base;			/* "http://h1:2379" */
	char *status_url, *range_url, *txn_url, *login_url, *watch_url;
	enum host_state state;
	bool heard;			/* of the first probe's end */
	unsigned fails;			/* since it last did something for us */
	http_ms took;			/* for an answer, of late; or at least, where it was not waited for */
	http_ms failed_at, retry_at;
	struct http_call probe;
	int error;			/* why it is down; 0: not known yet */
	char why[WHY_MAX];
};

enum request_kind { REQUEST_GET, REQUEST_LIST, REQUEST_CAS };

struct request {
	struct request *next;
	struct etcd *e;
	enum request_kind kind;
	store_done_fn done;
	void *arg;
	char key[STORE_KEY_MAX + 1];	/* or prefix */
	uint64_t expected;		/* cas */
	bool writes;			/* cas with a value */
	http_ms limit;
	unsigned token_number, logins, restarts;
	struct http_call call;
	struct etcd_body body;
	struct etcd_host *host;		/* asked now; NULL: it waits */
	struct etcd_answer list;	/* what has come so far */
	uint64_t revision;		/* of the list; 0: its first page is still to come */
	uint64_t floor;			/* etcd had got so far when this was asked */
	char from[WIRE_KEY_MAX];	/* where its next page begins */
	struct store_result result;	/* when it is over */
	struct etcd_answer answer;	/* what result points to */
	char why[WHY_MAX];
};

struct etcd {
	struct store base;
	struct http http;
	http_ms now;
	unsigned request_ms;
	bool closing, hinted;

	struct etcd_host hosts[ETCD_HOSTS_MAX];
	size_t n_hosts, current;
	uint64_t cluster;		/* 0: not known yet */
	uint64_t seen;			/* the highest revision of an answer */
	char named_by[ETCD_HOST_MAX + 9];	/* the host that said it first */
	int refused;			/* for good, with base.why's sentence in refused_why */
	char refused_why[WHY_MAX];

	char before[BEFORE_MAX];	/* all that stands before a key */

	struct request *waiting, *running, *over;
	unsigned n_running, n_pending;

	char *user, *password_file, *ca, *cert, *cert_key;	/* NULL: none */
	char *token;
	unsigned token_number;		/* counts the tokens that there have been */
	struct http_call login;
	struct etcd_host *login_host;
	struct etcd_body login_body;
	http_ms login_at;		/* not before: a wrong password is not tried in a hurry */
	int login_error;
	char login_why[WHY_MAX];

	struct http_call watch;
	struct etcd_host *watch_host;
	struct etcd_body watch_body;
	bool watching;			/* etcd has said "created" */
	bool watch_broken;		/* what came says that no more will */
	bool watch_login;		/* because of the token */
	unsigned watch_token;
	unsigned watch_fails;
	http_ms watch_at, watch_limit;
	char line[4096];		/* of the stream */
	size_t line_size;
};

/* --- etcd_why.c --- */

/* What the call to host means. *a is what it answered, as far as it could be read; for etcd_answer_done(). */
void etcd_judge(struct etcd *e, const struct etcd_host *host, const struct http_call *c, struct etcd_answer *a,
		struct etcd_verdict *ret);
__attribute__((format(printf, 2, 3)))
void etcd_say(char ret[WHY_MAX], const char *format, ...);

/* --- etcd_open.c --- */

void etcd_free(struct etcd *e);

/* --- etcd_hosts.c --- */

int hosts_init(struct etcd *e, const struct etcd_url *u);
void hosts_done(struct etcd *e);
/* Starts the probes that are due. */
void hosts_step(struct etcd *e);
/* Whom to ask; NULL: nobody is up. */
struct etcd_host *hosts_pick(struct etcd *e);
void host_failed(struct etcd_host *h, int error, const char *why);
void host_worked(struct etcd_host *h);
/* How long that call took, which is over. */
void host_took(struct etcd_host *h, const struct http_call *c);
/* How long to wait for an answer of this host, or to be connected with it, where `least` is usual. */
unsigned host_limit(const struct etcd_host *h, unsigned least);
/* Is this answer of our cluster? Learns it from the first; another one refuses the store for good. */
bool host_cluster(struct etcd_host *h, uint64_t cluster);
/* Is this answer of the etcd that had got to `floor` when it was asked? One that has gone back is refused for good. */
bool host_forward(struct etcd_host *h, uint64_t floor, uint64_t revision);
/* When hosts_step() has something to do; 0: never. */
http_ms hosts_next(const struct etcd *e);
/* What keeps everybody from answering. */
int hosts_explain(const struct etcd *e, char ret[WHY_MAX]);

/* --- etcd_login.c --- */

/* Is there a token, or no need for one? If not, it is on its way, or login_error says why it cannot be. */
bool login_step(struct etcd *e);
/* The token with this number was refused. */
void login_void(struct etcd *e, unsigned number);
void login_done(struct etcd *e);

/* --- etcd_watch.c --- */

void watch_step(struct etcd *e);
http_ms watch_next(const struct etcd *e);
void watch_done(struct etcd *e);

/* --- etcd.c --- */

extern const struct store_ops etcd_ops;

/* After anything has changed: starts what can be started, ends what is over time, sets the timer. */
void etcd_step(struct etcd *e);
