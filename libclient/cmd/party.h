/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Names with those who hold them and wait for them, as rows of a table. */
#ifndef DLOCK_CMD_PARTY_H
#define DLOCK_CMD_PARTY_H

struct json_object;
struct table;

void party_table_init(struct table *t);

/* A row for the holder (or for nobody), and one for each waiter, in order. */
void party_table_add(struct table *t, struct json_object *name);

#endif
