/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * POST requests over libcurl that block nobody: one descriptor (an epoll) behind which libcurl's
 * sockets and two timers stand.
 *
 * What must be true:
 *
 *  - A call that once() is asked for is handed to a server at most once. libcurl sends a request anew by
 *    itself when a connection that it has kept turns out to be closed; but the server may have carried
 *    the request out before it closed. So such a call is given up instead as soon as any of its body
 *    has been handed out: sent tells that, and only a call that is not sent has surely had no effect.
 *  - Nothing is called back from within http_call_start(): done and on_data come from http_ready().
 *  - No name, handshake or answer is waited for. libcurl looks names up in threads, and is told
 *    (QUICK_EXIT) not to wait for these when a call is given up.
 */
#pragma once

#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_ANSWER_MAX (16 * 1024 * 1024)	/* bytes; a call with more fails with -EFBIG */

typedef uint64_t http_ms;	/* of CLOCK_MONOTONIC, as libcurl's own times */

struct http_tls {
	const char *ca, *cert, *key;	/* files; NULL: the system's authorities, no certificate */
};

struct http {
	CURLM *multi;
	int epoll, curl_timer, tick_timer;
	bool ticked;
	struct http_tls tls;
	struct http_call *over;		/* done, to be told */
};

struct http_call {
	/* What the caller sets; all of it stays his and as it is until done. */
	const char *url;
	const char *token;		/* needed at the start only; NULL: none */
	const char *body;
	size_t body_size;
	unsigned limit_ms, connect_ms;	/* limit 0: a stream, which never ends by time */
	bool once;
	void (*done)(void *arg, struct http_call *c);
	void (*on_data)(void *arg, const char *data, size_t size);	/* NULL: it is gathered */
	void *arg;

	/* What came of it. */
	bool sent;
	http_ms started;
	CURLcode result;
	int error;			/* a system call's, positive; 0: none is known */
	bool local;			/* this host has no descriptors or no memory left */
	long status, verify;		/* HTTP's; X509_V_*, of the server's certificate */
	char *data;			/* what was gathered; it is gone when done returns */
	size_t size;
	char detail[CURL_ERROR_SIZE];

	/* Ours. */
	struct http *http;
	CURL *easy;
	struct curl_slist *headers;
	struct http_call *next;
	size_t handed, room;
	bool running;
};

/* 0, -ENOMEM, -EMFILE ... After a failure too http_done() may be called. */
int http_init(struct http *h, const struct http_tls *tls);
void http_done(struct http *h);		/* no call may be left */

/* 0 or -ENOMEM. */
int http_call_start(struct http *h, struct http_call *c);
void http_call_cancel(struct http_call *c);	/* without done; nothing, if it is not running */

/* Does what there is to do; returns true if the moment of http_tick_at() has come. */
bool http_ready(struct http *h);

http_ms http_now(void);
/* 0: never. */
void http_tick_at(struct http *h, http_ms when);
