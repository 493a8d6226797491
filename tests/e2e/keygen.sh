#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# dlock keygen: what it writes, and what it does not overwrite.
set -u

n=0
failed=0
ok() {
	n=$((n + 1))
	if [ "$1" = 0 ]; then
		echo "ok $n - $2"
	else
		echo "not ok $n - $2"
		failed=1
	fi
}

echo 1..9
cd "$TMPDIR" || exit 1
umask 0
"$DLOCK" keygen key 2>said
ok $? 'a key is made'
[ "$(stat -c %a key)" = 600 ]
ok $? 'it is for its owner alone, whatever the umask is'
grep -Eqx '[0-9a-f]{64}' key && [ "$(wc -c <key)" = 65 ]
ok $? 'it is 64 hex digits and a newline'
cp key before
"$DLOCK" keygen key 2>said
[ $? = 73 ] && grep -q 'exists already' said && cmp -s key before
ok $? 'a file that exists is left as it is'
ln -s nowhere link
"$DLOCK" keygen link 2>said
[ $? = 73 ] && [ ! -e nowhere ]
ok $? 'a link that leads nowhere is not followed'
"$DLOCK" keygen - >a && "$DLOCK" keygen - >b && ! cmp -s a b && grep -Eqx '[0-9a-f]{64}' a
ok $? 'keys differ, and can go to standard output'
"$DLOCK" keygen --json - >a && "$DLOCK" keygen --json other >b 2>said && [ ! -s said ] && python3 -c "
import json, re
assert re.fullmatch('[0-9a-f]{64}', json.load(open('a'))['key']) and json.load(open('b')) == {'file': 'other'}"
ok $? 'what was made can be told as JSON'
"$DLOCK" keygen no/such/folder 2>said
[ $? = 73 ] && grep -q 'No such file or directory' said && [ "$(find . -newer said -name 'key*' | wc -l)" = 0 ]
ok $? 'a folder that does not exist is an error that is told'
"$DLOCK" keygen 2>said
[ $? = 64 ] && ! "$DLOCK" keygen --names x 2>said && [ ! -e x ]
ok $? 'misuse is told'
exit $failed
