/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Spaces: their segment, bell and access. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files.h"
#include "object.h"
#include "sigbus.h"
#include "word.h"

/* A space that is broken so often within so long of being made has to wait for as long. */
#define YOUNG_MAX  16
#define YOUNG_SPAN (10 * NSEC_PER_SEC)

#define SOUND_SPAN NSEC_PER_MSEC         /* between two looks at a space's file, however often names are opened in it */

static const struct table_spec names_spec = { sizeof(struct ledger_name), SEG_SLOTS_MAX };
static const struct table_spec lines_spec = { sizeof(struct ledger_line), SEG_LINES_MAX };
static const struct table_spec longs_spec = { sizeof(struct ledger_long), SEG_SLOTS_MAX };

static void path_of(char *ret, size_t n, const char *prefix, const char *space, const char *suffix)
{
	snprintf(ret, n, "%s%s%s", prefix, space, suffix);
}

static int segment_map(struct space *s)
{
	void *p = mmap(NULL, SEG_FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, s->fd, 0);
	int r;

	if (p == MAP_FAILED)
		return -errno;
	r = sigbus_guard(p, SEG_FILE_SIZE);
	if (r < 0) {
		munmap(p, SEG_FILE_SIZE);
		return r;
	}
	madvise(p, SEG_FILE_SIZE, MADV_DONTDUMP);
	s->base = p;
	return 0;
}

