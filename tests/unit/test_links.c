/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Links are made, changed and unmade in a network namespace of the test's own, and seen by the
 * module under test. Where no such namespace can be had, the tests are skipped.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/if_addr.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "net/links.h"
#include "netns.h"

#define EVENTS_MAX 4096

static bool have_namespace;

struct bench {
	struct links *links;
	char log[EVENTS_MAX][80];	/* "v0 address added 192.0.2.1/24" */
	size_t n;
};

/* --- Watching --- */

static void log_event(void *arg, const struct links_event *event)
{
	struct bench *b = arg;

	assert_true(b->n < EVENTS_MAX);
	assert_int_equal(event->address != NULL, event->kind == LINKS_ADDRESS_ADDED ||
			 event->kind == LINKS_ADDRESS_REMOVED);
	snprintf(b->log[b->n++], sizeof b->log[0], "%s %s%s%s", event->link->name,
		 links_event_text(event->kind), event->address ? " " : "",
		 event->address ? event->address->text : "");
}

/* Takes in all there is; the number of events. */
static size_t take_in(struct bench *b)
{
	struct pollfd p = { .fd = links_fd(b->links), .events = POLLIN };
	size_t before = b->n;

	while (poll(&p, 1, 0) > 0) {
		size_t was = b->n;
		int r = links_ready(b->links);

		if (r == -EAGAIN)
			continue;
		assert_true(r >= 0);
		assert_int_equal(b->n - was, r);
	}
	return b->n - before;
}

/*
 * Waits until the last event is this one. The kernel works out what is running a moment later, and
 * may say first what it takes back then.
 */
static void wait_event(struct bench *b, const char *expected)
{
	struct pollfd p = { .fd = links_fd(b->links), .events = POLLIN };

	for (int turn = 0; turn < 100; turn++) {
		take_in(b);
		if (b->n && strcmp(b->log[b->n - 1], expected) == 0)
			return;
		poll(&p, 1, 100);
	}
	fail_msg("no \"%s\"; the last was \"%s\"", expected, b->n ? b->log[b->n - 1] : "");
}

/* Exactly these events, separated by commas, in this order. */
static void expect_events(struct bench *b, const char *expected)
{
	char got[2000] = "";

	b->n = 0;
	take_in(b);
	for (size_t i = 0; i < b->n; i++)
		snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s", i ? ", " : "",
			 b->log[i]);
	assert_string_equal(got, expected);
}

struct search {
	const char *name;
	struct link_info found;
	char addresses[1000];
	size_t n;
};

static void search_link(void *arg, const struct link_info *link)
{
	struct search *s = arg;

	s->n++;
	if (strcmp(link->name, s->name) != 0)
		return;
	s->found = *link;
	for (size_t i = 0; i < link->n_addresses; i++) {
		strcat(s->addresses, i ? " " : "");
		strcat(s->addresses, link->addresses[i].text);
	}
}

static struct search find(struct links *links, const char *name)
{
	struct search s = { .name = name };

	links_each(links, search_link, &s);
	return s;
}

static int setup(void **state)
{
	struct bench *b;
	int r;

	if (!have_namespace)
		return 0;
	b = calloc(1, sizeof *b);
	if (!b)
		return -1;
	r = links_open(&b->links);
	if (r < 0)
		return r;
	links_on_change(b->links, log_event, b);
	*state = b;
	return 0;
}

static int teardown(void **state)
{
	static const char *const names[] = { "v0", "v2", "v4", "renamed", "br0" };
	struct bench *b = *state;

	for (size_t i = 0; have_namespace && i < sizeof names / sizeof *names; i++) {
		if (if_nametoindex(names[i]))
			netns_remove_link(names[i]);
	}
	if (b)
		links_close(b->links);
	free(b);
	return 0;
}

#define NEED_NAMESPACE() do { if (!have_namespace) skip(); } while (0)

/* --- The stories --- */

