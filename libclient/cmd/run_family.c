/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Only children are killed, never grandchildren: a child's pid stays its own until we take it in, so
 * a kill cannot hit a stranger. A killed child's children become ours, and their turn comes next.
 * Since children are taken in between two looks only, a look that finds none proves that there are none.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "run.h"

#define NAP_NS_MIN 500000L
#define NAP_NS_MAX 100000000L

/* 0 where there is no such process any more. */
static pid_t parent_of(pid_t pid)
{
	char path[40], text[512], *at;
	int fd, parent = 0;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = 0;
	at = strrchr(text, ')');         /* the command's name may hold anything */
	return at && sscanf(at + 1, " %*c %d", &parent) == 1 ? parent : 0;
}

/* Calls fn for each process, in order of their ids. */
static void each_process(void (*fn)(pid_t pid, pid_t parent, void *arg), void *arg)
{
	DIR *proc = opendir("/proc");
	struct dirent *e;

	while (proc && (e = readdir(proc))) {
		pid_t pid = isdigit((unsigned char)e->d_name[0]) ? atoi(e->d_name) : 0;
		pid_t parent = pid ? parent_of(pid) : 0;

		if (parent)
			fn(pid, parent, arg);
	}
	if (proc)
		closedir(proc);
}

struct list {
	pid_t *pid;
	size_t n;
	pid_t root;              /* list_child: whose children; list_descendant: pid[0] is the root itself */
};

static bool list_has(const pid_t *pid, size_t n, pid_t which)
{
	for (size_t i = 0; i < n; i++)
		if (pid[i] == which)
			return true;
	return false;
}

static void list_add(struct list *l, pid_t pid)
{
	pid_t *more = l->n & (l->n + 1) ? l->pid : realloc(l->pid, (2 * l->n + 1) * sizeof(*more));

	if (!more)
		return;
	l->pid = more;
	l->pid[l->n++] = pid;
}

static void list_child(pid_t pid, pid_t parent, void *arg)
{
	struct list *l = arg;

	if (parent == l->root)
		list_add(l, pid);
}

int family_begin(struct family *f)
{
	struct list l = { .root = getpid() };

	if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
		return -errno;
	each_process(list_child, &l);
	*f = (struct family) { l.pid, l.n };
	return 0;
}

void family_done(struct family *f)
{
	free(f->before);
	*f = (struct family) { 0 };
}

size_t family_kill(const struct family *f)
{
	struct list l = { .root = getpid() };
	size_t n = 0;

	each_process(list_child, &l);
	for (size_t i = 0; i < l.n; i++) {
		if (list_has(f->before, f->n_before, l.pid[i]))
			continue;
		kill(l.pid[i], SIGKILL);
		n++;
	}
	free(l.pid);
	return n;
}

/* Takes in what has ended. false: there are no children at all. */
static bool family_reap(struct family *f)
{
	pid_t pid;

	while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) {
		for (size_t i = 0; i < f->n_before; i++)
			if (f->before[i] == pid)
				f->before[i] = f->before[--f->n_before];
	}
	return pid == 0 || errno != ECHILD;
}

void family_end(struct family *f)
{
	struct timespec nap = { .tv_nsec = NAP_NS_MIN };

	while (family_reap(f)) {
		if (family_kill(f) == 0 && f->n_before > 0)
			return;
		nanosleep(&nap, NULL);
		if (nap.tv_nsec < NAP_NS_MAX)
			nap.tv_nsec *= 2;
	}
}

/* Children have higher ids than their parents, but for wraps: the caller looks until nothing is added. */
static void list_descendant(pid_t pid, pid_t parent, void *arg)
{
	struct list *l = arg;

	if (!list_has(l->pid, l->n, pid) && list_has(l->pid, l->n, parent))
		list_add(l, pid);
}

/* By pidfd, and only if it is still the child of one of ours: its pid may have become another's. */
static void signal_member(const struct list *l, pid_t pid, int sig)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	if (fd < 0)
		return;
	if (list_has(l->pid, l->n, parent_of(pid)))
		syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0);
	close(fd);
}

void family_signal(int sig)
{
	struct list l = { 0 };
	size_t n;

	list_add(&l, getpid());
	do {
		n = l.n;
		each_process(list_descendant, &l);
	} while (l.n > n);
	for (size_t i = 1; i < l.n; i++)
		signal_member(&l, l.pid[i], sig);
	free(l.pid);
}
