/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a call that failed means. The question that matters for safety is whether the other side may have
 * carried it out: "undone" is said only of those errors of etcd that it raises before it proposes anything,
 * or instead of applying it. (What was never sent at all is http_call's to know.)
 */
#include "etcd_int.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void etcd_say(char ret[WHY_MAX], const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(ret, WHY_MAX, format, args);
	va_end(args);
}

#define verdict(v, what, number, ...) ((v)->next = (what), (v)->error = (number), etcd_say((v)->why, __VA_ARGS__))

/* gRPC's numbers that etcd uses */
enum {
	GRPC_INVALID_ARGUMENT = 3, GRPC_NOT_FOUND = 5, GRPC_PERMISSION_DENIED = 7, GRPC_RESOURCE_EXHAUSTED = 8,
	GRPC_FAILED_PRECONDITION = 9, GRPC_OUT_OF_RANGE = 11, GRPC_UNIMPLEMENTED = 12, GRPC_UNAUTHENTICATED = 16,
};

static void judge_tls(const struct http_call *c, const char *host, struct etcd_verdict *v)
{
	const char *what = c->detail[0] ? c->detail : curl_easy_strerror(c->result);

	if (strstr(what, "wrong version number") || strstr(what, "packet length too long"))
		verdict(v, ETCD_ELSEWHERE, STORE_ETCD_ETLS, "%s does not speak TLS. Write etcd:// instead of etcds://, "
			"or let etcd listen with https.", host);
	else if (strstr(what, "certificate required") || strstr(what, "bad certificate"))
		verdict(v, ETCD_ELSEWHERE, STORE_ETCD_ETLS, "%s refuses this node's certificate, or the lack of one: %.100s. "
			"See StoreCert= and StoreCertKey=.", host, what);
	else if (c->result == CURLE_SSL_CERTPROBLEM || c->result == CURLE_SSL_CACERT_BADFILE)
		verdict(v, ETCD_ELSEWHERE, STORE_ETCD_ETLS, "a file of StoreCA=, StoreCert= or StoreCertKey= cannot be used: "
			"%.150s", what);
	else
		verdict(v, ETCD_ELSEWHERE, STORE_ETCD_ETLS, "%s: TLS failed: %.150s. Does StoreCA= name who signed etcd's "
			"certificate, and is it for this name?", host, what);
}

/* No answer at all came. */
static void judge_silence(const struct http_call *c, const char *host, struct etcd_verdict *v)
{
	switch (c->result) {
	case CURLE_COULDNT_RESOLVE_HOST:
		verdict(v, ETCD_ELSEWHERE, STORE_ETCD_ENAME, "%s: the host's name is not found. Look at Store= and the "
			"DNS.", host);
		return;
	case CURLE_COULDNT_CONNECT:
		if (c->error == ECONNREFUSED)
			verdict(v, ETCD_ELSEWHERE, STORE_ETCD_EREFUSED, "%s: connection refused. Is etcd running there?",
				host);
		else
			verdict(v, ETCD_ELSEWHERE, c->error ? -c->error : STORE_ETCD_ECONN, "%s: cannot connect: %s.", host,
				c->error ? strerrordesc_np(c->error) : c->detail);
		return;
	case CURLE_OPERATION_TIMEDOUT:
		verdict(v, ETCD_ELSEWHERE, STORE_ETCD_ETIME, "%s: no answer within %u ms.", host,
			c->sent ? c->limit_ms : c->connect_ms);
		return;
	case CURLE_SSL_CONNECT_ERROR:
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CERTPROBLEM:
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_SSL_CIPHER:
		judge_tls(c, host, v);
		return;
	case CURLE_UNSUPPORTED_PROTOCOL:
	case CURLE_WEIRD_SERVER_REPLY:
	case CURLE_HTTP2:
		verdict(v, ETCD_ELSEWHERE, STORE_ETCD_EFOREIGN, "%s is not an etcd: it does not speak HTTP.", host);
		return;
	default:
		break;
	}
	/* A server that wants a certificate says so in TLS 1.3 only when it reads the request. */
	if (c->result == CURLE_RECV_ERROR && strstr(c->detail, "alert"))
		judge_tls(c, host, v);
	else if (c->error == EFBIG)
		verdict(v, ETCD_FINAL, -EFBIG, "%s: the answer is larger than %d bytes.", host, HTTP_ANSWER_MAX);
	else
		verdict(v, ETCD_ELSEWHERE, STORE_ETCD_ECONN, "%s: the connection broke: %.100s. (If that is always so: %s)", host,
			c->detail[0] ? c->detail : curl_easy_strerror(c->result), strncmp(c->url, "https:", 6) ?
			"does etcd speak TLS? Write etcds:// then." :
			"does etcd want another certificate? See StoreCert=.");
}

static bool says(const struct etcd_answer *a, const char *text)
{
	return strstr(a->message, text);
}

