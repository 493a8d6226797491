/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * dlock: locks that span processes and hosts, at the price of a mutex. Link with -ldlock.
 *
 *     dlock_t *l;
 *     if (dlock_open(&l, "backup", NULL) == 0 && dlock_wait(l) == 0) {
 *             ...                      // nobody else is here
 *             dlock_post(l);
 *     }
 *
 * What holds for all calls, unless one says otherwise:
 *
 *   errors    0, or a positive error number as pthread calls return it. errno stays as it was.
 *             Outputs are written on success only. EINTR is never returned.
 *   threads   any thread may call, also several on one handle at a time. No call is a
 *             cancellation point; a pending pthread_cancel() stays pending.
 *   signals   not to be called in signal handlers, unless a call says so. Handlers may run while a
 *             thread waits; the wait goes on after them. The library sets no handlers and blocks no signals.
 *   fork      the parent goes on as if nothing had happened. The child holds nothing (dlock_post()
 *             says EPERM there) and owns copies of all handles, good to wait on and to close: it
 *             attaches to the daemon as a client of its own at its first wait. Where a signal handler forks in
 *             the midst of a call, the child goes on with it as if the fork had come before it, or after it.
 *   exec      releases what the process held. So does its end, in whatever way; and the end of a
 *             thread releases what that thread held.
 *   time      absolute, in seconds and nanoseconds, as in POSIX.
 *
 * Names: "space/name", or "name" in the space "default". A space is 1 to 64 of A-Z a-z 0-9 _ -; a
 * name is 1 to 255 bytes of UTF-8 without control characters, and may contain slashes after the
 * first. The daemon is looked for in $DLOCK_RUN_DIR (which set-user-id programs ignore), else in
 * /run/dlock; the variable is read at the first open.
 *
 * The reference for the semantics is POSIX.1-2017, pthread_mutex_lock() and its relatives, for a
 * mutex that is process-shared and of type errorcheck; differences are named where they are.
 */
#ifndef DLOCK_H
#define DLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define DLOCK_VERSION_MAJOR 0
#define DLOCK_VERSION_MINOR 1
#define DLOCK_VERSION_PATCH 0

/* The library's version, "0.1.0", which may be newer than the macros that a program was built with. Signal-safe. */
const char *dlock_version(void);

typedef struct dlock dlock_t;
typedef struct dlock_attr dlock_attr_t;
struct timespec;                         /* strict C99 does not declare it */

/* --- Attributes: what a handle is like. Read at dlock_open(), which keeps no reference. One thread at a time. --- */

/* Makes a set with the defaults named below. ENOMEM. The caller destroys it. */
int dlock_attr_create(dlock_attr_t **ret);

/* NULL is allowed. */
void dlock_attr_destroy(dlock_attr_t *a);

/*
 * Robust (default: off): a wait that gets the lock after its last holder died, or was lost, returns
 * EOWNERDEAD instead of 0, until dlock_consistent() has said that what the lock protects is whole
 * again (PTHREAD_MUTEX_ROBUST). Handles that are not robust just get the lock, and leave the mark
 * for those that are. There is no ENOTRECOVERABLE: released without dlock_consistent(), the next
 * robust handle gets EOWNERDEAD again.
 */
int dlock_attr_set_robust(dlock_attr_t *a, bool on);

/*
 * Recursive (default: off): the holder may wait again, and gives the lock back with as many posts
 * (PTHREAD_MUTEX_RECURSIVE). Counted per handle, up to 2^32 - 1 levels, then EAGAIN.
 */
int dlock_attr_set_recursive(dlock_attr_t *a, bool on);

enum dlock_owner {
	DLOCK_OWNER_THREAD = 0,
	DLOCK_OWNER_PROCESS = 1
};

/*
 * Who a hold belongs to (default: DLOCK_OWNER_THREAD). With DLOCK_OWNER_PROCESS any thread of the
 * process may check and post it, and it outlives the thread that took it: for coroutines, and for
 * runtimes that move work between threads. Another wait through the handle then sleeps like
 * anybody's, since another thread may post: nobody is told EDEADLK. With recursive it is the
 * process that enters again. EINVAL: neither of the two.
 */
int dlock_attr_set_owner(dlock_attr_t *a, enum dlock_owner who);

/*
 * Fail fast (default: off): a wait that cannot be served because the daemon is away, or the node has
 * lost its lease, returns ENOTCONN (within about 100 ms) instead of waiting until that is over.
 */
int dlock_attr_set_failfast(dlock_attr_t *a, bool on);

/* dlock_open() waits for a daemon that is not there, instead of ENOTCONN (default: off). */
int dlock_attr_set_wait_daemon(dlock_attr_t *a, bool on);

/*
 * How long dlock_trywait() may ask the daemon for a lock that is free but not leased to this node
 * (default: 1000 milliseconds). 0: it does not ask.
 */
