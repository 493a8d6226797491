/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The engine against somebody who answers in etcd's place: lost answers, nonsense, refusals, other clusters.
 */
#include "etcd_rig.h"
#include "fake_etcd.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "store/etcd.h"

#define FAKES 2
#define PATIENCE_MS 60000

struct stage {
	struct store_contract contract;
	struct fake_etcd *fakes[FAKES];
	struct store_options options;
	struct store_why why;
	char url[120], password_file[80];
};

static void pump(struct store_contract *c)
{
	struct stage *s = (struct stage *)c;

	fake_turn(s->fakes, FAKES, store_fd(c->store), 100);
	store_ready(c->store);
}

/* The first fake alone, or both. */
static void stage_open(struct stage *s, int n)
{
	snprintf(s->url, sizeof s->url, "etcd://127.0.0.1:%u", s->fakes[0]->port);
	if (n == 2)
		snprintf(s->url + strlen(s->url), 40, ",127.0.0.1:%u", s->fakes[1]->port);
	s->options.url = s->url;
	assert_int_equal(store_open(&s->options, &s->contract.store, &s->why), 0);
}

/* The limit of a request: of one that is over by itself, however busy the machine is; and of one that is over by its limit. */
#define LONG_MS  30000
#define SHORT_MS 2000

static int setup_with(void **state, unsigned request_ms)
{
	struct stage *s = calloc(1, sizeof *s);

	if (!s)
		return -1;
	signal(SIGPIPE, SIG_IGN);
	s->contract.pump = pump;
	s->options.request_ms = request_ms;
	for (int i = 0; i < FAKES; i++) {
		s->fakes[i] = malloc(sizeof *s->fakes[i]);
		fake_start(s->fakes[i]);
	}
	*state = s;
	return 0;
}

static int setup(void **state)
{
	return setup_with(state, LONG_MS);
}

static int setup_short(void **state)
{
	return setup_with(state, SHORT_MS);
}

static int teardown(void **state)
{
	struct stage *s = *state;

	store_close(s->contract.store);
	for (int i = 0; i < FAKES; i++) {
		fake_stop(s->fakes[i]);
		free(s->fakes[i]);
	}
	if (s->password_file[0])
		unlink(s->password_file);
	free(s);
	return 0;
}

static void must_fail(struct stage *s, struct answer a, int error, bool in_doubt, const char *says)
{
	const char *why = store_explain(s->contract.store);

	if (a.error != error || !strstr(why, says))
		print_message("# %d, %s\n", a.error, why);
	assert_int_equal(a.error, error);
	assert_int_equal(a.in_doubt, in_doubt);
	assert_non_null(strstr(why, says));
	answer_done(&a);
}

static struct answer cas(struct stage *s)
{
	return ask_cas(&s->contract, "key", 0, "value", 5);
}

/* --- Answers that are lost --- */

static void lose_txn(struct fake_etcd *f, const struct fake_request *rq, struct fake_reply *ret)
{
	(void)f;
	if (strstr(rq->path, "txn") && rq->serial > 1)
		ret->how = FAKE_CLOSE;
}

/* The trap: on a connection that was used before, libcurl sends a request again by itself. */
static void test_cas_once(void **state)
{
	struct stage *s = *state;
	struct answer a;

	s->fakes[0]->on = lose_txn;
	stage_open(s, 2);
	for (int i = 0; i < 3; i++) {
		a = ask_get(&s->contract, "key");
		assert_int_equal(a.error, 0);
		answer_done(&a);
	}
	must_fail(s, cas(s), STORE_ETCD_ECONN, true, "may have been written");
	for (int i = 0; i < 5; i++)
		pump(&s->contract);
	assert_int_equal(s->fakes[0]->txn, 1);
	assert_int_equal(s->fakes[1]->txn, 0);
	/* The other one is asked now. */
	a = cas(s);
	assert_int_equal(a.error, 0);
	answer_done(&a);
	assert_int_equal(s->fakes[1]->txn, 1);
}

