/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The embedded store. All records are in memory and, the same, in one file that is replaced as a
 * whole by every change. In the state directory:
 *
 *	store		the records (file_format.h)
 *	store.id	the store's uuid as text: "a store has been here, and it was this one"
 *	lock		held with flock() by the daemon that uses the directory; says its pid
 *	*.new		a replacement being written; removed at the next opening
 *
 * What must be true:
 *
 *  - Memory is what is known to be durable. A change is made in a copy of the table, written to a
 *    new file, fsynced, renamed over the old one, and the directory fsynced; only then does the
 *    copy become the table and the request succeed. So a failure leaves table and file as they were.
 *  - An fsync that failed says nothing about what is on disk, and neither does one that succeeds
 *    after it (the kernel reports an error once and marks the pages clean; see "fsyncgate",
 *    PostgreSQL, 2018). The new file is therefore given up as a whole when its fsync fails, and the
 *    next attempt writes another inode. Past the rename there is nothing to give up: if the
 *    directory's fsync fails (or the rename itself with EIO), either file may be the one that is
 *    there after a power cut. Then the request fails in doubt, the store is broken and takes no more
 *    writes, and reads go on to give what was durable before. A restart reads again, and fsyncs
 *    what it read before it believes it.
 *  - A store that is missing, foreign, newer, short or torn is an error with a sentence, never a
 *    reset: tokens and epochs are counted up from here, and counting anew would hand them out
 *    twice. A first start is one in which neither the store nor store.id nor identity exists. The
 *    store is made before store.id, so that a crash between the two leaves a store without its mark,
 *    which the next start completes.
 *  - No path is walked twice: all is relative to one descriptor of the directory, which is ours (or
 *    root's), writable by nobody else, and not reached through a symbolic link.
 */
#include "file.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "file_dir.h"
#include "file_format.h"

#define STORE_NAME	"store"
#define MARK_NAME	"store.id"
#define IDENTITY_NAME	"identity"
#define UUID_TEXT_SIZE	37

struct store_file {
	struct store base;
	struct file_dir dir;
	struct file_table table;
	unsigned completing;		/* callbacks that are running now, one inside the other */
	struct file_record *dead;	/* replaced, but perhaps still looked at by those */
};

static struct store_file *from_base(struct store *s)
{
	return (struct store_file *)s;
}

static void uuid_text(const uint8_t *u, char *ret)
{
	snprintf(ret, UUID_TEXT_SIZE,
		 "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1],
		 u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14],
		 u[15]);
}

static int table_write(struct store_file *f, const struct file_table *t)
{
	uint8_t *data;
	size_t size;
	int r = file_format_encode(t, &data, &size);

	if (r == -EFBIG)
		return file_dir_say(&f->dir, r, STORE_NAME,
				    "would grow above %d records or %d bytes. Remove some keys.",
				    STORE_FILE_RECORDS_MAX, STORE_FILE_SIZE_MAX);
	if (r < 0)
		return file_dir_fail(&f->dir, r, STORE_NAME, "write it");
	r = file_dir_replace(&f->dir, STORE_NAME, data, size);
	free(data);
	return r;
}

/* --- Opening --- */

static int explain_decode(struct store_file *f, int error)
{
	switch (error) {
	case STORE_FILE_EFOREIGN:
		return file_dir_say(&f->dir, error, STORE_NAME,
				    "is not a store of dlock. Move it away, and put this node's "
				    "store or its backup here.");
	case STORE_FILE_ENEWER:
		return file_dir_say(&f->dir, error, STORE_NAME,
				    "was written by a newer release of dlock. Use that release or "
				    "a later one.");
	case STORE_FILE_ESHORT:
	case STORE_FILE_ETORN:
	case STORE_FILE_EMALFORMED:
		return file_dir_say(&f->dir, error, STORE_NAME,
				    "is %s. Check the disk, and put a backup here. Only if there "
				    "is none, and no resource remembers a token of this node: "
				    "remove all of %s to begin anew.",
				    error == STORE_FILE_ESHORT ? "truncated" :
				    error == STORE_FILE_ETORN ? "damaged" : "inconsistent",
				    f->dir.path);
	}
	return file_dir_fail(&f->dir, error, STORE_NAME, "read it");
}

static int mark_write(struct store_file *f)
{
	char text[UUID_TEXT_SIZE];

	uuid_text(f->table.uuid, text);
	text[UUID_TEXT_SIZE - 1] = '\n';
	return file_dir_replace(&f->dir, MARK_NAME, text, sizeof text);
}

