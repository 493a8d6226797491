# SPDX-License-Identifier: LGPL-2.1-or-later
#
# To be sourced: some daemons on loopback with one etcd beneath them, all in $dir, which goes with the test. Node N listens
# at port $base + N, below those that the kernel gives to whoever connects, of an address that is this test's own: others run
# beside it, and a daemon that is started again must find its port free. Results are counted in $n and $failed.

set -u
export LC_ALL=C.UTF-8
dlock=${DLOCK:?} dir=$(mktemp -d /dev/shm/dlock-nodes.XXXXXX)
host=127.$((1 + ($$ >> 16))).$(($$ >> 8 & 255)).$(($$ & 255)) base=20000 n=0 failed=0 etcd=
declare -A daemon

finish() {
	kill -CONT "${daemon[@]}" 2>/dev/null
	kill -KILL "${daemon[@]}" "$etcd" $(jobs -p) 2>/dev/null
	wait 2>/dev/null
	rm -rf "$dir"
}
trap finish EXIT

ok() {           # ok STATUS TITLE
	n=$((n + 1))
	if [ "$1" = 0 ]; then
		echo "ok $n - $2"
		return
	fi
	echo "not ok $n - $2"
	failed=1
	for i in 1 2 3; do tail -n 12 "$dir/$i/log" 2>/dev/null | sed "s/^/# node $i: /"; done
	! declare -F seen >/dev/null || seen | sed 's/^/# /'
}

us() { echo "${EPOCHREALTIME/[.,]/}"; }

# until_true SECONDS COMMAND...
until_true() {
	local end=$(($(us) + $1 * 1000000))
	shift
	while ! "$@"; do
		[ "$(us)" -lt "$end" ] || return 1
		sleep 0.02
	done
}

on() { DLOCK_RUN_DIR=$dir/$1/run timeout --foreground 100 "$dlock" "${@:2}"; }

# configure NODE NAME TTL
configure() {
	mkdir -p "$dir/$1"
	printf '[Node]\nName=%s\nListen=%s:%d\n[Cluster]\nName=test\nStore=etcd://%s:%d/dlock\nTTL=%s\n' \
		"$2" "$host" $((base + $1)) "$host" $((base + 10)) "$3" >"$dir/$1/dlockd.conf"
}

# In sessions of their own: where what is stopped is in ours, the end of another process can bring us SIGHUP. Not before the former one
# has ended: while it is being killed it has the directory.
start() {
	[ -z "${daemon[$1]:-}" ] || wait "${daemon[$1]}" 2>/dev/null
	setsid "${DLOCKD:?}" --dir "$dir/$1" >>"$dir/$1/log" 2>&1 &
	daemon[$1]=$!
}

# three_nodes TTL [SECONDS]: nodes 1 to 3 on an etcd; whether all of them are there in time.
three_nodes() {
	local i
	for i in 1 2 3; do configure $i n$i "$1"; done
	etcd_start
	for i in 1 2 3; do start $i; done
	for i in 1 2 3; do until_true "${2:-100}" there $i 3 || return 1; done
}

etcd_start() {
	local url=http://$host

	setsid etcd --name e --data-dir "$dir/etcd" --listen-client-urls $url:$((base + 10)) --advertise-client-urls $url:$((base + 10)) \
		--listen-peer-urls $url:$((base + 11)) --initial-advertise-peer-urls $url:$((base + 11)) \
		--initial-cluster e=$url:$((base + 11)) --unsafe-no-fsync --log-level error >>"$dir/etcd.log" 2>&1 &
	etcd=$!
}

# freeze PID: with SIGSTOP. Of its threads one is told, and may get no processor for a while: the others go on until then.
stands_still() { ! cat /proc/"$1"/task/*/stat 2>/dev/null | grep -qv '^[0-9]* (.*) [Tt] '; }
freeze() {
	kill -STOP "$1"
	until_true 100 stands_still "$1"
}

# once_of TRIES COMMAND...: again as long as it says 2: the machine had other work.
once_of() {
	local once_code once_try

	for ((once_try = 0; once_try < $1; once_try++)); do
		"${@:2}"
		once_code=$?
		[ $once_code = 2 ] || return $once_code
	done
	return 1
}

# hold NODE NAME: somebody there holds it, for as long as the test lasts; his pid in $held
holds() { on "$1" show "$2" 2>/dev/null | grep -q 'lock, held'; }
hold() {
	DLOCK_RUN_DIR=$dir/$1/run "$dlock" run "$2" -- sleep 10000 &
	held=$!
	until_true 100 holds "$1" "$2"
}

members() { on "$1" members --json 2>/dev/null | grep -c '"state": *"\(up\|self\)"'; }

# there NODE COUNT: it is in the cluster, and so many nodes are.
there() { [ "$(members "$1")" = "$2" ] && on "$1" status 2>/dev/null | grep -q '^Lease *good'; }

# wait_there NODE NAME COUNT: so many processes of the node wait for it, and say so (they may not have asked the daemon yet).
wait_there() { on "$1" show --json "$2" 2>/dev/null | grep -q "\"waiterCount\": *$3\b"; }

# asleep PID: as who waits is when there is nothing left for it to do.
asleep() { grep -q '^[0-9]* (.*) S ' "/proc/$1/stat" 2>/dev/null; }

# caught_up NODE NAME: the name's master knows what the node had to say of it, and the node what the master had. Frames between the
# two come in their order; so it is asked for another name of the same master, one that nobody has had.
declare -i fresh=0
caught_up() {
	local master
	master=$(for i in 1 2 3; do on $i show --json "$2" 2>/dev/null; done | sed -n 's/^ *"master": *"\(.*\)".*/\1/p' | head -n 1)

	for _ in {1..100}; do
		fresh+=1
		on "$1" run fresh.$fresh -- "$dlock" show --json fresh.$fresh 2>/dev/null | grep -q "\"master\": *\"$master\"" && return
	done
	return 1
}
# of_ids NODE NAME FIELD: of its worker number, from the file in the state directory, as id_kept.c writes it; milliseconds since ids begin.
# 0: there is none.
of_ids() {
	python3 - "$dir/$1/state/ids" "/$2/" "$3" <<'EOF'
import struct, sys
found = {'worker': 0, 'ceiling': 0, 'next': 0}
try:
    text, at = open(sys.argv[1], 'rb').read(), 84
    while at + 32 <= len(text):
        size, worker, _, ceiling, next_ms = struct.unpack_from('<HHQQQ', text, at)
        if sys.argv[2].encode() in text[at + 28:at + 28 + size]:
            found = {'worker': worker, 'ceiling': ceiling, 'next': next_ms}
        at += 28 + size
except OSError:
    pass
print(found[sys.argv[3]])
EOF
}
reserved_for_long() { [ "$(of_ids "$1" "$2" ceiling)" -gt $(($(us) / 1000 - 1704067200000 + 600000)) ]; }

said() { grep -qs "$2" "$dir/$1/log"; }
