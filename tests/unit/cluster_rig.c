/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "cluster_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/envelope.h"

static void *memory_alloc(void *arg, size_t n)
{
	(void)arg;
	return malloc(n);
}

static void memory_free(void *arg, void *p, size_t n)
{
	(void)arg, (void)n;
	free(p);
}

static void queue(struct crig *r, struct crig_event *e)
{
	e->next = NULL;
	*r->end = e;
	r->end = &e->next;
}

static struct crig_event *event_new(unsigned node, enum core_event_kind kind)
{
	struct crig_event *e = calloc(1, sizeof *e);

	e->node = node;
	e->ev.kind = kind;
	return e;
}

static struct crig_event *later(struct crig *r, unsigned node, enum core_event_kind kind)
{
	struct crig_event *e = event_new(node, kind);

	queue(r, e);
	return e;
}

static int node_of(const struct crig *r, uint64_t session)
{
	for (unsigned i = 0; i < r->n; i++)
		if (r->node[i].session == session && r->node[i].core)
			return (int)i;
	return -1;
}

/* --- The store --- */

static struct crig_record *record_find(struct crig *r, const char *key)
{
	for (unsigned i = 0; i < r->records_n; i++)
		if (!strcmp(r->record[i].key, key))
			return &r->record[i];
	return NULL;
}

const struct crig_record *crig_record(const struct crig *r, const char *key)
{
	const struct crig_record *rec = record_find((struct crig *)r, key);

	return rec && rec->version ? rec : NULL;
}

void crig_plant(struct crig *r, const char *key, const void *value, uint32_t size)
{
	struct crig_record *rec = record_find(r, key);

	if (!rec) {
		assert_true(r->records_n < CRIG_RECORDS);
		rec = &r->record[r->records_n++];
		snprintf(rec->key, sizeof rec->key, "%s", key);
	}
	rec->version = ++r->version;
	rec->size = size;
	memcpy(rec->value, value, size);
}

unsigned crig_records(const struct crig *r, const char *prefix)
{
	unsigned n = 0;

	for (unsigned i = 0; i < r->records_n; i++)
		n += r->record[i].version && !strncmp(r->record[i].key, prefix, strlen(prefix));
	return n;
}

static void answer_with(struct core_record *to, const struct crig_record *from)
{
	void *value = malloc(from->size + 1), *key = strdup(from->key);

	memcpy(value, from->value, from->size);
	*to = (struct core_record){ key, value, from->size, from->version };
}

static void cas(struct crig *r, const struct core_action *a, struct core_event *ev)
{
	struct crig_record *rec = record_find(r, a->store.key);

	if ((rec ? rec->version : 0) != a->store.version) {
		ev->store.error = -EAGAIN;
		return;
	}
	if (!rec) {
		assert_true(r->records_n < CRIG_RECORDS);
		rec = &r->record[r->records_n++];
		snprintf(rec->key, sizeof rec->key, "%s", a->store.key);
	}
	rec->version = a->store.value ? ++r->version : 0;
	rec->size = a->store.value ? a->store.value_len : 0;
	if (rec->size)
		memcpy(rec->value, a->store.value, rec->size);
	ev->store.version = rec->version;
}

/* An answer tells what was there when it was asked for. */
static struct crig_event *answer_new(struct crig *r, unsigned node)
{
	struct crig_event **end = &r->answers;

	if (!r->store_span && !r->answers)
		return later(r, node, CORE_EV_STORE);
	while (*end)
		end = &(*end)->next;
	*end = event_new(node, CORE_EV_STORE);
	(*end)->at = r->now + r->store_span;
	return *end;
}

static void answers_come(struct crig *r)
{
	struct crig_event *e;

	while ((e = r->answers) && e->at <= r->now) {
		r->answers = e->next;
		queue(r, e);
	}
}

static void store_act(struct crig *r, unsigned node, const struct core_action *a)
{
	struct crig_event *e = answer_new(r, node);
	const struct crig_record *rec;

	e->ev.store.op = a->store.op;
	if (r->store_cut[node]) {
		e->ev.store.error = -ETIMEDOUT;
		return;
	}
	e->records = calloc(CRIG_RECORDS + 1, sizeof *e->records);
	e->ev.store.records = e->records;
	switch (a->kind) {
	case CORE_ACT_STORE_GET:
		rec = crig_record(r, a->store.key);
		if (!rec)
			return;
		answer_with(e->records, rec);
		e->ev.store.value = e->records[0].value;
		e->ev.store.value_len = rec->size;
		e->ev.store.version = rec->version;
		return;
	case CORE_ACT_STORE_LIST:
		for (unsigned i = 0; i < r->records_n; i++)
			if (r->record[i].version && !strncmp(r->record[i].key, a->store.key, strlen(a->store.key)))
				answer_with(&e->records[e->ev.store.records_n++], &r->record[i]);
		return;
	default:
		cas(r, a, &e->ev);
	}
}

