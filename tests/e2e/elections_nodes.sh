#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# Elections on three nodes: each of them sees who leads, what it says, and when nobody does; terms only rise, whatever ends. And
# the values of locks, which travel with them.

. "${srctree:?}/tests/e2e/nodes.sh"
ttl=6
elector=${O:?}/tests/e2e/elector

all_there() { there "$1" 3; }
by() { DLOCK_RUN_DIR=$dir/$1/run timeout --foreground 100 "$elector" "${@:2}"; }

# lead NODE WHO NAME: its output is in $dir/WHO
declare -A pid
lead() {
	: >"$dir/$2.in"
	: >"$dir/$2"
	DLOCK_RUN_DIR=$dir/$1/run "$elector" lead "$3" "I am $2" "$dir/$2.in" >"$dir/$2" 2>>"$dir/err" &
	pid[$2]=$!
}
says() { echo "$2" >>"$dir/$1.in"; }
resign() { says "$1" .; wait "${pid[$1]}"; }
term() { sed -n 's/^led //p' "$dir/$1"; }
leads() { grep -q ^led "$dir/$1"; }
any_leads() {
	local who
	for who; do leads "$who" && return; done
	return 1
}

# queued NODE WHO COUNT: WHO waits there, as one of so many, and all nodes know what follows from it: who is next, and whether it
# has to be given back. By then a burst, which begins when the first of another node comes, is over as well.
queued() {
	until_true 100 wait_there "$1" led "$3" && until_true 100 asleep "${pid[$2]}" && sleep 0.3 &&
		caught_up "$1" led && caught_up 1 led && caught_up 2 led && caught_up 3 led
}

# told NODE: what has happened there so far stands in events.
told() {
	fresh+=1
	on "$1" run fresh.$fresh -- true && until_true 100 grep -q "open .*/fresh\.$fresh " "$dir/events$1"
}

# given TERM: the node that was granted the election next.
given() {
	for i in 1 2 3; do sed -n "s/.* grant  *default\/led (election) token \([0-9]*\).*/\1 $i/p" "$dir/events$i"; done |
		sort -n | awk -v term="$1" '$1 > term { print $2; exit }'
}

# passes FROM TO NODE OTHERS...: FROM resigns, NODE is granted it before all others, and TO of those who wait there has it. 2: another
# has, since TO was given no processor for so long that it was taken for stopped, and passed over.
passes() {
	local from=$1 to=$2 node=$3 who code=1
	shift 3

	resign "$from"
	until_true 100 any_leads "$to" "$@" && told 1 && told 2 && told 3 && [ "$(given "$(term "$from")")" = "$node" ] && code=2
	[ $code = 2 ] && leads "$to" && ! any_leads "$@" && code=0
	for who in "$to" "$@"; do says $who .; done
	for who in "$to" "$@"; do wait "${pid[$who]}"; done
	return $code
}

# For ok() to tell, where something fails.
seen() { (cd "$dir" && for f in "${!pid[@]}" watch? err; do echo "$f: $(tail -n 3 "$f" | tr "\n" ";")"; done); }

three_nodes ${ttl}s
ok $? "three nodes find one another"
for i in 1 2 3; do
	DLOCK_RUN_DIR=$dir/$i/run "$elector" watch led >"$dir/watch$i" 2>>"$dir/err" &
	watcher[$i]=$!
done
for i in 1 2 3; do
	DLOCK_RUN_DIR=$dir/$i/run "$dlock" watch >"$dir/events$i" 2>>"$dir/err" &
	until_true 100 eval "on $i run begins -- true; grep -q begins '$dir/events$i'"
done
see() { [ "$(tail -n 1 "$dir/watch$1")" = "$2" ]; }
all_see() { see 1 "$1" && see 2 "$1" && see 3 "$1"; }
others_see() { see 2 "$1" && see 3 "$1"; }
until_true 100 all_see 0
ok $? "on all of them nobody leads at first"

# --- terms ---

lead 1 ann led
until_true 100 leads ann && until_true 100 all_see "$(term ann) I am ann"
ok $? "a leader is seen on all nodes, with what it says"
for i in 1 2 3 4 5; do says ann "speech $i"; done
until_true 100 all_see "$(term ann) speech 5"
ok $? "and what it says later"
lead 2 bob led
queued 2 bob 1
until_true 100 grep -q "leads .*(election) token $(term ann)\$" "$dir/events3"
ok $? "dlock watch tells of it on another node"
! leads bob && resign ann && until_true 100 leads bob && until_true 100 all_see "$(term bob) I am bob" && [ "$(term bob)" -gt "$(term ann)" ]
ok $? "it resigns: the next in line leads, on another node, with a higher term"
kill -KILL "${pid[bob]}"
wait "${pid[bob]}" 2>/dev/null
until_true 100 all_see 0
ok $? "that one is killed, and nobody waits: nobody leads, as all see"
lead 2 cyd led
lead 2 dan led
until_true 100 any_leads cyd dan
first=cyd next=dan
leads dan && { first=dan next=cyd; }
until_true 100 all_see "$(term $first) I am $first"
resign $first
until_true 100 leads $next && until_true 100 all_see "$(term $next) I am $next"
ok $? "a hand-over within a node is seen on the others"
resign $next

