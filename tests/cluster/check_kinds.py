# SPDX-License-Identifier: LGPL-2.1-or-later
"""What docs/HISTORY.md says of the values of locks, and of kinds that nobody holds: ids, free semaphores, latches, conditions. For check.py."""
import collections

LATELY = 2 * 10**9          # what a host did to a free semaphore so shortly before it was lost may be lost with it


class Deed:
    """A call that is not of a hold; `result` None: its process was killed in it, or it goes on."""
    def __init__(self, call, back, end):
        self.who, self.host, self.name, self.op = call["who"], call["host"], call["name"], call["op"]
        self.call, self.back = call, back or {}
        self.begin, self.end = call["t"], back["t"] if back else end
        self.result = self.back.get("result")
        self.n = call.get("weight", 0)

    def __str__(self):
        return f"{self.op} of {self.name} by {self.who} from {self.begin} to {self.end}: {self.result} {self.n or ''}"


def by_name(deeds, *ops):
    names = collections.defaultdict(list)
    for d in deeds:
        if d.op in ops:
            names[d.name].append(d)
    return names.values()


# --- Ids ---

def id_worker(n):
    return n >> 12 & 1023


def judge_ids(h):
    for ids in by_name((d for d in h.deeds if d.result == "ok"), "id"):
        seen = {}
        numbers = collections.defaultdict(list)
        for d in ids:
            n = d.back["id"]
            if n in seen:
                h.no(f"one id twice, {n}: {seen[n]}; {d}")
            seen[n] = d
            numbers[id_worker(n)].append(d)
        for of_one in numbers.values():
            judge_rising(h, of_one)


def judge_rising(h, ids):
    """Ids under one number: one that was asked for after another had been told is greater."""
    ended = sorted(ids, key=lambda d: d.end)
    highest, k = None, 0
    for d in sorted(ids, key=lambda d: d.begin):
        while ended[k].end < d.begin:
            if highest is None or ended[k].back["id"] > highest.back["id"]:
                highest = ended[k]
            k += 1
        if highest is not None and highest.back["id"] >= d.back["id"]:
            h.no(f"ids went back: {highest.back['id']} {highest}; then {d.back['id']} {d}")


class Number:
    """A process sees a number, and later the same one, and no other in between: it has had it."""
    def __init__(self, d):
        self.first = self.last = d

    def surely_within(self, begin, end):
        return self.first.end <= begin and end <= self.last.begin

    def clashes(self, other):
        return self.last.host != other.last.host and (
            max(self.first.end, other.first.end) < min(self.last.begin, other.last.begin) or
            any(a.surely_within(d.begin, d.end) for a, b in ((self, other), (other, self)) for d in (b.first, b.last)))


def judge_workers(h):
    had, now = collections.defaultdict(list), {}
    for d in sorted((d for d in h.deeds if d.result == "ok" and d.op in ("id", "worker")), key=lambda d: d.end):
        key = d.name, d.back["worker"] if d.op == "worker" else id_worker(d.back["id"])
        if now.get((d.who, d.name), (None, None))[0] != key:
            now[(d.who, d.name)] = key, Number(d)
            had[key].append(now[(d.who, d.name)][1])
        now[(d.who, d.name)][1].last = d
    for (_, number), v in had.items():
        for i, a in enumerate(v):
            for b in v[:i]:
                if a.clashes(b):
                    h.no(f"two hosts have the number {number}: {b.last}; {a.last}")


# --- Free semaphores ---

def is_doubtful(h, d):
    return d.result is None or h.starved(d.host, d.begin, d.end + LATELY) or any(
        d.host in hosts and begin <= d.end + LATELY and (end is None or end + h.ttl >= d.begin) for _, begin, end, hosts in h.faults)


