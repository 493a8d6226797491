#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# What lies in the store, on three nodes with one etcd: latches, conditions, worker ids and values; with a node that ends, one that
# lapses, and an etcd that does not answer for a while.

. "${srctree:?}/tests/e2e/nodes.sh"
ttl=6 tool=${O:?}/tests/e2e/thing_tool

use() { DLOCK_RUN_DIR=$dir/$1/run timeout --foreground 100 "$tool" "${@:2}"; }
bg() { DLOCK_RUN_DIR=$dir/$1/run "$tool" "${@:2}" & bg=$!; }       # the tool's own process
all_there() { there "$1" 3; }

# ids NODE NAME COUNT: a node that has no number yet may be told to come again, where the store is slow.
ids() { until_true 100 use "$1" ids "$2" 1 && use "$1" ids "$2" $(($3 - 1)); }

# answers TEXT COMMAND...: to be repeated, since what is asked of the store may have to be asked again.
answers() { [ "$("${@:2}" 2>/dev/null)" = "$1" ]; }

# ended PID SECONDS: within that time, and well.
ended() {
	local r
	until_true "$2" eval "! kill -0 $1 2>/dev/null" && { wait "$1"; r=$?; [ $r = 0 ] || echo "# it says $r"; return $r; }
}

three_nodes ${ttl}s
ok $? "three nodes find one another"

# --- values ---

until_true 100 on 1 put limits a=1 && until_true 100 answers a=1 on 2 get limits && until_true 100 answers a=1 on 3 get limits
ok $? "what one node puts the others get"
rise() {         # rise NODE TIMES: compare-and-set, again where another was faster
	local k=0 v n
	while [ $k -lt "$2" ]; do
		v=$(on "$1" get --json n | grep '"version"' | tr -dc 0-9)
		n=$(on "$1" get n) || continue   # not told in time
		on "$1" put --if-version "${v:-0}" n $((n + 1)) 2>"$dir/put.$1" && k=$((k + 1))
		! grep -q 'may have been written' "$dir/put.$1" || echo >>"$dir/doubts"
	done
}
until_true 100 on 1 put n 0
pids=
: >"$dir/doubts"
for i in 1 2 3; do rise $i 8 & pids="$pids $!"; done
wait $pids
counted() { v=$(on 1 get n) && [ "$v" -ge 24 ] && [ "$v" -le $((24 + $(wc -l <"$dir/doubts"))) ]; }
until_true 100 counted
ok $? "a counter raised under versions by three nodes loses nothing"
head -c 65536 /dev/urandom >"$dir/big"
until_true 100 eval 'on 2 put big <"$dir/big"' && until_true 100 eval 'on 3 get big | cmp -s - "$dir/big"'
ok $? "64 KiB"
until_true 100 on 3 rm big && ! on 1 get big 2>/dev/null
ok $? "removed"

# --- latches ---

use 1 latch-open door 6
bg 2 latch-wait door; a=$bg
bg 3 latch-wait door; b=$bg
until_true 100 wait_there 2 door 1 && until_true 100 wait_there 3 door 1
use 1 latch-count door 1 2 && use 2 latch-count door 1 2 && use 3 latch-count door 1 1
sleep 0.3
kill -0 $a && kill -0 $b
ok $? "a latch stays closed until the last node has counted down"
begun=$(us)
use 1 latch-count door 1 1
ended $a 100 && ended $b 100
ok $? "... and then opens on all"
echo "# $((($(us) - begun) / 1000)) ms from the last countdown to the last waiter's end"
use 1 latch-open many 100000
pids=
for i in 1 2 3; do for k in 1 2; do use $i latch-count many 1 40 & pids="$pids $!"; done; done
wait $pids
[ "$(use 2 latch-value many)" = $((100000 - 240)) ]
ok $? "six processes on three nodes count down 240 times, each counted once"
bg 1 latch-wait many; a=$bg
bg 2 latch-wait many; b=$bg
until_true 100 wait_there 1 many 1 && until_true 100 wait_there 2 many 1
use 3 latch-unlink many
until_true 100 eval "! kill -0 $a 2>/dev/null && ! kill -0 $b 2>/dev/null" && wait $a
[ $? = 2 ] # ENOENT
ok $? "unlinked on one node it is gone on all"
use 1 latch-open anew 5
bg 1 latch-wait anew; a=$bg
bg 2 latch-wait anew; b=$bg
until_true 100 wait_there 1 anew 1 && until_true 100 wait_there 2 anew 1
use 3 latch-unlink anew && use 3 latch-open anew 5
until_true 100 eval "! kill -0 $a 2>/dev/null && ! kill -0 $b 2>/dev/null" && { wait $a; [ $? = 2 ]; } && { wait $b; [ $? = 2 ]; } &&
	[ "$(use 1 latch-value anew)" = 5 ]
