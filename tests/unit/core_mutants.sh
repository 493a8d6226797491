#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# The judges judged: the core is compiled anew with one rule broken at a time (CORE_BREAK_*), and the
# named test must say no. Unbroken, compiled the same way, they all say yes.
set -eu

cc=${CC:-cc}
unit=$O/tests/unit
flags="-std=gnu11 -O1 -ffreestanding -nostdinc -isystem $($cc -print-file-name=include)"
number=0
failed=0

# build DIR SWITCH: the tests beside a core with that switch; what does not know it is as in the unbroken one
build() {
	mkdir -p "$1"
	everything=$(grep -lw "$2" "$srctree"/daemon/core/*.h || :)
	for source in "$srctree"/daemon/core/*.c; do
		object=$(basename "$source" .c).o
		if [ "$2" = CORE_RIGHT ] || [ -n "$everything" ] || grep -qw "$2" "$source"; then
			$cc $flags "-D$2" -c -o "$1/$object" "$source"
		else
			ln -s "$TMPDIR/right/$object" "$1/$object"
		fi
	done
	$cc -o "$1/random" "$unit/test_core_random.o" "$unit/core_world.o" "$unit/core_rig.o" "$1"/*.o -lcmocka
	$cc -o "$1/story" "$unit/test_core_story.o" "$unit/core_rig.o" "$1"/*.o -lcmocka
	$cc -o "$1/messages" "$unit/test_core_messages.o" "$unit/core_rig.o" "$1"/*.o -lcmocka
	$cc -o "$1/delay" "$unit/test_core_delay.o" "$unit/cluster_rig.o" "$1"/*.o -lcmocka
	$cc -o "$1/barrier" "$unit/test_core_barrier.o" "$unit/cluster_rig.o" "$unit/core_rig.o" "$1"/*.o -lcmocka
	$cc -o "$1/double" "$unit/test_core_double.o" "$unit/cluster_rig.o" "$unit/core_rig.o" "$1"/*.o -lcmocka
	$cc -o "$1/pass" "$unit/test_core_pass.o" "$unit/cluster_rig.o" "$1"/*.o -lcmocka
}

say() {
	number=$((number + 1))
	[ "$1" = ok ] || failed=1
	echo "$1 $number - $2"
}

# mutant NAME TEST RULE
mutant() {
	build "$TMPDIR/$1" "CORE_BREAK_$1"
	if timeout 60 "$TMPDIR/$1/$2" >"$TMPDIR/$1.log" 2>&1; then
		say 'not ok' "$2 did not see it when $3"
	else
		say ok "$2 sees it when $3"
		sed -n 's/^# \(seed .*\)/#     \1/p' "$TMPDIR/$1.log" | head -n 1
	fi
	rm -rf "${TMPDIR:?}/$1"
}

echo 1..38
build "$TMPDIR/right" CORE_RIGHT
for test in random story messages delay pass barrier double; do
	if "$TMPDIR/right/$test" >"$TMPDIR/$test.log" 2>&1; then
		say ok "$test is content with an unbroken core"
	else
		say 'not ok' "$test is content with an unbroken core"
	fi
done
mutant FLOOR random 'a name is forgotten without raising the floor'
mutant SYNC random 'a shard opens before its members have synced'
mutant LEDGER random 'a release is acknowledged before it is in the ledger'
mutant SLOT random 'a grant is in the slot before it is in the ledger'
mutant REFILL random 'a refill begins within the former range'
mutant EPOCH random 'grants begin before the epoch is in the store'
mutant LOST random 'a write whose answer was lost is taken for done'
mutant RAISE random 'a counter runs over its end'
mutant BELIEF random 'a client is believed whatever it says it used'
mutant INCARNATION random 'a later incarnation in the map is overlooked'
mutant BACK story 'a map older than one seen before is taken'
mutant WAITS messages 'a grant is taken that nobody waits for'
mutant DELAY_MARK delay 'a delay is not handed over to the next master'
mutant DELAY_SHARE_MARK delay 'who had shares with a delay is not handed over to the next master'
mutant DELAY_RECORD delay 'a delay is granted before the store knows of it'
mutant DELAY_EARLY delay 'a suspect reign opens before it has read what the store knows of delays'
mutant BARRIER_UNHEARD barrier 'who gave up before it was put in breaks that round when its node connects again'
mutant BARRIER_FEW double 'it is not counted whether all who have entered are inside yet'
mutant BARRIER_ENTERS double 'it is counted before all have heard that they are inside'
mutant BARRIER_PAST double 'what became of those who had entered is taken for broken by a master that cannot know'
mutant PASS_HEIR pass 'the master forgets who may have been given a name by its holder'
mutant PASS_PROOF pass 'an heir that has it is not believed before the holder has said so'
mutant PASS_RANGE pass 'what is set aside for the heir begins within what the holder has'
mutant PASS_NUMBER pass 'a pass is taken that was for an earlier claim'
mutant PASS_SECRET pass 'a pass is taken that does not know the secret of the claim'
mutant PASS_EPOCH pass 'a pass of an older epoch is taken'
mutant PASS_TIED pass 'a holder heeds who the heir was under another grant'
mutant PASS_LEFT pass 'value and death do not ride along with a pass'
mutant PASS_OWES pass 'what came with a pass is not said to the master'
mutant PASS_OFF pass 'a holder is not waited for that was asked not to pass a name on to the heir'
mutant PASS_GONE pass 'nobody asks whether the heir that was passed a name lives'
exit $failed