def judge_pools(h):
    first = {d.name: d.call["permits"] for d in h.deeds if d.op == "pool_open"}
    dry = {d.name: d for d in h.deeds if d.op == "pool_dry"}
    for deeds in by_name(h.deeds, "pool_try", "pool_timed", "pool_post"):
        name = deeds[0].name
        posts = [d for d in deeds if d.op == "pool_post" and d.result in ("ok", None)]
        takes = [d for d in deeds if d.op != "pool_post" and d.result in ("ok", None)]
        certain = [d for d in takes if not is_doubtful(h, d)]
        most = first[name]
        for t, _, n, d in sorted([(d.begin, 0, d.n, d) for d in posts] + [(d.end, 1, -d.n, d) for d in certain], key=lambda e: e[:2]):
            most += n
            if n < 0 and most < 0:
                h.no(f"more was taken than there can have been, by {-most}: {d}")
                most = 0
        least = first[name] + sum(d.n for d in posts if not is_doubtful(h, d)) - sum(d.n for d in takes)
        h.counts["certain changes of free semaphores"] += len(certain)
        if name in dry and least > 0:
            h.no(f"{least} permits at least are gone: {dry[name]}")


# --- Latches ---

def judge_latches(h):
    for deeds in by_name(h.deeds, "latch_down", "latch_wait", "latch_value"):
        downs = [d for d in deeds if d.op == "latch_down"]
        for d in deeds:
            if d.result != "ok" or d.op == "latch_down":
                continue
            count = d.call["count"]
            least = max(0, count - sum(x.n for x in downs if x.begin <= d.end))
            most = max(0, count - sum(x.n for x in downs if x.result == "ok" and x.end < d.begin))
            if d.op == "latch_wait" and least > 0:
                h.no(f"passed a latch that still had {least}: {d}")
            if d.op == "latch_value" and not least <= d.back["value"] <= most:
                h.no(f"a latch says {d.back['value']}, and has {least} to {most}: {d}")


# --- Conditions ---

def judge_conditions(h):
    """Who had let go of the lock before somebody took it to wake him, and whose time ended later, was woken; of a signal, one of them."""
    for deeds in by_name(h.deeds, "cond_wait", "cond_signal", "cond_broadcast"):
        waits = [d for d in deeds if d.op == "cond_wait"]
        for d in deeds:
            if d.op == "cond_wait" or d.result != "ok":
                continue
            there = [w for w in waits if w.begin < d.call["since"] and w.end > d.end and w.call["until"] > d.end]
            missed = [w for w in there if w.result == "ETIMEDOUT" and not is_doubtful(h, w)]
            others = any(w.result != "ETIMEDOUT" for w in waits if w.begin < d.end and w.end > d.begin)
            if missed and (d.op == "cond_broadcast" or not others):
                h.no(f"not woken: {missed[0]}; by {d}")


# --- Values of locks ---

class Value:
    """What a hold has set last, and gave back at t. Not certain: it may have been lost before that, or its process was killed just then."""
    def __init__(self, h, hold, t, certain):
        self.token, self.value, self.hold, self.t = hold.token, hold.value, hold, t
        self.certain = certain and not h.starved(hold.host, hold.begin, t) and not any(
            hold.host in hosts and begin <= t and (end is None or end + h.ttl >= hold.begin) for _, begin, end, hosts in h.faults)


def may_be_lost(h, since, until):
    """Some host may have lost its lease in that time."""
    return any(hosts and begin <= until and (end is None or end + 3 * h.ttl >= since) for _, begin, end, hosts in h.faults) or any(
        h.starved(host, since, until) for host in h.hosts)


def judge_values(h):
    names = collections.defaultdict(lambda: ([], []))
    for hold, t, certain in h.published:
        names[hold.name][0].append(Value(h, hold, t, certain))
    for get in h.gets:
        names[get[0].name][1].append(get)
    for left, gets in names.values():
        left.sort(key=lambda v: v.token)
        lost = 0                                         # the highest token of a holder who was told so
        for hold, own, call, back in sorted(gets, key=lambda g: (g[0].token, g[2]["t"])):
            got = back.get("value") if back["result"] == "ok" else None
            before = [v for v in left if lost <= v.token < hold.token]
            at = max([i for i, v in enumerate(before) if v.certain], default=0)
            may = [own] if own else [v.value for v in before[at:]]
            if got is None:
                if own or (before and before[at].certain and not may_be_lost(h, before[at].hold.begin, back["t"])):
                    h.no(f"{may} was left, and is not there: {back}")
                lost = hold.token if not own else lost
            elif got not in may:
                h.no(f"{may[-3:]} was left, and it is another: {back}")


JUDGES = (judge_ids, judge_workers, judge_pools, judge_latches, judge_conditions, judge_values)
