/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The pure half: from a text to a struct config. No file, user or clock is asked; each line stands
 * for itself, so a wrong line costs one message and nothing else.
 */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum section { SECTION_NONE, SECTION_NODE, SECTION_CLUSTER, SECTION_SPACE, SECTION_SKIP };

struct parser {
	const char *file;
	unsigned line;
	const struct config_lookup *lookup;
	struct config *config;
	struct config_messages *messages;
	enum section section;
	size_t space;		/* which of the config's, in SECTION_SPACE */
};

struct key {
	const char *name;
	int (*set)(struct parser *p, const char *key, const char *value);
};

#define tell(p, level, ...) \
	config_message_add((p)->messages, level, (p)->file, (p)->line, __VA_ARGS__)
#define warn(p, ...) tell(p, CONFIG_WARNING, __VA_ARGS__)
#define fail(p, ...) (tell(p, CONFIG_ERROR, __VA_ARGS__), -EINVAL)

/* --- Messages, names, spaces --- */

void config_message_add(struct config_messages *m, enum config_level level, const char *file,
			unsigned line, const char *format, ...)
{
	char where[32] = "", *what = NULL, *text = NULL;
	struct config_message *list;
	va_list args;
	int r;

	va_start(args, format);
	r = vasprintf(&what, format, args);
	va_end(args);
	if (r < 0)
		what = NULL;
	if (line)
		snprintf(where, sizeof where, ":%u", line);
	if (what && asprintf(&text, "%s%s%s%s", file ?: "", where, file ? ": " : "", what) < 0)
		text = NULL;
	free(what);

	list = m->n < CONFIG_MESSAGES_MAX && text ?
		reallocarray(m->list, m->n + 1, sizeof *list) : NULL;
	if (!list) {
		free(text);
		m->hidden++;
		return;
	}
	m->list = list;
	m->list[m->n++] = (struct config_message){ .level = level, .text = text };
}

void config_messages_done(struct config_messages *m)
{
	for (size_t i = 0; i < m->n; i++)
		free(m->list[i].text);
	free(m->list);
	*m = (struct config_messages){ .n = 0 };
}

#define NAME_CHARACTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"

static bool name_valid(const char *name, const char *characters)
{
	size_t n = strspn(name, characters);

	return n >= 1 && n <= CONFIG_NAME_MAX && !name[n];
}

bool config_space_name_valid(const char *name)
{
	return name_valid(name, NAME_CHARACTERS);
}

bool config_node_name_valid(const char *name)
{
	return name[0] != '.' && name_valid(name, NAME_CHARACTERS ".");
}

void config_init(struct config *c)
{
	*c = (struct config){ .spaces_on_demand = true, .master = true, .placement = true, .ttl = 5 * MSEC_PER_SEC,
			      .burst = 1000, .burst_time = 2, .id_reserve = CONFIG_ID_RESERVE };
}

bool config_is_cluster(const struct config *c)
{
	return c->text[CONFIG_STORE] && strncmp(c->text[CONFIG_STORE], "file:", 5) != 0;
}

void config_done(struct config *c)
{
	free(c->run_dir);
	free(c->state_dir);
	free(c->spaces);
	for (int i = 0; i < CONFIG_TEXTS; i++)
		free(c->text[i]);
	config_init(c);
}

const struct config_space *config_space_find(const struct config *c, const char *name)
{
	for (size_t i = 0; i < c->n_spaces; i++)
		if (strcmp(c->spaces[i].name, name) == 0)
			return &c->spaces[i];
	return NULL;
}

int config_space_add(struct config *c, const char *name, struct config_space **ret)
{
	const struct config_space *there = config_space_find(c, name);
	struct config_space *spaces;

	if (there) {
		*ret = &c->spaces[there - c->spaces];
		return 0;
	}
	if (c->n_spaces == CONFIG_SPACES_MAX)
		return -ENOSPC;
	spaces = reallocarray(c->spaces, c->n_spaces + 1, sizeof *spaces);
	if (!spaces)
		return -ENOMEM;
	c->spaces = spaces;
	spaces[c->n_spaces] = (struct config_space){ .owner = 0 };
	snprintf(spaces[c->n_spaces].name, sizeof spaces->name, "%s", name);
	*ret = &spaces[c->n_spaces++];
	return 0;
}

/* --- Values --- */

