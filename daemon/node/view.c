/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The node as the query socket shows it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../grow.h"
#include "../log.h"
#include "../shm/object.h"
#include "../shm/sem.h"
#include "../shm/sight.h"
#include "../shm/word.h"
#include "../things/key.h"
#include "node.h"

/* --- processes --- */

struct party {
	struct query_party q;
	char unit[128], command[160];
};

static ssize_t read_proc(pid_t pid, const char *what, char *buf, size_t size)
{
	char path[64];
	ssize_t n;
	int fd;

	snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, what);
	fd = pid > 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0)
		return -1;
	n = read(fd, buf, size - 1);
	close(fd);
	if (n >= 0)
		buf[n] = 0;
	return n;
}

/* The systemd unit is the last part of the cgroup's path that ends like one. */
static void party_unit(struct party *p)
{
	char text[1024], *at, *part;

	if (read_proc(p->q.pid, "cgroup", text, sizeof text) <= 0 || !(at = strstr(text, "0::/")))
		return;
	at[strcspn(at, "\n")] = 0;
	for (part = strtok(at + 4, "/"); part; part = strtok(NULL, "/")) {
		const char *dot = strrchr(part, '.');

		if (dot && (!strcmp(dot, ".service") || !strcmp(dot, ".scope")))
			snprintf(p->unit, sizeof p->unit, "%s", part);
	}
	if (p->unit[0])
		p->q.unit = p->unit;
}

static void party_command(struct party *p)
{
	ssize_t n = read_proc(p->q.pid, "cmdline", p->command, sizeof p->command);

	for (ssize_t i = 0; i + 1 < n; i++)
		if (!p->command[i])
			p->command[i] = ' ';
	if (n <= 0) {
		n = read_proc(p->q.pid, "comm", p->command, sizeof p->command);
		p->command[n > 0 ? strcspn(p->command, "\n") : 0] = 0;
	}
	if (p->command[0])
		p->q.command = p->command;
}

/* Of so many processes per question more is told than their numbers: each costs some files of /proc. */
#define LOOKUPS_MAX 32

static uint64_t ms_since(nsec_t now, nsec_t then)
{
	return then < now ? (now - then) / NSEC_PER_MSEC : 0;
}

/* No process has held anything for longer than it is attached. Rounded up, where it is a limit. */
static void party_holds(const struct node *n, struct space *s, uint32_t slot, uint32_t client, struct party *p)
{
	struct sight_span span = sight_hold(s, slot, client);
	nsec_t now = loop_now(n->loop), attached = ledger_client(&n->shm.ledger, client)->attached_ns;

	p->q.timed = span.from;
	p->q.since_ms = ms_since(now, span.from);
	p->q.since_most_ms = ms_since(now, span.before > attached ? span.before : attached) + 1;
}

static bool party_of(const struct node *n, uint32_t client, unsigned *lookups, struct party *ret)
{
	const struct ledger_client *rec;

	memset(ret, 0, sizeof *ret);
	if (!table_in_use(&n->shm.ledger.clients, client) || !n->shm.clients[client])
		return false;
	rec = ledger_client(&n->shm.ledger, client);
	ret->q.node = n->config.node_name;
	ret->q.pid = rec->pid;
	ret->q.uid = rec->uid;
	if (*lookups) {
		--*lookups;
		party_unit(ret);
		party_command(ret);
	}
	return true;
}

/* --- who waits: one pass over the areas of the space's clients --- */

struct waiting {
	uint32_t slot, client;
	uint64_t since;
	unsigned priority;
};

struct waitings {
	struct waiting *v;
	uint32_t n, cap;
	unsigned lookups;        /* left of this question */
};

#define WAITINGS_MAX 65536       /* more are not shown */

static void waitings_add(struct waitings *w, struct waiting e)
{
	struct waiting *v = w->n < WAITINGS_MAX ? grown(w->v, w->n, &w->cap, 64, sizeof *v) : NULL;

	if (!v)
		return;
	w->v = v;
	w->v[w->n++] = e;
}

