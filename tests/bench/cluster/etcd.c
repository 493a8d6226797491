/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* By the JSON gateway, one connection a client, which stays open. */
#include <curl/curl.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../cluster/etcd.h"
#include "../../cluster/lab.h"
#include "../../e2e/harness.h"
#include "rival.h"

struct client {
	CURL *curl;
	char url[64];
	char *answer;
	size_t size, used;
	char lease[32];
	char ours[400];                  /* the key that is our place, base64 */
};

static const char *missing(void)
{
	return access("/usr/bin/etcd", X_OK) && access("/usr/local/bin/etcd", X_OK) ? "there is no etcd" : NULL;
}

static void serve(void)
{
	for (unsigned i = 0; i < ETCD_MEMBERS; i++)
		etcd_member_begin("r", HOST_MEMBERS, i, rival_log("etcd", i), NULL);
	for (unsigned i = 0; i < ETCD_MEMBERS; i++)
		rival_await_port(HOST_MEMBERS + i, ETCD_PORT, 20000);
	sleep(2);                                /* a leader */
}

static size_t on_bytes(char *bytes, size_t one, size_t n, void *arg)
{
	struct client *c = arg;

	n *= one;
	if (c->used + n + 1 > c->size)
		c->answer = realloc(c->answer, c->size = 2 * (c->used + n + 1));
	memcpy(c->answer + c->used, bytes, n);
	c->used += n;
	c->answer[c->used] = 0;
	return n;
}

static struct json_object *ask(struct client *c, const char *path, const char *body)
{
	char url[200];
	long code = 0;

	snprintf(url, sizeof url, "%s%s", c->url, path);
	c->used = 0;
	curl_easy_setopt(c->curl, CURLOPT_URL, url);
	curl_easy_setopt(c->curl, CURLOPT_POSTFIELDS, body);
	CURLcode r = curl_easy_perform(c->curl);
	if (r)
		rival_fail("etcd: %s", curl_easy_strerror(r));
	curl_easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &code);
	if (code != 200)
		rival_fail("etcd: %ld %s", code, c->answer);
	return json_tokener_parse(c->answer);
}

static const char *text_of(struct json_object *o, const char *key)
{
	struct json_object *v;

	return json_object_object_get_ex(o, key, &v) ? json_object_get_string(v) : "";
}

static void base64(const char *text, char *ret)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	size_t n = strlen(text);

	for (size_t i = 0; i < n; i += 3) {
		unsigned v = (unsigned)(unsigned char)text[i] << 16;

		if (i + 1 < n)
			v |= (unsigned)(unsigned char)text[i + 1] << 8;
		if (i + 2 < n)
			v |= (unsigned)(unsigned char)text[i + 2];
		*ret++ = digits[v >> 18];
		*ret++ = digits[v >> 12 & 63];
		*ret++ = i + 1 < n ? digits[v >> 6 & 63] : '=';
		*ret++ = i + 2 < n ? digits[v & 63] : '=';
	}
	*ret = 0;
}

static void *connect_to(unsigned host)
{
	struct client *c = calloc(1, sizeof *c);

	c->curl = curl_easy_init();
	snprintf(c->url, sizeof c->url, "http://%s:%d", lab_address(HOST_MEMBERS + host % ETCD_MEMBERS), ETCD_PORT);
	curl_easy_setopt(c->curl, CURLOPT_WRITEFUNCTION, on_bytes);
	curl_easy_setopt(c->curl, CURLOPT_WRITEDATA, c);
	curl_easy_setopt(c->curl, CURLOPT_TCP_NODELAY, 1L);
	struct json_object *o = ask(c, "/v3/lease/grant", "{\"TTL\":\"3600\"}");
	snprintf(c->lease, sizeof c->lease, "%s", text_of(o, "ID"));
	json_object_put(o);
	return c;
}

static void take(void *client, const char *name)
{
	struct client *c = client;
	char key[400], body[600];

	base64(name, key);
	snprintf(body, sizeof body, "{\"name\":\"%s\",\"lease\":\"%s\"}", key, c->lease);
	struct json_object *o = ask(c, "/v3/lock/lock", body);
	snprintf(c->ours, sizeof c->ours, "%s", text_of(o, "key"));
	json_object_put(o);
}

static void give(void *client, const char *name)
{
	struct client *c = client;
	char body[600];

	(void)name;
	snprintf(body, sizeof body, "{\"key\":\"%s\"}", c->ours);
	json_object_put(ask(c, "/v3/lock/unlock", body));
}

static void take_bare(void *client, const char *name)
{
	struct client *c = client;
	char key[400], body[1200];

	base64(name, key);
	snprintf(body, sizeof body,
		 "{\"compare\":[{\"key\":\"%s\",\"target\":\"CREATE\",\"create_revision\":\"0\"}],"
		 "\"success\":[{\"request_put\":{\"key\":\"%s\",\"value\":\"\",\"lease\":\"%s\"}}]}", key, key, c->lease);
	struct json_object *o = ask(c, "/v3/kv/txn", body);
	if (strcmp(text_of(o, "succeeded"), "true"))
		rival_fail("etcd: %s is there already", name);
	json_object_put(o);
}

static void give_bare(void *client, const char *name)
{
	struct client *c = client;
	char key[400], body[600];

	base64(name, key);
	snprintf(body, sizeof body, "{\"key\":\"%s\"}", key);
	json_object_put(ask(c, "/v3/kv/deleterange", body));
}

const struct rival rival_etcd = { "etcd", missing, serve, connect_to, take, give, take_bare, give_bare };
