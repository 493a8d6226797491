/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the doctor looks at. A check writes one or more lines into the report, each with what it
 * found and, unless all is well, what to do. It changes nothing.
 */
#ifndef DLOCK_CMD_DOCTOR_H
#define DLOCK_CMD_DOCTOR_H

#include <stdbool.h>

enum doctor_result {
	DOCTOR_OK,
	DOCTOR_WARN,     /* works, but worse than it could, or not for long */
	DOCTOR_FAIL,     /* does not work */
};

struct doctor_report;

/* remedy: NULL where result is DOCTOR_OK. found is a printf format. */
void doctor_say(struct doctor_report *r, const char *check, enum doctor_result result, const char *remedy,
		const char *found, ...) __attribute__((format(printf, 5, 6)));

/* The machine (doctor_system.c). */
void doctor_kernel(struct doctor_report *r);
void doctor_io_uring(struct doctor_report *r);
void doctor_clock(struct doctor_report *r);
void doctor_limits(struct doctor_report *r, int daemon_pid);     /* 0: not known; then the caller's own */
void doctor_group(struct doctor_report *r);
void doctor_unit(struct doctor_report *r);

/* The daemon and its files (doctor_daemon.c). */
bool doctor_run_dir(struct doctor_report *r);    /* false: there is none, and so no daemon */
void doctor_attach_socket(struct doctor_report *r);
int doctor_daemon(struct doctor_report *r);      /* its pid, 0 if it does not answer */
void doctor_files(struct doctor_report *r);

/* Other nodes (doctor_cluster.c). */
struct json_object;
struct client;
void doctor_cluster(struct doctor_report *r, struct json_object *cluster);
void doctor_peers(struct doctor_report *r, struct client *c);
void doctor_wall_clock(struct doctor_report *r);

#endif