static int waiting_order(const void *a, const void *b)
{
	const struct waiting *x = a, *y = b;

	if (x->slot != y->slot)
		return x->slot < y->slot ? -1 : 1;
	if (x->priority != y->priority)
		return x->priority > y->priority ? -1 : 1;
	return x->since < y->since ? -1 : x->since > y->since;
}

static struct waitings waitings_of(const struct node *n, const struct space *s)
{
	struct waitings w = { .lookups = LOOKUPS_MAX };

	for (uint32_t i = 0; (i = table_next(&n->shm.ledger.clients, i));) {
		const struct seg_cell *cells = seg_cells(s->base, i);

		if (!client_is_in(n->shm.clients[i], s))
			continue;
		for (unsigned k = 0; k < SEG_CELLS; k++) {
			uint32_t slot = __atomic_load_n(&cells[k].slot_plus_one, __ATOMIC_ACQUIRE);

			if (slot && slot - 1 < SEG_SLOTS_MAX)
				waitings_add(&w, (struct waiting){ slot - 1, i, cells[k].since_ns & SEG_SINCE,
								   (unsigned)(cells[k].since_ns >> SEG_SINCE_BITS) });
		}
	}
	if (w.n)
		qsort(w.v, w.n, sizeof *w.v, waiting_order);
	return w;
}

