#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The judge of histories, judged: a good history passes, and each way to spoil it is seen."""
import copy
import sys

sys.dont_write_bytecode = True
import check

SEC = 10**9


CALLED = ("weight", "limit", "parties", "permits", "count", "left", "until", "since")


def op(who, host, name, what, t, result="ok", back=None, **more):
    call = {k: more.pop(k) for k in CALLED if k in more}
    return [
        {"t": t, "who": who, "host": host, "name": name, "op": what, "ev": "call",
         **{"value" if k == "left" else k: v for k, v in call.items()}},
        {"t": t + 10 if back is None else back, "who": who, "host": host, "name": name, "op": what, "ev": "return",
         "result": result, **more},
    ]


def number(worker, ms):
    return ms << 22 | worker << 12


def kinds():
    """Of each kind that is more than a hold, or none."""
    return [
        # A reader becomes the writer, beside whom another reader comes in only when it is one again.
        *op("ga", 1, "g", "wait", 100, weight=1, token=3), *op("ga", 1, "g", "upgrade", 120, back=140, token=4), *op("ga", 1, "g", "check", 150),
        *op("gb", 2, "g", "wait", 110, weight=1, back=170, token=5), *op("ga", 1, "g", "downgrade", 160, back=180, token=5),
        *op("ga", 1, "g", "check", 190), *op("gb", 2, "g", "upgrade", 200, "EDEADLK"), *op("gb", 2, "g", "post", 220), *op("ga", 1, "g", "post", 230),
        *op("wa", 1, "w", "wait", 300, token=1), *op("wa", 1, "w", "get", 320, "ENODATA"), *op("wa", 1, "w", "set", 340, left="v1"),
        *op("wa", 1, "w", "get", 360, value="v1"), *op("wa", 1, "w", "post", 380),
        *op("wb", 2, "w", "wait", 400, token=2), *op("wb", 2, "w", "get", 420, value="v1"), *op("wb", 2, "w", "set", 430, left="v2"),
        *op("wb", 2, "w", "downgrade", 450, token=3), *op("wb", 2, "w", "post", 470),
        *op("wc", 3, "w", "wait", 480, token=4), *op("wc", 3, "w", "get", 500, value="v2"), *op("wc", 3, "w", "post", 520),
        *op("ia", 1, "i", "id", 400, id=number(7, 5)), *op("ib", 2, "i", "id", 400, id=number(8, 5)), *op("ia", 1, "i", "id", 420, id=number(7, 6)),
        *op("ia", 1, "i", "worker", 440, worker=7), *op("ib", 2, "i", "worker", 440, worker=8),
        *op("pa", 1, "p", "pool_open", 400, permits=2), *op("pb", 2, "p", "pool_try", 420, weight=2), *op("pc", 3, "p", "pool_try", 440, "EAGAIN", weight=1),
        *op("pc", 3, "p", "pool_timed", 460, back=500, weight=1), *op("pb", 2, "p", "pool_post", 480, back=510, weight=1),
        *op("pc", 3, "p", "pool_post", 520, weight=1), *op("pd", 1, "p", "pool_timed", 16 * SEC, weight=1),
        *op("pd", 1, "p", "pool_timed", 17 * SEC, "ETIMEDOUT", weight=1), *op("pd", 1, "p", "pool_dry", 18 * SEC),
        *op("ca", 1, "c", "latch_down", 400, back=440, weight=1), *op("cb", 2, "c", "latch_value", 410, value=1, count=2),
        *op("cc", 3, "c", "latch_wait", 420, back=470, count=2), *op("cb", 2, "c", "latch_down", 450, back=480, weight=1),
        *op("ca", 1, "c", "latch_value", 490, value=0, count=2),
        *op("qa", 3, "q", "cond_wait", 400, back=470, until=900), *op("qb", 2, "q", "cond_wait", 420, back=520, until=900),
        *op("qd", 1, "q", "cond_wait", 430, "ETIMEDOUT", back=480, until=460), *op("qc", 3, "q", "cond_signal", 450, since=445),
        *op("qc", 3, "q", "cond_broadcast", 490, since=485),
    ]


