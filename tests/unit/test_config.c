/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Texts and what becomes of them; then files and directories, and what holds without any.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config.h"

/* Users and groups of the tests: alice is 1001, staff 2001; dlock is there when arg says so. */
static int find_user(void *arg, const char *name, uid_t *ret)
{
	(void)arg;
	if (strcmp(name, "alice") != 0)
		return -ENOENT;
	*ret = 1001;
	return 0;
}

static int find_group(void *arg, const char *name, gid_t *ret)
{
	if (strcmp(name, "staff") == 0)
		*ret = 2001;
	else if (arg && strcmp(name, "dlock") == 0)
		*ret = 2002;
	else
		return -ENOENT;
	return 0;
}

static const struct config_lookup lookup = { find_user, find_group, NULL };
static const struct config_lookup lookup_dlock = { find_user, find_group, (void *)"dlock" };

struct parsed {
	struct config config;
	struct config_messages messages;
	int r;
};

static struct parsed parse(const char *text)
{
	struct parsed p = { .r = 0 };

	config_init(&p.config);
	p.r = config_parse_text("f.conf", text, strlen(text), &lookup, &p.config, &p.messages);
	return p;
}

static void parsed_done(struct parsed *p)
{
	config_done(&p->config);
	config_messages_done(&p->messages);
}

static void expect_message(const struct config_messages *m, size_t i, enum config_level level,
			   const char *part)
{
	assert_true(i < m->n);
	if (!strstr(m->list[i].text, part))
		fail_msg("\"%s\" does not say \"%s\"", m->list[i].text, part);
	assert_int_equal(m->list[i].level, level);
}

/* The text parses, without a word. */
static struct parsed must_parse(const char *text)
{
	struct parsed p = parse(text);

	if (p.messages.n)
		fail_msg("%s", p.messages.list[0].text);
	assert_int_equal(p.r, 0);
	return p;
}

static void must_fail(const char *text, const char *part)
{
	struct parsed p = parse(text);

	assert_int_equal(p.r, -EINVAL);
	assert_int_equal(p.messages.n, 1);
	expect_message(&p.messages, 0, CONFIG_ERROR, part);
	parsed_done(&p);
}

static void must_warn(const char *text, const char *part)
{
	struct parsed p = parse(text);

	assert_int_equal(p.r, 0);
	assert_int_equal(p.messages.n, 1);
	expect_message(&p.messages, 0, CONFIG_WARNING, part);
	parsed_done(&p);
}

/* --- Texts --- */

static void test_all_keys(void **state)
{
	struct parsed p = must_parse("[Node]\nName=alpha.example\nSpacesOnDemand=no\nMaster=yes\n"
				     "[Cluster]\nName=prod\nStore=file:\n"
				     "[Space default]\nOwner=alice\nGroup=staff\nMode=0666\n"
				     "[Space other_1-x]\nOwner=7\nGroup=8\nMode=600\n");
	const struct config_space *s;

	(void)state;
	assert_string_equal(p.config.node_name, "alpha.example");
	assert_string_equal(p.config.cluster_name, "prod");
	assert_false(p.config.spaces_on_demand);
	assert_int_equal(p.config.n_spaces, 2);
	s = config_space_find(&p.config, "default");
	assert_non_null(s);
	assert_int_equal(s->owner, 1001);
	assert_int_equal(s->group, 2001);
	assert_int_equal(s->mode, 0666);
	s = config_space_find(&p.config, "other_1-x");
	assert_non_null(s);
	assert_int_equal(s->owner, 7);
	assert_int_equal(s->group, 8);
	assert_int_equal(s->mode, 0600);
	assert_null(config_space_find(&p.config, "other"));
	parsed_done(&p);
}

static void test_comments(void **state)
{
	struct parsed p = must_parse("# first\n  ; second\n\n[Node]  ; a section\r\n"
				     "\tName = a-node\t# the name\r\n"
				     "Listen=          ; address:port; default none\n"
				     "[Cluster]\nName=prod\n"
				     "TTL=\nKey=\nStore=\n");

	(void)state;
	parsed_done(&p);
	p = must_parse("[Node]\nName = a-node # the name\n  ; and no newline at the end: Name=b");
	assert_string_equal(p.config.node_name, "a-node");
	parsed_done(&p);
	must_fail("[Cluster]\nName=x#y;z # no comment begins inside a word\n", "\"x#y;z\"");
}

