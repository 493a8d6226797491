/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "etcd_rig.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store/etcd.h"

#define ETCD "/usr/bin/etcd"

bool rig_possible(void)
{
	if (access(ETCD, X_OK) == 0 && access("/usr/bin/etcdctl", X_OK) == 0)
		return true;
	printf("1..0 # SKIP etcd is not installed: scripts/deps check\n");
	return false;
}

#define PORTS_EACH 20u

static bool port_is_free(uint16_t port)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1, r;
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port) };

	assert_true(fd >= 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);        /* as etcd does */
	r = bind(fd, (struct sockaddr *)&a, sizeof a);
	close(fd);
	return r == 0;
}

/*
 * Below the ports that outgoing connections get, so that it stays free until etcd takes it; and each process has some of its own, so
 * that no other test takes it either, nor is one given twice.
 */
static unsigned free_port(void)
{
	static unsigned next;

	for (unsigned tries = 0; tries < 20000; tries++, next++) {
		unsigned port = 10000 + ((unsigned)getpid() * PORTS_EACH + next) % 20000;

		if (port_is_free((uint16_t)port)) {
			next++;
			return port;
		}
	}
	fail_msg("no port is free");
	return 0;
}

static void run(const char *command)
{
	int r = system(command);

	if (r != 0)
		print_message("# %s: %d\n", command, r);
	assert_int_equal(r, 0);
}

/* An authority, and one certificate of it for everybody. */
static void make_certificates(const char *dir)
{
	char command[1400];

	snprintf(command, sizeof command,
		 "cd %s && exec 2>openssl.log && "
		 "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem -days 2 "
		 "-subj /CN=ca && "
		 "openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out node.csr -subj /CN=node && "
		 "printf 'subjectAltName=IP:127.0.0.1\\n' >ext && "
		 "openssl x509 -req -in node.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out cert.pem -days 2 -extfile ext && "
		 "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout other.key -out other.pem -days 2 "
		 "-subj /CN=other", dir);
	run(command);
}

static void exec_member(struct etcd_rig *r, int i)
{
	bool quick = r->n == 1 || r->flags & RIG_QUICK;
	const char *s = r->flags & RIG_TLS ? "s" : "", *beat = quick ? "50" : "500", *election = quick ? "500" : "5000";
	char name[8], data[120], client[80], peer[80], all[300] = "", tls[3][160], log[120];
	char *argv[40] = { ETCD }, **a = argv + 1;
	int fd;

	snprintf(name, sizeof name, "m%d", i);
	snprintf(data, sizeof data, "%s/m%d", r->dir, i);
	snprintf(log, sizeof log, "%s/m%d.log", r->dir, i);
	snprintf(client, sizeof client, "http%s://127.0.0.1:%u", s, r->members[i].client_port);
	snprintf(peer, sizeof peer, "http://127.0.0.1:%u", r->members[i].peer_port);
	for (int k = 0; k < r->n; k++)
		snprintf(all + strlen(all), sizeof all - strlen(all), "%sm%d=http://127.0.0.1:%u", k ? "," : "", k,
			 r->members[k].peer_port);
	const char *const given[] = {
		"--name", name, "--data-dir", data, "--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", all,
		"--heartbeat-interval", beat, "--election-timeout", election, "--logger", "zap", "--log-outputs", "stderr",
		"--log-level", "error", "--bcrypt-cost", "4",
		/* The host lives on when a member dies; and a disk that others use too is not what is tested. */
		"--unsafe-no-fsync",
	};
	for (size_t k = 0; k < sizeof given / sizeof *given; k++)
		*a++ = (char *)given[k];
	if (r->flags & RIG_SMALL) {
		*a++ = "--quota-backend-bytes";
		*a++ = "200000";
	}
	if (r->flags & RIG_TLS) {
		const char *const options[] = { "--trusted-ca-file=%s/ca.pem", "--cert-file=%s/cert.pem", "--key-file=%s/key.pem" };

		for (int k = 0; k < 3; k++) {
			snprintf(tls[k], sizeof tls[k], options[k], r->dir);
			*a++ = tls[k];
		}
		*a++ = "--client-cert-auth";
	}
	fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
	dup2(fd, STDOUT_FILENO);
	dup2(fd, STDERR_FILENO);
	setenv("ETCD_UNSUPPORTED_ARCH", "arm64", 0);
	setenv("GOMAXPROCS", "2", 1);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	nice(5);
	execv(ETCD, argv);
	_exit(127);
}

void rig_member_start(struct etcd_rig *r, int i)
{
	fflush(NULL);
	r->members[i].pid = fork();
	assert_true(r->members[i].pid >= 0);
	if (r->members[i].pid == 0)
		exec_member(r, i);
}

