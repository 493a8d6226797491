/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "space.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/hatch.h"

#define VALUES_SIZE   (SEG_FILE_SIZE - SEG_VALUE_OFF)
#define HEAD_AND_BITS (SEG_BITS1_OFF + SEG_BITS * SEG_L1_WORDS * sizeof(uint64_t))

static struct space *spaces;             /* newest first */
static uint32_t last_serial;

static struct space *space_first(const char *name, size_t len)
{
	struct space *s = spaces;

	while (s && (strlen(s->name) != len || memcmp(s->name, name, len)))
		s = s->next;
	return s;
}

static bool fifo_ino(int fd, uint64_t *ret)
{
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISFIFO(st.st_mode))
		return false;
	*ret = st.st_ino;
	return true;
}

static bool bell_good(const struct space *s)
{
	uint64_t ino;

	return fifo_ino(__atomic_load_n(&s->bell, __ATOMIC_ACQUIRE), &ino) && ino == s->bell_ino;
}

uint64_t space_newest(const char *name, size_t len)
{
	const struct space *s = space_first(name, len);

	return s ? s->generation : 0;
}

static bool hatch_good(const struct space *s, uint32_t epoch)
{
	return s && s->epoch == epoch && s->era && s->era == __atomic_load_n(seg_era(s->base), __ATOMIC_ACQUIRE) && s->bell >= 0;
}

struct space *space_hatch(const char *name, size_t len, uint32_t epoch)
{
	struct space *s = space_first(name, len);

	return hatch_good(s, epoch) ? s : NULL;
}

struct space *space_hatch_of(uint32_t number, uint32_t epoch)
{
	struct space *s = spaces;

	while (s && (s->number != number || s->epoch != epoch))
		s = s->next;
	return hatch_good(s, epoch) ? s : NULL;
}

void space_opened(struct space *s, uint32_t number, uint32_t epoch)
{
	s->number = number;
	s->epoch = epoch;
	s->era = __atomic_load_n(seg_era(s->base), __ATOMIC_ACQUIRE);
}

static bool head_good(const struct seg_head *h, uint64_t generation)
{
	return h->magic == SEG_MAGIC && h->major == SEG_MAJOR && h->must_understand == 0 &&
	       h->generation == generation && h->slot_size == sizeof(struct seg_slot) &&
	       h->area_size == SEG_AREA_SIZE && h->slots_max == SEG_SLOTS_MAX &&
	       h->clients_max == SEG_CLIENTS_MAX && h->bits2_off == SEG_BITS2_OFF &&
	       h->bits1_off == SEG_BITS1_OFF && h->area_off == SEG_AREA_OFF &&
	       h->slot_off == SEG_SLOT_OFF && h->size == SEG_SIZE && h->line_off == SEG_LINE_OFF &&
	       h->lines_max == SEG_LINES_MAX;
}

static int segment_map(int fd, uint64_t generation, void **ret)
{
	struct stat st;
	void *p;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size < SEG_SIZE)
		return -EPROTO;
	p = mmap(NULL, SEG_SIZE, PROT_NONE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (p == MAP_FAILED)
		return errno == ENOMEM || errno == EAGAIN ? -ENOMEM : -EPROTO;   /* EAGAIN: more than may be locked */
	munlock(p, SEG_SIZE);            /* after mlockall(MCL_FUTURE) */
	if (mprotect(p, HEAD_AND_BITS, PROT_READ | PROT_WRITE) < 0) {
		munmap(p, SEG_SIZE);
		return -ENOMEM;
	}
	if (!head_good(p, generation)) {
		munmap(p, SEG_SIZE);
		return -EPROTO;
	}
	madvise(p, SEG_SIZE, MADV_DONTDUMP);
	*ret = p;
	return 0;
}