static void judge_error(const struct etcd *e, const struct etcd_answer *a, const char *host, struct etcd_verdict *v)
{
	/* Where gRPC itself, between gateway and server, could say the same, nobody knows what was done. */
	v->undone = says(a, "etcdserver:") &&
		    (a->code == GRPC_INVALID_ARGUMENT || a->code == GRPC_NOT_FOUND || a->code == GRPC_PERMISSION_DENIED ||
		     a->code == GRPC_RESOURCE_EXHAUSTED || a->code == GRPC_FAILED_PRECONDITION ||
		     a->code == GRPC_OUT_OF_RANGE || a->code == GRPC_UNIMPLEMENTED || a->code == GRPC_UNAUTHENTICATED);
	if (says(a, "invalid auth token") || says(a, "revision of auth store is old") || says(a, "auth: invalid"))
		verdict(v, ETCD_LOGIN, STORE_ETCD_ELOGIN, "%s: etcd does not know our token (any more).", host);
	else if (says(a, "authentication failed"))
		verdict(v, ETCD_FINAL, STORE_ETCD_ELOGIN, "%s: wrong user or password. Look at StoreUser= and "
			"StorePasswordFile=.", host);
	else if (says(a, "authentication is not enabled"))
		verdict(v, ETCD_FINAL, STORE_ETCD_ELOGIN, "%s: etcd asks nobody for a password, so that StoreUser= would "
			"protect nothing. Run \"etcdctl auth enable\", or remove StoreUser=.", host);
	else if (says(a, "user name is empty"))
		verdict(v, ETCD_FINAL, STORE_ETCD_ELOGIN, "%s: etcd wants to know who we are. Set StoreUser= and "
			"StorePasswordFile=.", host);
	else if (a->code == GRPC_PERMISSION_DENIED)
		verdict(v, ETCD_FINAL, STORE_ETCD_EPERM, "%s: the user %.60s may not read and write all keys that begin with "
			"%.140s. Grant its role readwrite on that prefix.", host, e->user ? e->user : "(none)", e->before);
	else if (says(a, "database space exceeded"))
		verdict(v, ETCD_FINAL, STORE_ETCD_ESPACE, "%s: etcd's database has reached its quota, and takes no writes. "
			"Compact and defragment it, or raise --quota-backend-bytes, then \"etcdctl alarm disarm\".", host);
	else if (says(a, "no leader"))
		verdict(v, ETCD_ELSEWHERE, STORE_ETCD_ELEADER, "%s has no leader: the majority of etcd's members is down or "
			"cannot be reached.", host);
	else if (a->code == GRPC_OUT_OF_RANGE)
		verdict(v, ETCD_OLD, STORE_ETCD_ESERVER, "%s: etcd says: %s.", host, a->message);
	else if (a->code == GRPC_INVALID_ARGUMENT || a->code == GRPC_NOT_FOUND)
		verdict(v, ETCD_FINAL, STORE_ETCD_ESERVER, "%s: etcd says: %s.", host, a->message);
	else if (a->code == GRPC_UNIMPLEMENTED)
		verdict(v, ETCD_ELSEWHERE, STORE_ETCD_EFOREIGN, "%s is too old an etcd: %s. 3.4 or later is needed.", host,
			a->message);
	else
		verdict(v, ETCD_ELSEWHERE, STORE_ETCD_ESERVER, "%s: etcd says: %s.", host, a->message);
}

void etcd_judge(struct etcd *e, const struct etcd_host *host, const struct http_call *c, struct etcd_answer *a,
		struct etcd_verdict *ret)
{
	int r;

	*ret = (struct etcd_verdict){ .next = ETCD_FINE };
	*a = (struct etcd_answer){ .failed = false };
	if (c->local) {
		verdict(ret, ETCD_FINAL, c->error ? -c->error : -ENOMEM, "this host has no %s left to ask %s.",
			c->error == EMFILE || c->error == ENFILE ? "file descriptors" : "memory", host->label);
		return;
	}
	if (c->result != CURLE_OK) {
		judge_silence(c, host->label, ret);
		return;
	}
	r = c->data ? etcd_wire_decode(e->before, c->data, c->size, a) : -EBADMSG;
	if (r == 0 && a->failed)
		judge_error(e, a, host->label, ret);
	else if (r == 0 && c->status == 200)
		return;
	else if (r == -ENOMEM)
		verdict(ret, ETCD_FINAL, r, "no memory for the answer of %s.", host->label);
	else if (c->data && strstr(c->data, "HTTP request to an HTTPS server"))
		verdict(ret, ETCD_ELSEWHERE, STORE_ETCD_ETLS, "%s speaks TLS. Write etcds:// instead of etcd://.", host->label);
	else if (c->status == 404 || c->status == 405 || c->status == 501)
		verdict(ret, ETCD_ELSEWHERE, STORE_ETCD_EFOREIGN, "%s is not an etcd, or one before 3.4, or without its "
			"gateway (--enable-grpc-gateway): HTTP status %ld.", host->label, c->status);
	else
		verdict(ret, ETCD_ELSEWHERE, c->status == 200 ? STORE_ETCD_EANSWER : STORE_ETCD_EFOREIGN, "%s is not an etcd: "
			"it answers what no etcd does (HTTP status %ld).", host->label, c->status);
}
