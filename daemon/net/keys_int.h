/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What keys.c reads and tls.c uses. */
#ifndef DLOCK_NET_KEYS_INT_H
#define DLOCK_NET_KEYS_INT_H

#include <gnutls/gnutls.h>
#include <stdbool.h>
#include <stdint.h>

#include "keys.h"

#define KEY_ID_HEX 8             /* digits of its hash: says which key it is, and nothing about it */

#define TLS_FILES 5

struct shared_key {
	uint8_t bytes[TLS_KEY_BYTES];
	char id[KEY_ID_HEX + 1];
};

struct tls_keys {
	bool shared;                     /* a key, else a certificate */
	struct shared_key key[TLS_KEYS_MAX];
	unsigned keys_n;
	gnutls_psk_client_credentials_t psk_client;
	gnutls_psk_server_credentials_t psk_server;
	gnutls_certificate_credentials_t cert;
	gnutls_priority_t priority;
	char text[256];
	int64_t until, ca_until;         /* seconds since 1970; 0: no certificates */
	int64_t changed[TLS_FILES];      /* of the files, in nanoseconds since 1970, when they were read */
};

#endif
