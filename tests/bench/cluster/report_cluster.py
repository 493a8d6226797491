#!/usr/bin/python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The last step of "make bench-cluster": rows of O/bench/*.rows become the tables of docs/BENCHMARKS-CLUSTER.md.

Writes nothing into the tree when only some rows were measured, or when one is missing. The rounds behind the tables go
to docs/bench/cluster/.
"""
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
import report  # noqa: E402

SECTIONS = [
    ('A lock that nobody else wants', 'pairs of taking and giving back a second: more is better',
     ['cached-1-redis', 'spread-1-redis', 'spread-1-etcd', 'fresh-1-redis', 'fresh-1-etcd', 'fresh-1-packets', 'fresh-16-redis', 'fresh-16-etcd', 'fresh-64-redis', 'fresh-64-etcd']),
    ('From node to node', 'less is better', ['handover-holder', 'handover-waiter', 'handover-third']),
    ('A barrier over all nodes', 'less is better', ['barrier-24', 'barrier-24-bare', 'barrier-24-least']),
    ('Keeping 100,000 leases', 'less is better', ['keep-cpu', 'keep-packets']),
    ('A node is killed', 'less is better', ['failover', 'failover-master', 'failover-coordinator', 'failover-all']),
]
HOWS = [('bursts', 'as dlock is configured by default: a node that has the lock may serve its own waiters for a bounded burst first'),
        ('strict', 'Burst=0: the lock goes to the next node at once')]
SIZES = [2, 8, 32]
RIVALS = ['redis', 'postgresql', 'etcd', 'zookeeper']
WHATS = ['changes', 'p50', 'p99', 'longest']
KEYS = [key for _, _, keys in SECTIONS for key in keys] + \
    [f'{how}-{what}-{n}-{rival}' for how, _ in HOWS for n in SIZES for rival in RIVALS for what in WHATS]

HEAD = '''# Measurements of a cluster

Written by `make bench-cluster`, which measures everything on this page anew; `make bench-cluster B=fresh` measures the rows
whose key contains that word, and leaves this page alone. The rounds behind each row are in `docs/bench/cluster/KEY.tsv`.

Three daemons and an etcd of three members, Redis, PostgreSQL, another etcd of three and ZooKeeper of three run on one machine in network
namespaces joined by a bridge, all pinned alike: the numbers say how the systems compare here, and not what
any of them does on machines of its own.

| | |
|---|---|
'''

TAIL = '''
## How it is measured

- Each round runs dlock and then its rival for a second (`bench_services.c`; 5 rounds), so both meet the same disturbances. A value
  is the median of the rounds; *ratio* is the median of the rounds' ratios, dlock : rival; for one contended name, whose runs
  differ by themselves, the ratio of the medians.
- *To reach* is what was demanded before anything was measured. A row without it is there to be read.
- Each rival is used as its own documentation says (`tests/bench/cluster/rival.h`). None of them writes to a disk that has to be waited for: Redis
  keeps nothing, PostgreSQL has fsync off, etcd and ZooKeeper do not force. dlock's daemons talk by TLS 1.3, the rivals in plain text.
- *Cached*: one name again and again, which dlock's node keeps. *Fresh*: each name once, opened and closed by dlock as well.
- One client alone: shards go where they are used. `spread-1` is a cluster where they have not, and lie evenly on the three nodes: with
  Placement=no, or in the first seconds. `fresh-1` is the same some seconds later: the client's node has become the master of all, and
  `fresh-1-packets` shows that a pair costs no network any more (what is left are the daemons' beats). With 16 and more clients,
  which are spread over the nodes, no node makes most of the claims, and shards stay where they are.
- *Owner changes*: another client than before has the lock. A wait is noted for every acquisition, also for those that found it free.
  In strict order too a node serves its own clients until another has asked: with several clients a node most changes are within nodes.
  With two clients, which are on two nodes, none is, and bursts have nothing to do there: each change costs a hand-over from node to node.
- `handover`: from just before one host's client gives the lock back until another host's, which sleeps, has it; beside it a futex wake, 64 bytes by
  TCP, a futex wake, between processes pinned alike. Median of 200 of each way a round.
  Where a third node masters, the holder's node hands it straight on to the next one (docs/LEASE.md).
- `barrier-24`: a round of eight processes on each node, which go on at once to the next one; against 64 bytes by TCP from one host to another
  and back, by two processes that sleep in between. What of that is the machine's: `barrier-24-bare` is the same round beside one made by hand of
  futexes and plain TCP between processes pinned alike (`bare.c`): the last of eight rings a relay, two trips to the first relay as the
  protocol has, one futex call wakes the eight. `barrier-24-least` is that with one trip only, as nobody may do it who has to bear
  deaths, beside one trip of two processes: what it takes to wake 24 processes on these processors, which no protocol spares.
- `keep`: with 100,000 leases that one client has taken and given back, against the same daemons without them, for 10 s, in turn.
- `failover`: SIGKILL to daemon and client at once, until a client of another node has the lock. The bound is TTL + 2d + o
  (docs/LEASE.md). `failover-all`: the killed node has used names of its own for so long that it mastered all 64 shards. `DLOCK_BENCH_FULL=1` makes it 100 runs of each.
- How many messages a hand-over takes does not depend on how many nodes wait: `tests/unit/test_core_reach.c` counts them for 2
  and for 64 nodes.

The programs are in `tests/bench/cluster/`.
'''


def waits(rows, how, n, rival, side):
    return ' / '.join(report.number(rows[f'{how}-{what}-{n}-{rival}'][side]) for what in WHATS[1:]) + ' ms'


def contended(rows):
    text = '\n## One lock that all want\n\nClients are spread over the nodes. Owner changes a second: more is better. Waits are p50 / p99 / longest.\n'
    for how, says in HOWS:
        text += f'\n`{how}`, {says}.\n\n| clients | against | dlock | its value | ratio | to reach | reached | dlock\'s waits | its waits |\n'
        text += '|---|---|---|---|---|---|---|---|---|\n'
        for n in SIZES:
            for rival in RIVALS:
                row = rows[f'{how}-changes-{n}-{rival}']
                reached = '**no**' if row['reached'] == 'no' else row['reached']
                text += f'| {n} | {rival} | {report.number(row["value"])}/s | {report.number(row["other"])}/s | {float(row["ratio"]):.2f}x ' \
                    f'| {report.target(row)} | {reached} | {waits(rows, how, n, rival, "value")} | {waits(rows, how, n, rival, "other")} |\n'
    return text


def page(rows, tree, out):
    return report.top(HEAD, tree, out) + report.tables(rows, SECTIONS) + contended(rows) + TAIL


if __name__ == '__main__':
    sys.exit(report.report('docs/BENCHMARKS-CLUSTER.md', 'docs/bench/cluster', KEYS, page))