/* What nobody refers to, but for the newest of each space; and what is the parent's, since this thread may be about to use that. */
static void spaces_trim(void)
{
	struct space **at = &spaces, *s;

	while ((s = *at)) {
		if (s->refs || !s->generation || space_first(s->name, strlen(s->name)) == s) {
			at = &s->next;
			continue;
		}
		*at = s->next;
		munmap(s->base, SEG_SIZE);
		if (s->values)
			munmap(s->values, VALUES_SIZE);
		if (bell_good(s))
			close(s->bell);
		free(s);
	}
}

static int space_map(const char *name, size_t len, uint64_t generation, int segment_fd, struct space **ret)
{
	struct space *s = calloc(1, sizeof *s);
	int r;

	if (!s)
		return -ENOMEM;
	r = segment_map(segment_fd, generation, &s->base);
	if (r < 0) {
		free(s);
		return r;
	}
	memcpy(s->name, name, len);
	s->generation = generation;
	s->serial = ++last_serial;
	s->bell = -1;
	s->next = spaces;
	spaces = s;
	*ret = s;
	return 0;
}

static int bell_set(struct space *s, int fd)
{
	if (fd < 0 && s->bell >= 0)
		return 0;                /* that it is there still is looked at before it is rung */
	if (bell_good(s)) {
		if (fd >= 0)
			close(fd);
		return 0;
	}
	if (!fifo_ino(fd, &s->bell_ino))
		return -EPROTO;
	fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK);
	__atomic_store_n(&s->bell, fd, __ATOMIC_RELEASE);
	return 0;
}

/* A child goes on with the descriptor that it has from its parent. */
static int bell_inherited(const char *name, size_t len, int fd)
{
	uint64_t ino;

	for (const struct space *s = spaces; s && fifo_ino(fd, &ino); s = s->next) {
		if (s->generation || strlen(s->name) != len || memcmp(s->name, name, len) || s->bell_ino != ino || !bell_good(s))
			continue;
		close(fd);
		return s->bell;
	}
	return fd;
}

int space_get(const char *name, size_t len, uint64_t generation, int segment_fd, int bell_fd,
	      struct space **ret)
{
	struct space *s = space_first(name, len);
	int r = 0;

	if (!s || s->generation != generation) {
		r = space_map(name, len, generation, segment_fd, &s);
		if (r == 0)
			bell_fd = bell_inherited(name, len, bell_fd);
	}
	if (segment_fd >= 0)
		close(segment_fd);
	if (r == 0)
		r = bell_set(s, bell_fd);
	if (r < 0) {
		if (bell_fd >= 0)
			close(bell_fd);
		return r;
	}
	*ret = space_ref(s);
	spaces_trim();
	return 0;
}

/* In whole pages of this machine, which may be larger than an area. */
static int open_up(char *base, uint64_t off, uint64_t size)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), begin = off & ~(page - 1);

	return mprotect(base + begin, off + size - begin, PROT_READ | PROT_WRITE) < 0 ? -ENOMEM : 0;
}

int space_reach(struct space *s, uint32_t client, uint32_t slot)
{
	uint32_t chunk = slot / SEG_CHUNK_SLOTS;
	uint64_t bit = UINT64_C(1) << (chunk % 64);
	int r = 0;

	if (s->area != client)
		r = open_up(s->base, SEG_AREA_OFF + (uint64_t)client * SEG_AREA_SIZE, SEG_AREA_SIZE);
	if (r == 0 && s->area != client)
		r = open_up(s->base, SEG_HATCH1_OFF + client / 64 * sizeof(uint64_t), sizeof(uint64_t));
	if (r == 0 && !(s->chunks[chunk / 64] & bit))
		r = open_up(s->base, SEG_SLOT_OFF + (uint64_t)chunk * SEG_CHUNK_SLOTS * sizeof(struct seg_slot),
			    SEG_CHUNK_SLOTS * sizeof(struct seg_slot));
	if (r < 0)
		return r;
	s->area = client;
	s->chunks[chunk / 64] |= bit;
	return 0;
}