/* --- The network --- */

static void link_say(struct crig *r, unsigned a, unsigned b, enum core_event_kind kind)
{
	if (!r->node[a].core || r->node[a].stopped)
		return;
	struct crig_event *e = later(r, a, kind);

	e->ev.link.session = r->node[b].session;
	e->ev.link.incarnation = r->node[b].incarnation;
	e->ev.link.conn = r->conn[a][b];
}

static void disconnect(struct crig *r, unsigned a, unsigned b)
{
	if (!r->conn[a][b])
		return;
	link_say(r, a, b, CORE_EV_LINK_DOWN);
	link_say(r, b, a, CORE_EV_LINK_DOWN);
	r->conn[a][b] = r->conn[b][a] = 0;
}

static bool wants(const struct crig *r, unsigned a, unsigned b)
{
	for (unsigned i = 0; i < r->node[a].wants_n; i++)
		if (r->node[a].wants[i] == r->node[b].session)
			return true;
	return false;
}

static void dial(struct crig *r)
{
	for (unsigned a = 0; a < r->n; a++)
		for (unsigned b = 0; b < a; b++) {
			if (r->conn[a][b] || r->blocked[a][b] || !r->node[a].core || !r->node[b].core || (!wants(r, a, b) && !wants(r, b, a)))
				continue;
			r->conn[a][b] = r->conn[b][a] = ++r->conn_number;
			link_say(r, a, b, CORE_EV_LINK_UP);
			link_say(r, b, a, CORE_EV_LINK_UP);
		}
}

static void count(struct crig *r, unsigned node, const uint8_t *bytes, uint32_t n)
{
	struct envelope e;
	struct frame f;

	if (envelope_is(bytes, n)) {
		assert_int_equal(envelope_decode(bytes, n, &e), 0);
		if (e.what != ENVELOPE_FRAME || e.from)
			return;
		r->relayed_frames++;
		count(r, node, e.frame, e.n);
		return;
	}
	assert_int_equal(frame_decode(bytes, n, &f), 0);
	r->frames[f.msg.kind]++;
	if (f.msg.kind == MSG_SYNC)
		(f.msg.flags & (MSG_FLAG_FIRST | MSG_FLAG_LAST) ? r->syncs_of_no_name : r->syncs_of_names)[node]++;
}

static struct crig_event *held_back(struct crig *r, unsigned node)
{
	struct crig_event **end = &r->held;

	while (*end)
		end = &(*end)->next;
	*end = calloc(1, sizeof **end);
	(*end)->node = node;
	(*end)->ev.kind = CORE_EV_RECV;
	return *end;
}

static void send_act(struct crig *r, unsigned node, const struct core_action *a)
{
	int to = node_of(r, a->send.session);

	count(r, node, a->send.bytes, a->send.n);
	if (to < 0 || r->conn[node][to] != a->send.conn || !a->send.conn || r->node[to].stopped)
		return;
	if (to < 32 && r->lose[((const uint8_t *)a->send.bytes)[3]] & 1u << to)
		return;
	struct crig_event *e = to < 32 && r->hold[((const uint8_t *)a->send.bytes)[3]] & 1u << to ? held_back(r, (unsigned)to) :
			       later(r, (unsigned)to, CORE_EV_RECV);
	memcpy(e->bytes, a->send.bytes, a->send.n);
	e->ev.recv.conn = a->send.conn;
	e->ev.recv.session = r->node[node].session;
	e->ev.recv.bytes = e->bytes;
	e->ev.recv.n = a->send.n;
}

/* --- A node --- */

static void lapsed(struct crig_node *n)
{
	n->lapses++;
	n->deadline = 0;
	memset(n->held, 0, sizeof n->held);
}

