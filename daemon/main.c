/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* dlockd: reads its options and configuration, opens its sockets, runs the node until told to stop. */
#include <errno.h>
#include <getopt.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sysexits.h>
#include <systemd/sd-daemon.h>
#include <time.h>
#include <unistd.h>

#include "config.h"
#include "log.h"
#include "loop/loop.h"
#include "node/node.h"
#include "system.h"

#define EXIT_LEFT 80                     /* by `dlock node leave': not to be started again by itself */
#define SPIN_SPAN (50 * NSEC_PER_USEC)    /* a client that has just been answered often asks again */

static struct {
	struct node_options node;
	bool check;
	enum log_level level;
} options = { .level = LOG_LEVEL_INFO };

static struct node node;
static struct system *machine;

static void usage(FILE *f)
{
	fputs("usage: dlockd [--config FILE] [--dir DIR] [--check] [--debug | --quiet]\n"
	      "\n"
	      "The dlock daemon of this node. It stays in the foreground.\n"
	      "\n"
	      "  --config FILE   read FILE (and FILE.d/*.conf) instead of /etc/dlock/dlockd.conf\n"
	      "  --dir DIR       keep everything under DIR (DIR/run, DIR/state); needs no root\n"
	      "  --check         check the configuration, and end\n"
	      "  --debug         log every event\n"
	      "  --quiet         log only what is wrong\n"
	      "  --version       print the version, and end\n"
	      "  --help          this text\n", f);
}

static int print_done(void)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return EX_OK;
	fprintf(stderr, "dlockd: cannot write the output: %s\n", strerror(errno));
	return EX_IOERR;
}

enum { OPT_COUNTER = 256, OPT_NO_PEERPIDFD, OPT_AS_MANY };

static const struct option long_options[] = {
	{ "config", required_argument, NULL, 'c' },
	{ "dir", required_argument, NULL, 'd' },
	{ "check", no_argument, NULL, 'n' },
	{ "debug", no_argument, NULL, 'v' },
	{ "quiet", no_argument, NULL, 'q' },
	{ "version", no_argument, NULL, 'V' },
	{ "help", no_argument, NULL, 'h' },
	/* For measuring and tests; not in the usage text, but in docs/HACKING.md. */
	{ "x-counter-deadline", no_argument, NULL, OPT_COUNTER },
	{ "x-no-peerpidfd", no_argument, NULL, OPT_NO_PEERPIDFD },
	{ "x-as-many", no_argument, NULL, OPT_AS_MANY },
	{ 0 }
};

/* Negative: go on. */
static int read_options(int argc, char **argv)
{
	int o;

	while ((o = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
		switch (o) {
		case 'c': options.node.config_path = optarg; break;
		case 'd': options.node.dir = optarg; break;
		case 'n': options.check = true; break;
		case 'v': options.level = LOG_LEVEL_DEBUG; break;
		case 'q': options.level = LOG_LEVEL_WARNING; break;
		case OPT_COUNTER: options.node.counter_deadline = true; break;
		case OPT_NO_PEERPIDFD: options.node.no_peerpidfd = true; break;
		case OPT_AS_MANY: options.node.as_many = true; break;
		case 'V': puts("dlockd " DLOCK_VERSION); return print_done();
		case 'h': usage(stdout); return print_done();
		default: usage(stderr); return EX_USAGE;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "dlockd: unexpected argument: %s\n", argv[optind]);
		usage(stderr);
		return EX_USAGE;
	}
	return -1;
}

static int load_config(struct config *ret)
{
	struct config_messages m = { 0 };
	int r = config_load(options.node.config_path, options.node.dir, ret, &m);

	if (r == 0) {
		r = config_check(ret, &m);
		if (r < 0)
			config_done(ret);
	}
	for (size_t i = 0; i < m.n; i++) {
		if (m.list[i].level == CONFIG_ERROR)
			log_error("%s", m.list[i].text);
		else
			log_warning("%s", m.list[i].text);
	}
	if (m.hidden)
		log_warning("and %zu more such messages", m.hidden);
	config_messages_done(&m);
	return r;
}

/* --- sockets --- */

static int listen_at(const char *dir, const char *name, int type)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd;

	if ((size_t)snprintf(a.sun_path, sizeof a.sun_path, "%s/%s", dir, name) >= sizeof a.sun_path) {
		log_error("%s/%s: too long for a socket's path (%zu bytes at most); use a shorter --dir", dir, name,
			  sizeof a.sun_path - 1);
		return -ENAMETOOLONG;
	}
	fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	/* The lock on the state directory says that no other daemon of ours serves there. */
	unlink(a.sun_path);
	if (bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || chmod(a.sun_path, 0666) < 0 || listen(fd, 4096) < 0) {
		int r = -errno;

		log_error("%s: %s", a.sun_path, strerror(-r));
		close(fd);
		return r;
	}
	return fd;
}

