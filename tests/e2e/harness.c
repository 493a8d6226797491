/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PATIENT  4                       /* so many times as long as on a quiet machine */
#define LOG_TAIL 4000
#define NODES    3                       /* as far.sh has them; the first is the test's own */

struct harness harness;

static struct {
	pid_t owner;                     /* who cleans up */
	unsigned count, failed;
	uint64_t random;
	char log[64];
	void (*at_end)(void);
} self;

/* --- Results --- */

static void show_log(void)
{
	note_file(self.log);
}

void ok(bool good, const char *title, ...)
{
	char text[400];
	va_list ap;

	va_start(ap, title);
	vsnprintf(text, sizeof text, title, ap);
	va_end(ap);
	printf("%s %u - %s\n", good ? "ok" : "not ok", ++self.count, text);
	self.failed += !good;
	fflush(stdout);
}

void skip(const char *title, const char *why)
{
	printf("ok %u - %s # SKIP %s\n", ++self.count, title, why);
	fflush(stdout);
}

bool skipped_across(const char *title, const char *why)
{
	if (harness.nodes)
		skip(title, why);
	return harness.nodes;
}

void note(const char *text, ...)
{
	va_list ap;

	printf("# ");
	va_start(ap, text);
	vprintf(text, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
}

void note_lines(const char *text)
{
	for (const char *end; *text; text = *end ? end + 1 : end) {
		end = strchrnul(text, '\n');
		if (end > text)
			note("  %.*s", (int)(end - text), text);
	}
}

void note_file(const char *path)
{
	static char text[1 << 20];
	size_t n;

	read_file(path, text, sizeof text);
	n = strlen(text);
	note("the end of %s:", path);
	note_lines(text + (n > LOG_TAIL ? n - LOG_TAIL : 0));
}

void give_up(const char *text, ...)
{
	va_list ap;

	printf("not ok %u - ", ++self.count);
	va_start(ap, text);
	vprintf(text, ap);
	va_end(ap);
	putchar('\n');
	self.failed++;
	exit(harness_end());
}

/* --- Beginning and end --- */

static void remove_dir(void)
{
	pid_t pid = vfork();

	if (pid == 0) {
		execlp("rm", "rm", "-rf", harness.dir, NULL);
		_exit(127);
	}
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

/* The test's daemon will be the first node. */
static void configure_node(void)
{
	static char text[4096];
	char path[300];
	FILE *f;

	snprintf(path, sizeof path, "%s/1/dlockd.conf", harness.nodes);
	read_file(path, text, sizeof text);
	snprintf(path, sizeof path, "%s/dlockd.conf", harness.dir);
	f = fopen(path, "we");
	if (!*text || !f || fputs(text, f) < 0 || fclose(f))
		give_up("the configuration of a node is copied");
}

/* All descendants: those of a child that has ended are ours. */
static void end_children(void)
{
	char path[64], text[4096];

	snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)self.owner);
	for (;;) {
		read_file(path, text, sizeof text);
		if (!*text)
			return;
		for (char *at = text, *next; *at; at = next) {
			pid_t pid = (pid_t)strtol(at, &next, 10);

			if (next == at)
				break;
			kill(pid, SIGKILL);
			waitpid(pid, NULL, 0);
		}
	}
}

static void cleanup(void)
{
	if (getpid() != self.owner)
		return;
	end_children();
	if (self.at_end)
		self.at_end();
	remove_dir();
}

static void on_signal(int signo)
{
	static const char late[] = "\nnot ok - the test took too long, and ended itself\n";

	if (getpid() != self.owner)
		_exit(1);
	if (signo == SIGALRM && write(STDOUT_FILENO, late, sizeof late - 1) < 0)
		_exit(1);
	if (signo == SIGALRM)
		show_log();
	fflush(stdout);
	cleanup();
	_exit(1);
}

