#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# What programs see: a header for every dialect of C and C++, and a library that exports what is declared there.
set -u

cd "$srctree" || exit 1
cc=${CC:-cc}
cxx=${CXX:-c++}
n=0
failed=0

result() {
	n=$((n + 1))
	if [ "$1" = 0 ]; then
		echo "ok $n - $2"
	else
		echo "not ok $n - $2"
		failed=1
	fi
}

echo 1..9
printf '#include <dlock.h>\n#include <dlock/semaphore.h>\n' > "$TMPDIR/program.c"
cp "$TMPDIR/program.c" "$TMPDIR/program.cc"
for dialect in c99 c11 gnu99 gnu17; do
	"$cc" -std=$dialect -pedantic -Wall -Wextra -Werror -Iinclude -fsyntax-only "$TMPDIR/program.c"
	result $? "a program in $dialect can use the header"
done
for dialect in c++98 c++11 c++20; do
	if ! command -v "$cxx" >/dev/null; then
		n=$((n + 1))
		echo "ok $n - a program in $dialect can use the header # SKIP no C++ compiler"
		continue
	fi
	"$cxx" -std=$dialect -pedantic -Wall -Wextra -Werror -Iinclude -fsyntax-only "$TMPDIR/program.cc"
	result $? "a program in $dialect can use the header"
done

sed -n 's/^[a-z].* \**\(dlock_[a-z_]*\)(.*/\1/p' include/dlock.h include/dlock/semaphore.h | sort > "$TMPDIR/declared"
nm -D --defined-only "$O/libclient/libdlock.so" |
	sed -n 's/.* T \([a-z_0-9]*\).*/\1/p' | grep -v '^dlock_internal_' | sort > "$TMPDIR/exported"
[ -s "$TMPDIR/declared" ] && diff "$TMPDIR/declared" "$TMPDIR/exported" | sed 's/^/# /' > "$TMPDIR/differ"
[ -e "$TMPDIR/differ" ] && [ ! -s "$TMPDIR/differ" ]
result $? "the library exports what the header declares"
[ ! -s "$TMPDIR/differ" ] || cat "$TMPDIR/differ"

# A page of its own, or one that says where it is; the page has the call among its names.
while read -r call; do
	page=docs/man/$call.3
	[ ! -e "$page" ] || page=docs/man/$(sed -n '1s|^\.so man3/||p' "$page" | grep . || echo "$call.3")
	[ -e "$page" ] && sed -n '/^\.SH NAME/,/^\.SH SYNOPSIS/p' "$page" | grep -qw "$call" || echo "# $call"
done < "$TMPDIR/declared" > "$TMPDIR/silent"
[ -s "$TMPDIR/declared" ] && [ ! -s "$TMPDIR/silent" ]
result $? "each call has a manual page"
cat "$TMPDIR/silent"
exit $failed
