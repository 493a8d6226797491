/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Connections between nodes in TLS: who gets in, who does not, and what both sides say about it. */
#include "net_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <gnutls/gnutls.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "../../daemon/net/greet.h"
#include "tls_certs.h"

#define A 100
#define B 200

static struct side a, b;

/* The whole process's wall clock, TLS library included; the loop's clocks do not know it. */
static time_t clock_offset;

time_t time(time_t *ret)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_sec += clock_offset;
	if (ret)
		*ret = ts.tv_sec;
	return ts.tv_sec;
}

static struct tls_keys *load(const struct tls_files *f)
{
	char why[TLS_WHY_MAX] = "";
	struct tls_keys *k = NULL;
	int r = tls_keys_load(f, &k, why);

	if (r < 0)
		fprintf(stderr, "%s\n", why);
	assert_int_equal(r, 0);
	assert_non_null(k);
	return k;
}

static struct tls_keys *load_shared(const char *file)
{
	return load(&(struct tls_files){ .key = file });
}

static struct tls_keys *load_cert(const char *name, const char *ca, const char *crl)
{
	char cert[64], key[64], ca_file[64];

	snprintf(cert, sizeof cert, "%s.crt", name);
	snprintf(key, sizeof key, "%s.key", name);
	snprintf(ca_file, sizeof ca_file, "%s.crt", ca);
	return load(&(struct tls_files){ .cert = cert, .cert_key = key, .ca = ca_file, .crl = crl });
}

static void open_with(const struct tls_keys *ka, const struct tls_keys *kb)
{
	side_open(&a, "alpha", A, ka, NULL, NULL);
	side_open(&b, "beta", B, kb, NULL, NULL);
	assert_int_equal(net_link(a.net, B, side_address(&b)), 0);       /* a dials */
}

static void close_with(struct tls_keys *ka, struct tls_keys *kb)
{
	side_close(&a);
	side_close(&b);
	tls_keys_free(ka);
	tls_keys_free(kb);
}

/* The dialler, a, and the acceptor, b, each say their part; nobody is up. */
static void expect_refusal(struct tls_keys *ka, struct tls_keys *kb, const char *a_says, const char *b_says)
{
	nsec_t end = boottime() + PATIENCE;

	open_with(ka, kb);
	while (!(side_said(&a, a_says) && side_said(&b, b_says)) && boottime() < end)
		run_for(5 * NSEC_PER_MSEC);
	if (!side_said(&a, a_says) || !side_said(&b, b_says)) {
		side_show_log(&a);
		side_show_log(&b);
		fail_msg("expected \"%s\" and \"%s\"", a_says, b_says);
	}
	assert_int_equal(a.ups + b.ups, 0);
	close_with(ka, kb);
}

static void exchange(void)
{
	uint8_t f[NET_FRAME_MAX];
	uint64_t sum = 0;

	run_until(a.conn && a.conn == b.conn);
	for (unsigned i = 0; i < 5000; i++) {
		frame_make(f, 32 + i % 417, (uint8_t)i);
		sum += (uint64_t)(30 + i % 417) * (uint8_t)i;
		net_send(a.net, B, a.conn, f, 32 + i % 417);
		net_send(b.net, A, b.conn, f, 32 + i % 417);
	}
	run_until(a.frames == 5000 && b.frames == 5000);
	assert_true(a.frame_sum == sum && b.frame_sum == sum);
	assert_int_equal(a.downs + b.downs, 0);
}

/* --- A shared key --- */

static void one_key_lets_in(void **state)
{
	struct tls_keys *ka, *kb;
	struct net_peer_info i, after;
	uint8_t f[64];

	(void)state;
	key_make("key", 'a', 0600);
	ka = load_shared("key");
	kb = load_shared("key");
	open_with(ka, kb);
	exchange();
	peer_of(&a, B, &i);
	assert_non_null(strstr(i.security, "TLS 1.3, AES-128-GCM, pre-shared key"));
	frame_make(f, 64, 1);
	for (int k = 0; k < 100; k++)
		net_send(a.net, B, a.conn, f, 64);
	run_until(b.frames == 5100);
	peer_of(&a, B, &after);
	assert_true(after.bytes_out - i.bytes_out < 6400 + 200);         /* one record, not a hundred */
	close_with(ka, kb);
}

