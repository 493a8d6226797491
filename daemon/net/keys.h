/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What this node proves itself with to the others, and judges them by: one key that all of them share, or
 * a certificate of its own and the CA that all have theirs from. Read from files once; a reload reads anew.
 */
#ifndef DLOCK_NET_KEYS_H
#define DLOCK_NET_KEYS_H

#include <stdbool.h>
#include <stdint.h>

struct tls_keys;

#define TLS_KEY_BYTES 32         /* of the shared key: 64 hex digits in its file, one key a line */
#define TLS_KEYS_MAX 4           /* in the file: the first is used to dial, all are accepted, so that they can be changed one after the other */
#define TLS_WHY_MAX 512

/* Absolute paths; NULL or "": not given. */
struct tls_files {
	const char *key;                 /* [Cluster] Key= */
	const char *cert, *cert_key, *ca;/* Cert=, CertKey=, CA=: PEM */
	const char *crl;                 /* CRL=: PEM, optional with CA= */
};

/*
 * Checks and reads. Neither Key= nor Cert=: 0 and *ret NULL. -EINVAL: they contradict each other or a file
 * holds something else; -EPERM: everybody may read a secret; -EKEYEXPIRED: our own certificate; -ENOENT and others of open(2).
 * why is then a sentence that names key and file, and says what to do.
 */
int tls_keys_load(const struct tls_files *f, struct tls_keys **ret, char why[TLS_WHY_MAX]);
void tls_keys_free(struct tls_keys *k);          /* takes NULL */

/*
 * What a configuration must satisfy before anything is opened: listen is Listen=, one address or NULL. 0, or -EPERM with a
 * sentence: beyond loopback without keys.
 */
int tls_listen_check(const char *listen, const struct tls_files *f, char why[TLS_WHY_MAX]);

/*
 * How the files are now. 0; -EPERM: everybody may read a secret; -ESTALE: they are not what was read, a reload is due; or an error of
 * stat(2). why is then a sentence.
 */
int tls_files_look(const struct tls_files *f, const struct tls_keys *k, char why[TLS_WHY_MAX]);

/* Until when our certificate is good, and the first of CA=, in seconds since 1970; 0: there are none. */
void tls_keys_until(const struct tls_keys *k, int64_t *ret_cert, int64_t *ret_ca);

/* "pre-shared key 1a2b3c4d", "certificate of CN=…, until 2031-05-01": for status. */
const char *tls_keys_text(const struct tls_keys *k);

#endif
