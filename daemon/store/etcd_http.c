/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The descriptor is watched by a loop that hears of each wake-up once (loop.h), so http_ready() goes on until
 * nothing is ready, or asks to be called again.
 */
#include "etcd_http.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS		64	/* of events, in one http_ready() */
#define KEEPALIVE_S	3	/* seconds of silence until a connection is probed, and between probes */
#define KEEPALIVE_N	3
#define CA_CACHE_S	60L	/* seconds after which a file of authorities is read anew */

http_ms http_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (http_ms)t.tv_sec * 1000 + (http_ms)t.tv_nsec / 1000000;
}

/* --- Descriptors and timers --- */

static void timer_set(int fd, int flags, uint64_t ms)
{
	/* All zero would disarm it. */
	struct itimerspec t = { .it_value = { (time_t)(ms / 1000), ms ? (long)(ms % 1000) * 1000000 : 1 } };

	timerfd_settime(fd, flags, &t, NULL);
}

static void timer_off(int fd)
{
	timerfd_settime(fd, 0, &(struct itimerspec){ .it_value = { 0, 0 } }, NULL);
}

void http_tick_at(struct http *h, http_ms when)
{
	if (when)
		timer_set(h->tick_timer, TFD_TIMER_ABSTIME, when);
	else
		timer_off(h->tick_timer);
}

static int on_curl_timer(CURLM *multi, long ms, void *arg)
{
	struct http *h = arg;

	(void)multi;
	if (ms < 0)
		timer_off(h->curl_timer);
	else
		timer_set(h->curl_timer, 0, (uint64_t)ms);
	return 0;
}

static int on_curl_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *known)
{
	struct http *h = arg;
	struct epoll_event e = { .data = { .fd = fd } };

	(void)easy;
	if (what == CURL_POLL_REMOVE) {
		epoll_ctl(h->epoll, EPOLL_CTL_DEL, fd, NULL);
		return 0;
	}
	if (what & CURL_POLL_IN)
		e.events |= EPOLLIN;
	if (what & CURL_POLL_OUT)
		e.events |= EPOLLOUT;
	if (epoll_ctl(h->epoll, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &e) < 0)
		return -1;	/* libcurl then fails what is under way */
	if (!known)
		curl_multi_assign(h->multi, fd, h);
	return 0;
}

static int timer_make(struct http *h, int *ret)
{
	struct epoll_event e = { .events = EPOLLIN };

	*ret = e.data.fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (*ret < 0 || epoll_ctl(h->epoll, EPOLL_CTL_ADD, *ret, &e) < 0)
		return -errno;
	return 0;
}

int http_init(struct http *h, const struct http_tls *tls)
{
	int r;

	*h = (struct http){ .tls = *tls, .curl_timer = -1, .tick_timer = -1 };
	h->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (h->epoll < 0)
		return -errno;
	r = timer_make(h, &h->curl_timer);
	if (r == 0)
		r = timer_make(h, &h->tick_timer);
	if (r < 0)
		return r;
	if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0)
		return -ENOMEM;
	h->multi = curl_multi_init();
	if (!h->multi) {
		curl_global_cleanup();
		return -ENOMEM;
	}
	curl_multi_setopt(h->multi, CURLMOPT_SOCKETFUNCTION, on_curl_socket);
	curl_multi_setopt(h->multi, CURLMOPT_SOCKETDATA, h);
	curl_multi_setopt(h->multi, CURLMOPT_TIMERFUNCTION, on_curl_timer);
	curl_multi_setopt(h->multi, CURLMOPT_TIMERDATA, h);
	curl_multi_setopt(h->multi, CURLMOPT_MAXCONNECTS, 64L);
	return 0;
}

void http_done(struct http *h)
{
	if (h->multi) {
		curl_multi_cleanup(h->multi);
		curl_global_cleanup();
	}
	for (int i = 0; i < 3; i++) {
		int fd = i == 0 ? h->tick_timer : i == 1 ? h->curl_timer : h->epoll;

		if (fd >= 0)
			close(fd);
	}
}

/* --- One call --- */

static curl_socket_t on_open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *a)
{
	struct http_call *c = arg;
	int fd = socket(a->family, a->socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->protocol);
	int on = 1, seconds = KEEPALIVE_S, n = KEEPALIVE_N;

	(void)purpose;
	if (fd < 0) {
		c->error = errno;
		c->local = errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS;
		return CURL_SOCKET_BAD;
	}
	/* So that a stream learns of a host that has gone without a word. */
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof seconds);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &n, sizeof n);
	return fd;
}