static void another_key_does_not(void **state)
{
	(void)state;
	key_make("key", 'a', 0600);
	key_make("other", 'b', 0600);
	expect_refusal(load_shared("other"), load_shared("key"), "it refuses our cluster key", "it has another cluster key");
}

static void refusal_that_goes_on_is_told_of_once(void **state)
{
	struct tls_keys *ka, *kb;
	struct net_stats st = { 0 };
	nsec_t end = boottime() + 20 * NSEC_PER_SEC;

	(void)state;
	key_make("key", 'a', 0600);
	key_make("other", 'b', 0600);
	ka = load_shared("other");
	kb = load_shared("key");
	open_with(ka, kb);
	while (st.refused < 3 && boottime() < end) {
		run_for(5 * NSEC_PER_MSEC);
		net_stats(b.net, &st);
	}
	assert_true(st.refused >= 3);
	assert_int_equal(side_says(&b, "it has another cluster key"), 1);
	close_with(ka, kb);
}

static void keys_are_changed_one_node_after_the_other(void **state)
{
	struct tls_keys *ka, *kb, *both;
	struct net_peer_info i;
	FILE *f;

	(void)state;
	key_make("old", 'a', 0600);
	key_make("both", 'b', 0600);
	f = fopen("both", "ae");
	fprintf(f, "# the former one\n");
	for (int i = 0; i < 64; i++)
		fputc('a', f);
	fputc('\n', f);
	fclose(f);
	ka = load_shared("old");
	kb = load_shared("both");
	assert_non_null(strstr(tls_keys_text(kb), "; accepts also "));
	assert_null(strstr(tls_keys_text(ka), "accepts"));
	open_with(ka, kb);
	exchange();
	both = load_shared("both");
	net_keys(a.net, both);
	tls_keys_free(ka);
	ka = both;
	assert_int_equal(a.downs, 0);            /* what is connected stays so */
	peer_of(&a, B, &i);
	assert_non_null(strstr(i.security, "pre-shared key"));
	a.conn = 0;
	net_session(a.net, A, 2);
	run_until(a.conn && a.conn == b.conn);
	close_with(ka, kb);
}

/* --- Certificates --- */

static void make_ca(void)
{
	cert_make(&(struct cert_wish){ .file = "ca" });
	cert_make(&(struct cert_wish){ .file = "alpha", .ca = "ca", .dns = "alpha", .serial = 2 });
	cert_make(&(struct cert_wish){ .file = "beta", .ca = "ca", .dns = "beta.example.org", .serial = 3 });
}

static void certificates_of_one_ca_let_in(void **state)
{
	struct tls_keys *ka, *kb;
	struct net_peer_info i;

	(void)state;
	make_ca();
	ka = load_cert("alpha", "ca", NULL);
	kb = load_cert("beta", "ca", NULL);
	open_with(ka, kb);
	exchange();
	peer_of(&a, B, &i);
	assert_non_null(strstr(i.security, "certificates"));
	close_with(ka, kb);
	cert_make(&(struct cert_wish){ .file = "any", .ca = "ca" });     /* one without names is for every node */
	ka = load_cert("any", "ca", NULL);
	kb = load_cert("any", "ca", NULL);
	open_with(ka, kb);
	exchange();
	close_with(ka, kb);
}

static void certificate_of_another_ca_is_refused(void **state)
{
	(void)state;
	make_ca();
	cert_make(&(struct cert_wish){ .file = "ca2" });
	cert_make(&(struct cert_wish){ .file = "alpha2", .ca = "ca2" });
	expect_refusal(load_cert("alpha2", "ca2", NULL), load_cert("beta", "ca", NULL), "its certificate is of another CA than our CA=",
		       "it does not accept our certificate");
	/* It trusts us; we do not trust it. */
	{
		FILE *f = fopen("cas.crt", "we"), *g;
		char buf[8192];
		size_t n;

		for (int i = 0; i < 2; i++) {
			g = fopen(i ? "ca2.crt" : "ca.crt", "re");
			n = fread(buf, 1, sizeof buf, g);
			fwrite(buf, 1, n, f);
			fclose(g);
		}
		fclose(f);
	}
	expect_refusal(load_cert("alpha2", "cas", NULL), load_cert("beta", "ca", NULL), "it does not accept our certificate",
		       "its certificate is of another CA than our CA=");
}