/* From systemd where it passes them, else our own. */
static int open_sockets(const struct config *c, int *ret_attach, int *ret_query)
{
	int n = sd_listen_fds(1);

	*ret_attach = *ret_query = -1;
	for (int fd = SD_LISTEN_FDS_START; fd < SD_LISTEN_FDS_START + n; fd++) {
		if (sd_is_socket_unix(fd, SOCK_SEQPACKET, 1, NULL, 0) > 0)
			*ret_attach = fd;
		else if (sd_is_socket_unix(fd, SOCK_STREAM, 1, NULL, 0) > 0)
			*ret_query = fd;
		else
			close(fd);
	}
	if (*ret_attach < 0)
		*ret_attach = listen_at(c->run_dir, "dlockd.sock", SOCK_SEQPACKET);
	if (*ret_query < 0)
		*ret_query = listen_at(c->run_dir, "io.dlock", SOCK_STREAM);
	return *ret_attach < 0 ? *ret_attach : *ret_query < 0 ? *ret_query : 0;
}

/* --- running --- */

/* Holders have time to let go, and the store to answer. */
static void tell_leaving(const char *why)
{
	sd_notifyf(0, "STOPPING=1\nEXTEND_TIMEOUT_USEC=%llu\nSTATUS=leaving the cluster%s",
		   (unsigned long long)(node_leave_span(&node) / NSEC_PER_USEC), why);
}

static void on_term(void *arg, int signo)
{
	static bool told;
	bool leaving = node.cluster.leaving && !told;

	(void)arg;
	(void)signo;
	told = true;
	/* "dlock node leave", then "systemctl disable --now": what was begun is finished. Whoever cannot wait says so again. */
	if (leaving) {
		tell_leaving("");
		log_info("stopping as soon as this node has left the cluster");
		return;
	}
	/* After a reboot nobody could go on with the session: then the others need not wait for its end. */
	if (node.cluster.on && !node.cluster.stopping && system_goes_down() && node_leave(&node) == 0) {
		tell_leaving(": the system goes down");
		return;
	}
	node.state = "stopping";
	sd_notify(0, "STOPPING=1\nSTATUS=stopping; what is held stays held for the next start");
	log_info("stopping; what is held stays held for the next start");
	node_stop(&node);
}

static void tell_ready(const char *prefix)
{
	sd_notifyf(0, "%sSTATUS=%s: %u clients, epoch %u", prefix, node.state, node.shm.ledger.clients.n,
		   node.shm.ledger.id.epoch);
}

static void on_hup(void *arg, int signo)
{
	struct config c;
	struct timespec ts;

	(void)arg;
	(void)signo;
	clock_gettime(CLOCK_MONOTONIC, &ts);     /* systemd's own clock for this; the loop's goes on in suspend */
	sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%llu",
		   (unsigned long long)ts.tv_sec * 1000000 + (unsigned long long)ts.tv_nsec / 1000);
	if (load_config(&c) < 0)
		log_error("the configuration has errors; the old one stays in force");
	else if (strcmp(c.run_dir, node.config.run_dir) || strcmp(c.state_dir, node.config.state_dir))
		config_done(&c);         /* cannot happen without a restart: they come from the command line */
	else if (node_reload(&node, &c) < 0)
		log_error("%s", node.failed);
	else
		log_info("configuration read again");
	tell_ready("READY=1\n");
}

