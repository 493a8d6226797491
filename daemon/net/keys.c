/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "keys.h"

#include <errno.h>
#include <fcntl.h>
#include <gnutls/crypto.h>
#include <gnutls/x509.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "address.h"
#include "keys_int.h"
#include "tls.h"

#define FILE_MAX (256 * 1024)
#define CHAIN_MAX 16

/* AES-256 goes with SHA-384, and the binder of an external key is of SHA-256. */
#define PRIORITY_SHARED "NORMAL:-VERS-ALL:+VERS-TLS1.3:-KX-ALL:+ECDHE-PSK:-CIPHER-ALL:+AES-128-GCM:+CHACHA20-POLY1305:" \
			"-GROUP-ALL:+GROUP-X25519:+GROUP-SECP256R1"
#define PRIORITY_CERT "NORMAL:-VERS-ALL:+VERS-TLS1.3:-GROUP-ALL:+GROUP-X25519:+GROUP-SECP256R1:+GROUP-SECP384R1"

static int fail(char why[TLS_WHY_MAX], int error, const char *format, ...) __attribute__((format(printf, 3, 4)));

static int fail(char why[TLS_WHY_MAX], int error, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(why, TLS_WHY_MAX, format, ap);
	va_end(ap);
	return error;
}

static bool given(const char *path)
{
	return path && *path;
}

/* --- Files --- */

static int secret_check(int fd, const char *what, const char *path, char why[TLS_WHY_MAX])
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return fail(why, -errno, "%s=%s: %s", what, path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return fail(why, -EINVAL, "%s=%s is no regular file.", what, path);
	if (st.st_mode & (S_IROTH | S_IWOTH))
		return fail(why, -EPERM, "%s=%s may be %s by everybody on this machine: whoever has it can join the cluster. "
			    "chmod o-rwx %s; if others had access to it make a new one.", what, path,
			    st.st_mode & S_IROTH ? "read" : "written", path);
	return 0;
}

/* *ret is from malloc(), zero-terminated. */
static int file_read(const char *what, const char *path, bool secret, gnutls_datum_t *ret, char why[TLS_WHY_MAX])
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), r = 0;
	unsigned char *data;
	ssize_t n;

	if (fd < 0)
		return fail(why, -errno, "%s=%s: %s.%s", what, path, strerror(errno),
			    errno == EACCES ? " It must be readable for the user that dlockd runs as." : "");
	if (secret)
		r = secret_check(fd, what, path, why);
	if (r < 0) {
		close(fd);
		return r;
	}
	data = malloc(FILE_MAX + 1);
	n = data ? read(fd, data, FILE_MAX + 1) : -1;
	r = n < 0 ? (data ? -errno : -ENOMEM) : n > FILE_MAX ? -EFBIG : 0;
	close(fd);
	if (r < 0) {
		free(data);
		return fail(why, r, "%s=%s: %s", what, path, strerror(-r));
	}
	data[n] = 0;
	*ret = (gnutls_datum_t){ data, (unsigned)n };
	return 0;
}

static void file_done(gnutls_datum_t *d)
{
	if (d->data)
		gnutls_memset(d->data, 0, d->size);
	free(d->data);
	*d = (gnutls_datum_t){ 0 };
}

/* --- The shared key --- */

static int hex_digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool key_parse(const char *line, size_t n, struct shared_key *ret)
{
	static const char salt[] = "dlock key id";
	uint8_t hashed[sizeof salt + TLS_KEY_BYTES], hash[32];
	int r;

	if (n != 2 * TLS_KEY_BYTES)
		return false;
	for (size_t i = 0; i < TLS_KEY_BYTES; i++) {
		int high = hex_digit(line[2 * i]), low = hex_digit(line[2 * i + 1]);

		if (high < 0 || low < 0)
			return false;
		ret->bytes[i] = (uint8_t)(high << 4 | low);
	}
	memcpy(hashed, salt, sizeof salt);
	memcpy(hashed + sizeof salt, ret->bytes, TLS_KEY_BYTES);
	r = gnutls_hash_fast(GNUTLS_DIG_SHA256, hashed, sizeof hashed, hash);
	gnutls_memset(hashed, 0, sizeof hashed);
	for (unsigned i = 0; i < KEY_ID_HEX / 2 && r >= 0; i++)
		snprintf(ret->id + 2 * i, 3, "%02x", hash[i]);
	return r >= 0;
}

