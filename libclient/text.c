/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "text.h"

#include <errno.h>
#include <string.h>

#include "proto/name.h"

int text_parse(struct text *ret, const char *user)
{
	static const char fallback[] = "default";
	const char *slash, *space, *name;
	size_t space_len, name_len;

	if (!user)
		return -EINVAL;
	slash = strchr(user, '/');
	space = slash ? user : fallback;
	space_len = slash ? (size_t)(slash - user) : sizeof fallback - 1;
	name = slash ? slash + 1 : user;
	name_len = strlen(name);
	if (space_len > ATTACH_SPACE_MAX || name_len > ATTACH_NAME_MAX)
		return -ENAMETOOLONG;
	if (!space_name_valid(space, space_len) || !object_name_valid(name, name_len))
		return -EINVAL;
	memcpy(ret->s, space, space_len);
	ret->s[space_len] = '/';
	memcpy(ret->s + space_len + 1, name, name_len + 1);
	ret->space_len = space_len;
	ret->len = space_len + 1 + name_len;
	return 0;
}
