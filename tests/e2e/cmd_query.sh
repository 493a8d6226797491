#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# The command that looks (status, ls, show, watch, doctor), at a node that does not exist: what it prints, its exit
# codes, and how it ends. The server is tests/unit/query_server.

set -u
export LC_ALL=C.UTF-8 TZ=UTC
dlock=${DLOCK:?} server_program=${O:?}/tests/unit/query_server
run=$TMPDIR/run out=$TMPDIR/out err=$TMPDIR/err
n=0 failed=0
export DLOCK_RUN_DIR=$run

ok() {           # ok STATUS TITLE
	n=$((n + 1))
	if [ "$1" = 0 ]; then
		echo "ok $n - $2"
	else
		echo "not ok $n - $2"
		failed=1
		sed 's/^/# out: /' "$out" 2>/dev/null | head -20
		sed 's/^/# err: /' "$err" 2>/dev/null | head -20
	fi
}

server_start() { # server_start NAMES PRIVATE [LOSS]
	mkdir -p "$run"
	"$server_program" "$run" "$@" &
	server=$!
	for _ in $(seq 5000); do
		[ -S "$run/io.dlock" ] && break
		sleep 0.02
	done
}

server_stop() {
	kill "$server" 2>/dev/null
	wait "$server" 2>/dev/null
	rm -rf "$run"
}

# dl CODE ARGUMENTS...: runs the command, true if it ends with CODE.
dl() {
	local wanted=$1 got
	shift
	timeout 100 "$dlock" "$@" >"$out" 2>"$err"
	got=$?
	[ $got = "$wanted" ] || { echo "# exit code $got instead of $wanted"; return 1; }
}

has() { grep -q -- "$1" "$out"; }
says() { grep -q -- "$1" "$err"; }
json() { python3 -c "import json, sys; o = json.load(open('$out')); sys.exit(0 if $1 else 1)"; }

# --- without a daemon ---

dl 69 status && says 'systemctl start dlockd' && says 'DLOCK_RUN_DIR' && [ ! -s "$out" ]
ok $? 'without a daemon the command says so, what to do, and ends with EX_UNAVAILABLE'

mkdir -p "$run"
python3 -c "import socket; s = socket.socket(socket.AF_UNIX); s.bind('$run/io.dlock')"
dl 69 ls && says 'nobody listens'
ok $? 'a socket that a dead daemon left behind is told apart'
rm -rf "$run"

DLOCK_RUN_DIR=/$(printf 'x%.0s' $(seq 5000)) dl 78 status && says 'too long'
ok $? 'a run directory whose path is too long is told'

dl 1 doctor && has '^FAIL  run dir' && has 'systemctl start dlockd'
ok $? 'doctor fails without a run directory'

# --- usage ---

dl 0 --help && has 'doctor' && dl 0 --version && has '^dlock [0-9]' && dl 0 ls --help && has 'SPACE' && dl 0 help
ok $? '--help and --version print and end with 0'

# Each option, and where else it has to be told.
commands=$("$dlock" --help | sed -n 's/^  \([a-z][a-z]*\) .*/\1/p')
options() { grep -oE -e '--[a-z][a-z-]*' | sort -u; }
options_of() { "$dlock" "$1" --help | options; }
# The branch of the command in zsh's completion; $json stands for two options.
zsh_branch() {
	awk -v c="$1" '$0 ~ "^\t\t([a-z]+ \\| )*" c "( \\| [a-z]+)*\\)" { on = 1 } on { print } /;;/ { on = 0 }' "$srctree/scripts/completions/_dlock" |
		sed 's/\$json/--json --help/'
}
fish_lines() {
	if [ "$1" = run ]; then
		grep __dlock_run_needs_name "$srctree/scripts/completions/dlock.fish"
	else
		grep -E "subcommand_from ([a-z]+ )*$1[ ']" "$srctree/scripts/completions/dlock.fish"
	fi | sed 's/ -l / --/'
}
# told WHERE COMMAND: standard input has all options of the command.
told() { comm -23 <(options_of "$2") - | sed "s/^/# $1, dlock $2: there is no /" >>"$TMPDIR/untold"; }
: >"$TMPDIR/untold"
for command in $commands; do
	options_of "$command" | grep -q -e --help || echo "# dlock $command --help does not name --help" >>"$TMPDIR/untold"
	sed 's/\\-/-/g' "$srctree/docs/man/dlock.1" | options | told dlock.1 "$command"
	zsh_branch "$command" | options | told zsh "$command"
	{ fish_lines "$command"; echo --help; } | options | told fish "$command"
