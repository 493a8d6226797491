/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tls.h"

#include <errno.h>
#include <gnutls/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "keys_int.h"

#define WARNINGS_MAX 16          /* that mean nothing, in a row */

struct tls {
	gnutls_session_t session;
	const struct tls_keys *keys;     /* until it is secured; others may have taken their place then */
	tls_push_fn push;
	void *arg;
	const unsigned char *in;
	size_t in_n;
	bool server, secured, shared;
	char own[KEY_ID_HEX + 1];        /* the shared key that we have */
	char stranger[KEY_ID_HEX + 1];   /* a key that the peer named and we do not have; "" */
	char why[TLS_WHY_MAX];
	char text[128];
};

/* --- What GnuTLS calls --- */

static ssize_t pull(gnutls_transport_ptr_t p, void *to, size_t n)
{
	struct tls *t = p;

	if (!t->in_n) {
		gnutls_transport_set_errno(t->session, EAGAIN);
		return -1;
	}
	if (n > t->in_n)
		n = t->in_n;
	memcpy(to, t->in, n);
	t->in += n;
	t->in_n -= n;
	return (ssize_t)n;
}

static int pull_timeout(gnutls_transport_ptr_t p, unsigned ms)
{
	(void)ms;
	return ((struct tls *)p)->in_n > 0;
}

static ssize_t push_vec(gnutls_transport_ptr_t p, const giovec_t *v, int n)
{
	struct tls *t = p;
	ssize_t sum = 0;

	for (int i = 0; i < n; i++) {
		if (t->push(t->arg, v[i].iov_base, v[i].iov_len) < 0) {
			gnutls_transport_set_errno(t->session, ENOMEM);
			return -1;
		}
		sum += (ssize_t)v[i].iov_len;
	}
	return sum;
}

static int shared_key(gnutls_session_t session, const char *id, gnutls_datum_t *ret)
{
	struct tls *t = gnutls_session_get_ptr(session);

	for (unsigned i = 0; i < t->keys->keys_n; i++) {
		const struct shared_key *k = &t->keys->key[i];

		if (strcmp(k->id, id) != 0)
			continue;
		ret->data = gnutls_malloc(TLS_KEY_BYTES);
		if (!ret->data)
			return -1;
		memcpy(ret->data, k->bytes, TLS_KEY_BYTES);
		ret->size = TLS_KEY_BYTES;
		return 0;
	}
	for (unsigned i = 0; i < KEY_ID_HEX && id[i] > ' ' && id[i] <= '~'; i++)
		t->stranger[i] = id[i];
	return -1;
}

/* --- Making it --- */

static int credentials_set(struct tls *t)
{
	const struct tls_keys *k = t->keys;

	if (!k->shared)
		return gnutls_credentials_set(t->session, GNUTLS_CRD_CERTIFICATE, k->cert);
	if (!t->server)
		return gnutls_credentials_set(t->session, GNUTLS_CRD_PSK, k->psk_client);
	gnutls_psk_set_server_credentials_function(k->psk_server, shared_key);
	return gnutls_credentials_set(t->session, GNUTLS_CRD_PSK, k->psk_server);
}

int tls_create(const struct tls_keys *k, bool server, tls_push_fn push, void *arg, struct tls **ret)
{
	struct tls *t = calloc(1, sizeof *t);

	if (!t)
		return -ENOMEM;
	t->keys = k;
	t->shared = k->shared;
	memcpy(t->own, k->key[0].id, sizeof t->own);
	t->server = server;
	t->push = push;
	t->arg = arg;
	if (gnutls_init(&t->session, (server ? GNUTLS_SERVER : GNUTLS_CLIENT) | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL |
			GNUTLS_NO_TICKETS | (server ? 0 : GNUTLS_FORCE_CLIENT_CERT)) < 0) {
		free(t);
		return -ENOMEM;
	}
	gnutls_session_set_ptr(t->session, t);
	if (gnutls_priority_set(t->session, k->priority) < 0 || credentials_set(t) < 0) {
		tls_free(t);
		return -EPROTO;
	}
	if (!k->shared) {
		gnutls_session_set_verify_cert(t->session, NULL, 0);
		if (server)
			gnutls_certificate_server_set_request(t->session, GNUTLS_CERT_REQUIRE);
	}
	gnutls_handshake_set_timeout(t->session, 0);     /* the connection has one */
	gnutls_transport_set_ptr(t->session, t);
	gnutls_transport_set_pull_function(t->session, pull);
	gnutls_transport_set_pull_timeout_function(t->session, pull_timeout);
	gnutls_transport_set_vec_push_function(t->session, push_vec);
	*ret = t;
	return 0;
}