def good():
    return [
        {"t": 0, "who": "run", "op": "begin", "ttl": SEC, "bound": 5 * SEC},
        *op("a", 1, "x", "wait", 100, token=5), *op("a", 1, "x", "check", 200), *op("a", 1, "x", "write", 230),
        *op("a", 1, "x", "post", 300),
        *op("b", 2, "x", "wait", 150, back=320, token=6), *op("b", 2, "x", "write", 350), *op("b", 2, "x", "post", 400),
        *op("c", 3, "x", "trywait", 360, "EBUSY"),
        *op("d", 1, "s", "wait", 100, weight=2, limit=3, token=1), *op("d", 1, "s", "post", 500),
        *op("e", 2, "s", "wait", 110, weight=1, limit=3, token=2), *op("e", 2, "s", "post", 510),
        *op("f", 2, "r", "wait", 110, weight=1, token=2), *op("f", 2, "r", "post", 510),
        *op("g", 3, "r", "wait", 120, weight=1, token=2), *op("g", 3, "r", "post", 500),
        *op("u", 1, "v", "leader", 100, token=4), *op("u", 1, "v", "leader", 120, "ENOENT"), *op("u", 1, "v", "leader", 140, token=5),
        *op("p", 1, "b", "barrier", 100, back=300, parties=3), *op("q", 2, "b", "barrier", 150, "serial", back=310, parties=3),
        *op("r", 3, "b", "barrier", 200, back=290, parties=3), *op("p", 1, "b", "barrier", 320, "EPIPE", back=420, parties=3),
        *op("q", 2, "b", "barrier", 330, "ETIMEDOUT", back=410, parties=3),
        *kinds(),
        {"t": 1000, "who": "nemesis", "op": "cut", "ev": "call", "what": "cable 1", "hosts": [1]},
        {"t": 1010, "who": "nemesis", "op": "cut", "ev": "return", "what": "cable 1", "hosts": [1]},
        *op("h", 1, "x", "wait", 990, token=7), *op("h", 1, "x", "check", SEC, "ESTALE"), *op("h", 1, "x", "post", SEC + 50, "ESTALE"),
        *op("i", 2, "x", "wait", 995, back=2 * SEC, token=8), *op("i", 2, "x", "post", 2 * SEC + 10),
        {"t": 3 * SEC, "who": "nemesis", "op": "mend", "ev": "return", "what": "cable 1", "hosts": [1]},
        {"t": 4 * SEC, "who": "run", "op": "healed"},
        *op("k", 3, "x", "wait", 3 * SEC)[:1], {"t": 4 * SEC - 1, "who": "nemesis", "ev": "killed", "client": "k"},
        *op("j", 3, "x", "timedwait", 5 * SEC, back=9 * SEC, result="ETIMEDOUT"),
        {"t": 20 * SEC, "who": "run", "op": "end"},
    ]


TAKEN = [("x", 5), ("x", 6)]


def into(cases):                                       # a decorator: the function is one of these, by its title
    def titled(title):
        def add(fn):
            cases.append((title, fn))
            return fn
        return add
    return titled


BAD = []
bad = into(BAD)


def find(h, **what):
    return next(e for e in h if all(e.get(k) == v for k, v in what.items()))


@bad("two hold one lock")
def _(h):
    find(h, who="b", op="wait", ev="return")["t"] = 250


@bad("a holder's check is answered after another has it")
def _(h):
    h += op("h", 1, "x", "check", 2 * SEC + 5)[:1] + [dict(op("h", 1, "x", "check", 0)[1], t=2 * SEC + 8)]
    for e in [e for e in h if e["who"] == "h" and e["op"] in ("check", "post") and e.get("result", "ESTALE") == "ESTALE" and e["t"] < 2 * SEC]:
        h.remove(e)


@bad("more permits than there are")
def _(h):
    find(h, who="e", op="wait", ev="call")["weight"] = 2


@bad("a reader beside a writer")
def _(h):
    del find(h, who="f", op="wait", ev="call")["weight"]


@bad("a token that goes back")
def _(h):
    find(h, who="b", op="wait", ev="return")["token"] = 4


@bad("a term that goes back")
def _(h):
    find(h, who="u", op="leader", ev="return", token=5)["token"] = 3


@bad("a token twice")
def _(h):
    find(h, who="i", op="wait", ev="return")["token"] = 7


@bad("a lock lost though nothing was wrong")
def _(h):
    find(h, who="nemesis", op="cut", ev="call")["hosts"] = [2]


@bad("a wait that takes too long after all is whole")
def _(h):
    find(h, who="j", op="timedwait", ev="return")["t"] = 11 * SEC


