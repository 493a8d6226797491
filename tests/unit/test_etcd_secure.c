/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The engine on a real etcd that asks who is there: by certificate, and by password.
 */
#include "etcd_rig.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "store/etcd.h"

static struct etcd_rig rig;

/* A store that is open, once etcd has had its election. */
static int setup(void **state)
{
	struct etcd_bench *b = etcd_bench_new(&rig);

	if (!b)
		return -1;
	*state = b;
	return 0;
}

static int stop(void **state)
{
	(void)state;
	rig_stop(&rig);
	return 0;
}

static void must_work(struct etcd_bench *b)
{
	struct answer a = { .error = -1 };
	uint64_t version;

	for (int i = 0; i < 10 && a.error; i++) {
		answer_done(&a);
		a = ask_get(&b->contract, "key");
	}
	if (a.error)
		print_message("# %d %s\n", a.error, store_explain(b->contract.store));
	assert_int_equal(a.error, 0);
	version = put(&b->contract, "key", a.version, "one");
	answer_done(&a);
	version = put(&b->contract, "key", version, "two");
	expect_text(&b->contract, "key", "two");
	put(&b->contract, "key", version, NULL);
	expect_text(&b->contract, "key", NULL);
}

static void must_fail(struct etcd_bench *b, int error, const char *says)
{
	struct answer a = ask_cas(&b->contract, "key", 0, "x", 1);
	const char *why = store_explain(b->contract.store);

	if (a.error != error || !strstr(why, says))
		print_message("# %d %s\n", a.error, why);
	/* etcd may close before its alert has been read; the sentence then guesses right. */
	if (a.error != STORE_ETCD_ECONN)
		assert_int_equal(a.error, error);
	assert_non_null(strstr(why, says));
	answer_done(&a);
}

static bool watches(struct etcd_bench *b)
{
	struct store_etcd_info info = { .watching = false };

	for (int i = 0; i < 30 && !info.watching; i++) {
		etcd_pump(&b->contract);
		store_etcd_info(b->contract.store, &info);
	}
	return info.watching;
}

/* --- Certificates --- */

static int start_tls(void **state)
{
	(void)state;
	rig_start(&rig, 1, RIG_TLS);
	return 0;
}

static void test_tls(void **state)
{
	struct etcd_bench *b = *state;

	etcd_bench_open(b);
	must_work(b);
	assert_true(watches(b));
}

static void test_wrong_authority(void **state)
{
	struct etcd_bench *b = *state;

	snprintf(b->ca, sizeof b->ca, "%s/other.pem", rig.dir);
	etcd_bench_open(b);
	must_fail(b, STORE_ETCD_ETLS, "StoreCA=");
	etcd_bench_close(b);
	/* The system's authorities do not know it either. */
	b->options.ca = NULL;
	etcd_bench_open(b);
	must_fail(b, STORE_ETCD_ETLS, "StoreCA=");
}

static void test_wrong_name(void **state)
{
	struct etcd_bench *b = *state;

	snprintf(b->url, sizeof b->url, "etcds://localhost:%u", rig.members[0].client_port);
	etcd_bench_open(b);
	must_fail(b, STORE_ETCD_ETLS, "is it for this name");
}

static void test_no_certificate(void **state)
{
	struct etcd_bench *b = *state;

	b->options.cert = b->options.cert_key = NULL;
	etcd_bench_open(b);
	must_fail(b, STORE_ETCD_ETLS, "StoreCert=");
	etcd_bench_close(b);

	snprintf(b->cert, sizeof b->cert, "%s/other.pem", rig.dir);
	snprintf(b->key, sizeof b->key, "%s/other.key", rig.dir);
	b->options.cert = b->cert;
	b->options.cert_key = b->key;
	etcd_bench_open(b);
	must_fail(b, STORE_ETCD_ETLS, "StoreCert=");
}

static void test_wrong_file(void **state)
{
	struct etcd_bench *b = *state;

	snprintf(b->key, sizeof b->key, "%s/other.key", rig.dir);
	etcd_bench_open(b);
	must_fail(b, STORE_ETCD_ETLS, "cannot be used");
}

