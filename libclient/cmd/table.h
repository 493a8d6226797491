/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Rows in aligned columns. Rows are kept until they are printed, TABLE_ROWS at most: a longer table
 * is printed in parts, and its columns get wider where a part needs it, but no part waits for the end.
 */
#ifndef DLOCK_CMD_TABLE_H
#define DLOCK_CMD_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "print.h"

#define TABLE_COLUMNS 12
#define TABLE_ROWS 500

struct table_cell {
	char *text;
	enum colour colour;
};

struct table {
	unsigned n_columns;
	const char *const *titles;       /* a title that starts with '>' aligns its column to the right */
	bool headed;
	size_t width[TABLE_COLUMNS];
	size_t n_rows;
	unsigned at;                     /* the next column of the row that is being filled */
	struct table_cell (*rows)[TABLE_COLUMNS];
};

void table_init(struct table *t, const char *const *titles, unsigned n_columns);

/* The next cell. The row is full after n_columns of them. text is copied, and cleaned; NULL or "" shows as "-". */
void table_add(struct table *t, const char *text, enum colour colour);
void table_add_number(struct table *t, long long value);

void table_flush(struct table *t);
void table_done(struct table *t);        /* flushes, too */

#endif
