#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# The file of worker numbers, where the machine is started anew and where the disk does not answer. What must hold: no id is given out that
# the file that is there does not allow, so none comes twice; and nobody but whoever wants ids waits for the disk.
#
# A machine that is started anew has another boot id (a file mounted over it, for the daemon alone) and an empty run directory.

. "${srctree:?}/tests/e2e/nodes.sh"
ttl=6 tool=${O:?}/tests/e2e/thing_tool

use() { DLOCK_RUN_DIR=$dir/$1/run timeout --foreground 100 "$tool" "${@:2}"; }
all_there() { there "$1" 2; }

boots() {        # boots NODE: with the boot id that lies there
	setsid unshare -m sh -c 'mount --bind "$1" /proc/sys/kernel/random/boot_id && shift && exec "$@"' - "$dir/$1/boot_id" \
		env HUNG_DISK="$dir/hangs" LD_PRELOAD="$O/tests/e2e/hung_disk.so" "${DLOCKD:?}" --dir "$dir/$1" >>"$dir/$1/log" 2>&1 &
	daemon[$1]=$!
}
power_cut() { kill -KILL ${daemon[$1]}; wait ${daemon[$1]} 2>/dev/null; }
boots_anew() {   # boots_anew NODE
	cat /proc/sys/kernel/random/uuid >"$dir/$1/boot_id"
	boots "$1"
	until_true 100 test -S "$dir/$1/run/dlockd.sock"
}

# reserved FILE: takes some, until there is a ceiling that is far ahead.
reserved() { use 1 ids kept 10 >>"$dir/$1" && reserved_for_long 1 kept; }
# take NODE FILE: again where ids are ahead of the clock: each new boot begins some seconds above the one before.
take() { use "$1" ids kept 20000 >>"$dir/$2" 2>/dev/null; }
# rises FILE...: each id above the one before; of one number, so none comes twice.
rises() { cat "$@" | cut -d' ' -f1 | sort -n -u -c; }
last_of() { tail -n 1 "$1" | cut -d' ' -f"$2"; }
session() { on 1 status --json | grep -m 1 '"session"' | tr -dc 0-9; }

for i in 1 2; do configure $i n$i ${ttl}s; done
etcd_start
cat /proc/sys/kernel/random/uuid >"$dir/1/boot_id"
boots 1
start 2
until_true 100 all_there 1 && until_true 100 all_there 2 && until_true 100 reserved before
ok $? "a number is in the file, and reserved for long"

# --- The disk does not answer, nor does the store; then the machine is started anew ---

freeze $etcd
touch "$dir/hangs"
DLOCK_RUN_DIR=$dir/1/run "$tool" ids kept 1000000000 >"$dir/hung" 2>/dev/null &
taker=$!
until_true 100 test -e "$dir/hangs.met" && until_true 100 eval "! kill -0 $taker 2>/dev/null"
ok $? "the disk hangs while the store is away: then there are no ids any more"
next=$(of_ids 1 kept next)
last=$(($(last_of "$dir/hung" 1) >> 22))
[ "$last" -lt "$next" ] && rises "$dir/before" "$dir/hung"
ok $? "... and none was given out that is not in the file that is there"
echo "# the last one $((next - last)) ms below"
until_true 100 on 1 status >"$dir/out" && grep -q n1 "$dir/out"
ok $? "... the daemon answers"
power_cut 1
rm -rf "$dir/1/run" "$dir/hangs" "$dir/hangs.met"
boots_anew 1
said 1 'the machine was started anew'
ok $? "the machine is started anew"
until_true 100 take 1 anew && rises "$dir/before" "$dir/hung" "$dir/anew" &&
	[ "$(cut -d' ' -f2 "$dir/before" "$dir/anew" | sort -u | wc -l)" = 1 ]
ok $? "... and goes on with its number, above all that it gave out, while the store is still away"
power_cut 1
boots_anew 1
until_true 100 take 1 again && rises "$dir/before" "$dir/hung" "$dir/anew" "$dir/again"
ok $? "... and once more, with a run directory that was not emptied"
kill -CONT $etcd
until_true 100 all_there 1 && until_true 100 all_there 2
ok $? "the store is back"

# --- The disk does not answer, and the store does ---

until_true 100 reserved again
touch "$dir/hangs"
was=$(session)
DLOCK_RUN_DIR=$dir/1/run "$tool" ids kept 1000000000 >"$dir/other" 2>/dev/null &
taker=$!
until_true 100 test -e "$dir/hangs.met"
ok $? "the disk hangs again"
for ((k = 0; k < 14; k++)); do      # longer than a session without beats would last
	on 1 run between -- true && on 2 run between -- true || echo "# not run"
	sleep 0.5
done
[ -n "$was" ] && [ "$(session)" = "$was" ] && there 1 2 && there 2 2
ok $? "the daemon misses no beat meanwhile, and hands its locks over"
until_true 100 eval "! kill -0 $taker 2>/dev/null"
ok $? "ids end where the file that is there ends"
another() { take 1 other && [ "$(last_of "$dir/other" 2)" != "$(last_of "$dir/again" 2)" ]; }
until_true 100 another
ok $? "... and whoever asks again has another number soon"
rm "$dir/hangs"
until_true 100 take 1 after
bad=$?
for worker in $(cut -d' ' -f2 "$dir/again" "$dir/other" "$dir/after" | sort -u); do
	cat "$dir/before" "$dir/hung" "$dir/anew" "$dir/again" "$dir/other" "$dir/after" | grep " $worker$" >"$dir/its"
	rises "$dir/its" || bad=1
done
[ $bad = 0 ]
ok $? "the disk answers: no id came twice"

echo "1..$n"
exit $failed
