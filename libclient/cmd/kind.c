/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <string.h>

#include "cmd.h"
#include "proto/kind.h"

const char *kind_find(const char *text)
{
	const char *found = NULL;
	size_t len = strlen(text);

	for (enum kind k = 0; k < KINDS; k++) {
		const char *name = kind_text(k);

		if (strcmp(name, text) == 0)
			return name;
		if (len == 0 || strncmp(name, text, len) != 0)
			continue;
		if (found)
			return NULL;
		found = name;
	}
	return found;
}