# --- priorities ---

among_nodes() {
	lead 1 gil led
	until_true 100 leads gil || return 1
	PRIORITY=3 lead 2 low led
	queued 2 low 1 || return 1
	PRIORITY=9 lead 3 high led
	queued 3 high 1 || return 1
	lead 2 late led
	queued 2 late 2 && passes gil high 3 low late
}
once_of 5 among_nodes
ok $? "of those who wait on several nodes the one with the highest priority is next"
raised() {
	lead 2 joe led
	until_true 100 leads joe || return 1
	PRIORITY=2 lead 2 next led
	queued 2 next 1 || return 1
	PRIORITY=1 lead 3 poor led
	queued 3 poor 1 || return 1
	PRIORITY=7 lead 3 rich led
	queued 3 rich 2 || return 1
	PRIORITY=5 lead 1 mid led
	queued 1 mid 1 && passes joe rich 3 poor mid next
}
once_of 5 raised
ok $? "one that comes later, behind others on its node, raises the claim of that node, and comes before them"

# --- daemons ---

lead 3 eve led
until_true 100 leads eve && until_true 100 all_see "$(term eve) I am eve"
kill -KILL "${daemon[3]}"
sleep 0.5
start 3
until_true 100 all_there 3
says eve "still here"
until_true 100 all_see "$(term eve) still here"
ok $? "the leader's daemon is killed and started again: it leads, and is heard"
kill -KILL "${daemon[2]}"
start 2
until_true 100 all_there 2
says eve "and here"
until_true 100 all_see "$(term eve) and here"
ok $? "so is an observer's: it goes on looking"

# --- loss ---

freeze "${daemon[2]}"
until_true 100 see 2 0 && see 1 "$(term eve) and here"
ok $? "an observer's daemon is stopped: after its deadline it knows of nobody, the others of the leader"
kill -CONT "${daemon[2]}"
until_true 100 all_see "$(term eve) and here"
ok $? "it goes on, in a new session: it is told again who leads, in the same term"
until_true 100 all_there 2
lead 1 fay led
queued 1 fay 1
freeze "${daemon[3]}"
begin=$(us)
until_true 100 leads fay && until_true 100 see 1 "$(term fay) I am fay" && until_true 100 see 2 "$(term fay) I am fay"
code=$?
echo "# elected $((($(us) - begin) / 1000)) ms after the leader's daemon was stopped"
wait "${pid[eve]}"
[ $? = 75 ] && until_true 100 see 3 0 && [ $code = 0 ] && [ "$(term fay)" -gt "$(term eve)" ]
ok $? "the leader's daemon is stopped: another is elected, and it learns that its term is over, by itself"
kill -CONT "${daemon[3]}"
until_true 100 all_see "$(term fay) I am fay"
ok $? "and its node sees the new one when it is back"
until_true 100 all_there 3
kill -KILL "${daemon[1]}" "${pid[fay]}" "${watcher[1]}"
wait "${pid[fay]}" "${watcher[1]}" 2>/dev/null
until_true 100 others_see 0
ok $? "the leader's node is lost, and nobody waits: the others learn that nobody leads"
kill -0 "${watcher[2]}" && kill -0 "${watcher[3]}" && ! grep -l back "$dir"/watch*
ok $? "all the while no term followed a higher one"
start 1
until_true 100 all_there 1

# --- values ---

[ "$(by 1 value carried)" = - ] && by 1 value carried one >/dev/null && [ "$(by 2 value carried two)" = one ] &&
	[ "$(by 3 value carried)" = two ] && [ "$(by 1 value carried)" = two ]
ok $? "a value goes from node to node with its lock"
long=$(printf '%01024d' 7)
by 2 value carried "$long" >/dev/null && [ "$(by 3 value carried)" = "$long" ]
ok $? "also one of 1024 bytes"
on 2 run carried -- sleep 30 &
holder=$!
until_true 100 eval 'on 2 show carried 2>/dev/null | grep -q held'
kill -KILL "${daemon[2]}"
[ "$(by 3 value carried three)" = - ] && [ "$(by 1 value carried)" = three ]
ok $? "a value is lost with the node that held its lock, and the next one is not"
wait $holder

echo "1..$n"
exit $failed
