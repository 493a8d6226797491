/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Whatever is taken for a frame or an envelope is one: said again it has the same bytes. */
#include <stdlib.h>
#include <string.h>

#include "core/envelope.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t again[CORE_FRAME_MAX];
	struct frame f;
	int length = frame_length(data, size);

	if (length > CORE_FRAME_MAX || (length > 0 && length < FRAME_HEAD))
		abort();
	struct envelope e;
	if (envelope_decode(data, size, &e) == 0 &&
	    (!envelope_is(data, size) || length != (int)size || envelope_encode(&e, again) != size || memcmp(data, again, size)))
		abort();
	if (frame_decode(data, size, &f) < 0)
		return 0;
	if (length != (int)size || frame_encode(&f, again) != size || memcmp(data, again, size))
		abort();
	return 0;
}