static void on_sleep(void *arg, bool announced)
{
	node_sleep(arg, announced);
}

static void on_watchdog(void *arg)
{
	struct node *n = arg;

	sd_notify(0, "WATCHDOG=1");
	loop_timer_set(n->loop, &n->watchdog, loop_now(n->loop) + n->watchdog_span);
}

static void start_watchdog(struct node *n)
{
	uint64_t usec;

	if (sd_watchdog_enabled(0, &usec) <= 0)
		return;
	n->watchdog_span = usec * NSEC_PER_USEC / 2;
	loop_timer_init(&n->watchdog, on_watchdog, n);
	loop_timer_set(n->loop, &n->watchdog, loop_now(n->loop) + n->watchdog_span);
}

/* Two descriptors a client. */
static void raise_limits(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur < l.rlim_max) {
		l.rlim_cur = l.rlim_max;
		setrlimit(RLIMIT_NOFILE, &l);
	}
}

static int serve(struct loop *loop, const struct config *c)
{
	int attach, query, r;

	if (options.node.dir && mkdir(options.node.dir, 0755) < 0 && errno != EEXIST) {
		snprintf(node.failed, sizeof node.failed, "%s: %s", options.node.dir, strerror(errno));
		return -EIO;
	}
	r = node_open(&node, loop, c, &options.node);
	if (r == 0)
		r = open_sockets(&node.config, &attach, &query);
	if (r == 0)
		r = node_start(&node, attach, query);
	if (r == 0)
		r = loop_signal(loop, SIGTERM, on_term, NULL);
	if (r == 0)
		r = loop_signal(loop, SIGINT, on_term, NULL);
	if (r == 0)
		r = loop_signal(loop, SIGHUP, on_hup, loop);
	if (r < 0)
		return r;
	(void)loop_slice_short();        /* without it, some things take longer on a busy processor */
	loop_set_spin(loop, SPIN_SPAN);
	start_watchdog(&node);
	if (node.cluster.on && node.cluster.counter.can_suspend)
		system_watch(loop, on_sleep, &node, &machine);
	tell_ready("READY=1\n");
	log_info("%s serves %s", node.config.node_name, node.config.run_dir);
	return loop_run(loop);
}

/* Where io_uring is not to be had, trying again does not help; a lack of memory or descriptors may pass. */
static int exit_without_loop(int error)
{
	return error == -ENOMEM || error == -EMFILE || error == -ENFILE ? EX_OSERR : EX_UNAVAILABLE;
}

int main(int argc, char **argv)
{
	struct loop *loop;
	struct config c;
	int r = read_options(argc, argv);

	if (r >= 0)
		return r;
	log_open("dlockd", options.level);
	if (load_config(&c) < 0)
		return EX_CONFIG;
	if (options.check) {
		config_done(&c);
		return EX_OK;
	}
	/* What a million names needed goes back when they go; by itself malloc would come to keep megabytes. */
	mallopt(M_MMAP_THRESHOLD, 32768);
	signal(SIGPIPE, SIG_IGN);
	umask(0022);
	raise_limits();
	r = loop_create(&loop);
	if (r < 0) {
		log_error("%s", loop_explain(r));
		config_done(&c);
		return exit_without_loop(r);
	}
	r = serve(loop, &c);
	if (r != 0)
		log_error("%s", node.failed[0] ? node.failed : strerror(r < 0 ? -r : EIO));
	system_done(machine);
	node_close(&node);
	loop_free(loop);
	if (r == 0 && node.cluster.left)
		return EXIT_LEFT;
	return r == 0 ? EX_OK : r == -EBUSY ? EX_TEMPFAIL : EX_SOFTWARE;
}
