#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# Permits on several nodes: who of those that wait is next, and that the posts of a free semaphore arrive while others wait. How soon
# is told; that nobody holds them up is tests/unit/test_pool, since here it depends on what else the machine does.

. "${srctree:?}/tests/e2e/nodes.sh"

elector=${O:?}/tests/e2e/elector
tests=$O/tests/e2e
declare -A pid

# However busy the machine is: nobody loses his lease in here.
three_nodes 20s 60
ok $? 'three nodes find one another'

# --- priorities ---

# permit NODE WHO: waits for the only one. Each attempt has a semaphore of its own.
attempt=0
permit() {
	rm -f "$dir/$2"
	: >"$dir/$2.in"
	DLOCK_RUN_DIR=$dir/$1/run "$elector" permit one$attempt 1 "$dir/$2.in" >"$dir/$2" 2>>"$dir/err" &
	pid[$2]=$!
}
says() { echo "$2" >>"$dir/$1.in"; }
gives_back() { says "$1" .; wait "${pid[$1]}"; }
has() { grep -qs ^has "$dir/$1"; }
waits() { on "$1" show --kind semaphore --json one$attempt 2>/dev/null | grep -q "\"waiterCount\": *$2"; }
is_next() {      # is_next WHO OTHERS...
	until_true 60 has "$1" || return 1
	for other in "${@:2}"; do ! has "$other" || return 1; done
}
# What waits here may not have been heard of elsewhere yet: on a machine that stands still that takes longer.
in_order() {
	attempt=$((attempt + 1))
	permit 1 own
	until_true 60 has own || return 1
	PRIORITY=3 permit 2 less
	until_true 60 waits 2 1 || return 1
	PRIORITY=9 permit 3 most
	until_true 60 waits 3 1 || return 1
	permit 2 last
	until_true 60 waits 2 2 || return 1
	sleep $attempt
	gives_back own
	is_next most less last || return 1
	PRIORITY=7 permit 1 higher
	until_true 60 waits 1 1 || return 1
	PRIORITY=8 permit 2 raised
	until_true 60 waits 2 3 || return 1
	sleep $attempt
	gives_back most
	is_next raised less higher last
}
in_order || in_order || in_order || in_order
ok $? 'the node where the highest priority waits for a permit is next, also where it has come later, behind others'
kill "${pid[@]}" 2>/dev/null

# --- fewer permits ---

