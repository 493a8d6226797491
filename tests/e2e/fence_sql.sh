#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# The recipes for resources, against the real thing: a PostgreSQL server of our own, SQLite, a shared file.
set -eu

srctree=${srctree:-$(cd "$(dirname "$0")/../.." && pwd)}
examples=$srctree/docs/examples
dir=$(mktemp -d /tmp/fence-XXXXXX)     # another user, who runs PostgreSQL, has to get there
chmod 755 "$dir"
number=0
failed=0
server=

cleanup() {
	if [ -n "$server" ]; then kill -QUIT "$server" && wait "$server" || true; fi
	rm -rf "$dir"
}
trap cleanup EXIT

# expect TITLE COMMAND…
expect() {
	title=$1
	shift
	number=$((number + 1))
	if "$@" >"$dir/out" 2>&1; then
		echo "ok $number - $title"
	else
		echo "not ok $number - $title"
		sed 's/^/# /' "$dir/out"
		failed=1
	fi
}

skip() {
	number=$((number + 1))
	echo "ok $number - $1 # SKIP $2"
}

# refused PATTERN COMMAND…: fails, and says so
refused() {
	pattern=$1
	shift
	if "$@" >"$dir/said" 2>&1; then cat "$dir/said"; return 1; fi
	cat "$dir/said"
	grep -q "$pattern" "$dir/said"
}

# --- A shared file ---

fenced() { "$O/docs/examples/fenced" "$dir/data" "$@"; }
expect 'a file: the holder writes' fenced default/x 5 five
expect 'a later holder writes' fenced default/x 7 seven
expect 'the earlier one is refused' refused 'later holder' fenced default/x 6 six__
expect 'and has not written' test "$(cat "$dir/data")" = seven

# --- SQLite ---

lite() { sqlite3 -bail "$dir/lite.db" "$@"; }
write_lite() { lite "BEGIN IMMEDIATE; INSERT INTO dlock_admit VALUES ('default/x', $1); INSERT INTO work VALUES ('$2'); COMMIT;"; }
if command -v sqlite3 >/dev/null; then
	lite <"$examples/fence.sqlite.sql"
	lite 'CREATE TABLE work (what TEXT)'
	expect 'SQLite: the holder writes' write_lite 5 five
	expect 'twice' write_lite 5 again
	expect 'a later one writes' write_lite 7 seven
	expect 'the earlier one is refused' refused 'stale token' write_lite 6 six
	expect 'and nothing of its transaction is there' test "$(lite 'SELECT group_concat(what) FROM work')" = five,again,seven
else
	skip 'SQLite' 'there is no sqlite3'
fi

# --- PostgreSQL ---

pg_start() {
	bin=$(dirname "$(ls /usr/lib/postgresql/*/bin/initdb | tail -n 1)")
	if [ "$(id -u)" = 0 ]; then
		as="setpriv --reuid=postgres --regid=postgres --clear-groups"
		chown postgres "$dir"
	else
		as=
	fi
	cd "$dir"
	$as "$bin/initdb" -D "$dir/pg" -U postgres -A trust -N >"$dir/initdb.log" 2>&1
	$as "$bin/postgres" -D "$dir/pg" -c listen_addresses= -c unix_socket_directories="$dir" -c fsync=off \
		-c dynamic_shared_memory_type=mmap >"$dir/pg.log" 2>&1 &
	server=$!
	for _ in $(seq 600); do
		if sql 'SELECT 1' >/dev/null 2>&1; then return 0; fi
		sleep 0.1
	done
	cat "$dir/pg.log"
	return 1
}
sql() { psql -X -q -v ON_ERROR_STOP=1 -A -t -h "$dir" -U postgres postgres -c "$@"; }
write_pg() { sql "BEGIN; SELECT dlock_admit('default/x', $1); INSERT INTO work VALUES ('$2'); ${3:-} COMMIT;"; }

# A transaction is at its pg_sleep(), with all before that done.
sleeping() { test "$(sql "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'")" -gt 0; }

# In a transaction: until another waits for what this one has locked, for a minute at most.
until_waited_for="DO \$\$ BEGIN FOR i IN 1..600 LOOP
	PERFORM pg_stat_clear_snapshot();
	EXIT WHEN EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock');
	PERFORM pg_sleep(0.1);
END LOOP; END \$\$;"
wait_sleeping() {
	for _ in $(seq 600); do
		if sleeping; then return 0; fi
		sleep 0.1
	done
	return 1
}

# An older holder's transaction is under way with the token that was the highest; a newer one waits for its end.
pg_in_order() {
	write_pg 10 slow "$until_waited_for" &
	wait_sleeping || return 1
	write_pg 11 quick
	wait $!
	test "$(sql "SELECT string_agg(what, ',') FROM (SELECT what FROM work WHERE what IN ('slow','quick') ORDER BY ctid) w")" = slow,quick
}

# Two transactions of one token go on side by side.
pg_side_by_side() {
	write_pg 20 first
	write_pg 20 a 'SELECT pg_sleep(600);' &
	wait_sleeping || return 1
	write_pg 20 b && sleeping || return 1
	sql "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
	wait $! || true
}

# The older one comes while the newer one has not committed yet: it waits, and is refused.
pg_refused_after() {
	write_pg 31 newer "$until_waited_for" &
	wait_sleeping || return 1
	refused 'stale token' write_pg 30 older
	wait $!
}

# The newer one rolls back: then the older one is the newest that has written.
pg_rolled_back() {
	sql "BEGIN; SELECT dlock_admit('default/x', 41); $until_waited_for ROLLBACK;" &
	wait_sleeping || return 1
	write_pg 40 still
	wait $!
}

if ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 && { [ "$(id -u)" != 0 ] || id postgres >/dev/null 2>&1; }; then
	expect 'PostgreSQL starts' pg_start
	sql "$(cat "$examples/fence.postgresql.sql")" >/dev/null
	sql 'CREATE TABLE work (what text)'
	expect 'PostgreSQL: the holder writes' write_pg 5 five
	expect 'twice' write_pg 5 again
	expect 'a later one writes' write_pg 7 seven
	expect 'the earlier one is refused' refused 'stale token 6' write_pg 6 six
	expect 'and nothing of its transaction is there' test "$(sql "SELECT string_agg(what, ',') FROM work")" = five,again,seven
	expect 'a later holder waits for the end of a transaction that was let in' pg_in_order
	expect 'transactions of one token do not wait for each other' pg_side_by_side
	expect 'an earlier one waits for a later one, and is refused' pg_refused_after
	expect 'or let in, if that one rolls back' pg_rolled_back
else
	skip 'PostgreSQL' 'there is no postgresql'
fi
echo "1..$number"
exit $failed
