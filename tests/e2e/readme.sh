#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# What README.md shows is what happens: its program is docs/examples/hello.c, and its console is typed here, line by line.

set -u
readme=${srctree:?}/README.md
n=0 failed=0

ok() {           # ok STATUS TITLE
	n=$((n + 1))
	if [ "$1" = 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; failed=1; fi
}

block() { awk -v begin="^\`\`\`$1\$" '$0 ~ begin { on = 1; next } /^```$/ { on = 0 } on' "$readme"; }

difference=$(diff <(block c) "$srctree/docs/examples/hello.c")
ok $? "the program in README.md is docs/examples/hello.c"
[ -z "$difference" ] || sed 's/^/# /' <<<"$difference"

# The commands see a tree as they expect it; the daemon's directory is ours, and is waited for, as a human types slowly.
cd "$TMPDIR" && ln -s "$srctree/include" "$srctree/docs" . && ln -s "${O:?}" build
unset LD_LIBRARY_PATH
{
	block console | sed -n 's/^\$ //p' | grep -vx make | sed "s|/tmp/hello|$TMPDIR/d|g" |
		sed '/dlockd --dir/a for i in $(seq 3000); do DLOCK_RUN_DIR='"$TMPDIR"'/d/run build/libclient/cmd/dlock status >/dev/null 2>\&1 \&\& break; sleep 0.02; done'
	echo 'kill %1; wait'
} >typed
bash typed >printed 2>errors
difference=$(diff <(block console | grep -v '^\$ ') printed)
ok $? "what README.md shows on the console is what is printed"
[ -z "$difference" ] || sed 's/^/# /' <<<"$difference" errors

echo "1..$n"
exit $failed