static void half_txn(struct fake_etcd *f, const struct fake_request *rq, struct fake_reply *ret)
{
	(void)f;
	if (strstr(rq->path, "txn"))
		ret->how = FAKE_HALF;
}

static void test_cas_half(void **state)
{
	struct stage *s = *state;

	s->fakes[0]->on = half_txn;
	stage_open(s, 1);
	must_fail(s, cas(s), STORE_ETCD_ECONN, true, "may have been written");
	assert_int_equal(s->fakes[0]->txn, 1);
}

static void silent(struct fake_etcd *f, const struct fake_request *rq, struct fake_reply *ret)
{
	if (!strstr(rq->path, "status") && !strstr(rq->path, "watch") && f->phase == 0)
		ret->how = FAKE_SILENT;
}

static struct timespec now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t;
}

static long ms_since(const struct timespec *then)
{
	struct timespec t = now();

	return (t.tv_sec - then->tv_sec) * 1000 + (t.tv_nsec - then->tv_nsec) / 1000000;
}

static void test_silent(void **state)
{
	struct stage *s = *state;
	struct timespec begin;
	struct answer a;

	s->fakes[0]->on = silent;
	stage_open(s, 2);
	begin = now();
	must_fail(s, cas(s), STORE_ETCD_ETIME, true, "may have been written");
	assert_true(ms_since(&begin) < PATIENCE_MS);
	assert_int_equal(s->fakes[0]->txn, 1);

	s->fakes[1]->on = silent;
	begin = now();
	a = ask_get(&s->contract, "key");
	assert_int_equal(a.error, STORE_ETCD_ETIME);
	assert_false(a.in_doubt);
	assert_true(ms_since(&begin) < PATIENCE_MS);
	answer_done(&a);
}

/* A read whose host says nothing goes to the other one. */
static void test_read_elsewhere(void **state)
{
	struct stage *s = *state;
	struct answer a;

	s->fakes[0]->on = silent;
	stage_open(s, 2);
	a = ask_get(&s->contract, "key");
	assert_int_equal(a.error, 0);
	answer_done(&a);
	assert_int_equal(s->fakes[0]->range, 1);
	assert_int_equal(s->fakes[1]->range, 1);
}

/* For half of what a request may take neither anybody answers nor this process has a processor. */
#define DAWDLE_MS 300

static void dawdles(struct fake_etcd *f, const struct fake_request *rq, struct fake_reply *ret)
{
	const struct timespec nap = { .tv_nsec = DAWDLE_MS * 1000000L };

	(void)f, (void)ret;
	if (strstr(rq->path, "range"))
		nanosleep(&nap, NULL);
}

static int setup_dawdling(void **state)
{
	return setup_with(state, 2 * DAWDLE_MS);
}

static void test_dawdling(void **state)
{
	struct stage *s = *state;
	struct timespec begin = now();
	unsigned read = 0;

	for (unsigned i = 0; i < FAKES; i++)
		s->fakes[i]->on = dawdles;
	stage_open(s, 2);
	while (read < 3 && ms_since(&begin) < PATIENCE_MS) {
		struct answer a = ask_get(&s->contract, "key");

		read += !a.error;
		answer_done(&a);
	}
	assert_int_equal(read, 3);
}

static void keep(void *arg, const struct store_result *result)
{
	struct answer *a = arg;

	a->calls++;
	a->error = result->error;
	a->in_doubt = result->in_doubt;
}

static void test_close_in_doubt(void **state)
{
	struct stage *s = *state;
	struct answer a = { .calls = 0 };

	s->fakes[0]->on = silent;
	stage_open(s, 1);
	store_cas(s->contract.store, "key", 0, "x", 1, keep, &a);
	while (!s->fakes[0]->txn)
		pump(&s->contract);
	store_close(s->contract.store);
	s->contract.store = NULL;
	assert_int_equal(a.calls, 1);
	assert_int_equal(a.error, -ECANCELED);
	assert_true(a.in_doubt);
}

/* --- What etcd may say --- */

