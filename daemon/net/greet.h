/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The greeting: the first bytes each way, whatever the version, little-endian:
 *
 *   8 magic "dlock\0\r\n"   u16 length, of all   u8 kind   u8 0   u8 version_min   u8 version_max   u16 0
 *
 * and then, in this version; fields may be added at the end, and are passed over:
 *
 *   HELLO    dialler -> acceptor   u64 session  u32 incarnation  u32 0  u64 to, a session
 *                                  u64 last, the highest connection number that it knows between the two
 *                                  u8 + cluster name  u8 + node name
 *   WELCOME  acceptor -> dialler   the same; last is the number of this connection; version_min = version_max = the one spoken
 *   READY    dialler -> acceptor   u64 number of this connection
 *   REFUSED  either                u8 reason  u8 + text, a sentence of printable ASCII
 *
 * The head and REFUSED never change, so that any two versions can tell each other that they do not fit.
 *
 * Connection numbers (DESIGN S5) are (incarnation + incarnation) << 30 + counter. The sum rises when either
 * daemon is started anew, and within it each acceptor counts on from all that it knows; the one with the
 * lower session takes even numbers. So no two are equal, and if both dial at once both see the higher one win.
 */
#ifndef DLOCK_NET_GREET_H
#define DLOCK_NET_GREET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GREET_HEAD 16
#define GREET_MAX 512
#define GREET_NAME_MAX 64
#define GREET_TEXT_MAX 255
#define GREET_COUNTER_BITS 30

enum greet_kind { GREET_HELLO = 1, GREET_WELCOME = 2, GREET_READY = 3, GREET_REFUSED = 4 };

/*
 * Why somebody is refused, and whether that is worth a line: what passes by itself while sessions come and go is not.
 */
#define GREET_REASONS(X)                                                                           \
	X(NONE, 0)                                                                                 \
	X(VERSION, 1)                                                                              \
	X(CLUSTER, 1)                                                                              \
	X(SESSION, 0)            /* the one it wants is not ours */                                \
	X(NOT_YET, 0)            /* we have no session now */                                      \
	X(DUPLICATE, 0)          /* both dialled: the other connection is taken */                 \
	X(SUPERSEDED, 1)         /* a later daemon of its session has been here */                 \
	X(NEEDS_TLS, 1)          /* it spoke plain text */                                         \
	X(NO_TLS, 1)             /* it spoke TLS */                                                \
	X(CERT_NAME, 1)          /* its certificate is for another node */                         \
	X(BUSY, 1)               /* a limit */                                                     \
	X(SELF, 1)               /* it dialled itself */

enum greet_reason {
#define X(name, loud) GREET_##name,
	GREET_REASONS(X)
#undef X
	GREET_REASONS_N
};

struct greeting {
	enum greet_kind kind;
	uint8_t version_min, version_max;
	uint64_t session, to;
	uint32_t incarnation;
	uint64_t conn;                   /* HELLO: the last one; WELCOME, READY: this one */
	char cluster[GREET_NAME_MAX + 1], node[GREET_NAME_MAX + 1];
	uint8_t reason;                  /* perhaps one that this version does not know */
	char text[GREET_TEXT_MAX + 1];
};

/* The length. */
size_t greet_encode(const struct greeting *g, uint8_t ret[GREET_MAX]);

/* How long the greeting is that begins so; 0: too few bytes to say; -EBADMSG: it is none. */
int greet_length(const void *bytes, size_t n);

/*
 * -EBADMSG. A HELLO or WELCOME of versions that we share none with has only its head: *ret is filled so far, and
 * -EPROTONOSUPPORT returned.
 */
int greet_decode(const void *bytes, size_t n, uint8_t our_min, uint8_t our_max, struct greeting *ret);

/* The highest version of both; 0: there is none. */
uint8_t greet_version(uint8_t a_min, uint8_t a_max, uint8_t b_min, uint8_t b_max);

bool greet_loud(uint8_t reason);

/* The first number above `above` that may be issued by the session `self`; 0: there are no more. */
uint64_t greet_number(uint64_t self, uint64_t other, uint32_t self_incarnation, uint32_t other_incarnation, uint64_t above);

/* Whether the number can be one of these two incarnations or earlier ones. */
bool greet_number_possible(uint32_t a, uint32_t b, uint64_t number);

#endif
