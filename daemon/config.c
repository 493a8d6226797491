/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The half that looks around: which files there are, who the users and groups are, what this host
 * is called, and what holds where no file says anything. Every value of the result is then set.
 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#define SYSTEM_FILE	"/etc/dlock/dlockd.conf"
#define SYSTEM_RUN	"/run/dlock"
#define SYSTEM_STATE	"/var/lib/dlock"
#define SYSTEM_GROUP	"dlock"
#define DEFAULT_SPACE	"default"
#define DEFAULT_MODE	0660
#define DROP_INS_MAX	1000
#define LOOKUP_SIZE	(64 * 1024)	/* a group may have many members */

struct loader {
	const struct config_lookup *lookup;
	struct config config;
	struct config_messages *messages;
};

#define fail(l, error, ...) \
	(config_message_add((l)->messages, CONFIG_ERROR, NULL, 0, __VA_ARGS__), (error))

/* --- Users and groups --- */

static int system_user(void *arg, const char *name, uid_t *ret)
{
	char buf[LOOKUP_SIZE];
	struct passwd entry, *found = NULL;

	(void)arg;
	if (getpwnam_r(name, &entry, buf, sizeof buf, &found) != 0 || !found)
		return -ENOENT;
	*ret = entry.pw_uid;
	return 0;
}

static int system_group(void *arg, const char *name, gid_t *ret)
{
	char buf[LOOKUP_SIZE];
	struct group entry, *found = NULL;

	(void)arg;
	if (getgrnam_r(name, &entry, buf, sizeof buf, &found) != 0 || !found)
		return -ENOENT;
	*ret = entry.gr_gid;
	return 0;
}

static const struct config_lookup system_lookup = { system_user, system_group, NULL };

/* --- Files --- */

static int read_open_file(int fd, char **ret, size_t *ret_size)
{
	char *text = malloc(CONFIG_FILE_MAX + 1);
	size_t size = 0;
	ssize_t n = 1;

	if (!text)
		return -ENOMEM;
	while (n > 0 && size <= CONFIG_FILE_MAX) {
		n = read(fd, text + size, CONFIG_FILE_MAX + 1 - size);
		if (n < 0) {
			int error = -errno;

			free(text);
			return error;
		}
		size += (size_t)n;
	}
	if (size > CONFIG_FILE_MAX) {
		free(text);
		return -EFBIG;
	}
	*ret = text;
	*ret_size = size;
	return 0;
}

/* Lays one file over the configuration. A missing one is an error only if it is needed. */
static int load_file(struct loader *l, const char *path, bool needed)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	char *text = NULL;
	size_t size = 0;
	int r;

	if (fd < 0 && errno == ENOENT && !needed)
		return 0;
	r = fd < 0 ? -errno : read_open_file(fd, &text, &size);
	if (fd >= 0)
		close(fd);
	if (r < 0)
		return fail(l, r, "%s: cannot read it: %s.", path, strerrordesc_np(-r));
	r = config_parse_text(path, text, size, l->lookup, &l->config, l->messages);
	free(text);
	if (r == -ENOMEM)
		return fail(l, r, "%s: no memory to read it.", path);
	return r;
}

static int is_drop_in(const struct dirent *entry)
{
	size_t n = strlen(entry->d_name);

	return entry->d_name[0] != '.' && n > 5 && strcmp(entry->d_name + n - 5, ".conf") == 0;
}