static const struct saying {
	int status;
	const char *body;
	int error;
	bool in_doubt;		/* of a cas */
	const char *says;
} sayings[] = {
	{ 400, "{\"error\":\"etcdserver: mvcc: database space exceeded\",\"code\":8}", STORE_ETCD_ESPACE, false, "quota" },
	{ 400, "{\"message\":\"grpc: received message larger than max\",\"code\":8}", STORE_ETCD_ESERVER, true, "larger" },
	{ 503, "{\"error\":\"etcdserver: request timed out\",\"code\":14}", STORE_ETCD_ESERVER, true, "timed out" },
	{ 503, "{\"code\":14,\"message\":\"etcdserver: leader changed\",\"details\":[]}", STORE_ETCD_ESERVER, true, "leader changed" },
	{ 503, "{\"error\":\"etcdserver: no leader\",\"code\":14}", STORE_ETCD_ELEADER, true, "majority" },
	{ 403, "{\"error\":\"etcdserver: permission denied\",\"code\":7}", STORE_ETCD_EPERM, false, "/dlock/" },
	{ 400, "{\"error\":\"etcdserver: user name is empty\",\"code\":3}", STORE_ETCD_ELOGIN, false, "StoreUser=" },
	{ 404, "404 page not found", STORE_ETCD_EFOREIGN, true, "is not an etcd" },
	{ 400, "Client sent an HTTP request to an HTTPS server.\n", STORE_ETCD_ETLS, true, "etcds://" },
	{ 200, "{}", STORE_ETCD_EANSWER, true, "not an etcd" },
	{ 200, "<html>Hello</html>", STORE_ETCD_EANSWER, true, "not an etcd" },
	{ 500, "", STORE_ETCD_EFOREIGN, true, "not an etcd" },
	{ 200, "{\"header\":{\"cluster_id\":\"77\",\"revision\":\"9\"},\"succeeded\":true}", STORE_ETCD_EANSWER, true, "no sense" },
	{ 200, "{\"header\":{\"revision\":\"9\"},\"succeeded\":true}", STORE_ETCD_EANSWER, true, "not an etcd" },
	{ 200, "{\"header\":{\"cluster_id\":\"77\"},\"responses\":[{\"response_range\":{\"count\":\"1\"}}]}", STORE_ETCD_EANSWER,
	  true, "not an etcd" },
	{ 200, "{\"header\":{\"cluster_id\":\"77\"},\"responses\":[{\"response_delete_range\":{}}]}", STORE_ETCD_EANSWER,
	  true, "no sense" },
	{ 200, "{\"header\":{\"cluster_id\":\"77\",\"revision\":\"9\"}}", STORE_ETCD_EANSWER, true, "no sense" },
	{ 200, "{\"header\":{\"cluster_id\":\"78\"},\"succeeded\":true}", STORE_ETCD_ECLUSTER, true, "different etcd clusters" },
};

static const struct saying *said;

static void say(struct fake_etcd *f, const struct fake_request *rq, struct fake_reply *ret)
{
	(void)f;
	if (strstr(rq->path, "txn")) {
		ret->status = said->status;
		ret->body = said->body;
	}
}

static void test_sayings(void **state)
{
	struct stage *s = *state;

	for (size_t i = 0; i < sizeof sayings / sizeof *sayings; i++) {
		said = &sayings[i];
		s->fakes[0]->on = say;
		s->fakes[0]->txn = 0;
		stage_open(s, 1);
		must_fail(s, cas(s), said->error, said->in_doubt, said->says);
		assert_int_equal(s->fakes[0]->txn, 1);
		store_close(s->contract.store);
		s->contract.store = NULL;
	}
}

static void babble(struct fake_etcd *f, const struct fake_request *rq, struct fake_reply *ret)
{
	(void)rq;
	if (f->phase == 0)
		*ret = (struct fake_reply){ FAKE_RAW, 0, "220 mail.example ESMTP\r\n", 0 };
	else if (f->phase == 1)
		*ret = (struct fake_reply){ FAKE_SEND, 200, NULL, 20 * 1024 * 1024 };
	else if (f->phase == 2)
		*ret = (struct fake_reply){ FAKE_SEND, 200, NULL, 5000 };
}

