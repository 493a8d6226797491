/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <json-c/json.h>

#include "format.h"
#include "query.h"
#include "varlink.h"

#define REPLACEMENT "\xef\xbf\xbd"       /* U+FFFD */

/*
 * A JSON object under construction. The first field that cannot be had loses the whole object, so
 * that the functions below read as the list of fields that they are.
 */
struct builder {
	struct json_object *o;
};

static struct builder builder_start(void)
{
	return (struct builder) { json_object_new_object() };
}

static void put(struct builder *b, const char *key, struct json_object *value)
{
	if (b->o && value && json_object_object_add(b->o, key, value) == 0)
		return;
	json_object_put(value);
	json_object_put(b->o);
	b->o = NULL;
}

static void put_text(struct builder *b, const char *key, const char *text)
{
	if (text)
		put(b, key, format_text(text, FORMAT_TEXT_MAX));
}

static void put_command(struct builder *b, const char *key, const char *text)
{
	if (text)
		put(b, key, format_text(text, FORMAT_COMMAND_MAX));
}

static void put_number(struct builder *b, const char *key, uint64_t value)
{
	put(b, key, json_object_new_int64(value > INT64_MAX ? INT64_MAX : (int64_t)value));
}

static void put_known(struct builder *b, const char *key, uint64_t value)
{
	if (value != 0)
		put_number(b, key, value);
}

static void put_flag(struct builder *b, const char *key, bool value)
{
	put(b, key, json_object_new_boolean(value));
}

struct json_object *format_text(const char *text, size_t max)
{
	char buf[FORMAT_TEXT_MAX];
	size_t n = 0, left = strlen(text);

	assert(max <= sizeof(buf));
	while (left > 0) {
		size_t step = varlink_utf8_length(text, left);
		bool control = step == 1 && ((unsigned char)text[0] < 0x20 || text[0] == 0x7f);
		const char *from = control ? " " : step ? text : REPLACEMENT;
		size_t length = step ? step : strlen(REPLACEMENT);

		if (length > max - n)
			break;
		memcpy(buf + n, from, length);
		n += length;
		text += step ? step : 1;
		left -= step ? step : 1;
	}
	return json_object_new_string_len(buf, (int)n);
}

/* 64 bits are more than many a JSON reader keeps of a number, and nobody counts with sessions. */
static void put_session(struct builder *b, uint64_t session)
{
	char hex[17];

	snprintf(hex, sizeof(hex), "%016" PRIx64, session);
	put_text(b, "session", hex);
}

static void put_filled(struct builder *b, const char *key, const char *text)
{
	if (text && text[0])
		put_text(b, key, text);
}

static struct json_object *format_cluster(const struct query_cluster *c)
{
	struct builder b = builder_start();

	put_text(&b, "name", c->name);
	put_text(&b, "address", c->address);
	put_filled(&b, "security", c->security);
	put_number(&b, "ttlMs", c->ttl_ms);
	put_number(&b, "leaseMs", c->lease_ms);
	put_flag(&b, "ticks", c->ticks);
	put_flag(&b, "drains", c->drains);
	put_flag(&b, "open", c->open);
	put_text(&b, "jeopardy", c->jeopardy);
	put_number(&b, "members", c->members);
	put_number(&b, "shards", c->shards);
	put_number(&b, "placed", c->placed);
	put_number(&b, "losses", c->losses);
	put_number(&b, "lapses", c->lapses);
	put_number(&b, "storeUs", c->store_us);
	put_number(&b, "storeWorstUs", c->store_worst_us);
	put_number(&b, "orphans", c->orphans);
	put_number(&b, "opening", c->opening);
	put_number(&b, "odd", c->odd);
	put_number(&b, "leftOut", c->left_out);
	put_number(&b, "silent", c->silent);
	if (c->cert_until)
		put_number(&b, "certUntil", (uint64_t)c->cert_until);
	if (c->ca_until)
		put_number(&b, "caUntil", (uint64_t)c->ca_until);
	put_text(&b, "keysWrong", c->keys_wrong);
	return b.o;
}

struct json_object *format_node(const struct query_node *node)
{
	struct builder b = builder_start();

	put_text(&b, "name", node->name);
	put_text(&b, "id", node->id);
	put_text(&b, "version", node->version);
	put_text(&b, "state", node->state);
	put_number(&b, "pid", (uint64_t)node->pid);
	put_text(&b, "runDir", node->run_dir);
	put_text(&b, "stateDir", node->state_dir);
	put_text(&b, "store", node->store);
	put_session(&b, node->session);
	put_number(&b, "incarnation", node->incarnation);
	put_number(&b, "epoch", node->epoch);
	put_number(&b, "clients", node->clients);
	put_number(&b, "names", node->names);
	put_number(&b, "grants", node->grants);
	put_number(&b, "refills", node->refills);
	put_number(&b, "releases", node->releases);
	put_number(&b, "uptimeMs", node->uptime_ms);
	put_text(&b, "clocksource", node->clocksource);
	put_text(&b, "loss", node->loss);
	if (node->cluster)
		put(&b, "cluster", format_cluster(node->cluster));
	return b.o;
}

struct json_object *format_member(const struct query_member *m)
{
	struct builder b = builder_start();
	char hex[17];

