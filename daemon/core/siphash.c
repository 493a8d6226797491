/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "siphash.h"

#include "bytes.h"

#define ROTL(x, n) ((x) << (n) | (x) >> (64 - (n)))

static inline void sip_round(uint64_t v[4])
{
	v[0] += v[1]; v[1] = ROTL(v[1], 13); v[1] ^= v[0]; v[0] = ROTL(v[0], 32);
	v[2] += v[3]; v[3] = ROTL(v[3], 16); v[3] ^= v[2];
	v[0] += v[3]; v[3] = ROTL(v[3], 21); v[3] ^= v[0];
	v[2] += v[1]; v[1] = ROTL(v[1], 17); v[1] ^= v[2]; v[2] = ROTL(v[2], 32);
}

static inline void sip_word(uint64_t v[4], uint64_t word)
{
	v[3] ^= word;
	sip_round(v);
	v[0] ^= word;
}

uint64_t siphash13(const uint64_t seed[2], const void *data, size_t len)
{
	const uint8_t *p = data;
	uint64_t v[4] = {
		seed[0] ^ 0x736f6d6570736575, seed[1] ^ 0x646f72616e646f6d,
		seed[0] ^ 0x6c7967656e657261, seed[1] ^ 0x7465646279746573,
	};
	size_t left = len;

	for (; left >= 8; p += 8, left -= 8)
		sip_word(v, le_load(p, 8));
	sip_word(v, le_load(p, (unsigned)left) | (uint64_t)len << 56);

	v[2] ^= 0xff;
	for (int i = 0; i < 3; i++)
		sip_round(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}