@bad("a wait that never ends")
def _(h):
    h.remove(find(h, who="j", op="timedwait", ev="return"))


@bad("a wait that never ends, of another than the one who was killed")
def _(h):
    h.remove(find(h, who="j", op="timedwait", ev="return"))
    h.append({"t": 6 * SEC, "who": "nemesis", "ev": "killed", "client": "i"})


@bad("an error that the call has not")
def _(h):
    find(h, who="c", op="trywait", ev="return")["result"] = "EIO"


@bad("a post of what is not held")
def _(h):
    h += op("c", 3, "x", "post", 3 * SEC)


@bad("a return without a call")
def _(h):
    h.remove(find(h, who="a", op="check", ev="call"))


@bad("a run that broke off")
def _(h):
    h.remove(find(h, who="run", op="healed"))


@bad("a round with two serial parties")
def _(h):
    find(h, who="p", op="barrier", ev="return")["result"] = "serial"


@bad("a round with none")
def _(h):
    find(h, who="q", op="barrier", ev="return")["result"] = "ok"


@bad("a round that passes for some, and breaks for others")
def _(h):
    find(h, who="p", op="barrier", ev="return")["result"] = "EPIPE"


@bad("a round that passes without one of its parties")
def _(h):
    find(h, who="r", op="barrier", ev="call")["t"] = 305
    find(h, who="r", op="barrier", ev="return")["t"] = 308


@bad("a round that breaks though nobody gave up")
def _(h):
    for e in [e for e in h if e["who"] == "q" and e["op"] == "barrier" and 320 < e["t"] < 420]:
        h.remove(e)


@bad("a round that breaks for one who came after another had given up")
def _(h):
    for e, t in zip([e for e in h if e["who"] == "q" and e["op"] == "barrier" and 320 < e["t"] < 420], (312, 315)):
        e["t"] = t


# --- The kinds ---

def changed(title, what, **to):                        # one event of the good history says something else
    @bad(title)
    def _(h):
        find(h, **what).update(to)


changed("a reader beside one who has upgraded", dict(who="gb", name="g", op="wait", ev="return"), t=145)
changed("two readers who both upgrade", dict(who="gb", name="g", op="upgrade", ev="return"), result="ok", token=6)
changed("an upgrade with the token of an earlier writer", dict(who="ga", name="g", op="upgrade", ev="return"), result="EBUSY")
changed("a value that is not the last one", dict(who="wc", name="w", op="get", ev="return"), value="v1")
changed("a value that is gone though no host was lost", dict(who="wb", name="w", op="get", ev="return"), result="ENODATA")
changed("a value that nobody has set", dict(who="wa", name="w", op="get", ev="return", result="ENODATA"), result="ok", value="v2")
changed("a value of one who lost the lock before he gave it back", dict(who="wa", name="w", op="post", ev="return"), result="ESTALE")
changed("a holder who does not see what it has set itself", dict(who="wa", name="w", op="get", ev="return", result="ok"), result="ENODATA")
changed("one id for two", dict(who="ib", name="i", op="id", ev="return"), id=number(7, 6))
changed("an id below an earlier one of its number", dict(who="ia", name="i", op="id", ev="return", id=number(7, 6)), id=number(7, 4))
changed("more than a free semaphore has", dict(who="pb", name="p", op="pool_post", ev="call"), t=505)
changed("more at once than a free semaphore has", dict(who="pb", name="p", op="pool_try", ev="call"), weight=3)
changed("a permit that is gone", dict(who="pd", name="p", op="pool_timed", ev="return", result="ok"), result="ETIMEDOUT")
changed("a post that says an error", dict(who="pc", name="p", op="pool_post", ev="return"), result="EPERM")
changed("one who passes a latch too early", dict(who="cb", name="c", op="latch_down", ev="call"), t=475)
changed("a latch that has lost a count", dict(who="ca", name="c", op="latch_value", ev="return"), value=1)
changed("a latch that has counted twice", dict(who="cb", name="c", op="latch_value", ev="return"), value=0)
changed("one who sleeps on through a broadcast", dict(who="qb", name="q", op="cond_wait", ev="return"), result="ETIMEDOUT", t=910)
changed("a call that is no take and never ends", dict(who="ca", name="c", op="latch_value", ev="return"), t=19 * SEC)