ok $? "... also where it is made anew at once: who waits at the former one is told"

# --- conditions ---

waiter() {       # waiter NODE NAME KEY: in $w
	bg "$1" cond-wait "$2" "$dir/ready.$3"
	w=$bg
	until_true 100 test -e "$dir/ready.$3"
}
waiter 1 room a; a=$w
waiter 2 room b; b=$w
waiter 3 room c; c=$w
waiter 1 room d; d=$w
begun=$(us)
use 2 cond-signal room && ended $a 100 && kill -0 $b && kill -0 $c && kill -0 $d
ok $? "a signal wakes the first of three nodes"
echo "# $((($(us) - begun) / 1000)) ms"
use 1 cond-signal room && ended $b 100 && kill -0 $c && kill -0 $d
ok $? "... the next the second"
use 2 cond-broadcast room && ended $c 100 && ended $d 100
ok $? "... and a broadcast all others"

# --- ids ---

pids=
for i in 1 2 3; do ids $i orders 6400 >"$dir/ids.$i" & pids="$pids $!"; done
wait $pids
[ "$(sort -u "$dir"/ids.? | wc -l)" = 19200 ] && [ "$(cut -d' ' -f2 "$dir"/ids.? | sort -u | wc -l)" = 3 ]
ok $? "ids of three nodes: three workers, and no id twice"
for i in 1 2 3; do sort -c -n "$dir/ids.$i" || false; done
ok $? "... each above the last"

# --- etcd does not answer ---

use 1 latch-open slow 100
bg 1 ids orders 384000 >"$dir/ids.1"; a=$bg      # six seconds at least
until_true 100 test -s "$dir/ids.1"
freeze $etcd
bg 2 latch-count slow 1 3; b=$bg
on 3 put during x 2>"$dir/err" & c=$!
sleep 1.2
kill -0 $a && kill -0 $b
ok $? "while etcd is stopped ids go on, and a countdown waits"
kill -CONT $etcd
ended $a 100 && [ "$(sort -u "$dir/ids.1" | wc -l)" = 384000 ]
ok $? "ids of that time: none twice"
ended $b 100 && [ "$(use 3 latch-value slow)" = 97 ]
ok $? "three countdowns over it are three"
ended $c 100 && until_true 100 answers x on 1 get during
ok $? "a put over it is there"
until_true 100 all_there 1 && until_true 100 all_there 2 && until_true 100 all_there 3
ok $? "all are still there, or again"

# --- a node ends, with a process of it waiting before others ---