static void test_no_etcd(void **state)
{
	struct stage *s = *state;
	static const int errors[] = { STORE_ETCD_EFOREIGN, -EFBIG, STORE_ETCD_EANSWER };

	s->fakes[0]->on = babble;
	for (int i = 0; i < 3; i++) {
		s->fakes[0]->phase = i;
		stage_open(s, 1);
		must_fail(s, ask_get(&s->contract, "key"), errors[i], false, i == 1 ? "larger" : "is not an etcd");
		store_close(s->contract.store);
		s->contract.store = NULL;
	}
}

static void test_two_clusters(void **state)
{
	struct stage *s = *state;

	s->fakes[1]->cluster = 78;
	stage_open(s, 2);
	must_fail(s, cas(s), STORE_ETCD_ECLUSTER, false, "different etcd clusters");
	must_fail(s, ask_get(&s->contract, "key"), STORE_ETCD_ECLUSTER, false, "members of one");
	assert_int_equal(s->fakes[0]->txn + s->fakes[1]->txn, 0);
}

static void test_no_leader(void **state)
{
	struct stage *s = *state;
	struct answer a;

	s->fakes[0]->leader = 0;
	stage_open(s, 1);
	must_fail(s, cas(s), STORE_ETCD_ELEADER, false, "majority");
	s->fakes[0]->leader = 1;
	a = cas(s);
	assert_int_equal(a.error, 0);
	answer_done(&a);
}

/* --- Tokens --- */

static void guarded(struct fake_etcd *f, const struct fake_request *rq, struct fake_reply *ret)
{
	char line[60];

	snprintf(line, sizeof line, "Authorization: tok.%d\r\n", f->phase);
	if (strstr(rq->path, "status") || strstr(rq->path, "authenticate") || strstr(rq->head, line))
		return;
	ret->how = FAKE_SEND;
	ret->status = 401;
	ret->body = "{\"error\":\"etcdserver: invalid auth token\",\"code\":16}";
}

static void write_password(struct stage *s, mode_t mode)
{
	FILE *file;

	snprintf(s->password_file, sizeof s->password_file, "%.60s/password.%d", getenv("TMPDIR") ?: "/tmp", getpid());
	file = fopen(s->password_file, "w");
	assert_non_null(file);
	fputs("se\"cret\n", file);
	fclose(file);
	chmod(s->password_file, mode);
	s->options.user = "dlock";
	s->options.password_file = s->password_file;
}

static void test_token(void **state)
{
	struct stage *s = *state;
	struct answer a;

	write_password(s, 0640);
	s->fakes[0]->on = guarded;
	s->fakes[0]->phase = 1;
	stage_open(s, 1);
	a = cas(s);
	assert_int_equal(a.error, 0);
	answer_done(&a);
	assert_int_equal(s->fakes[0]->login, 1);
	assert_int_equal(s->fakes[0]->txn, 1);

	/* etcd has forgotten it: nothing was done, so it is asked again, with a new one. */
	s->fakes[0]->phase = 2;
	a = cas(s);
	assert_int_equal(a.error, 0);
	answer_done(&a);
	assert_int_equal(s->fakes[0]->login, 2);
	assert_int_equal(s->fakes[0]->txn, 3);

	/* And will not know any: that ends. */
	s->fakes[0]->phase = 999;
	must_fail(s, cas(s), STORE_ETCD_ELOGIN, false, "token");
}

static void no_guard(struct fake_etcd *f, const struct fake_request *rq, struct fake_reply *ret)
{
	(void)f;
	if (!strstr(rq->path, "authenticate"))
		return;
	ret->status = 400;
	ret->body = f->phase ? "{\"error\":\"etcdserver: authentication failed, invalid user ID or password\",\"code\":3}" :
			       "{\"error\":\"etcdserver: authentication is not enabled\",\"code\":9}";
}

