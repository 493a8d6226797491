/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Any text as a configuration file, over what a first file has said. The judge: whatever was read,
 * every value is valid, every limit is kept, and it failed exactly if a message says error.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"

#define MUST(x) do { if (!(x)) abort(); } while (0)

static int find_user(void *arg, const char *name, uid_t *ret)
{
	(void)arg;
	*ret = 1000;
	return name[0] < 'm' ? 0 : -ENOENT;
}

static int find_group(void *arg, const char *name, gid_t *ret)
{
	(void)arg;
	*ret = 1000;
	return name[0] < 'm' ? 0 : -ENOENT;
}

static void judge_config(const struct config *c)
{
	MUST(!c->node_name[0] || config_node_name_valid(c->node_name));
	MUST(!c->cluster_name[0] || config_node_name_valid(c->cluster_name));
	MUST(c->n_spaces <= CONFIG_SPACES_MAX);
	for (size_t i = 0; i < c->n_spaces; i++) {
		MUST(config_space_name_valid(c->spaces[i].name));
		MUST(config_space_find(c, c->spaces[i].name) == &c->spaces[i]);
		MUST((c->spaces[i].mode & ~(mode_t)0666) == 0);
		MUST(c->spaces[i].owner != (uid_t)-1 && c->spaces[i].group != (gid_t)-1);
	}
}

static void judge_messages(const struct config_messages *m, int r)
{
	bool errors = false;

	MUST(m->n <= CONFIG_MESSAGES_MAX);
	for (size_t i = 0; i < m->n; i++) {
		MUST(strncmp(m->list[i].text, "any:", 4) == 0);
		errors |= m->list[i].level == CONFIG_ERROR;
	}
	MUST(r == 0 || r == -EINVAL);
	MUST(errors == (r < 0) || m->hidden);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char first[] = "[Node]\nName=first\n[Space default]\nMode=0600\n";
	static const struct config_lookup lookup = { find_user, find_group, NULL };
	struct config_messages m = { .n = 0 };
	struct config c;
	int r;

	config_init(&c);
	MUST(config_parse_text("first", first, sizeof first - 1, &lookup, &c, &m) == 0);
	r = config_parse_text("any", (const char *)data, size, &lookup, &c, &m);
	judge_config(&c);
	judge_messages(&m, r);
	config_done(&c);
	config_messages_done(&m);
	return 0;
}
