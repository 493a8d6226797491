#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# Elections on three nodes: each of them sees who leads, what it says, and when nobody does; terms only rise, whatever ends. And
# the values of locks, which travel with them.

. "${srctree:?}/tests/e2e/nodes.sh"
ttl=3
elector=${O:?}/tests/e2e/elector

all_there() { there "$1" 3; }
by() { DLOCK_RUN_DIR=$dir/$1/run timeout --foreground 60 "$elector" "${@:2}"; }

# lead NODE WHO NAME: its output is in $dir/WHO
declare -A pid
lead() {
	: >"$dir/$2.in"
	DLOCK_RUN_DIR=$dir/$1/run "$elector" lead "$3" "I am $2" "$dir/$2.in" >"$dir/$2" 2>>"$dir/err" &
	pid[$2]=$!
}
says() { echo "$2" >>"$dir/$1.in"; }
resign() { says "$1" .; wait "${pid[$1]}"; }
term() { sed -n 's/^led //p' "$dir/$1"; }
leads() { grep -q ^led "$dir/$1"; }

for i in 1 2 3; do configure $i n$i ${ttl}s; done
etcd_start
for i in 1 2 3; do start $i; done
until_true 30 all_there 1 && until_true 30 all_there 2 && until_true 30 all_there 3
ok $? "three nodes find one another"
for i in 1 2 3; do
	DLOCK_RUN_DIR=$dir/$i/run "$elector" watch led >"$dir/watch$i" 2>>"$dir/err" &
	watcher[$i]=$!
done
on 3 watch led >"$dir/events" 2>>"$dir/err" &
see() { [ "$(tail -n 1 "$dir/watch$1")" = "$2" ]; }
all_see() { see 1 "$1" && see 2 "$1" && see 3 "$1"; }
others_see() { see 2 "$1" && see 3 "$1"; }
until_true 5 all_see 0
ok $? "on all of them nobody leads at first"

# --- terms ---

lead 1 ann led
until_true 5 leads ann && until_true 2 all_see "$(term ann) I am ann"
ok $? "a leader is seen on all nodes, with what it says"
for i in 1 2 3 4 5; do says ann "speech $i"; done
until_true 2 all_see "$(term ann) speech 5"
ok $? "and what it says later"
lead 2 bob led
until_true 5 eval 'on 1 show led 2>/dev/null | grep -q .'
sleep 0.3
until_true 5 grep -q "leads .*(election) token $(term ann)\$" "$dir/events"
ok $? "dlock watch tells of it on another node"
! leads bob && resign ann && until_true 3 leads bob && until_true 2 all_see "$(term bob) I am bob" && [ "$(term bob)" -gt "$(term ann)" ]
ok $? "it resigns: the next in line leads, on another node, with a higher term"
kill -KILL "${pid[bob]}"
wait "${pid[bob]}" 2>/dev/null
until_true 3 all_see 0
ok $? "that one is killed, and nobody waits: nobody leads, as all see"
lead 2 cyd led
lead 2 dan led
until_true 5 leads cyd
first=cyd next=dan
leads dan && { first=dan next=cyd; }
until_true 2 all_see "$(term $first) I am $first"
resign $first
until_true 3 leads $next && until_true 2 all_see "$(term $next) I am $next"
ok $? "a hand-over within a node is seen on the others"
resign $next

# --- priorities ---

lead 1 gil led
until_true 5 leads gil
PRIORITY=3 lead 2 low led
sleep 0.3
PRIORITY=9 lead 3 high led
sleep 0.3
lead 2 late led
sleep 0.3
resign gil
until_true 3 leads high && ! leads low && resign high && until_true 3 eval 'leads low || leads late'
ok $? "of those who wait on several nodes the one with the highest priority is next"
PRIORITY=1 lead 3 poor led
sleep 0.3
PRIORITY=7 lead 3 rich led
sleep 0.3
PRIORITY=5 lead 1 mid led
sleep 0.3
first=low next=late
leads late && { first=late next=low; }
resign $first
until_true 3 leads rich && ! leads poor && ! leads mid && ! leads $next
ok $? "one that comes later, behind others on its node, raises the claim of that node, and comes before them"
for who in poor rich mid $next; do says $who .; done
for who in poor rich mid $next; do wait "${pid[$who]}"; done

# --- daemons ---

lead 3 eve led
until_true 5 leads eve && until_true 2 all_see "$(term eve) I am eve"
kill -KILL "${daemon[3]}"
sleep 0.5
start 3
until_true 10 all_there 3
says eve "still here"
until_true 3 all_see "$(term eve) still here"
ok $? "the leader's daemon is killed and started again: it leads, and is heard"
kill -KILL "${daemon[2]}"
start 2
until_true 10 all_there 2
says eve "and here"
until_true 3 all_see "$(term eve) and here"
ok $? "so is an observer's: it goes on looking"

# --- loss ---

kill -STOP "${daemon[2]}"
until_true $((ttl * 2 + 2)) see 2 0 && see 1 "$(term eve) and here"
ok $? "an observer's daemon is stopped: after its deadline it knows of nobody, the others of the leader"
kill -CONT "${daemon[2]}"
until_true 20 all_see "$(term eve) and here"
ok $? "it goes on, in a new session: it is told again who leads, in the same term"
until_true 20 all_there 2
lead 1 fay led
sleep 0.3
kill -STOP "${daemon[3]}"
begin=$(us)
until_true 15 leads fay && until_true 3 see 1 "$(term fay) I am fay" && until_true 3 see 2 "$(term fay) I am fay"
code=$?
echo "# elected $((($(us) - begin) / 1000)) ms after the leader's daemon was stopped"
wait "${pid[eve]}"
[ $? = 75 ] && see 3 0 && [ $code = 0 ] && [ "$(term fay)" -gt "$(term eve)" ]
ok $? "the leader's daemon is stopped: another is elected, and it learns that its term is over, by itself"
kill -CONT "${daemon[3]}"
until_true 20 all_see "$(term fay) I am fay"
ok $? "and its node sees the new one when it is back"
until_true 20 all_there 3
kill -KILL "${daemon[1]}" "${pid[fay]}" "${watcher[1]}"
wait "${pid[fay]}" "${watcher[1]}" 2>/dev/null
until_true 15 others_see 0
ok $? "the leader's node is lost, and nobody waits: the others learn that nobody leads"
kill -0 "${watcher[2]}" && kill -0 "${watcher[3]}" && ! grep -l back "$dir"/watch*
ok $? "all the while no term followed a higher one"
start 1
until_true 20 all_there 1

# --- values ---

[ "$(by 1 value carried)" = - ] && by 1 value carried one >/dev/null && [ "$(by 2 value carried two)" = one ] &&
	[ "$(by 3 value carried)" = two ] && [ "$(by 1 value carried)" = two ]
ok $? "a value goes from node to node with its lock"
long=$(printf '%01024d' 7)
by 2 value carried "$long" >/dev/null && [ "$(by 3 value carried)" = "$long" ]
ok $? "also one of 1024 bytes"
on 2 run carried -- sleep 30 &
holder=$!
until_true 5 eval 'on 2 show carried 2>/dev/null | grep -q held'
kill -KILL "${daemon[2]}"
[ "$(by 3 value carried three)" = - ] && [ "$(by 1 value carried)" = three ]
ok $? "a value is lost with the node that held its lock, and the next one is not"
wait $holder

echo "1..$n"
exit $failed
