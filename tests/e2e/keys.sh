#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# Certificates that end, are renewed, are revoked, and are followed by those of another CA; and a shared key that is changed: with
# three daemons that stay connected, and locks that go to and fro meanwhile.

. "${srctree:?}/tests/e2e/nodes.sh"
command -v openssl >/dev/null || { echo "1..0 # SKIP no openssl"; exit 0; }
k=$dir/keys
mkdir "$k"

all_there() { there 1 3 && there 2 3 && there 3 3; }
reload() { for i in "$@"; do kill -HUP "${daemon[$i]}"; done; }
doctor_says() { on "$1" doctor 2>&1 | grep -q "$2"; }
lines() { grep -cs "$2" "$dir/$1/log"; }
more_lines() { [ "$(lines "$1" "$2")" -gt "$3" ]; }

# passes: a lock goes around, so all masters and all connections are at work.
passes() {
	for j in 1 2 3 1; do
		on $j run "around$1" true || return 1
	done
}

# ca NAME: an authority, in $k/NAME.crt
ca() {
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj "/CN=$1" -keyout "$k/$1.key" -out "$k/$1.crt" 2>/dev/null
	: >"$k/$1.index"
	echo 01 >"$k/$1.number"
	printf '[ca]\ndefault_ca=c\n[c]\ndatabase=%s/%s.index\nserial=%s/%s.number\nnew_certs_dir=%s\ndefault_md=sha256\npolicy=p\nunique_subject=no\ndefault_crl_days=9\ncopy_extensions=copy\n[p]\ncommonName=supplied\n' \
		"$k" "$1" "$k" "$1" "$k" >"$k/$1.conf"
}

# issue NODE CA SECONDS
issue() {
	openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=n$1" -addext "subjectAltName=DNS:n$1" \
		-keyout "$k/n$1.newkey" -out "$k/n$1.csr" 2>/dev/null &&
	openssl ca -config "$k/$2.conf" -batch -notext -cert "$k/$2.crt" -keyfile "$k/$2.key" -in "$k/n$1.csr" -out "$k/n$1.newcrt" \
		-startdate 20240101000000Z -enddate "$(date -u -d "+$3 seconds" +%Y%m%d%H%M%SZ)" 2>"$k/openssl.log" &&
	chmod o-rwx "$k/n$1.newkey" && mv "$k/n$1.newkey" "$k/n$1.key" && mv "$k/n$1.newcrt" "$k/n$1.crt"
}

restart() {
	kill -TERM "${daemon[$1]}"
	wait "${daemon[$1]}"
	start "$1"
}

ca one
cp "$k/one.crt" "$k/ca.crt"
for i in 1 2 3; do
	issue $i one $((i == 3 ? 72000 : 99999)) || cat "$k/openssl.log"
	configure $i n$i 6s
	printf 'Cert=%s/n%s.crt\nCertKey=%s/n%s.key\nCA=%s/ca.crt\n' "$k" $i "$k" $i "$k" >>"$dir/$i/dlockd.conf"
done
etcd_start
for i in 1 2 3; do start $i; done
until_true 100 all_there && doctor_says 1 'OK    keys.*certificate of CN=n1'
ok $? "three nodes with certificates are a cluster"

# --- the end of one ---

said 3 'certificate of CN=n3.*expires within a day' && said 1 'expires within a day\|within two weeks' && doctor_says 3 'WARN  certificate.*expires soon'
ok $? "log and doctor say that a certificate is about to end"
hold 3 held
taken() { ! doctor_says 3 'has changed since it was read'; }
for _ in 1 2 3 4 5; do                   # read before it ends
	issue 3 one 8
	reload 3
	until_true 8 taken && break
