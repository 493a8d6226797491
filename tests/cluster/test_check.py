#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The judge of histories, judged: a good history passes, and each way to spoil it is seen."""
import copy
import sys

sys.dont_write_bytecode = True
import check

SEC = 10**9


def op(who, host, name, what, t, result="ok", back=None, **more):
    call = {k: more.pop(k) for k in ("weight", "limit", "parties") if k in more}
    return [
        {"t": t, "who": who, "host": host, "name": name, "op": what, "ev": "call", **call},
        {"t": t + 10 if back is None else back, "who": who, "host": host, "name": name, "op": what, "ev": "return",
         "result": result, **more},
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
BAD = []


def bad(title):
    def add(fn):
        BAD.append((title, fn))
        return fn
    return add


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


EXCUSED = []


def excused(title):                                    # wrong without what the canary says, and right with it
    def add(fn):
        EXCUSED.append((title, fn))
        return fn
    return add


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
        wrong = check.History(h).judge(TAKEN, [])
        tests += 1
        print(f"{'ok' if without and not wrong else 'not ok'} {tests} - has a cause: {title}")
        for text in wrong or without[:1] or ["nothing is wrong without it either"]:
            print("#", text[:150])
        failed |= bool(wrong) or not without
    print(f"1..{tests}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