void harness_begin(unsigned seconds)
{
	const char *seed = getenv("SEED");
	struct rlimit none = { 0, 0 };
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	harness.seed = seed ? strtoull(seed, NULL, 0) : (uint64_t)t.tv_sec * 1000000007u + (uint64_t)t.tv_nsec;
	harness.full = getenv("DLOCK_CHECK_FULL") != NULL;
	harness.nodes = getenv("DLOCK_TEST_NODES");
	self.random = harness.seed;
	self.owner = getpid();
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	strcpy(harness.dir, access("/dev/shm", W_OK) == 0 ? "/dev/shm/dl-XXXXXX" : "/tmp/dl-XXXXXX");
	if (!mkdtemp(harness.dir)) {
		perror(harness.dir);
		exit(1);
	}
	atexit(cleanup);
	signal(SIGALRM, on_signal);
	signal(SIGTERM, on_signal);
	signal(SIGINT, on_signal);
	signal(SIGPIPE, SIG_IGN);
	setrlimit(RLIMIT_CORE, &none);   /* a core dump takes its time */
	alarm(seconds * PATIENT);
	chmod(harness.dir, 0755);
	snprintf(harness.run, sizeof harness.run, "%s/run", harness.dir);
	setenv("DLOCK_RUN_DIR", harness.run, 1);
	daemon_log_new();
	if (harness.nodes)
		configure_node();
	note("seed %llu", (unsigned long long)harness.seed);
}

void harness_at_end(void (*fn)(void))
{
	self.at_end = fn;
}

int harness_end(void)
{
	if (self.failed)
		show_log();
	printf("1..%u\n", self.count);
	fflush(stdout);
	return self.failed ? 1 : 0;
}

/* --- Small things --- */

bool pace_took(struct pace *p, uint64_t took_ns, unsigned limit_ms)
{
	bool quick = took_ns <= limit_ms * MS;

	p->times++;
	p->quick += quick;
	if (took_ns > p->worst_ns)
		p->worst_ns = took_ns;
	return quick;
}

bool pace_is_quick(const struct pace *p)
{
	return p->quick && p->quick * 4 >= p->times;
}

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

struct timespec as_timespec(uint64_t ns)
{
	return (struct timespec){ (time_t)(ns / 1000000000u), (long)(ns % 1000000000u) };
}

struct timespec abs_in_ms(uint64_t ms)
{
	return as_timespec(now_ns() + ms * MS);
}

void nap_ns(uint64_t ns)
{
	struct timespec t = as_timespec(ns);

	while (nanosleep(&t, &t) < 0 && errno == EINTR)
		;
}

/* splitmix64 */
uint32_t random_below(uint32_t n)
{
	uint64_t z = self.random += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return (uint32_t)((z >> 32) % n);
}

void end_with_parent(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGALRM, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	signal(SIGINT, SIG_DFL);
}

void *shared_memory(size_t n)
{
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		give_up("no shared memory: %s", strerror(errno));
	return p;
}

void read_file(const char *path, char *ret, size_t n)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t len = 0;
	ssize_t got;

	while (fd >= 0 && len < n - 1 && (got = read(fd, ret + len, n - 1 - len)) > 0)
		len += (size_t)got;
	if (fd >= 0)
		close(fd);
	ret[len] = 0;
}

bool asleep_within(pid_t tid, unsigned ms)
{
	uint64_t until = now_ns() + ms * MS;
	char path[64], text[64], wanted[16];

	snprintf(path, sizeof path, "/proc/%d/syscall", (int)tid);
	snprintf(wanted, sizeof wanted, "%d ", SYS_futex);
	do {
		read_file(path, text, sizeof text);
		if (!strncmp(text, wanted, strlen(wanted)))
			return true;
		sched_yield();
	} while (now_ns() < until);
	return false;
}

bool asleep(pid_t tid)
{
	return asleep_within(tid, PATIENCE_MS);
}

const char *built(const char *path)
{
	static char text[4][400];
	static unsigned at;
	const char *o = getenv("O");
	char *t = text[at++ % 4], self_path[300] = "";
	ssize_t n;

	if (o) {
		snprintf(t, sizeof text[0], "%s/%s", o, path);
		return t;
	}
	n = readlink("/proc/self/exe", self_path, sizeof self_path - 1);      /* O/tests/e2e/NAME */
	for (int i = 0; i < 3 && n > 0; i++)
		*strrchr(self_path, '/') = 0;
	snprintf(t, sizeof text[0], "%s/%s", self_path, path);
	return t;
}

const char *run_dir_of(unsigned n)
{
	static char text[300];

	if (!harness.nodes || n % NODES == 0)
		return harness.run;
	snprintf(text, sizeof text, "%s/%u/run", harness.nodes, n % NODES + 1);
	return text;
}

/* --- Daemons --- */

