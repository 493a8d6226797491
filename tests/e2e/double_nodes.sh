#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# Double barriers on three nodes: who dies inside, daemons that are killed and come back while parties are inside, and a node that is lost.
# Where a node has lapsed though nobody meant it to, as on a machine that is busy with other things, a story is told again.

. "${srctree:?}/tests/e2e/nodes.sh"
party=$O/tests/e2e/barrier_party
ttl=6 story=0

# come NODE FILE ARGUMENTS...: a party that says what came of it in $dir/FILE; $! is its pid.
come() { DLOCK_RUN_DIR=$dir/$1/run timeout --foreground 300 "$party" "${@:3}" >"$dir/$2" 2>&1 & }
all_there() { there "$1" 3; }
has_said() { [ "$(wc -l <"$dir/$1")" -ge "$2" ]; }
sorted() { echo "$*" | tr ' ' '\n' | sort | tr '\n' ' '; }
lapses() { cat "$dir"/?/log | grep -c 'its time is over'; }

# One on each node enters, and says so in $dir/in1 to in3; it leaves when there is $dir/leave1 to leave3. Their pids: in[1] to in[3].
declare -A in
inside() {
	rm -f "$dir"/in? "$dir"/leave?
	for i in 1 2 3; do come $i in$i d/$story 3 inside "$dir/leave$i"; in[$i]=$!; done
	for i in 1 2 3; do until_true 100 has_said in$i 1; done
	head -qn 1 "$dir"/in? | tr '\n' ' ' >"$dir/entered"
	[ "$(sorted $(cat "$dir/entered"))" = "passed passed serial " ]
}

# what_became I...: what they were told as they left
what_became() { for i in "$@"; do tail -n 1 "$dir/in$i"; done | tr '\n' ' '; }

cycle_works() {
	inside && touch "$dir"/leave{1,2,3} && wait "${in[@]}"
	echo "# the next ones: $(cat "$dir/entered")- $(what_became 1 2 3)"
	[ "$(sorted $(what_became 1 2 3))" = "passed passed serial " ]
}

# steady COMMAND
steady() {
	local before try

	for try in 1 2 3 4 5; do
		story=$((story + 1)) before=$(lapses)
		"$@" && return
		touch "$dir"/leave{1,2,3}
		[ "$(lapses)" = "$before" ] && return 1
		echo "# a node has lapsed: $(what_became 1 2 3)"
		for i in 1 2 3; do until_true 100 all_there $i; done
	done
	return 1
}

cycles() {
	local jobs= sum=0

	for k in 1 2 3 4; do for i in 1 2 3; do come $i d$i$k d/$story 12 double 20; jobs="$jobs $!"; done; done
	wait $jobs
	for k in 1 2 3 4; do for i in 1 2 3; do sum=$((sum + $(cat "$dir/d$i$k"))); done; done
	[ "$sum" = 40 ]
}

# One waits to leave already, another is inside yet.
one_dies() {
	inside || return
	touch "$dir/leave1"
	kill -KILL $(pgrep -P ${in[2]})
	wait ${in[1]}
	touch "$dir/leave3"
	wait ${in[3]}
	[ "$(what_became 1 3)" = "EPIPE EPIPE " ] && cycle_works
}

daemons_restart() {
	inside || return
	touch "$dir/leave1"
	for i in 1 2 3; do
		kill -KILL "${daemon[$i]}"
		wait "${daemon[$i]}" 2>/dev/null
		start $i
		until_true 100 all_there $i
	done
	touch "$dir/leave2"
	sleep 0.3
	has_said in1 2 || has_said in2 2 && return 1
	touch "$dir/leave3"
	wait "${in[@]}"
	[ "$(sorted $(what_became 1 2 3))" = "passed passed serial " ]
}

# It lapses, and comes back.
node_is_lost() {
	local own

	inside || return
	touch "$dir/leave1"
	freeze "${daemon[2]}"
	wait ${in[1]}
	kill -CONT "${daemon[2]}"
	touch "$dir"/leave{2,3}
	wait "${in[@]}"
	own=$(what_became 2)
	echo "# $(what_became 1 2 3)"
	for i in 1 2 3; do until_true 100 all_there $i; done
	[ "$(what_became 1 3)" = "EPIPE EPIPE " ] && { [ "$own" = "EPIPE " ] || [ "$own" = "ESTALE " ]; }
}

three_nodes ${ttl}s
ok $? "three nodes find one another"
steady cycles
ok $? "twelve parties on three nodes enter and leave twenty times, one serial party each time"
steady one_dies
ok $? "one dies inside: EPIPE for who waits to leave, and for who is inside yet, on other nodes; the next ones enter and leave"
steady daemons_restart
ok $? "each daemon is killed and started again while they are inside: they leave together ($(what_became 1 2 3))"
node_is_lost
ok $? "a node is lost: EPIPE for those inside on the others; and its own hears so, or that nobody knows"
steady cycle_works
ok $? "the next ones enter and leave"

echo "1..$n"
exit $failed
