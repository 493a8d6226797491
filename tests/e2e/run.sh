#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# dlock run: options and exit codes, environment, signals, terminal, descendants. What happens when it is killed at any
# moment is in run_kill.c.

set -u
export LC_ALL=C.UTF-8
dlock=${DLOCK:?} out=$TMPDIR/out err=$TMPDIR/err
export DLOCK_RUN_DIR=$TMPDIR/run TMPDIR
n=0 failed=0

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

skip() {         # skip TITLE WHY
	n=$((n + 1))
	echo "ok $n - $1 # SKIP $2"
}

# run CODE ARGUMENTS...: true if dlock run ends with CODE.
run() {
	local wanted=$1 got
	shift
	timeout --foreground 100 "$dlock" run "$@" >"$out" 2>"$err"
	got=$?
	[ $got = "$wanted" ] || { echo "# exit code $got instead of $wanted: $*"; return 1; }
}

says() { grep -q -- "$1" "$err"; }
has() { grep -q -- "$1" "$out"; }
ms() { local t=${EPOCHREALTIME/[.,]/}; echo $((t / 1000)); }
free() { "$dlock" run -n "$1" true; }                 # busy, too, where the daemon says nothing for a second
freed() { until_true free "$1" 2>/dev/null; }          # after a death, of which the daemon has to hear first
running() { local s; s=$(ps -o stat= -p "$1") && [[ $s != Z* ]]; }

# until_true COMMAND...: within a minute, since the machine may have other work.
until_true() {
	local end=$(($(ms) + 60000))
	while ! "$@"; do
		[ "$(ms)" -lt $end ] || return 1
		sleep 0.01
	done
}

# soon MS COMMAND...: true, and as quick, in one of ten times at least.
soon() {
	local limit=$1 begin i
	shift
	for ((i = 0; i < 10; i++)); do
		begin=$(ms)
		"$@" || return 1
		[ $(($(ms) - begin)) -ge "$limit" ] || return 0
	done
	return 1
}

daemon_start() {
	"${DLOCKD:?}" --dir "$TMPDIR" >>"$TMPDIR/log" 2>&1 &
	daemon=$!
	until_true "$dlock" run -w 1 start true 2>/dev/null
}

daemon_stop() {
	kill "$daemon" && wait "$daemon" 2>/dev/null
}

# hold NAME [OPTIONS]: a holder in the background, once it holds; its pid in $holder, that of its command in $command.
hold() {
	local name=$1
	shift
	rm -f "$TMPDIR/held"
	"$dlock" run "$@" "$name" -c 'echo $$ >$TMPDIR/held; exec sleep 600' 2>"$err" &
	holder=$!
	until_true test -s "$TMPDIR/held" && command=$(cat "$TMPDIR/held")
}

# --- without a daemon ---

run 69 a true && says 'no daemon' && says DLOCK_RUN_DIR
ok $? 'without a daemon it says so and ends with EX_UNAVAILABLE'

daemon_start || { echo "Bail out! no daemon"; exit 1; }

# --- exit codes ---

run 0 a true && run 7 a -- sh -c 'exit 7' && run 143 a sh -c 'kill $$' && run 137 a sh -c 'kill -9 $$'
ok $? "the command's exit code is passed on, and 128+N for signal N"
run 127 a "$TMPDIR/none" && says "none" && run 126 a "$TMPDIR" && run 127 a dlock-no-such-command
ok $? '127: there is no such command; 126: it cannot be run'
run 64 && run 64 a && run 64 -q a true && run 64 -w && run 64 -w soon a true && run 64 -w -1 a true &&
	run 64 -E 256 a true && run 64 a -c && run 64 a -c true true && run 64 --grace x a true && run 65 a/ true &&
	run 65 "$(printf 'n%.0s' {1..256})" true && run 0 --help && has -- --grace