/* Each line is right by itself, and the whole is not. */
static void must_not_check(const char *text, const char *part)
{
	struct parsed p = must_parse(text);
	bool said = false;

	assert_true(config_check(&p.config, &p.messages) < 0);
	for (size_t i = 0; i < p.messages.n; i++)
		said |= strstr(p.messages.list[i].text, part) != NULL;
	if (!said)
		fail_msg("%s: nothing said \"%s\"", text, part);
	parsed_done(&p);
}

static void test_booleans(void **state)
{
	static const char *const words[] = { "no", "yes", "false", "true", "0", "1", "off", "On" };

	(void)state;
	for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
		char text[64];
		struct parsed p;

		snprintf(text, sizeof text, "[Node]\nSpacesOnDemand=%s\n", words[i]);
		p = must_parse(text);
		assert_int_equal(p.config.spaces_on_demand, i % 2);
		parsed_done(&p);
	}
	must_fail("[Node]\nSpacesOnDemand=maybe\n", "f.conf:2: SpacesOnDemand=maybe");
}

static void test_later_wins(void **state)
{
	struct parsed p = must_parse("[Node]\nName=a\nSpacesOnDemand=no\n[Space s]\nMode=0600\n"
				     "[Node]\nName=b\nSpacesOnDemand=\n[Space s]\nOwner=5\n");

	(void)state;
	assert_string_equal(p.config.node_name, "b");
	assert_true(p.config.spaces_on_demand);
	assert_int_equal(p.config.n_spaces, 1);
	assert_int_equal(p.config.spaces[0].mode, 0600);
	assert_true(p.config.spaces[0].has_owner && p.config.spaces[0].has_mode);
	assert_false(p.config.spaces[0].has_group);
	parsed_done(&p);

	p = must_parse("[Space s]\nMode=0600\nOwner=5\nGroup=6\nMode=\nOwner=\nGroup=\n");
	assert_false(p.config.spaces[0].has_owner || p.config.spaces[0].has_mode);
	assert_false(p.config.spaces[0].has_group);
	parsed_done(&p);
}

static void test_needs_cluster(void **state)
{
	static const char *const lines[] = {
		"[Node]\nListen=127.0.0.1", "[Node]\nMaster=no", "[Cluster]\nTTL=5s", "[Cluster]\nIdReserve=1h", "[Node]\nAddress=a",
		"[Cluster]\nKey=/k", "[Cluster]\nCert=/c", "[Cluster]\nCertKey=/c", "[Cluster]\nCA=/c",
		"[Cluster]\nStoreUser=u", "[Cluster]\nStoreCA=/c",
	};

	(void)state;
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
		must_not_check(lines[i], "needs a cluster");
	must_not_check("[Cluster]\nTTL=5s\nIdReserve=", "[Cluster] TTL= needs a cluster");
	must_not_check("[Cluster]\nIdReserve=1h\nTTL=5s\nTTL=", "[Cluster] IdReserve= needs a cluster");
	struct parsed p = must_parse("[Cluster]\nTTL=5s\nTTL=\n");
	assert_int_equal(config_check(&p.config, &p.messages), 0);
	parsed_done(&p);
	must_not_check("[Cluster]\nStore=file:/x", "Write just file:");
	must_not_check("[Cluster]\nStore=floppy:", "No such store is known");
	must_not_check("[Cluster]\nStore=redis://h", "lose what it has acknowledged");
	must_fail("[Cluster]\nTTL=soon", "no span of time");
	must_fail("[Cluster]\nTTL=10ms", "not within");
	must_fail("[Cluster]\nIdReserve=8d", "no span of time");
	must_fail("[Cluster]\nIdReserve=200h", "not within");
	must_fail("[Cluster]\nKey=k", "no absolute path");
	must_fail("[Node]\nBurst=many", "no number");
	must_fail("[Node]\nBurstTime=2h", "not within");
}

static void test_addresses(void **state)
{
	static const char *const wrong[] = { "Listen=host", "Listen=127.0.0.1:x", "Address=*", "Address=h:99999", "Address=h:0", "Address=a b" };
	char text[120];

	(void)state;
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		snprintf(text, sizeof text, "[Node]\nListen=127.0.0.1\n%s\n[Cluster]\nStore=etcd://h\n", wrong[i]);
		must_not_check(text, "is no address");
	}
	snprintf(text, sizeof text, "[Node]\nListen=127.0.0.1:0\nAddress=[::1]:5\n[Cluster]\nStore=etcd://h\n");
	struct parsed p = must_parse(text);
	assert_int_equal(config_check(&p.config, &p.messages), 0);
	parsed_done(&p);
}

