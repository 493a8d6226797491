/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "node_world.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "../../daemon/log.h"
#include "../../daemon/shm/word.h"

#define TURN_MAX (400 * NSEC_PER_MSEC)   /* of processor time, under sanitizers on a busy machine */
#define RESTARTS_MAX 6                   /* an input; each takes the kernel some 50 ms */
#define INPUTS_MAX 64                    /* then a new daemon in a new session begins */

struct world world;

static char dir[128];
static struct caller victim;
static struct space *victim_space;
static uint64_t victim_word, victim_bias;
static unsigned inputs, restarts, fds_before;

void world_fail(const char *what, const char *file, int line)
{
	fprintf(stderr, "%s:%d: this must hold: %s\n", file, line, what);
	abort();
}

uint64_t input_number(struct input *in, size_t bytes)
{
	uint64_t v = 0;

	for (size_t i = 0; i < bytes && in->n; i++, in->n--)
		v |= (uint64_t)*in->p++ << 8 * i;
	return v;
}

/* --- where it lives --- */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type;
	if (ftw->level > 0)
		remove(path);
	return 0;
}

static void clean_up(void)
{
	umount2(dir, MNT_DETACH);
	nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	rmdir(dir);
}

/* A tmpfs of our own where that is permitted: it goes with the process, whatever becomes of it. */
static void make_dir(void)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(dir, sizeof dir, "%s/world.XXXXXX", tmp ? tmp : "/tmp");
	MUST(mkdtemp(dir));
	atexit(clean_up);
	if (unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0)
		mount("tmpfs", dir, "tmpfs", MS_NOSUID | MS_NODEV, "size=128m,mode=755");
}

static unsigned count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	MUST(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* --- the daemon --- */

static int listen_at(const char *name, int type)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	MUST((size_t)snprintf(a.sun_path, sizeof a.sun_path, "%s/run/%s", dir, name) < sizeof a.sun_path);
	unlink(a.sun_path);
	MUST(bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && listen(fd, 128) == 0);
	return fd;
}

static int listener = -1;

static void daemon_start(void)
{
	struct node_options options = { .dir = dir };
	struct config_messages m = { 0 };
	struct config c;

	MUST(loop_create(&world.loop) == 0);
	world.node = calloc(1, sizeof *world.node);
	MUST(world.node);
	MUST(config_load(NULL, dir, &c, &m) == 0);
	config_messages_done(&m);
	if (node_open(world.node, world.loop, &c, &options) < 0)
		world_fail(world.node->failed, __FILE__, __LINE__);
	listener = listen_at("dlockd.sock", SOCK_SEQPACKET);
	if (node_start(world.node, listener, listen_at("io.dlock", SOCK_STREAM)) < 0)
		world_fail(world.node->failed, __FILE__, __LINE__);
}

static void daemon_stop(void)
{
	node_close(world.node);
	loop_free(world.loop);
	free(world.node);
	close(listener);
	world.node = NULL;
}

/* --- the victim --- */

static struct ledger_name *victim_name(void)
{
	return name_at(victim_space, victim.slot);
}

static void victim_find(void)
{
	victim_space = space_find(&world.node->shm, "victim", 6);
	MUST(victim_space);
}

static void victim_begin(void)
{
	struct lock_waiter t = { 0 };
	uint64_t w;

	caller_connect(&victim);
	caller_hello(&victim, ATTACH_INHERIT, false);
	caller_open(&victim, "victim", "precious", 8);
	world_turn(0);
	caller_receive(&victim);
	victim_find();
	t.me = victim.client | LOCK_EXCLUSIVE;
	READ_OR(&seg_slot(victim_space->base, victim.slot)->wants, WANTS_EXCLUSIVE);     /* what for is said first */
	seg_bit_set(victim_space->base, SEG_WANT, victim.slot);
	MUST(write(victim_space->bell_clients, "", 1) == 1);
	world_turn(0);
	MUST(lock_turn(&seg_slot(victim_space->base, victim.slot)->word, &t, &w) == LOCK_TAKEN);
	victim_word = w;
	victim_bias = seg_slot(victim_space->base, victim.slot)->bias;
}