static void test_plain_to_tls(void **state)
{
	struct etcd_bench *b = *state;

	snprintf(b->url, sizeof b->url, "etcd://127.0.0.1:%u", rig.members[0].client_port);
	b->options.ca = b->options.cert = b->options.cert_key = NULL;
	etcd_bench_open(b);
	must_fail(b, STORE_ETCD_ETLS, "etcds://");
}

/* --- Passwords --- */

static int start_auth(void **state)
{
	struct etcd_bench b;

	(void)state;
	rig_start(&rig, 1, 0);
	etcd_bench_init(&b, &rig);
	etcd_bench_open(&b);
	must_work(&b);
	etcd_bench_close(&b);
	return rig_ctl(&rig, "user add root:rootpw") || rig_ctl(&rig, "user grant-role root root") ||
	       rig_ctl(&rig, "user add dlock:secret") || rig_ctl(&rig, "role add dlock") ||
	       rig_ctl(&rig, "role grant-permission dlock --prefix=true readwrite /test/") ||
	       rig_ctl(&rig, "user grant-role dlock dlock") || rig_ctl(&rig, "auth enable");
}

static void use_password(struct etcd_bench *b, const char *text)
{
	FILE *file;

	snprintf(b->password_file, sizeof b->password_file, "%s/password", rig.dir);
	file = fopen(b->password_file, "w");
	assert_non_null(file);
	fprintf(file, "%s\n", text);
	fclose(file);
	chmod(b->password_file, 0600);
	b->options.user = "dlock";
	b->options.password_file = b->password_file;
}

static void test_password(void **state)
{
	struct etcd_bench *b = *state;

	use_password(b, "secret");
	etcd_bench_open(b);
	must_work(b);
	assert_true(watches(b));
}

static void test_wrong_password(void **state)
{
	struct etcd_bench *b = *state;

	use_password(b, "guess");
	etcd_bench_open(b);
	must_fail(b, STORE_ETCD_ELOGIN, "wrong user or password");
}

static void test_no_user(void **state)
{
	struct etcd_bench *b = *state;

	etcd_bench_open(b);
	must_fail(b, STORE_ETCD_ELOGIN, "StoreUser=");
}

static void test_no_permission(void **state)
{
	struct etcd_bench *b = *state;

	use_password(b, "secret");
	snprintf(b->url, sizeof b->url, "etcd://127.0.0.1:%u/elsewhere", rig.members[0].client_port);
	etcd_bench_open(b);
	must_fail(b, STORE_ETCD_EPERM, "/elsewhere/");
}

/* A member that restarts has forgotten all tokens. */
static void test_token_lost(void **state)
{
	struct etcd_bench *b = *state;

	use_password(b, "secret");
	etcd_bench_open(b);
	must_work(b);
	rig_member_signal(&rig, 0, SIGKILL);
	rig_member_start(&rig, 0);
	must_work(b);
	assert_true(watches(b));
}

#define OWN(title, fn) STORY(title, fn, setup, etcd_bench_end)

int main(void)
{
	const struct CMUnitTest tls[] = {
		OWN("with both sides' certificates all works, and the watch too", test_tls),
		OWN("an etcd of another authority is refused", test_wrong_authority),
		OWN("a certificate for another name is refused", test_wrong_name),
		OWN("an etcd that refuses our certificate is understood", test_no_certificate),
		OWN("a key that does not fit is named", test_wrong_file),
		OWN("plain text to an etcd with TLS is understood", test_plain_to_tls),
	};
	const struct CMUnitTest auth[] = {
		OWN("with the password all works, and the watch too", test_password),
		OWN("a wrong password is told", test_wrong_password),
		OWN("that there is need for one is told", test_no_user),
		OWN("keys that the user may not use are named", test_no_permission),
		OWN("a token that is lost with a restart is replaced", test_token_lost),
	};
	int r;

	if (!rig_possible())
		return 0;
	cmocka_set_message_output(CM_OUTPUT_TAP);
	r = cmocka_run_group_tests_name("etcd, TLS", tls, start_tls, stop);
	return r + cmocka_run_group_tests_name("etcd, passwords", auth, start_auth, stop);
}
