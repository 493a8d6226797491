/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The checker at the resource: it needs no daemon, and shares nothing with the rest of the library. */
#include <dlock.h>
#include <errno.h>
#include <stdlib.h>

#include "fence_file.h"
#include "text.h"

struct dlock_fence {
	struct fence_file file;
};

int dlock_fence_open(dlock_fence_t **ret, const char *path)
{
	int saved = errno, r;
	struct dlock_fence *f;

	if (!ret || !path)
		return EINVAL;
	f = malloc(sizeof *f);
	r = f ? fence_file_open(&f->file, path) : -ENOMEM;
	errno = saved;
	if (r < 0) {
		free(f);
		return -r;
	}
	*ret = f;
	return 0;
}

int dlock_fence_admit(dlock_fence_t *f, const char *name, uint64_t token)
{
	int saved = errno;
	struct text text;
	int r;

	if (!token || token >> 63)
		return EINVAL;
	r = text_parse(&text, name);
	if (r == 0)
		r = fence_file_admit(&f->file, text.s, text.len, token);
	errno = saved;
	return -r;
}

int dlock_fence_close(dlock_fence_t *f)
{
	int saved = errno;

	if (!f)
		return 0;
	fence_file_close(&f->file);
	free(f);
	errno = saved;
	return 0;
}
