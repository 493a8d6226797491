#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# docs/model/run.sh [quick]: explores the models beside it to the end, and those with one rule taken away until
# what is wrong is found. Prints TAP. An exploration that did not come to its end (depth, memory) is a failure.
# ONLY=pattern: some. KEEP=DIR: pan's output and the trail of each are left there.
set -eu

models=$(cd "$(dirname "$0")" && pwd)
cc=${CC:-cc}
memory=${MEMORY:-3500}                  # MB, for one exploration
quick=
[ "${1:-}" != quick ] || quick=yes
only=${ONLY:-*}
number=0
failed=0
seconds=0

for tool in spin "$cc"; do
	if ! command -v "$tool" >/dev/null; then
		echo "1..0 # SKIP no $tool: scripts/deps model installs it"
		[ -n "$quick" ] && exit 0
		exit 1
	fi
done

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# What our children used between two `times`: on a busy machine the clock on the wall says little.
cpu_seconds() {
	awk -F '[ms ]+' 'FNR == 2 { t = $1 * 60 + $2 + $3 * 60 + $4; if (NR == 2) t0 = t } END { print t - t0 }' "$@"
}

# explore FILE FLAG...: what pan says is in $dir/out. States are kept as hashes of 64 bits (HC4): of ten million one is overlooked
# with a probability below 10^-5. Nothing is gained by partial order in models of one process, so they go without.
explore() {
	file=$1
	shift
	rm -rf "$dir/pan"
	mkdir "$dir/pan"
	cd "$dir/pan"
	spin "$@" -a "$models/$file.pml" >spin.out 2>&1 || { cat spin.out >"$dir/out"; return; }
	$cc "$optimise" -w -DSAFETY -DNOREDUCE -DHC4 -DMEMLIM="$memory" -o pan pan.c
	times >"$dir/before"
	./pan -m100000 -w24 >"$dir/out" 2>&1 || true
	times >"$dir/after"
	seconds=$(cpu_seconds "$dir/before" "$dir/after")
	[ -z "${KEEP:-}" ] || { mkdir -p "$KEEP/$number"; cp "$dir/out" ./*.trail "$KEEP/$number/" 2>/dev/null || true; }
	cd "$models"
}

errors() { sed -n 's/.*errors: \([0-9]*\).*/\1/p' "$dir/out" | head -n 1; }
violation() { sed -n 's/^pan:1: \(.*\) (at depth.*/\1/p' "$dir/out" | head -n 1; }
cut_off() { grep -q -e 'max search depth too small' -e 'Search not completed' -e 'out of memory' -e 'MEMLIM bound' "$dir/out"; }
figures() {
	awk -v s="$seconds" '/states, stored/ { states = $1 } /total actual memory/ { mb = $1 }
	     END { printf "%d states, %.1f s, %d MB", states, s, mb }' "$dir/out"
}
say() {
	[ "$1" = ok ] || failed=1
	echo "$1 $number - $2 ($(figures))"
}

wanted() {
	case "$1" in $only) ;; *) return 1 ;; esac
	[ -z "$quick" ] || [ "$2" = quick ] || return 1
	number=$((number + 1))
}

# right FILE quick|long WHAT FLAG...
right() {
	wanted "$1" "$2" || return 0
	file=$1 what=$3 optimise=-O2
	shift 3
	explore "$file" "$@"
	if [ "$(errors)" = 0 ] && ! cut_off; then
		say ok "$file: $what"
	else
		say 'not ok' "$file: $what: $(cut_off && echo 'not explored to the end' || violation)"
		sed 's/^/# /' "$dir/out" | head -n 20
	fi
}

# broken FILE quick|long SWITCH RULE FLAG...
broken() {
	wanted "$1" "$2" || return 0
	file=$1 switch=$3 rule=$4 optimise=-O1       # what is wrong is found soon: compiling takes longer
	shift 4
	explore "$file" "-DBREAK_$switch" "$@"
	case "$(violation)" in
	'assertion violated'*) say ok "$file is broken when $rule" ;;
	*) say 'not ok' "$file: nothing is found when $rule" ;;
	esac
}

right beat quick 'who is expired has lapsed; a single renewal' -DVALUES=2
right beat long 'who is expired has lapsed'
broken beat quick REPLY 'the deadline counts from the answer'
broken beat long TWICE 'a value is sent twice, and counts from the second sending'
broken beat long EARLY 'the observer does not wait long enough'
broken beat long MARGIN 'nothing is taken off for drift'
broken beat long BLIND 'the tombstone is written over whatever is there'
broken beat long ADOPTED 'the beat of an earlier incarnation counts when it is read'

right barrier quick 'one verdict a round; nothing restarts or breaks' -DREIGNS=2 -DRESTARTS=0 -DRELINKS=0
right barrier long 'one verdict a round; two parties, two rounds, two reigns' -DREIGNS=2
right barrier long 'three parties, one of whom ends' -DPARTIES=3 -DREIGNS=2 -DROUNDS=1 -DRESTARTS=0 -DRELINKS=0
broken barrier quick ONE_STEP 'there is one step only' -DREIGNS=2
broken barrier quick ALONE 'a party concludes alone' -DREIGNS=2
broken barrier long ACKS 'all go when one has acknowledged' -DREIGNS=2
broken barrier long FORGETS 'a later master does not drive a record forward' -DREIGNS=2
broken barrier long LEDGER 'a restart forgets what was recorded' -DREIGNS=2
broken barrier long OPEN 'a master decides before all have synced' -DREIGNS=2
broken barrier long ROUND 'a frame of another round is taken' -DREIGNS=2
broken barrier long TOTALS 'what is said again is added' -DREIGNS=2

