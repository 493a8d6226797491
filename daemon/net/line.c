/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "net_int.h"

/* --- Making --- */

void lines_append(struct line *head, struct line *l)
{
	l->next = head;
	l->prev = head->prev;
	l->prev->next = l->next->prev = l;
}

void lines_remove(struct line *l)
{
	if (!l->next)
		return;
	l->next->prev = l->prev;
	l->prev->next = l->next;
	l->next = l->prev = NULL;
}

static struct line *line_new(struct net *n, struct peer *p, bool dialled)
{
	struct line *l = calloc(1, sizeof *l);

	if (!l)
		return NULL;
	l->net = n;
	l->peer = p;
	l->dialled = dialled;
	l->phase = dialled ? LINE_BEGUN : LINE_HELLO;
	return l;
}

struct line *line_dial(struct peer *p, const union address *to, int *ret_error)
{
	struct net *n = p->net;
	struct line *l;
	int r;

	if (!n->keys && !address_loopback(to)) {
		*ret_error = -EPERM;
		return NULL;
	}
	l = line_new(n, p, true);
	r = l ? wire_dial(&n->wires, to, n->keys, l, &l->wire) : -ENOMEM;
	if (r < 0) {
		free(l);
		*ret_error = r;
		return NULL;
	}
	n->dials++;
	address_format(to, p->at);
	wire_deadline(l->wire, loop_now(n->loop) + NET_GREET_SPAN);
	return l;
}

static unsigned lines_from(const struct net *n, const union address *a)
{
	unsigned count = 0;

	for (const struct line *l = n->strangers.next; l != &n->strangers; l = l->next)
		count += address_same_host(&l->wire->remote, a, 64);
	for (const struct line *l = n->ups.next; l != &n->ups; l = l->next)
		count += !l->dialled && address_same_host(&l->wire->remote, a, 64);
	return count;
}

static bool admitted(struct net *n, const union address *from)
{
	char text[ADDRESS_TEXT_MAX];
	struct line *oldest = n->strangers.next;

	address_format(from, text);
	if (lines_from(n, from) >= n->address_max) {
		n->stats.over_address++;
		net_say_rationed(n, LOG_LEVEL_WARNING, "%s: refused: there are %u connections from that address already", text,
				 n->address_max);
		return false;
	}
	if (n->stats.half_open >= n->half_open_max && oldest != &n->strangers) {
		n->stats.over_half_open++;
		address_format(&oldest->wire->remote, text);
		net_say_rationed(n, LOG_LEVEL_WARNING, "%s: dropped: it has not greeted, and %u others have not either", text,
				 n->half_open_max);
		line_drop(oldest, false, true);
	}
	return true;
}

void line_accepted(struct net *n, int fd)
{
	union address from = { 0 };
	socklen_t size = sizeof from;
	struct line *l;

	n->stats.accepted++;
	if (getpeername(fd, &from.any, &size) < 0 || !admitted(n, &from)) {
		close(fd);
		return;
	}
	l = line_new(n, NULL, false);
	if (!l) {
		close(fd);
		return;
	}
	if (wire_accept(&n->wires, fd, n->keys, l, &l->wire) < 0) {
		free(l);
		return;
	}
	lines_append(&n->strangers, l);
	n->stats.half_open++;
	wire_deadline(l->wire, loop_now(n->loop) + NET_GREET_SPAN);
}

/* --- Up and down --- */

void line_report_down(struct peer *p)
{
	uint64_t conn = p->down;

	p->down = 0;
	if (conn)
		p->net->ops.link_down(p->net->arg, p->session, conn);
}

void line_up(struct line *l)
{
	struct peer *p = l->peer;
	struct net *n = l->net;
	char text[PEER_TEXT_MAX];

	if (p->up)
		line_drop(p->up, false, true);
	if (p->dialling && p->dialling != l)
		line_drop(p->dialling, false, true);
	if (p->greeted && p->greeted != l)
		line_drop(p->greeted, false, true);
	resolve_stop(p->resolve);
	p->resolve = NULL;
	loop_timer_cancel(n->loop, &p->retry);
	line_report_down(p);
	if (l->phase == LINE_DEAD)               /* by what the report led to: the peer still had it */
		return;
	p->dialling = p->greeted = NULL;
	p->up = l;
	n->dials -= l->dialled;
	p->connects++;
	p->error[0] = 0;
	p->said = 0;
	l->phase = LINE_UP;
	lines_append(&n->ups, l);
	wire_deadline(l->wire, NSEC_NEVER);
	address_format(&l->wire->remote, p->at);
	pulse_begin(&l->pulse, loop_now(n->loop));
	peer_state(p, NET_UP);
	n->stats.up++;
	net_say(n, LOG_LEVEL_INFO, "connected to %s: session %016llx.%u, connection %llx, protocol %u, %s", peer_text(p, text),
		(unsigned long long)p->session, p->incarnation, (unsigned long long)l->conn, l->version, wire_security(l->wire));
	line_beat(l, loop_now(n->loop), true);
	net_tick_set(n);
	n->ops.link_up(n->arg, p->session, p->incarnation, l->conn);
}