void daemon_log_new(void)
{
	static unsigned count;

	snprintf(self.log, sizeof self.log, "%s/log.%u", harness.dir, ++count);
	close(open(self.log, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
}

bool daemon_said(const char *text)
{
	static char log[1 << 20];

	read_file(self.log, log, sizeof log);
	return strstr(log, text) != NULL;
}

static int notify_socket(struct sockaddr_un *a)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	*a = (struct sockaddr_un){ .sun_family = AF_UNIX };
	snprintf(a->sun_path, sizeof a->sun_path, "%s/notify", harness.dir);
	unlink(a->sun_path);
	if (fd < 0 || bind(fd, (struct sockaddr *)a, sizeof *a) < 0)
		give_up("no socket for the daemon's news: %s", strerror(errno));
	return fd;
}

static bool wait_ready(struct daemon *d, int fd)
{
	uint64_t until = now_ns() + PATIENCE_MS * MS;
	char text[300];

	for (;;) {
		struct pollfd p[2] = { { fd, POLLIN, 0 }, { d->pidfd, POLLIN, 0 } };
		uint64_t now = now_ns();
		ssize_t n;

		if (now >= until || (poll(p, 2, (int)((until - now) / MS) + 1) < 0 && errno != EINTR))
			return false;
		if (p[0].revents) {
			n = recv(fd, text, sizeof text - 1, MSG_DONTWAIT);
			text[n > 0 ? n : 0] = 0;
			if (strstr(text, "READY=1"))
				return true;
		} else if (p[1].revents) {
			return false;
		}
	}
}

static void run_daemon(const char *program, char *const *more, char *const *environment, const char *notify)
{
	char *argv[20] = { (char *)program, "--dir", harness.dir };
	int log = open(self.log, O_WRONLY | O_APPEND | O_CLOEXEC);

	end_with_parent();
	for (int i = 0; more && more[i] && i < 16; i++)
		argv[3 + i] = more[i];
	for (; environment && *environment; environment++)
		putenv(*environment);
	setenv("NOTIFY_SOCKET", notify, 1);
	dup2(log, STDOUT_FILENO);
	dup2(log, STDERR_FILENO);
	execv(program, argv);
	fprintf(stderr, "%s: %s\n", program, strerror(errno));
	_exit(127);
}

bool daemon_start(struct daemon *d, const char *program, char *const *more, char *const *environment)
{
	struct sockaddr_un a;
	int fd = notify_socket(&a);
	bool ready;

	fflush(stdout);
	d->pid = fork();
	if (d->pid == 0)
		run_daemon(program, more, environment, a.sun_path);
	d->pidfd = (int)syscall(SYS_pidfd_open, d->pid, 0);
	ready = d->pid > 0 && wait_ready(d, fd);
	close(fd);
	if (!ready)
		daemon_end(d, SIGKILL);
	return ready;
}

void daemon_started(struct daemon *d)
{
	if (!daemon_start(d, built("daemon/dlockd"), NULL, NULL))
		give_up("the daemon starts");
}

void daemon_end(struct daemon *d, int signo)
{
	if (d->pid <= 0)
		return;
	kill(d->pid, signo);
	while (waitpid(d->pid, &d->status, 0) < 0 && errno == EINTR)
		;
	close(d->pidfd);
	d->pid = 0;
}

void daemon_done(struct daemon *d)
{
	daemon_end(d, harness.nodes ? SIGKILL : SIGTERM);
}

bool daemon_ended(struct daemon *d, unsigned ms)
{
	struct pollfd p = { d->pidfd, POLLIN, 0 };

	if (d->pid && poll(&p, 1, (int)ms) == 1)
		daemon_end(d, SIGKILL);
	return d->pid == 0;
}

int dlock_command(char *ret, size_t n, const char *arguments, ...)
{
	char text[300], command[800];
	va_list ap;
	FILE *f;
	size_t len;

	va_start(ap, arguments);
	vsnprintf(text, sizeof text, arguments, ap);
	va_end(ap);
	snprintf(command, sizeof command, "%s %s 2>&1", built("libclient/cmd/dlock"), text);
	f = popen(command, "re");
	if (!f)
		return -1;
	len = fread(ret, 1, n - 1, f);
	ret[len] = 0;
	return WEXITSTATUS(pclose(f));
}

long status_number(const char *key)
{
	static char text[1 << 16];
	char quoted[60], *at;

	snprintf(quoted, sizeof quoted, "\"%s\": ", key);
	at = dlock_command(text, sizeof text, "status --json") == 0 ? strstr(text, quoted) : NULL;
	return at ? strtol(at + strlen(quoted), NULL, 10) : -1;
}