ok $? 'misuse ends with EX_USAGE, --help with 0'
run 64 --sem 0 a true && says 'not a number of permits' && run 64 --sem 2147483648 a true && run 64 --sem 2x a true
ok $? '--sem wants a number of permits that can be'
run 64 --sem 2 -s a true && says 'exclude each other' && run 64 -x --sem 2 a true && run 64 --elect --sem 2 a true &&
	run 64 -s --elect a true && run 0 --sem 2 --sem 2 a true && run 0 -s -x -s a true
ok $? 'of a mode of the lock, --sem and --elect there is one'

# --- options ---

run 0 a -c 'exit 0' && run 5 a -c 'exit 5' && run 6 -c 'exit 6' a && SHELL=/bin/echo run 0 a -c 'x y' && has '^-c x y$'
ok $? '-c runs a shell command with $SHELL, before and behind the name'
run 0 -x -e --exclusive a true
ok $? 'what flock takes for its default mode is accepted'
run 0 sp/a/b env && has '^DLOCK_SPACE=sp$' && has '^DLOCK_NAME=a/b$' && has '^DLOCK_TOKEN=[1-9][0-9]*$'
ok $? 'the command has DLOCK_SPACE, DLOCK_NAME and DLOCK_TOKEN'
run 0 t -c 'echo $DLOCK_TOKEN' && first=$(cat "$out") && run 0 t -c 'echo $DLOCK_TOKEN' && [ "$(cat "$out")" -gt "$first" ]
ok $? 'the next run has a higher token'
run 0 -s sh -c "'$dlock' run -s -n sh true && ! '$dlock' run -n sh true && ! '$dlock' run -s -x -n sh true"
ok $? '-s: others may hold it so as well, and nobody alone'

hold b
run 1 -n b true && run 9 -n -E 9 b true && run 0 -E 0 --nb b true
ok $? '-n fails at once, with 1 or what -E says'
begin=$(ms)
run 1 -w 0.3 b true && [ $(($(ms) - begin)) -ge 300 ] && soon 2000 run 1 -w 0.3 b true
ok $? '-w 0.3 waits for three tenths of a second'
soon 300 run 3 -w 0 -E 3 b true
ok $? '-w 0 does not wait'
(sleep 0.3; kill "$command") &
run 0 -w 60 b true
ok $? '-w gets the lock once it is free'
wait "$holder"
[ $? = 143 ]
ok $? 'the holder ended as its command did'

# --- descendants ---

begin=$(ms)
run 4 d -c '(trap "" TERM HUP; setsid sleep 0.5 <&- >&- 2>&- &) ; exit 4' && [ $(($(ms) - begin)) -ge 450 ]
ok $? 'the run lasts until the last descendant in the background has gone, and ends as the command did'
begin=$(ms)
run 0 -o d -c 'setsid sleep 300 & echo $!' && [ $(($(ms) - begin)) -lt 100000 ] && left=$(cat "$out") && freed d && running "$left"
ok $? '-o: the hold is over with the command, and what it left behind lives on'
kill "${left:-0}" 2>/dev/null
run 0 d -c 'ls -l /proc/$$/fd' && has anchor && run 0 -o d -c 'ls -l /proc/$$/fd' && ! has anchor
ok $? 'the command inherits the hold, but not with -o'
"$dlock" run d -c 'cat >$TMPDIR/copy; exit 0' <<<'some input' && [ "$(cat "$TMPDIR/copy")" = 'some input' ]
ok $? 'standard input goes to the command'
# The writer's end of the pipe is the command's alone: its reader sees the end while the run goes on.
"$dlock" run d -c 'echo x; exec >&- 2>&-; until [ -e $TMPDIR/end ]; do sleep 0.02; done' 2>/dev/null |
	{ cat >/dev/null; free d; echo $? >"$out"; : >"$TMPDIR/end"; }
has '^1$'
ok $? 'who reads from the command sees the end of its output when it closes it'
timeout 100 env --ignore-signal=CHLD "$dlock" run d -c 'exit 3' 2>"$err"
[ $? = 3 ]
ok $? 'it also works where SIGCHLD is ignored'

