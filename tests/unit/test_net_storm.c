/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Some nodes that all link to each other, while sessions change, daemons are started anew, links are given up and taken again, and
 * frames fly. What must hold is looked at from outside all the time; when the storm is over, each pair agrees on one connection.
 */
#include "loop_fixture.h"

#include <errno.h>

#include "../../daemon/net/keys.h"
#include "../../daemon/net/links.h"
#include "../../daemon/net/net.h"
#include "tls_certs.h"

#define NODES 6
#define TTL (NSEC_PER_SEC)
#define STORM (4 * NSEC_PER_SEC)

struct node {
	struct net *net;
	unsigned number;
	uint64_t session;                /* number + 1 + 100 times how often it was new */
	uint32_t incarnation;
	char address[ADDRESS_TEXT_MAX];
	struct {
		uint64_t session, conn, conn_last, heard, said;  /* frames, on this connection */
		uint32_t incarnation;
	} peer[NODES];                   /* by number: what is up, by its callbacks */
};

static struct node nodes[NODES];
static struct tls_keys *keys;
static unsigned seed;
static uint64_t ups, downs, frames;

static unsigned pick(unsigned n)
{
	return (unsigned)rand_r(&seed) % n;
}

static unsigned number_of(uint64_t session)
{
	return (unsigned)((session - 1) % 100);
}

static void link_up(void *arg, uint64_t session, uint32_t incarnation, uint64_t conn)
{
	struct node *n = arg;
	unsigned i = number_of(session);

	ups++;
	assert_true(i < NODES && i != n->number);
	/* a new session of that node may be up before the old one is known to be gone */
	if (n->peer[i].conn && n->peer[i].session == session)
		fail_msg("%u: connection %llx to %llu while %llx is up", n->number, (unsigned long long)conn, (unsigned long long)session,
			 (unsigned long long)n->peer[i].conn);
	if (n->peer[i].session == session) {
		assert_true(conn > n->peer[i].conn_last);
		assert_true(incarnation >= n->peer[i].incarnation);
	} else if (n->peer[i].session > session) {
		return;                          /* an old one that has not noticed yet */
	}
	n->peer[i].session = session;
	n->peer[i].incarnation = incarnation;
	n->peer[i].conn = n->peer[i].conn_last = conn;
	n->peer[i].heard = n->peer[i].said = 0;
}

static void link_down(void *arg, uint64_t session, uint64_t conn)
{
	struct node *n = arg;
	unsigned i = number_of(session);

	downs++;
	if (n->peer[i].session == session) {
		assert_true(n->peer[i].conn == conn);
		n->peer[i].conn = 0;
	}
}

/* A frame says its sender, connection, and which one it is on that. */
static int received(void *arg, uint64_t session, uint64_t conn, const void *bytes, uint32_t size)
{
	struct node *n = arg;
	unsigned i = number_of(session);
	uint64_t said[3];

	frames++;
	memcpy(said, (const char *)bytes + 8, sizeof said);
	assert_true(said[0] == session && said[1] == conn && size >= NET_FRAME_MIN);
	if (n->peer[i].session != session)
		return 0;
	assert_true(n->peer[i].conn == conn);
	assert_true(said[2] == n->peer[i].heard);       /* none is missing, none comes twice */
	n->peer[i].heard++;
	return pick(2000) ? 0 : -EBADMSG;
}

static void say(void *arg, enum log_level level, const char *text)
{
	struct node *n = arg;

	(void)level;
	if (getenv("NET_TRACE"))
		fprintf(stderr, "%u: %s\n", n->number, text);
}

static void send_some(struct node *n)
{
	unsigned i = pick(NODES), count = pick(40);
	uint64_t said[3] = { n->session, n->peer[i].conn, 0 };
	uint8_t f[NET_FRAME_MAX] = { 0 };

	if (i == n->number || !n->peer[i].conn)
		return;
	for (; count; count--) {
		uint32_t size = 32 + pick(NET_FRAME_MAX - 32);

		f[0] = (uint8_t)size;
		f[1] = (uint8_t)(size >> 8);
		said[2] = n->peer[i].said++;
		memcpy(f + 8, said, sizeof said);
		net_send(n->net, n->peer[i].session, said[1], f, size);
	}
}

static void forget_all(struct node *n)
{
	for (unsigned i = 0; i < NODES; i++)
		n->peer[i].conn = 0;
}

static void node_start(struct node *n)
{
	static const struct net_ops ops = { link_up, link_down, received, say };
	char name[8];
	struct net_options o = { .node = name, .cluster = "storm", .ttl = TTL, .keys = keys };

	snprintf(name, sizeof name, "n%u", n->number);
	assert_int_equal(net_create(loop, &o, &ops, n, &n->net), 0);
	assert_int_equal(net_listen(n->net, n->address[0] ? n->address : "127.0.0.1:0", NULL), 0);
	snprintf(n->address, sizeof n->address, "%s", net_listen_address(n->net, 0));
	net_session(n->net, n->session, n->incarnation);
}