	put_text(&b, "name", m->name);
	snprintf(hex, sizeof(hex), "%016" PRIx64, m->node);
	put_text(&b, "id", hex);
	put_text(&b, "state", m->state);
	put_session(&b, m->session);
	put_number(&b, "incarnation", m->incarnation);
	put_flag(&b, "self", m->self);
	put_filled(&b, "address", m->address);
	put_flag(&b, "mayMaster", m->may_master);
	put_flag(&b, "drains", m->drains);
	put_flag(&b, "coordinates", m->coordinates);
	put_number(&b, "shards", m->shards);
	put_number(&b, "placed", m->placed);
	put_known(&b, "rttUs", m->rtt_us);
	put_known(&b, "queue", m->queue);
	put_known(&b, "protocol", m->protocol);
	put_filled(&b, "security", m->security);
	put_filled(&b, "error", m->error);
	return b.o;
}

struct json_object *format_space(const struct query_space *space)
{
	struct builder b = builder_start();

	put_text(&b, "name", space->name);
	put_number(&b, "owner", space->owner);
	put_number(&b, "group", space->group);
	put_number(&b, "mode", space->mode & 07777);
	put_number(&b, "names", space->names);
	put_number(&b, "clients", space->clients);
	put_number(&b, "waiters", space->waiters);
	put_text(&b, "broken", space->broken);
	return b.o;
}

static struct json_object *format_addresses(const char *const *addresses)
{
	struct json_object *array = json_object_new_array();

	if (!array)
		return NULL;
	for (unsigned i = 0; addresses && addresses[i] && i < FORMAT_ADDRESSES_MAX; i++) {
		struct json_object *text = format_text(addresses[i], FORMAT_COMMAND_MAX);

		if (!text || json_object_array_add(array, text) < 0) {
			json_object_put(text);
			json_object_put(array);
			return NULL;
		}
	}
	return array;
}

struct json_object *format_link(const struct query_link *link)
{
	struct builder b = builder_start();

	put_text(&b, "name", link->name);
	put_number(&b, "index", link->index);
	put_number(&b, "mtu", link->mtu);
	put_flag(&b, "up", link->up);
	put_flag(&b, "running", link->running);
	put(&b, "addresses", format_addresses(link->addresses));
	return b.o;
}

static struct json_object *format_party(const struct query_party *party)
{
	struct builder b = builder_start();

	put_text(&b, "node", party->node);
	put_known(&b, "pid", (uint64_t)party->pid);
	put_number(&b, "uid", party->uid);
	put_command(&b, "unit", party->unit);
	put_command(&b, "command", party->command);
	put_known(&b, "token", party->token);
	if (party->timed)
		put_number(&b, "sinceMs", party->since_ms);
	put_known(&b, "sinceAtMostMs", party->since_most_ms);
	return b.o;
}

static struct json_object *format_waiters(const struct query_party *waiters, size_t n)
{
	struct json_object *array = json_object_new_array();

	if (!array)
		return NULL;
	for (size_t i = 0; i < n; i++) {
		struct json_object *party = format_party(&waiters[i]);

		if (!party || json_object_array_add(array, party) < 0) {
			json_object_put(party);
			json_object_put(array);
			return NULL;
		}
	}
	return array;
}

struct json_object *format_name(const struct query_name *name, size_t max)
{
	struct builder b = builder_start();

	put_text(&b, "space", name->space);
	put_text(&b, "name", name->name);
	put_text(&b, "kind", name->kind);
	put_text(&b, "state", name->state);
	put_text(&b, "master", name->master);
	put_flag(&b, "ownerDied", name->owner_died);
	put_known(&b, "delayMs", name->delay_ms);
	put_known(&b, "delayLeftMs", name->delay_left_ms);
	put_number(&b, "opens", name->opens);
	put_known(&b, "token", name->token);
	if (name->holder)
		put(&b, "holder", format_party(name->holder));
	if (name->n_reading) {
		put(&b, "readers", format_waiters(name->readers, name->n_readers));
		put_number(&b, "readerCount", name->n_reading);
	}
	put(&b, "waiters", format_waiters(name->waiters, name->n_waiters < max ? name->n_waiters : max));
	put_number(&b, "waiterCount",
		   name->n_waiting > name->n_waiters ? name->n_waiting : name->n_waiters);
	if (name->counts)
		put_number(&b, "count", name->count);
	put_known(&b, "limit", name->limit);
	put_known(&b, "term", name->term);
	if (name->term)
		put_text(&b, "says", name->says);
	if (name->worker)
		put_number(&b, "worker", (uint64_t)name->worker - 1);
	return b.o;
}

struct json_object *format_stored(const char *space, const char *kind, const struct query_stored *v)
{
	struct builder b = builder_start();

	put_text(&b, "space", space);
	put_text(&b, "kind", kind);
	put_text(&b, "name", v->name);
	put_text(&b, "key", v->key);
	if (v->counts)
		put_number(&b, "count", v->count);
	else
		put_number(&b, "size", v->size);
	put_known(&b, "limit", v->limit);
	put_number(&b, "version", v->version);
	return b.o;
}

struct json_object *format_event(const struct query_event *event)
{
	struct builder b = builder_start();

	put_text(&b, "event", event->event);
	put_number(&b, "boottimeMs", event->boottime_ms);
	put_number(&b, "realtimeMs", event->realtime_ms);
	put_text(&b, "space", event->space);
	put_text(&b, "name", event->name);
	put_text(&b, "kind", event->kind);
	put_known(&b, "pid", (uint64_t)event->pid);
	put_known(&b, "token", event->token);
	put_text(&b, "detail", event->detail);
	return b.o;
}