static void down(struct peer *p)
{
	struct net *n = p->net;
	struct line *l = p->up;

	/* What breaks as soon as it is there is not tried again at once. */
	p->fails = loop_now(n->loop) - p->since < n->silence ? p->fails + 1 : 0;
	p->up = NULL;
	p->down = l->conn;
	p->bytes_in += l->wire->bytes_in;
	p->bytes_out += l->wire->bytes_out;
	p->sends += l->wire->sends;
	if (l->wire->queued_peak > p->queue_peak)
		p->queue_peak = l->wire->queued_peak;
	n->stats.up--;
	peer_state(p, NET_UNKNOWN);
	if (!p->down_listed) {
		p->down_listed = true;
		p->next_down = n->down;
		n->down = p;
	}
	net_settle(n);
}

void line_drop(struct line *l, bool end, bool reset)
{
	struct peer *p = l->peer;

	assert(l->phase != LINE_DEAD);
	if (!p)
		l->net->stats.half_open--;
	if (l->dialled && l->phase != LINE_UP)
		l->net->dials--;
	lines_remove(l);
	if (p && p->up == l)
		down(p);
	if (p && p->dialling == l)
		p->dialling = NULL;
	if (p && p->greeted == l)
		p->greeted = NULL;
	l->phase = LINE_DEAD;
	if (end)
		wire_end(l->wire);
	else
		wire_free(l->wire, reset);
	l->wire = NULL;
	l->next = l->net->dead_lines;
	l->net->dead_lines = l;
	net_settle(l->net);
}

void line_bury(struct line *l)
{
	free(l);
}

/* An up line, one that we dial, or a stranger's: each has its own consequences. */
void line_fail(struct line *l, bool quiet, const char *format, ...)
{
	struct peer *p = l->peer;
	struct net *n = l->net;
	bool was_up = p && p->up == l, dialled = p && p->dialling == l;
	char why[ERROR_MAX], text[PEER_TEXT_MAX];
	va_list ap;

	va_start(ap, format);
	vsnprintf(why, sizeof why, format, ap);
	va_end(ap);
	address_format(&l->wire->remote, text);
	if (!was_up && !dialled && !quiet)
		net_say_refused(n, text, why);
	if (!was_up && !dialled)
		n->stats.refused++;
	if (was_up) {
		net_say(n, LOG_LEVEL_NOTICE, "connection to %s is lost: %s", peer_text(p, text), why);
		snprintf(p->error, sizeof p->error, "%s", why);
	}
	line_drop(l, !was_up, was_up);
	if (dialled)
		peer_failed(p, quiet, why);
	else if (p)
		peer_want(p, false);
}

/* --- Beats --- */

void line_dirty(struct line *l)
{
	struct net *n = l->net;

	if (l->dirty)
		return;
	l->dirty = true;
	l->next_dirty = n->dirty;
	n->dirty = l;
	loop_defer(n->loop, &n->flush);
}

void line_beat(struct line *l, nsec_t now, bool answer)
{
	uint8_t bytes[PULSE_BYTES];

	pulse_encode(&l->pulse, now, answer, bytes);
	if (wire_urgent(l->wire, bytes, sizeof bytes) == 0)
		line_dirty(l);
}

static bool beat_heard(struct line *l, const uint8_t *bytes, size_t n)
{
	nsec_t now = loop_clock();
	int r = pulse_hear(&l->pulse, now, bytes, n);

	if (r > 0)
		line_beat(l, now, false);
	return r >= 0;
}

/* --- Frames --- */

static unsigned length_at(const uint8_t *p)
{
	return p[0] | (unsigned)p[1] << 8;
}

