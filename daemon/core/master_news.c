/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Observers of a name: claims of weight 0, which are granted at once and told who leads. What is told is a triple, (term,
 * count, value or nobody), that only rises. It comes from the node that holds the name exclusively: its grant says that
 * it is observed, or it is asked (OBSERVED), and from then on it tells of each hand-over. If no node
 * holds it exclusively, nobody leads: that has the shard's floor as its term, which is above all terms
 * that there were and below all that will be (S6), and is told only when nobody else has been granted at once, so
 * that a hand-over is one message to each observer.
 *
 * A master knows no news when it opens, and tells none before it has heard from the holder, or knows that there is none.
 */
#include "grant.h"

#define NEWS_TELL 4
#define NOBODY UINT32_MAX

static struct watcher *watcher_at(const struct master *m, uint32_t handle)
{
	return pool_at(&m->watchers, handle);
}

static uint32_t watcher_find(const struct master *m, const struct master_extra *x, unsigned peer)
{
	uint32_t i = x ? x->watchers : 0;

	while (i && watcher_at(m, i)->peer != peer)
		i = watcher_at(m, i)->next;
	return i;
}

static void watcher_make(struct master *m, name_t n, struct master_extra *x, unsigned peer)
{
	struct peer *p = &m->peers->v[peer];
	uint32_t i = pool_take(&m->watchers);
	struct watcher *w = watcher_at(m, i);

	w->name = n;
	w->peer = (uint16_t)peer;
	w->next = x->watchers;
	x->watchers = i;
	w->peer_next = p->watches;
	if (w->peer_next)
		watcher_at(m, w->peer_next)->peer_prev = i;
	p->watches = i;
}

static void watcher_drop(struct master *m, struct master_extra *x, uint32_t handle)
{
	struct watcher *w = watcher_at(m, handle);
	uint32_t *link = &x->watchers;

	while (*link != handle)
		link = &watcher_at(m, *link)->next;
	*link = w->next;
	if (x->at == handle)
		x->at = w->next;
	if (w->peer_prev)
		watcher_at(m, w->peer_prev)->peer_next = w->peer_next;
	else
		m->peers->v[w->peer].watches = w->peer_next;
	if (w->peer_next)
		watcher_at(m, w->peer_next)->peer_prev = w->peer_prev;
	pool_give(&m->watchers, handle);
}

static void news_reset(struct master *m, struct master_extra *x)
{
	value_drop(m->values, x->news);
	x->news = 0;
	x->term = 0;
	x->count = 0;
	x->leads = x->asked = false;
	x->at = 0;
}

void watchers_forget(struct master *m, struct master_name *r)
{
	struct master_extra *x = extra_at(m, r);

	if (!x)
		return;
	while (x->watchers)
		watcher_drop(m, x, x->watchers);
	news_reset(m, x);
}

/* The name may have nothing else. */
static void watcher_end(struct master *m, name_t n, uint32_t handle)
{
	struct master_name *r = record_of(m, n);

	watcher_drop(m, extra_at(m, r), handle);
	if (!extra_at(m, r)->watchers)
		news_reset(m, extra_at(m, r));
	extra_drop_if_empty(m, r);
	record_drop_if_idle(m, n);
}

void observe_take(struct master *m, name_t n, unsigned peer, const struct msg *msg)
{
	struct master_name *r = record_make(m, n, MSG_WEIGHT_ALL);
	uint32_t handle = watcher_find(m, extra_at(m, r), peer);

	if (msg->flags & MSG_FLAG_OFF) {
		if (handle)
			watcher_end(m, n, handle);
		else
			record_drop_if_idle(m, n);
		return;
	}
	struct master_extra *x = extra_make(m, r);
	if (!handle) {
		watcher_make(m, n, x, peer);
		handle = x->watchers;
	}
	struct watcher *w = watcher_at(m, handle);
	w->round = m->peers->v[peer].round;
	w->term = 0;
	w->count = 0;
	x->at = x->watchers;
	record_list(m, n);
}

