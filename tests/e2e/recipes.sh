#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# docs/RECIPES.md, each recipe with the programs of docs/examples, on three nodes.

. "${srctree:?}/tests/e2e/nodes.sh"
examples=$srctree/docs/examples programs=${O:?}/docs/examples

# use NODE COMMAND...: a program of the library, as a client of that node
use() { DLOCK_RUN_DIR=$dir/$1/run timeout --foreground 200 "${@:2}"; }

lines() { [ "$(wc -l <"$1")" = "$2" ]; }

three_nodes 15s
ok $? "three nodes find one another"

# --- A job that runs on one host ---

# night FILE: cron starts it on each host, not quite at the same time. The job lasts until two hosts have found it held.
night() {
	local file=$1 i started=
	rm -f "$file" "$file.ended"
	for i in 2 3 1; do
		{
			on $i run -n -E 0 nightly -- "$examples/once.sh" 0.6 sh -c \
				'echo "$DLOCK_TOKEN" >>"$0"; until [ "$(wc -l <"$0.ended")" -ge 2 ]; do sleep 0.05; done' "$file" || echo failed >>"$file"
			echo "$i" >>"$file.ended"
		} &
		started="$started $!"
		: >>"$file.ended"
		sleep 0.1
	done
	wait $started
	[ -s "$file" ] || return 2       # on none: -n asks for a second, and on a busy machine nobody may answer in it
}
once_of 5 night "$dir/night1"
once_of 5 night "$dir/night2"
echo "# $(cat "$dir/night1" "$dir/night2" | tr '\n' ' ')"
lines "$dir/night1" 1 && lines "$dir/night2" 1 && [ "$(cat "$dir/night2")" -gt "$(cat "$dir/night1")" ]
ok $? "a job runs on one of three hosts, and again on one the next night"
on 3 run -w 60 -E 0 nightly -- "$examples/once.sh" 0 sh -c 'exit 3'
[ $? = 3 ]
ok $? "... and its exit code is the run's"

# --- A leader, and who is to know of it ---

# candidate NODE: its pid in $candidate[NODE]
declare -A candidate
stands() {
	DLOCK_RUN_DIR=$dir/$1/run "$programs/leader" lead "host$1:80" >>"$dir/lead$1" 2>&1 &
	candidate[$1]=$!
}
leads() { grep -qs "^leads .* host$1:80" "$dir/lead$1"; }
told() { grep -qs "$1" "$dir/follow"; }

use 3 "$programs/leader" follow >"$dir/follow" 2>&1 &
follower=$!
stands 1
until_true 100 leads 1 && stands 2 && until_true 100 told '^host1:80 leads'
ok $? "one leads, and another node is told who"
sleep 0.3
kill -KILL ${candidate[1]}
wait ${candidate[1]} 2>/dev/null
until_true 100 leads 2 && until_true 100 told '^host2:80 leads'
ok $? "... it is killed, and the next one leads, and that is told too"
[ "$(sed -n 's/.* in term //p' "$dir/follow" | tee "$dir/terms" | sort -nu)" = "$(cat "$dir/terms")" ]
ok $? "... in a higher term"
kill -TERM ${candidate[2]}
wait ${candidate[2]}
[ $? = 0 ] && grep -q '^led ' "$dir/lead2" && until_true 100 eval '[ "$(tail -n 1 "$dir/follow")" = "nobody leads" ]'
ok $? "... and when it has resigned, nobody does"
kill $follower
wait $follower 2>/dev/null
on 1 run --elect primary -- sh -c 'echo "$DLOCK_TOKEN" >"$0"; sleep 0.5' "$dir/primary1" &
until_true 100 test -s "$dir/primary1"
on 2 run --elect -w 60 primary -- sh -c 'echo "$DLOCK_TOKEN" >"$0"' "$dir/primary2" && [ "$(cat "$dir/primary2")" -gt "$(cat "$dir/primary1")" ]
ok $? "dlock run --elect does so for a program that knows nothing of it"

# --- A new version on all hosts, two at a time ---

# deployed SECONDS: each takes so long
deployed() {
	rm -f "$dir/deploy"
	started=
	for i in 1 2 3 4 5 6; do
		DEPLOY_SECONDS=$1 on $((i % 3 + 1)) run --sem 2 deploy -- "$examples/deploy.sh" host$i "$dir/deploy" &
		started="$started $!"
	done
	wait $started
}
# most FILE: how many were out at once, at most
most() { sort "$1" | awk '$2 == "out" { n++ } $2 == "in" { n-- } n > most { most = n } END { print most + 0 }'; }
# Again, and slower, where the machine has had no time for two at once.
for seconds in 0.3 1 3 9; do
	deployed $seconds
	lines "$dir/deploy" 12 && [ "$(most "$dir/deploy")" -le 2 ] || break
	[ "$(most "$dir/deploy")" = 1 ] || break