done
until_true 100 said 3 'certificate of CN=n3.*has expired' && doctor_says 3 'FAIL  certificate.*has expired'
ok $? "... and that it has"
passes 1 && kill -0 $held && all_there
ok $? "connections that are up stay, and so does what is held"
sleep 1.2                                # until the end of its last second, in which others still take it
restart 1
until_true 40 said 1 'its certificate has expired' && until_true 40 said 3 'says that our certificate has expired'
ok $? "a new connection is refused, and both say why"
timeout 10 "$DLOCKD" --dir "$dir/3" --check 2>"$dir/check"
[ $? = 78 ] && grep -q 'has expired: all other nodes would refuse it' "$dir/check" && kill -0 $held
ok $? "a daemon would not start with it; what is held there stays held meanwhile"
issue 3 one 99999
doctor_says 3 'WARN  keys.*has changed since it was read'
ok $? "doctor tells of a certificate that was renewed, and not read yet"
reload 3
until_true 100 all_there && passes 2 && kill -0 $held && ! doctor_says 3 'FAIL'
ok $? "after a reload it is let in again, and has lost nothing"

# --- another authority, without an interruption ---

lapses=$(cat "$dir"/[123]/log | grep -c 'its time is over')
ca two
cat "$k/one.crt" "$k/two.crt" >"$k/ca.crt"
reload 1 2 3
for i in 1 2 3; do
	issue $i two 99999
	reload $i
	passes "two$i" || break
done
cp "$k/two.crt" "$k/ca.crt"
reload 1 2 3
for i in 1 2; do
	restart $i
	until_true 100 all_there || break
done
passes 3 && kill -0 $held && [ "$(cat "$dir"/[123]/log | grep -c 'its time is over')" = "$lapses" ] && doctor_says 1 'OK    keys.*certificate'
ok $? "authority and certificates are replaced one after the other: nothing is lost"
cp "$k/n2.crt" "$k/n2.good"
cp "$k/n2.key" "$k/n2.goodkey"
issue 2 one 99999
reload 2
until_true 100 said 2 'is none that CA='
ok $? "a certificate of the former authority is refused by the node's own reload, and the one it has stays"
cp "$k/n2.good" "$k/n2.crt"
cp "$k/n2.goodkey" "$k/n2.key"

# --- a certificate that is revoked ---

openssl ca -config "$k/two.conf" -cert "$k/two.crt" -keyfile "$k/two.key" -revoke "$k/n2.crt" 2>/dev/null
openssl ca -config "$k/two.conf" -cert "$k/two.crt" -keyfile "$k/two.key" -gencrl -out "$k/crl.pem" 2>/dev/null
for i in 1 3; do echo "CRL=$k/crl.pem" >>"$dir/$i/dlockd.conf"; done
reload 1 3
passes 4 && all_there
ok $? "a revoked one is good for the connections that are up"
restart 2
until_true 100 said 1 'is revoked' && until_true 100 said 3 'is revoked'
ok $? "... and for no others"
kill $held
for i in 1 2 3; do kill -KILL "${daemon[$i]}"; wait "${daemon[$i]}" 2>/dev/null; done

# --- a shared key ---

"$dlock" keygen "$k/old" >/dev/null && "$dlock" keygen "$k/new" >/dev/null
for i in 1 2 3; do
	cp -p "$k/old" "$k/key$i"
	configure $i n$i 6s
	echo "Key=$k/key$i" >>"$dir/$i/dlockd.conf"
	: >"$dir/$i/log"
	start $i
done
until_true 100 all_there
ok $? "three nodes with a shared key are a cluster"
hold 3 held2
# step FILE…: on one node after the other the files together are the key; and one of them connects anew.
step() {
	for i in 1 2 3; do
		cat "$@" >"$k/key$i"
		reload $i
		until_true 100 doctor_says $i 'OK    keys' || return 1
		restart 1
		until_true 100 all_there && passes "$RANDOM" || return 1
	done
}
step "$k/old" "$k/new" && step "$k/new" "$k/old" && step "$k/new" && kill -0 $held && ! cat "$dir"/[123]/log | grep -q 'its time is over'
ok $? "the key is changed as OPERATIONS.md says: whoever connects anew meanwhile is let in, and nothing is lost"
cp "$k/old" "$k/key2"
restart 2
until_true 100 said 1 'another cluster key\|refuses our cluster key' && until_true 100 said 2 'another cluster key\|refuses our cluster key'
ok $? "the former key is refused, which both say"
kill $held
chmod o+r "$k/key1"
doctor_says 1 'WARN  keys.*may be read or written by everybody'
ok $? "doctor tells of a key that everybody may read"

echo "1..$n"
exit $failed