int config_parse_span(const char *text, msec_t *ret)
{
	static const struct { const char *unit; msec_t msec; } units[] = {
		{ "", MSEC_PER_SEC }, { "ms", 1 }, { "s", MSEC_PER_SEC },
		{ "min", 60 * MSEC_PER_SEC }, { "h", 3600 * MSEC_PER_SEC },
	};
	size_t digits = strspn(text, "0123456789");
	const char *unit = text + digits + strspn(text + digits, " \t");
	msec_t number = 0;

	if (digits == 0)
		return -EINVAL;
	for (size_t i = 0; i < digits; i++)
		if (__builtin_mul_overflow(number, 10, &number) ||
		    __builtin_add_overflow(number, (msec_t)(text[i] - '0'), &number))
			return -ERANGE;
	for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
		if (strcmp(unit, units[i].unit) != 0)
			continue;
		if (__builtin_mul_overflow(number, units[i].msec, &number))
			return -ERANGE;
		*ret = number;
		return 0;
	}
	return -EINVAL;
}

static int parse_boolean(const char *text, bool *ret)
{
	static const char *const words[] = { "no", "yes", "false", "true", "0", "1", "off", "on" };

	for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
		if (strcasecmp(text, words[i]) == 0) {
			*ret = i % 2;
			return 0;
		}
	}
	return -EINVAL;
}

/* A user's or group's number as text. -1 stands for "none" in the kernel's calls, so it is none. */
static int parse_id(const char *text, uint32_t *ret)
{
	uint64_t id = 0;
	size_t digits = strspn(text, "0123456789");

	if (digits == 0 || text[digits])
		return -EINVAL;
	for (size_t i = 0; i < digits; i++) {
		id = id * 10 + (uint64_t)(text[i] - '0');
		if (id >= UINT32_MAX)
			return -ERANGE;
	}
	*ret = (uint32_t)id;
	return 0;
}

static int parse_mode(const char *text, mode_t *ret)
{
	size_t digits = strspn(text, "01234567");
	mode_t mode = 0;

	if (digits < 1 || digits > 5 || text[digits])
		return -EINVAL;
	for (size_t i = 0; i < digits; i++)
		mode = mode << 3 | (mode_t)(text[i] - '0');
	if (mode & ~(mode_t)0666)
		return -ERANGE;
	*ret = mode;
	return 0;
}

/* --- Keys --- */

static int set_name(struct parser *p, const char *value, char *name)
{
	if (*value && !config_node_name_valid(value))
		return fail(p, "\"%s\" is no name: 1 to 64 letters, digits, _ - and dots.", value);
	strcpy(name, value);
	return 0;
}

static int set_node_name(struct parser *p, const char *key, const char *value)
{
	(void)key;
	return set_name(p, value, p->config->node_name);
}

static int set_cluster_name(struct parser *p, const char *key, const char *value)
{
	(void)key;
	return set_name(p, value, p->config->cluster_name);
}

static int set_boolean(struct parser *p, const char *key, const char *value, bool normal, bool *ret)
{
	if (!*value)
		*ret = normal;
	else if (parse_boolean(value, ret) < 0)
		return fail(p, "%s=%s is neither yes nor no.", key, value);
	return 0;
}

static int set_spaces_on_demand(struct parser *p, const char *key, const char *value)
{
	return set_boolean(p, key, value, true, &p->config->spaces_on_demand);
}

static int set_text(struct parser *p, const char *value, enum config_text which)
{
	char *copy = *value ? strdup(value) : NULL;

	if (*value && !copy)
		return -ENOMEM;
	free(p->config->text[which]);
	p->config->text[which] = copy;
	return 0;
}

/* Keys whose values are looked at where they are used: config_check(). */
static const struct { const char *key; enum config_text which; } texts[] = {
	{ "Listen", CONFIG_LISTEN }, { "Address", CONFIG_ADDRESS }, { "Store", CONFIG_STORE },
	{ "StoreUser", CONFIG_STORE_USER },
};

static int set_kept(struct parser *p, const char *key, const char *value)
{
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		if (strcmp(texts[i].key, key) == 0)
			return set_text(p, value, texts[i].which);
	return -EINVAL;
}

static const struct { const char *key; enum config_text which; } files[] = {
	{ "Key", CONFIG_KEY }, { "Cert", CONFIG_CERT }, { "CertKey", CONFIG_CERT_KEY }, { "CA", CONFIG_CA },
	{ "CRL", CONFIG_CRL }, { "StorePasswordFile", CONFIG_STORE_PASSWORD }, { "StoreCA", CONFIG_STORE_CA },
	{ "StoreCert", CONFIG_STORE_CERT }, { "StoreCertKey", CONFIG_STORE_CERT_KEY },
};

