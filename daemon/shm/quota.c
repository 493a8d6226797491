/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "quota.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct quota {
	struct quota *next;
	uid_t uid;
	uint32_t n[QUOTA_KINDS];
};

static const uint32_t max[QUOTA_KINDS] = {
#define X(name, max) max,
	QUOTAS(X)
#undef X
};

static bool is_free(uid_t uid)
{
	return uid == 0 || uid == geteuid();
}

/* Where the user's is, or would be. */
static struct quota **quota_at(const struct quotas *q, uid_t uid)
{
	struct quota *const *at = &q->bucket[uid % 64];

	while (*at && (*at)->uid != uid)
		at = &(*at)->next;
	return (struct quota **)at;
}

static struct quota *quota_get(struct quotas *q, uid_t uid)
{
	struct quota **at = quota_at(q, uid);

	if (!*at) {
		*at = calloc(1, sizeof **at);
		if (*at)
			(*at)->uid = uid;
	}
	return *at;
}

int quota_take(struct quotas *q, uid_t uid, enum quota_kind kind)
{
	struct quota *u;

	if (is_free(uid))
		return 0;
	u = quota_get(q, uid);
	if (!u)
		return -ENOMEM;
	if (u->n[kind] >= max[kind])
		return -EDQUOT;
	u->n[kind]++;
	return 0;
}

bool quota_room(uint32_t has, uid_t uid, enum quota_kind kind)
{
	return is_free(uid) || has < max[kind];
}

void quota_note(struct quotas *q, uid_t uid, enum quota_kind kind)
{
	struct quota *u = is_free(uid) ? NULL : quota_get(q, uid);

	if (u)
		u->n[kind]++;
}

/* One that could not be noted for want of memory is given back all the same. */
void quota_give(struct quotas *q, uid_t uid, enum quota_kind kind)
{
	static const uint32_t none[QUOTA_KINDS];
	struct quota **at = quota_at(q, uid), *u = *at;

	if (!u || !u->n[kind])
		return;
	u->n[kind]--;
	if (memcmp(u->n, none, sizeof none))
		return;
	*at = u->next;
	free(u);
}

uint32_t quota_of(const struct quotas *q, uid_t uid, enum quota_kind kind)
{
	const struct quota *u = *quota_at(q, uid);

	return u ? u->n[kind] : 0;
}

void quotas_done(struct quotas *q)
{
	struct quota *u;

	for (unsigned i = 0; i < 64; i++)
		while ((u = q->bucket[i])) {
			q->bucket[i] = u->next;
			free(u);
		}
}