int dlock_attr_set_try_ms(dlock_attr_t *a, unsigned ms);

/*
 * Which of those who wait comes next, for locks, permits and elections: of the nodes that wait, the one where somebody has the highest
 * priority; those of the same priority in the order of their coming. Likewise among the threads of one node, where the priorities from
 * 1 to 16 count each and those above in steps of 40; there one who has been woken already comes first, whatever its
 * priority. For permits a process counts by the highest of its waiting threads; among these nobody comes before the one that has
 * waited longest, behind that one they come by priority. Free semaphores know no order. Whoever comes when the lock is free takes it, as
 * ever. A steady stream of higher ones keeps lower ones waiting for ever. 0 to 255, default 0. EINVAL: more.
 */
int dlock_attr_set_priority(dlock_attr_t *a, unsigned p);

/* The longest lock-delay, in milliseconds. */
#define DLOCK_DELAY_MAX 60000

/*
 * Lock-delay (default: 0): what has been lost counts as held for so many milliseconds more, in the whole cluster. So nobody is granted
 * what was held exclusively, nor led; what was read can be read, and not written; permits are so many fewer.
 * For resources that cannot compare dlock_token(): what the lost holder still has under way is to be over by then. Lost is what is not given back by dlock_post(): the process ends or execs while it holds, or its node dies or loses its lease.
 * It counts from when that is noticed: at once if a process dies, else once the node's lease has ended for certain.
 *
 * Of a process that dies, the longest delay of its handles of that name counts; of a node, the longest of all who have had the name
 * open there. Where a node is lost that alone knew who held what, names that nobody else holds wait for the longest delay in use among
 * them; and where delays of shared holds or permits are in use among them, all permits, and all who want to write what is not held
 * exclusively. Who asks for a longer delay than others did who hold the lock on this node is granted it once these have given it back, also
 * where all only read. Meanwhile dlock_trywait() says EBUSY. No delay follows a dlock_post(), or the end of a thread whose process lives on; nor
 * worker ids that are lost: those come back at once. Free semaphores know none. EINVAL: more than DLOCK_DELAY_MAX.
 */
int dlock_attr_set_delay_ms(dlock_attr_t *a, unsigned ms);

/*
 * A signal for this process when a hold of it through such a handle is lost (default: 0, none). It is
 * sent when the node is about to lose its lease, before anybody else can be granted it, by the
 * daemon: where that is stopped or gone, dlock_check() alone tells. SIGKILL is allowed, and then the
 * node gives nothing up by itself before the process has ended. Where handles of one name ask for different
 * signals, SIGKILL counts, else the newest handle's. EINVAL: not a signal, or one that the C
 * library keeps for itself.
 */
int dlock_attr_set_onloss(dlock_attr_t *a, int signo);

/*
 * Free (default: off), for dlock_sem_open(): permits belong to nobody, as in POSIX. Anybody may post, as often as he likes, also
 * in a signal handler once the process has used the handle; nothing comes back by itself. The number that it is opened
 * with is the value where there is none yet. The value outlives its users, and is removed by dlock_sem_unlink(). Of a host
 * that dies what it did within about the last second is lost.
 */
int dlock_attr_set_free(dlock_attr_t *a, bool on);

/* --- Locks --- */

/*
 * Opens a lock by name, and attaches this process to its node's daemon where that has not been done.
 * attr may be NULL. Open the same name as often as you like; the locks are the same one.
 * Waits for the daemon's answer, as connect() would.
 *
 *   EINVAL        not a name
 *   ENAMETOOLONG  a space over 64 or a name over 255 bytes
 *   ENOTCONN      no daemon there (see wait_daemon)
 *   EACCES        the space, or the daemon's socket, is not open to this user
 *   ENOENT        no such space, and none may be made
 *   ENOSPC        the space is full, or the memory that holds it
 *   EUSERS        65,535 processes are attached to this node already
 *   EMFILE ENFILE ENOMEM
 *   EPROTO        what answers is not a daemon of a version that this library understands
 *   ENOTSUP       this process cannot be told apart from others, or lives in a time namespace with
 *                 an offset: deadlines would mean something else here
 */
int dlock_open(dlock_t **ret, const char *name, const dlock_attr_t *attr);

/*
 * Closes a handle; it must not be used any more, also not by a call that is still going on.
 * EBUSY: it holds, or a thread waits through it; it stays open. NULL: 0. (pthread_mutex_destroy)
 */
int dlock_close(dlock_t *l);

/* The lock's name in full, "space/name". Valid until the handle is closed. Signal-safe. */
const char *dlock_name(const dlock_t *l);