static void act(struct crig *r, unsigned node, const struct core_action *a)
{
	struct crig_node *n = &r->node[node];

	switch (a->kind) {
	case CORE_ACT_STORE_GET:
	case CORE_ACT_STORE_CAS:
	case CORE_ACT_STORE_LIST:
		store_act(r, node, a);
		break;
	case CORE_ACT_SEND:
		send_act(r, node, a);
		break;
	case CORE_ACT_LINK:
		assert_true(n->wants_n < CRIG_NODES);
		assert_true(a->session.address[0] && a->session.name[0]);
		n->wants[n->wants_n++] = a->session.session;
		break;
	case CORE_ACT_SESSION:
		for (unsigned i = 0; i < r->n; i++)
			if (r->conn[node][i]) {
				link_say(r, i, node, CORE_EV_LINK_DOWN);
				r->conn[node][i] = r->conn[i][node] = 0;
			}
		n->session = a->session.session;
		n->incarnation = a->session.incarnation;
		break;
	case CORE_ACT_DEADLINE:
		n->deadline = a->timer.when;
		break;
	case CORE_ACT_TIMER:
		n->timer = a->timer.when;
		break;
	case CORE_ACT_RELAYED:
		n->relayed++;
		break;
	case CORE_ACT_ENDED:
		n->ended++;
		break;
	case CORE_ACT_ODD:
		n->odd = a->odd.records;
		n->left_out = a->odd.left_out;
		break;
	case CORE_ACT_COMPLAINT:
		n->complaints++;
		break;
	case CORE_ACT_CUT_OFF:
		n->cut_offs++;
		break;
	case CORE_ACT_LOSS:
		n->losses++;
		if (!n->loss_slow)
			later(r, node, CORE_EV_LOSS_DONE);
		break;
	case CORE_ACT_LAPSED:
		lapsed(n);
		break;
	case CORE_ACT_DRAINED:
		n->drained++;
		break;
	case CORE_ACT_LEFT:
		n->left++;
		n->left_error = a->node.error;
		break;
	case CORE_ACT_GRANT:
		n->held[a->name.ref] = a->name.weight;
		n->lost[a->name.ref] = a->name.lost;
		n->token[a->name.ref] = a->name.range.first;
		snprintf(n->found[a->name.ref], sizeof n->found[0], "%.*s", a->name.value.state == CORE_VALUE_KNOWN ? a->name.value.len : 1,
			 a->name.value.state == CORE_VALUE_KNOWN ? (const char *)a->name.value.bytes : a->name.value.state == CORE_VALUE_LOST ? "?" : "");
		break;
	case CORE_ACT_LEDGER_RELEASE:
		n->held[a->name.ref] = 0;
		break;
	case CORE_ACT_REFUSED:
		n->refused[a->name.ref] = a->name.error;
		break;
	case CORE_ACT_REVOKE:
		n->revoked[a->name.ref] = a->name.weight;
		break;
	case CORE_ACT_ACCOUNT:
		n->account = *a;
		memcpy(n->party, a->account.parties, a->account.n * sizeof *n->party);
		break;
	case CORE_ACT_FATAL:
		fail_msg("node %u: %s", node, a->node.why);
		break;
	case CORE_ACT_LEDGER_ARRIVE:
	case CORE_ACT_LEDGER_BARRIER:
	case CORE_ACT_VERDICT:
	case CORE_ACT_RESET_DONE:
		if (r->barrier)
			r->barrier(r, node, a);
		break;
	default:
		break;
	}
}

int crig_give(struct crig *r, unsigned node, const struct core_event *event)
{
	struct crig_node *n = &r->node[node];
	struct core_event ev = *event;
	int ret = 0;

	for (bool first = true; ; first = false) {
		ev.now = r->now;
		int e = core_step(n->core, &ev, &n->actions);
		if (first)
			ret = e;
		for (unsigned i = 0; i < n->actions.n; i++)
			act(r, node, &n->actions.v[i]);
		if (!n->actions.more)
			return ret;
		ev = (struct core_event){ .kind = CORE_EV_CONTINUE };
	}
}

void crig_start(struct crig *r, unsigned node)
{
	struct crig_node *n = &r->node[node];

	*n = (struct crig_node){ .mem = { .alloc = memory_alloc, .free = memory_free, .seed = { 11 + node, 12 + r->version } } };
	memset(n->revoked, 0xff, sizeof n->revoked);
	snprintf(n->name, sizeof n->name, "node%u", node);
	snprintf(n->address, sizeof n->address, "10.0.0.%u:7420", node + 1);
	n->conf = (struct core_cluster){
		.ttl = 2 * CRIG_SECOND, .guard = CRIG_SECOND / 50, .drift_ppm = 10000, .beat = CRIG_SECOND / 2, .look = CRIG_SECOND / 5,
		.grace = 2 * CRIG_SECOND, .loss = CRIG_SECOND / 5, .node = node + 1, .may_master = true, .place = r->place, .place_least = 4, .name = n->name, .address = n->address,
	};
	assert_int_equal(core_create(&n->mem, &n->core), 0);
	struct core_event ev = { .kind = CORE_EV_START, .start = { .session = 1000 * (node + 1) + ++r->version, .incarnation = 1, .cluster = &n->conf } };
	assert_int_equal(crig_give(r, node, &ev), 0);
}

static void queue_run(struct crig *r)
{
	struct crig_event *e;

	while ((e = r->first)) {
		r->first = e->next;
		if (!r->first)
			r->end = &r->first;
		if (r->node[e->node].core && !r->node[e->node].stopped)
			crig_give(r, e->node, &e->ev);
		for (unsigned i = 0; e->records && e->records[i].key; i++) {
			free((void *)e->records[i].key);
			free((void *)e->records[i].value);
		}
		free(e->records);
		free(e);
	}
}