static void expired_certificate_is_refused(void **state)
{
	struct tls_keys *ka, *kb;
	char why[TLS_WHY_MAX];

	(void)state;
	make_ca();
	cert_make(&(struct cert_wish){ .file = "short", .ca = "ca", .from = -7200, .until = -3600 });
	assert_int_equal(tls_keys_load(&(struct tls_files){ .cert = "short.crt", .cert_key = "short.key", .ca = "ca.crt" }, &ka, why),
			 -EKEYEXPIRED);
	assert_non_null(strstr(why, "Cert=short.crt has expired"));
	clock_offset = -5400;                    /* it was good when it was loaded */
	ka = load_cert("short", "ca", NULL);
	kb = load_cert("short", "ca", NULL);
	clock_offset = 0;
	expect_refusal(ka, load_cert("beta", "ca", NULL), "it says that our certificate has expired", "its certificate has expired");
	expect_refusal(load_cert("alpha", "ca", NULL), kb, "its certificate has expired", "it says that our certificate has expired");
}

static void revoked_certificate_is_refused(void **state)
{
	(void)state;
	make_ca();
	crl_make("crl", "ca", 2);
	expect_refusal(load_cert("alpha", "ca", NULL), load_cert("beta", "ca", "crl"), "it says that our certificate is revoked",
		       "its certificate is revoked by our CRL=");
}

static void certificate_of_another_node_is_refused(void **state)
{
	(void)state;
	make_ca();
	cert_make(&(struct cert_wish){ .file = "gamma", .ca = "ca", .dns = "gamma" });
	expect_refusal(load_cert("gamma", "ca", NULL), load_cert("beta", "ca", NULL), "your certificate does not name alpha",
		       "its certificate does not name alpha");
	expect_refusal(load_cert("alpha", "ca", NULL), load_cert("gamma", "ca", NULL), "its certificate does not name beta",
		       "your certificate does not name beta");
	cert_make(&(struct cert_wish){ .file = "alphabet", .ca = "ca", .dns = "alphabet" });
	expect_refusal(load_cert("alphabet", "ca", NULL), load_cert("beta", "ca", NULL), "your certificate does not name alpha",
		       "its certificate does not name alpha");
}

/* --- Those who do not speak the same --- */

static void key_and_certificate_do_not_fit(void **state)
{
	(void)state;
	make_ca();
	key_make("key", 'a', 0600);
	expect_refusal(load_shared("key"), load_cert("beta", "ca", NULL), "and that it uses Key= too", "see that it uses Cert= too");
	expect_refusal(load_cert("alpha", "ca", NULL), load_shared("key"), "see that it uses Cert= too", "see that Key= holds the same");
}

static void plain_text_is_refused(void **state)
{
	(void)state;
	key_make("key", 'a', 0600);
	expect_refusal(NULL, load_shared("key"), "it demands TLS, and you speak plain text", "it speaks plain text, and this node demands TLS");
	expect_refusal(load_shared("key"), NULL, "it refuses, in plain text: it has no key, and you speak TLS",
		       "it speaks TLS, and this node has no key");
}

/* A client of the test's own hand: whether anything is said to it after its greeting. cert NULL: it shows none. */
static bool let_in(const char *priority, const char *cert, const char *key)
{
	struct greeting hello = { .kind = GREET_HELLO, .version_min = 1, .version_max = 1, .session = 7, .to = A, .incarnation = 1,
				  .cluster = "test", .node = "beta" };
	gnutls_certificate_credentials_t cred;
	nsec_t end = boottime() + PATIENCE;
	uint8_t buf[GREET_MAX];
	gnutls_session_t s;
	int fd = raw_dial(&a), r;
	size_t n;

	assert_int_equal(gnutls_certificate_allocate_credentials(&cred), 0);
	if (cert)
		assert_int_equal(gnutls_certificate_set_x509_key_file(cred, cert, key, GNUTLS_X509_FMT_PEM), 0);
	assert_int_equal(gnutls_init(&s, GNUTLS_CLIENT | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL), 0);
	assert_int_equal(gnutls_priority_set_direct(s, priority, NULL), 0);
	assert_int_equal(gnutls_credentials_set(s, GNUTLS_CRD_CERTIFICATE, cred), 0);
	fcntl(fd, F_SETFL, O_NONBLOCK);
	gnutls_transport_set_int(s, fd);
	while ((r = gnutls_handshake(s)) < 0 && !gnutls_error_is_fatal(r) && boottime() < end)
		run_for(2 * NSEC_PER_MSEC);
	if (r == 0) {
		n = greet_encode(&hello, buf);
		gnutls_record_send(s, buf, n);
		while ((r = (int)gnutls_record_recv(s, buf, sizeof buf)) < 0 && !gnutls_error_is_fatal(r) && boottime() < end)
			run_for(2 * NSEC_PER_MSEC);
	}
	gnutls_deinit(s);
	gnutls_certificate_free_credentials(cred);
	close(fd);
	return r > 0;
}