void tls_free(struct tls *t)
{
	if (!t)
		return;
	gnutls_deinit(t->session);
	free(t);
}

/* --- Why it failed --- */

static void why_cert(struct tls *t)
{
	unsigned status = gnutls_session_get_verify_cert_status(t->session);
	gnutls_alert_description_t alert = GNUTLS_A_BAD_CERTIFICATE;
	const char *what = "is not good", *todo = "see that both nodes have certificates of one CA";

	if (status & GNUTLS_CERT_EXPIRED) {
		what = "has expired";
		todo = "renew it there (and see that both clocks are right)";
		alert = GNUTLS_A_CERTIFICATE_EXPIRED;
	} else if (status & GNUTLS_CERT_REVOKED) {
		what = "is revoked by our CRL=";
		todo = "if that is a mistake, mend the CRL";
		alert = GNUTLS_A_CERTIFICATE_REVOKED;
	} else if (status & GNUTLS_CERT_NOT_ACTIVATED) {
		what = "is not valid yet";
		todo = "see that both clocks are right";
		alert = GNUTLS_A_CERTIFICATE_EXPIRED;
	} else if (status & (GNUTLS_CERT_SIGNER_NOT_FOUND | GNUTLS_CERT_SIGNER_NOT_CA | GNUTLS_CERT_SIGNATURE_FAILURE)) {
		what = "is of another CA than our CA=";
		alert = GNUTLS_A_UNKNOWN_CA;
	}
	snprintf(t->why, sizeof t->why, "its certificate %s: %s", what, todo);
	gnutls_alert_send(t->session, GNUTLS_AL_FATAL, alert);
}

static void why_alert_shared(struct tls *t, gnutls_alert_description_t alert)
{
	snprintf(t->why, sizeof t->why, "it refuses our cluster key %s (it says: %s): see that Key= holds the same on both nodes, "
		 "and that it uses Key= too", t->own, gnutls_alert_get_name(alert));
}

static void why_alert_cert(struct tls *t, gnutls_alert_description_t alert)
{
	switch (alert) {
	case GNUTLS_A_CERTIFICATE_EXPIRED:
		snprintf(t->why, sizeof t->why, "it says that our certificate has expired: renew Cert=, then systemctl reload dlockd "
			 "(and see that both clocks are right)");
		return;
	case GNUTLS_A_CERTIFICATE_REVOKED:
		snprintf(t->why, sizeof t->why, "it says that our certificate is revoked: its CRL= names Cert=");
		return;
	case GNUTLS_A_UNKNOWN_CA:
	case GNUTLS_A_BAD_CERTIFICATE:
	case GNUTLS_A_CERTIFICATE_UNKNOWN:
	case GNUTLS_A_UNSUPPORTED_CERTIFICATE:
		snprintf(t->why, sizeof t->why, "it does not accept our certificate (it says: %s): see that both nodes have "
			 "certificates of one CA", gnutls_alert_get_name(alert));
		return;
	default:                                 /* those of TLS are many */
		snprintf(t->why, sizeof t->why, "it refuses (it says: %s): see that it uses Cert= too, with a certificate of our CA, "
			 "and not Key=", gnutls_alert_get_name(alert));
		return;
	}
}

static void why_alert(struct tls *t)
{
	gnutls_alert_description_t alert = gnutls_alert_get(t->session);

	if (alert == GNUTLS_A_PROTOCOL_VERSION)
		snprintf(t->why, sizeof t->why, "it does not speak TLS 1.3: is that a dlockd?");
	else if (t->shared)
		why_alert_shared(t, alert);
	else
		why_alert_cert(t, alert);
}

static void why_other(struct tls *t, int r)
{
	if (r == GNUTLS_E_UNSUPPORTED_VERSION_PACKET || r == GNUTLS_E_UNEXPECTED_PACKET_LENGTH)
		snprintf(t->why, sizeof t->why, "it does not speak TLS 1.3 (%s): is that a dlockd?", gnutls_strerror(r));
	else if (t->shared && t->stranger[0])
		snprintf(t->why, sizeof t->why, "it has another cluster key, %s, than ours, %s: copy the file of Key= from one node to "
			 "all", t->stranger, t->own);
	else if (t->shared && !t->secured)
		snprintf(t->why, sizeof t->why, "it does not have our cluster key %s (%s): see that Key= holds the same on both nodes, "
			 "and that it uses Key= too", t->own, gnutls_strerror(r));
	else if (!t->secured)
		snprintf(t->why, sizeof t->why, "it shows no certificate that we accept (%s): see that it uses Cert= too, with a "
			 "certificate of our CA", gnutls_strerror(r));
	else
		snprintf(t->why, sizeof t->why, "TLS: %s", gnutls_strerror(r));
}

