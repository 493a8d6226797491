#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Judges a history (docs/HISTORY.md). Prints what it counted, and each thing that must not be; exits 1 if there is one."""
import bisect
import collections
import json
import sys

import check_kinds

ALL = 2**32 - 1
TAKES = ("wait", "trywait", "timedwait")
HELD = ("ok", "EOWNERDEAD")
RESULTS = {
    "wait": {"ok", "EOWNERDEAD", "ENOTCONN", "ECANCELED"},
    "trywait": {"ok", "EOWNERDEAD", "EBUSY", "ENOTCONN"},
    "timedwait": {"ok", "EOWNERDEAD", "ETIMEDOUT", "ENOTCONN"},
    "check": {"ok", "ESTALE"},
    "write": {"ok", "ESTALE"},
    "post": {"ok", "ESTALE"},
    "upgrade": {"ok", "EOWNERDEAD", "EDEADLK", "ESTALE", "ENOTCONN"},
    "tryupgrade": {"ok", "EOWNERDEAD", "EDEADLK", "EBUSY", "ESTALE", "ENOTCONN"},
    "downgrade": {"ok", "ESTALE"},
    "get": {"ok", "ENODATA", "ESTALE", "ENOTCONN"},
    "set": {"ok", "ESTALE", "ENOTCONN"},
    "leader": {"ok", "ENOENT"},
    "barrier": {"ok", "serial", "EPIPE", "ETIMEDOUT", "ESTALE", "ENOTCONN"},
    "id_open": {"ok", "ENOTCONN"},
    "id": {"ok", "ENOTCONN"},
    "worker": {"ok", "ENOTCONN"},
    "pool_open": {"ok", "ENOTCONN"},
    "pool_try": {"ok", "EAGAIN", "ENOTCONN"},
    "pool_timed": {"ok", "ETIMEDOUT"},
    "pool_post": {"ok"},
    "pool_dry": {"ok"},
    "latch_open": {"ok", "ENOTCONN"},
    "latch_wait": {"ok", "ETIMEDOUT"},
    "latch_value": {"ok"},
    "latch_down": {"ok", "ESTALE"},
    "cond_wait": {"ok", "ETIMEDOUT", "EOWNERDEAD", "ESTALE"},
    "cond_signal": {"ok"},
    "cond_broadcast": {"ok"},
}
UPGRADES = ("upgrade", "tryupgrade")
DEEDS = ("id_open", "id", "worker", "pool_open", "pool_try", "pool_timed", "pool_post", "pool_dry", "latch_open", "latch_wait", "latch_value", "latch_down",
         "cond_wait", "cond_signal", "cond_broadcast")


# So much of a TTL without a processor may cost a lease: a beat is due in each quarter, and is not sent, or not answered in time.
STARVED = 4


# Of a party: it was killed, or nobody knows what became of its round.
UNKNOWN = (None, "ESTALE", "ENOTCONN")


class Hold:
    def __init__(self, call, back):
        self.who, self.host, self.name = back["who"], back["host"], back["name"]
        self.limit = call.get("limit", ALL)
        self.weight = call.get("weight", self.limit)
        self.token = back.get("token")
        self.called, self.begin, self.end = call["t"], back["t"], back["t"]
        self.value = None                               # that it has set

    @property
    def exclusive(self):
        return self.limit == ALL and self.weight == ALL

    @property
    def sort(self):
        """Of its name, without the number; and whether it is shared."""
        return self.name.rstrip("0123456789") + (" shared" if self.limit == ALL and not self.exclusive else "")

    def __str__(self):
        return f"{self.name} by {self.who} from {self.begin} to {self.end} token {self.token} weight {self.weight}"


class Party:
    """One that came to a barrier; `result` None: it was killed, or nobody knows."""
    def __init__(self, call, back, end):
        self.who, self.host, self.name, self.parties = call["who"], call["host"], call["name"], call["parties"]
        self.begin, self.end = call["t"], back["t"] if back else end
        self.result = back["result"] if back else None

    @property
    def passed(self):
        return self.result in ("ok", "serial")

    def __str__(self):
        return f"{self.name} by {self.who} from {self.begin} to {self.end}: {self.result}"