static int set_file(struct parser *p, const char *key, const char *value)
{
	if (*value && *value != '/')
		return fail(p, "%s=%s is no absolute path.", key, value);
	for (size_t i = 0; i < sizeof files / sizeof *files; i++)
		if (strcmp(files[i].key, key) == 0)
			return set_text(p, value, files[i].which);
	return -EINVAL;
}

static int set_master(struct parser *p, const char *key, const char *value)
{
	return set_boolean(p, key, value, true, &p->config->master);
}

static int set_span(struct parser *p, const char *key, const char *value, msec_t min, msec_t max, msec_t normal,
		    msec_t *ret)
{
	msec_t span = normal;

	if (*value && config_parse_span(value, &span) < 0)
		return fail(p, "%s=%s is no span of time, such as 5s or 500ms.", key, value);
	if (span < min || span > max)
		return fail(p, "%s=%s is not within %llu ms and %llu s.", key, value, (unsigned long long)min,
			    (unsigned long long)(max / MSEC_PER_SEC));
	*ret = span;
	return 0;
}

static int set_ttl(struct parser *p, const char *key, const char *value)
{
	p->config->ttl_given = *value != 0;
	return set_span(p, key, value, CONFIG_TTL_MIN, CONFIG_TTL_MAX, 5 * MSEC_PER_SEC, &p->config->ttl);
}

static int set_id_reserve(struct parser *p, const char *key, const char *value)
{
	p->config->id_reserve_given = *value != 0;
	return set_span(p, key, value, 0, CONFIG_ID_RESERVE_MAX, CONFIG_ID_RESERVE, &p->config->id_reserve);
}

static int set_placement(struct parser *p, const char *key, const char *value)
{
	return set_boolean(p, key, value, true, &p->config->placement);
}

static int set_burst_time(struct parser *p, const char *key, const char *value)
{
	return set_span(p, key, value, 0, CONFIG_BURST_TIME_MAX, 2, &p->config->burst_time);
}

static int set_burst(struct parser *p, const char *key, const char *value)
{
	uint32_t n = 1000;

	if (*value && (parse_id(value, &n) < 0 || n > CONFIG_BURST_MAX))
		return fail(p, "%s=%s is no number of hand-overs, 0 to %u.", key, value, CONFIG_BURST_MAX);
	p->config->burst = n;
	return 0;
}

static struct config_space *parser_space(struct parser *p)
{
	return &p->config->spaces[p->space];
}

static int set_owner(struct parser *p, const char *key, const char *value)
{
	struct config_space *s = parser_space(p);
	uint32_t id;
	uid_t uid;

	s->has_owner = false;
	if (!*value)
		return 0;
	if (parse_id(value, &id) == 0)
		uid = id;
	else if (p->lookup->user(p->lookup->arg, value, &uid) < 0)
		return fail(p, "%s=%s: there is no such user.", key, value);
	s->owner = uid;
	s->has_owner = true;
	return 0;
}

static int set_group(struct parser *p, const char *key, const char *value)
{
	struct config_space *s = parser_space(p);
	uint32_t id;
	gid_t gid;

	s->has_group = false;
	if (!*value)
		return 0;
	if (parse_id(value, &id) == 0)
		gid = id;
	else if (p->lookup->group(p->lookup->arg, value, &gid) < 0)
		return fail(p, "%s=%s: there is no such group.", key, value);
	s->group = gid;
	s->has_group = true;
	return 0;
}

static int set_mode(struct parser *p, const char *key, const char *value)
{
	struct config_space *s = parser_space(p);
	mode_t mode;
	int r;

	s->has_mode = false;
	if (!*value)
		return 0;
	r = parse_mode(value, &mode);
	if (r == -ERANGE)
		return fail(p, "%s=%s has bits other than read and write (0666).", key, value);
	if (r < 0)
		return fail(p, "%s=%s is no octal mode, such as 0660.", key, value);
	if (((mode >> 1) ^ (mode >> 2)) & 0111)
		warn(p, "%s=%s: a space is always opened for reading and writing. Who has only one "
		     "of the two bits has no access.", key, value);
	s->mode = mode;
	s->has_mode = true;
	return 0;
}

static const struct key node_keys[] = {
	{ "Name", set_node_name },
	{ "Listen", set_kept },
	{ "Address", set_kept },
	{ "Master", set_master },
	{ "Burst", set_burst },
	{ "BurstTime", set_burst_time },
	{ "SpacesOnDemand", set_spaces_on_demand },
	{ NULL, NULL },
};