crew() {         # crew NODE [NAME PERMITS]
	: >"$dir/crew$1.in"
	DLOCK_RUN_DIR=$dir/$1/run "$elector" permits "${2:-fewer}" "${3:-3}" "$dir/crew$1.in" >"$dir/crew$1" 2>>"$dir/err" &
	pid[crew$1]=$!
}
told() { [ "$(wc -l <"$dir/crew$1")" -gt "$2" ]; }
# asks NODE WHAT: what came of it
asks() {
	local before
	before=$(wc -l <"$dir/crew$1")
	says "crew$1" "$2"
	until_true 60 told "$1" "$before" && tail -n 1 "$dir/crew$1"
}
# At a time, of all three; given back. Whoever has a permit of before may take it once more until it is told.
at_a_time() {
	local got=""
	for i in 1 2 3; do [ "$(asks $i t)" != 0 ] || got="$got $i"; done
	for i in $got; do asks $i p >/dev/null; done
	set -- "$1" $got
	[ $(($# - 1)) = "$1" ]
}
for i in 1 2 3; do crew $i; done
until_true 60 at_a_time 3 && [ "$(asks 1 'r 1')" = 0 ] && until_true 60 at_a_time 1
ok $? 'fewer permits than the nodes have cached: though nobody waits, no more than there are can be had'
has_one() { [ "$(asks "$1" t)" = 0 ]; }
until_true 60 has_one 2 && ! has_one 1 && ! has_one 3 && [ "$(asks 3 'r 3')" = 0 ] && until_true 60 has_one 1 && until_true 60 has_one 3
ok $? '... and more again'

# Each has one of three. stands NODE WHAT: from here on it waits; comes NODE: what came of that.
declare -A stood
sem=fewer
crew_waits() { on "$1" show --kind semaphore --json $sem 2>/dev/null | grep -q '"waiterCount": *1'; }
stands() {
	stood[$1]=$(wc -l <"$dir/crew$1")
	says "crew$1" "$2"
	until_true 60 crew_waits "$1"
}
comes() { until_true 60 told "$1" "${stood[$1]}" && tail -n 1 "$dir/crew$1"; }
nothing_yet() { ! told "$1" "${stood[$1]}"; }
stands 1 'w 1' && sleep 0.2 && nothing_yet 1 && [ "$(asks 2 'r 4')" = 0 ] && [ "$(comes 1)" = 0 ]
ok $? 'who waits on one node has a permit when another has made them more'
stands 3 'w 3' && sleep 0.2 && nothing_yet 3 && [ "$(asks 2 'r 2')" = 0 ] && [ "$(comes 3)" = 22 ] # EINVAL
ok $? '... and is told when it waits for more than there are left'
# Each has one of four; node 3 waits for three more, and behind it node 1 for one.
[ "$(asks 2 'r 4')" = 0 ] && [ "$(asks 1 p)" = 0 ] && stands 3 'w 3' && sleep 0.5 && stands 1 'w 1' && sleep 0.5 && nothing_yet 3 &&
	nothing_yet 1 && [ "$(asks 2 p)" = 0 ] && [ "$(asks 2 t)" != 0 ] && sleep 0.2 && nothing_yet 3 && nothing_yet 1
ok $? 'nobody overtakes one who waits for many'
kill "${pid[crew1]}" 2>/dev/null # and what it held comes back
[ "$(comes 3)" = 0 ]
ok $? '... who has them as soon as they are there'
kill "${pid[crew2]}" "${pid[crew3]}"

# Nodes 1 and 2 have it open, and have had none of it, when node 3 makes four of the one that there was, and has them all.
sem=more
for i in 1 2 3; do crew $i more 1; done
opened() { on "$1" show --kind semaphore --json more 2>/dev/null | grep -q '"opens": *1'; }
for i in 1 2 3; do until_true 60 opened $i; done
[ "$(asks 3 'r 4')" = 0 ] && [ "$(asks 3 'w 4')" = 0 ] && stands 1 'w 4' && [ "$(asks 2 'w 5')" = 22 ] && sleep 0.2 && nothing_yet 1 &&
	for i in 1 2 3 4; do asks 3 p >/dev/null; done && [ "$(comes 1)" = 0 ]
ok $? 'a node that had nothing of it when others made them more waits for as many as there are now, and for no more'
for i in 1 2 3 4; do asks 1 p >/dev/null; done
[ "$(asks 3 'r 6')" = 0 ] && [ "$(asks 2 'w 6')" = 0 ]
ok $? '... and has them'
kill "${pid[crew1]}" "${pid[crew2]}" "${pid[crew3]}"

# --- posts that travel ---

at() { DLOCK_RUN_DIR=$dir/$1/run timeout --foreground 200 "$tests/sem_tool" "${@:2}" >>"$dir/out"; }
on 2 run -n warm true && on 3 run -n warm true
puts() { for i in $(seq 20); do until_true 100 on 3 put measure "$i" >/dev/null || return 1; done; }
# Twenty posts there, for who waits on two nodes, and twenty back, against twenty writes to the store by a command each.
travels() {
	local from written travelled

	DLOCK_RUN_DIR=$dir/1/run "$tests/sem_tool" pongs /there /back & pid[1]=$!
	DLOCK_RUN_DIR=$dir/2/run "$tests/sem_tool" pongs /there /back & pid[2]=$!
	sleep 1.5
	from=$(us)
	puts || return 1
	written=$(($(us) - from))
	from=$(us)
	at 3 ping /there /back || return 1
	travelled=$(($(us) - from))
	kill "${pid[1]}" "${pid[2]}"
	wait "${pid[1]}" "${pid[2]}"
	echo "# a post to the other node takes $((travelled / 40)) us, a write to the store by a command $((written / 20))"
}
at 2 create /there 0 && at 3 create /back 0
travels
ok $? 'posts reach who waits on two other nodes, and others come back'
at 2 create /crowd 0 && at 3 trywait /crowd
at 1 wait /crowd & pid[1]=$!
at 2 wait /crowd & pid[2]=$!
at 3 wait /crowd & pid[3]=$!
sleep 1
at 1 post /crowd && at 2 post /crowd && at 3 post /crowd && wait "${pid[1]}" && wait "${pid[2]}" && wait "${pid[3]}" &&
	! at 1 trywait /crowd && ! at 2 trywait /crowd
ok $? 'who waits on three nodes gets what is posted on them, and no more is there'

echo "1..$n"
exit $failed
