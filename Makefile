# SPDX-License-Identifier: LGPL-2.1-or-later
#
# What can be asked for ("make help" lists it). How things are built: scripts/Makefile.build, docs/HACKING.md.

VERSION := 0.1.0
O ?= build
V ?=
T ?=

srctree := $(patsubst %/,%,$(dir $(abspath $(lastword $(MAKEFILE_LIST)))))
override O := $(abspath $(O))
MAKEFLAGS += -rR --no-print-directory

.PHONY: all tests benches cluster-benches check jepsen sim sim-mutants model sanitize bench bench-cluster demo demo-cluster install uninstall clean tags help
all:

# These look again at what is installed, so each builds in a make of its own.
outer := check jepsen sim sim-mutants model sanitize bench bench-cluster demo demo-cluster clean tags help
ifneq ($(filter-out $(outer),$(or $(MAKECMDGOALS),all)),)
include $(srctree)/scripts/Makefile.build
include $(srctree)/scripts/Makefile.tests
include $(srctree)/scripts/Makefile.install
endif

again = $(MAKE) $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc)) -f $(srctree)/Makefile
deps := $(srctree)/scripts/deps
run-tests := $(srctree)/scripts/run-tests

check:
	@$(deps) check
	+@$(again) O=$(O) tests
	@$(run-tests) $(if $(T),--only '$(T)') $(O)/tests.list

sanitize:
	@$(deps) check
	+@$(again) O=$(O)/asan SANITIZE=address,undefined tests
	+@$(again) O=$(O)/tsan SANITIZE=thread tests
	@$(run-tests) $(if $(T),--only '$(T)') --logs $(O)/test-logs $(O)/asan/tests.list $(O)/tsan/tests.list

# A real cluster in network namespaces, under faults; longer than make check has time for.
HOSTS ?= 5
MINUTES ?= 30
jepsen:
	@$(deps) check
	+@$(again) O=$(O) tests
	@O=$(O) srctree=$(srctree) $(O)/tests/cluster/cluster $(HOSTS) $$(($(MINUTES) * 60)) $(NEMESES)

# The many-node core in its simulator: more seeds than make check has time for, and its judges judged.
FIRST ?= 1000
SEEDS ?=
sim:
	@$(deps) check
	+@$(again) O=$(O) tests/sim/test_sim
	@$(O)/tests/sim/test_sim $(FIRST) $(or $(SEEDS),1000)

sim-mutants:
	@$(deps) check
	+@$(again) O=$(O) tests/sim/test_sim
	@O=$(O) srctree=$(srctree) $(if $(SEEDS),SEEDS=$(SEEDS)) CC=$(CC) $(srctree)/tests/sim/mutants.sh

# The protocol as Promela models, explored to the end: minutes. It needs spin (scripts/deps model).
model:
	@CC=$(CC) $(srctree)/docs/model/run.sh

bench:
	@$(deps) check
	+@$(again) O=$(O) benches
	@$(run-tests) --bench $(if $(T),--only '$(T)') $(O)/bench.list

# Against other services, each in hosts of its own: needs root, and installs them.
bench-cluster:
	@$(deps) bench-cluster
	+@$(again) O=$(O) cluster-benches
	@$(run-tests) --bench $(if $(T),--only '$(T)') $(O)/cluster-bench.list

demo:
	@$(deps) build
	+@$(again) O=$(O) all
	@O=$(O) $(srctree)/scripts/demo

demo-cluster:
	@$(deps) demo-cluster
	+@$(again) O=$(O) all
	@O=$(O) $(srctree)/scripts/demo-cluster

# The mark says that this folder is ours to remove.
clean:
	@if [ -e $(O)/.dlock-build ]; then rm -rf $(O); fi

tags:
	@cd $(srctree) && git ls-files '*.[ch]' | ctags -L -

help:
	@echo 'make               the library, the daemon and the command, in $(O)'
	@echo 'make demo          installs what is missing, builds, shows what dlock does'
	@echo 'make demo-cluster  the same of three hosts, one of which loses its network'
	@echo 'make check         installs what is missing, builds and runs every test (T=pattern: some)'
	@echo 'make tests, benches, cluster-benches: only builds them'
	@echo 'make jepsen        a cluster under faults (HOSTS=5, MINUTES=30, NEMESES="split kill …": only these; KEEP=DIR)'
	@echo 'make sim           many simulated clusters (SEEDS=1000, FIRST=1000); make sim-mutants: its judges judged'
	@echo 'make model         explores the models of the protocol (docs/model) to their end'
	@echo 'make sanitize      the tests under ASan and UBSan, then the threaded ones under TSan'
	@echo 'make bench         measures, and writes docs/BENCHMARKS.md (B=pattern: some rows only)'
	@echo 'make bench-cluster the same for a cluster, beside Redis, PostgreSQL, etcd and ZooKeeper'
	@echo 'make install       to DESTDIR, under PREFIX (/usr/local); make uninstall takes it away'
	@echo 'make clean, tags'
	@echo 'make FOLDER/NAME   one program, library or test; make FOLDER/: the objects of one folder'
	@echo
	@echo 'O=DIR output folder   V=1 whole command lines   CC=clang   CFLAGS=, LDFLAGS= yours'
	@echo 'SANITIZE=address,undefined   WERROR=1'
