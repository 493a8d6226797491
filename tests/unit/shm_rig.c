/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "shm_rig.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static bool private;

static bool write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return done;
}

bool rig_private(void)
{
	char map[64];
	uid_t uid = getuid();

	if (unshare(CLONE_NEWNS) < 0) {
		if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
			return false;
		snprintf(map, sizeof map, "0 %u 1", uid);
		if (!write_text("/proc/self/uid_map", map))
			return false;
	}
	private = mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
	return private;
}

void rig_dir(char *ret, size_t n, const char *size)
{
	const char *tmp = getenv("TMPDIR");
	char options[64];

	snprintf(ret, n, "%s/rig.XXXXXX", tmp ? tmp : "/tmp");
	assert_non_null(mkdtemp(ret));
	snprintf(options, sizeof options, "size=%s", size);
	if (private)
		assert_int_equal(mount("tmpfs", ret, "tmpfs", MS_NOSUID | MS_NODEV, options), 0);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	remove(path);
	return 0;
}

void rig_dir_done(const char *dir)
{
	if (private)
		umount2(dir, MNT_DETACH);
	nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* --- a core of one counter --- */

void rig_grant(struct rig *r, struct space *s, uint32_t slot)
{
	space_ledger_grant(s, slot, &(struct name_grant){ .first = r->next_token, .count = r->range, .number = ++r->number, .lost = r->lost,
							  .value.state = r->lost ? VALUE_LOST : VALUE_NONE });
	r->next_token += r->range;
	space_granted(s, slot, r->lost);
}

static void core_want(void *arg, struct space *s, uint32_t slot)
{
	struct rig *r = arg;

	name_at(s, slot)->state = NAME_ASKED;
	name_at(s, slot)->raised &= name_at(s, slot)->count != 0;       /* a claim is of the present delay */
	r->wants++;
	r->asked = slot;
	r->asked_space = s->id;
	if (!r->silent)
		rig_grant(r, s, slot);
}

static void core_try(void *arg, struct space *s, uint32_t slot)
{
	struct rig *r = arg;

	name_at(s, slot)->state = NAME_TRIED;
	r->tries++;
	if (!r->silent)
		rig_grant(r, s, slot);
}

static void core_unused(void *arg, struct space *s, uint32_t slot, uint64_t used, bool died)
{
	struct rig *r = arg;

	(void)used;
	r->died = died;
	r->releases++;
	space_ledger_release(s, slot);
	space_forget(s, slot);
}

static void core_yielded(void *arg, struct space *s, uint32_t slot, uint64_t used, bool died, bool again)
{
	struct rig *r = arg;

	r->yields++;
	r->yield_used = used;
	r->yield_again = again;
	r->died = died;
	space_ledger_release(s, slot);
	if (!again && !r->silent)
		space_forget(s, slot);
}

static void core_rank(void *arg, struct space *s, uint32_t slot)
{
	struct rig *r = arg;

	r->ranks++;
	r->rank = name_priority(s, slot);
}

static bool core_observe(void *arg, struct space *s, uint32_t slot, bool on)
{
	struct rig *r = arg;

	r->observes += on ? 1 : -1;
	if (!on && r->observing && name_at(s, slot)->state == NAME_RELEASING && !name_at(s, slot)->count)
		space_forget(s, slot);
	return r->observing;
}

static void core_leads(void *arg, struct space *s, uint32_t slot)
{
	struct rig *r = arg;

	r->leads++;
	r->led = elect_state(s, slot, &r->leader, r->leader_bytes);
}

static void core_loss_done(void *arg)
{
	struct rig *r = arg;

	r->loss_done++;
}

static void core_event(void *arg, const struct shm_event *ev)
{
	struct rig *r = arg;
	size_t at = strlen(r->events);
	struct name_text t = { "", 0 };

	if (ev->space && ev->slot && ev->space->names.base && name_is(ev->space, ev->slot))
		t = name_text(ev->space, ev->slot);
	if (at < sizeof r->events - 400)
		snprintf(r->events + at, sizeof r->events - at, "%s %s/%.*s\n", ev->what,
			 ev->space ? ev->space->name : "", (int)t.n, t.p);
}

bool rig_said(const struct rig *r, const char *line)
{
	return strstr(r->events, line);
}

/* --- the daemon's life --- */

static int start(struct rig *r, bool fresh)
{
	struct shm_ops ops = {
		.arg = r, .want = core_want, .try = core_try, .rank = core_rank, .unused = core_unused, .yielded = core_yielded, .observe = core_observe, .leads = core_leads,
		.loss_done = core_loss_done, .event = core_event,
	};

	r->listener = -1;
	r->shm = calloc(1, sizeof *r->shm);
	assert_non_null(r->shm);
	assert_int_equal(loop_create(&r->loop), 0);
	r->config.rundir_fd = r->rundir;
	r->config.session = r->id.session;
	return shm_init(r->shm, r->loop, &r->config, &r->id, fresh, &ops);
}

void rig_sees(struct rig *r)
{
	r->sees = true;
	r->shm->sights.n_recent = 0;
}

static int serve(struct rig *r)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	if (!r->sees)
		r->shm->sights.n_recent = SIGHTS_RECENT;
	snprintf(a.sun_path, sizeof a.sun_path, "/proc/self/fd/%d/dlockd.sock", r->rundir);
	unlink(a.sun_path);
	r->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (r->listener < 0 || bind(r->listener, (struct sockaddr *)&a, sizeof a) < 0 ||
	    chmod(a.sun_path, 0666) < 0 || listen(r->listener, 4096) < 0)
		return -EBADF;
	return shm_start(r->shm, r->listener);
}