static void test_login_fails(void **state)
{
	struct stage *s = *state;

	write_password(s, 0600);
	s->fakes[0]->on = no_guard;
	stage_open(s, 1);
	must_fail(s, cas(s), STORE_ETCD_ELOGIN, false, "auth enable");
	store_close(s->contract.store);
	s->fakes[0]->phase = 1;
	stage_open(s, 1);
	must_fail(s, cas(s), STORE_ETCD_ELOGIN, false, "wrong user or password");
	/* Not in a hurry: the next one is told the same. */
	must_fail(s, cas(s), STORE_ETCD_ELOGIN, false, "wrong user or password");
	assert_int_equal(s->fakes[0]->login, 2);
	assert_int_equal(s->fakes[0]->txn, 0);
	store_close(s->contract.store);

	chmod(s->password_file, 0644);
	stage_open(s, 1);
	must_fail(s, cas(s), STORE_ETCD_ELOGIN, false, "everybody may read it");
}

/* --- Lists --- */

static const char *const pages[] = {
	/* two keys, more, then: compacted, anew; two keys, more; one key, the end */
	"{\"header\":{\"cluster_id\":\"77\",\"revision\":\"9\"},\"kvs\":[{\"key\":\"L2Rsb2NrL2E=\",\"mod_revision\":\"3\",\"value\":\"MQ==\"}],"
	"\"more\":true,\"count\":\"2\"}",
	"{\"error\":\"etcdserver: mvcc: required revision has been compacted\",\"code\":11}",
	"{\"header\":{\"cluster_id\":\"77\",\"revision\":\"12\"},\"kvs\":[{\"key\":\"L2Rsb2NrL2E=\",\"mod_revision\":\"3\",\"value\":\"MQ==\"}],"
	"\"more\":true,\"count\":\"2\"}",
	"{\"header\":{\"cluster_id\":\"77\",\"revision\":\"15\"},\"kvs\":[{\"key\":\"L2Rsb2NrL2I=\",\"mod_revision\":\"4\",\"value\":\"Mg==\"}],"
	"\"count\":\"1\"}",
};

static char asked[8][300];

static void paged(struct fake_etcd *f, const struct fake_request *rq, struct fake_reply *ret)
{
	if (!strstr(rq->path, "range"))
		return;
	snprintf(asked[f->phase], sizeof asked[0], "%s", rq->body);
	ret->body = pages[f->phase++];
	ret->status = strstr(ret->body, "compacted") ? 400 : 200;
}

static void test_compacted(void **state)
{
	struct stage *s = *state;
	struct answer a;

	s->fakes[0]->on = paged;
	stage_open(s, 1);
	a = ask_list(&s->contract, "");
	assert_int_equal(a.error, 0);
	assert_int_equal(a.n, 2);
	assert_string_equal(a.records[0].key, "a");
	assert_string_equal(a.records[1].key, "b");
	assert_string_equal(a.records[1].value, "2");
	answer_done(&a);
	assert_non_null(strstr(asked[0], "\"revision\":\"0\""));
	assert_non_null(strstr(asked[1], "\"revision\":\"9\""));
	assert_non_null(strstr(asked[2], "\"revision\":\"0\""));
	assert_non_null(strstr(asked[3], "\"revision\":\"12\""));
}

static const char *const back[] = {
	"{\"header\":{\"cluster_id\":\"77\",\"revision\":\"9\"}}",
	"{\"header\":{\"cluster_id\":\"77\",\"revision\":\"9\"}}",
	"{\"header\":{\"cluster_id\":\"77\",\"revision\":\"8\"}}",
	"{\"header\":{\"cluster_id\":\"77\",\"revision\":\"10\"}}",
};

static void goes_back(struct fake_etcd *f, const struct fake_request *rq, struct fake_reply *ret)
{
	if (strstr(rq->path, "range"))
		ret->body = back[f->phase++];
}

static void test_gone_back(void **state)
{
	struct stage *s = *state;
	struct answer a;

	s->fakes[0]->on = goes_back;
	stage_open(s, 1);
	for (int i = 0; i < 2; i++) {
		a = ask_get(&s->contract, "key");
		assert_int_equal(a.error, 0);
		answer_done(&a);
	}
	must_fail(s, ask_get(&s->contract, "key"), STORE_ETCD_EBACK, false, "from revision 9 to 8");
	must_fail(s, cas(s), STORE_ETCD_EBACK, false, "older copy");     /* it stays refused */
	assert_int_equal(s->fakes[0]->txn, 0);
}