@bad("two hosts with one number")
def _(h):
    find(h, who="ib", op="worker", ev="call")["t"] = 425
    find(h, who="ib", op="worker", ev="return").update(t=435, worker=7)


@bad("two hosts with one number, by the ids they give out")
def _(h):
    find(h, who="ib", op="id", ev="return").update(id=number(7, 1))
    find(h, who="ib", op="worker", ev="return").update(worker=7)


@bad("a signal that wakes nobody")
def _(h):
    find(h, who="qb", op="cond_wait", ev="call")["t"] = 465
    find(h, who="qa", op="cond_wait", ev="return").update(t=910, result="ETIMEDOUT")
    h[:] = [e for e in h if e.get("op") != "cond_broadcast"]


def fault(begin, end, host):
    return [{"t": begin, "who": "nemesis", "op": "freeze", "ev": "call", "what": "freeze 9", "hosts": [host]},
            {"t": end, "who": "nemesis", "op": "mend", "ev": "return", "what": "freeze 9", "hosts": [host]}]


EXPLAINED = []                                         # wrong without this fault, and right with it
explained = into(EXPLAINED)


@explained("a value that is lost with a host")
def _(h):
    find(h, who="wb", name="w", op="get", ev="return")["result"] = "ENODATA"
    return fault(390, 395, 1)


@explained("a permit that a host took with it")
def _(h):
    find(h, who="pd", name="p", op="pool_timed", ev="return", result="ok")["result"] = "ETIMEDOUT"
    return fault(530, 540, 3)


@explained("a permit that is there again as the host is lost that had given it away")
def _(h):
    find(h, who="pb", name="p", op="pool_try", ev="call")["weight"] = 3
    return fault(530, 540, 2)


# --- Want of a processor: what it explains, and what not ---

def starved(begin, end, hosts, what="daemon 1"):
    return {"t": end, "who": "canary", "op": "starved", "what": what, "hosts": hosts, "begin": begin}


