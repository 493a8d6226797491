/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Certificates and keys of the test's own making, as files in the current directory. */
#ifndef DLOCK_TLS_CERTS_H
#define DLOCK_TLS_CERTS_H

#include <time.h>

struct cert_wish {
	const char *file;                /* FILE.crt, FILE.key */
	const char *ca;                  /* its issuer's file; NULL: it signs itself, and may issue */
	const char *dns;                 /* NULL: no names */
	time_t from, until;              /* seconds from now; 0 and 0: a day before to a day after */
	unsigned serial;
};

void cert_make(const struct cert_wish *w);
void crl_make(const char *file, const char *ca, unsigned revoked_serial);
void key_make(const char *file, char digit, int mode);

#endif
