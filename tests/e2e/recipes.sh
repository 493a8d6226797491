#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# docs/RECIPES.md, each recipe with the programs of docs/examples, on three nodes.

. "${srctree:?}/tests/e2e/nodes.sh"
examples=$srctree/docs/examples programs=${O:?}/docs/examples

# use NODE COMMAND...: a program of the library, as a client of that node
use() { DLOCK_RUN_DIR=$dir/$1/run timeout --foreground 60 "${@:2}"; }

all_there() { there "$1" 3; }
lines() { [ "$(wc -l <"$1")" = "$2" ]; }

for i in 1 2 3; do configure $i n$i 3s; done
etcd_start
for i in 1 2 3; do start $i; done
until_true 30 all_there 1 && until_true 30 all_there 2 && until_true 30 all_there 3
ok $? "three nodes find one another"

# --- A job that runs on one host ---

# night FILE: cron starts it on each host, not quite at the same time.
night() {
	local file=$1 i started=
	for i in 2 3 1; do
		on $i run -n -E 0 nightly -- "$examples/once.sh" 1.6 sh -c 'echo "$DLOCK_TOKEN" >>"$0"' "$file" || echo failed >>"$file" &
		started="$started $!"
		sleep 0.1
	done
	wait $started
}
night "$dir/night1"
night "$dir/night2"
echo "# $(cat "$dir/night1" "$dir/night2" | tr '\n' ' ')"
lines "$dir/night1" 1 && lines "$dir/night2" 1 && [ "$(cat "$dir/night2")" -gt "$(cat "$dir/night1")" ]
ok $? "a job runs on one of three hosts, and again on one the next night"
on 3 run -n -E 0 nightly -- "$examples/once.sh" 0 sh -c 'exit 3'
[ $? = 3 ]
ok $? "... and its exit code is the run's"

echo "1..$n"
exit $failed