static const struct key cluster_keys[] = {
	{ "Name", set_cluster_name },
	{ "Store", set_kept },
	{ "TTL", set_ttl },
	{ "IdReserve", set_id_reserve },
	{ "Placement", set_placement },
	{ "Key", set_file },
	{ "Cert", set_file },
	{ "CertKey", set_file },
	{ "CA", set_file },
	{ "CRL", set_file },
	{ "StoreUser", set_kept },
	{ "StorePasswordFile", set_file },
	{ "StoreCA", set_file },
	{ "StoreCert", set_file },
	{ "StoreCertKey", set_file },
	{ NULL, NULL },
};

static const struct key space_keys[] = {
	{ "Owner", set_owner },
	{ "Group", set_group },
	{ "Mode", set_mode },
	{ NULL, NULL },
};

/* --- Lines --- */

static char *trim(char *s)
{
	size_t n;

	s += strspn(s, " \t\r");
	n = strlen(s);
	while (n && strchr(" \t\r", s[n - 1]))
		n--;
	s[n] = 0;
	return s;
}

static void cut_comment(char *line)
{
	for (char *s = line; *s; s++) {
		if ((*s == '#' || *s == ';') && (s == line || s[-1] == ' ' || s[-1] == '\t')) {
			*s = 0;
			return;
		}
	}
}

static int parse_space_section(struct parser *p, const char *name)
{
	struct config_space *s;
	int r;

	if (!config_space_name_valid(name))
		return fail(p, "\"%s\" is no name of a space: 1 to 64 letters, digits, _ and -.",
			    name);
	r = config_space_add(p->config, name, &s);
	if (r == -ENOSPC)
		return fail(p, "there are more than %d spaces.", CONFIG_SPACES_MAX);
	if (r < 0)
		return r;
	p->space = (size_t)(s - p->config->spaces);
	p->section = SECTION_SPACE;
	return 0;
}

static int parse_section(struct parser *p, char *line)
{
	size_t n = strlen(line);
	char *name;

	p->section = SECTION_SKIP;
	if (line[n - 1] != ']')
		return fail(p, "\"%s\" has no closing ].", line);
	line[n - 1] = 0;
	name = trim(line + 1);
	if (strcmp(name, "Node") == 0)
		p->section = SECTION_NODE;
	else if (strcmp(name, "Cluster") == 0)
		p->section = SECTION_CLUSTER;
	else if (strncmp(name, "Space", 5) == 0 && strchr(" \t", name[5]))
		return parse_space_section(p, trim(name + 5));
	else
		warn(p, "no section [%s] is known; passed over.", name);
	return 0;
}

static int parse_assignment(struct parser *p, char *line)
{
	char *equals = strchr(line, '='), *key, *value;
	const struct key *k = NULL;

	if (!equals)
		return fail(p, "\"%s\" is neither [SECTION] nor KEY=VALUE.", line);
	*equals = 0;
	key = trim(line);
	value = trim(equals + 1);
	switch (p->section) {
	case SECTION_NONE:
		warn(p, "%s= stands before any section; passed over.", key);
		return 0;
	case SECTION_SKIP:
		return 0;
	case SECTION_NODE:
		k = node_keys;
		break;
	case SECTION_CLUSTER:
		k = cluster_keys;
		break;
	case SECTION_SPACE:
		k = space_keys;
		break;
	}
	while (k->name && strcmp(k->name, key) != 0)
		k++;
	if (k->name)
		return k->set(p, key, value);
	warn(p, "no key %s= is known in this section; passed over.", key);
	return 0;
}

static int parse_line(struct parser *p, const char *text, size_t n)
{
	char line[CONFIG_LINE_MAX + 1], *s;

	if (n > CONFIG_LINE_MAX)
		return fail(p, "the line is longer than %d bytes.", CONFIG_LINE_MAX);
	for (size_t i = 0; i < n; i++)
		if (iscntrl((unsigned char)text[i]) && text[i] != '\t' && text[i] != '\r')
			return fail(p, "the line has a control character (0x%02x).", text[i]);
	memcpy(line, text, n);
	line[n] = 0;

	cut_comment(line);
	s = trim(line);
	if (!*s)
		return 0;
	return *s == '[' ? parse_section(p, s) : parse_assignment(p, s);
}

int config_parse_text(const char *file, const char *text, size_t n,
		      const struct config_lookup *lookup, struct config *c,
		      struct config_messages *m)
{
	struct parser p = { .file = file, .lookup = lookup, .config = c, .messages = m };
	int result = 0;

	while (n) {
		const char *newline = memchr(text, '\n', n);
		size_t length = newline ? (size_t)(newline - text) : n;
		int r;

		p.line++;
		r = parse_line(&p, text, length);
		if (r < 0 && result != -ENOMEM)
			result = r;
		if (newline)
			length++;
		text += length;
		n -= length;
	}
	return result;
}
