/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The embedded store's table in memory, and its form on disk. Pure: no file is touched here.
 *
 * All numbers are little-endian, nothing is aligned, nothing follows the checksum:
 *
 *	0	8	magic "dlockst1"
 *	8	4	format version, 1. Magic and version stay where they are for ever
 *	12	4	number of records
 *	16	8	size of the whole file
 *	24	8	revision: rises with every change; the highest version ever given out
 *	32	16	uuid of the store
 *	48		records, in ascending order of their keys:
 *		4	length of the key, 1 to 255
 *		4	size of the value
 *		8	version, 1 to revision
 *			key, value
 *	size-4	4	CRC-32C of all before it
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct file_record {
	struct file_record *next;	/* only while it waits to be freed */
	uint64_t version;
	size_t size;
	uint8_t *value;			/* both point behind this struct */
	char *key;
};

/* Sorted by key, each key once. */
struct file_table {
	uint8_t uuid[16];
	uint64_t revision;
	struct file_record **records;
	size_t n;
};

/* NULL: no memory. Freed by free(). */
struct file_record *file_record_new(const char *key, size_t key_size, const void *value,
				    size_t size, uint64_t version);

/* Where the key is, or would have to be put. */
size_t file_table_find(const struct file_table *t, const char *key, bool *ret_there);

/* Frees the records too. */
void file_table_done(struct file_table *t);

/* -EFBIG: more than STORE_FILE_SIZE_MAX; -ENOMEM. *ret is for free(). */
int file_format_encode(const struct file_table *t, uint8_t **ret, size_t *ret_size);

/* One of STORE_FILE_EFOREIGN, _ENEWER, _ESHORT, _ETORN, _EMALFORMED, or -ENOMEM. */
int file_format_decode(const uint8_t *data, size_t size, struct file_table *ret);
