#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# The undefined symbols of the core are the complete list of what it depends on.
set -eu

allowed='memcmp memcpy memmove memset'

echo 1..1
set -- "$O"/daemon/core/*.o
[ -e "$1" ] || { echo "not ok 1 - there are objects of the core in $O/daemon/core"; exit 1; }
ld -r -o "$TMPDIR/core.o" "$@"
bad=
for symbol in $(nm -u "$TMPDIR/core.o" | awk '{ print $2 }'); do
	case " $allowed " in
	*" $symbol "*) ;;
	*) bad="$bad $symbol" ;;
	esac
done
if [ -n "$bad" ]; then
	echo "not ok 1 - the core needs nothing but memcpy, memmove, memset and memcmp, but:$bad"
	exit 1
fi
echo "ok 1 - the core needs nothing but memcpy, memmove, memset and memcmp"
