#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# Three daemons on loopback ports, one etcd beneath them: locks across nodes, hand-overs, restarts, and what becomes of
# holders whose node is lost. Hosts of their own, and networks that break, are in tests/cluster.

. "${srctree:?}/tests/e2e/nodes.sh"
ttl=6

four() { [ "$(members 1)" = 4 ]; }
all_there() { there "$1" 3; }

# holder NODE NAME FILE: runs until it is ended; FILE has the last moment at which it lived, in microseconds.
holder() {
	rm -f "$3"
	DLOCK_RUN_DIR=$dir/$1/run "$dlock" run "$2" -- bash -c 'echo $DLOCK_TOKEN >$0.token; trap "" TERM; while :; do echo "${EPOCHREALTIME/[.,]/}" >$0.new; mv $0.new $0; done' \
		"$3" 2>>"$dir/err" &
	held=$!
	until_true 100 test -s "$3"
}

taker() { on "$1" run "$2" -- bash -c 'echo "${EPOCHREALTIME/[.,]/}" >"$0"; echo $DLOCK_TOKEN >$0.token' "$3"; }

# margin HOLDER TAKER: the holder was gone before the taker began. Says by how much.
margin() {
	local us=$(($(cat "$2") - $(cat "$1")))
	echo "# ended $((us / 1000)) ms before the next began"
	[ "$us" -gt 0 ] && [ "$(cat "$2.token")" -gt "$(cat "$1.token")" ]
}

for i in 1 2 3; do configure $i n$i ${ttl}s; done
etcd_start

# Before the store is there: it waits, and says why.
start 1
until_true 100 on 1 status >/dev/null
ok $? "a daemon serves before its store does, and waits"
for i in 2 3; do start $i; done
until_true 100 all_there 1 && until_true 100 all_there 2 && until_true 100 all_there 3
ok $? "three nodes find one another"

# --- where shards lie ---

# Of a name that is open there: which node grants it.
granted_by() { on "$1" run "$2" -- "$dlock" show "$2" | sed -n 's/.*granted by \([^ ;,]*\).*/\1/p'; }
all_granted_by() { for i in 0 1 2 3 4 5 6 7; do [ "$(granted_by "$1" use$i)" = "$2" ] || return 1; done; }

spread() { ! all_granted_by 1 n1; }
until_true 100 spread                     # the first one has had them all
ok $? "names are granted by all nodes"
DLOCK_RUN_DIR=$dir/1/run "$O/tests/e2e/fresh_user" use 8 2>>"$dir/err" &
user=$!
until_true 100 all_granted_by 1 n1
ok $? "those that one node uses, and no other, by that node after some seconds"
on 1 members | grep -q '^n1  *self.* [1-9][0-9]*  *[1-9][0-9]*  *-' && on 1 status | grep -q 'of them for their use'
ok $? "which members and status show"
kill $user
wait $user 2>/dev/null

# --- exclusion and hand-over ---

# once_of takes 2 for a node that has lapsed meanwhile: no processor, no lease.
lapses() { cat "$dir"/[123]/log | grep -c 'its time is over'; }
lapsed_since() { [ "$(lapses)" != "$1" ] && echo "# a node has lapsed: once more"; }
incremented() {
	local i k jobs= before
	before=$(lapses)
	echo 0 >"$dir/count"
	for i in 1 2 3; do
		( for ((k = 0; k < 20; k++)); do
			on $i run count -- bash -c 'read v <"$0"; echo $((v + 1)) >"$0"' "$dir/count" || exit 1
		done ) &
		jobs="$jobs $!"
	done
	wait $jobs
	[ "$(cat "$dir/count")" = 60 ] && return 0
	lapsed_since "$before" && return 2
	return 1
}
once_of 5 incremented
ok $? "one lock on three nodes: sixty increments, none lost"