static void test_cluster(void **state)
{
	struct parsed p = must_parse("[Node]\nListen=10.0.0.1\nAddress=a.example:7421\nMaster=no\nBurst=0\nBurstTime=3ms\n"
				     "[Cluster]\nTTL=2s\nStore=etcd://h/p\nCA=/ca\nStoreUser=u\n");

	(void)state;
	assert_true(config_is_cluster(&p.config));
	assert_string_equal(p.config.text[CONFIG_LISTEN], "10.0.0.1");
	assert_string_equal(p.config.text[CONFIG_ADDRESS], "a.example:7421");
	assert_string_equal(p.config.text[CONFIG_CA], "/ca");
	assert_string_equal(p.config.text[CONFIG_STORE_USER], "u");
	assert_null(p.config.text[CONFIG_KEY]);
	assert_false(p.config.master);
	assert_int_equal(p.config.burst, 0);
	assert_int_equal(p.config.burst_time, 3);
	assert_int_equal(p.config.ttl, 2000);
	parsed_done(&p);
	p = must_parse("[Cluster]\nStore=etcd://h/p\nStore=\n");
	assert_false(config_is_cluster(&p.config));
	assert_int_equal(p.config.ttl, 5000);
	parsed_done(&p);
}

static void test_unknown(void **state)
{
	struct parsed p;

	(void)state;
	must_warn("[Node]\nColour=red\n", "f.conf:2: no key Colour=");
	must_warn("[Node]\nname=x\n", "no key name=");
	must_warn("[Nodes]\nName=!!\nAnything=goes\n", "f.conf:1: no section [Nodes]");
	must_warn("\nName=x\n", "f.conf:2: Name= stands before any section");
	p = parse("[Future]\nName=x\n[Node]\nName=y\n");
	assert_string_equal(p.config.node_name, "y");
	parsed_done(&p);
}

static void test_broken_lines(void **state)
{
	struct parsed p;

	(void)state;
	must_fail("[Node\n", "f.conf:1: \"[Node\" has no closing ]");
	must_fail("[", "no closing ]");
	must_fail("[Node]\nName\n", "f.conf:2: \"Name\" is neither");
	must_fail("[Node]\nName=a\x01\n", "control character (0x01)");
	must_fail("[Node]\nName=a b\n", "\"a b\" is no name");
	must_fail("[Node]\nName=.hidden\n", "is no name");
	must_fail("[Space]\nMode=0600\n", "\"\" is no name of a space");
	must_fail("[Space a/b]\nMode=9\n", "\"a/b\" is no name of a space");

	p = parse("[Node]\nName=!\nSpacesOnDemand=?\nName=good\n");
	assert_int_equal(p.r, -EINVAL);
	assert_int_equal(p.messages.n, 2);
	expect_message(&p.messages, 1, CONFIG_ERROR, "f.conf:3: ");
	assert_string_equal(p.config.node_name, "good");
	parsed_done(&p);
}

static void test_nul_and_length(void **state)
{
	struct parsed p = { .r = 0 };
	char text[CONFIG_LINE_MAX + 64];

	(void)state;
	assert_int_equal(config_parse_text("f.conf", "[Node]\nName=a\0b\n", 16, &lookup, &p.config,
					   &p.messages), -EINVAL);
	expect_message(&p.messages, 0, CONFIG_ERROR, "f.conf:2: the line has a control character");
	parsed_done(&p);

	memset(text, '#', sizeof text);
	memcpy(text + CONFIG_LINE_MAX, "\n[Node]\nName=x\n", 16);
	p = must_parse(text);
	assert_string_equal(p.config.node_name, "x");
	parsed_done(&p);
	memcpy(text + CONFIG_LINE_MAX, "#\n", 3);
	must_fail(text, "f.conf:1: the line is longer");
}

