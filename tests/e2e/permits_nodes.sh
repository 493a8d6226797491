#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# Permits on several nodes: who of those that wait is next, and how soon the posts of a free semaphore arrive.

. "${srctree:?}/tests/e2e/nodes.sh"

elector=${O:?}/tests/e2e/elector
tests=$O/tests/e2e
declare -A pid

# However busy the machine is: nobody loses his lease in here.
for i in 1 2 3; do configure $i n$i 20s; done
etcd_start
for i in 1 2 3; do start $i; done
until_true 60 there 1 3 && until_true 60 there 2 3 && until_true 60 there 3 3
ok $? 'three nodes find one another'

# --- priorities ---

# permit NODE WHO: waits for the only one.
permit() {
	: >"$dir/$2.in"
	DLOCK_RUN_DIR=$dir/$1/run "$elector" permit one 1 "$dir/$2.in" >"$dir/$2" 2>>"$dir/err" &
	pid[$2]=$!
}
says() { echo "$2" >>"$dir/$1.in"; }
gives_back() { says "$1" .; wait "${pid[$1]}"; }
has() { grep -qs ^has "$dir/$1"; }
waits() { on "$1" show --kind semaphore --json one 2>/dev/null | grep -q "\"waiterCount\": *$2"; }
permit 1 own
until_true 30 has own
PRIORITY=3 permit 2 less
until_true 30 waits 2 1
PRIORITY=9 permit 3 most
until_true 30 waits 3 1
permit 2 last
until_true 30 waits 2 2
sleep 1
gives_back own
until_true 30 has most && ! has less && ! has last
ok $? 'of those who wait for a permit on several nodes the one with the highest priority is next'
PRIORITY=7 permit 1 raised
until_true 30 waits 1 1
PRIORITY=8 permit 2 higher
until_true 30 waits 2 3
sleep 1
gives_back most
until_true 30 has higher && ! has less && ! has raised && ! has last
ok $? "one that comes later, behind others on its node, raises that node's claim, and comes before them"
for who in higher less raised last; do says $who .; done
for who in higher less raised last; do wait "${pid[$who]}"; done

# --- posts that travel ---

at() { DLOCK_RUN_DIR=$dir/$1/run timeout --foreground 60 "$tests/sem_tool" "${@:2}" >>"$dir/out"; }
on 2 run -n warm true && on 3 run -n warm true
puts() { for i in $(seq 20); do on 3 put measure "$i" >/dev/null || return 1; done; }
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
	[ $travelled -lt $((4 * written)) ]
}
at 2 create /there 0 && at 3 create /back 0
travels || travels || travels
ok $? 'a post for one who waits on another node is there as soon as the store allows'
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
