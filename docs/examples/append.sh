#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# append.c in shell, one record a call, to be run under the lock:
#
#     dlock run demo docs/examples/append.sh FILE WRITER NUMBER [HALT]
#
# A holder before us may have died in the middle of its record: what stands behind the last line is cut off.
set -eu
file=$1 writer=$2 number=$3

if [ -s "$file" ] && [ "$(tail -c 1 "$file" | wc -l)" = 0 ]; then
	half=$(tail -n 1 "$file" | wc -c)
	truncate -s "-$half" "$file"
	echo "$writer: the file ends in the middle of a record. Cut off $half bytes, go on with token $DLOCK_TOKEN"
fi

printf '%020d %s %d ' "$DLOCK_TOKEN" "$writer" "$number" >>"$file"
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
	printf '%s-%d.' "$writer" "$number" >>"$file"
	if [ "$i" = 6 ] && [ -n "${4:-}" ]; then
		sleep 1000
	fi
done
echo >>"$file"