done
[ "$(wc -w <<<"$commands")" -gt 10 ] && [ ! -s "$TMPDIR/untold" ]
ok $? 'the manual, zsh and fish have every option of each command'
cat "$TMPDIR/untold"

# full PROGRAM ARGUMENTS...: what it prints cannot be written.
full() {
	timeout 100 "$@" >/dev/full 2>"$err"
	[ $? = 74 ] && says 'cannot write the output: No space left' || { echo "# $*"; return 1; }
}
r=0
for command in $commands; do
	full "$dlock" "$command" --help || r=1
done
full "$dlock" --help && full "$dlock" --version && full "$dlock" doctor && full "${DLOCKD:?}" --help && full "$DLOCKD" --version && [ $r = 0 ]
ok $? 'what cannot be written is told, with EX_IOERR'
dl 64 && dl 64 frobnicate && says "frobnicate" && dl 64 show && dl 64 show a b && dl 64 status x && dl 64 ls --what &&
	dl 64 show --names x && dl 64 watch a b && dl 64 doctor x && dl 64 show --kind thing x && says 'thing' &&
	dl 64 show --kind l x && dl 64 show --kind '' x
ok $? 'misuse ends with EX_USAGE'

# --- status, ls, show ---

server_start 12 3 'the ledger is missing'
dl 0 status && has '^Node  *alpha' && has 'incarnation 3, epoch 7' && has '^default  *root' && has '^lo  *up' &&
	has 'Warning: .*the ledger is missing'
ok $? 'status shows node, session, spaces, links and the warning'
dl 0 status --json && json 'o["node"]["epoch"] == 7 and o["spaces"][0]["name"] == "default" and o["linkCount"] == 2'
ok $? 'status --json prints one JSON object'

dl 0 ls && [ "$(grep -c '^default/n00000009 ' "$out")" = 5 ] && grep -A1 '^default/n00000009 *held' "$out" | grep -q 'waits.* 2000 ' &&
	has '^private/n00000012' && has '^default/n00000009 *held *lock '
ok $? 'ls shows each name with its holder and its waiters in order'
[ "$(awk '{ print index($0, "PID") ? index($0, "PID") : index($0, " 1000 ") + 2 }' <(grep -e PID -e ' 1000 ' "$out") | sort -u | wc -l)" = 1 ]
ok $? 'the columns of ls are aligned'
dl 0 ls --json && python3 -c "
import json
rows = [json.loads(line) for line in open('$out')]
assert len(rows) == 15 + 72 and rows[15]['state'] == 'stored' and rows[15]['limit'] == 5 and rows[9]['waiters'][3]['pid'] == 2003, rows"
ok $? 'ls --json prints one JSON object a line'
dl 0 ls --names private && [ "$(cat "$out")" = "$(printf 'private/n000000%s\n' 12 13 14)" ]
ok $? 'ls --names SPACE prints the names of a space'
dl 66 ls absent && says "no space 'absent'" && dl 65 ls 'a b'
ok $? 'ls of a space that is not there ends with EX_NOINPUT, of one that cannot be with EX_DATAERR'

dl 0 ls --open --json && [ "$(wc -l <"$out")" = 15 ] && dl 0 ls && has '^default/left69  *stored  *latch ' && has '^default/known  *stored  *value ' &&
	has '^default/%~0123  *stored  *free semaphore '
ok $? 'ls shows what lies in the store, in pages; or not'
dl 0 show left07 && has 'latch, stored; .*; 2 of 5' && dl 0 show default/known && has '5 bytes, version 5' && dl 66 show --kind lock left07 &&
	dl 0 show --json left07 && json 'o["state"] == "stored" and o["version"] == 7' && dl 75 show lost && says 'nobody there'
ok $? 'so does show'
dl 0 show --kind loc n00000009 && dl 0 show n00000009 && has 'lock, held' && has 'last token 79' && has 'backup.service' &&
	has ' >3.2 s  *backup.service' && has 'waits.* 0 ms ' && has 'waits.* 300 ms '