/* False: the line is gone. */
static bool frame_give(struct line *l, const uint8_t *bytes, size_t n)
{
	struct peer *p = l->peer;
	int r;

	if (n < NET_FRAME_MIN) {
		if (beat_heard(l, bytes, n))
			return true;
		r = -EBADMSG;
	} else {
		p->frames_in++;
		r = l->net->ops.recv(l->net->arg, p->session, l->conn, bytes, (uint32_t)n);
	}
	if (l->phase != LINE_UP)
		return false;
	if (r >= 0)
		return true;
	l->net->stats.bad_frames++;
	line_fail(l, false, "it sent what is no frame of this protocol (%s): do both nodes run good releases?", strerror(-r));
	return false;
}

static bool length_good(struct line *l, unsigned length)
{
	if (length == PULSE_BYTES || (length >= NET_FRAME_MIN && length <= NET_FRAME_MAX))
		return true;
	l->net->stats.bad_frames++;
	line_fail(l, false, "it sent what is no frame of this protocol (a length of %u): do both nodes run good releases?", length);
	return false;
}

/* Completes what has begun earlier; the number of bytes used, 0: the line is gone. */
static size_t frame_complete(struct line *l, const uint8_t *p, size_t n)
{
	size_t used = 0, part;
	unsigned length;

	while (l->part_n < 2 && used < n)
		l->part[l->part_n++] = p[used++];
	if (l->part_n < 2)
		return used;
	length = length_at(l->part);
	if (!length_good(l, length))
		return 0;
	part = length - l->part_n < n - used ? length - l->part_n : n - used;
	memcpy(l->part + l->part_n, p + used, part);
	l->part_n += (uint16_t)part;
	used += part;
	if (l->part_n < length)
		return used;
	l->part_n = 0;
	return frame_give(l, l->part, length) ? used : 0;
}

static void frames_take(struct line *l, const uint8_t *p, size_t n)
{
	if (l->part_n && n) {
		size_t used = frame_complete(l, p, n);

		if (!used)
			return;
		p += used;
		n -= used;
	}
	while (n >= 2) {
		unsigned length = length_at(p);

		if (!length_good(l, length))
			return;
		if (length > n)
			break;
		if (!frame_give(l, p, length))
			return;
		p += length;
		n -= length;
	}
	memcpy(l->part + l->part_n, p, n);
	l->part_n += (uint16_t)n;
}

/* --- What the wire says --- */

/* The bytes used of a greeting that comes; the line may be up, or gone, after it. */
static size_t greeting_take(struct line *l, const uint8_t *p, size_t n)
{
	size_t room = sizeof l->part - l->part_n, part = n < room ? n : room, before = l->part_n;
	int length;

	memcpy(l->part + before, p, part);
	length = greet_length(l->part, before + part);
	if (length < 0) {
		meet_bad(l, l->part, before + part);
		return part;
	}
	if (length == 0 || before + part < (size_t)length) {
		l->part_n += (uint16_t)part;
		return part;
	}
	l->part_n = 0;
	meet_take(l, l->part, (size_t)length);
	return (size_t)length - before;
}

static void on_bytes(struct wire *w, const uint8_t *p, size_t n)
{
	struct line *l = w->owner;

	while (n && l->phase != LINE_UP && l->phase != LINE_DEAD) {
		size_t used = greeting_take(l, p, n);

		p += used;
		n -= used;
	}
	if (n && l->phase == LINE_UP)
		frames_take(l, p, n);
}

static void on_connected(struct wire *w)
{
	struct line *l = w->owner;

	if (l->peer && w->tls)
		peer_state(l->peer, NET_SECURING);
}

static void on_open(struct wire *w)
{
	struct line *l = w->owner;

	if (l->dialled)
		meet_begin(l);
}

static void on_plain(struct wire *w, const uint8_t *p, size_t n)
{
	meet_plain(w->owner, p, n);
}

static void on_broken(struct wire *w)
{
	struct line *l = w->owner;
	bool tls = w->tls && tls_why(w->tls)[0];

	l->net->stats.tls_failed += tls;
	/* Who looks whether somebody listens is no news. */
	line_fail(l, !l->dialled && !w->bytes_in && !tls, "%s", w->why);
}

const struct wire_ops line_wire_ops = {
	.connected = on_connected, .open = on_open, .bytes = on_bytes, .plain = on_plain, .broken = on_broken,
};
