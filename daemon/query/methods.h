/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What can be called. Both put whole messages into the session's output; negative: -ENOMEM, -ENOBUFS. */
#ifndef DLOCK_QUERY_METHODS_H
#define DLOCK_QUERY_METHODS_H

struct session;
struct varlink_call;

#define METHODS_PAGE_NAMES 32     /* in one answer to ListNames */
#define METHODS_PAGE_WAITERS 128  /* of all names in it; ShowName lists QUERY_WAITERS_MAX */
#define METHODS_SPACES_MAX 100
#define METHODS_LINKS_MAX 100

/* Answers, or begins to: then the session's state says so. */
int methods_call(struct session *s, const struct varlink_call *call);

/* The next page of a session that is LISTING; the last one ends that state. */
int methods_page(struct session *s);

/* The full name of method i, NULL after the last. */
const char *methods_name(unsigned i);

#endif