static void link_one(struct node *n, unsigned i)
{
	if (i != n->number)
		assert_int_equal(net_link(n->net, nodes[i].session, pick(4) ? nodes[i].address : ""), 0);
}

static void unlink_one(struct node *n, unsigned i, uint64_t session)
{
	net_unlink(n->net, session);
	if (n->peer[i].session == session)
		n->peer[i].conn = 0;
}

#define DISTURBANCES 5                   /* the last one is several times as likely */
static unsigned disturbed[DISTURBANCES], clashes;

static void disturb(struct node *n)
{
	uint64_t former = n->session;
	unsigned kind = pick(8);

	disturbed[kind < DISTURBANCES ? kind : DISTURBANCES - 1]++;
	switch (kind) {
	case 0:                                  /* a new session, of which the others hear now or later */
		n->session += 100;
		n->incarnation = 1;
		memset(n->peer, 0, sizeof n->peer);      /* numbers are of two sessions */
		net_session(n->net, n->session, 1);
		for (unsigned i = 0; i < NODES; i++)
			if (i != n->number && pick(2))
				unlink_one(&nodes[i], n->number, former);
		return;
	case 1:                                  /* started anew, in the same session */
		forget_all(n);
		net_free(n->net);
		n->incarnation++;
		node_start(n);
		return;
	case 2:
		net_session(n->net, n->session, ++n->incarnation);
		forget_all(n);
		return;
	case 3: {
		unsigned i = pick(NODES);

		if (i != n->number)
			unlink_one(n, i, nodes[i].session);
		return;
	}
	default:
		link_one(n, pick(NODES));
		return;
	}
}

/* All are cut off from all, and dial at once: everything crosses. */
static void clash(void)
{
	static const struct link_info link = { .ifindex = 1, .name = "any", .up = true, .running = true };
	static const struct links_event up = { .kind = LINKS_UP, .link = &link };

	clashes++;
	for (unsigned i = 0; i < NODES; i++) {
		forget_all(&nodes[i]);
		net_session(nodes[i].net, nodes[i].session, nodes[i].incarnation);
	}
	for (unsigned i = 0; i < NODES; i++)
		net_link_event(nodes[i].net, &up);
}

static bool agreed(void)
{
	for (unsigned i = 0; i < NODES; i++)
		for (unsigned k = 0; k < NODES; k++)
			if (i != k && (!nodes[i].peer[k].conn || nodes[i].peer[k].session != nodes[k].session ||
				       nodes[i].peer[k].incarnation != nodes[k].incarnation ||
				       nodes[i].peer[k].conn != nodes[k].peer[i].conn))
				return false;
	return true;
}

static void link_all(void)
{
	for (unsigned i = 0; i < NODES; i++)
		for (unsigned k = 0; k < NODES; k++)
			if (i != k)
				assert_int_equal(net_link(nodes[i].net, nodes[k].session, nodes[k].address), 0);
}

static bool enough(void)
{
	for (unsigned i = 0; i < DISTURBANCES; i++)
		if (!disturbed[i])
			return false;
	return clashes && ups > 100 && downs > 20 && frames > 1000;
}

static void storm(void)
{
	nsec_t end;

	seed = fixture_seed();
	ups = downs = frames = clashes = 0;
	memset(disturbed, 0, sizeof disturbed);
	memset(nodes, 0, sizeof nodes);
	for (unsigned i = 0; i < NODES; i++) {
		nodes[i].number = i;
		nodes[i].session = i + 1;
		nodes[i].incarnation = 1;
		node_start(&nodes[i]);
	}
	link_all();
	for (end = boottime() + STORM; boottime() < end || (!enough() && boottime() < end + PATIENCE);) {
		for (int i = 0; i < 20; i++)
			send_some(&nodes[pick(NODES)]);
		if (!pick(10))
			disturb(&nodes[pick(NODES)]);
		if (!pick(30))
			link_all();
		if (!pick(100))
			clash();
		run_for(pick(5) ? pick(3000) * NSEC_PER_USEC : 0);
	}
	link_all();
	for (end = boottime() + PATIENCE; !agreed() && boottime() < end;)
		run_for(10 * NSEC_PER_MSEC);
	printf("# %llu up, %llu down, %llu frames\n", (unsigned long long)ups, (unsigned long long)downs,
	       (unsigned long long)frames);
	assert_true(agreed());
	assert_true(enough());
	for (unsigned i = 0; i < NODES; i++)
		net_free(nodes[i].net);
}

static void in_plain_text(void **state)
{
	(void)state;
	storm();
}

static void in_tls(void **state)
{
	char why[TLS_WHY_MAX];

	(void)state;
	key_make("key", 'c', 0600);
	assert_int_equal(tls_keys_load(&(struct tls_files){ .key = "key" }, &keys, why), 0);
	storm();
	tls_keys_free(keys);
	keys = NULL;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		story("six nodes in a storm, in plain text", in_plain_text),
		story("six nodes in a storm, in TLS", in_tls),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