class History:
    def __init__(self, lines):
        self.events = sorted(lines, key=lambda e: e["t"])
        self.wrong = []
        self.holds, self.waits, self.losses, self.writes, self.posts, self.faults = [], [], [], [], [], []
        self.parties, self.deeds, self.hosts = [], [], set()
        self.gets, self.published = [], []              # hold, what it had set itself, call, return; hold, when, whether it surely came to that
        self.starving, self.merged = [], {}             # begin, end, hosts that it may cost a lease; of each host
        self.excused = 0
        self.counts = collections.Counter()
        self.terms = {}                                 # the highest that a client has seen of an election
        self.ttl = self.bound = self.healed = self.ended = None
        open_calls, held, faulty = {}, {}, {}
        for e in self.events:
            if e["who"] == "run":
                self.run_event(e)
            elif e["who"] == "canary":
                self.counts[f"{e['op']} {e['what'].split()[0]}"] += 1
                self.starving.append((e["begin"], e["t"], e["hosts"]))
            elif e["ev"] == "killed":
                call = open_calls.pop(e["client"], None)
                self.killed(call, e["t"], held)
            elif e["who"] == "nemesis":
                self.fault_event(e, faulty)
            elif e["ev"] == "call":
                open_calls[e["who"]] = e
            else:
                self.answer(open_calls.pop(e["who"], None), e, held)
        self.waits += [(c, None) for c in open_calls.values()]
        self.deeds += [check_kinds.Deed(c, None, c["t"]) for c in open_calls.values() if c["op"] in DEEDS]
        self.faults += [(op, begin, None, hosts) for op, begin, hosts in faulty.values()]
        self.posts_count()

    def no(self, text):
        self.wrong.append(text)

    def run_event(self, e):
        if e["op"] == "begin":
            self.ttl, self.bound = e["ttl"], e["bound"]
        elif e["op"] == "healed":
            self.healed = e["t"]
        elif e["op"] == "end":
            self.ended = e["t"]

    def fault_event(self, e, faulty):
        """A fault lasts from the call of its op to the return of "mend" of the same what, or to its own return if it has none."""
        self.counts["nemesis " + e["op"]] += e["ev"] == "call"
        if e["op"] == "mend":
            if e["ev"] == "return" and e["what"] in faulty:
                op, begin, hosts = faulty.pop(e["what"])
                self.faults.append((op, begin, e["t"], hosts))
        elif e["ev"] == "call":
            faulty[e["what"]] = (e["op"], e["t"], e["hosts"])

    def killed(self, call, t, held):
        if call is None:
            return
        hold = held.get((call["who"], call["name"]))
        if call["op"] == "barrier":
            self.parties.append(Party(call, None, t))
        elif call["op"] in DEEDS:
            self.deeds.append(check_kinds.Deed(call, None, t))
        elif call["op"] in ("post", "downgrade") and hold and hold.value:
            self.published.append((hold, t, False))

    def answer(self, call, e, held):
        op, result, key = e["op"], e["result"], (e["who"], e["name"])
        self.counts[f"{op} {result}"] += 1
        if call is None or call["op"] != op or call["name"] != e["name"]:
            self.no(f"a return without its call: {e}")
            return
        if result not in RESULTS[op]:
            self.no(f"{op} says {result}: {e}")
        self.hosts.add(e["host"])
        if op in DEEDS:
            self.deeds.append(check_kinds.Deed(call, e, None))
            self.waits.append((call, e))
            return
        if op == "leader":
            if result == "ok" and e["token"] < self.terms.get(key, 0):
                self.no(f"saw term {self.terms[key]} before, and now {e}")
            self.terms[key] = max(e.get("token", 0), self.terms.get(key, 0))
            return
        if op == "barrier":
            self.parties.append(Party(call, e, None))
            self.waits.append((call, e))
            return
        if op in TAKES:
            self.waits.append((call, e))
            if result in HELD:
                held[key] = h = Hold(call, e)
                self.holds.append(h)
                self.counts[h.sort + " held"] += 1
            return
        h = held.get(key)
        if h is None:
            self.no(f"{op} of what is not held: {e}")
            return
        if op == "write":
            if result == "ok":
                self.writes.append((e["t"], h))
            return
        if op == "get" and result in ("ok", "ENODATA"):
            self.gets.append((h, h.value, call, e))
        if op == "set" and result == "ok":
            h.value = call["value"]
        if op in UPGRADES:
            self.waits.append((call, e))
        if result in HELD and op in ("post", "downgrade") and h.value:
            self.published.append((h, e["t"], True))
        if op in UPGRADES + ("downgrade",) and result in HELD:
            held[key] = self.turned(h, call, e)
            return
        if result != "ESTALE" and op not in ("check", "post"):
            return
        if result == "ok" and op == "post":
            self.posts.append((h, call["t"]))
        elif result == "ok":
            h.end = call["t"]
        else:
            self.losses.append((h, e["t"]))
        if op == "post":
            del held[key]

    def turned(self, h, call, e):
        """The hold that an upgrade, or a downgrade, makes of h: in between it was shared at least."""
        new = Hold(call, e)
        new.called = h.called
        if e["op"] == "downgrade":
            self.posts.append((h, call["t"]))
            new.weight, new.begin, new.end = 1, call["t"], call["t"]
        else:
            h.end = e["t"]
        self.holds.append(new)
        return new

    def spans(self, host):
        """When there was no processor for who matters to that host (None: to any), in order, without overlaps."""
        if host not in self.merged:
            spans = self.merged[host] = []
            for begin, end in sorted((b, e) for b, e, hosts in self.starving if host is None or host in hosts):
                if spans and begin <= spans[-1][1]:
                    spans[-1][1] = max(spans[-1][1], end)
                else:
                    spans.append([begin, end])
        return self.merged[host]

    def starved(self, host, since, until):
        """At some instant from since to until a quarter of the TTL before it, or more, had gone by without one."""
        spans = self.spans(host)
        first = bisect.bisect_right(spans, since - self.ttl, key=lambda s: s[1])
        near = spans[first:bisect.bisect_left(spans, until, key=lambda s: s[0])]
        return any(sum(max(0, min(e, at) - max(b, at - self.ttl)) for b, e in near) >= self.ttl / STARVED
                   for at in [since, until] + [e for _, e in near if since < e < until])

    def posts_count(self):
        """Where the daemon is frozen, and a moment after, the deadline is what ends a hold, and post does not look at that."""
        for h, t in self.posts:
            if not any(op == "freeze" and h.host in hosts and begin <= t and (end is None or t <= end + self.ttl)
                       for op, begin, end, hosts in self.faults) and not self.starved(h.host, t - self.ttl, t):
                h.end = max(h.end, t)

    # --- The judges ---

    def judge_spans(self):
        by_name = collections.defaultdict(list)
        for h in self.holds:
            by_name[h.name].append(h)
        for holds in by_name.values():
            self.judge_weights(holds)
            self.judge_tokens([h for h in holds if h.exclusive])

    def judge_weights(self, holds):
        edges = sorted([(h.begin, 1, i) for i, h in enumerate(holds)] + [(h.end, 0, i) for i, h in enumerate(holds)])
        there, total = set(), 0
        for _, begins, i in edges:
            h = holds[i]
            if not begins:
                if i in there:
                    there.remove(i)
                    total -= h.weight
                continue
            if h.end <= h.begin:
                continue
            there.add(i)
            total += h.weight
            if total > h.limit:
                self.no("held together, more than the limit: " + "; ".join(str(holds[k]) for k in sorted(there)))

    def judge_tokens(self, holds):
        seen = {}
        for h in holds:
            if h.token in seen:
                self.no(f"one token twice: {seen[h.token]}; {h}")
            seen[h.token] = h
        highest = None
        ended = sorted(holds, key=lambda h: h.end)
        k = 0
        for h in sorted(holds, key=lambda h: h.begin):
            while k < len(ended) and ended[k].end < h.begin:
                if highest is None or ended[k].token > highest.token:
                    highest = ended[k]
                k += 1
            if highest is not None and highest is not h and highest.token > h.token:
                self.no(f"tokens went back: {highest}; then {h}")

    def judge_resource(self, taken):
        """`taken`: the resource's own list of what it took, in its order: name and token."""
        highest = {}
        for name, token in taken:
            if token < highest.get(name, 0):
                self.no(f"the resource took a write of {name} with token {token} after {highest[name]}")
            highest[name] = max(token, highest.get(name, 0))
        count = collections.Counter(taken)
        for h, n in collections.Counter(h for _, h in self.writes).items():
            if count[(h.name, h.token)] < n:
                self.no(f"{n} writes were told ok that the resource does not have: {h}")

    def judge_barriers(self):
        by_name = collections.defaultdict(list)
        for p in self.parties:
            if p.result in UNKNOWN:
                p.end = self.forgotten(p.end)
            by_name[p.name].append(p)
        for parties in by_name.values():
            parties.sort(key=lambda p: p.begin)
            together, until = [], 0
            for p in parties:
                if p.begin > until and together:        # nobody was at it: what came before is a matter of its own
                    self.judge_rounds(together)
                    together = []
                together.append(p)
                until = max(until, p.end)
            self.judge_rounds(together)

    def forgotten(self, t):
        """Who was killed, or lost, at t may be counted until its node hears of that, or is lost itself."""
        end = t + 3 * self.ttl
        return max([end] + [(self.ended or t) if to is None else to + 3 * self.ttl for _, begin, to, _ in self.faults if begin <= end and (to is None or to >= t)])

    def judge_rounds(self, there):
        """Of each round that passed all have passed, and one is the serial one, but for those of whom nobody knows."""
        if not there:
            return
        n = there[0].parties
        unknown = sum(p.result in UNKNOWN for p in there)
        passed = [p for p in there if p.passed]
        serials = sum(p.result == "serial" for p in passed)
        if not serials * n - unknown <= len(passed) <= serials * n + unknown * (n - 1):
            self.no(f"{len(passed)} have passed in rounds of {n}, {serials} of them serial, of {unknown} nobody knows: {passed[0] if passed else there[0]}")
        for p in passed:
            beside = sum(q.begin <= p.end and q.end >= p.begin and (q.passed or q.result in UNKNOWN) for q in there)
            if beside < n:
                self.no(f"passed with {beside} of {n}: {p}")
        for p in there:
            if p.result == "EPIPE" and not any(
                    q.begin <= p.end and q.end >= p.begin and (q.result == "ETIMEDOUT" or q.result in UNKNOWN) for q in there) and not any(
                    begin <= p.end and (end is None or end >= p.begin - 3 * self.ttl) for _, begin, end, _ in self.faults) and not any(
                    self.starved(host, p.begin, p.end) for host in {q.host for q in there}):
                self.no(f"a round broke, and nothing was wrong: {p}")

    def judge_losses(self):
        for h, t in self.losses:
            since = h.end - self.ttl                    # it was held at h.end, and was not at t: by a beat that was good for a TTL
            if any(h.host in hosts and begin <= t and (end is None or end >= since) for _, begin, end, hosts in self.faults):
                continue
            if self.starved(h.host, h.end, t):
                self.excused += 1
            else:
                self.no(f"lost at {t}, and nothing was wrong: {h}")

    def judge_liveness(self):
        if self.healed is None or self.ended is None:
            self.no("the run did not come to its end")
            return
        for call, back in self.waits:
            since = max(call["t"], self.healed)
            until = back["t"] if back else self.ended
            if until - since - sum(max(0, min(e, until) - max(b, since)) for b, e in self.spans(None)) > self.bound:
                self.no(f"waited {(until - since) // 10**6} ms after all was whole, until {back and back['result']}: {call}")

    def judge_use(self, needs):
        for need in needs:
            if not self.counts[need]:
                self.no(f"never happened: {need}")

    def judge(self, taken=None, needs=()):
        self.judge_spans()
        if taken is not None:
            self.judge_resource(taken)
        self.judge_barriers()
        for judge in check_kinds.JUDGES:
            judge(self)
        self.judge_losses()
        self.judge_liveness()
        self.judge_use(needs)
        return self.wrong


def read_lines(paths):
    for path in paths:
        with open(path, encoding="utf-8") as f:
            for line in f:
                if line.endswith("\n"):          # a process that is killed may leave half a line
                    yield json.loads(line)


def read_taken(path):
    with open(path, encoding="utf-8") as f:
        return [(name, int(token)) for name, token, *_ in (line.split() for line in f)]


def main():
    needs, taken, paths = [], None, []
    args = iter(sys.argv[1:])
    for a in args:
        if a == "--need":
            needs.append(next(args))
        elif a == "--resource":
            taken = read_taken(next(args))
        else:
            paths.append(a)
    h = History(read_lines(paths))
    wrong = h.judge(taken, needs)
    for what, n in sorted(h.counts.items()):
        print(f"# {n:8} {what}")
    for text in wrong[:20]:
        print(f"# NO: {text}")
    print(f"# {len(h.holds)} holds, {len(h.writes)} writes, {len(h.losses)} losses ({h.excused} for want of a processor), {len(wrong)} things that must not be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
