#!/usr/bin/python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The last step of "make bench": rows of O/bench/*.rows become the table of docs/BENCHMARKS.md.

Writes nothing into the tree when only some rows were measured ($B, T=), or when one is missing. The rounds behind
the table go to docs/bench/.
"""
import glob
import os
import platform
import shutil
import subprocess
import sys
import time

FIELDS = ('key what rival unit value other ratio goal limit better reached count_dlock count_rival note').split()

# In the order of the table; every one has to be there.
SECTIONS = [
    ('A lock that nobody else wants', 'less is better',
     ['cached', 'cached-counter', 'cached-64', 'cached-counter-64']),
    ('One lock that all want, all the time', 'acquisitions: more is better; waits: less',
     ['contended-2', 'contended-8', 'contended-64', 'wait-p9999-64', 'wait-felt-64', 'wait-longest-64']),
    ('The other primitives, one process alone', 'less is better',
     ['shared', 'shared-counter', 'sem', 'sem-counter', 'elect-leader', 'elect-leader-counter', 'id-next', 'id-next-counter', 'fence-admit']),
    ('The other primitives, eight processes', 'acquisitions: more is better; a barrier\'s round: less',
     ['readers-8', 'readers-8-counter', 'readers-90', 'readers-90-counter', 'sem-8', 'sem-8-counter', 'barrier-8',
      'barrier-8-counter']),
    ('The first acquisition, through the daemon', 'less is better',
     ['first-same', 'first-cross', 'first-same-paused', 'first-cross-paused']),
    ('The holder is killed', 'less is better', ['death', 'death-daemon-far']),
    ('What an open name costs', 'less is better', ['memory-open', 'memory']),
    ('Opening and closing', 'more is better', ['open-close']),
]

HEAD = '''# Measurements

Written by `make bench`, which measures everything on this page anew; `make bench B=cached` measures the rows whose
key contains that word, and leaves this page alone. The rounds behind each row are in `docs/bench/KEY.tsv`.

| | |
|---|---|
'''

TAIL = '''
## How it is measured

- Each of {rounds} rounds (five where waits are measured) measures dlock and then its rival, so both meet the same
  disturbances. A value is the median of the rounds; *ratio* is the median of the rounds' ratios, dlock : rival (for
  waits, whose runs differ by themselves, the ratio of the medians).
- *To reach* is what was demanded before anything was measured. A row without it is there to be read.
- *Instructions* are those of user space for one pair of calls, counted by `valgrind --tool=callgrind` on the same
  programs; the loop around the pair is taken off. They do not depend on what else the machine does.
- Processes are pinned: with two processors, clients alternate between them. A daemon of its own runs in a directory
  under /dev/shm, on the first processor, the client on the second, unless the row says otherwise. "One processor":
  daemon and client (or both ends of the socket) share one.
- The robust mutex is glibc's, process-shared, each on a cache line of its own. In `contended`, a loop takes, raises a
  counter, gives back, with no clock call in it; the counter must have counted every acquisition at the end.
- For waits the processor's counter is read before and after each of them, for dlock and mutex alike. p99.99 is of
  all waits; most of them are for nothing, on both sides, so a lock that one process takes a million times while the
  others starve looks good there. A robust mutex does so in some runs; in others it wakes everyone, and all take turns on
  the processors. At a random moment: each wait counts as often as it is long, so it says how long
  somebody who waits will have waited.
- `shared` and `readers`: against glibc's rwlock, which prefers readers; `sem`: against its `sem_t`. All of them are process-shared.
  `readers-90`: every tenth acquisition of each process is a writer's, which raises two words; they must have counted
  every writer at the end, and no reader may find them different.
- `elect-leader`: 64 bytes of value. Its rival reads two words of shared memory, and copies so much by `memcpy()` in between.
  With the deadline compared it cannot be better than a read of the counter: that alone, in a loop, is 8.7 ns on an AMD EPYC,
  nine times this rival, and loads and copy are hidden behind it, before it or after it (8.6 to 8.8 ns in one run). Cheaper
  clocks are not sound, since the look is for a daemon that is stopped: CLOCK_MONOTONIC_COARSE (3.5 ns, still five times)
  stands still while the processor that keeps it is not run; a number of reads says nothing about the time; and what another process
  keeps up to date ends with that one.
- `id-next`: 1000 numbers at a time, with two milliseconds in between, since a worker has 4096 in a millisecond.
- `barrier-8`: who passes goes on at once to the next round, 2000 times. Of each round one process was told that it is the one,
  and nobody was more than a round ahead.
- `fence-admit`: the file is on tmpfs, as is the one that `pread()` reads; a token that is known costs no sync.
- `first`: the name is open, but the node has no tokens for it yet: client to daemon to client. No fsync is in it,
  since the daemon's epoch was made durable at its start.
- `death`: median of 15 deaths a round, from just before `kill()` to the survivor running. Both victims are processes
  of the same kind; most of the time is the kernel's, taking down the victim's address space.
- `memory`: blocks of the files of segment and ledger, and growth of the daemon's anonymous resident memory.

The programs are in `tests/bench/`, each with what it does at its head.
'''


def read_rows(folder):
    rows = {}
    for path in glob.glob(os.path.join(folder, '*.rows')):
        with open(path, encoding='utf-8') as f:
            for line in f:
                row = dict(zip(FIELDS, line.rstrip('\n').split('\t')))
                rows[row['key']] = row
    return rows


def number(text):
    v = float(text)
    return f'{v:,.0f}' if v >= 1000 else f'{v:.3g}'


def target(row):
    parts = []
    if float(row['goal']):
        parts.append(f'{round(float(row["goal"]), 2):g}x or {row["better"]}')
    if float(row['limit']):
        parts.append(f'{number(row["limit"])} {row["unit"]} or less')
    return ', '.join(parts) or '–'


def line(row):
    against = '–' if row['rival'] == '-' else row['rival']
    other = f'{number(row["other"])} {row["unit"]}' if float(row['other']) else '–'
    ratio = f'{float(row["ratio"]):.2f}x' if float(row['other']) else '–'
    counts = f'{float(row["count_dlock"]):.0f} : {float(row["count_rival"]):.0f}' if float(row['count_dlock']) else '–'
    reached = {'-': '–', 'no': '**no**'}.get(row['reached'], row['reached'])
    return (f'| `{row["key"]}` | {row["what"].replace("... ", "… ")} | {number(row["value"])} {row["unit"]} | {against} '
            f'| {other} | {ratio} | {target(row)} | {reached} | {counts} |\n')


def output(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ''


def processor():
    with open('/proc/cpuinfo', encoding='utf-8') as f:
        names = [l.split(':', 1)[1].strip() for l in f if l.startswith('model name')]
    kind = output('systemd-detect-virt', '--vm')
    return f'{names[0] if names else platform.machine()}, {len(os.sched_getaffinity(0))} processors' + \
        (f', virtual ({kind})' if kind not in ('', 'none') else '')


def compiler(out):
    """As the library was built."""
    with open(os.path.join(out, 'libclient/fast.o.cmd'), encoding='utf-8') as f:
        words = f.read().split(':=', 1)[1].split()
    flags = [w for w in words[1:] if w.startswith(('-O', '-g', '-m', '-f')) and 'prefix-map' not in w]
    return f'{output(words[0], "--version").splitlines()[0]}, `{" ".join(flags)}`'


def commit(tree):
    head = output('git', '-C', tree, 'rev-parse', '--short=12', 'HEAD') or 'unknown'
    changed = output('git', '-C', tree, 'status', '--porcelain', '-uno', '--', 'include', 'libclient', 'daemon', 'tests/bench')
    return head + (', with changes that were not committed' if changed else '')


def facts(tree, out):
    glibc = platform.libc_ver()[1]
    return [('Machine', processor()),
            ('Kernel', f'{platform.system()} {platform.release()}, {platform.machine()}'),
            ('C library', f'glibc {glibc}'), ('Compiler', compiler(out)), ('Commit', commit(tree)),
            ('Date', time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())),
            ('Load average', ' '.join(f'{v:.2f}' for v in os.getloadavg()) + ' over 1, 5, 15 minutes, seen at the end')]


def top(head, tree, out):
    return head + ''.join(f'| {name} | {value} |\n' for name, value in facts(tree, out))


def tables(rows, sections):
    text = ''
    for title, which, keys in sections:
        text += f'\n## {title}\n\n{which[0].upper() + which[1:]}.\n\n'
        text += '| key | what | dlock | against | its value | ratio | to reach | reached | instructions |\n'
        text += '|---|---|---|---|---|---|---|---|---|\n'
        text += ''.join(line(rows[key]) for key in keys)
        notes = [f'`{key}`: {rows[key]["note"]}.' for key in keys if rows[key]['note']]
        text += '\n' + '\n'.join(notes) + '\n' if notes else ''
    return text


def page(rows, tree, out):
    return top(HEAD, tree, out) + tables(rows, SECTIONS) + TAIL.format(rounds=11)


def keep_rounds(folder, kept, keys):
    os.makedirs(kept, exist_ok=True)
    for old in glob.glob(os.path.join(kept, '*.tsv')):
        os.unlink(old)
    for key in keys:
        shutil.copy(os.path.join(folder, f'{key}.tsv'), kept)


def report(document, kept, keys, write_page):
    """Writes the document, if each of the rows was measured. write_page(rows, tree, out) is its text."""
    out, tree = os.environ['O'], os.environ['srctree']
    folder = os.path.join(out, 'bench')
    rows = read_rows(folder)
    missing = [key for key in keys if key not in rows]
    if os.environ.get('B') or os.environ.get('T'):
        print(f'only a part was measured: {document} stays as it is')
        return 0
    if missing:
        print(f'not measured: {" ".join(missing)}; {document} stays as it is')
        return 1
    keep_rounds(folder, os.path.join(tree, kept), keys)
    with open(os.path.join(tree, document), 'w', encoding='utf-8') as f:
        f.write(write_page(rows, tree, out))
    missed = [key for key in keys if rows[key]['reached'] == 'no']
    print(f'{document} written; not reached: {" ".join(missed) or "none"}')
    return 0


if __name__ == '__main__':
    sys.exit(report('docs/BENCHMARKS.md', 'docs/bench', [key for _, _, keys in SECTIONS for key in keys], page))