void rig_open_sized(struct rig *r, const char *size)
{
	*r = (struct rig){ .next_token = 1000, .range = 1 << 20 };
	rig_dir(r->dir, sizeof r->dir, size);
	r->rundir = open(r->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(r->rundir >= 0);
	r->id.session = 7;
	memset(r->id.secret, 3, sizeof r->id.secret);
	assert_int_equal(rig_begin(r), 0);
}

void rig_open(struct rig *r)
{
	rig_open_sized(r, "256m");
}

void rig_stop(struct rig *r)
{
	shm_done(r->shm);
	free(r->shm);
	loop_free(r->loop);
	if (r->listener >= 0)
		close(r->listener);
	r->shm = NULL;
	r->loop = NULL;
}

int rig_begin(struct rig *r)
{
	int e = start(r, true);

	return e < 0 ? e : serve(r);
}

int rig_adopt(struct rig *r)
{
	int e;

	r->next_token += UINT64_C(1) << 40;      /* the next epoch */
	r->events[0] = 0;
	r->wants = r->releases = 0;
	e = start(r, false);
	if (e == 0 && r->late)
		shm_lapse(r->shm);
	return e < 0 ? e : serve(r);
}

void rig_done(struct rig *r)
{
	if (r->shm)
		rig_stop(r);
	close(r->rundir);
	rig_dir_done(r->dir);
}

void rig_turn(struct rig *r)
{
	assert_true(fake_loop_settle(r->loop, 1000));
}

/* --- clients --- */

struct space *rig_space(struct rig *r, const char *name)
{
	struct space_access access = { geteuid(), 0, 0660 };
	struct space *s = space_find(r->shm, name, strlen(name));

	if (!s)
		assert_int_equal(space_create(r->shm, name, &access, false, &s), 0);
	return s;
}

struct rig_client rig_client(struct rig *r)
{
	struct peer p = { .fd = -1, .pid = getpid(), .pidfd = -1 };
	struct rig_client c = { 0 };

	assert_int_equal(client_new(r->shm, &p, CLIENT_INHERIT, &c.c, &c.anchor), 0);
	c.index = c.c->index;
	return c;
}

void rig_client_end(struct rig *r, struct rig_client *c)
{
	close(c->anchor);
	if (r->shm)
		fake_loop_advance(r->loop, 5 * NSEC_PER_MSEC);
}

uint32_t rig_name(struct rig *r, struct rig_client *c, struct space *s, const char *name)
{
	uint32_t slot = 0, account;

	assert_int_equal(client_open(c->c, r->shm, s, &(struct client_what){ .name = name, .len = strlen(name) }, &slot, &account), 0);
	return slot;
}

uint64_t *rig_word(struct space *s, uint32_t slot)
{
	return &seg_slot(s->base, slot)->word;
}

bool rig_take(struct space *s, uint32_t slot, struct rig_client *c)
{
	struct lock_waiter t = { .me = c->index | LOCK_EXCLUSIVE };
	uint64_t w;

	return lock_turn(rig_word(s, slot), &t, &w) == LOCK_TAKEN;
}

void rig_ring(struct space *s)
{
	assert_int_equal(write(s->bell_clients, "", 1), 1);
}

void rig_say(struct space *s, uint32_t slot)
{
	READ_OR(&seg_slot(s->base, slot)->wants, WANTS_EXCLUSIVE);
	seg_bit_set(s->base, SEG_WANT, slot);
}

void rig_want(struct space *s, uint32_t slot)
{
	rig_say(s, slot);
	rig_ring(s);
}

void rig_watch(struct space *s, uint32_t slot)
{
	if (seg_bit_set(s->base, SEG_WATCH, slot))
		rig_ring(s);
}

/* --- two who share a lock --- */

int rig_two_open(struct rig_two *x, struct rig_client *c, uint32_t delay)
{
	struct client_what what = { KIND_LOCK, delay, "n", 1 };
	uint32_t account;

	return client_open(c->c, x->r.shm, x->s, &what, &x->slot, &account);
}

void rig_two(struct rig_two *x, uint32_t delay)
{
	uint32_t slot;

	x->s = rig_space(&x->r, "x");
	x->a = rig_client(&x->r);
	x->b = rig_client(&x->r);
	assert_int_equal(rig_two_open(x, &x->a, delay), 0);
	slot = x->slot;
	assert_int_equal(rig_two_open(x, &x->b, 0), 0);
	assert_int_equal(x->slot, slot);
	x->word = rig_word(x->s, slot);
	rig_want(x->s, slot);
	rig_turn(&x->r);
	assert_int_equal(name_at(x->s, slot)->state, NAME_LEASED);
}

uint64_t rig_two_take(struct rig_two *x, struct rig_client *c)
{
	assert_true(rig_take(x->s, x->slot, c));
	return LOCK_LOAD(x->word);
}

void rig_two_done(struct rig_two *x)
{
	rig_client_end(&x->r, &x->a);
	rig_client_end(&x->r, &x->b);
	rig_done(&x->r);
}

/* --- what is in use --- */

unsigned rig_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static long blocks;

static int count_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)path, (void)ftw;
	if (type == FTW_F)
		blocks += st->st_blocks;
	return 0;
}

long rig_blocks(const struct rig *r)
{
	blocks = 0;
	nftw(r->dir, count_one, 16, FTW_PHYS);
	return blocks;
}