static int failed(struct tls *t, int r)
{
	if (r == GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR) {
		why_cert(t);
	} else if (r == GNUTLS_E_FATAL_ALERT_RECEIVED) {
		why_alert(t);
	} else {
		why_other(t, r);
		gnutls_alert_send_appropriate(t->session, r);
	}
	return -EPROTO;
}

/* --- Using it --- */

void tls_feed(struct tls *t, const void *data, size_t n)
{
	t->in = data;
	t->in_n = n;
}

int tls_handshake(struct tls *t)
{
	int r;

	for (unsigned i = 0; i < WARNINGS_MAX; i++) {
		r = gnutls_handshake(t->session);
		if (r == GNUTLS_E_SUCCESS) {
			t->secured = true;
			return 0;
		}
		if (r == GNUTLS_E_AGAIN || r == GNUTLS_E_INTERRUPTED)
			return -EAGAIN;
		if (gnutls_error_is_fatal(r))
			break;
	}
	return failed(t, r);
}

int tls_read(struct tls *t, tls_take_fn take, void *arg)
{
	unsigned warnings = 0;

	for (;;) {
		gnutls_packet_t packet = NULL;
		gnutls_datum_t data;
		ssize_t n = gnutls_record_recv_packet(t->session, &packet);
		int r = 0;

		if (n > 0) {
			gnutls_packet_get(packet, &data, NULL);
			r = take(arg, data.data, data.size);
		}
		if (packet)
			gnutls_packet_deinit(packet);
		if (n == 0)
			return 0;
		if (n == GNUTLS_E_AGAIN || n == GNUTLS_E_INTERRUPTED)
			return -EAGAIN;
		if (n < 0 && (gnutls_error_is_fatal((int)n) || ++warnings == WARNINGS_MAX))
			return failed(t, (int)n);
		if (r < 0)
			return r;
	}
}

int tls_write(struct tls *t, const void *data, size_t n)
{
	ssize_t r = gnutls_record_send(t->session, data, n);

	if (r == (ssize_t)n)
		return 0;
	return r < 0 ? failed(t, (int)r) : -EPROTO;
}

void tls_bye(struct tls *t)
{
	if (t->secured)
		gnutls_bye(t->session, GNUTLS_SHUT_WR);
}

/* --- Who it is --- */

/* A wildcard in a certificate stands for no node: they have names. */
static bool name_allows(const char *name, size_t n, const char *node)
{
	size_t length = strlen(node);

	return n >= length && strncasecmp(name, node, length) == 0 && (n == length || name[length] == '.');
}

static bool names_allow(gnutls_x509_crt_t crt, const char *node)
{
	bool any = false;
	char name[256];
	int type;

	for (unsigned i = 0; i < 1000; i++) {
		size_t n = sizeof name;

		type = gnutls_x509_crt_get_subject_alt_name(crt, i, name, &n, NULL);
		if (type == GNUTLS_E_REQUESTED_DATA_NOT_AVAILABLE)
			break;
		if (type != GNUTLS_SAN_DNSNAME)
			continue;
		any = true;
		if (name_allows(name, n, node))
			return true;
	}
	return !any;
}

bool tls_allows(struct tls *t, const char *node)
{
	const gnutls_datum_t *list;
	gnutls_x509_crt_t crt;
	unsigned n = 0;
	bool allowed;

	if (t->shared)
		return true;
	list = gnutls_certificate_get_peers(t->session, &n);
	if (!list || !n || gnutls_x509_crt_init(&crt) < 0)
		return false;
	allowed = gnutls_x509_crt_import(crt, &list[0], GNUTLS_X509_FMT_DER) == 0 && names_allow(crt, node);
	gnutls_x509_crt_deinit(crt);
	return allowed;
}

const char *tls_why(const struct tls *t)
{
	return t->why;
}

const char *tls_text(struct tls *t)
{
	snprintf(t->text, sizeof t->text, "TLS 1.3, %s, %s", gnutls_cipher_get_name(gnutls_cipher_get(t->session)),
		 t->shared ? "pre-shared key" : "certificates");
	return t->text;
}
