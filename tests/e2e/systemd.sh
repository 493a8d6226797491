#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# dlock as a service: installs it into a small machine of its own (systemd_machine.sh), boots systemd there, and lives
# through what happens to a service: start, reload, restart, kill, hang, stop, reboot.

set -u
. "$(dirname "$(readlink -f "$0")")/systemd_machine.sh"

[ "$(id -u)" = 0 ] || skip_all 'needs root, to make namespaces'
[ -x /lib/systemd/systemd ] || skip_all 'needs systemd'
[ -d /usr/local ] && [ -L /lib ] || skip_all 'needs a system whose /lib is in /usr'
trap clean_up EXIT
trap 'exit 1' INT TERM
mkdir -p "$work"
may_make_machines || skip_all "namespaces, mounts or cgroups are forbidden here: $(tail -n 1 "$work/last")"

# --- installed ---

make -s -C "$srctree" O="$O" install DESTDIR="$work/stage" PREFIX=/usr/local >"$work/last" 2>&1
ok $? 'make install puts everything into a directory'
mv "$work/stage/usr/local" "$installed"
make_root
mkdir "$root/etc/dlock"
printf '[Node]\nName=testnode\n' >"$root/etc/dlock/dlockd.conf"

boot
ok $? 'a machine boots with the units installed'
[ $failed = 0 ] || { sed 's/^/# boot: /' "$work/boot.log" "$root/srv/console" | tail -n 40; echo "1..$n"; exit 1; }

units=/usr/local/lib/systemd/system
try systemd-analyze verify --man=no $units/dlockd.service $units/dlockd.socket && [ ! -s "$work/last" ]
ok $? 'systemd-analyze verify has nothing to say about the units'
try systemd-analyze security --offline=true --threshold=20 $units/dlockd.service
ok $? 'the exposure of the service is 2.0 or lower'
try stat -c '%U %G %a' /run/dlock && says '^dlock dlock 755$'
ok $? 'sysusers made the user dlock, tmpfiles the run directory'

# --- started ---

try systemctl enable --now dlockd.service && try systemctl is-active dlockd.service dlockd.socket
ok $? 'systemctl enable --now starts the service with its socket'
[[ $(property dlockd StatusText) = running:* ]] && [ "$(property dlockd Type)" = notify ]
ok $? 'the daemon says that it is ready, and what it does'
[[ " $(property dlockd After) " = *' dbus.service '* && " $(property dlockd After) " = *' network.target '* ]]
ok $? 'bus and network are there until it has ended, so that it can leave a cluster when the system goes down'
pid=$(main_pid)
try cat "/proc/$pid/status" && says '^Uid:.[1-9]' && says '^CapPrm:.0000000000000020$' && says '^NoNewPrivs:.1$' && says '^Seccomp:.2$'
ok $? 'it runs as a user of its own, with CAP_KILL and no other capability, in a sandbox'
until_true 60 logged_at 6 'first start' && until_true 60 logged_at 6 'testnode serves /run/dlock'
ok $? 'the log tells of the first start, at level info'
try setpriv --reuid 1002 --regid 1002 --clear-groups dlock status && says testnode && try dlock doctor && ! says WARN
ok $? 'dlock status answers everybody, dlock doctor finds nothing to mend'

# --- who may ---

once 1001 dlock job
ok $? 'a user in the group dlock may use the space default'
once 1002 '' job; [ $? = 13 ]
ok $? 'another user is told EACCES'
once 1002 '' bobs/own && { once 1001 '' bobs/own; [ $? = 13 ]; }
ok $? 'a space made on demand belongs to who made it'

# --- held over everything that happens to the daemon ---

start alice alice job dlock && until_true 60 said alice w && start second alice job dlock && until_true 60 said second 'o 0'
token=$(ask alice c)
[[ $token = '0 '[1-9]* ]] && waits second && try dlock show job && says alice.service
ok $? 'one holds the lock, another waits, and dlock show names the unit'
sockets=$(inside stat -c %i /run/dlock/dlockd.sock /run/dlock/io.dlock)

try systemctl restart dlockd && until_true 60 running "$pid" && until_true 60 logged_at 6 'incarnation 2: the session goes on'
ok $? 'systemctl restart: the new daemon goes on with the session'
[ "$(ask alice c)" = "$token" ] && waits second && [ "$(inside stat -c %i /run/dlock/dlockd.sock /run/dlock/io.dlock)" = "$sockets" ]
ok $? '… the holder still holds, under the same token; the waiter waits; the sockets are the same'

pid=$(main_pid)
inside kill -KILL "$pid" && until_true 60 running "$pid" && until_true 60 logged 'incarnation 3: the session goes on'
ok $? 'kill -9: systemd brings the daemon back'
[ "$(ask alice c)" = "$token" ] && waits second
ok $? '… the holder still holds, the waiter waits'

try systemd-tmpfiles --create --clean /usr/local/lib/tmpfiles.d/dlock.conf && try systemctl daemon-reload && [ "$(ask alice c)" = "$token" ]
ok $? 'systemd-tmpfiles and daemon-reload touch nothing'