waiter 1 last f; a=$w
waiter 2 last g; b=$w
bg 1 ids lasting 1000000000 >"$dir/ids.1"; c=$bg
until_true 100 test -s "$dir/ids.1"
kill -KILL ${daemon[1]} $a $c
wait ${daemon[1]} $a $c 2>/dev/null
begun=$(us)
use 3 cond-signal last
ended $b 100
ok $? "a signal for a node that has ended goes on to another"
echo "# $((($(us) - begun) / 1000)) ms, with a TTL of $ttl s"
ended_worker=$(tail -n 1 "$dir/ids.1" | cut -d' ' -f2)
ids 2 lasting 10 >"$dir/ids.2" && [ "$(cut -d' ' -f2 "$dir/ids.2" | sort -u)" != "$ended_worker" ]
ok $? "another node has another number"
start 1
until_true 100 all_there 1
ids 1 lasting 10 >"$dir/ids.3" && [ "$(cat "$dir"/ids.[123] | sort -u | wc -l)" = "$(cat "$dir"/ids.[123] | wc -l)" ]
ok $? "the node comes back; no id is given out twice"

# --- a node lapses ---

bg 2 ids lapse 640000 >"$dir/ids.2"; a=$bg
waiter 2 lapsed e; b=$w
until_true 100 test -s "$dir/ids.2"
freeze ${daemon[2]}
sleep $((ttl + 2))
kill -CONT ${daemon[2]}
until_true 100 all_there 2
ok $? "a node that was stopped for too long comes back"
ended $b 100
ok $? "who waited there wakes, and looks for himself"
kill $a 2>/dev/null
wait $a 2>/dev/null
ids 2 lapse 100 >"$dir/ids.3" && ids 3 lapse 100 >"$dir/ids.1"
head -n -1 "$dir/ids.2" >"$dir/ids.whole"
[ "$(cat "$dir"/ids.whole "$dir"/ids.[13] | sort -u | wc -l)" = "$(cat "$dir"/ids.whole "$dir"/ids.[13] | wc -l)" ]
ok $? "no id of before is given out again"

# --- the store is away when a node begins anew ---

kept=$dir/3/state/ids
in_file() { grep -qas "default/$1/" "$kept"; }
# gone NODE: its machine is started anew, as far as a test can: what lies in the run directory is no more.
gone() { kill -KILL ${daemon[$1]}; wait ${daemon[$1]} 2>/dev/null; rm -rf "$dir/$1/run"; }
attaches() { on "$1" doctor 2>/dev/null | grep -q '^OK    attach'; }
begins() { start "$1"; until_true 100 attaches "$1"; }

ids 3 kept 10 >"$dir/ids.1" && until_true 100 in_file kept
ok $? "a number is in the state directory soon after it has been taken"
again() { use 3 ids kept 10 >>"$dir/ids.1" && reserved_for_long 3 kept; } # the ceiling is raised when somebody needs more
until_true 100 again
freeze $etcd
gone 3
cp "$kept" "$dir/aside"
begins 3
use 3 ids kept 20000 >"$dir/ids.2" && [ "$(cat "$dir"/ids.[12] | sort -u | wc -l)" = "$(cat "$dir"/ids.[12] | wc -l)" ] &&
	[ "$(cut -d' ' -f2 "$dir"/ids.[12] | sort -u | wc -l)" = 1 ]
ok $? "a node that begins anew while the store is away goes on with its number, and no id comes twice"
on 3 show --kind id kept 2>/dev/null | grep -q kept
ok $? "... and show says that it is kept"
! use 3 ids other 1 >/dev/null 2>&1
ok $? "... a name without a number has no ids then"
on 3 rm --kind latch door 2>/dev/null
[ $? = 75 ]
ok $? "... and to remove a latch is not waited for"
gone 3
cp "$dir/aside" "$kept"
begins 3
until_true 100 grep -q "ids is a copy, or was put back" "$dir/3/log" && ! use 3 ids kept 1 >/dev/null 2>&1
ok $? "an older file that was put back is not used, and the log says so"
kill -CONT $etcd
until_true 100 all_there 3
ids 3 kept 10 >"$dir/ids.3" && [ "$(cat "$dir"/ids.[123] | sort -u | wc -l)" = "$(cat "$dir"/ids.[123] | wc -l)" ]
ok $? "with the store it has another number"

echo "1..$n"
exit $failed
