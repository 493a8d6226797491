#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# make demo, without the building: it proves what it says, and leaves nothing behind. And its judge can say no.

set -u
. "${srctree:?}/tests/e2e/demos.sh"
judge=$srctree/docs/examples/append.awk

# What the demo has made, by what it printed.
gone() {
	local dir
	dir=$(sed -n 's/.*dlockd --dir //p' "$TMPDIR/out")
	[ -n "$dir" ] && [ ! -e "$dir" ] && nobody_uses "$dir"
}

"$srctree/scripts/demo" >"$TMPDIR/out" 2>&1
status=$?
[ $status = 0 ] && grep -q '^Proved' "$TMPDIR/out" && grep -q 'EOWNERDEAD' "$TMPDIR/out"
ok $? 'two holders are killed in the middle of a record, and no line is torn or lost'
[ $failed = 0 ] || sed 's/^/# /' "$TMPDIR/out"
gone
ok $? 'its directory and its processes are gone'

# Again where it was at its end before it was told: no processor for us, that is.
for _ in 1 2 3 4 5; do
	begin "$srctree/scripts/demo" 4
	kill $demo_pid
	wait $demo_pid
	status=$?
	[ $status = 0 ] && grep -q '^Proved' "$TMPDIR/out" || break
done
[ $status = 143 ] && gone
ok $? 'also when it is told to end in the middle'

# --- the judge ---

record() {       # record TOKEN WRITER NUMBER
	printf '%020d %s %d ' "$@"
	for _ in 1 2 3 4 5 6 7 8 9 10 11 12; do printf '%s-%d.' "$2" "$3"; done
	echo
}
says() { awk -f "$judge" "$TMPDIR/expected" "$TMPDIR/file" >"$TMPDIR/out"; }
printf 'a 2\nb 1\n' >"$TMPDIR/expected"

{ record 9007199254740993 a 1; record 9007199254740994 b 1; record 9007199254740995 a 2; } >"$TMPDIR/file"
says
ok $? 'the judge is content with what is whole'
{ record 1 a 1; record 3 b 1; record 2 a 2; } >"$TMPDIR/file"
! says && grep -q 'do not rise 1' "$TMPDIR/out"
ok $? '... not with a token that falls'
{ record 9007199254740993 a 1; record 9007199254740993 b 1; record 9007199254740994 a 2; } >"$TMPDIR/file"
! says
ok $? '... nor with one that comes twice'
{ record 1 a 1; record 2 b 1; } >"$TMPDIR/file"
! says && grep -q 'lost 1' "$TMPDIR/out"
ok $? '... nor with a record lost at the end'
{ record 1 b 1; record 2 a 2; } >"$TMPDIR/file"
! says
ok $? '... or in the middle'
{ record 1 a 1; record 2 b 1 | head -c 60; record 3 a 2; } >"$TMPDIR/file"
! says && grep -q 'torn 1' "$TMPDIR/out"
ok $? '... nor with a torn line'
{ record 1 a 1; record 2 b 1; record 3 a 2; record 4 a 3; } >"$TMPDIR/file"
! says
ok $? '... nor with a record that nobody expects'

echo "1..$n"
exit $failed