static void client_without_a_certificate_is_refused(void **state)
{
	struct tls_keys *k;

	(void)state;
	make_ca();
	k = load_cert("alpha", "ca", NULL);
	side_open(&a, "alpha", A, k, NULL, NULL);
	assert_true(let_in("NORMAL", "beta.crt", "beta.key"));   /* so the client is one that could get in */
	assert_false(let_in("NORMAL", NULL, NULL));
	assert_true(side_said(&a, "it shows no certificate that we accept"));
	assert_false(let_in("NORMAL:-VERS-ALL:+VERS-TLS1.2", "beta.crt", "beta.key"));
	side_close(&a);
	tls_keys_free(k);
}

/* What TLS 1.2 would say first. */
static void older_tls_is_refused(void **state)
{
	static const uint8_t hello12[] = {
		0x16, 3, 1, 0, 47, 1, 0, 0, 43, 3, 3,
		1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32,
		0, 0, 4, 0xc0, 0x2f, 0xc0, 0x30, 1, 0,
	};
	struct tls_keys *k;
	uint8_t buf[256];
	int fd, r;

	(void)state;
	make_ca();
	k = load_cert("alpha", "ca", NULL);
	side_open(&a, "alpha", A, k, NULL, NULL);
	fd = raw_dial(&a);
	assert_int_equal(send(fd, hello12, sizeof hello12, 0), sizeof hello12);
	r = raw_read(fd, buf, sizeof buf, NSEC_PER_SEC);
	assert_true(r >= 7 && buf[0] == 0x15);   /* an alert */
	assert_true(a.log_n == 1);
	close(fd);
	side_close(&a);
	tls_keys_free(k);
}

static void slow_handshake_is_cut_off(void **state)
{
	struct tls_keys *k;
	nsec_t begin;
	int fd;
	char c;

	(void)state;
	key_make("key", 'a', 0600);
	k = load_shared("key");
	side_open(&a, "alpha", A, k, NULL, NULL);
	fd = raw_dial(&a);
	begin = boottime();
	assert_int_equal(send(fd, "\x16\x03\x01\x01\x00\x01", 6, 0), 6);
	while (boottime() < begin + PATIENCE) {  /* a byte now and then */
		if (raw_read(fd, &c, 1, 200 * NSEC_PER_MSEC) >= 0)
			break;
		send(fd, "\0", 1, MSG_NOSIGNAL);
	}
	assert_true(boottime() - begin < NET_GREET_SPAN + PATIENCE / 2);
	assert_true(side_said(&a, "did not finish the TLS handshake in time"));
	close(fd);
	side_close(&a);
	tls_keys_free(k);
}

static void garbage_in_the_stream_closes_it(void **state)
{
	struct tls_keys *ka, *kb;
	uint64_t first;

	(void)state;
	key_make("key", 'a', 0600);
	ka = load_shared("key");
	kb = load_shared("key");
	open_with(ka, kb);
	run_until(a.conn && a.conn == b.conn);
	first = a.conn;
	/* somebody in the middle: the socket is one of ours, found by what it is connected to */
	for (int fd = 3; fd < 64; fd++) {
		struct sockaddr_storage s;
		socklen_t n = sizeof s;

		if (getpeername(fd, (struct sockaddr *)&s, &n) == 0 && s.ss_family == AF_INET) {
			assert_int_equal(send(fd, "\x17\x03\x03\x00\x20 this is not what the key makes of it", 37, 0), 37);
			break;
		}
	}
	run_until(a.conn > first && a.conn == b.conn);   /* broken, and connected anew */
	assert_true(side_said(&a, "TLS: ") || side_said(&b, "TLS: "));
	close_with(ka, kb);
}

/* --- Files --- */

