/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "page.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../fault.h"
#include "files.h"

/* No space can be called so: their names have no dots. */
#define FILE_NAME "node.page"

static void line_set(uint64_t *field, uint64_t value)
{
	FAULT_AROUND(__atomic_store_n(field, value, __ATOMIC_RELEASE));
}

static int page_map(struct page *p, int fd)
{
	struct stat st;
	void *m;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != NODE_PAGE_SIZE)
		return -ESTALE;
	m = mmap(NULL, NODE_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (m == MAP_FAILED)
		return -errno;
	p->line = m;
	return 0;
}

/* Whoever maps this page learns that everything it stood for is over. */
static void page_end(struct page *p)
{
	for (uint32_t i = 0; i < NODE_LINES; i++) {
		line_set(&p->line[i].ns, NODE_GONE);
		line_set(&p->line[i].ticks, 0);
	}
	munmap(p->line, NODE_PAGE_SIZE);
	p->line = NULL;
}

static int page_make(struct page *p, int dirfd, uint64_t session)
{
	int fd = openat(dirfd, FILE_NAME, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	int r;

	if (fd < 0)
		return -errno;
	r = files_room(fd, 0, NODE_PAGE_SIZE);
	if (r == 0)
		r = page_map(p, fd);
	close(fd);
	if (r < 0)
		return r;
	p->line[0].session = session;
	p->line[0].ns = p->ns;
	line_set(&p->line[0].ticks, p->ticks);
	line_set(&p->line[0].magic, NODE_MAGIC);
	return 0;
}

int page_open(struct page *p, int dirfd, uint64_t session, bool fresh, uint64_t ns, uint64_t ticks)
{
	int fd, r;

	*p = (struct page){ .fd = -1, .ns = ns, .ticks = ticks };
	fd = openat(dirfd, FILE_NAME, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 && (errno != ENOENT || !fresh))
		return -errno;
	if (fd >= 0) {
		r = page_map(p, fd);
		close(fd);
		if (!fresh && r == 0 && (p->line[0].magic != NODE_MAGIC || p->line[0].session != session))
			r = -ESTALE;
		if (!fresh && r < 0) {
			page_close(p);
			return r;
		}
	}
	if (fresh) {
		if (p->line)
			page_end(p);
		if (unlinkat(dirfd, FILE_NAME, 0) < 0 && errno != ENOENT)
			return -errno;
		r = page_make(p, dirfd, session);
		if (r < 0) {
			page_close(p);
			return r;
		}
	}
	p->fd = openat(dirfd, FILE_NAME, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (p->fd < 0) {
		r = -errno;
		page_close(p);
		return r;
	}
	return 0;
}

void page_close(struct page *p)
{
	if (p->line)
		munmap(p->line, NODE_PAGE_SIZE);
	if (p->fd >= 0)
		close(p->fd);
	*p = (struct page){ .fd = -1 };
}

void page_space_good(struct page *p, uint32_t space, uint64_t generation)
{
	struct node_line *l = &p->line[space];

	line_set(&l->generation, generation);
	line_set(&l->ns, p->ns);
	line_set(&l->ticks, p->ticks);
}

/* Line 0 is good as long as there is a node; those of spaces that are lost stay so. */
static bool line_is_good(const struct page *p, uint32_t i)
{
	return i == 0 || (p->line[i].generation && p->line[i].ns != NODE_GONE);
}

void page_deadline(struct page *p, uint64_t ns, uint64_t ticks)
{
	p->ns = ns;
	p->ticks = ticks;
	for (uint32_t i = 0; i < NODE_LINES; i++) {
		if (!line_is_good(p, i))
			continue;
		line_set(&p->line[i].ticks, ticks);
		line_set(&p->line[i].ns, ns);
	}
}

void page_loss_span(struct page *p, uint64_t span)
{
	line_set(&p->line[0].loss_ns, span);
}

void page_space_gone(struct page *p, uint32_t space)
{
	struct node_line *l = &p->line[space];

	line_set(&l->ns, NODE_GONE);
	line_set(&l->ticks, 0);
}