static int keys_parse(struct tls_keys *k, const char *text, const char *path, char why[TLS_WHY_MAX])
{
	unsigned number = 1;

	for (const char *line = text, *next; *line; line = next, number++) {
		size_t n = strcspn(line, "\r\n");

		next = line + n + (strncmp(line + n, "\r\n", 2) == 0 ? 2 : line[n] != 0);
		if (n && *line != '#') {
			if (k->keys_n == TLS_KEYS_MAX)
				return fail(why, -EINVAL, "Key=%s has more than %d keys.", path, TLS_KEYS_MAX);
			if (!key_parse(line, n, &k->key[k->keys_n]))
				return fail(why, -EINVAL, "Key=%s: line %u is no key of %d hexadecimal digits, as dlock keygen writes it.",
					    path, number, 2 * TLS_KEY_BYTES);
			k->keys_n++;
		}
	}
	if (!k->keys_n)
		return fail(why, -EINVAL, "Key=%s is empty. dlock keygen FILE makes a key.", path);
	return 0;
}

static int shared_load(struct tls_keys *k, const char *path, char why[TLS_WHY_MAX])
{
	gnutls_datum_t file = { 0 }, key = { k->key[0].bytes, TLS_KEY_BYTES };
	int r = file_read("Key", path, true, &file, why);
	size_t n;

	if (r == 0)
		r = keys_parse(k, (const char *)file.data, path, why);
	file_done(&file);
	if (r < 0)
		return r;
	k->shared = true;
	if (gnutls_psk_allocate_client_credentials(&k->psk_client) < 0 ||
	    gnutls_psk_set_client_credentials(k->psk_client, k->key[0].id, &key, GNUTLS_PSK_KEY_RAW) < 0 ||
	    gnutls_psk_allocate_server_credentials(&k->psk_server) < 0 ||
	    gnutls_priority_init(&k->priority, PRIORITY_SHARED, NULL) < 0)
		return fail(why, -ENOMEM, "Key=%s: the TLS library refuses it or has no memory.", path);
	n = (size_t)snprintf(k->text, sizeof k->text, "pre-shared key %s", k->key[0].id);
	for (unsigned i = 1; i < k->keys_n; i++)
		n += (size_t)snprintf(k->text + n, sizeof k->text - n, "%s%s", i == 1 ? "; accepts also " : ", ", k->key[i].id);
	return 0;
}

/* --- The certificate --- */

static int cert_time_check(gnutls_x509_crt_t crt, const char *path, char why[TLS_WHY_MAX])
{
	time_t now = time(NULL), until = gnutls_x509_crt_get_expiration_time(crt);

	if (until < now)
		return fail(why, -EKEYEXPIRED, "Cert=%s has expired: all other nodes would refuse it. Renew it.", path);
	if (gnutls_x509_crt_get_activation_time(crt) > now)
		return fail(why, -EKEYEXPIRED, "Cert=%s is not valid yet. Is this machine's clock right?", path);
	return 0;
}

static int cert_trust_check(struct tls_keys *k, gnutls_x509_crt_t *chain, unsigned n, const struct tls_files *f,
			    char why[TLS_WHY_MAX])
{
	gnutls_x509_trust_list_t list;
	gnutls_datum_t text = { 0 };
	unsigned status = 0;
	int r;

	gnutls_certificate_get_trust_list(k->cert, &list);
	r = gnutls_x509_trust_list_verify_crt2(list, chain, n, NULL, 0, 0, &status, NULL);
	if (r == 0 && status == 0)
		return 0;
	gnutls_certificate_verification_status_print(status, GNUTLS_CRT_X509, &text, 0);
	fail(why, 0, "Cert=%s is none that CA=%s stands for, so all other nodes would refuse it: %s", f->cert, f->ca,
	     text.data ? (char *)text.data : gnutls_strerror(r));
	gnutls_free(text.data);
	return -EINVAL;
}

static void cert_text(struct tls_keys *k, gnutls_x509_crt_t crt)
{
	char name[160] = "?", until[32];
	size_t n = sizeof name;
	time_t t = gnutls_x509_crt_get_expiration_time(crt);
	struct tm tm;

	gnutls_x509_crt_get_dn(crt, name, &n);
	strftime(until, sizeof until, "%Y-%m-%d", gmtime_r(&t, &tm));
	snprintf(k->text, sizeof k->text, "certificate of %s, until %s", name, until);
}