/* Before each sending, the first one and any that libcurl makes of it. */
static int on_sending(void *arg, char *ip, char *local_ip, int port, int local_port)
{
	struct http_call *c = arg;

	(void)ip;
	(void)local_ip;
	(void)port;
	(void)local_port;
	if (c->sent && c->once)
		return CURL_PREREQFUNC_ABORT;
	c->handed = 0;
	return CURL_PREREQFUNC_OK;
}

static size_t on_body(char *to, size_t size, size_t n, void *arg)
{
	struct http_call *c = arg;
	size_t left = c->body_size - c->handed, piece = size * n < left ? size * n : left;

	memcpy(to, c->body + c->handed, piece);
	c->handed += piece;
	c->sent = true;
	return piece;
}

static int on_rewind(void *arg, curl_off_t offset, int origin)
{
	struct http_call *c = arg;

	if (c->once || origin != SEEK_SET || offset != 0)
		return CURL_SEEKFUNC_FAIL;
	c->handed = 0;
	return CURL_SEEKFUNC_OK;
}

static size_t on_answer(char *data, size_t size, size_t n, void *arg)
{
	struct http_call *c = arg;

	size *= n;
	if (c->on_data) {
		c->on_data(c->arg, data, size);
		return size;
	}
	if (size > HTTP_ANSWER_MAX - c->size) {
		c->error = EFBIG;
		return 0;
	}
	if (c->size + size >= c->room) {
		size_t room = 2 * c->room + size + 1024;
		char *grown = realloc(c->data, room);

		if (!grown) {
			c->error = ENOMEM;
			c->local = true;
			return 0;
		}
		c->data = grown;
		c->room = room;
	}
	memcpy(c->data + c->size, data, size);
	c->size += size;
	c->data[c->size] = 0;
	return size;
}

static bool add_header(struct http_call *c, const char *name, const char *value)
{
	size_t room = strlen(name) + strlen(value) + 1;
	char *line = malloc(room);
	struct curl_slist *more;

	if (!line)
		return false;
	strcpy(stpcpy(line, name), value);
	more = curl_slist_append(c->headers, line);
	free(line);
	if (more)
		c->headers = more;
	return more;
}

#define set(option, value) (curl_easy_setopt(c->easy, CURLOPT_##option, value) == CURLE_OK)

static bool set_tls(struct http_call *c)
{
	const struct http_tls *t = &c->http->tls;

	return set(SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2) && (!t->ca || set(CAINFO, t->ca)) &&
	       (!t->ca || set(CAPATH, NULL)) && (!t->cert || set(SSLCERT, t->cert)) &&
	       (!t->key || set(SSLKEY, t->key)) && set(CA_CACHE_TIMEOUT, CA_CACHE_S) && set(SSL_VERIFYPEER, 1L) && set(SSL_VERIFYHOST, 2L);
}

/* Nothing of the environment or of files in the home directory has a say: no proxy, no .netrc. */
static bool set_all(struct http_call *c)
{
	return set(URL, c->url) && set(PRIVATE, c) && set(ERRORBUFFER, c->detail) && set(NOSIGNAL, 1L) &&
	       set(QUICK_EXIT, 1L) && set(PROXY, "") && set(NETRC, (long)CURL_NETRC_IGNORED) &&
	       set(PROTOCOLS_STR, "http,https") && set(FOLLOWLOCATION, 0L) &&
	       set(HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1) && set(TCP_NODELAY, 1L) &&
	       set(TIMEOUT_MS, (long)c->limit_ms) && set(CONNECTTIMEOUT_MS, (long)c->connect_ms) &&
	       set(POST, 1L) && set(POSTFIELDSIZE_LARGE, (curl_off_t)c->body_size) &&
	       set(READFUNCTION, on_body) && set(READDATA, c) && set(SEEKFUNCTION, on_rewind) && set(SEEKDATA, c) &&
	       set(WRITEFUNCTION, on_answer) && set(WRITEDATA, c) && set(PREREQFUNCTION, on_sending) &&
	       set(PREREQDATA, c) && set(OPENSOCKETFUNCTION, on_open_socket) && set(OPENSOCKETDATA, c) &&
	       set(HTTPHEADER, c->headers) && set_tls(c);
}

#undef set

/* hasleader: who has lost his majority says so at once, instead of letting us wait. */
static bool set_headers(struct http_call *c)
{
	return add_header(c, "Content-Type: application/json", "") && add_header(c, "Expect:", "") &&
	       add_header(c, "Grpc-Metadata-hasleader: true", "") &&
	       (!c->token || add_header(c, "Authorization: ", c->token));
}