# exec keeps children that are none of the run's.
cat >"$TMPDIR/exec.sh" <<'SCRIPT'
sleep 600 &
echo $! >$TMPDIR/stranger
exec "$DLOCK" run d -c 'kill -9 $PPID; sleep 600'
SCRIPT
DLOCK=$dlock timeout 100 bash "$TMPDIR/exec.sh" 2>"$err"
[ $? = 137 ] && says 'guard' && running "$(cat "$TMPDIR/stranger")" && freed d
ok $? 'the guard killed: the front kills what was guarded, but not children that it had before'
kill "$(cat "$TMPDIR/stranger")"

# --- signals ---

for sig in TERM INT HUP USR1 USR2 QUIT ALRM WINCH RTMIN; do
	rm -f "$TMPDIR/got" "$TMPDIR/held"
	# What a shell starts in the background ignores INT and QUIT.
	env --default-signal "$dlock" run s -c "trap 'echo $sig >>$TMPDIR/got; exit 9' $sig; echo >$TMPDIR/held; while :; do sleep 0.02; done" 2>"$err" &
	pid=$!
	until_true test -e "$TMPDIR/held"
	kill -s $sig $pid
	wait $pid
	code=$?
	[ $code = 9 ] && [ "$(cat "$TMPDIR/got")" = "$sig" ] || { echo "# $sig: exit code $code"; break; }
done
ok $((code != 9)) 'signals that are sent to it reach the command'

hold s
kill -STOP "$command"
kill -CONT "$holder"
until_true eval '[[ $(ps -o stat= -p $command) != T* ]]'
ok $? 'CONT too'
kill $holder
wait $holder 2>/dev/null

rm -f "$TMPDIR/held"
"$dlock" run --grace 0.4 s -c 'trap "" TERM; echo $$ >$TMPDIR/held; while :; do sleep 0.05; done' &
holder=$!
until_true test -s "$TMPDIR/held"
begin=$(ms)
kill $holder
wait $holder
code=$? t=$(($(ms) - begin))
[ $code = 137 ] && [ $t -ge 390 ]
ok $? '--grace 0.4: TERM to it ends the run with TERM, and with KILL four tenths of a second later'

# --- the hold is lost ---

lose() {         # a daemon that has lost its memory calls all holds lost
	daemon_stop
	rm -rf "$TMPDIR/run/ledger"
	daemon_start
}
rm -f "$TMPDIR/term" "$TMPDIR/held"
"$dlock" run l -c 'trap "echo >$TMPDIR/term" TERM; (trap "" TERM; exec setsid sleep 600) & echo $! >$TMPDIR/held; while :; do sleep 0.02; done' 2>"$err" &
holder=$!
until_true test -s "$TMPDIR/held"
lose
wait $holder
code=$?
[ $code = 75 ] && says 'the hold was lost' && [ -e "$TMPDIR/term" ] && ! running "$(cat "$TMPDIR/held")"
ok $? 'the hold lost: TERM, then KILL for all, and exit code 75'

# --- a restart of the daemon ---

hold r
daemon_stop
sleep 0.1
daemon_start
run 1 -n r true && running "$command"
ok $? 'a restart of the daemon leaves the run alone'
kill $holder
wait $holder
[ $? = 143 ] && freed r
ok $? '... and the lock is free after its end'
rm -f "$TMPDIR/held"
"$dlock" run r -c 'echo >$TMPDIR/held; sleep 0.5; exit 3' &
holder=$!
until_true test -e "$TMPDIR/held"
daemon_stop
wait $holder
[ $? = 3 ]
ok $? 'a run ends in order while there is no daemon'
daemon_start
freed r
ok $? '... which leaves the lock free'

# --- a terminal ---

cat >"$TMPDIR/terminal.py" <<'SCRIPT'
"""terminal.py KEYS WAIT COMMAND...: an interactive bash on a terminal of its own runs COMMAND as a job; after "ready" come the keys."""
import os, pty, signal, sys, time
keys, line = sys.argv[1], ' '.join(sys.argv[2:])
pid, fd = pty.fork()
if pid == 0:
    os.environ.update(PS1='prompt> ', TERM='dumb')
    os.execvp('bash', ['bash', '--norc', '--noprofile', '-i'])
