# SPDX-License-Identifier: LGPL-2.1-or-later
#
# What the tests of the demos share. Their output is in $TMPDIR/out.

n=0 failed=0

ok() {           # ok STATUS TITLE
	n=$((n + 1))
	if [ "$1" = 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; failed=1; fi
}

# nobody_uses DIR: who is killed with SIGKILL may still be on the way out.
nobody_uses() {
	local i
	for ((i = 0; i < 5000; i++)); do
		pgrep -f -- "$1" >/dev/null || return 0
		sleep 0.02
	done
	return 1
}

# begin DEMO PATTERN: in $demo_pid, until its output has a line that begins so.
begin() {
	local i
	"$1" >"$TMPDIR/out" 2>&1 &
	demo_pid=$!
	for ((i = 0; i < 10000; i++)); do
		grep -q "^$2" "$TMPDIR/out" && break
		sleep 0.01
	done
}
