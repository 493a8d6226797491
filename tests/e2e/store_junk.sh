#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# An etcd in which somebody else has written: hundreds of nodes that are not there, records under the wrong keys, garbage. The
# cluster goes on, says what it sees, and is rid of it after a TTL, also when a node dies just then.

. "${srctree:?}/tests/e2e/nodes.sh"
export ETCDCTL_API=3
url=http://$host:$((base + 10))

keys() { etcdctl --endpoints "$url" get --prefix "/dlock/test/$1" --keys-only | grep -ac .; }
clean() { [ "$(keys member/)" -le "$1" ]; }
forge() { python3 -B "$srctree/tests/e2e/forge.py" "$url" /dlock/test/ "$@"; }

# work NODE NAME: 40 locks that nobody has had before, whoever masters them.
work() {
	local lost=0
	for ((k = 0; k < 40; k++)); do
		until on "$1" run "$2-$k" true; do
			[ $? = 75 ] && [ $((lost += 1)) -lt 5 ] || return 1      # a node that is given no processor loses its lease
		done
	done
}

three_nodes 12s
ok $? "three nodes are a cluster"

# --- while nothing else happens ---

hold 1 held
forge members 150 1 && forge dead 50 2 && forge named 30 3 && forge garbage 60 4 && forge odd 32 5 && forge beats 30 6 &&
	forge doubles 10 abc
ok $? "hundreds of records are forged"
work 2 quiet && kill -0 $held
ok $? "locks go on, and what is held stays held"
until_true 100 said 1 'records of members and beats in the store are not what they should be' &&
	until_true 100 said 1 'no connection to '
ok $? "the log says what is odd"
until_true 100 clean 13
# What no session can have as its key is passed over, and stays: it is in nobody's way.
ok $? "what is no node's is cleared away ($(keys member/) left below member/)"
until_true 100 grep -qs 'has not been renewed for 12000 ms: it is ended' "$dir"/[123]/log
ok $? "... and the log says who has been ended"

# --- when a node dies ---

forge members 150 11 && forge dead 50 12 && forge garbage 60 14 && forge doubles 10 def
kill -KILL "${daemon[3]}"
begin=$(us)
work 1 dying && work 2 dying && kill -0 $held
ok $? "a node dies among hundreds that have never lived: its locks are granted elsewhere ($((($(us) - begin) / 1000)) ms)"
start 3
until_true 100 there 3 3 && work 3 again
ok $? "a new one comes in"
! grep -aE '(error|warning): .*(crash|assert)' "$dir"/[123]/log && kill -0 "${daemon[1]}" "${daemon[2]}" "${daemon[3]}"
ok $? "nobody has come to harm"
kill $held

echo "1..$n"
exit $failed
