#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# Lock-delay among three nodes: a leader's process dies, its node dies, the node dies that mastered the name as well; and one asks for a
# delay where another leads without. Who waits on another node is elected when the delay is over, and not before. Likewise who wants to write
# what was read on a node that dies, and who wants permits that were there.

. "${srctree:?}/tests/e2e/nodes.sh"
ttl=6
delay=4000
least=$((delay + ttl * 500))      # a lease ends no sooner after its node's death: the last beat was sent a quarter of TTL before, at most
elector=${O:?}/tests/e2e/elector

all_there() { there "$1" 3; }

# lead NODE WHO NAME: its output is in $dir/WHO
declare -A pid
lead() {
	: >"$dir/$2.in"
	DLOCK_RUN_DIR=$dir/$1/run "$elector" lead "$3" "I am $2" "$dir/$2.in" >"$dir/$2" 2>>"$dir/err" &
	pid[$2]=$!
}
leads() { grep -q -e ^led -e ^has "$dir/$1"; }
resign() { echo . >>"$dir/$1.in"; wait "${pid[$1]}"; }
waits() { [ "$(on "$1" show "$2" --kind election --json 2>/dev/null | sed -n 's/.*"waiterCount": *\([0-9]*\).*/\1/p')" = 1 ]; }
shows() { on "$1" show "$2" --kind election 2>/dev/null | grep -q "$3"; }
master() { on 1 show "$1" --kind election --json 2>/dev/null | sed -n 's/.*"master": *"\(.*\)".*/\1/p' | head -n 1; }

# kill_node NODE: with all its clients
kill_node() {
	kill -KILL "${daemon[$1]}" $(for w in "${!pid[@]}"; do [ "${at[$w]:-}" = "$1" ] && echo "${pid[$w]}"; done)
	wait "${daemon[$1]}" 2>/dev/null
}
declare -A at

# use NODE WHO HOW NAME [PERMITS]: read, write, permit
use() {
	: >"$dir/$2.in"
	DLOCK_RUN_DIR=$dir/$1/run "$elector" "${@:3}" "$dir/$2.in" >"$dir/$2" 2>>"$dir/err" &
	pid[$2]=$!
	at[$2]=$1
}

# took SECONDS WHO SINCE: elected within so many seconds; how many ms after SINCE it said so is in $took
took() {
	until_true "$1" leads "$2" || return 1
	took=$((($(stat -c %.6Y "$dir/$2" | tr -d .) - $3) / 1000))
}

three_nodes ${ttl}s
ok $? "three nodes find one another"

# --- a process ---

DELAY=$delay lead 1 ann one
until_true 100 leads ann
lead 2 bob one
until_true 100 waits 2 one
since=$(us)
kill -KILL "${pid[ann]}"
wait "${pid[ann]}" 2>/dev/null
until_true 100 shows 1 one "by its lock-delay"
ok $? "a leader's process is killed: its node says how long nobody is elected"
took 100 bob "$since" && [ "$took" -ge $((delay - 20)) ]      # the time of a file is that of the last tick
ok $? "the next one, on another node, is elected when the delay is over: ${took:-?} of $delay ms"

# --- a delay that comes later ---

DELAY=$delay lead 2 cyd one
until_true 100 waits 2 one
resign bob
until_true 100 leads cyd
lead 1 dan one
until_true 100 waits 1 one
at[cyd]=2
lead 2 eve two
at[eve]=2
until_true 100 leads eve
lead 1 fay two
until_true 100 waits 1 two
# What is here already was claimed by those who had not asked for a delay: one reads, one has a permit, another one lies here.
use 2 ida read papers
use 2 ned permit seats 2
use 2 pat permit seats 2
until_true 100 leads ida && until_true 100 leads ned && until_true 100 leads pat
resign pat
DELAY=$delay use 2 joe permit seats 2
DELAY=$delay use 2 kim read papers
until_true 100 leads joe
resign ida
until_true 100 leads kim
ok $? "permits and a shared hold, with a delay, on a node that had some without"
use 1 lea read papers
until_true 100 leads lea
resign lea
use 1 lea write papers
use 1 max permit seats 2
since=$(us)
kill_node 2
took 100 fay "$since"
without=${took:-0}
took 100 dan "$since" && [ "$took" -ge $least ]
ok $? "its node dies: elected after $without ms where nobody had asked for a delay, and ${took:-?} ms where one had, who came later"

took 100 lea "$since" && [ "$took" -ge $least ]
ok $? "who wants to write what was read there: after ${took:-?} ms"
took 100 max "$since" && [ "$took" -ge $least ]
ok $? "who wants a permit, all of which were there: after ${took:-?} ms"

# --- who mastered it too ---

start 2
until_true 100 all_there 2 && until_true 100 all_there 3 && until_true 100 all_there 1
for i in $(seq 200); do
	DELAY=$delay lead 3 gil three$i
	until_true 100 leads gil
	lead 1 hal three$i
	until_true 100 waits 1 three$i
	[ "$(master three$i)" = n3 ] && break
	kill -KILL "${pid[hal]}"
	wait "${pid[hal]}" 2>/dev/null
	resign gil
done
ok $? "one leads on the node that masters the name"
at[gil]=3
since=$(us)
kill_node 3
took 100 hal "$since" && [ "$took" -ge $least ]
ok $? "that node dies: the next master knows from the store that there may be a delay: ${took:-?} ms"
echo "1..$n"
exit $failed