/*
 * Takes the lock, exclusively, waiting as long as it takes. What the last holder wrote before its
 * dlock_post() is visible after it. (pthread_mutex_lock)
 *
 *   EOWNERDEAD    robust: taken, but the last holder died in the middle
 *   EDEADLK       this thread holds it already, through this handle or another
 *   EAGAIN        recursive: too many levels
 *   ECANCELED     dlock_cancel()
 *   ENOTCONN      failfast: the daemon is away, or the node has lost its lease
 *   ENOMEM        the thread's first wait, or the first after a fork
 * and, when the lock has to be opened anew (after a fork, or when its node had lost it), the errors
 * of dlock_open(). With any error but EOWNERDEAD the lock is not taken.
 */
int dlock_wait(dlock_t *l);

/*
 * The same without waiting for a holder. EBUSY: somebody holds it (this thread too), or others have
 * waited so long that it is their turn. Bounded: where the lock is free but not leased to this node,
 * the daemon is asked once, and EBUSY if that takes longer than try_ms. (pthread_mutex_trylock)
 */
int dlock_trywait(dlock_t *l);

/*
 * The same with a limit: ETIMEDOUT once the clock shows abs. A lock that is free is taken also when
 * abs has passed. timedwait: CLOCK_REALTIME (pthread_mutex_timedlock). clockwait: CLOCK_MONOTONIC or
 * CLOCK_REALTIME (pthread_mutex_clocklock). EINVAL: another clock, no abs, or nanoseconds outside
 * 0 .. 999,999,999, which are not looked at where the lock could be taken at once.
 */
int dlock_timedwait(dlock_t *l, const struct timespec *abs);
int dlock_clockwait(dlock_t *l, clockid_t clock, const struct timespec *abs);

/*
 * The same, shared with others who wait so; never beside an exclusive holder. Writers and readers are served in the
 * order in which they wait, so neither starves the other. A thread may hold shared several times, through this handle or
 * others, as often as it likes, and gives back each (pthread_rwlock_rdlock and its relatives). A hold belongs to whom
 * the owner attribute says; recursive has no say here. The errors are those of dlock_wait(), and
 *
 *   EDEADLK  this thread holds it exclusively; so does an exclusive wait of one that holds it shared
 *   EAGAIN   2^20 levels
 *   ENOSPC   65,535 threads of this node read in the space already
 *
 * EOWNERDEAD (robust) is told to every reader, until an exclusive holder has said dlock_consistent().
 */
int dlock_wait_shared(dlock_t *l);
int dlock_trywait_shared(dlock_t *l);
int dlock_timedwait_shared(dlock_t *l, const struct timespec *abs);
int dlock_clockwait_shared(dlock_t *l, clockid_t clock, const struct timespec *abs);

/*
 * From shared to exclusive without letting go: nobody else holds the lock exclusively in between. Waits for the other
 * readers to leave, before all who wait; try: EBUSY where there are others. With any error but EOWNERDEAD the hold stays shared.
 *
 *   EDEADLK  another is upgrading, or another node is to have the lock first, and waits for this hold: give it back. Or this
 *            thread holds it shared more than once
 *   EINVAL   it is held exclusively already
 *   EPERM    not held. ESTALE: lost
 *   and the errors of dlock_wait()
 */
int dlock_upgrade(dlock_t *l);
int dlock_tryupgrade(dlock_t *l);

/*
 * From exclusive to shared without letting go: nobody else has it exclusively in between. Readers that wait may come in.
 * EINVAL: it is shared. EDEADLK: recursive, and held more than once. EPERM: not held. ESTALE: lost. ENOSPC, ENOMEM: it stays exclusive.
 */
int dlock_downgrade(dlock_t *l);

/*
 * Gives the lock back, of either kind. Never waits. (pthread_mutex_unlock, pthread_rwlock_unlock)
 *   EPERM   this thread (owner process: this process) does not hold it
 *   ESTALE  the hold was lost before: its node's lease ended, or the shared memory of its space was damaged.
 *           Nothing is released; the handle may be waited on again. Not where its daemon is stopped: then
 *           only dlock_check() is sure to notice.
 */
int dlock_post(dlock_t *l);

/*
 * After EOWNERDEAD: what the lock protects is whole again. EINVAL: the hold is not in that state, or
 * shared, or the handle is not robust. EPERM: not the holder. ESTALE: lost. (pthread_mutex_consistent)
 */
int dlock_consistent(dlock_t *l);

/*
 * Every wait that is going on through this handle at the moment of the call returns ECANCELED, or
 * takes the lock if it is just doing so. Returns when all of them have noticed; later waits are not
 * affected. 0, also where nobody waits.
 */
int dlock_cancel(dlock_t *l);

/*
 * Is the lock held, and good at this moment? 0: yes. ESTALE: it was lost, so whatever is done
 * from now on is not protected any more. EPERM: not held by this thread (owner process: this
 * process). A good answer says nothing of the next moment: a resource that must be safe compares
 * dlock_token(). Costs some nanoseconds. Empties the descriptor of dlock_fd().
 */
int dlock_check(dlock_t *l);

