#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# Some of the models in docs/model, those that take seconds; make model runs all. Skipped where there is no spin.
exec "$srctree/docs/model/run.sh" quick
