#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# An etcd that has reached its quota, and is then mended as docs/OPERATIONS.md says: the nodes say what it is, lose what they hold in
# time and not later, and come back by themselves.

. "${srctree:?}/tests/e2e/nodes.sh"
export ETCDCTL_API=3 ETCDCTL_ENDPOINTS=http://$host:$((base + 10))

both() { there 1 2 && there 2 2; }

for i in 1 2; do configure $i n$i 3s; done
ETCD_QUOTA_BACKEND_BYTES=$((8 << 20)) etcd_start
for i in 1 2; do start $i; done
until_true 100 both
ok $? "two nodes are a cluster"
hold 1 held

head -c 1000000 /dev/urandom >"$dir/much"
is_full() { etcdctl alarm list 2>/dev/null | grep -q NOSPACE; }
fills() {
	is_full && return
	etcdctl put "/other/$((k = k + 1))" <"$dir/much" >"$dir/put" 2>&1
	is_full
}
k=0
until_true 100 fills
ok $? "etcd is full"
until_true 100 said 1 'database has reached its quota' && until_true 100 said 2 'database has reached its quota'
ok $? "both nodes say so"
wait $held
code=$?
[ $code = 75 ] && until_true 100 said 1 'its time is over'
ok $? "what was held is lost when its time is over, and dlock run has ended what it ran ($code)"
doctor_says() { on 1 doctor 2>&1 | grep -q 'FAIL  cluster.*quota'; }
until_true 100 doctor_says
ok $? "doctor says why"

# Each of them again where etcd had no time for it.
until_true 100 etcdctl del --prefix /other/ >/dev/null 2>&1
revision=$(etcdctl endpoint status --write-out=json 2>/dev/null | grep -o '"revision":[0-9]*' | grep -o '[0-9]*$')
etcdctl compact "$revision" >/dev/null 2>&1
until_true 100 etcdctl defrag >/dev/null 2>&1
disarmed() { etcdctl alarm disarm >/dev/null 2>&1; ! is_full; }
until_true 100 disarmed
until_true 100 both && on 2 run held true && on 1 run held true
ok $? "compacted, defragmented and disarmed it serves again, and the nodes are back by themselves"

echo "1..$n"
exit $failed