/*
 * The fencing token of the present hold: a number of 63 bits that is higher with each acquisition of
 * this name, by whomever on whatever host. A shared hold has one that is above every earlier exclusive holder's and below every
 * later one's. A resource that remembers the highest it has seen, and
 * refuses lower ones, is safe from holders that have lost the lock without knowing.
 * EPERM: not held. ESTALE: lost.
 */
int dlock_token(dlock_t *l, uint64_t *ret);

/* The most bytes that a value has. */
#define DLOCK_VALUE_MAX 1024

/*
 * A value that the lock carries from holder to holder, over whatever hosts they are on: what the last exclusive holder that
 * set one has left. For what is small and belongs to what the lock protects: how far a job has come, where the data lies. *len is how
 * many bytes buf has room for, and then how many there are. Whoever holds the lock exclusively, and has set a value since, gets that.
 *
 *   EPERM    this thread (owner process: this process) does not hold the lock
 *   ENODATA  nobody has left a value; or it was lost: with the node of the last exclusive holder, or with all nodes
 *            that had the name open. A holder that dies as a process leaves what its predecessors have left
 *   ERANGE   it has more bytes than that: *len says how many, and nothing is copied
 *   ESTALE   the hold was lost
 * The first call through a handle asks the daemon for the memory: ENOTCONN where it is away, ENOMEM, ENOSPC, and the like.
 */
int dlock_value_get(dlock_t *l, void *buf, size_t *len);

/*
 * Leaves a value for those who hold the lock after the caller. It is published by the caller's dlock_post(), as a whole, and not at
 * all if the hold ends in another way. The last one set in a hold counts. Without one, what was there before stays.
 *
 *   EPERM     not held by this thread, or only shared
 *   EMSGSIZE  more than DLOCK_VALUE_MAX bytes
 *   ESTALE    the hold was lost
 * and what dlock_value_get() says of the first call. In 4 KiB of memory on each node that has it open; a name without a value needs none.
 */
int dlock_value_set(dlock_t *l, const void *buf, size_t len);

/*
 * A descriptor to poll for input: it becomes readable when the hold is lost, or wanted by others. A
 * hint that may come late or for nothing: the truth is dlock_check() and dlock_wanted(), the
 * first of which also empties it. Always the same one for a handle, close-on-exec; it belongs to the
 * handle and must not be closed or read. In a child after fork() it has to be asked for again.
 * The errors of dlock_open().
 */
int dlock_fd(dlock_t *l, int *ret);

/*
 * Does anybody else wait for the lock? 0: nobody. EBUSY: somebody does, on this node or another; or
 * did, and left during the present hold or shortly before it. Anybody may ask. Costs some nanoseconds.
 */
int dlock_wanted(dlock_t *l);

/* --- Latches: open for good when they have been counted down to 0 --- */

typedef struct dlock_latch dlock_latch_t;

/*
 * Opens a latch by name, and makes it with this count where the cluster has none of that name; else count has no say, as with
 * sem_open(3). Its count lies in the store: it outlives all its users, and the daemons, until dlock_latch_unlink(). Latches have
 * names of their own: a lock may have the same one. Waits until the store has it.
 *
 *   ENOSPC      no room in the space, or in the store
 *   ENOTCONN    no daemon; failfast: the store cannot be reached either
 *   EPROTO      what the store has under that name is none of this release
 *   and the errors of dlock_open()
 */
int dlock_latch_open(dlock_latch_t **ret, const char *name, unsigned count, const dlock_attr_t *attr);

/* Takes NULL. The latch stays. EBUSY while a thread waits through it. */
int dlock_latch_close(dlock_latch_t *c);

/*
 * Lowers the count by n, not below 0; at 0 all waiters go on, on all nodes. Returns when the store has it, which takes some milliseconds;
 * calls that come together on one node are written together. Counted exactly once, also when daemons are restarted or answers of the store get
 * lost. What was written before it is visible to those who wait.
 *
 *   ENOENT      it has been unlinked, or there was none
 *   ESTALE      the daemon has lost all that this process had open: whether it was counted is not known
 *   ENOTCONN    failfast: the daemon or the store cannot be reached; it is counted when they can be, unless this process has ended by then
 */
int dlock_latch_countdown(dlock_latch_t *c, unsigned n);

/*
 * Waits until the count is 0. Open latches cost a look into shared memory: so one that was open when it was unlinked on another node may
 * let pass for some seconds more. ENOENT: unlinked.
 */
int dlock_latch_wait(dlock_latch_t *c);

/* The same until that time, by CLOCK_MONOTONIC or CLOCK_REALTIME. ETIMEDOUT; EINVAL. */
int dlock_latch_clockwait(dlock_latch_t *c, clockid_t clock, const struct timespec *abs);

/* The count as it is in the store now. ENOENT. */
int dlock_latch_getvalue(dlock_latch_t *c, unsigned *ret);

/*
 * Removes the latch of that name. Who has it open is told ENOENT, waiters too; what is opened under the name from now on is another one.
 * ENOENT: there is none; and the errors of dlock_open().
 */
