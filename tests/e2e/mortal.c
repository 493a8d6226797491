/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "mortal.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actor.h"
#include "proto/segment.h"
#include "proto/value.h"

struct mortal mortal;

static struct daemon *daemon_;

static void start_plain(void)
{
	daemon_started(daemon_);
	mortal.ready_ns = now_ns();
}

static void follow_up(void)
{
	if (!daemon_ended(daemon_, 0))
		return;
	if (!WIFSIGNALED(daemon_->status) || WTERMSIG(daemon_->status) != SIGKILL)
		give_up("the daemon died by itself: status %x", daemon_->status);
	mortal.deaths++;
	start_plain();
}

void mortal_start(struct daemon *d, int signo, long at)
{
	char text[40];

	daemon_ = d;
	actor_meanwhile = follow_up;
	actor_meanwhile_fd = &d->pidfd;
	daemon_end(d, signo);
	mortal.deaths = 0;
	snprintf(text, sizeof text, "DLOCK_FAULT_AT=%ld", at);
	if (daemon_start(d, built("tests/e2e/dlockd-fault"), NULL, (char *[]){ text, NULL })) {
		mortal.ready_ns = now_ns();
		return;
	}
	mortal.deaths++;
	start_plain();
}

void mortal_over(void)
{
	if (actor_meanwhile)
		follow_up();
	actor_meanwhile = NULL;
	actor_meanwhile_fd = NULL;
}

struct mortal_walk mortal_walk(long stride, uint64_t span_ns, bool (*play)(long at))
{
	struct mortal_walk w = { .at = 1 };
	uint64_t begin_ns = now_ns();

	do {
		bool good = play(w.at);

		if (!good)
			note("killed at %ld: not as it should be", w.at);
		w.wrong += !good;
		w.places++;
		w.at += stride;
		if (!harness.full && now_ns() - begin_ns > span_ns) {
			stride *= 2;
			begin_ns += span_ns / 4;
		}
	} while (mortal.deaths);
	mortal_over();
	return w;
}

static void scribble(struct value_page *p, unsigned words)
{
	while (words--) {
		uint64_t junk = random_below(2) ? UINT64_MAX : (uint64_t)random_below(1u << 31) << random_below(33);

		memcpy((char *)p + 8 * random_below(random_below(2) ? 24 : sizeof *p / 8), &junk, sizeof junk);
	}
}

int pages_scribble(unsigned words)
{
	char path[80];
	int fd, pages = 0;
	off_t at = (off_t)SEG_VALUE_OFF;

	snprintf(path, sizeof path, "%s/shm/default", harness.run);
	fd = open(path, O_RDWR | O_CLOEXEC);
	while (fd >= 0 && (at = lseek(fd, at, SEEK_DATA)) >= 0) {
		struct value_page p;

		if (pread(fd, &p, sizeof p, at) < 0)
			break;
		scribble(&p, words);
		if (pwrite(fd, &p, sizeof p, at) < 0)
			break;
		at += SEG_VALUE_SIZE;
		pages++;
	}
	close(fd);
	return pages;
}
