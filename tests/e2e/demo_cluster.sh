#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# make demo-cluster, without the building: it proves what it says, and leaves nothing behind, neither on the disk nor
# among the processes and the network's links.

set -u
. "${srctree:?}/tests/e2e/demos.sh"
demo=$srctree/scripts/demo-cluster

if ! command -v etcd >/dev/null; then
	echo '1..0 # skip no etcd here (Debian: etcd-server)'
	exit 0
fi
[ "$(id -u)" = 0 ] && user= || user='--user --map-root-user'
if ! unshare $user --net true 2>/dev/null; then
	echo '1..0 # skip no network namespaces here'
	exit 0
fi

links() { cut -d: -f1 /proc/net/dev | sort; }
gone() {         # what a run has made, by what it printed
	local dir
	dir=$(sed -n 's|.*dlockd --dir \(.*\)/HOST,.*|\1|p' "$TMPDIR/out")
	nobody_uses "$dir" && [ -n "$dir" ] && [ ! -e "$dir" ] && [ "$(links)" = "$before" ] &&
		[ -z "$(find "$TMPDIR" -mindepth 1 ! -name out)" ]
}
before=$(links)

"$demo" >"$TMPDIR/out" 2>&1
status=$?
[ $status = 0 ] && grep -q '^Proved' "$TMPDIR/out" && ! grep -q 'NOT' "$TMPDIR/out" &&
	grep -q 'EOWNERDEAD' "$TMPDIR/out" && grep -q 'gamma | .* lapsed' "$TMPDIR/out"
ok $? 'the holder loses its network: its command is ended first, then another host has the lock; no line is torn or lost'
[ $failed = 0 ] || sed 's/^/# /' "$TMPDIR/out"
gone
ok $? 'its directory, its processes and its links are gone'

for stage in '.*dlockd --dir' '4\.'; do
	begin "$demo" "$stage"
	sleep 0.3
	kill $demo_pid
	wait $demo_pid
	[ $? = 143 ] && ! grep -q '^Proved' "$TMPDIR/out"
	ok $? "it ends when it is told to, after '$stage'"
	[ $failed = 0 ] || sed 's/^/# /' "$TMPDIR/out"
	gone
	ok $? '... and leaves nothing behind'
done

echo "1..$n"
exit $failed