int dlock_latch_unlink(const char *name);

/* --- Condition variables: threads that wait for something which a lock protects, on any node --- */

typedef struct dlock_cond dlock_cond_t;

/* Opens a condition variable by name. It lies in the store as long as anybody waits. The errors of dlock_open(). */
int dlock_cond_open(dlock_cond_t **ret, const char *name, const dlock_attr_t *attr);

/* Takes NULL. EBUSY while a thread waits through it. */
int dlock_cond_close(dlock_cond_t *c);

/*
 * Joins those who wait, lets go of l, sleeps until it is signalled, and takes l again (pthread_cond_wait). A signal that is
 * given after this thread has let go of l, by whomever on whatever node, is not missed. They are woken in the order of their coming,
 * over all nodes. May return 0 for nothing, as in POSIX: look at what was waited for, in a loop. It does so at least when this node has lost
 * its session, or its daemon all that it knew.
 *
 *   EPERM       this thread (owner process: this process) does not hold l exclusively. EINVAL: it holds it more than once
 *   ESTALE      l was lost before; nothing was waited for
 *   ENOSPC      more than 2,700 wait already
 *   ENOTCONN    failfast: no daemon, or no store: l is still held
 *   ECANCELED   dlock_cancel(l): l is held again, or still. While l is only to be taken again a cancel changes nothing
 *   else what taking l again has said: EOWNERDEAD with l held, or an error of dlock_wait() without it
 */
int dlock_cond_wait(dlock_cond_t *c, dlock_t *l);

/*
 * The same until that time, by CLOCK_MONOTONIC or CLOCK_REALTIME. ETIMEDOUT, with l held again: no signal was this
 * thread's; one that came just then is another's. To take l again has no limit, nor has it to hear from the store that it was not signalled.
 */
int dlock_cond_clockwait(dlock_cond_t *c, dlock_t *l, clockid_t clock, const struct timespec *abs);

/*
 * Wakes one that waits, the one that has waited for longest, or all. Nobody needs to hold the lock for it. If the one who was woken dies before it
 * has the lock again, or its node ends, the next is woken instead. Returns when the store has it. ENOTCONN: failfast.
 */
int dlock_cond_signal(dlock_cond_t *c);
int dlock_cond_broadcast(dlock_cond_t *c);

/* --- Ids: 64-bit numbers that no two ever get, on any node --- */

typedef struct dlock_id dlock_id_t;

/*
 * Opens a generator of ids by name, and gets a worker's number for this node, 0 to 1023, which its processes share. An id is, from above, 41
 * bits of milliseconds since 2024-01-01 00:00 UTC (good until 2093), 10 bits of worker, and 12 of sequence. What has a greater time
 * was made later, as far as hosts' clocks agree.
 *
 *   ENOSPC      all 1024 numbers are taken, by nodes whose sessions live
 *   ENOTCONN    no daemon, or the store has given no number within a second
 *   and the errors of dlock_open()
 */
int dlock_id_open(dlock_id_t **ret, const char *name, const dlock_attr_t *attr);

/* Takes NULL. After the last one on the node the number is given back; in a cluster a minute later. */
int dlock_id_close(dlock_id_t *g);

/* The node's number now; later it can be another. ENOTCONN: it has none. */
int dlock_id_worker(dlock_id_t *g, unsigned *ret);

/*
 * The next id: greater than all that this node has given out under that number, and never given out by any node before. From shared memory,
 * in some nanoseconds, without a system call. In one millisecond there are 4096; more are taken from the milliseconds to come, up to ten seconds
 * ahead of the clock, so that a burst of 40 million is not held up. When the wall clock goes back, by up to ten seconds, ids go on from
 * the last; by more, the call waits for up to 50 ms, and then fails. Ids lie below a ceiling that the store has, which the daemon raises ahead of
 * time. In a cluster they so go on without the store for half of IdReserve= (dlockd.conf(5), an hour) at least, also after a lapse, a restart or
 * a reboot; without the daemon for two to three seconds.
 *
 *   EOVERFLOW   the wall clock is more than ten seconds behind the last id: it has gone back. Or it is 2093
 *   ENOTCONN    what the store has granted is used up, or the node has no number, for a second (failfast: a tenth of it)
 */
int dlock_id_next(dlock_id_t *g, uint64_t *ret);

/*
 * --- Semaphores ---
 *
 * A number of permits that all who have the name open share. A permit is held by the process, whichever of its threads took
 * it, and any of its threads may post it. Permits of a process that ends, in whatever way, come back, once the lock-delay that it
 * has asked for is over.
 *
 * A node keeps the permits that its processes have used until others want them, and so does each process: what has been
 * posted is taken again without asking anybody. Whoever waits is served in order, all or nothing, among the processes
 * of a node and among nodes; but permits stay for a millisecond where they were granted.
 *
 * When a node loses its lease, what its processes held is lost: dlock_sem_check() says ESTALE from then on, and so does the
 * post of each permit that was lost, until as many have been posted. So every wait is to be followed by its post, also after
 * a loss; what has been taken anew in between is not given back by it.
 */
