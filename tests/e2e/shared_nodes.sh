#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# Readers on two nodes at a time, and writers among them.

. "${srctree:?}/tests/e2e/nodes.sh"

configure 1 one 20s
configure 2 two 20s
etcd_start
start 1
start 2
until_true 60 there 1 2 && until_true 60 there 2 2
ok $? 'two nodes are there'

# held NODE FILE NAME OPTIONS...: holds until the file is there
held() { on "$1" run "${@:4}" "$3" -c "echo \$DLOCK_TOKEN >$dir/$2.in; until [ -e $dir/$2.out ]; do sleep 0.02; done" & }
in_there() { until_true 60 test -s "$dir/$1.in"; }
let_go() { touch "$dir/$1.out"; }
token_of() { cat "$dir/$1.in"; }

held 1 a r -s
in_there a
ok $? 'one reads on the first node'
on 2 run -s -w 30 r true
ok $? 'another on the second beside it'
held 2 b r -s
in_there b && on 1 run -s -w 30 r true && on 2 run -s -w 30 r true
ok $? 'both read at once, and others come and go'
! on 1 run -w 0.3 r true && ! on 2 run -w 0.3 r true && ! on 1 run -n r true
ok $? 'nobody writes meanwhile'
held 1 w r
sleep 0.3
[ ! -e "$dir/w.in" ] && let_go b && sleep 0.3 && [ ! -e "$dir/w.in" ] && let_go a && in_there w
ok $? 'a writer comes when the readers of both nodes have left'
! on 2 run -s -w 0.3 r true && ! on 1 run -s -n r true
ok $? 'and none reads beside it'
held 2 c r -s
held 1 d r -s
sleep 0.2
let_go w
in_there c && in_there d
ok $? 'after it they read on both nodes'
[ "$(token_of a)" -lt "$(token_of w)" ] && [ "$(token_of w)" -lt "$(token_of c)" ] && [ "$(token_of w)" -lt "$(token_of d)" ]
ok $? 'tokens: reader, writer, readers'
let_go c
let_go d
wait $(jobs -p | grep -v -e "^${daemon[1]}$" -e "^${daemon[2]}$" -e "^$etcd$") 2>/dev/null

# A value that writers raise, and readers find whole.
echo 0 >"$dir/x"
echo 0 >"$dir/y"
crowd() {        # crowd NODE
	for i in $(seq 12); do
		on "$1" run m -c "n=\$(cat $dir/x); echo \$((n + 1)) >$dir/x; sleep 0.01; echo \$((n + 1)) >$dir/y" || echo w >>"$dir/wrong"
		on "$1" run -s m -c "n=\$(cat $dir/x); sleep 0.01; [ \$(cat $dir/y) = \$n ] && [ \$(cat $dir/x) = \$n ]" || echo r >>"$dir/wrong"
	done
}
crowd 1 & one=$!
crowd 2 & two=$!
crowd 1 & three=$!
wait $one $two $three
[ ! -e "$dir/wrong" ] && [ "$(cat "$dir/x")" = 36 ]
ok $? 'writers and readers of both nodes, 36 of each'

# Two that are told what to do: says NODE LETTERS, and has_said NODE WHAT (within a minute).
for i in 1 2; do
	mkfifo "$dir/tell.$i"
	DLOCK_RUN_DIR=$dir/$i/run "${O:?}/tests/e2e/shared_teller" <"$dir/tell.$i" >"$dir/said.$i" &
done
exec 7>"$dir/tell.1" 8>"$dir/tell.2"
says() { echo "$2" >&$((6 + $1)); }
is_said() { [ "$(cat "$dir/said.$1")" = "$2" ]; }
has_said() { until_true 60 is_said "$1" "$2"; }
says 1 s && says 2 s && has_said 1 's0 ' && has_said 2 's0 '
says 1 u
until_true 60 wait_there 1 up 1 && sleep 0.3 && caught_up 1 up
says 2 u
has_said 2 "s0 u35 " && is_said 1 's0 '
ok $? 'of two nodes that upgrade the second is told so'
says 2 p && has_said 1 's0 u0 ' && says 2 s && sleep 0.3 && is_said 2 's0 u35 p0 '
ok $? 'the first has it alone once the other has let go'
says 1 d && has_said 2 's0 u35 p0 s0 ' && says 2 p && says 1 p && has_said 1 's0 u0 d0 p0 '
ok $? 'after a downgrade both read'
says 2 s && says 2 u && says 2 d && has_said 2 's0 u35 p0 s0 p0 s0 u0 d0 ' && says 1 s && has_said 1 's0 u0 d0 p0 s0 '
ok $? 'and so the other way round'
exec 7>&- 8>&-

# one_masters NAME: the node called one has granted it
one_masters() { on 1 run "$1" "$dlock" show "$1" | grep -q 'granted by one$'; }

# Someone gives up while his node has asked and cannot hear; the next one comes before it has. Nobody writes.
late=
for i in $(seq 100); do one_masters "late$i" && late=late$i && break; done
held 1 l "$late" -s
in_there l
freeze "${daemon[1]}"
! on 2 run -s -w 0.3 "$late" true
gave_up=$?
on 2 run -s -w 30 "$late" true & second=$!
sleep 0.2
kill -CONT "${daemon[1]}"
[ -n "$late" ] && [ $gave_up = 0 ] && wait $second
ok $? 'one that reads comes in beside another, though the one before him gave up unheard'
let_go l

held 1 e k -s
in_there e
kill -KILL "${daemon[1]}"
on 2 run -s -w 1 k true
start 1
until_true 60 on 1 run y true && on 2 run -s -w 30 k true && ! on 2 run -w 0.3 k true && let_go e && on 2 run -w 30 k true
ok $? 'a daemon comes back: what was read is read'

echo "1..$n"
exit $failed