static void test_spaces(void **state)
{
	char text[200], name[CONFIG_NAME_MAX + 2];
	struct parsed p;

	(void)state;
	memset(name, 'n', sizeof name);
	name[CONFIG_NAME_MAX + 1] = 0;
	snprintf(text, sizeof text, "[Space %s]\n", name);
	must_fail(text, "is no name of a space");
	name[CONFIG_NAME_MAX] = 0;
	snprintf(text, sizeof text, "[Space   %s  ]\n", name);
	p = must_parse(text);
	assert_string_equal(p.config.spaces[0].name, name);
	parsed_done(&p);

	p = must_parse("");
	for (int i = 0; i <= CONFIG_SPACES_MAX; i++) {
		snprintf(text, sizeof text, "[Space s%d]\n", i);
		p.r = config_parse_text("f.conf", text, strlen(text), &lookup, &p.config, &p.messages);
		assert_int_equal(p.r, i < CONFIG_SPACES_MAX ? 0 : -EINVAL);
	}
	expect_message(&p.messages, 0, CONFIG_ERROR, "more than 256 spaces");
	parsed_done(&p);
}

static void test_owners(void **state)
{
	(void)state;
	must_fail("[Space s]\nOwner=nobody-here\n", "there is no such user");
	must_fail("[Space s]\nGroup=nobody-here\n", "there is no such group");
	must_fail("[Space s]\nOwner=4294967295\n", "there is no such user");
	must_fail("[Space s]\nOwner=99999999999999999999\n", "there is no such user");
	must_fail("[Space s]\nGroup=-1\n", "there is no such group");
}

static void test_modes(void **state)
{
	static const char *const bits[] = { "0670", "1660", "0700", "777", "06660" };
	static const char *const bad[] = { "rw-rw----", "0680", "0x1b0", "-1", "0000660" };
	char text[64];

	(void)state;
	for (size_t i = 0; i < sizeof bits / sizeof *bits; i++) {
		snprintf(text, sizeof text, "[Space s]\nMode=%s\n", bits[i]);
		must_fail(text, "bits other than read and write");
	}
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		snprintf(text, sizeof text, "[Space s]\nMode=%s\n", bad[i]);
		must_fail(text, "no octal mode");
	}
	must_warn("[Space s]\nMode=0640\n", "only one of the two bits");
}

static void test_spans(void **state)
{
	static const struct { const char *text; msec_t msec; } good[] = {
		{ "5s", 5000 }, { "500ms", 500 }, { "2 min", 120000 }, { "1h", 3600000 },
		{ "7", 7000 }, { "0", 0 },
	};
	static const char *const bad[] = { "", "s", "5 s x", "5.5s", "-5s", "5S", "5sec" };
	msec_t msec;

	(void)state;
	for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
		assert_int_equal(config_parse_span(good[i].text, &msec), 0);
		assert_int_equal(msec, good[i].msec);
	}
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_int_equal(config_parse_span(bad[i], &msec), -EINVAL);
	assert_int_equal(config_parse_span("18446744073709551616ms", &msec), -ERANGE);
	assert_int_equal(config_parse_span("18446744073709551615h", &msec), -ERANGE);
}

static void test_many_messages(void **state)
{
	struct parsed p = { .r = 0 };

	(void)state;
	for (int i = 0; i < CONFIG_MESSAGES_MAX + 7; i++)
		config_parse_text("f.conf", "x", 1, &lookup, &p.config, &p.messages);
	assert_int_equal(p.messages.n, CONFIG_MESSAGES_MAX);
	assert_int_equal(p.messages.hidden, 7);
	parsed_done(&p);
}

/* --- Files --- */

struct files {
	char base[64];
	char path[100];		/* base/dlockd.conf */
};

