#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# Free semaphores: a program written for sem_open(), renamed by the preprocessor; values that outlive their users, the daemon and the
# host's memory; and two nodes that use one.

. "${srctree:?}/tests/e2e/nodes.sh"
tests=${O:?}/tests/e2e
export DLOCK_RUN_DIR=$dir/1/run
mkdir -p "$dir/1"

# sem WHAT NAME [VALUE], on node 1; at N, on node N. says: what the last said.
sem() { "$tests/sem_tool" "$@" >"$dir/out"; }
at() { DLOCK_RUN_DIR=$dir/$1/run timeout --foreground 100 "$tests/sem_tool" "${@:2}" >"$dir/out"; }
says() { [ "$(cat "$dir/out")" = "$1" ] || { sed 's/^/# said: /' "$dir/out"; return 1; }; }
served() { at 1 value /nothing; says 'No such file or directory' >/dev/null; }
again() {        # again SIGNAL: ends the daemon
	kill -"$1" "${daemon[1]}"
	wait "${daemon[1]}" 2>/dev/null
	return 0
}

# --- one node ---

start 1
until_true 60 served
"$tests/sem_user" "x$$" >"$dir/libc" 2>&1
timeout --foreground 200 "$tests/sem_user_dlock" "x$$" >"$dir/dlock" 2>&1
[ -s "$dir/libc" ] && diff "$dir/libc" "$dir/dlock" | sed 's/^/# /'
cmp -s "$dir/libc" "$dir/dlock"
ok $? 'a program written for sem_open() says the same when its calls are renamed'

sem create /count 5 && sem wait /count && sem wait /count && sem value /count && says 3
ok $? 'the value outlives those who use it'
again TERM && start 1 && until_true 60 served && sem value /count && says 3
ok $? '... and the daemon'
again KILL && rm -rf "$dir/1/run" && start 1 && until_true 60 served && sem value /count && says 3
ok $? '... and the memory of the host'
sem create /shown 0 && { "$tests/sem_tool" wait /shown & waiter=$!; }
shows() { "$dlock" show shown >"$dir/out" 2>&1 && grep -q 'free semaphore, leased; open in 1 process of this node; value 0' "$dir/out" && grep -q '1 waits' "$dir/out"; }
until_true 60 shows && sem post /shown && wait $waiter
ok $? 'dlock show knows it, its value and who waits'
"$dlock" put beside "a value" && until_true 60 eval '"$dlock" ls --open --names >"$dir/out"; ! grep -q shown "$dir/out"' &&
	"$dlock" ls >"$dir/out" && grep -q '^default/shown  *stored  *free semaphore ' "$dir/out" &&
	grep -q '^default/beside  *stored  *value ' "$dir/out" && "$dlock" show --kind free count | grep -q 'stored; .*; value 3$' &&
	"$dlock" show beside | grep -q '; 7 bytes' && ! "$dlock" show absent 2>"$dir/out" && grep -q 'lies in the store' "$dir/out"
ok $? 'dlock ls and show know what lies in the store and nobody has open'
! sem create /count 1 && says 'File exists' && sem unlink /count && ! sem value /count && says 'No such file or directory'
ok $? 'it is there until it is unlinked'

sem create /empty 0
"$tests/sem_tool" wait /empty &
waiter=$!
waits() { "$dlock" show "$1" 2>/dev/null | grep -q '1 waits'; }
until_true 60 waits empty
again KILL
start 1
until_true 60 served && sem post /empty && wait $waiter && sem value /empty && says 0
ok $? 'who waits while the daemon goes and comes back is served by posts that come later'
again TERM

# --- two nodes ---

if ! command -v etcd >/dev/null; then
	echo "ok $((n + 1)) - two nodes # SKIP there is no etcd"
	echo "1..$((n + 1))"
	exit $failed
fi
etcd_start
for i in 2 3; do
	configure $i node$i 6s
	start $i
done
until_true 60 there 2 2 && until_true 60 there 3 2
at 2 create /far 2 && at 3 wait /far && at 2 wait /far && ! at 3 trywait /far && says 'Resource temporarily unavailable'
ok $? 'what one node makes the other uses; together they take no more than there is'
DLOCK_RUN_DIR=$dir/2/run timeout 200 "$tests/sem_tool" wait /far &
waiter=$!
sleep 0.3
from=$(us)
at 3 post /far && wait $waiter
ok $? "a post on one node reaches who waits on the other ($((($(us) - from) / 1000)) ms)"
DLOCK_RUN_DIR=$dir/2/run timeout 200 "$tests/sem_tool" waits /far >"$dir/waits" &
waiter=$!
sleep 0.2
DLOCK_RUN_DIR=$dir/3/run timeout 200 "$tests/sem_tool" posts /far >"$dir/posts" && wait $waiter && at 3 value /far && says 0 && ! at 2 trywait /far
ok $? 'posts by one process, while the value is now here, now there, count once each'
DLOCK_RUN_DIR=$dir/2/run "$dlock" run --sem 2 job -- sleep 600 &
one=$!
DLOCK_RUN_DIR=$dir/3/run "$dlock" run --sem 2 job -- sleep 600 &
two=$!
held() { on "$1" show job 2>/dev/null | grep -q 'semaphore, held'; }
until_true 60 held 2 && until_true 60 held 3 && ! on 3 run -n --sem 2 job true && ! on 2 run -n --sem 2 job true
ok $? 'permits that belong to somebody: two nodes have one each, and no third is to be had'
on 3 run -n --sem 3 job true 2>/dev/null
[ $? = 65 ] && on 2 run -w 60 --sem 3 other true && on 3 run -w 60 --sem 2 other true
ok $? 'another number is refused while anybody has it open, and not after that'
kill $one
until_true 60 on 3 run -n --sem 2 job true && { kill $two; wait $one $two 2>/dev/null; true; }
ok $? 'what one gives back the other node has'
at 3 post /far && at 3 post /far && at 2 value /far && says 2
ok $? 'the value goes from node to node'
# What comes to another node comes through the store.
at 3 value /far && says 2
ok $? '... and lies in the store'
kill -KILL "${daemon[2]}" "${daemon[3]}"
wait "${daemon[2]}" "${daemon[3]}" 2>/dev/null
rm -rf "$dir/2/run" "$dir/3/run"
start 2
until_true 60 there 2 1 && at 2 value /far && says 2
ok $? 'hosts that die without a word leave it as it was a while ago'
at 2 unlink /far && ! at 2 value /far
ok $? 'unlinked, it is gone for all'

echo "1..$n"
exit $failed