/* Is the store the one that the mark names? No mark: what a crash of the first start leaves. */
static int mark_check(struct store_file *f)
{
	char text[UUID_TEXT_SIZE];
	uint8_t *mark;
	size_t size;
	bool fits;
	int r;

	r = file_dir_read(&f->dir, MARK_NAME, &mark, &size);
	if (r == -ENOENT)
		return mark_write(f);
	if (r < 0)
		return r;
	uuid_text(f->table.uuid, text);
	fits = size == sizeof text && memcmp(mark, text, sizeof text - 1) == 0;
	free(mark);
	if (!fits)
		return file_dir_say(&f->dir, STORE_FILE_ESWAPPED, STORE_NAME,
				    "is whole, but it is store %s and not the one that " MARK_NAME
				    " names. Put the right one here; if this one is meant to "
				    "replace it, remove " MARK_NAME ".", text);
	return 0;
}

/* There is no store. Was there ever one? */
static int first_check(struct store_file *f)
{
	static const char *const marks[] = { MARK_NAME, IDENTITY_NAME };
	struct stat st;

	for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
		if (fstatat(f->dir.fd, marks[i], &st, AT_SYMLINK_NOFOLLOW) == 0)
			return file_dir_say(&f->dir, STORE_FILE_EMISSING, STORE_NAME,
					    "is missing, although this node has been started "
					    "before: %s is there. Put the store or its backup "
					    "here. Only if there is none, and no resource "
					    "remembers a token of this node: remove all of %s to "
					    "begin anew.", marks[i], f->dir.path);
		if (errno != ENOENT)
			return file_dir_fail(&f->dir, -errno, marks[i], "examine it");
	}
	return 0;
}

static int store_make(struct store_file *f)
{
	int r = first_check(f);

	if (r < 0)
		return r;
	if (getrandom(f->table.uuid, sizeof f->table.uuid, 0) != sizeof f->table.uuid)
		return file_dir_fail(&f->dir, -EIO, STORE_NAME, "get random bytes for it");
	f->table.uuid[6] = (f->table.uuid[6] & 0x0f) | 0x40;
	f->table.uuid[8] = (f->table.uuid[8] & 0x3f) | 0x80;

	r = table_write(f, &f->table);
	if (r < 0)
		return r;
	/* The directory may be new too, and its parent may be one that we cannot open. */
	if (f->dir.io->syncfs(f->dir.fd) < 0)
		return file_dir_fail(&f->dir, -errno, NULL, "be sure that it has reached the disk");
	return mark_write(f);
}

static int store_load(struct store_file *f)
{
	uint8_t *data;
	size_t size;
	int r;

	r = file_dir_read(&f->dir, STORE_NAME, &data, &size);
	if (r == -ENOENT)
		return store_make(f);
	if (r < 0)
		return r;
	r = file_format_decode(data, size, &f->table);
	free(data);
	if (r < 0)
		return explain_decode(f, r);
	if (f->dir.io->fsync(f->dir.fd) < 0)
		return file_dir_fail(&f->dir, -errno, NULL, "be sure that it has reached the disk");
	return mark_check(f);
}

/* --- Requests --- */

static void complete(struct store_file *f, store_done_fn done, void *arg,
		     const struct store_result *result)
{
	f->completing++;
	done(arg, result);
	if (--f->completing)
		return;
	while (f->dead) {
		struct file_record *r = f->dead;

		f->dead = r->next;
		free(r);
	}
}

static struct store_record record_view(const struct file_record *r)
{
	return (struct store_record){
		.key = r->key, .value = r->value, .size = r->size, .version = r->version,
	};
}

static void file_get(struct store *s, const char *key, store_done_fn done, void *arg)
{
	struct store_file *f = from_base(s);
	struct store_result result = { .error = 0 };
	struct store_record record;
	bool there;
	size_t at = file_table_find(&f->table, key, &there);

	if (there) {
		record = record_view(f->table.records[at]);
		result.version = record.version;
		result.records = &record;
		result.n_records = 1;
	}
	complete(f, done, arg, &result);
}

static void file_list(struct store *s, const char *prefix, store_done_fn done, void *arg)
{
	struct store_file *f = from_base(s);
	struct store_result result = { .error = 0 };
	size_t prefix_size = strlen(prefix), first, n = 0;
	struct store_record *records;
	bool there;

	first = file_table_find(&f->table, prefix, &there);
	while (first + n < f->table.n &&
	       strncmp(f->table.records[first + n]->key, prefix, prefix_size) == 0)
		n++;
	records = calloc(n + 1, sizeof *records);
	if (records) {
		for (size_t i = 0; i < n; i++)
			records[i] = record_view(f->table.records[first + i]);
		result.records = records;
		result.n_records = n;
	} else {
		result.error = file_dir_fail(&f->dir, -ENOMEM, NULL, "list it");
	}
	complete(f, done, arg, &result);
	free(records);
}