/* It holds what it held, under the token that it had. */
static void victim_judge(void)
{
	const struct seg_slot *g;

	victim_find();
	g = seg_slot(victim_space->base, victim.slot);
	MUST(!victim_space->broken);
	MUST(world.node->shm.page.line[victim_space->id].ns == NODE_NEVER);
	MUST(g->word == victim_word && g->bias == victim_bias);
	MUST(victim_name()->opens >= 1 && victim_name()->count);
	MUST(world.node->shm.clients[victim.client]);
}

/* --- time --- */

static nsec_t processor_time(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (nsec_t)t.tv_sec * NSEC_PER_SEC + (nsec_t)t.tv_nsec;
}

void world_turn(nsec_t span)
{
	nsec_t began = processor_time();

	if (span)
		fake_loop_advance(world.loop, span);
	else
		fake_loop_settle(world.loop, 100);
	MUST(processor_time() - began < TURN_MAX + span / 4);
	MUST(!world.node->failed[0]);
}

void world_restart(void)
{
	if (++restarts > RESTARTS_MAX)
		return;
	daemon_stop();
	daemon_start();
	MUST(world.node->boot.what == BOOT_ADOPTED);
	victim_judge();
}

/* --- callers --- */

static void caller_init(struct caller *c)
{
	*c = (struct caller){ .fd = -1, .anchor = { -1, -1, -1, -1 } };
}

void caller_connect(struct caller *c)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	if (c->fd >= 0)
		return;
	snprintf(a.sun_path, sizeof a.sun_path, "%s/run/dlockd.sock", dir);
	c->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	MUST(c->fd >= 0);
	if (connect(c->fd, (struct sockaddr *)&a, sizeof a) < 0)
		caller_disconnect(c);
}

void caller_disconnect(struct caller *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
}

void caller_die(struct caller *c)
{
	for (int i = 0; i < 4; i++) {
		if (c->anchor[i] >= 0)
			close(c->anchor[i]);
		c->anchor[i] = -1;
	}
}

