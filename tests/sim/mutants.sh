#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# The judges of the simulator judged: the core (or what stands for the daemon around it) is compiled anew
# with one rule broken at a time, and a seed must be found within SEEDS that shows it. Prints a table: rule,
# switch, seed, and what the judge said there. Two run at a time (JOBS).
#
# O is where tests/sim/test_sim and its objects have been built: only files that know the switch are compiled
# again, or all of them if a header does. ONLY=pattern: some rules. A rule of the core is CORE_BREAK_*, one
# of the daemon's part, for which tests/sim stands here, SIM_BREAK_*.
#
# No row: CORE_BREAK_LIST_REIGN (a list that was asked for in an earlier reign opens a later one). It takes a newcomer whose record lands
# between the list and the next reign, and a list that is under way for that long; test_core_cluster plays just that ("a list of the
# members counts only for the reign that it was asked for"), and docs/model explores it. Nor CORE_BREAK_PASS_EPOCH (a pass of an older epoch
# is taken) and CORE_BREAK_PASS_GONE (nobody asks whether the heir that was passed a name lives): they take a pass, or the word of one, that is
# under way while the heir syncs to the next reign and is not granted the name there, or for longer than the heir lives; test_core_pass plays that.
# Nor CORE_BREAK_BARRIER_UNHEARD (who gave up before it was put in breaks that round when its node connects again): among 400 seeds there may be one.
set -eu

cc=${CC:-cc}
seeds=${SEEDS:-400}
jobs=${JOBS:-2}
: "${O:?is where test_sim was built}"
srctree=${srctree:-$(cd "$(dirname "$0")/../.." && pwd)}

table() {
	cat <<-'END'
	CORE_BREAK_STALE_EPOCH a grant of an older epoch is taken
	CORE_BREAK_SYNC a shard opens before all have synced
	CORE_BREAK_LIST_EARLY the sessions are listed before the map is read
	CORE_BREAK_MAP_EARLY the map is read before the session is there
	CORE_BREAK_REPLY the deadline counts from the answer
	CORE_BREAK_SENT_LAST the deadline counts from a later sending than that of what landed
	CORE_BREAK_VALUE_TWICE a value of a beat is used twice
	CORE_BREAK_EXPIRE_EARLY an observer does not wait long enough
	CORE_BREAK_EXPIRE_MAP an observer counts from the last change of the map
	CORE_BREAK_LAPSE_LATE an event is taken before the deadline is looked at
	CORE_BREAK_NODE_SESSION a node has one session for ever
	CORE_BREAK_NODE_KEY the map names no incarnation
	CORE_BREAK_OLD_CONN frames of an old connection are processed
	CORE_BREAK_ADOPT_LATE a session is adopted after its deadline
	SIM_BREAK_ADOPT_SLOTS leases are adopted from the slots
	CORE_BREAK_LEDGER a release is on the wire before it is in the ledger
	CORE_BREAK_DELTA a claim said again is added instead of taken as the total
	CORE_BREAK_FLOOR a name is forgotten without raising the floor
	CORE_BREAK_REFILL a refill begins within the former range
	SIM_BREAK_REFILL_OWNED a range is refilled under an owner
	CORE_BREAK_SUSPECT a suspect reign does not say so
	CORE_BREAK_VALUE_SUSPECT a suspect reign does not say that values may be lost
	CORE_BREAK_DELAY nobody is kept waiting for who held exclusively and is lost
	CORE_BREAK_DELAY_SUSPECT a suspect reign observes no lock-delay
	CORE_BREAK_DELAY_SHARE shares and permits of who is lost are free at once
	CORE_BREAK_DELAY_UNKNOWN a suspect reign grants as if no shares and permits had been lost
	CORE_BREAK_RELEASE_VALUE the value of a release is forgotten before it is acknowledged
	CORE_BREAK_LIMIT_ORDER the limit that is told last counts, not the latest
	CORE_BREAK_OLD_NEWS observers take older terms, and a master tells news before it knows any
	CORE_BREAK_END_EARLY the session is ended before the actions on loss are
	CORE_BREAK_JEOPARDY jeopardy is not said
	CORE_BREAK_WAITS a grant is taken that nobody waits for
	CORE_BREAK_RESYNC a sync counts whose beginning was not heard
	CORE_BREAK_PASS_HEIR the master forgets who may have been given a name by its holder
	CORE_BREAK_PASS_OFF a holder is not waited for that was asked not to pass a name on to the heir
	CORE_BREAK_PASS_PROOF an heir that has it is not believed before the holder has said so
	CORE_BREAK_PASS_RANGE what is set aside for the heir begins within what the holder has
	CORE_BREAK_PASS_NUMBER a pass is taken that was for an earlier claim
	CORE_BREAK_PASS_TIED a holder heeds who the heir was under another grant
	CORE_BREAK_PASS_LEFT value and death do not ride along with a pass
	CORE_BREAK_PASS_OWES what came with a pass is not said to the master
	CORE_BREAK_OLD_PATH a relayed frame of an old path is processed
	CORE_BREAK_PATH nobody is reached through a third node
	CORE_BREAK_MEEK who is complained of does not end itself
	CORE_BREAK_AVOID both sides of a cut go on as masters
	CORE_BREAK_PLACE_EAGER a shard goes to whoever has claimed something in it lately, without rest
	CORE_BREAK_PLACE_HOME a shard that was moved for its use is moved home at once
	CORE_BREAK_BARRIER_STEP parties go as soon as a verdict is announced
	CORE_BREAK_BARRIER_ALONE a party that has waited for long enough concludes alone
	CORE_BREAK_BARRIER_CARRY arrivals are carried over into a new session
	CORE_BREAK_BARRIER_CONFIRM further arrivals of a member count before it has confirmed them
	CORE_BREAK_BARRIER_PLACES a round is decided while somebody has places left in it
	CORE_BREAK_BARRIER_MORE a member takes more places than it has
	CORE_BREAK_BARRIER_DRIVE a verdict that one member has is not driven home by the next master
	CORE_BREAK_BARRIER_FEW it is not counted whether all who have entered are inside yet
	CORE_BREAK_BARRIER_ENTERS it is counted before all have heard that they are inside
	CORE_BREAK_BARRIER_READY they leave before all of them are done
	CORE_BREAK_BARRIER_DEATH one that dies inside is not heeded
	CORE_BREAK_BARRIER_COMER who comes to enter breaks it for those inside
	CORE_BREAK_BARRIER_INSIDE a later master takes those inside for some who wait to enter
	CORE_BREAK_BARRIER_ASKS who lapsed inside does not ask what became of those inside
	END
}