static int setup(void **state)
{
	struct files *f = calloc(1, sizeof *f);
	const char *tmp = getenv("TMPDIR");

	if (!f)
		return -1;
	snprintf(f->base, sizeof f->base, "%.40s/dlock-conf-XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(f->base))
		return -1;
	snprintf(f->path, sizeof f->path, "%s/dlockd.conf", f->base);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct files *f = *state;
	char command[120];

	snprintf(command, sizeof command, "rm -rf '%s'", f->base);
	if (system(command) != 0)
		return -1;
	free(f);
	return 0;
}

static void write_text(const struct files *f, const char *name, const char *text)
{
	char path[160];
	FILE *file;

	snprintf(path, sizeof path, "%s/%s", f->base, name);
	file = fopen(path, "we");
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

static void make_dir(const struct files *f, const char *name)
{
	char path[160];

	snprintf(path, sizeof path, "%s/%s", f->base, name);
	assert_int_equal(mkdir(path, 0700), 0);
}

static struct parsed load(const char *path, const char *dir, const struct config_lookup *with)
{
	struct parsed p = { .r = 0 };

	p.r = config_load_with(path, dir, with, &p.config, &p.messages);
	return p;
}

static void test_private(void **state)
{
	struct files *f = *state;
	char expected[160];
	struct parsed p = load(NULL, f->base, &lookup);

	assert_int_equal(p.r, 0);
	assert_int_equal(p.messages.n, 0);
	snprintf(expected, sizeof expected, "%s/run", f->base);
	assert_string_equal(p.config.run_dir, expected);
	snprintf(expected, sizeof expected, "%s/state", f->base);
	assert_string_equal(p.config.state_dir, expected);
	assert_true(config_node_name_valid(p.config.node_name));
	assert_true(p.config.spaces_on_demand);
	assert_int_equal(p.config.n_spaces, 1);
	assert_string_equal(p.config.spaces[0].name, "default");
	assert_int_equal(p.config.spaces[0].owner, geteuid());
	assert_int_equal(p.config.spaces[0].group, getegid());
	assert_int_equal(p.config.spaces[0].mode, 0660);
	parsed_done(&p);
}

static void test_private_own_file(void **state)
{
	struct files *f = *state;
	struct parsed p;

	write_text(f, "dlockd.conf", "[Node]\nName=own\n[Space more]\nMode=0600\n");
	p = load(NULL, f->base, &lookup);
	assert_int_equal(p.r, 0);
	assert_string_equal(p.config.node_name, "own");
	assert_int_equal(p.config.n_spaces, 2);
	assert_int_equal(config_space_find(&p.config, "more")->owner, geteuid());
	parsed_done(&p);
}

static void test_relative(void **state)
{
	struct files *f = *state;
	char before[4096], expected[160];
	struct parsed p;

	assert_non_null(getcwd(before, sizeof before));
	assert_int_equal(chdir(f->base), 0);
	p = load(NULL, "d", &lookup);
	assert_int_equal(chdir(before), 0);
	assert_int_equal(p.r, 0);
	snprintf(expected, sizeof expected, "%s/d/run", f->base);
	assert_string_equal(p.config.run_dir, expected);
	parsed_done(&p);
}

static void test_system(void **state)
{
	struct files *f = *state;
	struct parsed p;

	write_text(f, "dlockd.conf", "[Node]\nName=n\n[Space other]\n");
	unsetenv("RUNTIME_DIRECTORY");
	unsetenv("STATE_DIRECTORY");
	p = load(f->path, NULL, &lookup_dlock);
	assert_int_equal(p.r, 0);
	assert_int_equal(p.messages.n, 0);
	assert_string_equal(p.config.run_dir, "/run/dlock");
	assert_string_equal(p.config.state_dir, "/var/lib/dlock");
	assert_int_equal(config_space_find(&p.config, "default")->owner, 0);
	assert_int_equal(config_space_find(&p.config, "default")->group, 2002);
	assert_int_equal(config_space_find(&p.config, "default")->mode, 0660);
	assert_int_equal(config_space_find(&p.config, "other")->group, 0);
	parsed_done(&p);

	setenv("RUNTIME_DIRECTORY", "/run/x:/run/y", 1);
	setenv("STATE_DIRECTORY", "/srv/x", 1);
	p = load(f->path, NULL, &lookup_dlock);
	unsetenv("RUNTIME_DIRECTORY");
	unsetenv("STATE_DIRECTORY");
	assert_string_equal(p.config.run_dir, "/run/x");
	assert_string_equal(p.config.state_dir, "/srv/x");
	parsed_done(&p);
}

static void test_no_group(void **state)
{
	struct files *f = *state;
	struct parsed p;

	write_text(f, "dlockd.conf", "[Node]\nName=n\n");
	p = load(f->path, NULL, &lookup);
	assert_int_equal(p.r, 0);
	assert_int_equal(p.messages.n, 1);
	expect_message(&p.messages, 0, CONFIG_WARNING, "There is no group dlock");
	assert_int_equal(p.config.spaces[0].mode, 0600);
	parsed_done(&p);

	write_text(f, "dlockd.conf", "[Node]\nName=n\n[Space default]\nGroup=staff\n");
	p = load(f->path, NULL, &lookup);
	assert_int_equal(p.messages.n, 0);
	assert_int_equal(p.config.spaces[0].group, 2001);
	assert_int_equal(p.config.spaces[0].mode, 0660);
	parsed_done(&p);
}

static void test_drop_ins(void **state)
{
	struct files *f = *state;
	struct parsed p;

	write_text(f, "dlockd.conf", "[Node]\nName=main\n[Cluster]\nName=main\n[Space s]\nMode=0666\n");
	make_dir(f, "dlockd.conf.d");
	write_text(f, "dlockd.conf.d/20-b.conf", "[Node]\nName=twenty\n");
	write_text(f, "dlockd.conf.d/10-a.conf", "[Node]\nName=ten\n[Cluster]\nName=ten\n");
	write_text(f, "dlockd.conf.d/30-c.conf.bak", "[Node]\nName=bak\n");
	write_text(f, "dlockd.conf.d/.40-d.conf", "[Space hidden]\n");
	p = load(f->path, f->base, &lookup);
	assert_int_equal(p.r, 0);
	assert_string_equal(p.config.node_name, "twenty");
	assert_string_equal(p.config.cluster_name, "ten");
	assert_int_equal(config_space_find(&p.config, "s")->mode, 0666);
	assert_null(config_space_find(&p.config, "hidden"));
	parsed_done(&p);

	write_text(f, "dlockd.conf.d/15-bad.conf", "[Node]\n\nName=?\n");
	p = load(f->path, f->base, &lookup);
	assert_int_equal(p.r, -EINVAL);
	assert_null(p.config.run_dir);
	expect_message(&p.messages, 0, CONFIG_ERROR, "dlockd.conf.d/15-bad.conf:3: ");
	parsed_done(&p);
}

static void test_unreadable(void **state)
{
	struct files *f = *state;
	struct parsed p = load(f->path, f->base, &lookup);
	char big[CONFIG_LINE_MAX];
	FILE *file;

	assert_int_equal(p.r, -ENOENT);
	expect_message(&p.messages, 0, CONFIG_ERROR, "dlockd.conf: cannot read it: No such file");
	parsed_done(&p);

	memset(big, '\n', sizeof big);
	file = fopen(f->path, "we");
	assert_non_null(file);
	for (size_t i = 0; i <= CONFIG_FILE_MAX / sizeof big; i++)
		assert_int_equal(fwrite(big, sizeof big, 1, file), 1);
	fclose(file);
	p = load(f->path, f->base, &lookup);
	assert_int_equal(p.r, -EFBIG);
	parsed_done(&p);

	assert_int_equal(unlink(f->path), 0);
	make_dir(f, "dlockd.conf");
	p = load(f->path, f->base, &lookup);
	assert_int_equal(p.r, -EISDIR);
	parsed_done(&p);
}

static void test_long_path(void **state)
{
	struct parsed p;
	char dir[120] = "/";

	(void)state;
	memset(dir + 1, 'd', sizeof dir - 2);
	p = load(NULL, dir, &lookup);
	assert_int_equal(p.r, -ENAMETOOLONG);
	expect_message(&p.messages, 0, CONFIG_ERROR, "Choose a shorter one");
	parsed_done(&p);
}

#define TEST(title, fn) { title, fn, NULL, NULL, NULL }
#define FILES(title, fn) { title, fn, setup, teardown, NULL }

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST("every key that works is taken", test_all_keys),
		TEST("comments, white space and empty values are nothing", test_comments),
		TEST("booleans in all their spellings", test_booleans),
		TEST("what comes later wins, and empty means the default again", test_later_wins),
		TEST("what needs a cluster is refused for a node alone", test_needs_cluster),
		TEST("addresses that are none", test_addresses),
		TEST("what a cluster needs", test_cluster),
		TEST("unknown keys and sections are warned of and passed over", test_unknown),
		TEST("every wrong line is an error of its own", test_broken_lines),
		TEST("NUL bytes and endless lines are refused", test_nul_and_length),
		TEST("names of spaces, and how many", test_spaces),
		TEST("owners and groups that do not exist are refused", test_owners),
		TEST("modes are octal and within 0666", test_modes),
		TEST("spans of time with their units", test_spans),
		TEST("a flood of messages is counted and not kept", test_many_messages),
		FILES("with a directory of its own everything is the caller's", test_private),
		FILES("… and the file in that directory is read", test_private_own_file),
		FILES("a relative directory is made absolute", test_relative),
		FILES("a system's daemon has its well-known places", test_system),
		FILES("without a group dlock the default space is the owner's", test_no_group),
		FILES("drop-ins are read by name, and errors name them", test_drop_ins),
		FILES("files that are missing, too large or directories", test_unreadable),
		TEST("a directory too long for a socket is refused", test_long_path),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
