#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Writes into an etcd what no daemon would: forge.py http://HOST:PORT PREFIX KIND COUNT [SEED]

The kinds are functions below; each yields keys, without the prefix, and values.
"""
import base64
import json
import struct
import sys
import urllib.request


def member(session, node, name, address, flags=1):
    return struct.pack("<BBHBBHQQ", 2, flags, len(address), len(name), 0, 0, session, node) + address + name


def beat(session, incarnation=1, counter=1, state=0):
    return struct.pack("<BBHIQQ", 1, state, 0, incarnation, session, counter)


def ids(count, seed):
    for i in range(count):
        yield (seed << 48) + i * 0x9e3779b97f4a7c15 % (1 << 47) + 1


def members(count, seed):
    """Nodes that are not there: a record of a member, and no beat."""
    for i, s in enumerate(ids(count, seed)):
        yield b"member/%016x" % s, member(s, s, b"ghost%d" % i, b"127.0.0.1:9")


def dead(count, seed):
    """The same, with a beat that nobody renews."""
    for i, s in enumerate(ids(count, seed)):
        yield b"beat/%016x" % s, beat(s)
        yield b"member/%016x" % s, member(s, s, b"dead%d" % i, b"127.0.0.1:9")


def named(count, seed):
    """The same as members, at hosts whose names lead nowhere."""
    for i, s in enumerate(ids(count, seed)):
        yield b"member/%016x" % s, member(s, s, b"lost%d" % i, b"host-%d.invalid:7420" % i)


def beats(count, seed):
    """Beats, and no members."""
    for s in ids(count, seed):
        yield b"beat/%016x" % s, beat(s)


def garbage(count, seed):
    """Keys that a session could have, and values that are no records: of later versions, cut, empty, not text."""
    values = [b"", b"x", b"\x03" + bytes(40), bytes(range(256)), member(1, 1, b"\xff\n\x1b[2J", b"a b"), b"\x02" * 24]
    for i, s in enumerate(ids(count, seed)):
        yield (b"member/%016x", b"beat/%016x", b"cut/%016x")[i % 3] % s, values[i // 3 % len(values)]


def odd(count, seed):
    """Keys that nobody could have: short, long, of odd bytes, of capital letters."""
    keys = [b"", b"x", b"%s/../..", b"ABCDEF0123456789", b"0123456789abcdef0", b"\xff\xfe\x01\n\x1b[2J", b"0123456789abcde\n", b"\xc3\x28" * 100]
    for i, s in enumerate(ids(count, seed)):
        prefix = (b"member/", b"beat/", b"cut/", b"thing/\x01")[i // len(keys) % 4]
        yield prefix + keys[i % len(keys)], beat(s) if prefix == b"beat/" else member(s, s, b"odd", b"127.0.0.1:9")


def doubles(count, seed):
    """Records of the session seed, each under another session's key."""
    for s in ids(count, 77):
        yield b"beat/%016x" % s, beat(seed)
        yield b"member/%016x" % s, member(seed, seed, b"double", b"127.0.0.1:9")


def usurp(count, seed):
    """A later daemon of the session seed: its beat is of incarnation count."""
    yield b"beat/%016x" % seed, beat(seed, incarnation=count, counter=1 << 32)


def alive(count, seed):
    """A member of the session seed that masters nothing, and its beat of that number."""
    yield b"beat/%016x" % seed, beat(seed, counter=count)
    if count == 1:
        yield b"member/%016x" % seed, member(seed, seed, b"mallory", b"127.0.0.1:9", flags=0)


def call(url, what, body):
    request = urllib.request.Request(url + what, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=60))


def text(b):
    return base64.b64encode(b).decode()


# A hundred records a transaction.
def main(url, prefix, kind, count, seed="1"):
    records = list(dict(globals()[kind](int(count), int(seed, 16))).items())
    for i in range(0, len(records), 100):
        call(url, "/v3/kv/txn", {"success": [{"requestPut": {"key": text(prefix.encode() + k), "value": text(v)}} for k, v in records[i:i + 100]]})


main(*sys.argv[1:])
