#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# What operators get wrong: nodes whose settings do not fit together. Each is noticed, said, and harms nobody else.

set -u
export LC_ALL=C.UTF-8
dlock=${DLOCK:?} dir=$(mktemp -d /dev/shm/dlock-operator.XXXXXX)
base=$((20000 + $$ % 20000)) n=0 failed=0
declare -A daemon

finish() {
	kill -KILL "${daemon[@]}" "$etcd" 2>/dev/null
	wait 2>/dev/null
	rm -rf "$dir"
}
trap finish EXIT

ok() {           # ok STATUS TITLE
	n=$((n + 1))
	if [ "$1" = 0 ]; then
		echo "ok $n - $2"
		return
	fi
	echo "not ok $n - $2"
	failed=1
	for i in 1 2 3; do tail -n 12 "$dir/$i/log" 2>/dev/null | sed "s/^/# node $i: /"; done
}

us() { echo "${EPOCHREALTIME/[.,]/}"; }

# until_true SECONDS COMMAND...
until_true() {
	local end=$(($(us) + $1 * 1000000))
	shift
	while ! "$@"; do
		[ "$(us)" -lt "$end" ] || return 1
		sleep 0.05
	done
}

on() { DLOCK_RUN_DIR=$dir/$1/run timeout --foreground 60 "$dlock" "${@:2}"; }

# configure NODE NAME TTL
configure() {
	mkdir -p "$dir/$1"
	printf '[Node]\nName=%s\nListen=127.0.0.1:%d\n[Cluster]\nName=test\nStore=etcd://127.0.0.1:%d/dlock\nTTL=%s\n' \
		"$2" $((base + $1)) $((base + 10)) "$3" >"$dir/$1/dlockd.conf"
}

start() {
	"${DLOCKD:?}" --dir "$dir/$1" >>"$dir/$1/log" 2>&1 &
	daemon[$1]=$!
}

stop() {
	kill -TERM "${daemon[$1]}"
	wait "${daemon[$1]}"
	unset "daemon[$1]"
}

there() { [ "$(on "$1" members --json 2>/dev/null | grep -c '"state": *"\(up\|self\)"')" = "$2" ] && on "$1" status 2>/dev/null | grep -q '^Lease *good'; }
said() { grep -qs "$2" "$dir/$1/log"; }
status_says() { on "$1" status 2>&1 | grep -q "$2"; }

url=http://127.0.0.1
etcd_start() {
	etcd --name e --data-dir "$dir/etcd" --listen-client-urls $url:$((base + 10)) --advertise-client-urls $url:$((base + 10)) \
		--listen-peer-urls $url:$((base + 11)) --initial-advertise-peer-urls $url:$((base + 11)) \
		--initial-cluster e=$url:$((base + 11)) --unsafe-no-fsync --log-level error >>"$dir/etcd.log" 2>&1 &
	etcd=$!
}

etcd_start
configure 1 n1 2s
configure 2 n2 2s
configure 3 n3 4s
start 1
start 2
until_true 30 there 1 2 && until_true 30 there 2 2
ok $? "two nodes are a cluster"

# --- another TTL ---

start 3
until_true 20 said 3 'stays outside the cluster: \[Cluster\] TTL= is 4000 ms here and 2000 ms in the cluster'
ok $? "a node with another TTL says so"
sleep 1
there 1 2 && ! there 3 1 && status_says 3 'TTL= is 4000 ms here'
ok $? "it stays outside, and its status says why"
stop 3
configure 3 n3 2s
start 3
until_true 30 there 3 3
ok $? "with the right one it comes in"

# --- what is copied from node to node ---

stop 3
configure 3 n2 2s
start 3
until_true 30 said 2 "the node at 127.0.0.1:$((base + 3)) is called n2, as this one is" && until_true 30 there 3 3
ok $? "two nodes of one name are told of, and work"
stop 3
configure 3 n3 2s
sed -i "/^Listen/aAddress=127.0.0.1:$((base + 1))" "$dir/3/dlockd.conf"
start 3
until_true 30 said 1 "node n3 has this node's own address"
ok $? "so is a node with the address of another"

echo "1..$n"
exit $failed
