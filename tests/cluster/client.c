/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "history.h"

struct client client;

uint32_t below(uint32_t n)
{
	uint64_t z = client.random += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return (uint32_t)((z >> 32) % n);
}

void nap_us(uint32_t us)
{
	struct timespec t = { us / 1000000, us % 1000000 * 1000 };

	nanosleep(&t, NULL);
}

struct timespec in_ms(unsigned ms)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_nsec += (long)(ms % 1000) * 1000000;
	t.tv_sec += ms / 1000 + (unsigned)(t.tv_nsec / 1000000000);
	t.tv_nsec %= 1000000000;
	return t;
}

/* The time is read first: what comes of a return before it is written down is no matter of the call. */
static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void say(uint64_t t, const char *ev, const char *op, const char *name, const char *result, const char *format, va_list ap)
{
	char more[200] = "";

	if (format)
		vsnprintf(more, sizeof more, format, ap);
	history_say_at(t, "\"ev\":\"%s\",\"host\":%u,\"op\":\"%s\",\"name\":\"%s\"%s%s%s%s%s", ev, client.host, op, name,
		       result ? ",\"result\":\"" : "", result ? result : "", result ? "\"" : "", *more ? "," : "", more);
}

void call(const char *op, const char *name, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	say(now(), "call", op, name, NULL, format, ap);
	va_end(ap);
}

void back(const char *op, const char *name, int error, const char *format, ...)
{
	uint64_t t = now();
	va_list ap;

	va_start(ap, format);
	say(t, "return", op, name, history_result(error), error && error != EOWNERDEAD ? NULL : format, ap);
	va_end(ap);
}
