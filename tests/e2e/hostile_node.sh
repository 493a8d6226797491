#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# A member that has been taken over by somebody, and masters nothing: it says whatever it likes to the others, as fast as they take it,
# while hundreds of connections are opened and left. Nobody comes to harm, memory has an end, and no lock is held twice among
# the others; what it asks for in its own name it may get, and keep (docs/OPERATIONS.md).

. "${srctree:?}/tests/e2e/nodes.sh"
own=00000000000bad00 seed=$((RANDOM + 1))

session() { on "$1" status --json | grep -o '"session": *"[0-9a-f]*"' | grep -o '[0-9a-f]\{16\}'; }
rss() { awk '/VmRSS/ {print int($2 / 1024)}' "/proc/${daemon[$1]}/status"; }
forge() { python3 -B "$srctree/tests/e2e/forge.py" "http://$host:$((base + 10))" /dlock/test/ "$@"; }

three_nodes 6s
ok $? "three nodes are a cluster"

# It keeps its session as a node does.
( for ((b = 1; ; b++)); do forge alive "$b" "$own"; sleep 1; done ) &
beats=$!
listed() { on 1 members 2>/dev/null | grep -q 'mallory'; }
until_true 100 listed
listed=$?
args=
for i in 1 2 3; do args="$args $(session $i) $host:$((base + i))"; done
"${O:?}/tests/e2e/hostile_peer" "$seed" 7 $own $args >"$dir/hostile" 2>"$dir/hostile.err" &
hostile=$!
python3 -c "
import socket, time
held = []
for i in range(400):
    s = socket.socket()
    s.settimeout(1)
    try:
        s.connect(('$host', $base + 1 + i % 3))
        held.append(s)
    except OSError:
        pass
time.sleep(5)" &
ok $listed "a fourth is a member, by credentials that are good (seed $seed)"

# pass_around TIMES SECONDS: each node adds one so often, or until the lock has been out of reach for so long: the hostile one may have
# it. $passes: how often it was done. One that was cut short may have been counted too; two at a time would be counted once.
pass_around() {
	local i k jobs=
	echo 0 >"$dir/count"
	: >"$dir/passes.1" && : >"$dir/passes.2" && : >"$dir/passes.3"
	for i in 1 2 3; do
		( for ((k = 0; k < $1; k++)); do
			on $i run -w "$2" count -- bash -c 'read v <"$0"; sleep 0.01; echo $((v + 1)) >"$0"' "$dir/count" 2>/dev/null || break
			echo >>"$dir/passes.$i"
		done ) &
		jobs="$jobs $!"
	done
	wait $jobs
	passes=$(cat "$dir"/passes.? | wc -l)
}
pass_around 25 5
[ "$(cat "$dir/count")" -ge "$passes" ]
ok $? "while it says what it likes no lock that the others pass around is held twice ($(cat "$dir/count") counted, $passes passes)"
wait $hostile
ok $? "it has said a great deal ($(cat "$dir/hostile"))"
kill -0 "${daemon[1]}" "${daemon[2]}" "${daemon[3]}"
ok $? "nobody has died of it"
[ "$(rss 1)" -lt 200 ] && [ "$(rss 2)" -lt 200 ] && [ "$(rss 3)" -lt 200 ]
ok $? "nor grown without end ($(rss 1), $(rss 2), $(rss 3) MB)"
kill $beats
off() { ! listed; }
until_true 100 off && until_true 100 there 1 3 && on 2 run junk-1 true && on 3 run junk-2 true
ok $? "when its session has ended, what it held is free again"
pass_around 10 100
[ "$passes" = 30 ] && [ "$(cat "$dir/count")" = 30 ]
ok $? "... and the others go on as ever ($(cat "$dir/count") counted, $passes passes)"

echo "1..$n"
exit $failed
