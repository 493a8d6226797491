#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# An etcd that has reached its quota, and is then mended as docs/OPERATIONS.md says: the nodes say what it is, lose what they hold in
# time and not later, and come back by themselves.

. "${srctree:?}/tests/e2e/nodes.sh"
export ETCDCTL_API=3 ETCDCTL_ENDPOINTS=http://127.0.0.1:$((base + 10))

both() { there 1 2 && there 2 2; }

for i in 1 2; do configure $i n$i 3s; done
ETCD_QUOTA_BACKEND_BYTES=$((8 << 20)) etcd_start
for i in 1 2; do start $i; done
until_true 30 both
ok $? "two nodes are a cluster"
on 1 run held -- sleep 300 &
held=$!
until_true 10 on 2 show held >/dev/null 2>&1

head -c 1000000 /dev/urandom >"$dir/much"
for k in $(seq 30); do
	etcdctl put "/other/$k" <"$dir/much" >"$dir/put" 2>&1 || break
done
etcdctl alarm list 2>/dev/null | grep -q NOSPACE
ok $? "etcd is full"
until_true 20 said 1 'database has reached its quota' && until_true 20 said 2 'database has reached its quota'
ok $? "both nodes say so"
wait $held
code=$?
[ $code = 75 ] && until_true 10 said 1 'its time is over'
ok $? "what was held is lost when its time is over, and dlock run has ended what it ran ($code)"
on 1 doctor 2>&1 | grep -q 'FAIL  cluster.*quota'
ok $? "doctor says why"

etcdctl del --prefix /other/ >/dev/null 2>&1
revision=$(etcdctl endpoint status --write-out=json 2>/dev/null | grep -o '"revision":[0-9]*' | grep -o '[0-9]*$')
etcdctl compact "$revision" >/dev/null 2>&1
etcdctl defrag >/dev/null 2>&1
etcdctl alarm disarm >/dev/null 2>&1
until_true 40 both && on 2 run held true && on 1 run held true
ok $? "compacted, defragmented and disarmed it serves again, and the nodes are back by themselves"

echo "1..$n"
exit $failed
