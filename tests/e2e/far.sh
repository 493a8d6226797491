#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# What the programs named below tell of one node, told across nodes: the daemon of each is one of three, and its actors are clients
# of all three. Those of one process use all that is between nodes too: who grants a name is mostly another. What a story leaves out,
# and why, is said where it is skipped.

. "${srctree:?}/tests/e2e/nodes.sh"

# A cluster for each: who has stopped keeps what it had for as long as its session lives. However busy the machine is: nobody
# loses his lease in here, but by being killed.
cluster_up() {
	base=$((base + 20))
	for i in 1 2 3; do configure $i n$i 20s; done
	etcd_start
	start 2
	start 3
	until_true 100 there 2 2 && until_true 100 there 3 2
}
cluster_down() {
	kill -KILL "${daemon[@]}" "$etcd"
	wait "${daemon[@]}" "$etcd"
	daemon=()
	rm -rf "${dir:?}"/*
} 2>/dev/null

# told PROGRAM: its results under our numbers; one more if it did not come to its end.
told() {
	local line count=0 plan=

	while IFS= read -r line; do
		case $line in
		'ok '* | 'not ok '*)
			n=$((n + 1)) count=$((count + 1))
			echo "${line%%ok *}ok $n - $1: ${line#* - }"
			[ "${line#not}" = "$line" ] || failed=1
			;;
		1..*) plan=${line#1..} ;;
		*) echo "$line" ;;
		esac
	done
	[ "$plan" = "$count" ] || ok 1 "$1 comes to its end"
}

export DLOCK_TEST_NODES=$dir
for program in ${PROGRAMS:-borders calls things semaphores double elections barrier}; do
	from=$(us)
	cluster_up || ok 1 "two nodes are there before $program"
	told $program < <("${O:?}/tests/e2e/$program" 2>&1)
	echo "# $program: $((($(us) - from) / 1000)) ms"
	cluster_down
done
echo "1..$n"
exit $failed
