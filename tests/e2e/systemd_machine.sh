# SPDX-License-Identifier: LGPL-2.1-or-later
#
# A small machine for systemd.sh, which reads this file: a set of namespaces over a directory with this host's /usr in
# it, read-only (systemd_boot.sh mounts that). What happens in it stays in it. Processes in the machine are
# systemd_client (holders and waiters), started as units and spoken to through FIFOs in ROOT/srv, which both sides see.

export LC_ALL=C.UTF-8
here=$(dirname "$(readlink -f "$0")")
work=${TMPDIR:?}/machine root=$TMPDIR/machine/root installed=$TMPDIR/machine/installed
client=${O:?}/tests/e2e/systemd_client
n=0 failed=0 outside='' init='' cgroup=''

# --- judging ---

ok() {           # ok STATUS TITLE
	n=$((n + 1))
	if [ "$1" = 0 ]; then
		echo "ok $n - $2"
	else
		echo "not ok $n - $2"
		failed=1
		sed 's/^/# /' "$work/last" 2>/dev/null | tail -n 20
		[ -z "$init" ] || inside journalctl -b -u dlockd.service -u dlockd.socket -o short-precise -n 25 --no-pager 2>&1 |
			sed 's/^/# journal: /'
	fi
}

skip_all() {
	echo "1..0 # SKIP $1"
	exit 0
}

# until SECONDS COMMAND...: tries until it is true.
until_true() {
	local end=$((SECONDS + $1 + 1))
	shift
	while ! "$@"; do
		[ $SECONDS -lt $end ] || return 1
		sleep 0.05
	done
}

# --- the machine ---

inside() { nsenter -t "$init" -m -p -u -i -n -C env -u TMPDIR -u LD_LIBRARY_PATH SYSTEMD_COLORS=0 SYSTEMD_PAGER='' "$@" 2>&1; }
try() { inside "$@" >"$work/last"; }     # its output is shown if the result is not ok
says() { grep -q -- "$1" "$work/last"; }
property() { inside systemctl show -P "$2" "$1"; }

remove_cgroup() {
	[ ! -d "$1" ] || find "$1" -depth -type d -exec rmdir {} \; 2>/dev/null
	[ ! -d "$1" ]
}

own_cgroup() {
	local mount name
	mount=$(findmnt -n -o TARGET -t cgroup2 | head -n 1)
	[ -n "$mount" ] && [ -w "$mount/cgroup.procs" ] || return 1
	for name in "$mount"/dlock-test-*; do    # of a run that was killed together with its keeper
		[ -d "/proc/${name##*-}" ] || remove_cgroup "$name"
	done
	cgroup=$mount/dlock-test-$$
	mkdir "$cgroup"
}

# Is all that systemd_boot.sh does allowed here?
may_make_machines() {
	unshare --mount --pid --fork --uts --ipc --net --cgroup sh -c 'mount -t proc proc /proc &&
		mount --bind /dev/null /proc/version && mount -t sysfs -o ro sysfs /sys && mount -t cgroup2 cgroup2 /sys/fs/cgroup &&
		mount -t tmpfs tmpfs /tmp' >"$work/last" 2>&1 && own_cgroup 2>>"$work/last"
}

make_root() {
	local link directory unit
	mkdir -p "$root" && chmod 755 "$work" "$root"
	for directory in usr proc sys dev run tmp mnt etc/systemd/system etc/systemd/journald.conf.d var/log/journal root \
		home srv var/lib var/tmp; do
		mkdir -p "$root/$directory"
	done
	for link in bin sbin lib lib32 lib64 libx32; do
		[ -d "/usr/$link" ] && ln -s "usr/$link" "$root/$link"
	done
	chmod 1777 "$root/var/tmp"
	chmod 777 "$root/srv"
	: >"$root/srv/console"
	cp -a /etc/ld.so.conf /etc/ld.so.conf.d "$root/etc/" 2>/dev/null
	tr -d - </proc/sys/kernel/random/uuid >"$root/etc/machine-id"
	printf 'root:x:0:0::/root:/bin/sh\nalice:x:1001:1001::/:/bin/sh\nbob:x:1002:1002::/:/bin/sh\n' >"$root/etc/passwd"
	printf 'root:x:0:\nalice:x:1001:\nbob:x:1002:\n' >"$root/etc/group"
	printf 'passwd: files\ngroup: files\nshadow: files\n' >"$root/etc/nsswitch.conf"
	printf '[Journal]\nStorage=persistent\nAudit=no\nReadKMsg=no\nRateLimitIntervalSec=0\n' \
		>"$root/etc/systemd/journald.conf.d/test.conf"
	for unit in systemd-logind.service dbus.service dbus.socket getty.target systemd-tmpfiles-clean.timer \
		systemd-firstboot.service systemd-binfmt.service proc-sys-fs-binfmt_misc.automount systemd-udevd.service \
		systemd-networkd.service systemd-resolved.service systemd-timesyncd.service dev-hugepages.mount \
		systemd-repart.service systemd-update-utmp.service systemd-update-utmp-runlevel.service; do
		ln -s /dev/null "$root/etc/systemd/system/$unit"
	done
	ln -s /lib/systemd/system/multi-user.target "$root/etc/systemd/system/default.target"
	mkfifo -m 666 "$root"/srv/{alice,second,third,victim}
	cp "$client" "$root/srv/client"
}