[ "$(ask alice p)" = '0 0' ] && until_true 60 said second w && second=$(ask second c) && [ "${second#0 }" -gt "${token#0 }" ]
ok $? 'released, the lock goes to the one who has waited all the time, with a higher token'

try systemctl stop dlockd && [ "$(property dlockd ActiveState)" = inactive ] && try systemctl is-active dlockd.socket &&
	until_true 60 logged 'what is held stays held' && [ "$(ask second c)" = "$second" ] && [ "$(ask second p)" = '0 0' ] &&
	[[ $(ask second w) = '0 '* ]]
ok $? 'systemctl stop: the holder keeps the lock, and a cached lock can be given back and taken without the daemon'
start third alice job dlock && until_true 60 said third 'o 0' && until_true 60 running 0 && until_true 60 logged 'incarnation 4: the session goes on' &&
	waits third && [[ $(ask second c) = '0 '* ]]
ok $? 'who calls at the socket starts the daemon again, and nothing is lost'
try systemctl kill -s KILL third

# --- watchdog ---

mkdir -p "$root/etc/systemd/system/dlockd.service.d"
printf '[Service]\nWatchdogSec=5s\nTimeoutAbortSec=1s\n' >"$root/etc/systemd/system/dlockd.service.d/test.conf"
try systemctl daemon-reload && try systemctl restart dlockd && pid=$(main_pid) && sleep 7 && [ "$(main_pid)" = "$pid" ] &&
	[ "$(property dlockd Result)" = success ]
ok $? 'the daemon keeps its watchdog content'
inside kill -STOP "$pid" && until_true 60 running "$pid" && try journalctl -b -q -u dlockd -o cat --no-pager && says 'Watchdog timeout' &&
	[[ $(ask second c) = '0 '* ]]
ok $? 'a daemon that hangs is replaced, and the holder still holds'
rm -r "$root/etc/systemd/system/dlockd.service.d"
try systemctl daemon-reload && try systemctl restart dlockd

# --- reload ---

pid=$(main_pid)
mkdir "$root/etc/dlock/dlockd.conf.d"
printf '[Space builds]\nOwner=bob\nGroup=bob\nMode=0600\n' >"$root/etc/dlock/dlockd.conf.d/builds.conf"
try systemctl reload dlockd && until_true 60 logged 'configuration read again' && try dlock status && says builds && running 0 &&
	once 1002 '' builds/one && { once 1001 '' builds/one; [ $? = 13 ]; }
ok $? 'systemctl reload: a new space is there for its owner'
printf '[Space builds]\nMode=nonsense\n' >"$root/etc/dlock/dlockd.conf.d/wrong.conf"
! try systemctl reload dlockd && until_true 60 running 0 && [ "$(main_pid)" = "$pid" ] && until_true 60 logged_at 3 'wrong.conf:2' && once 1002 '' builds/one
ok $? 'a reload of a wrong configuration fails, says where, and the old one stays in force'
try systemctl restart dlockd; until_true 60 eval '[ "$(property dlockd ActiveState)" = failed ]' && [ "$(property dlockd ExecMainStatus)" = 78 ] &&
	[ "$(property dlockd NRestarts)" = 0 ]
ok $? 'a start with a wrong configuration is not tried again and again'
rm "$root/etc/dlock/dlockd.conf.d/wrong.conf"
try systemctl start dlockd && [[ $(ask second c) = '0 '* ]]
ok $? '… and mended, it goes on where it was'

# --- what may get lost ---

try systemctl stop dlockd dlockd.socket
inside sh -c 'rm -r /run/dlock/ledger'
try systemctl start dlockd && until_true 60 logged_at 4 'what was held is lost' && [[ $(ask second c) = '116 '* ]]
ok $? 'a ledger that was removed is told as a loss, at level warning, and the holder is told ESTALE'
once 1001 dlock job && lost=$(sed -n 's/^w 0 //p' "$work/last") && [ "${lost:-0}" -gt "${second#0 }" ]
ok $? '… and tokens go on rising'

start victim alice job dlock && until_true 60 said victim w && try systemctl kill -s KILL victim &&
	until_true 60 logged_at 5 'ended while it held default/job, token [0-9]' && once 1001 dlock job
ok $? 'a holder that is killed is logged at level notice, and the lock is free'
lost=$(sed -n 's/^w 0 //p' "$work/last")

# --- reboot ---

try systemctl poweroff >/dev/null
until_true 60 eval '! kill -0 "$outside" 2>/dev/null'
ok $? 'the machine goes down'
end_machine
boot && until_true 60 running 0
ok $? 'after a reboot the service comes up by itself'
until_true 60 logged_at 6 'the machine was started anew' && ! logged_at 4 .
ok $? 'the log tells it as a reboot, and warns of nothing'
once 1001 dlock job && token=$(sed -n 's/^w 0 //p' "$work/last") && [ "${token:-0}" -gt "$lost" ]
ok $? 'tokens go on rising over the reboot'

echo "1..$n"
exit $failed
