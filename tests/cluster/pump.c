/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pump.h"

#include <errno.h>
#include <linux/ethtool.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <arpa/inet.h>
#include <unistd.h>

#include "../e2e/harness.h"

#define FRAME_MAX 2048
#define QUEUE_MAX 4096           /* frames of one direction under way; more are lost, as on any cable */

struct frame {
	uint64_t due;
	uint32_t size;
	uint8_t bytes[FRAME_MAX];
};

struct way {
	int from, to;
	unsigned first, n;
	struct frame *queue;
};

static int open_interface(const char *name)
{
	struct sockaddr_ll a = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = (int)if_nametoindex(name) };
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1;

	/* Not what we send there ourselves. */
	if (fd < 0 || setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one) < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) < 0) {
		fprintf(stderr, "pump: %s: %s\n", name, strerror(errno));
		_exit(1);
	}
	return fd;
}

static void way_open(struct way *w, int from, int to)
{
	*w = (struct way){ .from = from, .to = to, .queue = malloc(QUEUE_MAX * sizeof *w->queue) };
	if (!w->queue)
		_exit(1);
}

static void way_take(struct way *w, unsigned ms, unsigned jitter_ms)
{
	uint8_t spare[FRAME_MAX];
	ssize_t n;

	for (;;) {
		struct frame *f = w->n < QUEUE_MAX ? &w->queue[(w->first + w->n) % QUEUE_MAX] : NULL;

		n = recv(w->from, f ? f->bytes : spare, FRAME_MAX, 0);
		if (n < 0 && (errno == ENETDOWN || errno == ENXIO))
			continue;                /* the cable is cut for a while */
		if (n < 0)
			return;
		if (!f)
			continue;
		f->size = (uint32_t)n;
		f->due = now_ns() + ms * MS - jitter_ms * MS + (jitter_ms ? random_below(2 * jitter_ms * 1000) * UINT64_C(1000) : 0);
		w->n++;
	}
}

/* Due or not, nothing overtakes. */
static void way_give(struct way *w, uint64_t now)
{
	for (; w->n && w->queue[w->first].due <= now; w->first = (w->first + 1) % QUEUE_MAX, w->n--)
		if (send(w->to, w->queue[w->first].bytes, w->queue[w->first].size, 0) < 0 && errno == ENXIO)
			_exit(0);
}

static uint64_t way_due(const struct way *w)
{
	return w->n ? w->queue[w->first].due : UINT64_MAX;
}

void pump_run(const char *a, const char *b, unsigned ms, unsigned jitter_ms)
{
	int fd_a = open_interface(a), fd_b = open_interface(b);
	struct way way[2];

	way_open(&way[0], fd_a, fd_b);
	way_open(&way[1], fd_b, fd_a);
	for (;;) {
		struct pollfd p[2] = { { fd_a, POLLIN, 0 }, { fd_b, POLLIN, 0 } };
		uint64_t now = now_ns(), due = way_due(&way[0]) < way_due(&way[1]) ? way_due(&way[0]) : way_due(&way[1]);
		uint64_t left = due == UINT64_MAX ? 1000 * MS : due > now ? due - now : 0;
		struct timespec t = { (time_t)(left / 1000000000), (long)(left % 1000000000) };

		ppoll(p, 2, &t, NULL);
		for (unsigned i = 0; i < 2; i++) {
			way_take(&way[i], ms, jitter_ms);
			way_give(&way[i], now_ns());
		}
	}
}

static void ethtool_set(int fd, const char *interface, uint32_t cmd)
{
	struct ethtool_value v = { .cmd = cmd };
	struct ifreq r = { .ifr_data = (void *)&v };

	snprintf(r.ifr_name, sizeof r.ifr_name, "%s", interface);
	if (ioctl(fd, SIOCETHTOOL, &r) < 0)
		fprintf(stderr, "pump: %s: %s\n", interface, strerror(errno));
}

void pump_prepare(const char *interface)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	ethtool_set(fd, interface, ETHTOOL_STXCSUM);
	ethtool_set(fd, interface, ETHTOOL_SSG);
	ethtool_set(fd, interface, ETHTOOL_STSO);
	ethtool_set(fd, interface, ETHTOOL_SGSO);
	close(fd);
}