static void endless(struct fake_etcd *f, const struct fake_request *rq, struct fake_reply *ret)
{
	(void)f;
	if (strstr(rq->path, "range"))
		ret->body = pages[0];
}

static void test_endless(void **state)
{
	struct stage *s = *state;

	s->fakes[0]->on = endless;
	stage_open(s, 1);
	must_fail(s, ask_list(&s->contract, ""), STORE_ETCD_EANSWER, false, "no sense");
	assert_true(s->fakes[0]->range <= 2);
	must_fail(s, ask_get(&s->contract, "b"), STORE_ETCD_EANSWER, false, "no sense");
}

/* --- The watch --- */

static void no_watch(struct fake_etcd *f, const struct fake_request *rq, struct fake_reply *ret)
{
	if (!strstr(rq->path, "watch"))
		return;
	if (f->phase == 0)
		*ret = (struct fake_reply){ FAKE_CLOSE, 0, NULL, 0 };
	if (f->phase == 1)
		ret->body = "{\"result\":{\"header\":{\"cluster_id\":\"77\"},\"created\":true,\"canceled\":true,"
			    "\"cancel_reason\":\"etcdserver: permission denied\"}}\n";
	if (f->phase == 2)
		ret->how = FAKE_SILENT;
}

/* Where there is no watch, the hint still comes, again and again. */
static void test_no_watch(void **state)
{
	struct stage *s = *state;

	s->fakes[0]->on = no_watch;
	for (int i = 0; i < 3; i++) {
		int hints = 0;

		s->fakes[0]->phase = i;
		stage_open(s, 1);
		for (struct timespec begin = now(); hints < 3 && ms_since(&begin) < PATIENCE_MS;) {
			pump(&s->contract);
			hints += store_changed(s->contract.store);
		}
		assert_int_equal(hints, 3);
		store_close(s->contract.store);
		s->contract.store = NULL;
	}
}

/* --- This host's own limits --- */

static void test_no_descriptors(void **state)
{
	struct stage *s = *state;
	struct rlimit old, none;
	struct answer a = ask_get((stage_open(s, 1), &s->contract), "key"), second = { .calls = 0 };

	assert_int_equal(a.error, 0);
	answer_done(&a);
	fake_stop(s->fakes[0]);
	getrlimit(RLIMIT_NOFILE, &old);
	none = (struct rlimit){ 0, old.rlim_max };
	setrlimit(RLIMIT_NOFILE, &none);
	store_get(s->contract.store, "key", keep, &second);
	for (int i = 0; i < PATIENCE_MS / 10 && !second.calls; i++) {
		usleep(10000);
		store_ready(s->contract.store);
	}
	setrlimit(RLIMIT_NOFILE, &old);
	must_fail(s, second, -EMFILE, false, "file descriptors");
}

static void test_nobody(void **state)
{
	struct stage *s = *state;

	stage_open(s, 1);
	fake_stop(s->fakes[0]);
	must_fail(s, cas(s), STORE_ETCD_EREFUSED, false, "Is etcd running there?");
	store_close(s->contract.store);
	s->options.url = "etcd://no-such-host.invalid";
	assert_int_equal(store_open(&s->options, &s->contract.store, &s->why), 0);
	must_fail(s, cas(s), STORE_ETCD_ENAME, false, "name is not found");
}

/* However long it was away. */
static void test_back(void **state)
{
	struct stage *s = *state;
	struct answer a = { .error = -1 };

	stage_open(s, 1);
	a = cas(s);
	assert_int_equal(a.error, 0);
	answer_done(&a);
	fake_stop(s->fakes[0]);
	for (int i = 0; i < 4; i++)
		must_fail(s, ask_get(&s->contract, "key"), STORE_ETCD_EREFUSED, false, "refused");
	fake_again(s->fakes[0]);
	a = cas(s);
	assert_int_equal(a.error, 0);
	answer_done(&a);
}