typedef struct dlock_sem dlock_sem_t;

/*
 * Opens a semaphore of so many permits, 1 .. 2^31 - 1. As dlock_open(), and
 *   EINVAL  also: no such number; or this node has it open with another (unless it was resized to this one). That
 *           another node has it open with another number is told by the first wait
 */
int dlock_sem_open(dlock_sem_t **ret, const char *name, unsigned permits, const dlock_attr_t *attr);

/* EBUSY: a thread waits through it, or it is the process's last handle and the process holds permits (not free ones). NULL: 0. */
int dlock_sem_close(dlock_sem_t *s);

/*
 * Takes one permit, or n at once: all or nothing, waiting as long as it takes. (sem_wait)
 *   EINVAL    n is 0, or more than there are at all, or become by a resize; or the semaphore is open on another node with
 *             another number of permits
 *   ENOTCONN  failfast: the daemon is away, or the node has lost its lease
 *   ENOMEM    and, when it has to be opened anew, the errors of dlock_sem_open()
 */
int dlock_sem_wait(dlock_sem_t *s);
int dlock_sem_wait_n(dlock_sem_t *s, unsigned n);

/*
 * The same without waiting for others. EAGAIN: there are too few, or others wait for them. Bounded by try_ms, as dlock_trywait(): the
 * daemon, and where needed the cluster, is asked once.
 */
int dlock_sem_trywait(dlock_sem_t *s);
int dlock_sem_trywait_n(dlock_sem_t *s, unsigned n);

/* The same with a limit: ETIMEDOUT, once the clock shows abs. As dlock_clockwait(). */
int dlock_sem_timedwait(dlock_sem_t *s, const struct timespec *abs);
int dlock_sem_clockwait(dlock_sem_t *s, clockid_t clock, const struct timespec *abs);
int dlock_sem_timedwait_n(dlock_sem_t *s, unsigned n, const struct timespec *abs);
int dlock_sem_clockwait_n(dlock_sem_t *s, unsigned n, clockid_t clock, const struct timespec *abs);

/*
 * Gives one back, or n. Never waits. (sem_post)
 *   EPERM   this process holds fewer. Free: never
 *   EOVERFLOW  free: there are 2^31 - 1 already
 *   EINVAL  n is 0, or above 2^31 - 1
 *   ESTALE  they were lost before, with the lease of the node; none of those is given back
 */
int dlock_sem_post(dlock_sem_t *s);
int dlock_sem_post_n(dlock_sem_t *s, unsigned n);

/*
 * How many permits are free, at some moment during the call: of a node alone all of them. In a cluster those that this
 * node has cached, so that more may be had. Asks the daemon. (sem_getvalue)
 */
int dlock_sem_getvalue(dlock_sem_t *s, int *ret);

/*
 * From now on there are so many, for all who have it open, whatever number they named. If more are held, nothing is granted until
 * enough have been posted, on other nodes as soon as they have been told; whoever waits for more than there are any more gets EINVAL. It stays
 * so as long as any node holds some or waits, or one that has had it open all along takes some. EINVAL: no such number; or the semaphore is free.
 */
int dlock_sem_resize(dlock_sem_t *s, unsigned permits);

/*
 * The fencing token of the newest grant to this process: that of the permits of its node, so that processes of a node may have the
 * same one. It never falls, and is higher than that of permits which other nodes had, and gave back, before. EPERM: none held, or the
 * semaphore is free. ESTALE: lost.
 */
int dlock_sem_token(dlock_sem_t *s, uint64_t *ret);

/*
 * 0: this process holds permits, and the lease is good now. EPERM: it holds none, or the semaphore is free. ESTALE: some were lost, and
 * have not been posted since.
 */
int dlock_sem_check(dlock_sem_t *s);

/* Removes a free semaphore. Who has it open may go on using it on his node. ENOENT: there is none. Also the errors of dlock_sem_open(). */
int dlock_sem_unlink(const char *name);

/*
 * --- Elections ---
 *
 * One of all who campaign leads, until it resigns, ends, or is lost with its node; then the next one. Each term has a number, the
 * fencing token of whoever leads (see dlock_token()), above those of all earlier terms. A leader says something of
 * itself, up to DLOCK_VALUE_MAX bytes, an address perhaps. Whoever has the election open reads that from shared memory, on any node.
 *
 * As with locks, a leadership belongs to the thread that campaigned (attribute owner: to the process); the other attributes count as
 * for a lock, but that robust and recursive are ignored. A name of an election is another thing than a lock of that name.
 */
typedef struct dlock_elect dlock_elect_t;

