#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# Run by systemd.sh as the first process of new namespaces: makes ROOT look like a machine and becomes its systemd.
#     systemd_boot.sh ROOT INSTALLED BOOT_ID
#
# What must be true before systemd runs: nothing that it may write to belongs to the machine outside. /usr is read-only,
# /run, /tmp, /dev and /dev/shm are new, /proc/sys and /sys are read-only, and it cannot set the clock or load modules.

set -eu
root=$1 installed=$2 boot_id=$3

mount --bind "$root" "$root"
mount --bind /usr "$root/usr"
mount -o remount,bind,ro "$root/usr"
mount --bind "$installed" "$root/usr/local"
mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
# The kernel's own boot id is the same for all who run on it; a machine that boots anew has a new one.
mount --bind "$boot_id" "$root/proc/sys/kernel/random/boot_id"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount --bind "$boot_id" "$root/proc/sys/kernel/random/boot_id"
[ ! -e "$root/proc/sysrq-trigger" ] || mount --bind /dev/null "$root/proc/sysrq-trigger"
[ ! -e "$root/proc/kcore" ] || mount --bind /dev/null "$root/proc/kcore"
mount -t sysfs -o ro,nosuid,nodev,noexec sysfs "$root/sys"
mount -t cgroup2 -o nosuid,nodev,noexec cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=0755,nosuid,nodev tmpfs "$root/run"
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$root/tmp"
mount -t tmpfs -o mode=0755,nosuid tmpfs "$root/dev"
mkdir "$root/dev/shm" "$root/dev/pts"
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
for device in null zero full random urandom; do
	touch "$root/dev/$device"
	mount --bind "/dev/$device" "$root/dev/$device"
done
touch "$root/dev/console"
mount --bind "$root/srv/console" "$root/dev/console"

hostname testnode
ip link set lo up
cd "$root"
pivot_root . mnt
umount -l /mnt
ldconfig

# shellcheck disable=SC2093
exec env -i container=dlock-test PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin \
	setpriv --bounding-set=-sys_time,-sys_module,-sys_rawio,-syslog,-mknod,-wake_alarm,-block_suspend,-audit_control,-audit_write,-audit_read,-mac_admin,-mac_override \
	--inh-caps=-all /lib/systemd/systemd --log-target=journal --log-level=info --show-status=no </dev/null >/dev/null 2>&1
