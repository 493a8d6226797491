/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * SipHash-1-3 (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012; one and three
 * rounds as in Rust's and Ruby's tables): names come from users, and must not collide at will.
 */
#ifndef DLOCK_CORE_SIPHASH_H
#define DLOCK_CORE_SIPHASH_H

#include "base.h"

uint64_t siphash13(const uint64_t seed[2], const void *data, size_t len);

#endif