ok $? 'show prints one name'
full "$dlock" status && full "$dlock" ls && full "$dlock" ls --json && full "$dlock" show n00000009 && full "$dlock" members --json
ok $? '... and what cannot be written is told'
dl 0 show --json n00000009 && json 'o["name"] == "n00000009" and o["holder"]["token"] == 79 and o["holder"]["sinceMs"] == 3210 and o["holder"]["sinceAtMostMs"] == 65432 and o["waiters"][0]["sinceMs"] == 0'
ok $? 'show --json prints one JSON object'
dl 66 show absent && says "'absent'" && dl 65 show ''
ok $? 'show of a name that nobody has open ends with EX_NOINPUT'
dl 0 show crowd && ! grep -q '[[:cntrl:]]' "$out" && ! LC_ALL=C grep -q $'\x9b' "$out" && has '136 more wait'
ok $? 'command lines cannot put control characters on the terminal, crowds are counted'

if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
	# Where that user gets to: the tree may lie in somebody's home.
	chmod 755 "$TMPDIR" "$run" && chmod 666 "$run/io.dlock"
	cp "$dlock" "$O/libclient/libdlock.so.0" "$TMPDIR"
	LD_LIBRARY_PATH=$TMPDIR timeout 100 setpriv --reuid 65534 --regid 65534 --clear-groups \
		"$TMPDIR/dlock" show private/n00000012 >"$out" 2>"$err"
	[ $? = 77 ] && says "may not see"
	ok $? 'show of a name in a closed space ends with EX_NOPERM'
else
	ok 0 'show of a name in a closed space ends with EX_NOPERM # SKIP needs root and setpriv'
fi

# --- completion ---

# complete WORDS...: what bash offers for the last of them.
complete_words() (
	PATH=$(dirname "$dlock"):$PATH
	# shellcheck source=/dev/null
	. "${srctree:?}/scripts/completions/dlock.bash"
	COMP_WORDS=(dlock "$@") COMP_CWORD=$#
	_dlock
	printf '%s\n' "${COMPREPLY[@]}" >"$out"
)
complete_words s && [ "$(sort "$out" | tr '\n' ' ')" = 'show status ' ] && complete_words ls --n && has '^--names$' &&
	complete_words show private/n0000001 && [ "$(wc -l <"$out")" = 3 ] && complete_words watch n00000002 &&
	[ "$(cat "$out")" = n00000002 ] && complete_words ls pri && [ "$(cat "$out")" = private ] &&
	complete_words run -w 3 default/n00000007 && [ "$(cat "$out")" = default/n00000007 ] &&
	complete_words run -c true default/n00000007 && [ "$(cat "$out")" = default/n00000007 ] &&
	complete_words run -w 3 n00000007 true-nothing-is-called-so && [ -z "$(cat "$out")" ]
ok $? 'bash completes commands, options, spaces and names'
r=0
for command in $commands; do
	complete_words "$command" -- && [ "$(sort "$out")" = "$(options_of "$command")" ] || { echo "# dlock $command"; r=1; }
done
ok $r '... the options of each command, and no others'

# --- colours ---

dl 0 status && ! grep -q $'\033' "$out"
ok $? 'there are no colours in a file'
if command -v script >/dev/null; then
	TERM=xterm script -qec "$dlock status" /dev/null </dev/null >"$out" 2>"$err" && grep -q $'\033\\[' "$out" &&
		NO_COLOR=1 TERM=xterm script -qec "$dlock status" /dev/null </dev/null >"$out" 2>"$err" &&
		! grep -q $'\033\\[3' "$out"
	ok $? 'there are colours on a terminal, and none with NO_COLOR'
else
	ok 0 'there are colours on a terminal, and none with NO_COLOR # SKIP needs script'
fi

# --- watch ---

wait_for() {     # wait_for LINES: in $out
	for _ in $(seq 5000); do
		[ "$(wc -l <"$out")" -ge "$1" ] && return 0
		kill -USR1 "$server"
		sleep 0.02
	done
	return 1
}

: >"$out"
"$dlock" watch >"$out" 2>"$err" &
watch=$!
wait_for 3 && grep -q '^[0-9:]*\.[0-9]*  grant  *default/n0000000. pid 4321 token' "$out"
ok $? 'watch prints one event a line as it happens'
kill -TERM $watch
wait $watch
ok $? 'watch ends with 0 on SIGTERM'