os.set_blocking(fd, False)
text = b''
def until(what, seconds=60):
    global text
    end = time.monotonic() + seconds
    while what.encode() not in text:
        try:
            text += os.read(fd, 4096)
        except BlockingIOError:
            time.sleep(0.01)
        except OSError:
            break
        if time.monotonic() > end:
            print('timed out waiting for', what)
            break
    print(text.decode(errors='replace'), end='')
    text = text.partition(what.encode())[2]
until('prompt> ')
os.write(fd, (line + '; echo code=$((0+$?)).\n').encode())
until('\nready')
for key in keys.split(','):
    if key.startswith('='):
        until(key[1:])
        continue
    os.write(fd, key.encode().decode('unicode_escape').encode())
until('code=')
until('.')
os.write(fd, b'\nexit\n')
time.sleep(0.1)
os.close(fd)
os.waitpid(pid, 0)
SCRIPT
tty() { timeout 200 python3 "$TMPDIR/terminal.py" "$@" </dev/null >"$out" 2>"$err"; }
if ! command -v python3 >/dev/null; then
	skip 'a terminal' 'no python3'
else
	rm -f "$TMPDIR/ints"
	cat >"$TMPDIR/ints.sh" <<'SCRIPT'
trap 'echo >>$TMPDIR/ints' INT
echo ready
until [ -s "$TMPDIR/ints" ]; do sleep 0.1; done
sleep 0.5
exit 5
SCRIPT
	tty '\x03' "$dlock" run tty bash "$TMPDIR/ints.sh"
	! has 'timed out' && has 'code=5' && [ "$(wc -l <"$TMPDIR/ints")" = 1 ]
	ok $? '^C reaches the command once, and the run goes on if the command does'
	tty '\x03' "$dlock" run tty -c "'echo ready; exec sleep 600'"
	! has 'timed out' && has 'code=130'
	ok $? '^C ends a command that does not catch it: exit code 130'
	rm -f "$TMPDIR/go"
	tty '\x1a,=Stopped,: >$TMPDIR/go; fg\n' "$dlock" run tty -c "'echo ready; until [ -e \$TMPDIR/go ]; do sleep 0.05; done; echo back; exit 6'"
	! has 'timed out' && has 'Stopped' && has 'back'
	ok $? '^Z stops the job, and fg continues it'
	tty 'a line\n,=got a line' "$dlock" run tty -c "'echo ready; read x; echo got \$x'"
	! has 'timed out' && has 'code=0'
	ok $? 'the command reads from the terminal'
fi

# --- a control group of its own ---

cgroup=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
cgroup=${cgroup:+$cgroup/dlock-test-$$}
if [ "$(id -u)" = 0 ] && [ -n "$cgroup" ] && mkdir "$cgroup" 2>/dev/null && python3 -c "import os; os.setxattr('$cgroup', 'trusted.delegate', b'1')" 2>"$err"; then
	rm -f "$TMPDIR/held"
	sh -c 'echo $$ >$1/cgroup.procs && exec "$2" run g -c "cat /proc/self/cgroup; (setsid sleep 600 &); echo \$\$ >\$TMPDIR/held; exec sleep 600"' \
		sh "$cgroup" "$dlock" >"$out" 2>"$err" &
	holder=$!
	until_true test -s "$TMPDIR/held"
	has "dlock-run-$holder" && ls -d "$cgroup"/dlock-run-* >/dev/null
	ok $? 'where this control group is delegated the run gets one of its own'
	kill -9 $holder
	wait $holder 2>/dev/null
	freed g && ! ls -d "$cgroup"/dlock-run-* 2>/dev/null && until_true rmdir "$cgroup" 2>/dev/null
	ok $? '... which is emptied and removed when the run is killed'
else
	skip 'a control group of its own' 'none can be made here'
fi
[ -n "$cgroup" ] && [ -d "$cgroup" ] && rmdir "$cgroup" 2>/dev/null