boot() {
	cat /proc/sys/kernel/random/uuid >"$work/boot_id"
	{
		echo "$BASHPID" >"$cgroup/cgroup.procs"
		exec unshare --mount --pid --fork --uts --ipc --net --cgroup --kill-child=KILL --propagation private \
			"$here/systemd_boot.sh" "$root" "$installed" "$work/boot_id"
	} >"$work/boot.log" 2>&1 &
	outside=$!
	until_true 60 eval "init=\$(cat /proc/$outside/task/$outside/children 2>/dev/null); init=\${init%% *}; [ -n \"\$init\" ]" &&
		until_true 60 eval '[ "$(cat /proc/$init/comm 2>/dev/null)" = systemd ]' &&
		until_true 60 booted
}

booted() { [[ $(inside systemctl is-system-running) =~ ^(running|degraded)$ ]]; }

end_machine() {
	[ -z "$outside" ] || kill -KILL "$init" "$outside" 2>/dev/null
	[ -z "$outside" ] || wait "$outside" 2>/dev/null
	[ -z "$cgroup" ] || [ ! -e "$cgroup/cgroup.kill" ] || echo 1 >"$cgroup/cgroup.kill"
	outside='' init=''
}

clean_up() {
	end_machine
	[ -z "$cgroup" ] || until_true 60 remove_cgroup "$cgroup"
	rm -rf "$work"
}

# --- holders and waiters ---

# start UNIT USER NAME: a client in group dlock if USER is alice.
start() {
	: >"$root/srv/$1.out"
	inside systemd-run -q --unit="$1" -p User="$2" ${4:+-p SupplementaryGroups="$4"} -p StandardOutput="append:/srv/$1.out" \
		/srv/client "$3" "/srv/$1"
}

# ask UNIT LETTER: the letter's answer, "ERROR TOKEN".
ask() {
	local before
	before=$(grep -c "^$2" "$root/srv/$1.out")
	printf %s "$2" >"$root/srv/$1"
	until_true 60 eval "[ \$(grep -c '^$2' $root/srv/$1.out) -gt $before ]" || { echo none; return 1; }
	grep "^$2" "$root/srv/$1.out" | tail -n 1 | cut -d ' ' -f 2-
}

said() { grep -q "^$2" "$root/srv/$1.out"; }
waits() { ! said "$1" w && [ "$(property "$1" ActiveState)" = active ]; }

# once UID GROUP NAME: takes a lock and gives it back; its status is the error number.
once() {
	local groups=--clear-groups
	[ -z "$2" ] || groups=--groups=$(inside getent group "$2" | cut -d: -f3)
	try setpriv --reuid "$1" --regid "$1" "$groups" /srv/client "$3"
}

main_pid() { property dlockd MainPID; }
# running [PID]: there is a daemon, and not that one. Both are asked at once, since it may be dying just now.
running() {
	local state
	state=$(inside systemctl show -p MainPID,SubState dlockd)
	[[ $state = *SubState=running* && $state != *MainPID=0* && ! $state =~ MainPID=${1:-0}($|[^0-9]) ]]
}
logged() { inside journalctl -b -q -u dlockd -o cat --no-pager | grep -q -- "$1"; }
logged_at() { inside journalctl -b -q -u dlockd -o cat --no-pager -p "$1..$1" | grep -q -- "$2"; }
times_logged() { inside journalctl -b -q -u dlockd -o cat --no-pager | grep -c -- "$1"; }