static int cert_own_check(struct tls_keys *k, const gnutls_datum_t *pem, const struct tls_files *f, char why[TLS_WHY_MAX])
{
	gnutls_x509_crt_t chain[CHAIN_MAX];
	unsigned n = CHAIN_MAX;
	int r = gnutls_x509_crt_list_import(chain, &n, pem, GNUTLS_X509_FMT_PEM, GNUTLS_X509_CRT_LIST_IMPORT_FAIL_IF_EXCEED);

	if (r < 0 || !n)
		return fail(why, -EINVAL, "Cert=%s: %s", f->cert, gnutls_strerror(r));
	r = cert_time_check(chain[0], f->cert, why);
	if (r == 0)
		r = cert_trust_check(k, chain, n, f, why);
	if (r == 0)
		cert_text(k, chain[0]);
	for (unsigned i = 0; i < n; i++)
		gnutls_x509_crt_deinit(chain[i]);
	return r;
}

static int64_t earliest(const gnutls_datum_t *pem)
{
	gnutls_x509_crt_t *v = NULL;
	unsigned n = 0;
	int64_t first = 0;

	if (gnutls_x509_crt_list_import2(&v, &n, pem, GNUTLS_X509_FMT_PEM, 0) < 0)
		return 0;
	for (unsigned i = 0; i < n; i++) {
		int64_t until = gnutls_x509_crt_get_expiration_time(v[i]);

		first = !first || until < first ? until : first;
		gnutls_x509_crt_deinit(v[i]);
	}
	gnutls_free(v);
	return first;
}

static int cert_use(struct tls_keys *k, const gnutls_datum_t *cert, const gnutls_datum_t *key, const gnutls_datum_t *ca,
		    const gnutls_datum_t *crl, const struct tls_files *f, char why[TLS_WHY_MAX])
{
	int r = gnutls_certificate_allocate_credentials(&k->cert);

	if (r < 0)
		return fail(why, -ENOMEM, "no memory for certificates");
	r = gnutls_certificate_set_x509_trust_mem(k->cert, ca, GNUTLS_X509_FMT_PEM);
	if (r <= 0)
		return fail(why, -EINVAL, "CA=%s has no certificate in PEM format.", f->ca);
	if (crl->data && (r = gnutls_certificate_set_x509_crl_mem(k->cert, crl, GNUTLS_X509_FMT_PEM)) < 0)
		return fail(why, -EINVAL, "CRL=%s: %s", f->crl, gnutls_strerror(r));
	r = gnutls_certificate_set_x509_key_mem2(k->cert, cert, key, GNUTLS_X509_FMT_PEM, NULL, 0);
	if (r == GNUTLS_E_CERTIFICATE_KEY_MISMATCH)
		return fail(why, -EINVAL, "CertKey=%s does not belong to Cert=%s.", f->cert_key, f->cert);
	if (r < 0)
		return fail(why, -EINVAL, "Cert=%s, CertKey=%s: %s (expected: PEM, the key without a password)", f->cert,
			    f->cert_key, gnutls_strerror(r));
	if (gnutls_priority_init(&k->priority, PRIORITY_CERT, NULL) < 0)
		return fail(why, -ENOMEM, "no memory for TLS");
	k->until = earliest(cert);
	k->ca_until = earliest(ca);
	return cert_own_check(k, cert, f, why);
}

static int cert_load(struct tls_keys *k, const struct tls_files *f, char why[TLS_WHY_MAX])
{
	gnutls_datum_t cert = { 0 }, key = { 0 }, ca = { 0 }, crl = { 0 };
	int r = file_read("Cert", f->cert, false, &cert, why);

	if (r == 0)
		r = file_read("CertKey", f->cert_key, true, &key, why);
	if (r == 0)
		r = file_read("CA", f->ca, false, &ca, why);
	if (r == 0 && given(f->crl))
		r = file_read("CRL", f->crl, false, &crl, why);
	if (r == 0)
		r = cert_use(k, &cert, &key, &ca, &crl, f, why);
	file_done(&cert);
	file_done(&key);
	file_done(&ca);
	file_done(&crl);
	return r;
}

/* --- Both --- */

static void files_list(const struct tls_files *f, const char *ret_path[TLS_FILES], const char *ret_what[TLS_FILES])
{
	static const char *const what[TLS_FILES] = { "Key", "CertKey", "Cert", "CA", "CRL" };

	memcpy(ret_what, what, sizeof what);
	ret_path[0] = f->key;
	ret_path[1] = f->cert_key;       /* the first two are secrets */
	ret_path[2] = f->cert;
	ret_path[3] = f->ca;
	ret_path[4] = f->crl;
}