# --- an election ---

hold elected --elect
first=$(tr '\0' '\n' </proc/$command/environ | sed -n 's/^DLOCK_TOKEN=//p')
run 1 -n --elect elected true && run 1 -w 0.1 --elect elected true && run 0 -n elected true
ok $? 'one run leads, another finds that it does, and a lock of that name is another thing'
"$dlock" show elected >"$out" 2>&1
has "$holder" && has 'election, held' && has "led in term $first" && has "leader says: $(uname -n)"
ok $? 'dlock show knows who leads, and says the name of its host'
"$dlock" watch elected >"$TMPDIR/watched" & watch=$!
tells() { "$dlock" run elected true && grep -q 'grant .*default/elected token' "$TMPDIR/watched"; }
until_true tells
kill -KILL "$holder"
wait "$holder" 2>/dev/null
run 0 -w 60 --elect elected -c 'echo $DLOCK_NAME $DLOCK_SPACE $DLOCK_TOKEN' && has '^elected default ' &&
	[ "$(cut -d " " -f 3 "$out")" -gt "$first" ]
ok $? 'when it is killed the next one leads, in a higher term'
until_true grep -q "leads .*default/elected (election) pid [0-9]* token $(cut -d " " -f 3 "$out")" "$TMPDIR/watched" &&
	until_true eval "tail -n 5 '$TMPDIR/watched' | grep -q leaderless"
ok $? 'dlock watch tells who leads, and that nobody does'
kill $watch
wait $watch 2>/dev/null

# --- permits of a semaphore ---

"$dlock" watch sem >"$TMPDIR/watched" & watch=$!
tells() { "$dlock" run sem true && grep -q "grant .*default/sem token" "$TMPDIR/watched"; }
until_true tells
begun=$(ms)
hold sem --sem 2
one=$holder
until_true grep -q "grant .*default/sem (semaphore) token" "$TMPDIR/watched"
ok $? 'dlock watch tells a semaphore from a lock of the same name'
kill $watch
wait $watch 2>/dev/null
hold sem --sem 2
run 1 -n --sem 2 sem true && run 65 --sem 3 sem true && says 'another number of permits than 3' && ! says 'not a name'
ok $? 'two runs hold the two permits of a semaphore, a third finds none, and a fourth is told that there are two'
"$dlock" show sem >"$out" && has 'semaphore, held' && has '2 of 2' && has "default/sem *held .* $one .*--sem 2" &&
	has "default/sem *held .* $holder .*--sem 2" && [ "$(grep -c '^default/sem ' "$out")" = 2 ]
ok $? '... as dlock show says, with both'
# since_is PID LEAST BEGAN: of a holder of what was listed: so many ms at least, and at most no more than since ms() was BEGAN.
since_is() {
	python3 -c "
import json, sys
all = [p for line in open('$out') for n in [json.loads(line)] for p in [n.get('holder')] + n.get('readers', []) if p and p.get('pid') == $1]
sys.exit(0 if all and $2 <= all[0].get('sinceMs', -1) <= all[0]['sinceAtMostMs'] <= $(($(ms) - $3 + 5)) else 1)"
}
began=$(ms)
hold since
one_more=$holder
for_long() { "$dlock" ls --json >"$out" && since_is "$one_more" 300 "$began" && since_is "$one" 300 "$begun"; }
until_true for_long
ok $? 'since when they are held is known, within limits'
"$dlock" ls >"$out" && grep -q "^default/since *held .* $one_more .* >\?[0-9.]* m\?s " "$out"
ok $? '... and shown'
kill "$command" 2>/dev/null
wait "$one_more" 2>/dev/null
kill -9 "$one"
until_true "$dlock" run -n --sem 2 sem true 2>"$err" && run 1 -n --sem 1 one false
ok $? 'when one is killed, its permit is free; a lock or another semaphore is not concerned'
kill "$command" 2>/dev/null
wait "$holder" "$one" 2>/dev/null

daemon_stop
echo "1..$n"
exit $failed
