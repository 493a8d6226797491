#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# A job that cron starts on every host in the same minute, and that is to run on one:
#
#     0 2 * * *   dlock run -n -E 0 nightly -- /usr/local/libexec/once.sh 60 /usr/local/bin/backup
#
# Who does not get the lock leaves at once (-n), and that is no failure (-E 0). Clocks differ, and a job may be short: so the
# lock is kept for at least so many seconds, and the last host to start still finds it held. Let it be more than the clocks differ
# and cron takes, and a second more, for which -n asks the other nodes.
set -u
least=$1
shift

sleep "$least" &
"$@"
status=$?
wait
exit $status