static int64_t changed_at(const struct stat *st)
{
	return st->st_mtim.tv_sec * INT64_C(1000000000) + st->st_mtim.tv_nsec;
}

static void files_note(const struct tls_files *f, struct tls_keys *k)
{
	const char *path[TLS_FILES], *what[TLS_FILES];
	struct stat st;

	files_list(f, path, what);
	for (unsigned i = 0; i < TLS_FILES; i++)
		if (given(path[i]) && stat(path[i], &st) == 0)
			k->changed[i] = changed_at(&st);
}

int tls_files_look(const struct tls_files *f, const struct tls_keys *k, char why[TLS_WHY_MAX])
{
	const char *path[TLS_FILES], *what[TLS_FILES];
	struct stat st;

	files_list(f, path, what);
	for (unsigned i = 0; k && i < TLS_FILES; i++) {
		if (!given(path[i]))
			continue;
		if (stat(path[i], &st) < 0)
			return fail(why, -errno, "%s=%s: %s; the daemon would not start anew", what[i], path[i], strerror(errno));
		if (i < 2 && st.st_mode & (S_IROTH | S_IWOTH))
			return fail(why, -EPERM, "%s=%s may be read or written by everybody on this machine", what[i], path[i]);
		if (k->changed[i] && k->changed[i] != changed_at(&st))
			return fail(why, -ESTALE, "%s=%s has changed since it was read", what[i], path[i]);
	}
	return 0;
}

void tls_keys_until(const struct tls_keys *k, int64_t *ret_cert, int64_t *ret_ca)
{
	*ret_cert = k ? k->until : 0;
	*ret_ca = k ? k->ca_until : 0;
}

static int files_check(const struct tls_files *f, char why[TLS_WHY_MAX])
{
	bool any = given(f->cert) || given(f->cert_key) || given(f->ca);

	if (given(f->key) && any)
		return fail(why, -EINVAL, "Key= and Cert=, CertKey=, CA= are two ways to do the same: give one of them.");
	if (any && !(given(f->cert) && given(f->cert_key) && given(f->ca)))
		return fail(why, -EINVAL, "Cert=, CertKey= and CA= belong together: %s is missing.",
			    !given(f->cert) ? "Cert=" : !given(f->cert_key) ? "CertKey=" : "CA=");
	if (given(f->crl) && !any)
		return fail(why, -EINVAL, "CRL= is of certificates: Cert=, CertKey= and CA= are missing.");
	return 0;
}

int tls_keys_load(const struct tls_files *f, struct tls_keys **ret, char why[TLS_WHY_MAX])
{
	struct tls_keys *k;
	int r = files_check(f, why);

	if (r < 0)
		return r;
	if (!given(f->key) && !given(f->cert)) {
		*ret = NULL;
		return 0;
	}
	k = calloc(1, sizeof *k);
	if (!k)
		return fail(why, -ENOMEM, "no memory for keys");
	files_note(f, k);                /* before: what changes meanwhile is noticed */
	r = given(f->key) ? shared_load(k, f->key, why) : cert_load(k, f, why);
	if (r < 0) {
		tls_keys_free(k);
		return r;
	}
	*ret = k;
	return 0;
}

void tls_keys_free(struct tls_keys *k)
{
	if (!k)
		return;
	if (k->psk_client)
		gnutls_psk_free_client_credentials(k->psk_client);
	if (k->psk_server)
		gnutls_psk_free_server_credentials(k->psk_server);
	if (k->cert)
		gnutls_certificate_free_credentials(k->cert);
	if (k->priority)
		gnutls_priority_deinit(k->priority);
	gnutls_memset(k, 0, sizeof *k);
	free(k);
}

const char *tls_keys_text(const struct tls_keys *k)
{
	return k->text;
}

int tls_listen_check(const char *listen, const struct tls_files *f, char why[TLS_WHY_MAX])
{
	union address a;

	if (!given(listen) || given(f->key) || given(f->cert))
		return 0;
	if (address_parse(listen, &a) == 0 && address_loopback(&a))
		return 0;
	return fail(why, -EPERM, "Listen=%s is reachable from other machines, and nothing says who may join: whoever connects could "
		    "take locks. Give Key= (dlock keygen makes one), or Cert=, CertKey= and CA=; or listen on 127.0.0.1.", listen);
}