static void test_loopback(void **state)
{
	struct bench *b = *state;
	struct search s;

	NEED_NAMESPACE();
	s = find(b->links, "lo");
	assert_int_equal(s.n, 1);
	assert_true(s.found.loopback);
	assert_false(s.found.up);
	assert_int_equal(s.found.mtu, 65536);
	assert_int_equal(s.found.n_addresses, 0);
	expect_events(b, "");

	netns_set_up("lo", true);
	take_in(b);
	s = find(b->links, "lo");
	assert_true(s.found.up && s.found.running);
	assert_non_null(strstr(s.addresses, "127.0.0.1/8"));
	assert_string_equal(b->log[0], "lo up");

	netns_set_up("lo", false);
	take_in(b);
	assert_false(find(b->links, "lo").found.up);
}

static void test_life(void **state)
{
	struct bench *b = *state;
	struct search s;

	NEED_NAMESPACE();
	netns_make_pair("v0", "v1");
	expect_events(b, "v1 new, v0 new");
	netns_set_up("v0", true);
	wait_event(b, "v0 down");	/* its peer is */
	assert_true(find(b->links, "v0").found.up);
	assert_false(find(b->links, "v0").found.running);
	netns_set_up("v1", true);
	wait_event(b, "v0 up");
	assert_true(find(b->links, "v0").found.running && find(b->links, "v1").found.running);

	netns_set_mtu("v0", 1400);
	expect_events(b, "v0 changed");
	s = find(b->links, "v0");
	assert_int_equal(s.found.mtu, 1400);
	assert_false(s.found.loopback);
	assert_true(s.found.ifindex > 1);

	netns_set_up("v1", false);
	wait_event(b, "v0 down");
	netns_set_up("v0", false);
	take_in(b);
	netns_set_name("v0", "renamed");
	expect_events(b, "renamed changed");
	netns_remove_link("renamed");
	expect_events(b, "renamed gone, v1 gone");
	assert_int_equal(find(b->links, "lo").n, 1);
}

static void test_addresses(void **state)
{
	struct bench *b = *state;

	NEED_NAMESPACE();
	netns_make_pair("v0", "v1");
	netns_set_up("v1", true);
	netns_set_up("v0", true);
	wait_event(b, "v0 up");
	netns_add_address("v0", "192.0.2.1/24");
	expect_events(b, "v0 address added 192.0.2.1/24");
	netns_add_address("v0", "192.0.2.9/32");
	expect_events(b, "v0 address added 192.0.2.9/32");
	netns_add_address("v0", "2001:db8::1/64");
	wait_event(b, "v0 address added 2001:db8::1/64");
	assert_string_equal(find(b->links, "v0").addresses,
			    "192.0.2.1/24 192.0.2.9/32 2001:db8::1/64");

	netns_remove_address("v0", "192.0.2.9/32");
	expect_events(b, "v0 address removed 192.0.2.9/32");
	assert_string_equal(find(b->links, "v0").addresses, "192.0.2.1/24 2001:db8::1/64");
}

static void test_gone_brackets(void **state)
{
	struct bench *b = *state;
	bool seen_gone = false;

	NEED_NAMESPACE();
	netns_make_pair("v0", "v1");
	netns_set_up("v0", true);
	netns_set_up("v1", true);
	netns_add_address("v0", "192.0.2.1/24");
	take_in(b);
	b->n = 0;
	netns_remove_link("v0");
	take_in(b);
	for (size_t i = 0; i < b->n; i++) {
		seen_gone |= !strcmp(b->log[i], "v0 gone");
		if (!strcmp(b->log[i], "v0 address removed 192.0.2.1/24") ||
		    !strcmp(b->log[i], "v0 down"))
			assert_false(seen_gone);
	}
	assert_true(seen_gone);
	assert_true(b->n >= 5);		/* removed, two down, two gone */
}

static void test_tentative(void **state)
{
	struct bench *b = *state;
	struct pollfd p;
	int turns = 0;

	NEED_NAMESPACE();
	netns_make_pair("v0", "v1");
	netns_set_up("v0", true);
	netns_set_up("v1", true);
	take_in(b);
	assert_int_equal(netns_try_address("v0", "2001:db8::7/64", 0, true), 0);
	take_in(b);
	assert_null(strstr(find(b->links, "v0").addresses, "2001:db8::7"));

	/* The check takes the kernel about a second. */
	p = (struct pollfd){ .fd = links_fd(b->links), .events = POLLIN };
	while (!strstr(find(b->links, "v0").addresses, "2001:db8::7/64")) {
		assert_true(++turns < 100);
		poll(&p, 1, 200);
		take_in(b);
	}
}