static size_t waitings_from(const struct waitings *w, uint64_t slot)
{
	size_t lo = 0, hi = w->n;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (w->v[mid].slot < slot)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* --- one name --- */

static void show_waiters(const struct node *n, struct waitings *w, size_t first, size_t end,
			 struct party *parties, struct query_party *waiters, struct query_name *q)
{
	nsec_t now = loop_now(n->loop);

	for (size_t i = first; i < end && q->n_waiters < QUERY_WAITERS_MAX; i++) {
		struct party *p = &parties[q->n_waiters];

		if (!party_of(n, w->v[i].client, &w->lookups, p))
			continue;
		p->q.timed = true;
		p->q.since_ms = w->v[i].since ? ms_since(now, w->v[i].since) : 0;
		waiters[q->n_waiters++] = p->q;
	}
}

static const char *master_of(const struct node *n, const struct space *s, uint32_t slot, const char *name)
{
	char key[CORE_KEY_MAX];
	uint16_t len = name_key(s->name, name_kind(s, slot), name, strlen(name), key);
	uint64_t session = core_master(n->core, key, len);

	return session ? node_peer_name(n, session) : NULL;
}

/* What lies in the store has no token, no holder and no master. */
static bool q_small(enum kind kind)
{
	return kind == KIND_LATCH || kind == KIND_COND || kind == KIND_ID;
}

/* --- who reads --- */

struct readings {
	const struct node *n;
	struct waitings *w;
	struct party parties[QUERY_READERS_MAX];
	struct query_party readers[QUERY_READERS_MAX];
	size_t n_readers, n_reading;
	uint32_t but;                    /* this client has been told of; 0: none */
};

static void add_reader(struct space *s, uint32_t slot, uint32_t client, void *arg)
{
	struct readings *r = arg;
	struct party *p = &r->parties[r->n_readers];

	if (client == r->but)
		return;
	r->n_reading++;
	if (r->n_readers == QUERY_READERS_MAX || !party_of(r->n, client, &r->w->lookups, p))
		return;
	party_holds(r->n, s, slot, client, p);
	r->readers[r->n_readers++] = p->q;
}

static void show_readers(struct space *s, uint32_t slot, uint64_t word, struct readings *r, struct query_name *q)
{
	if (!(word & LOCK_R))
		return;
	readers_each(s, slot, add_reader, r);
	q->readers = r->readers;
	q->n_readers = r->n_readers;
	q->n_reading = r->n_reading;
	if (r->n_reading && !(word & LOCK_EXCLUSIVE))
		q->state = "shared";     /* an owner who is not inside waits for them */
}

/* The first of them is `holder` already. */
static void show_holders(struct space *s, uint32_t slot, uint32_t first, struct readings *r, struct query_name *q)
{
	r->but = first;
	sem_each_holder(s, slot, add_reader, r);
	q->readers = r->readers;
	q->n_readers = r->n_readers;
	q->n_reading = r->n_reading;
}

static void show_name(const struct node *n, struct space *s, uint32_t slot, struct waitings *w,
		      query_name_fn fn, void *ctx)
{
	size_t first = waitings_from(w, slot), end = waitings_from(w, (uint64_t)slot + 1);
	size_t room = end - first < QUERY_WAITERS_MAX ? end - first : QUERY_WAITERS_MAX;
	const struct ledger_name *rec = name_at(s, slot);
	uint64_t word = name_is_lock(s, slot) ? LOCK_LOAD(&seg_slot(s->base, slot)->word) : 0;
	struct name_text t = name_text(s, slot);
	char name[ATTACH_NAME_MAX + 1];
	char said[VALUE_MAX + 1];
	struct party holder;
	struct readings readings = { .n = n, .w = w };
	struct query_party *waiters = room ? calloc(room, sizeof *waiters) : NULL;
	struct party *parties = room ? calloc(room, sizeof *parties) : NULL;
	struct query_name q = { .space = s->name, .name = name, .kind = kind_text(name_kind(s, slot)), .n_waiting = end - first };

	snprintf(name, sizeof name, "%.*s", (int)t.n, t.p);
	q.opens = rec->opens;
	q.token = name_token(s, slot);
	q.master = q_small(name_kind(s, slot)) ? NULL : master_of(n, s, slot, name);
	q.owner_died = word & LOCK_D;
	q.delay_ms = name_has_delay(s, slot) ? rec->delay : 0;
	q.delay_left_ms = name_has_delay(s, slot) ? delay_left(s, slot) : 0;
	q.state = !rec->count ? "unleased" : lock_is_free(word) ? "free" : "held";
	if (q.delay_left_ms && !lock_is_free(word))
		q.state = "delayed";
	show_readers(s, slot, word, &readings, &q);
	if ((word & LOCK_EXCLUSIVE) && party_of(n, (uint32_t)(word & LOCK_OWNER), &w->lookups, &holder)) {
		party_holds(n, s, slot, (uint32_t)(word & LOCK_OWNER), &holder);
		holder.q.token = q.token;
		q.holder = &holder.q;
	}
	if (waiters && parties)
		show_waiters(n, w, first, end, parties, waiters, &q);
	q.waiters = waiters;
	q.term = elect_leader(s, slot, said);
	q.says = said;
	if (object_at(s, slot) && (q_small(name_kind(s, slot))))
		node_thing_show(object_at(s, slot), &q);
	if (object_at(s, slot) && name_kind(s, slot) == KIND_SEM) {
		uint32_t first = sem_show(object_at(s, slot), &q);

		if (party_of(n, first, &w->lookups, &holder)) {
			party_holds(n, s, slot, first, &holder);
			holder.q.token = q.token;
			q.holder = &holder.q;
		}
		if (first)               /* a space that is broken is not looked into */
			show_holders(s, slot, first, &readings, &q);
	}
	if (object_at(s, slot) && name_kind(s, slot) == KIND_POOL)
		pool_show(object_at(s, slot), &q);
	if (object_at(s, slot) && is_barrier(name_kind(s, slot)))
		barrier_show(object_at(s, slot), &q);
	fn(ctx, &q);
	free(waiters);
	free(parties);
}

/* --- the source --- */

static void source_node(void *arg, struct query_node *ret)
{
	struct node *n = arg;
	static char id[33], store[300];
	static struct query_cluster cluster;
	struct core_stats st;

	core_stats(n->core, &st);
	for (int i = 0; i < 16; i++)
		snprintf(id + 2 * i, 3, "%02x", n->boot.node_id[i]);
	if (n->cluster.on)
		snprintf(store, sizeof store, "%s", n->config.text[CONFIG_STORE]);
	else
		snprintf(store, sizeof store, "file:%s", n->config.state_dir);
	*ret = (struct query_node){
		.name = n->config.node_name, .id = id, .version = DLOCK_VERSION, .state = n->state,
		.run_dir = n->config.run_dir, .state_dir = n->config.state_dir, .store = store,
		.session = n->cluster.on ? n->cluster.session : n->boot.id.session, .epoch = st.epoch,
		.incarnation = n->cluster.on ? n->cluster.incarnation : n->boot.incarnation,
		.clients = n->shm.ledger.clients.n, .grants = st.grants, .refills = st.refills,
		.releases = st.releases, .pid = getpid(),
		.uptime_ms = (loop_now(n->loop) - n->started) / NSEC_PER_MSEC,
		.loss = n->shm.loss ? n->shm.loss
			: boot_loses(n->boot.what) ? boot_text(n->boot.what) : NULL,
	};
	if (n->cluster.on) {
		members_cluster(n, &st, &cluster);
		ret->cluster = &cluster;
	}
	for (uint32_t i = 0; i < LEDGER_SPACES_MAX; i++)
		if (n->shm.spaces[i] && !n->shm.spaces[i]->broken)
			ret->names += n->shm.spaces[i]->n_open;
	static char clocksource[32];
	int fd = open("/sys/devices/system/clocksource/clocksource0/current_clocksource", O_RDONLY | O_CLOEXEC);
	ssize_t len = fd >= 0 ? read(fd, clocksource, sizeof clocksource - 1) : 0;

	if (fd >= 0)
		close(fd);
	clocksource[len > 0 ? len : 0] = 0;
	clocksource[strcspn(clocksource, "\n")] = 0;
	ret->clocksource = clocksource[0] ? clocksource : NULL;
}

static void source_spaces(void *arg, void (*fn)(void *ctx, const struct query_space *s), void *ctx)
{
	struct node *n = arg;

	for (uint32_t i = 0; i < LEDGER_SPACES_MAX; i++) {
		const struct space *s = n->shm.spaces[i];
		const struct ledger_space *rec = s ? space_record(s) : NULL;

		if (s)
			fn(ctx, &(struct query_space){ .name = s->name, .owner = rec->uid, .group = rec->gid,
						       .mode = rec->mode, .names = s->broken ? 0 : s->n_open,
						       .clients = s->n_clients, .waiters = s->n_watch,
						       .broken = s->broken });
	}
}

struct link_visit {
	void (*fn)(void *ctx, const struct query_link *l);
	void *ctx;
};

#define ADDRESSES_SHOWN 64

static void visit_link(void *arg, const struct link_info *l)
{
	struct link_visit *v = arg;
	const char *addresses[ADDRESSES_SHOWN + 1] = { NULL };

	for (size_t i = 0; i < l->n_addresses && i < ADDRESSES_SHOWN; i++)
		addresses[i] = l->addresses[i].text;
	v->fn(v->ctx, &(struct query_link){ .name = l->name, .index = (uint32_t)l->ifindex, .mtu = l->mtu,
					    .up = l->up, .running = l->running, .addresses = addresses });
}

static void source_links(void *arg, void (*fn)(void *ctx, const struct query_link *l), void *ctx)
{
	struct node *n = arg;
	struct link_visit v = { fn, ctx };

	if (n->links)
		links_each(n->links, visit_link, &v);
}

static struct space *space_from(struct node *n, uint32_t id, const char *only)
{
	for (; id < LEDGER_SPACES_MAX; id++) {
		struct space *s = n->shm.spaces[id];

		if (s && !s->broken && (!only || !strcmp(s->name, only)))
			return s;
	}
	return NULL;
}

static int source_names(void *arg, const char *space, uint64_t *cursor, unsigned max, query_name_fn fn,
			void *ctx)
{
	struct node *n = arg;
	uint32_t id = (uint32_t)(*cursor >> 32), slot = (uint32_t)*cursor;
	struct space *s;

	if (space && !space_find(&n->shm, space, strlen(space)))
		return -ENOENT;
	*cursor = 0;
	while ((s = space_from(n, id, space))) {
		struct waitings w = waitings_of(n, s);
		uint32_t next;

		if (s->id != id)
			slot = 0;
		for (; max && (next = table_next(&s->names, slot)); slot = next, max--)
			if (name_is(s, next))
				show_name(n, s, next, &w, fn, ctx);
		free(w.v);
		if (!max) {
			*cursor = (uint64_t)s->id << 32 | slot;
			return 0;
		}
		id = s->id + 1;
		slot = 0;
	}
	return 0;
}

static int source_show(void *arg, const char *space, const char *name, const char *kind, query_name_fn fn, void *ctx)
{
	struct node *n = arg;
	struct space *s = space_find(&n->shm, space, strlen(space));
	uint32_t slot = 0;
	struct waitings w;

	for (int k = 0; s && !slot && k < KINDS; k++)    /* a lock before all others */
		if (!kind || !strcmp(kind, kind_text((enum kind)k)))
			slot = name_find(s, (enum kind)k, name, strlen(name));
	if (!slot)
		return -ENOENT;
	w = waitings_of(n, s);
	show_name(n, s, slot, &w, fn, ctx);
	free(w.v);
	return 0;
}

static bool source_may_see(void *arg, const char *space, uid_t uid, const gid_t *groups, size_t n_groups)
{
	struct node *n = arg;
	struct space *s = space_find(&n->shm, space, strlen(space));

	return !s || space_may(s, uid, n_groups ? groups[0] : (gid_t)-1, groups, n_groups);
}

struct asked {
	struct node *node;
	struct item *value;
	query_value_fn done;
	void *ctx;
	bool beginning, over;
};

static void value_answered(void *arg, const struct item_result *res)
{
	struct asked *a = arg;
	struct query_value_result r = { .error = res->error, .in_doubt = res->in_doubt, .version = res->version, .bytes = res->bytes,
					.n = res->n };

	if (res->error == -ETIMEDOUT)
		r.why = node_store_why(a->node);
	a->done(a->ctx, &r);
	a->over = true;
	if (!a->beginning)
		free(a);
}

static void *source_value(void *arg, const struct query_value_call *call, query_value_fn done, void *ctx, int *ret_error)
{
	static const enum item_op ops[] = { [QUERY_GET] = ITEM_GET, [QUERY_PUT] = ITEM_PUT, [QUERY_REMOVE] = ITEM_REMOVE };
	char key[STORE_KEY_MAX + 1];
	struct item_call c = { .op = ops[call->op], .key = key, .bytes = call->bytes, .n = call->n, .compare = call->compare,
				.version = call->version };
	struct asked *a = malloc(sizeof *a);

	thing_key(THING_VALUES, call->space, call->name, strlen(call->name), key);
	*ret_error = a ? 0 : -ENOMEM;
	if (!a)
		return NULL;
	*a = (struct asked){ arg, NULL, done, ctx, true, false };
	a->value = node_value(arg, &c, value_answered, a);
	if (!a->value && !a->over)
		value_answered(a, &(struct item_result){ .error = -ETIMEDOUT });
	a->beginning = false;
	if (!a->over)
		return a;
	free(a);
	return NULL;
}

static void source_value_drop(void *arg, void *request)
{
	struct asked *a = request;

	(void)arg;
	item_drop(a->value);
	free(a);
}

static void source_log(void *arg, int priority, const char *text)
{
	struct node *n = arg;

	log_limited(loop_now(n->loop), (enum log_level)priority, "query: %s", text);
}

/* Leaders say who they are without the daemon: unless somebody is to be told. */
static void source_watching(void *arg)
{
	struct node *n = arg;

	for (uint32_t i = 0; i < LEDGER_SPACES_MAX; i++)
		if (n->shm.spaces[i] && !n->shm.spaces[i]->broken)
			elects_watched(n->shm.spaces[i]);
}

static int source_drain(void *arg, bool on)
{
	return node_drain(arg, on);
}

static int source_leave(void *arg)
{
	return node_leave(arg);
}

void node_source(struct node *n, struct query_source *ret)
{
	*ret = (struct query_source){
		.arg = n, .node = source_node, .spaces = source_spaces, .links = source_links, .members = members_each,
		.names = source_names, .show = source_show, .may_see = source_may_see, .log = source_log,
		.drain = source_drain, .leave = source_leave, .value = source_value, .value_drop = source_value_drop,
		.stored = node_stored, .stored_drop = node_stored_drop, .nodes = node_enquire, .nodes_drop = node_enquire_drop,
		.watching = source_watching,
	};
}
