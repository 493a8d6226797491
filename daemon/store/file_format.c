/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Encoding is exact: one table has one form, and what encode writes, decode accepts. Decoding trusts
 * nothing: the order of its questions is the order in which their answers make sense (is it ours,
 * is it our version, is it all there, is it unharmed, does it mean something).
 */
#include "file_format.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "crc32c.h"
#include "file.h"

#define MAGIC		"dlockst1"
#define FORMAT_VERSION	1
#define HEAD_SIZE	48
#define RECORD_SIZE	16
#define CRC_SIZE	4

static uint32_t get32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof v);
	return le32toh(v);
}

static uint64_t get64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof v);
	return le64toh(v);
}

static void put32(uint8_t *p, uint32_t v)
{
	v = htole32(v);
	memcpy(p, &v, sizeof v);
}

static void put64(uint8_t *p, uint64_t v)
{
	v = htole64(v);
	memcpy(p, &v, sizeof v);
}

struct file_record *file_record_new(const char *key, size_t key_size, const void *value,
				    size_t size, uint64_t version)
{
	struct file_record *r = calloc(1, sizeof *r + size + key_size + 1);

	if (!r)
		return NULL;
	r->version = version;
	r->size = size;
	r->value = (uint8_t *)(r + 1);
	r->key = (char *)r->value + size;
	if (size)
		memcpy(r->value, value, size);
	memcpy(r->key, key, key_size);
	return r;
}

size_t file_table_find(const struct file_table *t, const char *key, bool *ret_there)
{
	size_t low = 0, high = t->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int order = strcmp(t->records[middle]->key, key);

		if (order == 0) {
			*ret_there = true;
			return middle;
		}
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	*ret_there = false;
	return low;
}

void file_table_done(struct file_table *t)
{
	for (size_t i = 0; i < t->n; i++)
		free(t->records[i]);
	free(t->records);
	t->records = NULL;
	t->n = 0;
}

static uint8_t *record_encode(uint8_t *p, const struct file_record *r)
{
	size_t key_size = strlen(r->key);

	put32(p, (uint32_t)key_size);
	put32(p + 4, (uint32_t)r->size);
	put64(p + 8, r->version);
	memcpy(p + RECORD_SIZE, r->key, key_size);
	memcpy(p + RECORD_SIZE + key_size, r->value, r->size);
	return p + RECORD_SIZE + key_size + r->size;
}

int file_format_encode(const struct file_table *t, uint8_t **ret, size_t *ret_size)
{
	size_t size = HEAD_SIZE + CRC_SIZE;
	uint8_t *data, *p;

	if (t->n > STORE_FILE_RECORDS_MAX)
		return -EFBIG;
	for (size_t i = 0; i < t->n; i++) {
		size += RECORD_SIZE + strlen(t->records[i]->key) + t->records[i]->size;
		if (size > STORE_FILE_SIZE_MAX)
			return -EFBIG;
	}

	data = malloc(size);
	if (!data)
		return -ENOMEM;
	memcpy(data, MAGIC, 8);
	put32(data + 8, FORMAT_VERSION);
	put32(data + 12, (uint32_t)t->n);
	put64(data + 16, size);
	put64(data + 24, t->revision);
	memcpy(data + 32, t->uuid, sizeof t->uuid);

	p = data + HEAD_SIZE;
	for (size_t i = 0; i < t->n; i++)
		p = record_encode(p, t->records[i]);
	assert(p + CRC_SIZE == data + size);
	put32(p, crc32c(0, data, size - CRC_SIZE));

	*ret = data;
	*ret_size = size;
	return 0;
}

/* Takes one record from *p; end is where records must end. */
static int record_decode(const uint8_t **p, const uint8_t *end, uint64_t revision,
			 struct file_record **ret)
{
	const uint8_t *head = *p;
	size_t left = (size_t)(end - head), key_size, size;
	struct file_record *r;
	uint64_t version;

	if (left < RECORD_SIZE)
		return STORE_FILE_EMALFORMED;
	key_size = get32(head);
	size = get32(head + 4);
	version = get64(head + 8);
	left -= RECORD_SIZE;
	if (key_size > STORE_KEY_MAX || size > STORE_VALUE_MAX || key_size + size > left ||
	    version < 1 || version > revision)
		return STORE_FILE_EMALFORMED;

	head += RECORD_SIZE;
	r = file_record_new((const char *)head, key_size, head + key_size, size, version);
	if (!r)
		return -ENOMEM;
	if (strlen(r->key) != key_size || !store_key_valid(r->key)) {
		free(r);
		return STORE_FILE_EMALFORMED;
	}

	*p = head + key_size + size;
	*ret = r;
	return 0;
}

static int records_decode(const uint8_t *p, const uint8_t *end, size_t n, struct file_table *t)
{
	for (t->n = 0; t->n < n; t->n++) {
		int r = record_decode(&p, end, t->revision, &t->records[t->n]);

		if (r < 0)
			return r;
		if (t->n && strcmp(t->records[t->n - 1]->key, t->records[t->n]->key) >= 0) {
			free(t->records[t->n]);
			return STORE_FILE_EMALFORMED;
		}
	}
	return p == end ? 0 : STORE_FILE_EMALFORMED;
}

/* Is this a whole and unharmed file of this format? */
static int head_check(const uint8_t *data, size_t size)
{
	/* An empty file is what a crash makes of a file that nobody synced; it is not "foreign". */
	if (memcmp(data, MAGIC, size < 8 ? size : 8) != 0)
		return STORE_FILE_EFOREIGN;
	if (size < 12)
		return STORE_FILE_ESHORT;
	if (get32(data + 8) > FORMAT_VERSION)
		return STORE_FILE_ENEWER;
	if (size < HEAD_SIZE + CRC_SIZE || size < get64(data + 16))
		return STORE_FILE_ESHORT;
	if (get32(data + size - CRC_SIZE) != crc32c(0, data, size - CRC_SIZE))
		return STORE_FILE_ETORN;
	if (get32(data + 8) != FORMAT_VERSION || get64(data + 16) != size ||
	    get32(data + 12) > STORE_FILE_RECORDS_MAX)
		return STORE_FILE_EMALFORMED;
	return 0;
}

int file_format_decode(const uint8_t *data, size_t size, struct file_table *ret)
{
	struct file_table t = { .n = 0 };
	size_t n;
	int r = head_check(data, size);

	if (r < 0)
		return r;
	t.revision = get64(data + 24);
	memcpy(t.uuid, data + 32, sizeof t.uuid);

	n = get32(data + 12);
	t.records = calloc(n + 1, sizeof *t.records);
	if (!t.records)
		return -ENOMEM;
	r = records_decode(data + HEAD_SIZE, data + size - CRC_SIZE, n, &t);
	if (r < 0) {
		file_table_done(&t);
		return r;
	}
	*ret = t;
	return 0;
}