static void test_bridge(void **state)
{
	struct bench *b = *state;

	NEED_NAMESPACE();
	if (!netns_make_bridge("br0"))
		skip();		/* a kernel without bridges */
	netns_make_pair("v0", "v1");
	take_in(b);
	netns_enslave("br0", "v0");
	take_in(b);
	netns_release("v0");
	take_in(b);
	for (size_t i = 0; i < b->n; i++)
		assert_null(strstr(b->log[i], "gone"));
	assert_string_equal(find(b->links, "v0").found.name, "v0");
}

/* --- Against a table that was just read --- */

struct listing {
	char lines[64][1200];
	size_t n;
};

static int compare_lines(const void *a, const void *b)
{
	return strcmp(a, b);
}

static int compare_addresses(const void *a, const void *b)
{
	const struct link_address *x = a, *y = b;

	return strcmp(x->text, y->text);
}

static void list_link(void *arg, const struct link_info *link)
{
	struct link_address addresses[100];
	struct listing *l = arg;
	char *line = l->lines[l->n++];
	size_t size = sizeof l->lines[0];

	assert_true(l->n < 64 && link->n_addresses <= 100);
	snprintf(line, size, "%d %s %d%d%d %u", link->ifindex, link->name, link->up, link->running,
		 link->loopback, link->mtu);
	if (!link->n_addresses)
		return;
	memcpy(addresses, link->addresses, link->n_addresses * sizeof *addresses);
	qsort(addresses, link->n_addresses, sizeof *addresses, compare_addresses);
	for (size_t i = 0; i < link->n_addresses; i++)
		snprintf(line + strlen(line), size - strlen(line), " %s", addresses[i].text);
}

static void list(struct links *links, struct listing *ret)
{
	memset(ret, 0, sizeof *ret);
	links_each(links, list_link, ret);
	qsort(ret->lines, ret->n, sizeof ret->lines[0], compare_lines);
}

/* The kernel does some of its work a moment later, so the two may differ for a while. */
static void expect_same_as_fresh(struct bench *b)
{
	static struct listing mine, fresh;
	bool same = false;

	for (int turn = 0; turn < 3000 && !same; turn++) {     /* a minute */
		struct links *links;

		take_in(b);
		list(b->links, &mine);
		assert_int_equal(links_open(&links), 0);
		list(links, &fresh);
		links_close(links);
		same = mine.n == fresh.n && !memcmp(mine.lines, fresh.lines, sizeof mine.lines);
		if (!same)
			usleep(20000);
	}
	for (size_t i = 0; !same && i < mine.n && i < fresh.n; i++)
		print_message("# have %s\n# want %s\n", mine.lines[i], fresh.lines[i]);
	assert_true(same);
}

static void test_overrun(void **state)
{
	struct bench *b = *state;
	int small = 1, fd;
	char text[32];

	NEED_NAMESPACE();
	netns_make_pair("v0", "v1");
	netns_make_pair("v2", "v3");
	netns_add_address("v2", "198.51.100.1/24");
	take_in(b);
	b->n = 0;
	fd = links_fd(b->links);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
	for (int i = 1; i <= 60; i++) {
		snprintf(text, sizeof text, "192.0.2.%d/24", i);
		netns_add_address("v0", text);
	}
	for (int i = 3; i <= 60; i += 2) {	/* the first keeps the subnet */
		snprintf(text, sizeof text, "192.0.2.%d/24", i);
		netns_remove_address("v0", text);
	}
	netns_remove_link("v2");
	netns_make_pair("v4", "v5");
	netns_set_mtu("v1", 1300);

	take_in(b);
	expect_same_as_fresh(b);
	assert_int_equal(find(b->links, "v2").found.ifindex, 0);
	assert_int_equal(find(b->links, "v1").found.mtu, 1300);
	assert_true(b->n < 150);	/* the rest was never heard */
	assert_int_equal(take_in(b), 0);
}

static unsigned roll(uint64_t *seed, unsigned sides)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return (unsigned)(*seed >> 33) % sides;
}

/* Which of them: a link made, removed, set up or down, given another size, an address, or one less. */
enum change { MADE, REMOVED, UP, DOWN, SIZE, ADDED, TAKEN, CHANGES };