holder 1 held "$dir/a"
[ "$(on 2 run -n held true; echo $?)" = 1 ]
ok $? "what one node holds no other takes"
kill -KILL $held
wait $held 2>/dev/null
taker 2 held "$dir/b"
ok $? "and gets it when the holder has been killed"

# Held for longer than the TTL and all that is derived from it: nobody in the queue is forgotten, nor woken late. Of each kind one at once,
# and those that wait for others to come.
by() { DLOCK_RUN_DIR=$dir/$1/run timeout --foreground 100 "$O/tests/e2e/${@:2}"; }
noted() { "${@:2}" >/dev/null 2>>"$dir/err" && us >>"$dir/long.$1"; }
long_ones() {    # long_ones COMMAND: with the options of each kind, and a name for it
	$1 x '-x'; $1 s '-s'; $1 sem '--sem 1'; $1 elect '--elect'
}
long_hold() { on 1 run $2 $long.$1 -- bash -c 'echo >"$0"; exec sleep "$1"' "$dir/held.$1" $((2 * ttl + 1)) & jobs="$jobs $!"; }
long_held() { until_true 100 test -e "$dir/held.$1"; }
long_wait() { noted $1 on $i run ${2/#-s/-x} $long.$1 -- true & waits="$waits $!"; }
held_for_long() {
	local jobs= waits= end i before long=long$RANDOM
	before=$(lapses)
	rm -f "$dir"/long.* "$dir"/held.*
	long_ones long_hold
	long_ones long_held
	by 1 thing_tool latch-open $long 1 && by 1 sem_tool create /$long 0
	for i in 2 3 1 2; do
		long_ones long_wait
		sleep 0.3
	done
	for i in 2 3; do
		noted b by $i barrier_party $long 3 wait & waits="$waits $!"
		noted l by $i thing_tool latch-wait $long & waits="$waits $!"
		noted f by $i sem_tool wait /$long & waits="$waits $!"
		noted c by $i thing_tool cond-wait $long "$dir/held.c$i" & waits="$waits $!"
		long_held c$i
	done
	wait $jobs
	end=$(us)
	noted b by 1 barrier_party $long 3 wait
	by 1 thing_tool latch-count $long 1 1 && by 1 thing_tool cond-broadcast $long && by 1 sem_tool post /$long && by 1 sem_tool post /$long
	wait $waits
	span=$(($(cat "$dir"/long.* | sort -n | tail -n 1) - end))
	[ "$(cat "$dir"/long.* | wc -l)" = 25 ] || { lapsed_since "$before" && return 2; return 1; }
	[ $span -lt $((ttl * 1000000)) ] || return 2
}
once_of 3 held_for_long
ok $? "who has waited for longer than any time-out within, for whatever it was, is served at once (25 in $((span / 1000)) ms)"

# --- restart ---

# A lease has an end: where it took us longer than a third of it, and something was lost, it is done once more.
in_time() { [ $(($(us) - $1)) -lt $((ttl * 333333)) ]; }
serves() { on 1 status >/dev/null 2>&1; }
came_back() {
	local since waits early
	on 1 run kept -- bash -c 'sleep 4; echo "${EPOCHREALTIME/[.,]/}" >"$0"' "$dir/kept" &
	job=$!
	until_true 100 holds 1 kept
	since=$(us)
	kill -KILL "${daemon[1]}"
	taker 2 kept "$dir/c" &
	waits=$!
	sleep 0.5
	start 1
	until_true 100 serves
	in_time "$since"
	early=$?
	wait $job
	code=$?
	wait $waits
	[ $code = 0 ] && [ "$(cat "$dir/c")" -ge "$(cat "$dir/kept")" ] && said 1 'the session goes on' && return 0
	[ $early = 0 ] && return 1
	until_true 100 all_there 1
	return 2
}
once_of 5 came_back
ok $? "a daemon killed and started again within TTL keeps what its node holds (exit code $code)"

stopped_and_started() {
	local since early
	on 1 run kept2 -- sleep 3 &
	job=$!
	until_true 100 holds 1 kept2
	since=$(us)
	kill -TERM "${daemon[1]}"
	start 1
	until_true 100 serves
	in_time "$since"
	early=$?
	wait $job && return 0
	[ $early = 0 ] && return 1
	until_true 100 all_there 1
	return 2
}
once_of 5 stopped_and_started
ok $? "so does one that is told to stop"
until_true 100 all_there 2
said 1 'other nodes master all shards now'
ok $? "which hands its shards over first"

# One after the other is started anew while all nodes take the same lock.
rolled() {
	local i k code job jobs= before
	before=$(lapses)
	echo 0 >"$dir/count"
	for i in 1 2 3; do
		( for ((k = 0; k < 40; k++)); do
			code=69
			while [ $code = 69 ]; do        # nobody there just now
				on $i run roll -- bash -c 'read v <"$0"; sleep 0.01; echo $((v + 1)) >"$0"' "$dir/count" 2>/dev/null
				code=$?
			done
			[ $code = 0 ] || { echo "# node $i: exit code $code"; exit 1; }
			sleep 0.05
		done ) &
		jobs="$jobs $!"
	done
	for i in 1 2 3; do
		kill -TERM "${daemon[$i]}"
		wait "${daemon[$i]}"
		start $i
		until_true 100 all_there $i
	done
	code=0
	for job in $jobs; do wait "$job" || code=1; done
	[ $code = 0 ] && [ "$(cat "$dir/count")" = 120 ] && return 0
	lapsed_since "$before" && return 2
	return 1
}
once_of 5 rolled
ok $? "all nodes are started anew, one by one, under load: no lock is lost, none held twice ($(cat "$dir/count") of 120)"

# --- who it is ---

"$DLOCKD" --dir "$dir/1" >"$dir/second" 2>&1
[ $? = 75 ]
ok $? "a second daemon with the same directory is refused"
kill -KILL "${daemon[3]}"
wait "${daemon[3]}" 2>/dev/null
cp -a "$dir/3" "$dir/4"
sed -i "s/Name=n3/Name=n4/; s/:$((base + 3))/:$((base + 4))/" "$dir/4/dlockd.conf"
: >"$dir/4/log"
start 4
start 3
until_true 100 said 4 'in the cluster' && ! said 4 'the session goes on' && said 3 'the session goes on' && until_true 100 four
ok $? "a copy of a node's directory is another node; the first goes on with its session"
on 4 node leave && said 4 'this node has left the cluster'
ok $? "who tells a node to leave hears of it when it has"
wait "${daemon[4]}"
unset 'daemon[4]'
until_true 100 all_there 1

# --- loss ---

# Whoever is to end what runs needs a processor for it before the lease ends. Where he had none it is played again: one who does not do
# it, or not in time, is late each time.
frozen() {
	holder 1 lost1 "$dir/d"
	freeze "${daemon[1]}"
	taker 2 lost1 "$dir/e"
	wait $held
	code=$?
	kill -CONT "${daemon[1]}"
	[ $code = 75 ] || return 1
	margin "$dir/d" "$dir/e" && return 0
	until_true 100 all_there 1
	return 2
}
once_of 5 frozen
ok $? "a daemon is stopped: dlock run ends what it runs, TERM or not, before another node is granted (exit code $code)"
until_true 100 said 1 'in the cluster again' && until_true 100 all_there 1
ok $? "and is back with a new session when it goes on"
taker 1 lost1 "$dir/f" && [ "$(cat "$dir/f.token")" -gt "$(cat "$dir/e.token")" ]
ok $? "its clients too"

# TTL + 2d + o: d is a fiftieth and a hundredth of TTL, o a twentieth and some round trips
in_bound() { [ $span -le $((ttl * 1000000 * 6 / 5 + 2000000)) ]; }
gone() {
	local begin early

	holder 3 lost3 "$dir/g"
	kill -KILL "${daemon[3]}"
	begin=$(us)
	taker 1 lost3 "$dir/h"
	span=$(($(cat "$dir/h") - begin))
	wait $held
	code=$?
	[ $code = 75 ] || return 1
	margin "$dir/g" "$dir/h"
	early=$?
	echo "# granted elsewhere $((span / 1000)) ms after the kill"
	[ $early = 0 ] && in_bound && return 0
	start 3
	until_true 100 all_there 3
	return 2
}
once_of 5 gone
ok $? "a daemon is gone: the same (exit code $code)"
in_bound
ok $? "within the bound"
start 3
until_true 100 all_there 3
ok $? "a daemon that comes back late adopts nothing, and begins anew"

# The whole node: its daemon and all of its clients.
holder 3 lost4 "$dir/i"
kill -KILL "${daemon[3]}" $held
taker 1 lost4 "$dir/j"
margin "$dir/i" "$dir/j"
ok $? "a node dies with its clients"
start 3
until_true 100 all_there 3

# --- the store ---

told_of() { grep -c "$1" "$dir/2/log"; }
more_told() { [ "$(told_of "$1")" -gt "$2" ]; }
away_and_back() {
	local warned back since early
	kill -0 ${held:-} 2>/dev/null || holder 2 store "$dir/k"
	warned=$(told_of 'what is held here is lost in') back=$(told_of 'can be reached again') since=$(us)
	freeze "$etcd"
	until_true $ttl more_told 'what is held here is lost in' "$warned" && kill -0 $held
	held_on=$?
	kill -CONT "$etcd"
	in_time "$since"
	early=$?
	[ $held_on = 0 ] && until_true 100 more_told 'can be reached again' "$back" && kill -0 $held && return 0
	[ $early = 0 ] && return 1
	until_true 100 all_there 2
	return 2
}
held=
once_of 5 away_and_back
code=$?
ok $held_on "while the store is away what is held stays held, and the daemon warns"
ok $code "the store comes back in time: nothing was lost"
DLOCK_RUN_DIR=$dir/2/run timeout 600 "$dlock" watch >"$dir/watched" &
freeze "$etcd"
wait $held
code=$?
sleep 0.5
on 2 run elsewhere -- true 2>"$dir/said" &
until_true 100 grep -q 'not in the cluster now' "$dir/said"
ok $? "who waits where the node is out of the cluster is told so"
kill -CONT "$etcd"
sleep 1
until_true 100 all_there 1                # what the taker runs would be ended too
until_true 100 taker 1 store "$dir/l" && margin "$dir/k" "$dir/l" && [ $code = 75 ]    # node 1 may be losing its lease too
ok $? "it does not: the holder is ended before another node is granted (exit code $code)"
until_true 100 grep -q 'rejoined.*session .*incarnation' "$dir/watched" && grep -q 'loss .*about to end in [0-9]* ms' "$dir/watched" &&
	grep -q 'lapsed .*all that was held' "$dir/watched" && ! grep 'peer-up .*session' "$dir/watched"
ok $? "... and dlock watch says what happened"

# --- leaving ---

until_true 100 all_there 2
holder 2 left "$dir/m"
on 2 node leave &
leaves=$!
until_true 100 said 2 'leaving the cluster'
kill -TERM "${daemon[2]}"                # as "systemctl disable --now" in the next line
wait "${daemon[2]}"
code=$?
wait $leaves
taker 1 left "$dir/o" && margin "$dir/m" "$dir/o" && [ $code = 80 ]
ok $? "a node leaves, though told to stop meanwhile: what it held goes to others without waiting for its time to be over (exit code $code)"
! sed -n '/leaving the cluster/,$p' "$dir/2/log" | grep 'error:'
ok $? "... and its log calls nothing of that an error"

echo "1..$n"
exit $failed
