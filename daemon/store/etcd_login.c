/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The token. etcd forgets tokens, after five minutes without use and when a member restarts; so one that is
 * refused is replaced, once for all requests that it was refused to. The password is read anew each time.
 */
#include "etcd_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PASSWORD_MAX	1024
#define PAUSE_MS	1000	/* a password costs etcd a tenth of a second to check */

static void login_failed(struct etcd *e, int error, const char *why)
{
	e->login_error = error;
	e->login_at = e->now + PAUSE_MS;
	snprintf(e->login_why, sizeof e->login_why, "%s", why);
}

static void body_forget(struct etcd_body *b)
{
	if (b->data)
		explicit_bzero(b->data, b->size);
	free(b->data);
	*b = (struct etcd_body){ NULL, 0 };
}

/* text has room for PASSWORD_MAX bytes. 0, or an error with its sentence in *why. */
static int password_read(const char *path, char *text, char why[WHY_MAX])
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	struct stat st;
	ssize_t n;
	int r = 0;

	if (fd < 0 || fstat(fd, &st) < 0) {
		r = -errno;
		etcd_say(why, "StorePasswordFile=%.150s: cannot open it: %s.", path, strerrordesc_np(-r));
	} else if (st.st_mode & 0007) {
		r = STORE_ETCD_ELOGIN;
		etcd_say(why, "StorePasswordFile=%.150s: everybody may read it. Run chmod o= on it, and change the password.",
			 path);
	} else if ((n = read(fd, text, PASSWORD_MAX)) < 0 || n == PASSWORD_MAX) {
		r = STORE_ETCD_ELOGIN;
		etcd_say(why, "StorePasswordFile=%.150s: cannot read it, or it is longer than %d bytes.", path,
			 PASSWORD_MAX - 1);
	} else {
		text[n] = 0;
		text[strcspn(text, "\r\n")] = 0;
	}
	if (fd >= 0)
		close(fd);
	return r;
}

static void logged_in(void *arg, struct http_call *c)
{
	struct etcd *e = arg;
	struct etcd_host *h = e->login_host;
	struct etcd_answer a;
	struct etcd_verdict v;

	body_forget(&e->login_body);
	e->login_host = NULL;
	etcd_judge(e, h, c, &a, &v);
	if (v.next == ETCD_FINE && !host_cluster(h, a.cluster)) {
		login_failed(e, e->refused, e->refused_why);
	} else if (v.next == ETCD_FINE && a.token) {
		e->token = a.token;
		e->token_number++;
		a.token = NULL;
		e->login_error = 0;
	} else if (v.next == ETCD_ELSEWHERE) {
		host_failed(h, v.error, v.why);
	} else {
		if (v.next == ETCD_FINE)
			etcd_say(v.why, "%s: etcd gives no token.", h->label);
		login_failed(e, v.next == ETCD_FINE ? STORE_ETCD_EANSWER : v.error, v.why);
	}
	if (c->data)
		explicit_bzero(c->data, c->size);
	etcd_answer_done(&a);
	etcd_step(e);
}

static void login_start(struct etcd *e, struct etcd_host *h)
{
	char password[PASSWORD_MAX], why[WHY_MAX];
	int r = password_read(e->password_file, password, why);

	if (r == 0)
		r = etcd_wire_login(e->user, password, &e->login_body);
	explicit_bzero(password, sizeof password);
	if (r == 0) {
		e->login = (struct http_call){
			.url = h->login_url, .body = e->login_body.data, .body_size = e->login_body.size,
			.limit_ms = e->request_ms, .connect_ms = e->request_ms / 4, .done = logged_in, .arg = e,
		};
		e->login_host = h;
		r = http_call_start(&e->http, &e->login);
		if (r < 0)
			e->login_host = NULL;
	}
	if (r == -ENOMEM)
		etcd_say(why, "this host has no memory left.");
	if (r < 0) {
		body_forget(&e->login_body);
		login_failed(e, r, why);
	}
}

bool login_step(struct etcd *e)
{
	struct etcd_host *h;

	if (!e->user || e->token)
		return true;
	if (!e->login_host && e->now >= e->login_at) {
		e->login_error = 0;
		h = hosts_pick(e);
		if (h)
			login_start(e, h);
	}
	return false;
}

void login_void(struct etcd *e, unsigned number)
{
	if (e->token && e->token_number == number) {
		free(e->token);
		e->token = NULL;
	}
}

void login_done(struct etcd *e)
{
	http_call_cancel(&e->login);
	body_forget(&e->login_body);
	if (e->token)
		explicit_bzero(e->token, strlen(e->token));
	free(e->token);
}
