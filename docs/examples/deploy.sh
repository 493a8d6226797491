#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# A new version on all hosts, at most two at a time out of service:
#
#     for h in $(cat hosts); do ssh "$h" dlock run --sem 2 deploy -- deploy.sh & done; wait
#
# $1 is who does it (the host, in earnest), $2 the log that shows who was out of service when. A host that fails keeps its
# permit no longer than this script lasts; set -e ends it at the first step that goes wrong.
set -eu
who=${1:-$(hostname)} log=${2:-/var/log/deploy.log}

say() { echo "$(date +%s.%N) $1 $who $DLOCK_TOKEN" >>"$log"; }

say out                                  # take it out of the load balancer, and let it run dry
sleep "${DEPLOY_SECONDS:-0.3}"           # install, restart, look whether it is healthy
say in
