#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# `dlock show` on any node of a cluster tells which nodes have a name and which wait for it, in their order: the node that grants it is asked.

. "${srctree:?}/tests/e2e/nodes.sh"

declare -A pid

# However busy the machine is: nobody loses his lease in here.
three_nodes 20s 60
ok $? 'three nodes find one another'

# table NODE NAME KIND: what stands in the table of nodes, a line a node, as words; shows NODE NAME TEXT KIND: that it is this.
table() { on "$1" show ${3:+--kind "$3"} "$2" 2>/dev/null | sed -n '/^NODE /,$p' | sed '1d' | tr -s ' ' | sed 's/ $//' | paste -sd,; }
shows() { [ "$(table "$1" "$2" "${4:-}")" = "$3" ]; }
all_show() {     # all_show NAME TEXT KIND
	for i in 1 2 3; do until_true 60 shows $i "$1" "$2" "${3:-}" || return 1; done
}
seen() { for i in 1 2 3; do on $i show "${about:-l}"; done 2>&1; }

hold 1 l
all_show l 'n1 exclusive -'
ok $? 'who holds a lock is shown by all nodes, also by those on which nobody has it open'

about=l
on 1 show l | grep -q 'default/l: lock, held; open in 1 process of this node' && on 3 show l | grep -q 'default/l: lock; open in no process of this node; granted by n[123]$'
ok $? 'each says what its own processes have to do with it'

DLOCK_RUN_DIR=$dir/2/run "$dlock" run l -- true &
pid[second]=$!
all_show l 'n1 exclusive -,n2 - exclusive'
DLOCK_RUN_DIR=$dir/3/run "$dlock" run -s l -- true &
pid[third]=$!
all_show l 'n1 exclusive -,n2 - exclusive,n3 - shared'
ok $? 'then those who wait, in the order in which they will be served'

on 3 show --json l | python3 -c '
import json, sys
c = json.load(sys.stdin)["cluster"]
assert c["held"] == -1 and c["limit"] == -1 and c["nodeCount"] == 3, c
assert c["nodes"] == [{"node": "n1", "holds": -1, "wants": 0}, {"node": "n2", "holds": 0, "wants": -1}, {"node": "n3", "holds": 0, "wants": 1}], c'
ok $? 'a program reads the same'

kill "$held"
wait "${pid[second]}" && wait "${pid[third]}"
ok $? 'and so they are'

# --- permits ---

about='--kind semaphore s'
DLOCK_RUN_DIR=$dir/1/run "$dlock" run --sem 3 s -- sleep 1000 &
pid[a]=$!
all_show s 'n1 1 -' semaphore
DLOCK_RUN_DIR=$dir/2/run "$dlock" run --sem 3 s -- sleep 1000 &
pid[b]=$!
has_both() { [ "$(on 3 show --kind semaphore --json s 2>/dev/null | python3 -c '
import json, sys
c = json.load(sys.stdin)["cluster"]
print(c["limit"], sum(n["holds"] for n in c["nodes"]) == c["held"] <= 3, sorted(n["node"] for n in c["nodes"] if n["holds"]))')" = "3 True ['n1', 'n2']" ]; }
until_true 60 has_both
ok $? 'so many permits are with which node is shown by a third'
kill "${pid[a]}" "${pid[b]}"

# --- what is not so ---

on 2 show nothing >"$dir/out" 2>"$dir/err"
[ $? = 66 ] && grep -q "nobody has a name 'nothing' open" "$dir/err"
ok $? 'what nobody has open anywhere is not there'

hold 1 lone
master=$(on 1 show --json lone | sed -n 's/^ *"master": *"n\(.\)".*/\1/p' | head -n 1)
asker=$((master % 3 + 1))
until_true 60 holds 1 lone
freeze "${daemon[$master]}"
begun=$(us)
on $asker show lone >"$dir/out" 2>"$dir/err"
code=$?
span=$(($(us) - begun))
kill -CONT "${daemon[$master]}"
[ $code = $([ "$asker" = 1 ] && echo 0 || echo 66) ] && grep -q 'does not answer' "$dir/out" "$dir/err"
ok $? 'where the node that grants it does not answer, that is said'
echo "# after $((span / 1000)) ms"
until_true 60 shows $asker lone 'n1 exclusive -'
ok $? 'and when it goes on, it tells'

echo "1..$n"
exit $failed
