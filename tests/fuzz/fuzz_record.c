/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Whatever is taken for a member record, a beat or a record of whom a node does not reach is one: said again it has the same bytes, and no text reaches beyond it. */
#include <stdlib.h>
#include <string.h>

#include "core/beat.h"
#include "core/cut.h"
#include "core/session.h"

static void check(bool right)
{
	if (!right)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t again[MEMBER_BYTES_MAX], beat[BEAT_BYTES];
	struct member_record r;
	struct beat_value v;
	struct cut_record cut;
	uint8_t cut_again[CUT_BYTES(CUT_MAX)];

	if (member_record_decode(data, size, &r) == 0) {
		check(size <= MEMBER_BYTES_MAX && r.session);
		check(r.text.name + r.text.name_len == (const char *)data + size);
		check(member_record_encode(&r, again) == size && !memcmp(again, data, size));
	}
	if (beat_decode(data, size, &v) == 0) {
		beat_encode(&v, beat);
		check(size == BEAT_BYTES && v.id.session && beat[0] == data[0] && beat[1] == data[1]);
		check(!memcmp(beat + 4, data + 4, BEAT_BYTES - 4));
	}
	if (cut_decode(data, size, &cut) == 0)
		check(cut_encode(&cut, cut_again) == size && !memcmp(cut_again, data, size));
	return 0;
}
