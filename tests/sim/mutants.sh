#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# The judges of the simulator judged: the core (or what stands for the daemon around it) is compiled anew
# with one rule broken at a time, and a seed must be found within SEEDS that shows it. Prints a table.
#
# One switch is not in the table, since no seed below 600 shows it: CORE_BREAK_LIST_EARLY, by which a master is
# content with a list of sessions that it had asked for before it saw its epoch.
set -eu

cc=${CC:-cc}
seeds=${SEEDS:-400}
srctree=${srctree:-$(cd "$(dirname "$0")/../.." && pwd)}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
include=$($cc -print-file-name=include)
number=0
failed=0

# build FLAG
build() {
	rm -f "$dir"/*.o
	for source in "$srctree"/daemon/core/*.c; do
		$cc -std=gnu11 -O2 -ffreestanding -nostdinc -isystem "$include" "$1" -c -o "$dir/core_$(basename "$source" .c).o" "$source"
	done
	for source in "$srctree"/tests/sim/*.c; do
		$cc -std=gnu11 -D_GNU_SOURCE= -O2 -I"$srctree/daemon" -I"$srctree/include" "$1" -c -o "$dir/sim_$(basename "$source" .c).o" "$source"
	done
	$cc -o "$dir/sim" "$dir"/*.o
}

# mutant FLAG RULE
mutant() {
	build "-D$1"
	number=$((number + 1))
	status=0
	timeout 600 "$dir/sim" 1 "$seeds" stop >"$dir/log" 2>&1 || status=$?
	if [ $status = 0 ] || [ $status = 124 ]; then
		failed=1
		echo "not ok $number - $2: not seen in $seeds seeds"
	else
		seed=$(sed -n 's/^# seed \([0-9]*\) at .*/\1/p' "$dir/log" | head -n 1)
		echo "ok $number - $2: seed ${seed:-? (the core itself gave up)}"
		sed -n 's/^# seed [0-9]* \(at .*\)/#     \1/p' "$dir/log" | head -n 1
	fi
}

echo 1..21
build -DCORE_RIGHT
if "$dir/sim" 1 "$seeds" stop >"$dir/log" 2>&1; then
	echo "ok $((number = number + 1)) - unbroken, no judge says no in these $seeds seeds"
else
	echo "not ok $((number = number + 1)) - unbroken: $(head -n 1 "$dir/log")"
	failed=1
fi
mutant CORE_BREAK_STALE_EPOCH 'a grant of an older epoch is taken'
mutant CORE_BREAK_SYNC 'a shard opens before all have synced'
mutant CORE_BREAK_MAP_EARLY 'the map is read before the session is there'
mutant CORE_BREAK_REPLY 'the deadline counts from the answer'
mutant CORE_BREAK_VALUE_TWICE 'a beat is sent twice, and counts from the second sending'
mutant CORE_BREAK_EXPIRE_EARLY 'an observer does not wait long enough'
mutant CORE_BREAK_LAPSE_LATE 'an event is taken before the deadline is looked at'
mutant CORE_BREAK_NODE_KEY 'the map names sessions without their incarnation'
mutant CORE_BREAK_OLD_CONN 'frames of an old connection are processed'
mutant CORE_BREAK_ADOPT_LATE 'a session is adopted after its deadline'
mutant SIM_BREAK_REFILL_OWNED 'a range is refilled under an owner'
mutant SIM_BREAK_ADOPT_SLOTS 'leases are adopted from the slots'
mutant CORE_BREAK_LEDGER 'a release is on the wire before it is in the ledger'
mutant CORE_BREAK_DELTA 'a claim said again is added instead of taken as the total'
mutant CORE_BREAK_FLOOR 'a name is forgotten without raising the floor'
mutant CORE_BREAK_REFILL 'a refill begins within the former range'
mutant CORE_BREAK_SUSPECT 'a suspect reign does not say so'
mutant CORE_BREAK_END_EARLY 'the session is ended before the actions on loss are'
mutant CORE_BREAK_WAITS 'a grant is taken that nobody waits for'
mutant CORE_BREAK_RESYNC 'a sync counts whose beginning was not heard'
exit $failed