right double quick 'all who entered leave together; nothing restarts or breaks' -DRESTARTS=0 -DRELINKS=0
right double long 'all who entered leave together'
right double long 'the same, and no node ends' -DENDS=0
right double long 'in and out twice' -DCYCLES=2 -DRESTARTS=0
right double long 'three parties, one of whom ends' -DPARTIES=3 -DRESTARTS=0 -DRELINKS=0 -DDEATHS=0
broken double quick FEW 'it is not counted whether all who have entered are inside yet'
broken double long ENTERS 'it is counted before all have heard that they are inside'
broken double long READY 'they leave before all of them are done'
broken double long DEATH 'one that dies inside is not heeded' -DENDS=0
broken double long FORGETS 'a later master does not drive a record forward'
broken double long LEDGER 'a restart forgets that a party is inside'
broken double long OPEN 'a master decides before all have synced'
broken double long STEP 'some go before all are told'

right enrol quick 'whoever acts on "passed" has only parties that know; two reigns'
places='-DP=3 -DPLACES=3 -DENDS=0 -DROUNDS=2'
right enrol quick 'two of three have places, and nobody leaves; two reigns' $places -DPATIENT
right enrol long 'the same, whoever leaves; one reign' $places -DREIGNS=1
right enrol long 'the parties have places; two reigns' -DPLACES=3
broken enrol quick PLACES 'a round is decided while somebody has a place left in it' $places -DPATIENT
broken enrol long FIT 'who does not fit is put out of a round that is still formed' $places -DREIGNS=1
broken enrol quick CONFIRM 'a party is counted that has not confirmed'
broken enrol quick LEAVE 'a party that is in leaves by itself'
broken enrol quick DRIVE 'a later master does not drive a verdict forward'
broken enrol quick STEP 'some go before all are told'

pair='-DMEMBERS=2 -DCLAIMS=2'

right pass quick 'two members, two claims each, one of them ends' $pair
right pass quick 'the same, and nobody is left waiting' $pair -DNO_CANCEL
right pass long 'three members, a claim each' -DMEMBERS=3
right pass long 'three members, and nobody is left waiting; connections break' -DMEMBERS=3 -DNO_CANCEL -DRELINKS=1
right pass long 'three members; masters change' -DMEMBERS=3 -DREIGNS=2 -DOFFS=0
right pass long 'two claims each; connections break' $pair -DRELINKS=1
right pass long 'two claims each; masters change' $pair -DREIGNS=2
broken pass quick HEIR 'the master forgets who may have been given the name' $pair
broken pass long PROOF 'the heir is not believed before the holder has said so' $pair
broken pass long RANGE 'what is set aside begins within what the holder has' $pair
broken pass long NUMBER 'a pass is taken that was for an earlier claim' $pair
broken pass quick ENDED 'another is granted it when the holder ends' $pair
broken pass long GONE 'nobody asks whether the heir that was given it lives' $pair
broken pass long HEARD 'the heir does not have it as soon as the holder says so' $pair
broken pass long OFF 'the holder is not waited for that was asked not to pass it on' $pair
broken pass long EPOCH 'a pass of an older epoch is taken' $pair -DREIGNS=2

two='-DSESSIONS=2'
streams='-DSESSIONS=2 -DSTORE=1 -DRELINKS=1 -DSPLIT -DQUEUE=3'
reigns='-DMORTALS=0 -DCLAIMERS=6 -DNO_RAISE'

right lease long 'two sessions; three changes of map or sessions' $two
right lease long 'the same, and nobody is left waiting' $two -DSTORE=2 -DCALM
right lease long 'a daemon restarts twice' $two -DSTORE=2 -DRESTARTS=2
right lease long 'a restart, and claims that follow each other' $two -DSTORE=1 -DRESTARTS=1 -DCLAIMS=2 -DCALM
right lease long 'connections break twice, claims follow each other' $two -DSTORE=1 -DRELINKS=2 -DCLAIMS=2 -DCALM
right lease long 'connections break in the middle of a sync' $streams
right lease long 'a session joins while reigns change' $reigns -DNO_CANCEL
right lease long 'a session joins, another ends, the map changes' -DMORTALS=1 -DCLAIMERS=6 -DNO_RAISE -DQUEUE=1
broken lease quick OPEN 'a master grants before all have synced' $two
broken lease long EPOCH 'a grant of an older epoch is taken' $two
broken lease long WAITS 'a grant is taken that nobody waits for' $two
broken lease long EVICT 'a session is ended that has not lapsed' $two
broken lease long LIST 'the members are listed before the map is read' -DSTORE=2 $reigns
broken lease long LIST_REIGN 'a list counts that was asked for in an earlier reign' -DSTORE=4 $reigns
broken lease long MAP 'the map is read before the member record is there' -DSTORE=2 $reigns
broken lease long NODE 'the map names nodes, not sessions' -DSTORE=2 -DMORTALS=1 -DMASTERS=7 -DCLAIMERS=6 -DREJOIN
broken lease long INCARNATION 'the map names no incarnation' $two -DSTORE=2 -DRESTARTS=1
broken lease long ADOPT 'a session is adopted after its deadline' $two -DSTORE=2 -DRESTARTS=1
broken lease long CONN 'frames of an older connection are taken' $streams -DMORTALS=0
broken lease long RESYNC 'a sync counts whose beginning was not heard' $streams
echo "1..$number"
exit $failed
