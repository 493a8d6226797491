/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <assert.h>
#include <errno.h>
#include <sys/mman.h>

#include "loop.h"
#include "ring.h"

#define SUBMISSIONS 512
#define COMPLETIONS 8192

#define FEATURES                                                                                   \
	(IORING_FEAT_NODROP | IORING_FEAT_SUBMIT_STABLE | IORING_FEAT_FAST_POLL |                  \
		IORING_FEAT_CQE_SKIP)

/*
 * One thread submits, and the kernel's share of the work waits until that thread enters it: so
 * nothing interrupts the daemon, and a flag in memory tells when there is something to enter for.
 * One bad submission does not hold up the rest.
 */
#define FLAGS                                                                                      \
	(IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_COOP_TASKRUN |     \
		IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL | IORING_SETUP_CQSIZE)

static int buffers_map(struct ring *r)
{
	size_t entries = RING_BUFFERS * sizeof(struct io_uring_buf);
	size_t size = entries + (size_t)RING_BUFFERS * LOOP_RECV_MAX;
	void *p;

	static_assert(RING_BUFFERS * sizeof(struct io_uring_buf) % 4096 == 0,
		"the buffers begin on a page");
	p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return -errno;
	/* After a fork the kernel's pinned page and ours could part; a child has no use for it. */
	(void)madvise(p, size, MADV_DONTFORK);
	r->lent = p;
	r->buffers = (char *)p + entries;
	r->mapped = size;
	return 0;
}

static int buffers_register(struct ring *r)
{
	struct io_uring_buf_reg reg = {
		.ring_addr = (uintptr_t)r->lent,
		.ring_entries = RING_BUFFERS,
		.bgid = RING_BUFFER_GROUP,
	};
	int err = io_uring_register_buf_ring(&r->uring, &reg, 0);

	if (err < 0)
		return err == -EINVAL ? -EOPNOTSUPP : err;
	io_uring_buf_ring_init(r->lent);
	for (unsigned i = 0; i < RING_BUFFERS; i++)
		ring_buffer_return(r, i);
	return 0;
}

int ring_open(struct ring *ret)
{
	struct io_uring_params params = {.flags = FLAGS, .cq_entries = COMPLETIONS};
	struct ring r = {0};
	int err;

	err = io_uring_queue_init_params(SUBMISSIONS, &r.uring, &params);
	if (err < 0)
		/* EINVAL: a flag that this kernel does not know */
		return err == -EINVAL ? -EOPNOTSUPP : err;
	if ((params.features & FEATURES) != FEATURES) {
		err = -EOPNOTSUPP;
		goto exit_uring;
	}
	(void)io_uring_ring_dontfork(&r.uring);
	/* It saves a look-up; the plain descriptor does too. */
	(void)io_uring_register_ring_fd(&r.uring);
	err = buffers_map(&r);
	if (err < 0)
		goto exit_uring;
	err = buffers_register(&r);
	if (err < 0)
		goto unmap;
	*ret = r;
	return 0;
unmap:
	munmap(r.lent, r.mapped);
exit_uring:
	io_uring_queue_exit(&r.uring);
	return err;
}

void ring_close(struct ring *r)
{
	if (!r->lent)
		return;
	(void)io_uring_unregister_buf_ring(&r->uring, RING_BUFFER_GROUP);
	io_uring_queue_exit(&r->uring);
	munmap(r->lent, r->mapped);
	*r = (struct ring){0};
}

struct io_uring_sqe *ring_sqe(struct ring *r)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&r->uring);

	if (!sqe && io_uring_submit(&r->uring) > 0)
		sqe = io_uring_get_sqe(&r->uring);
	return sqe;
}

int ring_enter(struct ring *r, bool wait)
{
	int err = wait ? io_uring_submit_and_wait(&r->uring, 1)
		       : io_uring_submit_and_get_events(&r->uring);

	/*
	 * A signal, a shortage of memory, completions that are to be taken first: the next turn
	 * goes on.
	 */
	if (err >= 0 || err == -EINTR || err == -EAGAIN || err == -EBUSY)
		return 0;
	return err;
}

bool ring_unsubmitted(const struct ring *r)
{
	return io_uring_sq_ready(&r->uring) > 0;
}

bool ring_completions(const struct ring *r)
{
	return io_uring_cq_ready(&r->uring) > 0 ||
	       IO_URING_READ_ONCE(*r->uring.sq.kflags) & IORING_SQ_CQ_OVERFLOW;
}

bool ring_pending(const struct ring *r)
{
	return io_uring_cq_ready(&r->uring) > 0 ||
	       IO_URING_READ_ONCE(*r->uring.sq.kflags) &
		       (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW);
}

unsigned ring_take(struct ring *r, struct completion *ret, unsigned max)
{
	struct io_uring_cqe *cqe;
	unsigned head, n = 0;

	io_uring_for_each_cqe(&r->uring, head, cqe) {
		if (n == max)
			break;
		ret[n++] = (struct completion){
			.tag = cqe->user_data, .res = cqe->res, .flags = cqe->flags};
	}
	io_uring_cq_advance(&r->uring, n);
	return n;
}

const void *ring_buffer(const struct ring *r, unsigned number)
{
	assert(number < RING_BUFFERS);
	return r->buffers + (size_t)number * LOOP_RECV_MAX;
}

void ring_buffer_return(struct ring *r, unsigned number)
{
	assert(number < RING_BUFFERS);
	io_uring_buf_ring_add(r->lent, r->buffers + (size_t)number * LOOP_RECV_MAX, LOOP_RECV_MAX,
		number, io_uring_buf_ring_mask(RING_BUFFERS), 0);
	io_uring_buf_ring_advance(r->lent, 1);
}
