#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# What operators get wrong: nodes whose settings do not fit together. Each is noticed, said, and harms nobody else.

. "${srctree:?}/tests/e2e/nodes.sh"

stop() {
	kill -TERM "${daemon[$1]}"
	wait "${daemon[$1]}"
	unset "daemon[$1]"
}

status_says() { on "$1" status 2>&1 | grep -q "$2"; }

etcd_start
configure 1 n1 6s
configure 2 n2 6s
configure 3 n3 9s
start 1
start 2
until_true 100 there 1 2 && until_true 100 there 2 2
ok $? "two nodes are a cluster"
id=$(on 1 status --json | sed -n 's/.*"id": *"\([0-9a-f]*\)".*/\1/p' | head -n 1)
[ ${#id} = 32 ] && on 2 members --json | grep -q "\"id\": *\"${id:0:16}\""
ok $? "one is called by the same digits on all nodes"

# --- another TTL ---

start 3
until_true 100 said 3 'stays outside the cluster: \[Cluster\] TTL= is 9000 ms here and 6000 ms in the cluster'
ok $? "a node with another TTL says so"
sleep 1
until_true 100 there 1 2 && ! there 3 1 && until_true 100 status_says 3 'TTL= is 9000 ms here'
ok $? "it stays outside, and its status says why"
stop 3
configure 3 n3 6s
start 3
until_true 100 there 3 3
ok $? "with the right one it comes in"

# --- who begins anew ---

stop 3
rm -r "$dir/3/run"
: >"$dir/3/log"
start 3
until_true 100 said 3 'in the cluster' && ! said 3 'the session goes on' && until_true 100 there 3 3 && ! grep 'own session' "$dir/3/log"
ok $? "a node that begins anew does not take its former session, while that lasts, for somebody else"

# --- what is copied from node to node ---

stop 3
configure 3 n2 6s
start 3
until_true 100 said 2 "the node at $host:$((base + 3)) is called n2, as this one is" && until_true 100 there 3 3
ok $? "two nodes of one name are told of, and work"
stop 3
configure 3 n3 6s
sed -i "/^Listen/aAddress=$host:$((base + 1))" "$dir/3/dlockd.conf"
start 3
until_true 100 said 1 "node n3 has this node's own address"
ok $? "so is a node with the address of another"

echo "1..$n"
exit $failed