static void must_not_open(struct store_options o, const char *says)
{
	struct store_why why = { "" };
	struct store *store = NULL;

	assert_int_equal(store_open(&o, &store, &why), -EINVAL);
	if (!strstr(why.text, says))
		print_message("# %s\n", why.text);
	assert_non_null(strstr(why.text, says));
}

static void test_options(void **state)
{
	(void)state;
	must_not_open((struct store_options){ .url = "etcd://" }, "host's name");
	must_not_open((struct store_options){ .url = "etcd://h:0" }, "port");
	must_not_open((struct store_options){ .url = "etcd://h:70000" }, "port");
	must_not_open((struct store_options){ .url = "etcd://h:" }, "port");
	must_not_open((struct store_options){ .url = "etcd://h,h" }, "twice");
	must_not_open((struct store_options){ .url = "etcd://h,,g" }, "host's name");
	must_not_open((struct store_options){ .url = "etcd://me:secret@h" }, "StoreUser=");
	must_not_open((struct store_options){ .url = "etcd://me@h" }, "StoreUser=");
	must_not_open((struct store_options){ .url = "etcd://::1" }, "host's name");
	must_not_open((struct store_options){ .url = "etcd://[::1" }, "bracket");
	must_not_open((struct store_options){ .url = "etcd://[::1]x" }, "bracket");
	must_not_open((struct store_options){ .url = "etcd://[::g]" }, "IPv6");
	must_not_open((struct store_options){ .url = "etcd://h/a//b" }, "prefix");
	must_not_open((struct store_options){ .url = "etcd://h/a b" }, "prefix");
	must_not_open((struct store_options){ .url = "etcd:h" }, "etcd://h1");
	must_not_open((struct store_options){ .url = "etcd://h", .ca = "/dev/null" }, "etcds://");
	must_not_open((struct store_options){ .url = "etcds://h", .ca = "/no/such" }, "StoreCA=/no/such");
	must_not_open((struct store_options){ .url = "etcds://h", .cert = "/dev/null" }, "belong together");
	must_not_open((struct store_options){ .url = "etcd://h", .user = "u" }, "belong together");

	struct store_options good = { .url = "etcds://[::1]:3,h.example:4,10.0.0.1/a/b/" };
	struct store_why why;
	struct store *store;

	assert_int_equal(store_open(&good, &store, &why), 0);
	store_close(store);
}

#define OWN(title, fn) STORY(title, fn, setup, teardown)
#define LIMITED(title, fn) STORY(title, fn, setup_short, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		OWN("a cas whose connection closes without an answer is in doubt, and was sent once", test_cas_once),
		OWN("a cas whose answer breaks off is in doubt", test_cas_half),
		LIMITED("who does not answer costs no more than the limit", test_silent),
		LIMITED("a read that gets no answer goes to the next host", test_read_elsewhere),
		STORY("who is slow is waited for: reads come through where each of them takes half of the limit", test_dawdling, setup_dawdling, teardown),
		OWN("closing tells a cas under way that it is in doubt", test_close_in_doubt),
		OWN("each error of etcd has its number, its sentence, and its doubt", test_sayings),
		LIMITED("who is no etcd is told so", test_no_etcd),
		OWN("hosts of two clusters are refused, for good", test_two_clusters),
		LIMITED("a host without a leader is not asked, until it has one", test_no_leader),
		OWN("a token that etcd has forgotten is replaced, and nothing is done twice", test_token),
		OWN("each way in which a login fails has its sentence", test_login_fails),
		OWN("an etcd that has gone back is refused", test_gone_back),
		OWN("a list whose revision is compacted away begins anew", test_compacted),
		OWN("a list that does not end, and a record not asked for, are nonsense", test_endless),
		LIMITED("without a watch the hint goes up with each attempt", test_no_watch),
		OWN("without descriptors a request fails and says so", test_no_descriptors),
		LIMITED("nobody there, and no such name", test_nobody),
		LIMITED("an etcd that is back is noticed soon", test_back),
		OWN("options that do not fit are refused", test_options),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("etcd, a fake one", tests, NULL, NULL);
}