def lost_at(h, t, good_at=None):
    """A hold that was good 300 ms before t, or at good_at, and is lost at t. Nothing is broken on its host."""
    find(h, who="nemesis", op="cut", ev="call")["hosts"] = [2]
    h[:] = [e for e in h if e["who"] not in ("h", "i")]
    good_at = good_at or t - 3 * SEC // 10
    h += [*op("z", 1, "y", "wait", 9 * SEC // 10, token=7), *op("z", 1, "y", "check", good_at), *op("z", 1, "y", "check", t, "ESTALE"),
          *op("z", 1, "y", "post", t + 50, "ESTALE")]


EXCUSED = []                                           # wrong without what the canary says, and right with it
excused = into(EXCUSED)


@excused("a lock lost while its daemon had no processor")
def _(h):
    lost_at(h, 15 * SEC // 10)
    h += [starved(12 * SEC // 10, 145 * SEC // 100, [1])]


@excused("a lock lost while a store had none, again and again")
def _(h):
    lost_at(h, 15 * SEC // 10)
    h += [starved(t * SEC // 100, (t + 5) * SEC // 100, [1, 2, 3], "store 0") for t in range(70, 130, 10)]


@excused("a lock lost long before its holder looks")
def _(h):
    lost_at(h, 39 * SEC // 10, SEC)
    h += [starved(2 * SEC, 24 * SEC // 10, [1])]


@excused("a round that breaks for want of a processor")
def _(h):
    for e in [e for e in h if e["who"] == "q" and e["op"] == "barrier" and 320 < e["t"] < 420]:
        h.remove(e)
    h += [starved(-SEC // 2, 400, [1])]


@excused("a post that is told ok behind the deadline of a daemon without a processor")
def _(h):
    h[:] = [e for e in h if e["who"] not in ("h", "i")]
    h += [*op("z", 1, "y", "wait", SEC, token=7), *op("z", 1, "y", "post", 29 * SEC // 10), *op("i", 2, "y", "wait", SEC, back=25 * SEC // 10, token=8),
          *op("i", 2, "y", "post", 4 * SEC), starved(2 * SEC, 3 * SEC, [1])]


@excused("a wait that takes too long after all is whole, by as long as somebody had no processor")
def _(h):
    find(h, who="j", op="timedwait", ev="return")["t"] = 11 * SEC
    h += [starved(6 * SEC, 65 * SEC // 10, [1]), starved(8 * SEC, 86 * SEC // 10, [2], "daemon 2")]


@bad("a wait that takes longer than that")
def _(h):
    find(h, who="j", op="timedwait", ev="return")["t"] = 11 * SEC
    h += [starved(6 * SEC, 65 * SEC // 10, [1]), starved(6 * SEC, 65 * SEC // 10, [2], "daemon 2"), starved(11 * SEC, 15 * SEC, [1])]


@bad("a lock lost more than a TTL after the last fault was over")
def _(h):
    lost_at(h, 54 * SEC // 10)
    find(h, who="nemesis", op="cut", ev="call")["hosts"] = [1]
    find(h, who="nemesis", op="cut", ev="return")["hosts"] = [1]


@bad("a lock lost while another's daemon had no processor")
def _(h):
    lost_at(h, 15 * SEC // 10)
    h += [starved(12 * SEC // 10, 145 * SEC // 100, [2, 3])]


@bad("a lock lost while its daemon had none for too short a time")
def _(h):
    lost_at(h, 15 * SEC // 10)
    h += [starved(12 * SEC // 10, 14 * SEC // 10, [1]), starved(13 * SEC // 10, 14 * SEC // 10, [1, 2, 3], "store 0")]


@bad("a lock lost more than a TTL after its daemon had none")
def _(h):
    lost_at(h, 28 * SEC // 10)
    h += [starved(SEC, 15 * SEC // 10, [1])]


@bad("a lock lost before its daemon had none")
def _(h):
    lost_at(h, 15 * SEC // 10)
    h += [starved(15 * SEC // 10, 25 * SEC // 10, [1])]


@bad("two hold one lock, for want of a processor")
def _(h):
    find(h, who="b", op="wait", ev="return")["t"] = 250
    h += [starved(-SEC, 150, [3])]


@bad("two hold one lock, by what a check was told, for want of a processor")
def _(h):
    h += op("h", 1, "x", "check", 2 * SEC + 5)[:1] + [dict(op("h", 1, "x", "check", 0)[1], t=2 * SEC + 8)]
    for e in [e for e in h if e["who"] == "h" and e["op"] in ("check", "post") and e.get("result", "ESTALE") == "ESTALE" and e["t"] < 2 * SEC]:
        h.remove(e)
    h += [starved(SEC, 2 * SEC, [1])]


def has_cause(title, without, wrong):                  # what is wrong without it, and with it: something, and nothing
    good = bool(without) and not wrong
    print("ok" if good else "not ok", title)
    for text in wrong or without[:1] or ["nothing is wrong without it either"]:
        print("#", text[:150])
    return good


def main():
    tests = 1
    wrong = check.History(good()).judge(TAKEN, ["wait ok", "nemesis cut", "x held"])
    print(f"{'not ok' if wrong else 'ok'} 1 - a good history passes")
    for text in wrong:
        print("#", text)
    failed = bool(wrong)
    cases = [(title, check.History, fn, TAKEN, []) for title, fn in BAD]
    cases += [("a write of an older holder that the resource takes", check.History, None, [("x", 6), ("x", 5)], []),
              ("a write that the resource does not have", check.History, None, [("x", 6)], []),
              ("a kind of fault that never happened", check.History, None, TAKEN, ["nemesis freeze"]),
              ("a sort of thing that was never held", check.History, None, TAKEN, ["y held"])]
    for title, make, spoil, taken, needs in cases:
        h = copy.deepcopy(good())
        if spoil:
            spoil(h)
        wrong = make(h).judge(taken, needs)
        tests += 1
        print(f"{'ok' if wrong else 'not ok'} {tests} - seen: {title}")
        if wrong:
            print("#", wrong[0][:150])
        failed |= not wrong
    for title, fn in EXCUSED:
        h = copy.deepcopy(good())
        fn(h)
        without = check.History([e for e in h if e["who"] != "canary"]).judge(TAKEN, [])
        tests += 1
        failed |= not has_cause(f"{tests} - has a cause: {title}", without, check.History(h).judge(TAKEN, []))
    for title, fn in EXPLAINED:
        h = copy.deepcopy(good())
        why = fn(h)
        without = check.History(copy.deepcopy(h)).judge(TAKEN, [])
        tests += 1
        failed |= not has_cause(f"{tests} - explained: {title}", without, check.History(h + why).judge(TAKEN, []))
    print(f"1..{tests}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