void caller_send(struct caller *c, const void *packet, size_t n, bool with_fds)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = { 0 };
	struct iovec iov = { (void *)packet, n };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (c->fd < 0)
		return;
	if (with_fds) {
		struct cmsghdr *h = (struct cmsghdr *)control;

		m.msg_control = control;
		m.msg_controllen = sizeof control;
		*h = (struct cmsghdr){ .cmsg_len = CMSG_LEN(2 * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
		memcpy(CMSG_DATA(h), (int[]){ c->fd, 0 }, 2 * sizeof(int));
	}
	sendmsg(c->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void caller_hello(struct caller *c, uint32_t flags, bool resume)
{
	struct attach_hello h = {
		.head = { ATTACH_HELLO, sizeof h, 0 }, .magic = ATTACH_MAGIC, .major = ATTACH_MAJOR, .minor = ATTACH_MINOR, .flags = flags,
		.resume = resume ? c->client : 0, .nonce = { c->nonce[0], c->nonce[1] },
	};

	caller_send(c, &h, sizeof h, false);
	world_turn(0);
	caller_receive(c);
}

void caller_open_thing(struct caller *c, unsigned kind, const char *space, const char *name, size_t name_len)
{
	struct attach_open m = { .mapped = world.generation, .space_len = (uint8_t)strlen(space), .name_len = (uint8_t)name_len,
				 .kind = (uint8_t)kind };
	size_t n = ATTACH_OPEN_LEN(m.space_len, m.name_len);

	/* Some of what is not the victim's are barriers, semaphores, free ones. */
	if (kind == KIND_LOCK && name_len && strcmp(space, "victim")) {
		char last = name[name_len - 1];

		m.kind = last % 4 == 2 ? KIND_BARRIER : last % 4 == 3 ? KIND_SEM : last % 8 == 5 ? KIND_POOL : KIND_LOCK;
	}
	m.arg = m.kind == KIND_BARRIER || m.kind == KIND_DOUBLE || m.kind == KIND_SEM ? 2 : 0;
	m.head = (struct attach_head){ ATTACH_OPEN, (uint16_t)n, 0 };
	memcpy(m.text, space, m.space_len);
	memcpy(m.text + m.space_len, name, name_len);
	caller_send(c, &m, n, false);
}

void caller_open(struct caller *c, const char *space, const char *name, size_t name_len)
{
	caller_open_thing(c, KIND_LOCK, space, name, name_len);
}

void caller_close_name(struct caller *c, bool hint)
{
	struct attach_close m = { { hint ? ATTACH_HINT : ATTACH_CLOSE, sizeof m, 0 }, c->space, c->slot };

	caller_send(c, &m, sizeof m, false);
}

static void map_segment(int fd, uint64_t generation)
{
	if (world.base)
		munmap(world.base, SEG_SIZE);
	if (world.segment >= 0)
		close(world.segment);
	world.segment = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	world.base = mmap(NULL, SEG_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	MUST(world.base != MAP_FAILED);
	world.generation = generation;
}

static void keep_anchor(struct caller *c, int fd)
{
	for (int i = 0; i < 4; i++)
		if (c->anchor[i] < 0) {
			c->anchor[i] = fcntl(fd, F_DUPFD_CLOEXEC, 3);
			return;
		}
}

static void take_answer(struct caller *c, const void *packet, size_t n, const int *fd, size_t n_fds)
{
	const struct attach_head *h = packet;
	const struct attach_welcome *w = packet;
	const struct attach_opened *o = packet;
	const struct attach_nonce *q = packet;

	MUST(n >= sizeof *h && h->len == n && h->error >= 0 && h->error < 4096);
	if (h->op == ATTACH_NONCE && n == sizeof *q) {
		memcpy(c->asked, q->nonce, sizeof c->asked);
	} else if (h->op == ATTACH_WELCOME && !h->error) {
		MUST(n_fds == (w->resumed ? 1 : 2));
		MUST(write(fd[0], "", 1) < 0);   /* nobody writes to the node page */
		c->client = w->client;
		memcpy(c->nonce, w->nonce, sizeof c->nonce);
		if (n_fds == 2)
			keep_anchor(c, fd[1]);
	} else if (h->op == ATTACH_OPENED && !h->error) {
		c->space = o->space;
		c->slot = o->slot;
		c->account = o->account;
		if (n_fds == 2 && c != &victim) {
			map_segment(fd[0], o->generation);
			if (world.bell >= 0)
				close(world.bell);
			world.bell = fcntl(fd[1], F_DUPFD_CLOEXEC, 3);
		}
	}
}

void caller_receive(struct caller *c)
{
	for (;;) {
		_Alignas(struct cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))];
		_Alignas(8) char bytes[ATTACH_PACKET_MAX];
		struct iovec iov = { bytes, sizeof bytes };
		struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
		ssize_t n = c->fd < 0 ? -1 : recvmsg(c->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		size_t n_fds = 0;
		int fd[4];

		if (n < 0)
			return;
		if (n == 0) {
			caller_disconnect(c);
			return;
		}
		for (struct cmsghdr *h = CMSG_FIRSTHDR(&m); h; h = CMSG_NXTHDR(&m, h))
			if (h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS) {
				n_fds = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
				memcpy(fd, CMSG_DATA(h), n_fds * sizeof(int));
			}
		take_answer(c, bytes, (size_t)n, fd, n_fds);
		for (size_t i = 0; i < n_fds; i++)
			close(fd[i]);
	}
}

/* --- what the query socket asks for --- */

static unsigned shown;

static void see_name(void *ctx, const struct query_name *n)
{
	(void)ctx;
	MUST(n->space && n->name && n->kind && n->state && strlen(n->name) <= ATTACH_NAME_MAX);
	MUST(n->n_waiters <= QUERY_WAITERS_MAX);
	shown += (unsigned)n->n_waiters;
	if (n->holder)
		shown += n->holder->command != NULL;
}

static void see_space(void *ctx, const struct query_space *s)
{
	(void)ctx;
	shown += s->names;
}

void world_ask(unsigned what)
{
	const struct query_source *q = &world.node->source;
	nsec_t began = processor_time();
	struct query_node n;
	uint64_t cursor = 0;

	switch (what % 4) {
	case 0:
		q->node(q->arg, &n);
		break;
	case 1:
		q->spaces(q->arg, see_space, NULL);
		break;
	case 2:
		for (int i = 0; i < 50; i++) {
			MUST(q->names(q->arg, what & 4 ? "default" : NULL, &cursor, 16, see_name, NULL) >= 0);
			if (!cursor)
				break;
		}
		break;
	case 3:
		q->show(q->arg, "default", "a", NULL, see_name, NULL);
		break;
	}
	MUST(processor_time() - began < TURN_MAX);
}

/* --- before and after --- */

static void new_session(void)
{
	if (world.node)
		daemon_stop();
	caller_disconnect(&victim);
	caller_die(&victim);
	nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	daemon_start();
	world.node->shm.config.spaces_on_demand = true;
	caller_init(&victim);
	victim_begin();
	world.node->shm.config.spaces_on_demand = false;
	inputs = 0;
	fds_before = count_fds();
}

void world_begin(void)
{
	if (!dir[0]) {
		make_dir();
		log_open("world", LOG_LEVEL_ERROR - 1);
		signal(SIGPIPE, SIG_IGN);
		world.segment = world.bell = -1;
		caller_init(&victim);
	}
	if (!world.node || ++inputs > INPUTS_MAX)
		new_session();
	for (int i = 0; i < WORLD_CALLERS; i++)
		caller_init(&world.caller[i]);
	world.generation = 0;
	restarts = 0;
}

/*
 * Names without anybody are those of which somebody has to be told that their owner died. Returns how many
 * of them have a lease.
 */
static uint32_t judge_names(void)
{
	uint32_t leased = 0;

	for (uint32_t i = 0; i < LEDGER_SPACES_MAX; i++) {
		const struct space *s = world.node->shm.spaces[i];

		for (uint32_t n = 0; s && !s->broken && s != victim_space && (n = table_next(&s->names, n));) {
			const struct ledger_name *name = name_at(s, n);

			MUST(!name->opens && (name->state == NAME_IDLE || name->state == NAME_LEASED));
			leased += name->state == NAME_LEASED;
		}
	}
	return leased;
}

void world_end(void)
{
	const struct shm *shm = &world.node->shm;

	for (int i = 0; i < WORLD_CALLERS; i++) {
		caller_disconnect(&world.caller[i]);
		caller_die(&world.caller[i]);
	}
	if (world.base)
		munmap(world.base, SEG_SIZE);
	if (world.segment >= 0)
		close(world.segment);
	if (world.bell >= 0)
		close(world.bell);
	world.base = NULL;
	world.segment = world.bell = -1;
	world_turn(15 * NSEC_PER_SEC);
	victim_judge();
	MUST(shm->ledger.clients.n == 1 && shm->ledger.opens.n == 1);
	MUST(shm->n_conns <= 1);
	MUST(world.node->n_live == 1 + judge_names());
	MUST(fake_loop_next_timer(world.loop) == NSEC_NEVER);
	MUST(count_fds() <= fds_before + 6 * shm->ledger.spaces.n);
	if (shm->ledger.spaces.n > 8)
		new_session();
}
