/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What happens at this node, as the log and the watchers are told. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "../log.h"
#include "../shm/object.h"
#include "node.h"

/* kind: NULL, or of the name. */
static void log_event(const struct node *n, const struct shm_event *ev, const char *name, const char *kind)
{
	nsec_t now = loop_now(n->loop);
	const char *space = ev->space ? ev->space->name : "";
	bool lock = !kind || !strcmp(kind, kind_text(KIND_LOCK));

	if (!strcmp(ev->what, "owner-died"))
		log_limited(now, LOG_LEVEL_NOTICE, "pid %d ended while it held %s%s%s/%s, token %llu; %s", (int)ev->pid,
			    lock ? "" : kind, lock ? "" : " ", space, name, (unsigned long long)ev->token,
			    ev->detail ? ev->detail : "it is free now");
	else if (!strcmp(ev->what, "space-lost"))
		log_limited(now, LOG_LEVEL_ERROR, "space %s: %s", space, ev->detail);
	else if (!strcmp(ev->what, "space-broken"))
		log_limited(now, LOG_LEVEL_ERROR, "space %s: %s; its holders are told ESTALE, and it starts anew", space,
			    ev->detail);
	else if (!strcmp(ev->what, "bad-packet"))
		log_limited(now, LOG_LEVEL_NOTICE, "pid %d: %s; its connection is closed", (int)ev->pid, ev->detail);
	else if (!strcmp(ev->what, "loss-unsignalled"))
		log_limited(now, LOG_LEVEL_WARNING, "pid %d could not be sent the signal that it wants at a loss: %s", (int)ev->pid,
			    ev->detail);
	else if (!strcmp(ev->what, "scribbled"))
		log_limited(now, LOG_LEVEL_WARNING, "%s/%s: %s", space, name, ev->detail);
	else
		log_debug("%s %s%s%s pid %d %s", ev->what, space, name[0] ? "/" : "", name, (int)ev->pid,
			  ev->detail ? ev->detail : "");
}

static uint64_t realtime_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* With each name that is used once: for those who watch, or debug. */
static bool is_everyday(const char *what)
{
	return !strcmp(what, "open") || !strcmp(what, "grant") || !strcmp(what, "release");
}

void node_tell(void *arg, const struct shm_event *ev)
{
	struct node *n = arg;
	bool watched = n->query && query_watched(n->query);
	char name[ATTACH_NAME_MAX + 1] = "";
	const char *kind = NULL;

	if (!watched && is_everyday(ev->what) && !log_wanted(LOG_LEVEL_DEBUG))
		return;
	if (ev->space && ev->slot && ev->space->names.base && name_is(ev->space, ev->slot)) {
		struct name_text t = name_text(ev->space, ev->slot);

		snprintf(name, sizeof name, "%.*s", (int)t.n, t.p);
		kind = kind_text(name_kind(ev->space, ev->slot));
	}
	log_event(n, ev, name, kind);
	if (watched)
		query_event(n->query, &(struct query_event){
			.boottime_ms = loop_now(n->loop) / NSEC_PER_MSEC, .realtime_ms = realtime_ms(),
			.event = ev->what, .space = ev->space ? ev->space->name : NULL,
			.name = name[0] ? name : NULL, .kind = kind, .pid = ev->pid, .token = ev->token, .detail = ev->detail });
}

void node_link_event(void *arg, const struct links_event *ev)
{
	struct node *n = arg;
	char detail[IFNAMSIZ + 80];

	snprintf(detail, sizeof detail, "%s: %s%s%s", ev->link->name, links_event_text(ev->kind),
		 ev->address ? " " : "", ev->address ? ev->address->text : "");
	node_tell(n, &(struct shm_event){ .what = "link", .detail = detail });
	cluster_links_event(n, ev);
}