void crig_run(struct crig *r, core_nsec_t span)
{
	core_nsec_t until = r->now + span;

	while (r->now < until) {
		dial(r);
		answers_come(r);
		queue_run(r);
		for (unsigned i = 0; i < r->n; i++) {
			struct crig_node *n = &r->node[i];

			if (!n->core || n->stopped || !n->timer || n->timer > r->now)
				continue;
			n->timer = 0;
			crig_give(r, i, &(struct core_event){ .kind = CORE_EV_TIMER });
		}
		queue_run(r);
		r->now += r->turn ? r->turn : CRIG_SECOND / 1000;
	}
}

void crig_let_go(struct crig *r)
{
	memset(r->hold, 0, sizeof r->hold);
	*r->end = r->held;
	while (*r->end)
		r->end = &(*r->end)->next;
	r->held = NULL;
	queue_run(r);
}

void crig_block(struct crig *r, unsigned a, unsigned b, bool blocked)
{
	r->blocked[a][b] = r->blocked[b][a] = blocked;
	if (blocked)
		disconnect(r, a, b);
}

void crig_kill(struct crig *r, unsigned node)
{
	for (unsigned i = 0; i < r->n; i++)
		disconnect(r, node, i);
	core_free(r->node[node].core);
	r->node[node].core = NULL;
}

void crig_restart(struct crig *r, unsigned node, void (*adopt)(struct crig *r, unsigned node))
{
	struct crig_node *n = &r->node[node];
	struct core_event ev = { .kind = CORE_EV_START, .start = { .session = n->session, .incarnation = n->incarnation + 1,
								    .cluster = &n->conf, .deadline = n->deadline } };

	crig_kill(r, node);
	n->wants_n = 0;
	assert_int_equal(core_create(&n->mem, &n->core), 0);
	adopt(r, node);
	assert_int_equal(crig_give(r, node, &ev), 0);
	crig_run(r, CRIG_SECOND);
}

void crig_init_placing(struct crig *r, unsigned n, core_nsec_t place)
{
	memset(r, 0, sizeof *r);
	r->n = n;
	r->place = place;
	r->now = 1000 * CRIG_SECOND;
	r->end = &r->first;
	for (unsigned i = 0; i < n; i++)
		crig_start(r, i);
	crig_run(r, CRIG_SECOND);
	for (unsigned i = 0; i < n && n < CORE_SHARDS; i++)
		assert_true(crig_shards(r, i) > 0);
}

void crig_init(struct crig *r, unsigned n)
{
	crig_init_placing(r, n, 0);
}

void crig_done(struct crig *r)
{
	r->now = UINT64_MAX;
	for (unsigned i = 0; i < r->n; i++)
		r->node[i].stopped = true;
	answers_come(r);
	crig_let_go(r);
	for (unsigned i = 0; i < r->n; i++)
		core_free(r->node[i].core);
}

int crig_claim(struct crig *r, unsigned node, core_ref_t ref, const char *key)
{
	r->node[node].refused[ref] = 0;
	return crig_give(r, node, &(struct core_event){ .kind = CORE_EV_CLAIM, .claim = { ref, key, (uint16_t)strlen(key), 0, 0 } });
}

int crig_release(struct crig *r, unsigned node, core_ref_t ref)
{
	return crig_give(r, node, &(struct core_event){ .kind = CORE_EV_RELEASE, .release = { .ref = ref, .used = 1 } });
}

static struct clustermap map_of(const struct crig *r)
{
	const struct crig_record *rec = crig_record(r, MAP_KEY);
	struct clustermap m;

	assert_non_null(rec);
	assert_int_equal(clustermap_decode(rec->value, rec->size, &m), 0);
	return m;
}

unsigned crig_master(const struct crig *r, unsigned shard)
{
	int node = node_of(r, map_of(r).map.shard[shard].master.session);

	return node < 0 ? CRIG_NODES : (unsigned)node;
}

uint32_t crig_epoch(const struct crig *r, unsigned shard)
{
	return map_of(r).map.shard[shard].epoch;
}

unsigned crig_shards(const struct crig *r, unsigned node)
{
	struct clustermap m = map_of(r);
	unsigned n = 0;

	for (unsigned i = 0; i < CORE_SHARDS; i++)
		n += m.map.shard[i].master.session == r->node[node].session;
	return n;
}

const char *crig_key(const struct crig *r, unsigned node, unsigned n, char ret[16])
{
	for (unsigned i = 0; ; i++) {
		snprintf(ret, 16, "test/%u", i);
		if (crig_master(r, shard_of(ret, strlen(ret))) == node && n-- == 0)
			return ret;
	}
}