void rig_member_signal(struct etcd_rig *r, int i, int signo)
{
	assert_true(r->members[i].pid > 0);
	kill(r->members[i].pid, signo);
	/* Of its threads one is told, and may get no processor for a while: the others go on until then. */
	if (signo == SIGSTOP)
		assert_int_equal(waitpid(r->members[i].pid, NULL, WUNTRACED), r->members[i].pid);
	if (signo != SIGKILL)
		return;
	waitpid(r->members[i].pid, NULL, 0);
	r->members[i].pid = 0;
}

void rig_start(struct etcd_rig *r, int n, int flags)
{
	const char *tmp = getenv("TMPDIR");

	signal(SIGPIPE, SIG_IGN);
	*r = (struct etcd_rig){ .n = n, .flags = flags };
	snprintf(r->dir, sizeof r->dir, "%.40s/dlock-etcd-XXXXXX", tmp ? tmp : "/tmp");
	assert_non_null(mkdtemp(r->dir));
	if (flags & RIG_TLS)
		make_certificates(r->dir);
	for (int i = 0; i < n; i++) {
		r->members[i].client_port = free_port();
		r->members[i].peer_port = free_port();
	}
	for (int i = 0; i < n; i++)
		rig_member_start(r, i);
}

void rig_stop(struct etcd_rig *r)
{
	char command[120];

	for (int i = 0; i < r->n; i++)
		if (r->members[i].pid > 0)
			rig_member_signal(r, i, SIGKILL);
	snprintf(command, sizeof command, "rm -rf '%s'", r->dir);
	run(command);
}

int rig_ctl(struct etcd_rig *r, const char *format, ...)
{
	char command[1000], rest[500], tls[300] = "";
	va_list args;

	va_start(args, format);
	vsnprintf(rest, sizeof rest, format, args);
	va_end(args);
	if (r->flags & RIG_TLS)
		snprintf(tls, sizeof tls, "--cacert %s/ca.pem --cert %s/cert.pem --key %s/key.pem", r->dir, r->dir, r->dir);
	snprintf(command, sizeof command, "ETCDCTL_API=3 etcdctl --endpoints http%s://127.0.0.1:%u %s %s >>%s/ctl.log 2>&1",
		 r->flags & RIG_TLS ? "s" : "", r->members[0].client_port, tls, rest, r->dir);
	return system(command);
}

int rig_asked(struct etcd_rig *r, const struct store *s)
{
	struct store_etcd_info info;
	const char *colon;

	store_etcd_info(s, &info);
	colon = strrchr(info.host, ':');
	for (int i = 0; colon && i < r->n; i++)
		if (strtoul(colon + 1, NULL, 10) == r->members[i].client_port)
			return i;
	return -1;
}

void etcd_pump(struct store_contract *c)
{
	struct pollfd p = { .fd = store_fd(c->store), .events = POLLIN };

	poll(&p, 1, 500);
	store_ready(c->store);
}

static void reopen(struct store_contract *c)
{
	struct etcd_bench *b = (struct etcd_bench *)c;

	etcd_bench_close(b);
	etcd_bench_open(b);
}

void etcd_bench_init(struct etcd_bench *b, struct etcd_rig *r)
{
	static unsigned serial;

	*b = (struct etcd_bench){ .rig = r };
	b->contract.reopen = reopen;
	b->contract.pump = etcd_pump;
	snprintf(b->url, sizeof b->url, "etcd%s://", r->flags & RIG_TLS ? "s" : "");
	for (int i = 0; i < r->n; i++)
		snprintf(b->url + strlen(b->url), 32, "%s127.0.0.1:%u", i ? "," : "", r->members[i].client_port);
	snprintf(b->url + strlen(b->url), 32, "/test/%u", ++serial);
	b->options = (struct store_options){ .url = b->url, .request_ms = 10000 };
	if (r->flags & RIG_TLS) {
		snprintf(b->ca, sizeof b->ca, "%s/ca.pem", r->dir);
		snprintf(b->cert, sizeof b->cert, "%s/cert.pem", r->dir);
		snprintf(b->key, sizeof b->key, "%s/key.pem", r->dir);
		b->options.ca = b->ca;
		b->options.cert = b->cert;
		b->options.cert_key = b->key;
	}
}

void etcd_bench_open(struct etcd_bench *b)
{
	int r = store_open(&b->options, &b->contract.store, &b->why);

	if (r < 0)
		print_message("# %s\n", b->why.text);
	assert_int_equal(r, 0);
}

void etcd_bench_close(struct etcd_bench *b)
{
	store_close(b->contract.store);
	b->contract.store = NULL;
}

struct etcd_bench *etcd_bench_new(struct etcd_rig *r)
{
	struct etcd_bench *b = calloc(1, sizeof *b);

	if (b)
		etcd_bench_init(b, r);
	return b;
}

int etcd_bench_end(void **state)
{
	etcd_bench_close(*state);
	free(*state);
	return 0;
}