# build DIR SWITCH: the objects that know it, beside those that do not
build() {
	include=$($cc -print-file-name=include)
	everything=$(grep -lw "$2" "$srctree"/daemon/core/*.h "$srctree"/tests/sim/*.h || :)
	objects=
	for source in "$srctree"/daemon/core/*.c "$srctree"/tests/sim/*.c; do
		object=$1/$(basename "$(dirname "$source")")_$(basename "$source" .c).o
		ready=$O/${source#"$srctree"/}
		if [ -z "$everything" ] && ! grep -qw "$2" "$source"; then
			object=${ready%.c}.o
		elif [ "${source#"$srctree"/daemon/}" != "$source" ]; then
			$cc -std=gnu11 -O2 -ffreestanding -nostdinc -isystem "$include" "-D$2" -c -o "$object" "$source"
		else
			$cc -std=gnu11 -D_GNU_SOURCE= -O2 -I"$srctree/daemon" -I"$srctree/include" "-D$2" -c -o "$object" "$source"
		fi
		objects="$objects $object"
	done
	# shellcheck disable=SC2086 # a list of names without blanks
	$cc -o "$1/sim" $objects
}

# one NUMBER SWITCH RULE...: prints its row. A switch that nobody knows would be an unbroken run.
one() {
	number=$1 switch=$2
	shift 2
	if [ "$switch" = none ]; then
		if "$O/tests/sim/test_sim" 1 "$seeds" stop >"$dir/log" 2>&1; then
			echo "ok $number - $*: no judge says no in $seeds seeds"
			return
		fi
		echo "not ok $number - $*: $(sed -n 's/^# \(seed .*\)/\1/p' "$dir/log" | head -n 1)"
		return 1
	fi
	mkdir "$dir/$number"
	if ! grep -rqw "$switch" "$srctree/daemon/core" --include=*.[ch] && ! grep -rqw "$switch" "$srctree/tests/sim" --include=*.[ch]; then
		echo "not ok $number - $*: nothing knows $switch"
		return 1
	fi
	build "$dir/$number" "$switch"
	status=0
	timeout 600 "$dir/$number/sim" 1 "$seeds" stop >"$dir/$number.log" 2>&1 || status=$?
	rm -rf "${dir:?}/$number"
	said=$(sed -n 's/^# seed \([0-9]* .*\)/\1/p' "$dir/$number.log" | head -n 1)
	if [ "$status" = 0 ] || [ "$status" = 124 ] || [ -z "$said" ]; then
		echo "not ok $number - $*: not seen in $seeds seeds ($switch)"
		return 1
	fi
	echo "ok $number - $* ($switch): seed ${said%% *}"
	echo "#     ${said#* }"
}

if [ "${1:-}" = --one ]; then
	dir=$2
	shift 2
	# shellcheck disable=SC2086 # words of a row
	one $1 >"$dir/row.$$" && status=0 || status=1
	cat "$dir/row.$$"
	exit "$status"
fi

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
{ echo 'none unbroken'; table; } | nl -w1 -s' ' | grep -e "${ONLY:-.}" >"$dir/table"
echo "1..$(wc -l <"$dir/table")"
failed=0
tr '\n' '\0' <"$dir/table" | xargs -0 -n1 -P"$jobs" "$0" --one "$dir" || failed=1
exit $failed