/* *ret is t with one record replaced, put in, or (put NULL) taken out; it shares the others. */
static int table_change(const struct file_table *t, size_t at, bool there, struct file_record *put,
			struct file_table *ret)
{
	struct file_table c = *t;
	size_t behind = at + there, put_n = put ? 1 : 0;

	c.records = calloc(t->n + 1, sizeof *c.records);
	if (!c.records)
		return -ENOMEM;
	c.revision++;
	c.n = t->n - there + put_n;
	for (size_t i = 0; i < at; i++)
		c.records[i] = t->records[i];
	if (put)
		c.records[at] = put;
	for (size_t i = behind; i < t->n; i++)
		c.records[i - behind + at + put_n] = t->records[i];
	*ret = c;
	return 0;
}

/* Makes one change durable, then true. put belongs to the table afterwards, if that succeeds. */
static int change_commit(struct store_file *f, size_t at, bool there, struct file_record *put)
{
	struct file_record *old = there ? f->table.records[at] : NULL;
	struct file_table changed;
	int r;

	if (f->dir.broken)
		return file_dir_say(&f->dir, -EIO, STORE_NAME,
				    "takes no more writes, because of an earlier one nobody knows "
				    "whether it has reached the disk. Check the disk, then restart "
				    "the daemon.");
	r = table_change(&f->table, at, there, put, &changed);
	if (r < 0)
		return file_dir_fail(&f->dir, r, STORE_NAME, "change it");
	r = table_write(f, &changed);
	if (r < 0) {
		free(changed.records);
		return r;
	}

	free(f->table.records);
	f->table = changed;
	if (old) {
		old->next = f->dead;
		f->dead = old;
	}
	return 0;
}

static void file_cas(struct store *s, const char *key, uint64_t expected, const void *value,
		     size_t size, store_done_fn done, void *arg)
{
	struct store_file *f = from_base(s);
	struct store_result result = { .error = 0 };
	struct file_record *put = NULL;
	bool there, was_broken = f->dir.broken, changes;
	size_t at = file_table_find(&f->table, key, &there);

	result.version = there ? f->table.records[at]->version : 0;
	changes = result.version == expected && (value || there);
	if (result.version != expected)
		result.error = -EAGAIN;
	if (changes && value) {
		put = file_record_new(key, strlen(key), value, size, f->table.revision + 1);
		if (!put)
			result.error = file_dir_fail(&f->dir, -ENOMEM, STORE_NAME, "change it");
	}
	if (changes && result.error == 0)
		result.error = change_commit(f, at, there, put);
	if (result.error < 0)
		free(put);
	else if (changes)
		result.version = put ? put->version : 0;
	result.in_doubt = f->dir.broken && !was_broken;

	complete(f, done, arg, &result);
	if (changes && result.error == 0)
		store_raise_change(s);
}

static void file_free(struct store_file *f)
{
	file_table_done(&f->table);
	file_dir_done(&f->dir);
	free(f);
}

static void file_close(struct store *s)
{
	struct store_file *f = from_base(s);

	assert(!f->completing);
	file_free(f);
}

static const struct store_ops file_ops = {
	.engine = "file",
	.get = file_get,
	.list = file_list,
	.cas = file_cas,
	.close = file_close,
};

int store_file_open(const char *path, const struct store_file_io *io, struct store **ret,
		    struct store_why *why)
{
	struct store_file *f = calloc(1, sizeof *f);
	int r;

	if (!f) {
		snprintf(why->text, sizeof why->text, "%s: no memory to open it.", path);
		return -ENOMEM;
	}
	f->base.ops = &file_ops;
	r = file_dir_open(&f->dir, path, io ? io : &store_file_io_system, &f->base.why);
	if (r == 0)
		r = file_dir_tidy(&f->dir, STORE_NAME);
	if (r == 0)
		r = file_dir_tidy(&f->dir, MARK_NAME);
	if (r == 0)
		r = store_load(f);
	if (r < 0) {
		*why = f->base.why;
		file_free(f);
		return r;
	}
	*ret = &f->base;
	return 0;
}

void store_file_info(const struct store *s, struct store_file_info *ret)
{
	const struct store_file *f = (const struct store_file *)s;

	assert(s->ops == &file_ops);
	uuid_text(f->table.uuid, ret->uuid);
	ret->revision = f->table.revision;
	ret->records = f->table.n;
	ret->broken = f->dir.broken;
}
