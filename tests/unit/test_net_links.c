/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Links and addresses go and come in a network namespace of the test's own, and the connections notice at once. TTL is so
 * long that no time-out of theirs can have done it.
 */
#include "net_rig.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include "../../daemon/net/greet.h"
#include "../../daemon/net/links.h"
#include "netns.h"
#include "tls_certs.h"

#define A 100
#define B 200
#define LONG_TTL (100 * NSEC_PER_SEC)    /* silence is 20 s, the longest wait between dials 5 s */
#define SOON (600 * NSEC_PER_MSEC)
#define BEFORE_SILENCE (10 * NSEC_PER_SEC)       /* it was noticed by the event, however busy the machine is */
#define TRIES 5

static struct side a, b, *watched = &a;
static struct links *links;
static struct loop_watch *watch;
static struct tls_keys *keys;
static bool have_namespace;
static const struct net_options slow = { .cluster = "test", .ttl = LONG_TTL };

static void on_event(void *arg, const struct links_event *ev)
{
	(void)arg;
	net_link_event(watched->net, ev);
}

static void on_ready(void *arg, uint32_t revents)
{
	(void)arg, (void)revents;
	assert_true(links_ready(links) >= 0);
}

static void begin(void)
{
	char why[TLS_WHY_MAX];

	if (!have_namespace)
		skip();
	netns_make_pair("v0", "v1");
	netns_set_up("v0", true);
	netns_set_up("v1", true);
	netns_add_address("v0", "10.9.0.1/24");
	netns_add_address("v1", "10.9.0.2/24");
	key_make("key", 'a', 0600);
	assert_int_equal(tls_keys_load(&(struct tls_files){ .key = "key" }, &keys, why), 0);
	side_open(&a, "alpha", A, keys, "10.9.0.1:0", &slow);
	side_open(&b, "beta", B, keys, "*:7421", &slow);
	assert_int_equal(links_open(&links), 0);
	links_on_change(links, on_event, NULL);
	assert_int_equal(loop_watch(loop, links_fd(links), POLLIN, on_ready, NULL, &watch), 0);
	/* b dials: so a's end has the address of v0 */
	assert_int_equal(net_link(b.net, A, side_address(&a)), 0);
	run_until(a.conn && b.conn);
	run_for(50 * NSEC_PER_MSEC);
	assert_int_equal(a.downs, 0);
}

static void end(void)
{
	loop_unwatch(watch);
	links_close(links);
	side_close(&a);
	side_close(&b);
	tls_keys_free(keys);
	netns_remove_link("v0");
}

static void link_that_goes_down_takes_its_connections_along(void **state)
{
	nsec_t at;

	(void)state;
	begin();
	at = boottime();
	netns_set_up("v0", false);
	run_until(a.downs == 1);
	assert_true(a.down_at - at < BEFORE_SILENCE);
	assert_true(side_said(&a, "its link, v0, is down"));
	end();
}

static void address_that_goes_takes_its_connections_along(void **state)
{
	nsec_t at;

	(void)state;
	begin();
	at = boottime();
	netns_remove_address("v0", "10.9.0.1/24");
	run_until(a.downs == 1);
	assert_true(a.down_at - at < BEFORE_SILENCE);
	assert_true(side_said(&a, "its address at this end, 10.9.0.1/24 of v0, is gone"));
	end();
}

static void connections_over_other_links_are_probed_and_stay(void **state)
{
	struct net_peer_info before, after;

	(void)state;
	begin();
	netns_make_pair("w0", "w1");
	netns_set_up("w0", true);
	netns_set_up("w1", true);
	run_for(50 * NSEC_PER_MSEC);
	peer_of(&a, B, &before);
	netns_set_up("w0", false);
	run_for(SOON);
	peer_of(&a, B, &after);
	assert_int_equal(a.downs, 0);
	assert_true(after.heard > before.heard);         /* long before the next beat, 4 s apart */
	netns_remove_link("w0");
	end();
}

/* A peer of the test's own hand that is up and then says nothing, as when a switch dies behind a link that stays up. */
static void connection_that_does_not_answer_a_probe_is_dropped(void **state)
{
	struct greeting hello = { .kind = GREET_HELLO, .version_min = 1, .version_max = 1, .session = 7, .to = A, .incarnation = 1,
				  .cluster = "test", .node = "mute" }, g;
	struct side plain;
	uint8_t buf[GREET_MAX];
	size_t n = greet_encode(&hello, buf);
	nsec_t at;
	int fd, r;

	(void)state;
	begin();
	side_open(&plain, "plain", A, NULL, NULL, &slow);
	fd = raw_dial(&plain);
	assert_int_equal(send(fd, buf, n, 0), n);
	r = raw_read(fd, buf, sizeof buf, 50 * NSEC_PER_MSEC);
	assert_int_equal(greet_decode(buf, (size_t)r, 1, 1, &g), 0);
	g = (struct greeting){ .kind = GREET_READY, .version_min = 1, .version_max = 1, .conn = g.conn };
	n = greet_encode(&g, buf);
	assert_int_equal(send(fd, buf, n, 0), n);
	run_until(plain.conn);
	watched = &plain;
	at = boottime();
	netns_set_up("v1", false);
	run_until(plain.downs == 1);
	assert_true(plain.down_at - at < BEFORE_SILENCE);
	assert_true(side_said(&plain, "after a change of a link here"));
	watched = &a;
	close(fd);
	side_close(&plain);
	end();
}

static nsec_t until_used(void)
{
	nsec_t at;

	begin();
	net_unlink(b.net, A);
	netns_set_up("v1", false);
	net_unlink(a.net, B);
	side_close(&b);
	a.ups = 0;
	a.conn = 0;
	assert_int_equal(net_link(a.net, B, "10.9.0.2:7421"), 0);
	run_until(side_said(&a, "nothing listens there"));
	run_for(3 * NSEC_PER_SEC);               /* waits between dials have grown to seconds */
	assert_int_equal(a.ups, 0);
	side_open(&b, "beta", B, keys, "*:7421", &slow);
	at = boottime();
	netns_set_up("v1", true);
	run_until(a.ups == 1);
	at = a.up_at - at;
	end();
	return at;
}

/* Again where it was late: each time, and it is not used at once. */
static void link_that_comes_up_is_used_at_once(void **state)
{
	int tries = 1;

	(void)state;
	while (until_used() >= SOON)
		assert_true(tries++ < TRIES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		story("a link that goes down takes its connections along, at once", link_that_goes_down_takes_its_connections_along),
		story("an address that goes takes its connections along, at once", address_that_goes_takes_its_connections_along),
		story("connections over other links are probed, and stay", connections_over_other_links_are_probed_and_stay),
		story("a connection that does not answer a probe is dropped", connection_that_does_not_answer_a_probe_is_dropped),
		story("a link that comes up is used at once", link_that_comes_up_is_used_at_once),
	};
	int failed;

	cmocka_set_message_output(CM_OUTPUT_TAP);
	have_namespace = netns_enter();
	if (have_namespace)
		netns_set_up("lo", true);
	else
		printf("# no network namespace can be had here\n");
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	netns_done();
	return failed;
}
