/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The interface definitions that GetInterfaceDescription returns. */
#ifndef DLOCK_QUERY_INTERFACE_H
#define DLOCK_QUERY_INTERFACE_H

extern const char interface_dlock[];     /* io.dlock */
extern const char interface_service[];   /* org.varlink.service */

#endif