/* What this session did not say again it observes no more. */
void watchers_synced(struct master *m, struct peer *p, unsigned shard)
{
	uint32_t next;

	for (uint32_t i = p->watches; i; i = next) {
		const struct watcher *w = watcher_at(m, i);

		next = w->peer_next;
		if (names_at(m->names, w->name)->shard == shard && w->round != p->round)
			watcher_end(m, w->name, i);
	}
}

void watcher_ended(struct master *m, struct peer *p)
{
	watcher_end(m, watcher_at(m, p->watches)->name, p->watches);
}

static void news_set(struct master *m, name_t n, struct master_extra *x, uint64_t term, uint32_t count, bool leads, uint32_t value)
{
	bool later = term > x->term || (term == x->term && count > x->count);

#ifdef CORE_BREAK_OLD_NEWS
	later = true;
#endif
	if (!later)
		return;
	x->term = term;
	x->count = count;
	x->leads = leads;
	value_keep(m->values, value);
	value_drop(m->values, x->news);
	x->news = value;
	x->at = x->watchers;
	record_list(m, n);
}

/* The exclusive holder has told who leads. */
void news_hear(struct master *m, name_t n, const struct master_name *r, const struct msg *msg)
{
	struct master_extra *x = extra_at(m, r);

	if (!x || !x->watchers || !(msg->flags & MSG_FLAG_NEWS))
		return;
	x->asked = true;
	news_set(m, n, x, msg->term, msg->count, msg->flags & MSG_FLAG_LEADS, msg->flags & MSG_FLAG_LEADS ? msg->kept : 0);
}

static struct master_claim *exclusive_claim(const struct master *m, const struct master_name *r)
{
	for (uint32_t i = r->limit == MSG_WEIGHT_ALL ? r->claims : 0; i; i = claim_at(m, i)->next)
		if (claim_at(m, i)->held == MSG_WEIGHT_ALL)
			return claim_at(m, i);
	return NULL;
}

void news_ask_again(const struct master *m, const struct master_name *r)
{
	if (r->extra)
		extra_at(m, r)->asked = false;
}

static void news_tell(struct master *m, name_t n, const struct master_extra *x, struct watcher *w, struct step *s)
{
	const struct name *name = names_at(m->names, n);
	struct msg msg = {
		.kind = MSG_NEWS, .key = name->key, .key_len = name->len, .shard = name->shard, .epoch = m->shard[name->shard].epoch,
		.from = m->self, .to = m->peers->v[w->peer].id, .term = x->term, .count = x->count,
		.flags = (uint16_t)(MSG_FLAG_NEWS | (x->leads ? MSG_FLAG_LEADS : 0)), .kept = x->news, .value = value_describe(m->values, x->news),
	};

	w->term = x->term;
	w->count = x->count;
	step_send(s, &msg);
}

void news_work(struct master *m, name_t n, struct step *s)
{
	struct master_name *r = record_of(m, n);
	struct master_extra *x = extra_at(m, r);
	unsigned shard = names_at(m->names, n)->shard, told = 0;

	struct master_claim *c = exclusive_claim(m, r);
	bool early = false;
#ifdef CORE_BREAK_OLD_NEWS
	early = !x->term;
#endif
	bool passed = r->queue && queue_at(m, r)->heir;  /* perhaps, and perhaps that one leads already */
	if (((!c && !passed) || early) && (x->leads || !x->term))
		news_set(m, n, x, max_u64(x->term, m->shard[shard].floor), NOBODY, false, 0);
	if (c && !x->asked) {
		struct msg ask = { .kind = MSG_OBSERVED, .seen = c->range.first };

		x->asked = true;
		claim_answer(m, n, c, s, &ask);
	}
	for (; x->term && x->at; x->at = watcher_at(m, x->at)->next) {
		struct watcher *w = watcher_at(m, x->at);

		if (w->term == x->term && w->count == x->count)
			continue;
		if (told++ == NEWS_TELL) {
			record_list(m, n);
			return;
		}
		news_tell(m, n, x, w, s);
	}
}