: >"$out"
python3 - "$dlock" "$server" <<'PY' >"$out" 2>"$err"
import json, os, signal, subprocess, sys, time
w = subprocess.Popen([sys.argv[1], 'watch', '--json', 'n00000001'], stdout=subprocess.PIPE, text=True)
deadline = time.monotonic() + 100
os.set_blocking(w.stdout.fileno(), False)
line = None
while not line and time.monotonic() < deadline:
    os.kill(int(sys.argv[2]), signal.SIGUSR1)
    time.sleep(0.05)
    line = w.stdout.readline()
assert json.loads(line)['event']['name'] == 'n00000001', line
w.send_signal(signal.SIGINT)
assert w.wait(100) == 0, w.returncode
PY
ok $? 'watch NAME --json tells of that name only, and ends with 0 on SIGINT'

cat >"$TMPDIR/reader.py" <<'PY'
import subprocess, sys, time
w = subprocess.Popen([sys.argv[1], 'watch'], stdout=subprocess.PIPE)
time.sleep(0.3)
w.stdout.close()
assert w.wait(100) == 0, w.returncode
PY
python3 "$TMPDIR/reader.py" "$dlock" >"$out" 2>"$err"
ok $? 'watch ends when its reader goes, also while nothing happens'

: >"$out"
"$dlock" watch >"$out" 2>"$err" &
watch=$!
wait_for 1
server_stop
wait $watch
[ $? = 69 ] && says 'closed the connection'
ok $? 'watch ends with EX_UNAVAILABLE when the daemon goes'

# --- many names ---

server_start 200000 0
dl 0 ls --open --names && [ "$(wc -l <"$out")" = 200000 ]
ok $? '200,000 names are listed'
"$dlock" ls 2>"$err" | head -3 >"$out" && [ "$(wc -l <"$out")" = 3 ]
ok $? 'ls ends when its reader has seen enough'
kill -STOP "$server"
dl 69 status && says 'stopped'
r=$?
kill -CONT "$server"
ok $r 'a daemon that is stopped is told after some seconds'

# --- doctor ---

dl 1 doctor && has '^OK    daemon' && has '^OK    version' && has '^FAIL  attach'
ok $? 'doctor sees a daemon without an attach socket'
dl 1 doctor --json && json 'not o["ok"] and any(c["check"] == "attach" and c["result"] == "fail" and c["remedy"] for c in o["checks"])'
ok $? 'doctor --json says the same'
python3 -c "
import os, socket, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.bind('$run/new')
s.listen()
os.rename('$run/new', '$run/dlockd.sock')
time.sleep(1000)" &
attach=$!
for _ in $(seq 5000); do [ -S "$run/dlockd.sock" ] && break; sleep 0.02; done
dl 0 doctor && has '^OK    attach' && has '0 failed'
ok $? 'doctor ends with 0 where nothing fails'
chmod 777 "$run"
dl 1 doctor && has '^FAIL  run dir.*written by others'
ok $? 'doctor fails on a run directory that others may write'
chmod 755 "$run"
ln -s /etc/passwd "$run/stranger"
dl 0 doctor && has '^WARN  files .*stranger'
ok $? 'doctor warns of foreign files'
kill "$attach"
wait "$attach" 2>/dev/null
server_stop

# --- a node of a cluster ---

server_start 1 0 '' 4321
dl 0 status && has '^Cluster *prod, 2 members; 40 of 64 shards are mastered here, 17 of them for their use$' && has '^Lease *good for 4.321 s more, of 5.000' && ! has lapsed
ok $? 'status shows the cluster and what is left of the lease'
has '^NODE *STATE .* RTT *QUEUE *PROTOCOL *ERROR' && has '^alpha *self .* 40 *17 *- *- *- *-$' && has '^beta *waiting .*nothing listens there'
ok $? '... and how it reaches each of the others'
dl 1 doctor && has '^OK    cluster *in the cluster prod, of 2 members' &&
	has '^WARN  peers *beta, at 192.0.2.2:7420, is not reached: nothing listens there'
