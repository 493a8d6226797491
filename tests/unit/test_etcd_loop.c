/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The engine in the daemon's loop, which hears of each wake-up once: nothing may be left lying. And what it
 * costs: beside each time stands that of the bare request, over one blocking socket.
 */
#include "etcd_rig.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loop/loop.h"

#define ROUNDS 300

struct driver {
	struct etcd_bench b;
	struct loop *loop;
	struct loop_watch *watch;
	bool writes;
	uint64_t version;
	int left;
	nsec_t begun;
	nsec_t took[ROUNDS];
};

static struct etcd_rig rig;

static void on_ready(void *arg, uint32_t revents)
{
	struct driver *d = arg;

	(void)revents;
	store_ready(d->b.contract.store);
}

static void ask(struct driver *d);

static void answered(void *arg, const struct store_result *result)
{
	struct driver *d = arg;

	assert_int_equal(result->error, 0);
	d->version = result->version;
	d->took[--d->left] = loop_clock() - d->begun;
	if (d->left)
		ask(d);
	else
		loop_stop(d->loop, 0);
}

static void ask(struct driver *d)
{
	d->begun = loop_clock();
	if (d->writes)
		store_cas(d->b.contract.store, "key", d->version, "0123456789012345678901234567890", 32, answered, d);
	else
		store_get(d->b.contract.store, "key", answered, d);
}

static int by_value(const void *a, const void *b)
{
	nsec_t x = *(const nsec_t *)a, y = *(const nsec_t *)b;

	return (x > y) - (x < y);
}

static void report(const char *what, nsec_t *took)
{
	qsort(took, ROUNDS, sizeof *took, by_value);
	print_message("# %s: median %llu us, p99 %llu us, longest %llu us\n", what,
		      (unsigned long long)took[ROUNDS / 2] / 1000, (unsigned long long)took[ROUNDS * 99 / 100] / 1000,
		      (unsigned long long)took[ROUNDS - 1] / 1000);
}

static void run(struct driver *d, bool writes, const char *what)
{
	d->writes = writes;
	d->left = ROUNDS;
	ask(d);
	assert_int_equal(loop_run(d->loop), 0);
	report(what, d->took);
	/* A wake-up that is lost shows as a time-out. One that is late is the machine's; most of them are not. */
	assert_true(d->took[ROUNDS / 2] < 1000 * NSEC_PER_MSEC);
}

/* --- Bare --- */

static int bare_connect(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				 .sin_port = htons((uint16_t)rig.members[0].client_port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

	assert_true(fd >= 0);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
	return fd;
}

static void bare(int fd, const char *path, const char *body)
{
	char text[2000] = "", *end;
	int n = snprintf(text, sizeof text, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
			 "Content-Length: %zu\r\n\r\n%s", path, strlen(body), body);

	assert_int_equal(write(fd, text, (size_t)n), n);
	memset(text, 0, sizeof text);
	for (n = 0; !(end = strstr(text, "\r\n\r\n")) || !strchr(end, '}') || text[n - 1] != '}';) {
		ssize_t r = read(fd, text + n, sizeof text - 1 - (size_t)n);

		assert_true(r > 0);
		n += (int)r;
	}
}

static void run_bare(const char *path, const char *body, const char *what)
{
	static nsec_t took[ROUNDS];
	int fd = bare_connect();

	for (int i = 0; i < ROUNDS; i++) {
		nsec_t begun = loop_clock();

		bare(fd, path, body);
		took[i] = loop_clock() - begun;
	}
	close(fd);
	report(what, took);
}

static void test_loop(void **state)
{
	struct driver *d = calloc(1, sizeof *d);
	struct answer a = { .error = -1 };

	(void)state;
	assert_non_null(d);
	etcd_bench_init(&d->b, &rig);
	etcd_bench_open(&d->b);
	for (int i = 0; i < 10 && a.error; i++) {
		answer_done(&a);
		a = ask_get(&d->b.contract, "key");
	}
	answer_done(&a);
	assert_int_equal(loop_create(&d->loop), 0);
	assert_int_equal(loop_watch(d->loop, store_fd(d->b.contract.store), POLLIN, on_ready, d, &d->watch), 0);
	run(d, true, "cas");
	run_bare("/v3/kv/txn", "{\"compare\":[{\"key\":\"Zm9v\",\"target\":\"MOD\",\"result\":\"GREATER\",\"mod_revision\":\"-1\"}],"
		 "\"success\":[{\"request_put\":{\"key\":\"Zm9v\",\"value\":\"MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MA==\"}}]}",
		 "bare cas");
	run(d, false, "get");
	run_bare("/v3/kv/range", "{\"key\":\"Zm9v\"}", "bare get");
	loop_unwatch(d->watch);
	loop_free(d->loop);
	etcd_bench_close(&d->b);
	free(d);
}

static int start(void **state)
{
	(void)state;
	rig_start(&rig, 1, 0);
	return 0;
}

static int stop(void **state)
{
	(void)state;
	rig_stop(&rig);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		STORY("hundreds of requests one after the other, through the loop", test_loop, NULL, NULL),
	};

	if (!rig_possible())
		return 0;
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("etcd in the loop", tests, start, stop);
}