done
lines "$dir/deploy" 12 && [ "$(most "$dir/deploy")" = 2 ]
ok $? "six hosts are taken out of service, two at a time"
printf '1 out a\n2 out b\n3 out c\n4 in a\n' >"$dir/three"
[ "$(most "$dir/three")" = 3 ]
ok $? "... and the judge would see a third"
DLOCK_RUN_DIR=$dir/1/run DEPLOY_SECONDS=600 "$dlock" run --sem 2 deploy -- "$examples/deploy.sh" lost "$dir/lost" 2>/dev/null &
lost=$!
until_true 100 test -s "$dir/lost"
kill -KILL $lost
wait $lost 2>/dev/null
on 2 run --sem 2 -w 50 deploy -- "$dlock" run --sem 2 -w 50 deploy -- true
ok $? "... and the permit of one that is killed comes back"

# --- A batch job in phases ---

# come NODE BARRIER COUNT: so many of that node have come
come() { on "$1" show --kind barrier --json "$2" 2>/dev/null | grep -q "\"count\": $3"; }

# workers FIRST LAST: their pids in $started
workers() {
	local w
	started=
	for ((w = $1; w <= $2; w++)); do
		use $((w % 3 + 1)) "$programs/phases" 6 $w "$dir/phases" 5 2>>"$dir/phases.err" &
		started="$started $!"
	done
}

# ended STATUS: all of them, so
ended() {
	local p r=0
	for p in $started; do
		wait $p
		[ $? = "$1" ] || r=1
	done
	return $r
}

mkdir "$dir/phases"
workers 0 5
ended 0 && [ "$(cat "$dir"/phases/4.* | sort | uniq -c | tr -s ' ')" = ' 6 3240.' ] && [ "$(ls "$dir/phases" | wc -l)" = 6 ]
ok $? "six workers on three nodes: none begins a phase before all have ended the one before"
rm "$dir"/phases/*
workers 0 4
all_came() { [ "$(ls "$dir/phases" | wc -l)" = 5 ]; }
until_true 100 all_came && until_true 100 come 2 demo-phases 2
kill -KILL "$(pgrep -f -- "^$programs/phases 6 4 $dir/phases")"
started=${started% *}
ended 75 && grep -q 'a worker has died' "$dir/phases.err"
ok $? "... one of them dies, and the others are told"
workers 0 5
ended 0 && [ "$(cat "$dir"/phases/4.* | sort -u)" = 3240. ]
ok $? "... and the job, begun again, comes to its end"

# --- All or none ---

# parties WHAT [no]: three of them commit that; the last votes no
parties() {
	local i
	started=
	for i in 1 2 3; do
		use $i "$programs/commit" 3 "$dir/file$i" ${2:+$([ $i = 3 ] && echo $2)} <<<"$1" >>"$dir/commits" &
		started="$started $!"
	done
}
all_have() { [ "$(cat "$dir"/file[123] | sort -u)" = "$1" ] && ! ls "$dir"/file*.new >/dev/null 2>&1; }

parties one
ended 0 && all_have one
ok $? "three parties vote yes, and all commit"
parties two no
ended 1 && all_have one
ok $? "... one votes no, and none does"
use 1 "$programs/commit" 3 "$dir/file1" <<<three >/dev/null &
started=$!
DLOCK_RUN_DIR=$dir/2/run "$programs/commit" 3 "$dir/file2" <<<three >/dev/null &
lost=$!
until_true 100 test -s "$dir/file1.new" && until_true 100 test -s "$dir/file2.new" && until_true 100 come 2 demo-commit 1
kill -KILL $lost
wait $lost 2>/dev/null
ended 1 && rm "$dir/file2.new" && all_have one
ok $? "... one dies before all have voted, and none does"

# --- Numbers ---

started=
for i in 1 2 3 4; do
	use $((i % 3 + 1)) "$programs/ids" 5000 >"$dir/ids$i" &
	started="$started $!"
done
ended 0 && cat "$dir"/ids[1-4] >"$dir/ids" && lines "$dir/ids" 20000 && [ -z "$(sort "$dir/ids" | uniq -d)" ]
ok $? "four processes on three nodes: twenty thousand numbers, none twice"
rising() { sort -nuC "$1"; }
rising "$dir/ids1" && rising "$dir/ids2" && rising "$dir/ids3" && rising "$dir/ids4" && ! rising "$dir/ids"
ok $? "... that rise"
# By bash: an id has more digits than awk's numbers.
[ "$(while read -r id; do echo $((id >> 12 & 1023)); done <"$dir/ids" | sort -u | wc -l)" = 3 ]
ok $? "... each node under a worker number of its own"

echo "1..$n"
exit $failed
