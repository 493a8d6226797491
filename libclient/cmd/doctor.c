/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <json-c/json.h>

#include "client.h"
#include "cmd.h"
#include "print.h"

static const char help[] =
"Usage: dlock doctor [--json]\n\n"
"Checks the set-up and says what to mend. Ends with 0 if nothing failed (warnings may remain), else 1.\n"
"It changes nothing. As root it sees more.\n\n"
"  -j, --json    one JSON object\n"
"  -h, --help\n";

struct doctor_report {
	bool json;
	unsigned n[3];                   /* by result */
	struct json_object *checks;
};

static const struct {
	const char *word, *key;
	enum colour colour;
} results[] = {
	[DOCTOR_OK] = { "OK  ", "ok", COLOUR_GOOD },
	[DOCTOR_WARN] = { "WARN", "warn", COLOUR_WARN },
	[DOCTOR_FAIL] = { "FAIL", "fail", COLOUR_BAD },
};

static void keep(struct doctor_report *r, const char *check, enum doctor_result result, const char *remedy,
		 const char *found)
{
	struct json_object *o = json_object_new_object();

	json_object_object_add(o, "check", json_object_new_string(check));
	json_object_object_add(o, "result", json_object_new_string(results[result].key));
	json_object_object_add(o, "found", json_object_new_string(found));
	if (remedy)
		json_object_object_add(o, "remedy", json_object_new_string(remedy));
	json_object_array_add(r->checks, o);
}

void doctor_say(struct doctor_report *r, const char *check, enum doctor_result result, const char *remedy,
		const char *found, ...)
{
	char text[1024], *shown;
	va_list ap;

	va_start(ap, found);
	vsnprintf(text, sizeof(text), found, ap);
	va_end(ap);
	r->n[result]++;
	shown = clean(text);
	if (r->json) {
		keep(r, check, result, remedy, shown);
	} else {
		printf("%s%s%s  %-13s %s\n", colour_on(results[result].colour), results[result].word,
		       colour_off(results[result].colour), check, shown);
		if (remedy)
			printf("%-20s%s%s%s\n", "", colour_on(COLOUR_BOLD), remedy, colour_off(COLOUR_BOLD));
	}
	free(shown);
}

static void report_end(struct doctor_report *r)
{
	struct json_object *o;

	if (!r->json) {
		printf("\n%u ok, %u to look at, %u failed\n", r->n[DOCTOR_OK], r->n[DOCTOR_WARN], r->n[DOCTOR_FAIL]);
		return;
	}
	o = json_object_new_object();
	json_object_object_add(o, "ok", json_object_new_boolean(r->n[DOCTOR_FAIL] == 0));
	json_object_object_add(o, "runDir", json_object_new_string(client_run_dir()));
	json_object_object_add(o, "checks", r->checks);
	print_json(o);
	json_object_put(o);
}

int cmd_doctor(int argc, char **argv)
{
	static const struct options_usage usage = { .help = help };
	struct doctor_report report = { 0 };
	struct options o;
	int r, pid = 0;

	if (options_parse(argc, argv, &usage, &o, &r) < 0)
		return r;
	report.json = o.json;
	if (o.json)
		report.checks = json_object_new_array();
	doctor_kernel(&report);
	doctor_io_uring(&report);
	doctor_clock(&report);
	doctor_wall_clock(&report);
	doctor_group(&report);
	doctor_unit(&report);
	if (doctor_run_dir(&report)) {
		doctor_attach_socket(&report);
		pid = doctor_daemon(&report);
		doctor_files(&report);
	}
	doctor_limits(&report, pid);
	report_end(&report);
	r = print_done();
	return r ? r : report.n[DOCTOR_FAIL] > 0;
}
