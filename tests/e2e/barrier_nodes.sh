#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# Barriers on three nodes: rounds, votes, who gives up, who dies, daemons that are killed and come back in the middle of a round, and
# nodes that are lost.

. "${srctree:?}/tests/e2e/nodes.sh"
party=$O/tests/e2e/barrier_party
ttl=6

# come NODE FILE ARGUMENTS...: a party that says what came of it in $dir/FILE; $! is its pid.
come() { DLOCK_RUN_DIR=$dir/$1/run timeout --foreground 100 "$party" "${@:3}" >"$dir/$2" 2>&1 & }

# arrived NODE NAME: one of it waits there, and who counts the parties knows.
arrived() { until_true 100 wait_there "$1" "$2" 1 && caught_up "$1" "$2"; }

# said_all FILE...: what they say, in order of the files.
said_all() { (cd "$dir" && cat "$@" | tr '\n' ' '); }
all_there() { there "$1" 3; }
passed() { echo "$*" | tr ' ' '\n' | sort | tr '\n' ' '; }

three_nodes ${ttl}s
ok $? "three nodes find one another"

jobs=
for k in 1 2 3 4 5 6 7 8; do for i in 1 2 3; do come $i r$i$k b/rounds 24 wait 100; jobs="$jobs $!"; done; done
wait $jobs
sum=0
for k in 1 2 3 4 5 6 7 8; do for i in 1 2 3; do sum=$((sum + $(cat "$dir/r$i$k"))); done; done
[ "$sum" = 100 ]
ok $? "a hundred rounds of 24 parties on three nodes, one serial party in each ($sum)"

# Four come to a barrier of three; the one that is too many may be on any node.
some_ended() { [ "$(cat "$dir"/m? | grep -c .)" = "$1" ]; }
for i in 1 2 3 4; do come $((i % 3 + 1)) m$i b/many 3 wait; done
until_true 100 some_ended 3 && sleep 0.3 && some_ended 3 && [ "$(passed $(said_all m1 m2 m3 m4))" = "passed passed serial " ]
one=$?
come 1 m5 b/many 3 wait; come 3 m6 b/many 3 wait
until_true 100 some_ended 6 && [ $one = 0 ] && [ "$(passed $(said_all m1 m2 m3 m4 m5 m6))" = "passed passed passed passed serial serial " ]
ok $? "who is too many waits for the next round: $(said_all m1 m2 m3 m4 m5 m6)"

come 1 a b/vote 3 yes; jobs=$!; come 2 b b/vote 3 no; jobs="$jobs $!"; come 3 c b/vote 3 yes; jobs="$jobs $!"
wait $jobs
come 1 d b/vote 3 yes; jobs=$!; come 2 e b/vote 3 yes; jobs="$jobs $!"; come 3 f b/vote 3 yes; jobs="$jobs $!"
wait $jobs
[ "$(said_all a b c d e f)" = "some some some all all all " ]
ok $? "a vote has one answer for all: $(said_all a b c d e f)"

come 1 a b/time 3 wait; one=$!
arrived 1 b/time
gives_up() {     # Again, where his time was over before anybody knew that he had come.
	come 2 b b/time 3 timed 500
	wait $!
	until_true 2 test -s "$dir/a"
}
until_true 100 gives_up
wait $one
[ "$(said_all a b)" = "EPIPE ETIMEDOUT " ]
ok $? "who gives up breaks the round for a party on another node: $(said_all a b)"

come 1 a b/death 3 wait; one=$!
come 2 b b/death 3 wait; two=$!
arrived 1 b/death && arrived 2 b/death
kill -KILL $(pgrep -P $two)
wait $two 2>/dev/null
wait $one
[ "$(said_all a)" = "EPIPE " ]
ok $? "so does the death of one: $(said_all a)"
jobs=
for i in 1 2 3; do come $i n$i b/death 3 wait; jobs="$jobs $!"; done
wait $jobs
[ "$(passed $(said_all n1 n2 n3))" = "passed passed serial " ]
ok $? "and the next round works: $(said_all n1 n2 n3)"

come 1 a b/reset 3 wait; one=$!
come 2 b b/reset 3 wait; two=$!
arrived 1 b/reset && arrived 2 b/reset
come 3 c b/reset 3 reset
wait $one $two $!
[ "$(said_all a b c)" = "EPIPE EPIPE passed " ]
ok $? "and a reset: $(said_all a b c)"

come 1 a b/other 3 wait; one=$!
arrived 1 b/other
come 2 b b/other 4 wait; two=$!
wait $two
come 2 c b/other 3 wait; come 3 d b/other 3 wait
wait $one
[ "$(said_all b)" = "EINVAL " ]
ok $? "who says another number of parties than those who are there is sent away: $(said_all a b)"

# --- daemons ---

good=0
for i in 1 2 3; do
	come 1 a b/restart$i 4 wait; jobs=$!
	come 2 b b/restart$i 4 wait; jobs="$jobs $!"
	come 3 c b/restart$i 4 wait; jobs="$jobs $!"
	for k in 1 2 3; do arrived $k b/restart$i; done
	kill -KILL "${daemon[$i]}"
	wait "${daemon[$i]}" 2>/dev/null
	start $i
	come $((i % 3 + 1)) d b/restart$i 4 wait; jobs="$jobs $!"
	wait $jobs
	[ "$(passed $(said_all a b c d))" = "passed passed passed serial " ] && good=$((good + 1))
	echo "# $(said_all a b c d)"
	until_true 100 all_there $i
done
[ $good = 3 ]
ok $? "each daemon is killed and started again in the middle of a round, and it passes"

come 1 a b/lost 3 wait; one=$!
come 2 b b/lost 3 wait; two=$!
arrived 1 b/lost && arrived 2 b/lost
freeze "${daemon[2]}"
begin=$(us)
wait $one
took=$((($(us) - begin) / 1000))
kill -CONT "${daemon[2]}"
wait $two
[ "$(said_all a)" = "EPIPE " ] && { [ "$(said_all b)" = "EPIPE " ] || [ "$(said_all b)" = "ESTALE " ]; }
ok $? "a node that is lost breaks the round, after $took ms; and its party hears so, or that nobody knows: $(said_all a b)"
until_true 100 all_there 1 && until_true 100 all_there 2
jobs=
for i in 1 2 3; do come $i n$i b/lost 3 wait; jobs="$jobs $!"; done
wait $jobs
[ "$(passed $(said_all n1 n2 n3))" = "passed passed serial " ]
ok $? "and the next round works: $(said_all n1 n2 n3)"

echo "1..$n"
exit $failed