/* By bytes: the order must not depend on the locale. */
static int compare_names(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int load_drop_ins(struct loader *l, const char *file)
{
	struct dirent **entries;
	char dir[PATH_MAX], path[PATH_MAX + NAME_MAX + 2];
	int n, result = 0;

	if (snprintf(dir, sizeof dir, "%s.d", file) >= (int)sizeof dir)
		return fail(l, -ENAMETOOLONG, "%s: the path is too long.", file);
	n = scandir(dir, &entries, is_drop_in, compare_names);
	if (n < 0 && errno == ENOENT)
		return 0;
	if (n < 0) {
		int error = -errno;

		return fail(l, error, "%s: cannot read it: %s.", dir, strerrordesc_np(-error));
	}
	if (n > DROP_INS_MAX)
		result = fail(l, -E2BIG, "%s: there are more than %d files.", dir, DROP_INS_MAX);
	for (int i = 0; i < n; i++) {
		snprintf(path, sizeof path, "%s/%s", dir, entries[i]->d_name);
		if (i < DROP_INS_MAX) {
			int r = load_file(l, path, true);

			result = result < 0 ? result : r;
		}
		free(entries[i]);
	}
	free(entries);
	return result;
}

static int load_files(struct loader *l, const char *path, const char *dir)
{
	char own[PATH_MAX];
	bool needed = path != NULL;
	int r, drop_ins;

	if (!path && dir) {
		if (snprintf(own, sizeof own, "%s/dlockd.conf", dir) >= (int)sizeof own)
			return fail(l, -ENAMETOOLONG, "%s: the path is too long.", dir);
		path = own;
	}
	if (!path)
		path = SYSTEM_FILE;
	r = load_file(l, path, needed);
	drop_ins = load_drop_ins(l, path);
	return r < 0 ? r : drop_ins;
}

/* --- What no file says --- */

/* path, made absolute (the daemon may change its directory), with tail behind it. */
static int make_path(struct loader *l, const char *path, const char *tail, char **ret)
{
	char cwd[PATH_MAX], *made;
	int r;

	if (path[0] == '/') {
		r = asprintf(&made, "%s%s", path, tail);
	} else {
		if (!getcwd(cwd, sizeof cwd))
			return fail(l, -errno, "%s: cannot tell the current directory.", path);
		r = asprintf(&made, "%s/%s%s", cwd, path, tail);
	}
	if (r < 0)
		return fail(l, -ENOMEM, "%s: no memory.", path);
	*ret = made;
	return 0;
}

/* The first path of a list that systemd has put into the environment, or normal. */
static int make_system_path(struct loader *l, const char *variable, const char *normal, char **ret)
{
	const char *list = secure_getenv(variable);
	size_t n = list ? strcspn(list, ":") : 0;
	char first[PATH_MAX];

	if (!n || list[0] != '/' || n >= sizeof first)
		return make_path(l, normal, "", ret);
	memcpy(first, list, n);
	first[n] = 0;
	return make_path(l, first, "", ret);
}

static int set_paths(struct loader *l, const char *dir)
{
	struct sockaddr_un address;
	struct config *c = &l->config;
	int r;

	if (dir) {
		r = make_path(l, dir, "/run", &c->run_dir);
		r = r < 0 ? r : make_path(l, dir, "/state", &c->state_dir);
	} else {
		r = make_system_path(l, "RUNTIME_DIRECTORY", SYSTEM_RUN, &c->run_dir);
		r = r < 0 ? r : make_system_path(l, "STATE_DIRECTORY", SYSTEM_STATE, &c->state_dir);
	}
	if (r < 0)
		return r;
	if (strlen(c->run_dir) + strlen("/dlockd.sock") >= sizeof address.sun_path)
		return fail(l, -ENAMETOOLONG,
			    "%s: a socket there would have a path of more than %zu bytes. Choose a "
			    "shorter one.", c->run_dir, sizeof address.sun_path - 1);
	return 0;
}

static void set_node_name(struct loader *l)
{
	struct config *c = &l->config;
	char host[HOST_NAME_MAX + 1] = "";

	if (c->node_name[0])
		return;
	if (gethostname(host, sizeof host - 1) < 0 || !config_node_name_valid(host)) {
		config_message_add(l->messages, CONFIG_WARNING, NULL, 0,
				   "The host's name \"%s\" cannot be this node's; it is called "
				   "localhost. Set [Node] Name=.", host);
		strcpy(host, "localhost");
	}
	snprintf(c->node_name, sizeof c->node_name, "%s", host);
}

/* A system's default space belongs to a group of its own, and to root alone until there is one. */
static void set_system_default(struct loader *l, struct config_space *s)
{
	if (s->has_group || l->lookup->group(l->lookup->arg, SYSTEM_GROUP, &s->group) == 0)
		return;
	s->group = 0;
	s->mode &= ~(mode_t)0060;
	config_message_add(l->messages, CONFIG_WARNING, NULL, 0,
			   "There is no group " SYSTEM_GROUP ": the space " DEFAULT_SPACE " is for "
			   "its owner only (mode %04o). Make the group, or set [Space "
			   DEFAULT_SPACE "] Group=.", s->mode);
}

static int set_spaces(struct loader *l, bool private)
{
	struct config *c = &l->config;
	struct config_space *s;
	int r = config_space_add(c, DEFAULT_SPACE, &s);

	if (r < 0)
		return fail(l, r, "no room for the space " DEFAULT_SPACE ".");
	for (size_t i = 0; i < c->n_spaces; i++) {
		s = &c->spaces[i];
		if (!s->has_owner)
			s->owner = private ? geteuid() : 0;
		if (!s->has_group)
			s->group = private ? getegid() : 0;
		if (!s->has_mode)
			s->mode = DEFAULT_MODE;
		if (!private && strcmp(s->name, DEFAULT_SPACE) == 0)
			set_system_default(l, s);
	}
	return 0;
}

int config_load_with(const char *path, const char *dir, const struct config_lookup *lookup,
		     struct config *ret, struct config_messages *m)
{
	struct loader l = { .lookup = lookup, .messages = m };
	int r;

	config_init(&l.config);
	r = load_files(&l, path, dir);
	if (r == 0)
		r = set_paths(&l, dir);
	if (r == 0)
		r = set_spaces(&l, dir != NULL);
	if (r < 0) {
		config_done(&l.config);
		return r;
	}
	set_node_name(&l);
	*ret = l.config;
	return 0;
}

int config_load(const char *path, const char *dir, struct config *ret, struct config_messages *m)
{
	return config_load_with(path, dir, &system_lookup, ret, m);
}
