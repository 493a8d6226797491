/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "ledger.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../include/proto/segment.h"
#include "../fault.h"
#include "files.h"

#define HEAD_MAGIC UINT64_C(0x3144414548434c44)  /* "DLCHEAD1" */

struct ledger_head {
	uint64_t magic, inode;
	struct ledger_identity id;
	struct ledger_cluster cluster;   /* an earlier release's head ends before it */
};

#define HEAD_MIN offsetof(struct ledger_head, cluster)

static const struct table_spec clients_spec = { sizeof(struct ledger_client), SEG_CLIENTS_MAX };
static const struct table_spec spaces_spec = { sizeof(struct ledger_space), LEDGER_SPACES_MAX };
static const struct table_spec opens_spec = { sizeof(struct ledger_open), LEDGER_OPENS_MAX };

static int head_read(int rundir_fd, struct ledger_head *ret)
{
	struct ledger_head h = { 0 };
	struct stat st;
	int fd, r = -ESTALE;

	fd = openat(rundir_fd, "ledger/head", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) == 0 && pread(fd, &h, sizeof h, 0) >= (ssize_t)HEAD_MIN &&
	    h.magic == HEAD_MAGIC && h.inode == st.st_ino) {
		*ret = h;
		r = 0;
	}
	close(fd);
	return r;
}

int ledger_peek(int rundir_fd, struct ledger_identity *ret)
{
	struct ledger_head h;
	int r = head_read(rundir_fd, &h);

	if (r == 0)
		*ret = h.id;
	return r;
}