/* As dlock_open() and dlock_close(), with their errors; and ENOSPC: no memory on the run directory for what a leader says. */
int dlock_elect_open(dlock_elect_t **ret, const char *name, const dlock_attr_t *attr);
int dlock_elect_close(dlock_elect_t *e);

/*
 * Waits until this thread leads, and says `value` of it. As dlock_wait(), dlock_trywait() and dlock_clockwait(), with their errors
 * (EDEADLK: it leads already), and EMSGSIZE: more than DLOCK_VALUE_MAX bytes.
 */
int dlock_elect_campaign(dlock_elect_t *e, const void *value, size_t len);
int dlock_elect_trycampaign(dlock_elect_t *e, const void *value, size_t len);
int dlock_elect_clockcampaign(dlock_elect_t *e, const void *value, size_t len, clockid_t clock, const struct timespec *abs);

/* Says another value, in the same term. EPERM: it does not lead. ESTALE: its term is over. EMSGSIZE. */
int dlock_elect_proclaim(dlock_elect_t *e, const void *value, size_t len);

/* Ends the term. As dlock_post(). */
int dlock_elect_resign(dlock_elect_t *e);

/* Does this thread lead, at this moment? As dlock_check(). */
int dlock_elect_check(dlock_elect_t *e);

/* The number of its term. As dlock_token(). */
int dlock_elect_term(dlock_elect_t *e, uint64_t *ret);

/*
 * Who leads: its value, and the term. From shared memory, without a system call. *len is how many bytes buf has room for, and then
 * how many there are; len, or ret_term, may be NULL. No lower term follows a higher one.
 *
 *   ENOENT  nobody is known to lead now. So it is in between two terms; and while this node has lost its lease, or has
 *           not heard from the others since: then somebody may lead elsewhere
 *   ERANGE  the value has more bytes than that: *len says how many
 *
 * With any error buf may have been written to. What is told may be over by now, as any news. Of a leader on another node it is as old as the message is under way; where no message comes
 * through, as old as the lease of a node that is cut off: TTL, and the grace that it has to be reached (dlockd.conf(5)).
 * Where the name has to be opened anew (after a fork) this does it, within a second.
 */
int dlock_elect_leader(dlock_elect_t *e, void *buf, size_t *len, uint64_t *ret_term);

/*
 * Waits until the term is another than *term (0: nobody is known to lead), and then sets it. A term that is over before the caller
 * looks is not seen. clockobserve: ETIMEDOUT; CLOCK_MONOTONIC or CLOCK_REALTIME, else EINVAL. ENOTCONN: failfast, and the
 * daemon is away where the name has to be opened anew.
 */
int dlock_elect_observe(dlock_elect_t *e, uint64_t *term);
int dlock_elect_clockobserve(dlock_elect_t *e, uint64_t *term, clockid_t clock, const struct timespec *abs);

/*
 * As dlock_fd(): readable also when another leads, nobody does, or something new is proclaimed. The truth is
 * dlock_elect_check(), which also empties it, and dlock_elect_leader().
 */
int dlock_elect_fd(dlock_elect_t *e, int *ret);

/*
 * --- At the resource ---
 *
 * No lock can stop a write that is already on its way when the lock is lost; the token lets the resource refuse it. These
 * calls remember the highest token of each name in a file beside the resource. They need no daemon.
 * All processes of the resource's host use the same file; there is one for each host that guards anything.
 */
typedef struct dlock_fence dlock_fence_t;

/*
 * Opens the file, and makes it if there is none (0666 less the umask; 528 KiB, some 100 bytes for each name).
 *   EBADMSG     the file is something else, or was damaged: look at it before anything is admitted
 *   EOPNOTSUPP  it lies on a file system of the network, where hosts do not see each other's writes in time
 *   or what open(2), mmap(2), posix_fallocate(3) and fdatasync(2) say, among them ENOSPC
 */
int dlock_fence_open(dlock_fence_t **ret, const char *path);

/*
 * May what holds this token of that lock still write? 0: yes; no lower one of this name will ever be admitted again,
 * not even after a power failure. ESTALE: no, a higher one has been admitted.
 * Writes to the disk only when the token is a new one, once for each (twice for the first of a name);
 * else costs some tens of nanoseconds. Any number of threads and processes may ask at once. To be called with the resource
 * locked against other writers, or by the one that carries out the write, since between this answer and the
 * write another may be admitted.
 *   EINVAL      the name cannot be one (too long: ENAMETOOLONG), or the token is not one
 *   EBADMSG, EOPNOTSUPP, ENOSPC, EIO … as above: nothing is admitted
 */
int dlock_fence_admit(dlock_fence_t *f, const char *name, uint64_t token);

/* Takes NULL. The file stays. */
int dlock_fence_close(dlock_fence_t *f);

/* --- Barriers: parties that wait for one another, in one process, on one node or on many --- */

typedef struct dlock_barrier dlock_barrier_t;

