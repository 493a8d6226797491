/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Lines for the log, of what others can cause: however often it happens, there are few of them, and the log says how many were left out.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "../hash.h"
#include "net_int.h"

#define RATION_SPAN (10 * NSEC_PER_SEC)
#define STRANGERS_SAID 10        /* lines about strangers in that span */
#define STRANGERS_UNSAID "%u more connections were refused, and not told of"
#define PEERS_SAID 100           /* about nodes that are not reached: a lost network is told of whole */

static void say(struct net *n, enum log_level level, const char *format, va_list ap)
{
	char text[1024];

	vsnprintf(text, sizeof text, format, ap);
	n->ops.say(n->arg, level, text);
}

void net_say(struct net *n, enum log_level level, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	say(n, level, format, ap);
	va_end(ap);
}

/* False: so many lines have been said in this span. What was left out of the last one is told of. */
static bool ration(struct net *n, struct ration *r, unsigned max, const char *left_out)
{
	nsec_t now = loop_now(n->loop);

	if (now - r->since > RATION_SPAN) {
		unsigned unsaid = r->unsaid;

		*r = (struct ration){ .since = now };
		if (unsaid)
			net_say(n, LOG_LEVEL_WARNING, left_out, unsaid);
	}
	if (r->said == max) {
		r->unsaid++;
		return false;
	}
	r->said++;
	return true;
}

/* That refusal, or the place of the one that is longest ago. */
static struct refusal *refusal_find(struct net *n, uint64_t what)
{
	struct refusal *oldest = &n->refusals[0];

	for (unsigned i = 0; i < REFUSALS_KEPT; i++) {
		if (n->refusals[i].said && n->refusals[i].what == what)
			return &n->refusals[i];
		if (n->refusals[i].said < oldest->said)
			oldest = &n->refusals[i];
	}
	oldest->said = 0;
	return oldest;
}

void net_say_refused(struct net *n, const char *from, const char *why)
{
	const char *port = strrchr(from, ':');
	uint64_t what = fnv1a(fnv1a(FNV1A_START, from, port ? (size_t)(port - from) : strlen(from)), why, strlen(why));
	struct refusal *f = refusal_find(n, what);
	nsec_t now = loop_now(n->loop);

	if (f->said && now - f->said < SAY_AGAIN) {
		f->times++;
		return;
	}
	if (!ration(n, &n->strangers_said, STRANGERS_SAID, STRANGERS_UNSAID))
		return;
	if (f->said && f->times)
		net_say(n, LOG_LEVEL_WARNING, "connection from %s refused: %s (and %u times more since that was said)", from, why, f->times);
	else
		net_say(n, LOG_LEVEL_WARNING, "connection from %s refused: %s", from, why);
	*f = (struct refusal){ .what = what, .said = now };
}

void net_say_rationed(struct net *n, enum log_level level, const char *format, ...)
{
	va_list ap;

	if (!ration(n, &n->strangers_said, STRANGERS_SAID, STRANGERS_UNSAID))
		return;
	va_start(ap, format);
	say(n, level, format, ap);
	va_end(ap);
}

bool net_say_peers(struct net *n)
{
	return ration(n, &n->peers_said, PEERS_SAID, "%u more connections could not be made, and were not told of");
}
