/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tls_certs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define DAY 86400
#define check(call) assert_true((call) >= 0)

static void file_write(const char *name, const char *suffix, const gnutls_datum_t *d, int mode)
{
	char path[64];
	FILE *f;

	snprintf(path, sizeof path, "%s%s", name, suffix);
	f = fopen(path, "we");
	assert_non_null(f);
	assert_int_equal(fwrite(d->data, 1, d->size, f), d->size);
	fclose(f);
	assert_int_equal(chmod(path, (mode_t)mode), 0);
}

static gnutls_datum_t file_read(const char *name, const char *suffix)
{
	gnutls_datum_t d;
	char path[64];

	snprintf(path, sizeof path, "%s%s", name, suffix);
	check(gnutls_load_file(path, &d));
	return d;
}

static gnutls_x509_privkey_t key_read(const char *name)
{
	gnutls_datum_t d = file_read(name, ".key");
	gnutls_x509_privkey_t key;

	check(gnutls_x509_privkey_init(&key));
	check(gnutls_x509_privkey_import(key, &d, GNUTLS_X509_FMT_PEM));
	gnutls_free(d.data);
	return key;
}

static gnutls_x509_crt_t crt_read(const char *name)
{
	gnutls_datum_t d = file_read(name, ".crt");
	gnutls_x509_crt_t crt;

	check(gnutls_x509_crt_init(&crt));
	check(gnutls_x509_crt_import(crt, &d, GNUTLS_X509_FMT_PEM));
	gnutls_free(d.data);
	return crt;
}

static void crt_fill(gnutls_x509_crt_t crt, gnutls_x509_privkey_t key, const struct cert_wish *w)
{
	time_t now = time(NULL);
	uint8_t serial[4] = { 1, 0, 0, (uint8_t)(w->serial ? w->serial : 1) };

	check(gnutls_x509_crt_set_version(crt, 3));
	check(gnutls_x509_crt_set_serial(crt, serial, sizeof serial));
	check(gnutls_x509_crt_set_activation_time(crt, w->until ? now + w->from : now - DAY));
	check(gnutls_x509_crt_set_expiration_time(crt, w->until ? now + w->until : now + DAY));
	check(gnutls_x509_crt_set_dn_by_oid(crt, GNUTLS_OID_X520_COMMON_NAME, 0, w->file, (unsigned)strlen(w->file)));
	check(gnutls_x509_crt_set_key(crt, key));
	check(gnutls_x509_crt_set_basic_constraints(crt, !w->ca, -1));
	check(gnutls_x509_crt_set_key_usage(crt, w->ca ? GNUTLS_KEY_DIGITAL_SIGNATURE : GNUTLS_KEY_KEY_CERT_SIGN | GNUTLS_KEY_CRL_SIGN));
	if (w->dns)
		check(gnutls_x509_crt_set_subject_alt_name(crt, GNUTLS_SAN_DNSNAME, w->dns, (unsigned)strlen(w->dns), 0));
}

void cert_make(const struct cert_wish *w)
{
	gnutls_x509_privkey_t key, ca_key;
	gnutls_x509_crt_t crt, ca;
	gnutls_datum_t d;

	check(gnutls_x509_privkey_init(&key));
	check(gnutls_x509_privkey_generate(key, GNUTLS_PK_ECDSA, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0));
	check(gnutls_x509_crt_init(&crt));
	crt_fill(crt, key, w);
	ca = w->ca ? crt_read(w->ca) : crt;
	ca_key = w->ca ? key_read(w->ca) : key;
	check(gnutls_x509_crt_sign2(crt, ca, ca_key, GNUTLS_DIG_SHA256, 0));
	check(gnutls_x509_crt_export2(crt, GNUTLS_X509_FMT_PEM, &d));
	file_write(w->file, ".crt", &d, 0644);
	gnutls_free(d.data);
	check(gnutls_x509_privkey_export2(key, GNUTLS_X509_FMT_PEM, &d));
	file_write(w->file, ".key", &d, 0600);
	gnutls_free(d.data);
	if (w->ca) {
		gnutls_x509_crt_deinit(ca);
		gnutls_x509_privkey_deinit(ca_key);
	}
	gnutls_x509_crt_deinit(crt);
	gnutls_x509_privkey_deinit(key);
}

void crl_make(const char *file, const char *ca_name, unsigned revoked_serial)
{
	uint8_t serial[4] = { 1, 0, 0, (uint8_t)revoked_serial };
	gnutls_x509_privkey_t key = key_read(ca_name);
	gnutls_x509_crt_t ca = crt_read(ca_name);
	gnutls_x509_crl_t crl;
	gnutls_datum_t d;
	time_t now = time(NULL);

	check(gnutls_x509_crl_init(&crl));
	check(gnutls_x509_crl_set_version(crl, 2));
	check(gnutls_x509_crl_set_this_update(crl, now - DAY));
	check(gnutls_x509_crl_set_next_update(crl, now + DAY));
	check(gnutls_x509_crl_set_number(crl, "\1", 1));
	check(gnutls_x509_crl_set_crt_serial(crl, serial, sizeof serial, now - DAY));
	check(gnutls_x509_crl_sign2(crl, ca, key, GNUTLS_DIG_SHA256, 0));
	check(gnutls_x509_crl_export2(crl, GNUTLS_X509_FMT_PEM, &d));
	file_write(file, "", &d, 0644);
	gnutls_free(d.data);
	gnutls_x509_crl_deinit(crl);
	gnutls_x509_crt_deinit(ca);
	gnutls_x509_privkey_deinit(key);
}

void key_make(const char *file, char digit, int mode)
{
	unsigned char text[65];
	gnutls_datum_t d = { text, sizeof text };

	memset(text, digit, 64);
	text[64] = '\n';
	file_write(file, "", &d, mode);
}
