/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the measurements share.
 *
 * A row of the table compares dlock with a rival. Each of its rounds measures both, one straight
 * after the other, so that whatever else the machine does meets both alike. The row's ratio is the
 * median of the rounds' ratios, dlock : rival; values are medians of their own.
 *
 * Every round is kept in O/bench/ROW.tsv, every row in O/bench/PROGRAM.rows, from which report.py
 * makes docs/BENCHMARKS.md. Rows are chosen by $B, a part of their key; without it all are measured.
 *
 * What goes wrong ends the program: a measurement that only half works is none.
 */
#ifndef BENCH_H
#define BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "dlock.h"

#define ROUNDS 11
#define WAIT_ROUNDS 5

enum better { LESS_IS_BETTER, MORE_IS_BETTER };

struct row {
	const char *key;
	const char *what, *rival;        /* for people */
	const char *unit;
	enum better better;
	double goal;                     /* of the ratio; 0: none, the row is there to be read */
	double limit;                    /* of the value itself; 0: none */
	bool worst;                      /* the value is the worst of the rounds, not their median */
	bool unpaired;                   /* its rounds are runs that differ by themselves: the ratio is that of the medians */
	double instructions[2];          /* dlock's, the rival's; 0: not counted */
	char note[160];
};

/* The program's name names its file of rows. First call of main(). */
void bench_begin(const char *program);
void bench_end(void);
bool bench_wanted(const char *key);

/* n values of each; rival NULL: there is none. Prints, and keeps the rounds and the row. */
void bench_row(const struct row *row, const double *dlock, const double *rival, size_t n);

/* One round of either side, in the row's unit. The first pair warms up, and is not counted. */
void bench_rounds(const struct row *row, unsigned rounds, double (*dlock)(void *arg),
		  double (*rival)(void *arg), void *arg);

/*
 * What lasts nanoseconds is disturbed by anything: each round alternates many times between n pairs of dlock's and
 * n of the rival's, and takes the medians, in nanoseconds a pair. pause_ns passes before each stretch of either.
 */
typedef void (*bench_pairs)(void *arg, long n);
void bench_alternate(const struct row *row, bench_pairs dlock, bench_pairs rival, void *arg, long n, uint64_t pause_ns);

double bench_median(const double *v, size_t n);

/* Sorts v. p: 0 .. 1. */
double bench_percentile(double *v, size_t n, double p);

/* --- The machine --- */

/* Pins the caller to the n-th processor that this program may use, modulo their number. */
void bench_pin(unsigned n);
unsigned bench_processors(void);

uint64_t bench_ns(void);                 /* CLOCK_MONOTONIC, the same in all processes */

/* The processor's counter: cheaper. */
static inline uint64_t bench_ticks(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	uint64_t t;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(t));
	return t;
#else
	return bench_ns();
#endif
}

double bench_ns_per_tick(void);

static inline void bench_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

/* --- Processes --- */

/* Zeroed memory that children share. */
void *bench_shared(size_t n);

/* Runs fn(arg) in a child that ends with this process, pinned to the n-th processor. */
pid_t bench_fork(unsigned processor, void (*fn)(void *arg), void *arg);

/* It has to have ended well. */
void bench_join(pid_t pid);

/* Sleeps until *word is no longer 0. */
void bench_await(const uint32_t *word);

/*
 * So many processes at once, on the processors in turn. Each calls work(i, arg): it makes ready, calls bench_crowd_go(),
 * goes on until bench_crowd_over(), which is after so many nanoseconds, and returns how often it did what
 * it does. The sum of that; *ret_ns: in which time.
 */
#define CROWD_MAX 64
uint64_t bench_crowd(unsigned processes, uint64_t ns, uint64_t (*work)(unsigned i, void *arg), void *arg, uint64_t *ret_ns);
void bench_crowd_go(void);

extern uint32_t *bench_crowd_ended;
static inline bool bench_crowd_over(void)
{
	return __atomic_load_n(bench_crowd_ended, __ATOMIC_RELAXED);
}

/* A daemon in a directory of its own in memory; this process and its children attach to it. */
struct bench_daemon {
	pid_t pid;
	char dir[64];
};

/* option: a further one for it, or NULL. */
void bench_daemon_start(struct bench_daemon *d, unsigned processor, const char *option);
void bench_daemon_stop(struct bench_daemon *d);

/* --- What both sides do --- */

dlock_t *bench_open(const char *name);
void bench_ok(int error, const char *what);      /* a positive error number, or 0 */

/*
 * Instructions of one pair: this program again, under callgrind, as "PROGRAM --count WHICH N", for
 * two values of N. 0 where there is no valgrind.
 */
double bench_instructions(const char *which);

#endif