static enum change random_change(uint64_t *seed)
{
	static const char *const names[] = { "v0", "v1", "v2", "v3" };
	const char *name = names[roll(seed, 4)];
	char text[32];

	if (!if_nametoindex(name)) {
		netns_make_pair(name[1] < '2' ? "v0" : "v2", name[1] < '2' ? "v1" : "v3");
		return MADE;
	}
	snprintf(text, sizeof text, roll(seed, 2) ? "192.0.2.%u/24" : "2001:db8::%u/64",
		 1 + roll(seed, 5));
	switch (roll(seed, 8)) {
	case 0:
	case 1:
		netns_set_up(name, true);
		return UP;
	case 2:
		netns_set_up(name, false);
		return DOWN;
	case 3:
		netns_set_mtu(name, 1300 + roll(seed, 5));
		return SIZE;
	case 4:
		if (roll(seed, 4))
			return CHANGES;
		netns_remove_link(name);
		return REMOVED;
	case 5:
	case 6:
		netns_try_address(name, text, IFA_F_NODAD, true);	/* it may be there */
		return ADDED;
	default:
		netns_try_address(name, text, 0, false);		/* it may not be there */
		return TAKEN;
	}
}

static void test_random(void **state)
{
	struct bench *b = *state;
	const char *given = getenv("DLOCK_SEED");
	uint64_t seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
	unsigned seen = 0;

	NEED_NAMESPACE();
	print_message("# seed: DLOCK_SEED=%llu\n", (unsigned long long)seed);
	for (int step = 0; step < 300 || (seen != (1u << CHANGES) - 1 && step < 3000); step++) {
		enum change c = random_change(&seed);

		seen |= c < CHANGES ? 1u << c : 0;
		if (roll(&seed, 3) == 0) {
			b->n = 0;
			expect_same_as_fresh(b);
		}
	}
	assert_int_equal(seen, (1u << CHANGES) - 1);     /* each has happened */
}

/* --- Without rights --- */

/* The exit code of a child that runs fn. */
static int in_child(int (*fn)(void))
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0)
		_exit(fn());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static int open_as_nobody(void)
{
	struct links *links;
	struct search s;

	if (geteuid() == 0 && setresuid(65534, 65534, 65534) < 0)
		return 77;	/* a user namespace of one user */
	if (links_open(&links) < 0)
		return 1;
	s = find(links, "lo");
	links_close(links);
	return s.found.ifindex ? 0 : 2;
}

static void test_unprivileged(void **state)
{
	int code = in_child(open_as_nobody);

	(void)state;
	if (code == 77)
		skip();
	assert_int_equal(code, 0);
}

static int refusal;	/* what the sandbox answers */

static int open_without_netlink(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_NETLINK, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)refusal),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof code / sizeof *code, code };
	struct links *links = NULL;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
		return 77;
	if (links_open(&links) != -refusal || links)
		return 1;
	return strstr(links_explain(-refusal), "AF_NETLINK") ? 0 : 2;
}

static void test_forbidden(void **state)
{
	static const int refusals[] = { EAFNOSUPPORT, EPERM, EACCES, ENOSYS };

	(void)state;
	for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
		int code;

		refusal = refusals[i];
		code = in_child(open_without_netlink);
		if (code == 77)
			skip();
		assert_int_equal(code, 0);
	}
}

#define TEST(title, fn) { title, fn, setup, teardown, NULL }

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST("loopback goes up and down with its address", test_loopback),
		TEST("a link is new, up, changed, down, renamed, gone", test_life),
		TEST("addresses come and go with their prefixes", test_addresses),
		TEST("gone is the last that is heard of a link", test_gone_brackets),
		TEST("an IPv6 address is none until it has been checked", test_tentative),
		TEST("a port that leaves its bridge stays a link", test_bridge),
		TEST("notices that were lost are made good by asking again", test_overrun),
		TEST("after any change the table is what a fresh one would be", test_random),
		{ "no privilege is needed", test_unprivileged, NULL, NULL, NULL },
		{ "netlink forbidden by seccomp is a clear error", test_forbidden, NULL, NULL, NULL },
	};
	int failed;

	have_namespace = netns_enter();
	cmocka_set_message_output(CM_OUTPUT_TAP);
	failed = cmocka_run_group_tests_name("links", tests, NULL, NULL);
	netns_done();
	return failed;
}
