/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "table.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

static const char *title(const struct table *t, unsigned column)
{
	const char *s = t->titles[column];

	return s[0] == '>' ? s + 1 : s;
}

void table_init(struct table *t, const char *const *titles, unsigned n_columns)
{
	assert(n_columns <= TABLE_COLUMNS);
	*t = (struct table) { .n_columns = n_columns, .titles = titles };
	t->rows = calloc(TABLE_ROWS, sizeof(t->rows[0]));
	if (!t->rows)
		abort();
	for (unsigned c = 0; c < n_columns; c++)
		t->width[c] = text_width(title(t, c));
}

void table_add(struct table *t, const char *text, enum colour colour)
{
	struct table_cell *cell = &t->rows[t->n_rows][t->at];
	size_t width;

	cell->text = clean(text && text[0] ? text : "-");
	cell->colour = colour;
	width = text_width(cell->text);
	if (width > t->width[t->at])
		t->width[t->at] = width;
	if (++t->at < t->n_columns)
		return;
	t->at = 0;
	if (++t->n_rows == TABLE_ROWS)
		table_flush(t);
}

void table_add_number(struct table *t, long long value)
{
	char text[24];

	snprintf(text, sizeof(text), "%lld", value);
	table_add(t, text, COLOUR_NONE);
}

static void cell_print(const struct table *t, unsigned column, const char *text, enum colour colour)
{
	int pad = (int)(t->width[column] - text_width(text));
	bool right = t->titles[column][0] == '>', last = column + 1 == t->n_columns;

	printf("%*s%s%s%s%*s", right ? pad : 0, "", colour_on(colour), text, colour_off(colour),
	       right || last ? 0 : pad, "");
	fputs(last ? "\n" : "  ", stdout);
}

void table_flush(struct table *t)
{
	if (!t->headed && t->n_rows > 0) {
		t->headed = true;
		for (unsigned c = 0; c < t->n_columns; c++)
			cell_print(t, c, title(t, c), COLOUR_BOLD);
	}
	for (size_t row = 0; row < t->n_rows; row++) {
		for (unsigned c = 0; c < t->n_columns; c++) {
			cell_print(t, c, t->rows[row][c].text, t->rows[row][c].colour);
			free(t->rows[row][c].text);
		}
	}
	t->n_rows = 0;
}

void table_done(struct table *t)
{
	assert(t->at == 0);
	table_flush(t);
	free(t->rows);
}
