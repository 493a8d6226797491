#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# Two daemons of one identity. On one machine the second one does not start, stopped or not, lock file or not: both would write
# to the same memory. A copy of everything is another node. And a daemon whose session somebody else goes on with, ends, once.

. "${srctree:?}/tests/e2e/nodes.sh"

there_both() { there 1 2 && there 2 2; }
gone() { [ ! -d "/proc/$1" ] || grep -qs '^State:.Z' "/proc/$1/status"; }
session() { on 1 status --json | grep -o '"session": *"[0-9a-f]*"' | grep -o '[0-9a-f]\{16\}'; }

for i in 1 2; do configure $i n$i 14s; done
etcd_start
for i in 1 2; do start $i; done
until_true 100 there_both
ok $? "two nodes are a cluster"

hold 1 held

# --- the same directories ---

# second: another daemon on node 1's directories, on a port that is free; its exit status
second() {
	sed "s/^Listen=.*/Listen=$host:$((base + 4))/" "$dir/1/dlockd.conf" >"$dir/second.conf"
	timeout 60 "$DLOCKD" --dir "$dir/1" --config "$dir/second.conf" >"$dir/second" 2>&1
}

freeze "${daemon[1]}"
second
[ $? = 75 ] && grep -q 'another daemon, pid' "$dir/second"
ok $? "a second daemon is refused, though the first is stopped"
rm "$dir/1/state/lock"
second
[ $? = 75 ] && grep -q 'another daemon uses this directory' "$dir/second"
ok $? "... and though its lock was removed"
kill -CONT "${daemon[1]}"
until_true 100 there_both && kill -0 $held && on 1 run other true && ! on 2 run -n held true && ! said 1 'all that was held'
ok $? "the first goes on, and has lost nothing"

# --- a copy ---

cp -a "$dir/1" "$dir/3"
sed -i "s/Name=n1/Name=n3/; s/^Listen=.*/Listen=$host:$((base + 3))/" "$dir/3/dlockd.conf"
: >"$dir/3/log"
start 3
until_true 100 there 3 3 && said 3 'the state directory is a copy' && ! said 3 'the session goes on' && kill -0 $held
ok $? "a copy with all its shared memory is another node, and says so"
kill -TERM "${daemon[3]}"
wait "${daemon[3]}"
unset 'daemon[3]'

# --- somebody goes on with the session ---

was=$(session)
python3 -B "$srctree/tests/e2e/forge.py" "http://$host:$((base + 10))" /dlock/test/ usurp 9 "$was"
until_true 100 gone "${daemon[1]}"
wait "${daemon[1]}"
code=$?
[ $code = 70 ] && said 1 "superseded: a later daemon has taken over this node's session"
ok $? "a daemon that finds a later incarnation in its beat says that it is superseded, and ends ($code)"
wait $held
code=$?
[ $code = 75 ]
ok $? "what it held is lost, and dlock run ends what it runs ($code)"
start 1
until_true 100 there_both && [ "$(session)" != "$was" ] && on 2 run held true
ok $? "started anew it has another session, and does not end again"

echo "1..$n"
exit $failed