/* The head is written last when a ledger is made: one without a head was never in use. */
static int ledger_write_head(struct ledger *l)
{
	struct ledger_head h = { .magic = HEAD_MAGIC, .id = l->id, .cluster = l->cluster };
	struct stat st;

	if (l->head < 0)
		l->head = openat(l->dirfd, "head", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (l->head < 0 || fstat(l->head, &st) < 0)
		return -errno;
	h.inode = st.st_ino;
	errno = 0;
	return pwrite(l->head, &h, sizeof h, 0) == (ssize_t)sizeof h ? 0 : errno ? -errno : -EIO;
}

int ledger_peek_cluster(int rundir_fd, struct ledger_cluster *ret)
{
	struct ledger_head h;
	int r = head_read(rundir_fd, &h);

	if (r == 0 && h.cluster.layout > LEDGER_CLUSTER_LAYOUT)
		r = -ESTALE;
	if (r == 0)
		*ret = h.cluster;
	return r;
}

int ledger_note_cluster(struct ledger *l, const struct ledger_cluster *c)
{
	l->cluster = *c;
	return ledger_write_head(l);
}

int ledger_note_epoch(struct ledger *l, uint32_t epoch)
{
	l->id.epoch = epoch;
	return ledger_write_head(l);
}

static uint32_t open_hash(const struct ledger *l, uint32_t client, uint16_t space, uint32_t slot)
{
	uint64_t h = (uint64_t)client << 36 ^ (uint64_t)space << 20 ^ slot;

	h ^= h >> 29;
	h *= UINT64_C(0x9e3779b97f4a7c15);
	return (uint32_t)(h >> 32) & (l->open_buckets_n - 1);
}

static void open_chain(struct ledger *l, uint32_t i)
{
	struct ledger_open *o = ledger_open_at(l, i);
	uint32_t *b = &l->open_buckets[open_hash(l, o->client, o->space, o->slot)];

	o->hash_next = *b;
	*b = i;
}

/* Keeps about one record per bucket. Without memory the chains grow longer, and that is all. */
static void open_rehash(struct ledger *l, uint32_t n)
{
	uint32_t *fresh = calloc(n, sizeof *fresh);

	if (!fresh)
		return;
	free(l->open_buckets);
	l->open_buckets = fresh;
	l->open_buckets_n = n;
	for (uint32_t i = 0; (i = table_next(&l->opens, i));)
		if (ledger_open_at(l, i)->client)
			open_chain(l, i);
}

/* The new one must not be in the table's view of what is in use while this runs. */
static void open_resize(struct ledger *l)
{
	if (l->opens.n > l->open_buckets_n)
		open_rehash(l, l->open_buckets_n * 2);
	else if (l->open_buckets_n > 1024 && l->opens.n < l->open_buckets_n / 8)
		open_rehash(l, l->open_buckets_n / 2);
}

static void open_link(struct ledger *l, uint32_t i)
{
	struct ledger_open *o = ledger_open_at(l, i);
	struct ledger_client *c = ledger_client(l, o->client);

	o->prev = 0;
	o->next = c->opens;
	if (o->next)
		ledger_open_at(l, o->next)->prev = i;
	c->opens = i;
}

uint32_t ledger_open_find(const struct ledger *l, uint32_t client, uint16_t space, uint32_t slot)
{
	uint32_t i = l->open_buckets[open_hash(l, client, space, slot)];

	for (; i; i = ledger_open_at(l, i)->hash_next) {
		const struct ledger_open *o = ledger_open_at(l, i);

		if (o->client == client && o->space == space && o->slot == slot)
			return i;
	}
	return 0;
}

int ledger_open_add(struct ledger *l, uint32_t client, uint16_t space, uint32_t slot, uint32_t *ret)
{
	struct ledger_open *o;
	uint32_t i;
	int r;

	if (ledger_open_find(l, client, space, slot))
		return -EEXIST;
	open_resize(l);
	r = table_take(&l->opens, &i);
	if (r < 0)
		return r;
	o = ledger_open_at(l, i);
	o->slot = slot;
	o->space = space;
	table_commit(&l->opens, i, client);
	open_chain(l, i);
	open_link(l, i);
	*ret = i;
	return 0;
}

void ledger_open_del(struct ledger *l, uint32_t i)
{
	struct ledger_open *o = ledger_open_at(l, i);
	uint32_t *at = &l->open_buckets[open_hash(l, o->client, o->space, o->slot)];

	while (*at != i)
		at = &ledger_open_at(l, *at)->hash_next;
	*at = o->hash_next;
	if (o->next)
		ledger_open_at(l, o->next)->prev = o->prev;
	if (o->prev)
		ledger_open_at(l, o->prev)->next = o->next;
	else
		ledger_client(l, o->client)->opens = o->next;
	table_drop(&l->opens, i);
	open_resize(l);
}

/* Lists and chains are made anew: a daemon that died may have left them half-linked. */
static void ledger_relink(struct ledger *l)
{
	for (uint32_t i = 0; (i = table_next(&l->clients, i));)
		ledger_client(l, i)->opens = 0;
	for (uint32_t i = 0, next; (next = table_next(&l->opens, i)); i = next) {
		const struct ledger_open *o = ledger_open_at(l, next);

		if (!table_in_use(&l->clients, o->client) || !table_in_use(&l->spaces, o->space) ||
		    o->slot >= SEG_SLOTS_MAX)
			table_drop(&l->opens, next);
		else
			open_link(l, next);
	}
	uint32_t n = 1024;

	while (n < l->opens.n)
		n *= 2;
	open_rehash(l, n);
}

int ledger_open(struct ledger *l, int rundir_fd, const struct ledger_identity *id, bool fresh)
{
	struct ledger_head before;
	int r;

	*l = (struct ledger){ .dirfd = -1, .head = -1, .id = *id, .clients.fd = -1, .spaces.fd = -1, .opens.fd = -1 };
	if (fresh) {
		r = files_empty(rundir_fd, "ledger");
		if (r < 0)
			return r;
	} else if (head_read(rundir_fd, &before) == 0) {
		l->cluster = before.cluster;
	}
	r = files_dir(rundir_fd, "ledger", 0700);
	if (r < 0)
		return r;
	l->dirfd = r;
	l->open_buckets_n = 1024;
	l->open_buckets = calloc(l->open_buckets_n, sizeof *l->open_buckets);
	r = l->open_buckets ? 0 : -ENOMEM;
	if (r == 0)
		r = table_open(&l->clients, l->dirfd, "clients", &clients_spec, id->session, fresh);
	if (r == 0)
		r = table_open(&l->spaces, l->dirfd, "spaces", &spaces_spec, id->session, fresh);
	if (r == 0)
		r = table_open(&l->opens, l->dirfd, "opens", &opens_spec, id->session, fresh);
	if (r == 0 && !fresh)
		ledger_relink(l);
	if (r == 0)
		r = ledger_write_head(l);
	if (r < 0)
		ledger_close(l);
	return r;
}

void ledger_close(struct ledger *l)
{
	if (l->clients.base)
		table_close(&l->clients);
	if (l->spaces.base)
		table_close(&l->spaces);
	if (l->opens.base)
		table_close(&l->opens);
	free(l->open_buckets);
	if (l->head >= 0)
		close(l->head);
	if (l->dirfd >= 0)
		close(l->dirfd);
	*l = (struct ledger){ .dirfd = -1, .head = -1 };
}