/* Told to exactly one party of each round that has passed, in the whole cluster (PTHREAD_BARRIER_SERIAL_THREAD). */
#define DLOCK_SERIAL (-1)

/*
 * Opens a barrier by name, for so many parties: 1 to 2^31 - 1. A party is a call of dlock_barrier_wait() or its relatives, by any
 * thread of any process; the same thread may be a party of each round. Barriers have names of their own: a lock
 * may have the same one.
 *
 *   EINVAL        not a name; no parties; or the barrier is open on this node with another number of parties
 *   and the errors of dlock_open()
 */
int dlock_barrier_open(dlock_barrier_t **ret, const char *name, unsigned parties, const dlock_attr_t *attr);

/* Takes NULL. EBUSY while a thread waits through it. Who is inside (dlock_barrier_enter()) has gone without leaving. */
int dlock_barrier_close(dlock_barrier_t *b);

/*
 * Waits until as many parties have come as the barrier has; then all go on, and the next round begins. More than
 * that wait for the next round.
 *
 *   0             the round has passed
 *   DLOCK_SERIAL  the same, and this is the one party of the round that is told so
 *   EPIPE         the round broke: one of its parties died, was lost with its node, or has waited for long enough, or somebody called
 *                 dlock_barrier_reset(). All of its parties are told that; the next round works
 *   ESTALE        this node lost its session, or its shared memory, and nobody alive knows what became of the round: others
 *                 may have passed
 *   EINVAL        others, on another node, have come to a barrier of that name with another number of parties
 *   ENOTCONN      failfast: no daemon; or this node leaves the cluster. The party has not come
 *   and the errors of dlock_open(), where the barrier has to be opened anew
 */
int dlock_barrier_wait(dlock_barrier_t *b);

/*
 * The same until that time (CLOCK_REALTIME). ETIMEDOUT: this party gave up, and with that broke the round for the others (EPIPE).
 * Where that cannot be decided yet it waits on until it can be: between nodes as long as it takes to hear from the master of the
 * barrier, or from its own daemon. If the round has passed meanwhile it has passed for this party too. A time that has gone by is
 * looked at only after the party has come: whoever is the last one of a node alone passes; among nodes it may break the round.
 */
int dlock_barrier_timedwait(dlock_barrier_t *b, const struct timespec *abs);

/* The same by CLOCK_MONOTONIC or CLOCK_REALTIME; EINVAL: another one. */
int dlock_barrier_clockwait(dlock_barrier_t *b, clockid_t clock, const struct timespec *abs);

/*
 * A wait with a vote. Where the round has passed, *ret_all (may be NULL) is true for all of its parties if all of them said yes, and
 * false for all of them else: commit or abort. dlock_barrier_wait() says yes. Any other result than 0 and DLOCK_SERIAL is no
 * answer: whoever broke the round, nobody has been told to commit; but after ESTALE others may have been.
 */
int dlock_barrier_vote(dlock_barrier_t *b, bool yes, bool *ret_all);

/*
 * A double barrier: all begin together, and end together. As many parties as the barrier has enter, those very ones leave, and then others
 * may enter. Of its own name space: who calls dlock_barrier_wait() on a barrier of that name does not meet them. Rounds of it are
 * completed by the daemon, also on a node alone.
 *
 * Enter is told what dlock_barrier_wait() is; who has passed is inside until it has called leave. Leave waits until all who are inside have
 * called it:
 *
 *   0, DLOCK_SERIAL  all of them have
 *   EPIPE            it broke: one of them has gone without leaving, has waited for long enough, was lost with its node, or somebody
 *                    called dlock_barrier_reset(). All of them are told so alike: who waits at once, who is inside yet as soon as it
 *                    calls leave; so nobody takes the end for a common one. Then others may enter
 *   ETIMEDOUT        clockleave: this party has waited for long enough; it has left all the same. See dlock_barrier_clockwait()
 *   EPERM            nobody is inside through this handle: it has not entered, or has been told of its end already
 *   ESTALE           as of dlock_barrier_wait()
 *   EINVAL           clockleave: another clock, not a time
 *
 * A party belongs to the process and to the handle by which it entered: any thread may leave for it, first of all the one that has
 * entered. It has gone when its process ends, at whatever instruction, or calls execve(2), when the handle is closed, or its node leaves the
 * cluster or is lost. A daemon that is started anew knows who is inside. A child after fork(2) is not.
 */
int dlock_barrier_enter(dlock_barrier_t *b);
int dlock_barrier_leave(dlock_barrier_t *b);
int dlock_barrier_clockleave(dlock_barrier_t *b, clockid_t clock, const struct timespec *abs);

/*
 * Breaks the round that is forming, if somebody has come to it; of the double barrier, what those are in who are inside, or else who is
 * about to enter. When it returns, that is decided. Errors as of dlock_barrier_wait().
 */
int dlock_barrier_reset(dlock_barrier_t *b);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