ok $? '... and doctor finds it in order, but for a node that is not reached'
dl 0 members && has '^alpha *self .* 40 *17 *- *- *- *-$' && has '^beta *waiting .*nothing listens there'
ok $? 'members shows each node, and of a connection only what there is'
dl 0 show elsewhere && has '^default/elsewhere: lock; open in no process of this node; granted by beta$' && has '^beta  *exclusive  *-$' &&
	has '^alpha  *-  *shared$' && has '^and 64 more nodes$' && dl 0 show --kind sem some && has '^gamma  *2  *4$' && dl 0 show some &&
	dl 0 show --json some && json 'o["kind"] == "semaphore" and o["cluster"]["nodes"][0]["wants"] == 4'
ok $? 'show tells which nodes have a name that none of this node has open'
dl 66 show mute && says 'does not answer' && dl 66 show --kind latch elsewhere && says 'nobody has a name'
ok $? '... and where that cannot be known'
server_stop
server_start 1 0 '' 1200 'Connection timed out'
dl 0 status && has 'Warning: the lease cannot be renewed: Connection timed out' && dl 1 doctor && has '^WARN  cluster .*1200 ms'
ok $? 'status and doctor warn of a lease that cannot be renewed'
server_stop
server_start 1 0 '' 0 'Connection timed out'
dl 0 status && has '^Cluster *prod, this node is not in it now' && has '^Lease *none now: .*; it has lapsed 1 time$'
ok $? 'status says that the node has lapsed'
dl 1 doctor && has '^FAIL  cluster .*not in the cluster prod now'
ok $? '... and doctor what to look at'
server_stop

# --- what doctor finds ---

# finds CODE LINE KEY=VALUE…: the node is in its cluster, and that is wrong with it.
finds() {
	local code=$1 line=$2 r=0
	shift 2
	server_start 1 0 '' 4000 '' "$@"
	dl "$code" doctor && has "$line" || r=1
	server_stop
	return $r
}

# Without an attach socket doctor ends with 1 in any case: what it says is looked at.
finds 1 '^WARN  store .*took up to 300 ms in the last minute (1.0 ms as a rule), and a renewal may take 1000 ms' store=300000 &&
	finds 1 '^OK    store .*takes 1.0 ms' store=2000
ok $? 'doctor tells of a store that is slow'
finds 1 '^WARN  masters .*7 of 64 shards have no master' orphans=7 && finds 1 '^WARN  masters .*3 shards of this node wait' opening=3 &&
	finds 1 '^OK    masters '
ok $? '... of shards without a master, and of those that do not open'
finds 1 '^WARN  records .*40 records that nobody can use, 200 members' odd=40 silent=200 &&
	finds 1 '^FAIL  records .*77 members more' left_out=77 && ! finds 1 'records'
ok $? '... of what does not belong into the store'
finds 1 '^FAIL  certificate .*this node.s certificate has expired' cert=-60 && finds 1 '^WARN  certificate .*this node.s certificate expires soon' cert=86400 &&
	finds 1 '^WARN  certificate .*CA= expires soon' cert=9999999 ca=86400 && finds 1 '^OK    certificate .*good until' cert=9999999
ok $? '... of certificates that have expired, or will'
finds 1 '^WARN  keys .*may be read' 'keys=Key=/x may be read or written by everybody on this machine' &&
	finds 1 'systemctl reload dlockd' 'keys=Cert=/x has changed since it was read' && finds 1 '^OK    keys .*pre-shared'
ok $? '... of files of keys that others may read, or that are not what was read'
mkdir "$TMPDIR/small"
if mount -t tmpfs -o size=1m,nr_inodes=40 none "$TMPDIR/small" 2>/dev/null; then
	finds 1 "^WARN  state dir .*$TMPDIR/small has room for" "state=$TMPDIR/small"
	ok $? '... of a state directory that is full'
	run=$TMPDIR/small/run
	export DLOCK_RUN_DIR=$run
	finds 1 "^WARN  room .*$run has room for"
	ok $? '... and of a run directory that is'
	run=$TMPDIR/run
	export DLOCK_RUN_DIR=$run
fi
python3 -c "import struct, sys; sys.stdout.buffer.write(struct.pack('<q', -50 * 365 * 86400 * 10**9))" >"$TMPDIR/off"
mkdir -p "$run"
WALLCLOCK=$TMPDIR/off LD_PRELOAD=$O/tests/cluster/wallclock.so dl 1 doctor && has '^WARN  wall clock .*cannot be'
ok $? '... and of a wall clock that cannot be right'

echo "1..$n"
exit $failed