static int segment_make(struct space *s)
{
	struct seg_head h = {
		.major = SEG_MAJOR, .minor = SEG_MINOR, .generation = s->generation,
		.slot_size = sizeof(struct seg_slot), .area_size = SEG_AREA_SIZE,
		.slots_max = SEG_SLOTS_MAX, .clients_max = SEG_CLIENTS_MAX,
		.bits2_off = SEG_BITS2_OFF, .bits1_off = SEG_BITS1_OFF,
		.area_off = SEG_AREA_OFF, .slot_off = SEG_SLOT_OFF, .size = SEG_SIZE,
		.line_off = SEG_LINE_OFF, .lines_max = SEG_LINES_MAX,
	};
	int r;

	if (unlinkat(s->shm->dirfd, s->name, 0) < 0 && errno != ENOENT)
		return -errno;
	s->fd = openat(s->shm->dirfd, s->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (s->fd < 0 || ftruncate(s->fd, (off_t)SEG_FILE_SIZE) < 0)
		return -errno;
	r = files_room(s->fd, 0, SEG_BITS1_OFF);
	if (r == 0)
		r = segment_map(s);
	if (r < 0)
		return r;
	memcpy(s->base, &h, sizeof h);
	word_store((uint64_t *)s->base, SEG_MAGIC);
	return 0;
}

static int segment_adopt(struct space *s)
{
	struct seg_head h;
	struct stat st;
	int r;

	s->fd = openat(s->shm->dirfd, s->name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (s->fd < 0)
		return -errno;
	if (fstat(s->fd, &st) < 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size != SEG_FILE_SIZE)
		return -ESTALE;
	r = segment_map(s);
	if (r < 0)
		return r;
	memcpy(&h, s->base, sizeof h);
	if (h.magic != SEG_MAGIC || h.major != SEG_MAJOR || h.generation != s->generation)
		return -ESTALE;
	return 0;
}

/* A ring that came while no daemon was there is still in the FIFO. A new space has a FIFO of its own. */
static int space_bell(struct space *s, bool fresh)
{
	char path[ATTACH_SPACE_MAX + 8];

	path_of(path, sizeof path, "", s->name, ".bell");
	if (fresh && unlinkat(s->shm->dirfd, path, 0) < 0 && errno != ENOENT)
		return -errno;
	s->bell = files_fifo(s->shm->dirfd, path);
	if (s->bell < 0)
		return s->bell;
	s->bell_clients = files_fifo(s->shm->dirfd, path);
	return s->bell_clients < 0 ? s->bell_clients : 0;
}

static int space_tables(struct space *s, bool fresh)
{
	char path[ATTACH_SPACE_MAX + 8];
	struct ledger *l = &s->shm->ledger;
	int r;

	path_of(path, sizeof path, "names.", s->name, "");
	r = table_open(&s->names, l->dirfd, path, &names_spec, l->id.session, fresh);
	if (r < 0)
		return r;
	path_of(path, sizeof path, "lines.", s->name, "");
	r = table_open(&s->lines, l->dirfd, path, &lines_spec, l->id.session, fresh);
	if (r < 0)
		return r;
	path_of(path, sizeof path, "long.", s->name, "");
	return table_open(&s->longs, l->dirfd, path, &longs_spec, l->id.session, fresh);
}

static struct space *space_alloc(struct shm *shm, uint32_t id)
{
	struct space *s = calloc(1, sizeof *s);

	if (!s)
		return NULL;
	s->shm = shm;
	s->id = id;
	yields_init(s);
	s->fd = s->bell = s->bell_clients = -1;
	s->names.fd = s->longs.fd = s->lines.fd = -1;
	files_random(&s->seed, sizeof s->seed);
	s->watched = calloc(SEG_SLOTS_MAX / 64, sizeof *s->watched);
	if (!s->watched) {
		free(s);
		return NULL;
	}
	return s;
}

void space_free(struct space *s)
{
	if (!s)
		return;
	watch_stop(s);
	yields_done(s);
	objects_free(s);
	elects_free(s);
	if (s->base) {
		sigbus_unguard(s->base);
		munmap(s->base, SEG_FILE_SIZE);
	}
	if (s->names.base)
		table_close(&s->names);
	if (s->longs.base)
		table_close(&s->longs);
	if (s->lines.base)
		table_close(&s->lines);
	if (s->fd >= 0)
		close(s->fd);
	if (s->bell >= 0)
		close(s->bell);
	if (s->bell_clients >= 0)
		close(s->bell_clients);
	free(s->buckets);
	free(s->watched);
	free(s->watch);
	free(s);
}

static int space_ready(struct space *s, bool fresh)
{
	int r = space_bell(s, fresh);

	if (r == 0)
		r = readers_begin(s);
	if (r == 0)
		r = hatches_begin(s);
	if (r == 0) {
		name_index(s);
		r = watch_start(s);
	}
	if (r == 0) {
		page_space_good(&s->shm->page, s->id, s->generation);
		s->shm->spaces[s->id] = s;
		s->made = loop_now(s->shm->loop);
	}
	return r;
}

/* A line of the node page is used again only when nobody has a name open any more that it spoke of. */
static void lines_reap(struct shm *shm)
{
	for (uint32_t i = 0, next; (next = table_next(&shm->ledger.spaces, i)); i = next)
		if (ledger_space(&shm->ledger, next)->used == SPACE_GONE && !shm->spaces[next] && !shm->opens_of[next])
			table_drop(&shm->ledger.spaces, next);
}

static int line_take(struct shm *shm, uint32_t *ret)
{
	int r = table_take(&shm->ledger.spaces, ret);

	if (r != -ENOSPC)
		return r;
	lines_reap(shm);
	return table_take(&shm->ledger.spaces, ret);
}

static void files_remove(struct space *s)
{
	char path[ATTACH_SPACE_MAX + 8];

	unlinkat(s->shm->dirfd, s->name, 0);
	path_of(path, sizeof path, "", s->name, ".bell");
	unlinkat(s->shm->dirfd, path, 0);
	path_of(path, sizeof path, "names.", s->name, "");
	unlinkat(s->shm->ledger.dirfd, path, 0);
	path_of(path, sizeof path, "lines.", s->name, "");
	unlinkat(s->shm->ledger.dirfd, path, 0);
	path_of(path, sizeof path, "long.", s->name, "");
	unlinkat(s->shm->ledger.dirfd, path, 0);
}

/* Those that were lost under this name have a successor now. */
static void broken_replaced(struct space *s)
{
	for (uint32_t i = 0; i < LEDGER_SPACES_MAX; i++) {
		struct space *b = s->shm->spaces[i];

		if (!b || !b->broken || b->successor || strcmp(b->name, s->name))
			continue;
		b->successor = s;
		s->young = b->broken_at - b->made < YOUNG_SPAN ? b->young + 1 : 0;
		if (!b->ended)
			s->before = b;
	}
}

/* Nobody has anything open in it: it goes without a trace. Tokens go on rising, that is the core's. */
static void space_remove(struct space *s)
{
	struct shm *shm = s->shm;

	page_space_gone(&shm->page, s->id);
	table_drop(&shm->ledger.spaces, s->id);
	for (uint32_t i = 0; (i = table_next(&shm->ledger.clients, i));)
		client_area_forget(shm->clients[i], s->id);
	shm->spaces[s->id] = NULL;
	files_remove(s);
	space_free(s);
}

/* What was made on demand, and is not in use: of one user, or of all. Returns whether there was one. */
static bool spaces_reclaim(struct shm *shm, const uid_t *only)
{
	bool any = false;

	for (uint32_t i = 0; i < LEDGER_SPACES_MAX; i++) {
		struct space *s = shm->spaces[i];
		const struct ledger_space *rec = s ? space_record(s) : NULL;

		if (!s || s->broken || s->before || !rec->on_demand || s->names.n || shm->opens_of[i] ||
		    (only && rec->uid != *only))
			continue;
		space_remove(s);
		any = true;
	}
	return any;
}

static uint32_t spaces_made_by(const struct shm *shm, uid_t uid)
{
	uint32_t n = 0;

	for (uint32_t i = 0; (i = table_next(&shm->ledger.spaces, i));)
		n += ledger_space(&shm->ledger, i)->on_demand && ledger_space(&shm->ledger, i)->uid == uid;
	return n;
}

int space_create(struct shm *shm, const char *name, const struct space_access *access,
		 bool on_demand, struct space **ret)
{
	struct ledger_space *rec;
	struct space *s;
	uint32_t id;
	int r;

	r = line_take(shm, &id);
	if (r < 0)
		return r;
	s = space_alloc(shm, id);
	if (!s) {
		table_drop(&shm->ledger.spaces, id);
		return -ENOMEM;
	}
	rec = ledger_space(&shm->ledger, id);
	snprintf(s->name, sizeof s->name, "%s", name);
	r = files_random(&s->generation, sizeof s->generation);
	s->generation |= 1;              /* not 0 */
	if (r == 0)
		r = segment_make(s);
	if (r == 0)
		r = space_tables(s, true);
	if (r == 0) {
		memcpy(rec->name, s->name, strlen(s->name));
		rec->uid = access->uid;
		rec->gid = access->gid;
		rec->mode = access->mode;
		rec->on_demand = on_demand;
		rec->generation = s->generation;
		table_commit(&shm->ledger.spaces, id, SPACE_GOOD);
		r = space_ready(s, true);
	}
	if (r < 0) {
		table_drop(&shm->ledger.spaces, id);
		files_remove(s);
		space_free(s);
		return r;
	}
	broken_replaced(s);
	*ret = s;
	return 0;
}

static int space_create_on_demand(struct shm *shm, const char *name, uid_t uid, gid_t gid, struct space **ret)
{
	struct space_access own = { uid, gid, 0600 };
	int r;

	if (!quota_room(spaces_made_by(shm, uid), uid, QUOTA_SPACES) && !spaces_reclaim(shm, &uid))
		return -EDQUOT;
	r = space_create(shm, name, &own, true, ret);
	if (r == -ENOSPC && spaces_reclaim(shm, NULL))
		r = space_create(shm, name, &own, true, ret);
	return r;
}

/* The core knows nothing of what was leased in a space that is lost at the start. */
static void names_unknown(struct space *s)
{
	name_index(s);
	for (uint32_t i = 0; (i = table_next(&s->names, i));)
		if (!note_is(s, i))
			name_at(s, i)->state = NAME_IDLE;
}

int space_adopt(struct shm *shm, uint32_t id, struct space **ret)
{
	const struct ledger_space *rec = ledger_space(&shm->ledger, id);
	struct space *s = space_alloc(shm, id);
	int r;

	if (!s)
		return -ENOMEM;
	snprintf(s->name, sizeof s->name, "%.*s", (int)sizeof rec->name, rec->name);
	s->generation = rec->generation;
	r = space_tables(s, false);
	if (r == 0)
		r = name_texts_sweep(s);
	if (r == 0)
		r = segment_adopt(s);
	if (r == 0)
		r = space_ready(s, false);
	if (r == -ENOMEM || r == -EMFILE || r == -ENFILE) {
		space_free(s);
		return r;
	}
	if (r < 0) {
		shm->spaces[id] = s;
		names_unknown(s);
		space_break(s, r == -ENOENT ? "its shared memory or its part of the ledger is gone"
					    : "its shared memory or its part of the ledger is not what the daemon left");
	}
	*ret = s;
	return 0;
}

struct space *space_find(struct shm *shm, const char *name, size_t len)
{
	for (uint32_t i = 0; (i = table_next(&shm->ledger.spaces, i));) {
		struct space *s = shm->spaces[i];

		if (s && !s->broken && strlen(s->name) == len && !memcmp(s->name, name, len))
			return s;
	}
	return NULL;
}

/* Lost, and without a successor as yet: it has the access that the next one is to have. */
static struct space *space_find_lost(struct shm *shm, const char *name, size_t len)
{
	for (uint32_t i = 0; i < LEDGER_SPACES_MAX; i++) {
		struct space *s = shm->spaces[i];

		if (s && s->broken && !s->successor && strlen(s->name) == len && !memcmp(s->name, name, len))
			return s;
	}
	return NULL;
}

/*
 * One that is broken again and again has to wait: each time costs the node some work, a line, and
 * whatever those who do not let go of the old one still keep.
 */
static int space_renew(struct space *old, struct space **ret)
{
	const struct ledger_space *rec = space_record(old);
	struct space_access access = { rec->uid, rec->gid, rec->mode };

	if (old->young >= YOUNG_MAX && loop_now(old->shm->loop) < old->broken_at + YOUNG_SPAN)
		return -EAGAIN;
	return space_create(old->shm, old->name, &access, rec->on_demand, ret);
}

int space_get(struct shm *shm, const char *name, size_t len, const struct peer *p, struct space **ret)
{
	struct space *s = space_find(shm, name, len), *lost = s ? NULL : space_find_lost(shm, name, len);
	char text[ATTACH_SPACE_MAX + 1];

	if (s || lost) {
		if (!space_may(s ? s : lost, p->uid, p->gid, p->groups, p->n_groups))
			return -EACCES;
		*ret = s;
		return s ? 0 : space_renew(lost, ret);
	}
	if (!shm->config.spaces_on_demand)
		return -ENOENT;
	memcpy(text, name, len);
	text[len] = 0;
	return space_create_on_demand(shm, text, p->uid, p->gid, ret);
}

bool space_sound(struct space *s)
{
	nsec_t now = loop_now(s->shm->loop);
	struct stat st;

	if (!sigbus_hit(s->base)) {
		if (now - s->sound_at < SOUND_SPAN && s->sound_at)
			return true;     /* it might as well be cut just after this look */
		if (fstat(s->fd, &st) < 0 || (uint64_t)st.st_size == SEG_FILE_SIZE) {
			s->sound_at = now;
			return true;
		}
	}
	space_break(s, "a client truncated, punched or enlarged its shared memory");
	return false;
}

void space_set_access(struct space *s, const struct space_access *access)
{
	struct ledger_space *rec = space_record(s);

	rec->uid = access->uid;
	rec->gid = access->gid;
	rec->mode = access->mode;
}

bool space_may(const struct space *s, uid_t uid, gid_t gid, const gid_t *groups, size_t n_groups)
{
	const struct ledger_space *rec = space_record(s);
	bool in_group = gid == rec->gid;

	for (size_t i = 0; i < n_groups && !in_group; i++)
		in_group = groups[i] == rec->gid;
	if (uid == 0)
		return true;
	if (uid == rec->uid)
		return (rec->mode & 0600) == 0600;
	if (in_group)
		return (rec->mode & 0060) == 0060;
	return (rec->mode & 0006) == 0006;
}

/*
 * Every client that looks at its line sees that the space is gone, and opens its names anew in the
 * space that takes its place. Sleepers are woken for that, and leases given back, by and by.
 */
void space_break(struct space *s, const char *why)
{
	struct shm *shm = s->shm;
	struct space *next;

	if (s->broken)
		return;
	s->broken = why;
	s->broken_at = loop_now(shm->loop);
	page_space_gone(&shm->page, s->id);
	__atomic_store_n(&space_record(s)->used, SPACE_GONE, __ATOMIC_RELEASE);
	hint_ring_all(shm, s);
	conn_kept(shm, s, 0);
	watch_stop(s);
	yields_done(s);
	shm_tell(shm, "space-broken", s, 0, 0, 0, why);
	if (space_renew(s, &next) < 0)
		shm_tell(shm, "space-lost", s, 0, 0, 0, "it cannot be made anew now; a later open tries again");
	chores_wake(shm);
}

/* Whoever held it when it was lost never released it. */
static void mark_died(struct space *s, enum kind kind, struct name_text t)
{
	uint32_t slot = name_find(s, kind, t.p, t.n);

	if (!slot && (s->n_died >= DIED_MAX || name_make(s, kind, t.p, t.n, &slot) < 0))
		return;
	s->n_died++;
	FAULT_AROUND(__atomic_fetch_or(&seg_slot(s->base, slot)->word, LOCK_D, __ATOMIC_RELEASE));
}

static void end_name(struct space *s, uint32_t slot)
{
	struct ledger_name *n = name_at(s, slot);
	struct name_text t;

	if (note_is(s, slot)) {          /* its object's end is its own */
		object_end_note(s, slot);
		return;
	}
	t = name_text(s, slot);
	if (s->base) {
		word_store(&seg_slot(s->base, slot)->word, 0);
		futex_wake_class(lock_futex(&seg_slot(s->base, slot)->word), INT_MAX, LOCK_CLASS_ANY);
	}
	if (s->successor && !s->successor->broken && n->count && t.n && name_kind(s, slot) == KIND_LOCK)
		mark_died(s->successor, name_kind(s, slot), t);
	name_end(s, slot);
}

unsigned space_end_some(struct space *s, unsigned max)
{
	unsigned done = 0;
	uint32_t slot;

	for (; !s->ended && done < max; done++) {
		slot = table_next(&s->names, s->end_at);
		if (!slot) {
			s->ended = true;
			if (s->successor && s->successor->before == s)
				s->successor->before = NULL;
			break;
		}
		s->end_at = slot;
		end_name(s, slot);
	}
	return done;
}

/* A space of the configuration stays until it has a successor: that one gets its access. */
bool space_let_go(struct space *s)
{
	struct shm *shm = s->shm;

	if (!s->ended || s->names.n || shm->opens_of[s->id] || (!s->successor && !space_record(s)->on_demand))
		return false;
	for (uint32_t i = 0; (i = table_next(&shm->ledger.clients, i));)
		client_area_forget(shm->clients[i], s->id);
	for (uint32_t i = 0; i < LEDGER_SPACES_MAX; i++)
		if (shm->spaces[i] && shm->spaces[i]->successor == s)
			shm->spaces[i]->successor = s->successor;
	shm->spaces[s->id] = NULL;
	space_free(s);
	return true;
}