static int values_map(struct space *s, int fd)
{
	struct stat st;
	void *p;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size < SEG_FILE_SIZE)
		return -EPROTO;
	p = mmap(NULL, VALUES_SIZE, PROT_NONE, MAP_SHARED | MAP_NORESERVE, fd, (off_t)SEG_VALUE_OFF);
	if (p == MAP_FAILED)
		return -ENOMEM;
	munlock(p, VALUES_SIZE);         /* as segment_map() */
	madvise(p, VALUES_SIZE, MADV_DONTDUMP);
	s->values = p;
	return 0;
}

int space_value(struct space *s, uint32_t slot, int fd, struct value_page **ret)
{
	uint64_t off = (uint64_t)slot * SEG_VALUE_SIZE;
	int r = s->values ? 0 : values_map(s, fd);

	if (r == 0)
		r = open_up(s->values, off, SEG_VALUE_SIZE);
	if (r < 0)
		return r;
	if (!s->values_end || off < s->values_begin)
		s->values_begin = off;
	if (off + SEG_VALUE_SIZE > s->values_end)
		s->values_end = off + SEG_VALUE_SIZE;
	*ret = (struct value_page *)(s->values + off);
	return 0;
}

uint32_t space_lines(struct space *s)
{
	uint64_t used = __atomic_load_n(seg_lines_used(s->base), __ATOMIC_ACQUIRE);
	uint32_t n = used < SEG_LINES_MAX ? (uint32_t)used : SEG_LINES_MAX;

	if (n <= __atomic_load_n(&s->lines_open, __ATOMIC_ACQUIRE))
		return n;
	if (open_up(s->base, SEG_LINE_OFF, (uint64_t)n * SEG_LINE_CELLS * sizeof(uint64_t)) < 0)
		return 0;
	__atomic_store_n(&s->lines_open, n, __ATOMIC_RELEASE);
	return n;
}

/* Nothing is charged for that yet, so it does not fail; and no page is there before it is touched. */
static void cover(char *base, uint64_t size)
{
	mmap(base, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

/* As far as this process could reach it. */
static void cover_segment(struct space *s)
{
	cover(s->base, SEG_SIZE);
	mprotect(s->base, HEAD_AND_BITS, PROT_READ | PROT_WRITE);
	open_up(s->base, SEG_HATCH1_OFF, SEG_HATCH1_SIZE);
	open_up(s->base, SEG_AREA_OFF + (uint64_t)s->area * SEG_AREA_SIZE, SEG_AREA_SIZE);
	if (s->lines_open)
		open_up(s->base, SEG_LINE_OFF, (uint64_t)s->lines_open * SEG_LINE_CELLS * sizeof(uint64_t));
	for (uint32_t i = 0; i < SEG_SLOTS_MAX / SEG_CHUNK_SLOTS; i++)
		if (s->chunks[i / 64] >> (i % 64) & 1)
			open_up(s->base, SEG_SLOT_OFF + (uint64_t)i * SEG_CHUNK_SLOTS * sizeof(struct seg_slot),
				SEG_CHUNK_SLOTS * sizeof(struct seg_slot));
	if (!s->values)
		return;
	cover(s->values, VALUES_SIZE);
	if (s->values_end)
		open_up(s->values, s->values_begin, s->values_end - s->values_begin);
}

void spaces_child(void)
{
	int saved = errno;

	for (struct space *s = spaces; s; s = s->next) {
		s->refs -= s->lines;
		s->lines = 0;
		if (s->generation)
			cover_segment(s);
		s->generation = 0;
	}
	errno = saved;
}

struct space *space_ref(struct space *s)
{
	s->refs++;
	return s;
}

void space_put(struct space *s)
{
	if (s && --s->refs == 0)
		spaces_trim();
}

/* A full FIFO is a bell that rings already. */
bool space_ring(const struct space *s)
{
	int saved = errno;
	bool good;

	if (seg_ring(s->base))
		return true;
	good = bell_good(s);

	if (good)
		syscall(SYS_write, s->bell, "", 1);
	errno = saved;
	return good;
}
