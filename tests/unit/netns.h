/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A network namespace of the test's own, and what to do in it. What fails fails the test.
 */
#pragma once

#include <stdbool.h>

/* The whole process enters it, and stays. False: it is not to be had here. */
bool netns_enter(void);
void netns_done(void);

/* Two links, connected to each other. */
void netns_make_pair(const char *a, const char *b);
void netns_remove_link(const char *name);
void netns_set_up(const char *name, bool up);
void netns_set_name(const char *name, const char *to);
void netns_set_mtu(const char *name, unsigned mtu);

/* Text is ADDRESS/PREFIX. IPv6 addresses are added without a check of their uniqueness. */
void netns_add_address(const char *name, const char *text);
void netns_remove_address(const char *name, const char *text);

/* The same with flags (IFA_F_…), and it may fail: the result is libnl's. */
int netns_try_address(const char *name, const char *text, unsigned flags, bool add);

/* False: the kernel has no bridges. */
bool netns_make_bridge(const char *name);
void netns_enslave(const char *bridge, const char *port);
void netns_release(const char *port);