static void call_free(struct http_call *c)
{
	curl_easy_cleanup(c->easy);
	curl_slist_free_all(c->headers);
	c->easy = NULL;
	c->headers = NULL;
	c->running = false;
}

static void data_free(struct http_call *c)
{
	free(c->data);
	c->data = NULL;
	c->size = c->room = 0;
}

/* Finished calls are put aside, so that nobody is called from inside of libcurl, or of a start. */
static void collect(struct http *h)
{
	struct CURLMsg *m;
	int left;

	while ((m = curl_multi_info_read(h->multi, &left))) {
		struct http_call *c, **end = &h->over;
		CURL *easy = m->easy_handle;
		CURLcode result = m->data.result;
		long error = 0;

		if (m->msg != CURLMSG_DONE || curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&c) != CURLE_OK)
			continue;
		c->result = result;
		curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &c->status);
		curl_easy_getinfo(easy, CURLINFO_SSL_VERIFYRESULT, &c->verify);
		curl_easy_getinfo(easy, CURLINFO_OS_ERRNO, &error);
		if (!c->error)
			c->error = (int)error;
		if (result == CURLE_OUT_OF_MEMORY)
			c->local = true;
		curl_multi_remove_handle(h->multi, easy);
		call_free(c);
		c->running = true;	/* until it has been told */
		while (*end)
			end = &(*end)->next;
		c->next = NULL;
		*end = c;
	}
}

int http_call_start(struct http *h, struct http_call *c)
{
	int running;

	c->http = h;
	c->sent = c->local = false;
	c->started = http_now();
	c->result = CURLE_OK;
	c->error = 0;
	c->status = c->verify = 0;
	c->handed = 0;
	c->detail[0] = 0;
	c->headers = NULL;
	c->easy = curl_easy_init();
	if (!c->easy || !set_headers(c) || !set_all(c) || curl_multi_add_handle(h->multi, c->easy) != CURLM_OK) {
		call_free(c);
		return -ENOMEM;
	}
	c->running = true;
	/* Off it goes, in this turn and not in the next. */
	curl_multi_socket_action(h->multi, CURL_SOCKET_TIMEOUT, 0, &running);
	collect(h);
	if (h->over)
		timer_set(h->curl_timer, 0, 0);
	return 0;
}

void http_call_cancel(struct http_call *c)
{
	if (!c->running)
		return;
	for (struct http_call **p = &c->http->over; *p; p = &(*p)->next) {
		if (*p == c) {
			*p = c->next;
			break;
		}
	}
	if (c->easy)
		curl_multi_remove_handle(c->http->multi, c->easy);
	call_free(c);
	data_free(c);
}

static void event(struct http *h, const struct epoll_event *e)
{
	int fd = e->data.fd, what = 0, running;
	uint64_t times;

	if (fd == h->tick_timer || fd == h->curl_timer) {
		if (read(fd, &times, sizeof times) < 0)
			return;
		if (fd == h->tick_timer)
			h->ticked = true;
		else
			curl_multi_socket_action(h->multi, CURL_SOCKET_TIMEOUT, 0, &running);
		return;
	}
	if (e->events & (EPOLLIN | EPOLLHUP))
		what |= CURL_CSELECT_IN;
	if (e->events & EPOLLOUT)
		what |= CURL_CSELECT_OUT;
	if (e->events & EPOLLERR)
		what |= CURL_CSELECT_ERR;
	curl_multi_socket_action(h->multi, fd, what, &running);
}

bool http_ready(struct http *h)
{
	struct epoll_event events[16];
	bool ticked;
	int n = 1, round;

	for (round = 0; round < ROUNDS && n > 0; round++) {
		n = epoll_wait(h->epoll, events, sizeof events / sizeof *events, 0);
		for (int i = 0; i < n; i++)
			event(h, &events[i]);
		collect(h);
		while (h->over) {
			struct http_call *c = h->over;
			struct http_call copy;

			h->over = c->next;
			c->running = false;
			/* done may start the call anew: what came of this one is then elsewhere. */
			copy = *c;
			c->data = NULL;
			c->size = c->room = 0;
			copy.done(copy.arg, &copy);
			free(copy.data);
		}
	}
	ticked = h->ticked;
	h->ticked = false;
	if (round == ROUNDS && n > 0)
		timer_set(h->curl_timer, 0, 0);
	return ticked;
}