static void files_are_checked(void **state)
{
	static const struct { struct tls_files f; int error; const char *why; } bad[] = {
		{ { .key = "open" }, -EPERM, "may be read by everybody" },
		{ { .key = "none" }, -ENOENT, "Key=none: No such file" },
		{ { .key = "empty" }, -EINVAL, "Key=empty is empty" },
		{ { .key = "short" }, -EINVAL, "line 4 is no key of 64 hexadecimal digits" },
		{ { .key = "key", .cert = "a" }, -EINVAL, "two ways to do the same" },
		{ { .cert = "alpha.crt" }, -EINVAL, "CertKey= is missing" },
		{ { .cert = "alpha.crt", .cert_key = "alpha.key" }, -EINVAL, "CA= is missing" },
		{ { .cert = "alpha.crt", .cert_key = "beta.key", .ca = "ca.crt" }, -EINVAL, "does not belong to Cert=" },
		{ { .cert = "alpha.crt", .cert_key = "alpha.key", .ca = "key" }, -EINVAL, "no certificate in PEM" },
		{ { .cert = "alpha.crt", .cert_key = "alpha.key", .ca = "ca2.crt" }, -EINVAL, "is none that CA=" },
		{ { .crl = "crl" }, -EINVAL, "CRL= is of certificates" },
		{ { .key = "." }, -EINVAL, "no regular file" },
	};
	struct tls_keys *k = (void *)1;
	char why[TLS_WHY_MAX];

	(void)state;
	make_ca();
	cert_make(&(struct cert_wish){ .file = "ca2" });
	key_make("open", 'a', 0644);
	key_make("key", 'a', 0600);
	fclose(fopen("empty", "we"));
	FILE *f = fopen("short", "we");
	fputs("\n# of prod\r\n\nabc\n", f);
	fclose(f);
	chmod("empty", 0600);
	chmod("short", 0600);
	for (size_t i = 0; i < LENGTH(bad); i++) {
		why[0] = 0;
		assert_int_equal(tls_keys_load(&bad[i].f, &k, why), bad[i].error);
		if (!strstr(why, bad[i].why))
			fail_msg("\"%s\" does not say \"%s\"", why, bad[i].why);
		assert_ptr_equal(k, (void *)1);
	}
	assert_int_equal(tls_keys_load(&(struct tls_files){ .key = "" }, &k, why), 0);
	assert_null(k);
	assert_int_equal(tls_listen_check("0.0.0.0:7420", &(struct tls_files){ 0 }, why), -EPERM);
	assert_non_null(strstr(why, "dlock keygen"));
	assert_int_equal(tls_listen_check("db1:7420", &(struct tls_files){ 0 }, why), -EPERM);
	assert_int_equal(tls_listen_check("127.0.0.1:7420", &(struct tls_files){ 0 }, why), 0);
	assert_int_equal(tls_listen_check("[::1]", &(struct tls_files){ 0 }, why), 0);
	assert_int_equal(tls_listen_check("*", &(struct tls_files){ .key = "key" }, why), 0);
	assert_int_equal(tls_listen_check(NULL, &(struct tls_files){ 0 }, why), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		story("one shared key lets in, and frames of a turn go in one record", one_key_lets_in),
		story("another key is refused, by name, on both sides", another_key_does_not),
		story("a refusal that goes on is told of once", refusal_that_goes_on_is_told_of_once),
		story("keys can be changed one node after the other", keys_are_changed_one_node_after_the_other),
		story("certificates of one CA let in", certificates_of_one_ca_let_in),
		story("a certificate of another CA is refused, whichever side sees it", certificate_of_another_ca_is_refused),
		story("an expired certificate is refused, when loaded and by the peer", expired_certificate_is_refused),
		story("a revoked certificate is refused", revoked_certificate_is_refused),
		story("a certificate of another node's name is refused", certificate_of_another_node_is_refused),
		story("a key here and a certificate there do not fit, and both say so", key_and_certificate_do_not_fit),
		story("plain text is refused, on both sides with what to do", plain_text_is_refused),
		story("a client that shows no certificate is refused, and one that speaks TLS 1.2", client_without_a_certificate_is_refused),
		story("who begins as TLS 1.2 does gets an alert", older_tls_is_refused),
		story("a handshake that trickles is cut off", slow_handshake_is_cut_off),
		story("what somebody puts into the stream closes it", garbage_in_the_stream_closes_it),
		story("files of keys and certificates are checked", files_are_checked),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
