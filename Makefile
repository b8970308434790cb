# coe-bridge. `make help` lists the targets for daily use. CONTRIBUTING.md describes the others.
SHELL := /bin/bash
.DEFAULT_GOAL := help

VERSION    ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
TOOLS      ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/coe-bridge/tools
GOLANGCI   := golangci-lint-v2.11.3
LINT       := $(TOOLS)/$(GOLANGCI)
# What connects the nodes of make demo-k8s: ovn, or odl (OpenDaylight).
BACKEND    ?= ovn
# The default of go test, ten minutes for a package, is too short for a slow machine.
GO_TEST    := go test -timeout 80m
# WAITING runs tests that mostly wait for other programs, so four parallel ones of a package run at a time.
WAITING    := $(GO_TEST) -vet=off -parallel 4
# AT_A_TIME is the number of packages that test-ovn runs at a time.
AT_A_TIME  ?= 2
# The tests whose outcome depends on the release of OVN: with packets, and on databases that change or fail.
ON_OVN     := Traffic|TestMachines|TestTruthTables|TestChanges|TestChurn|TestProfiles|TestConformance|TestLayouts|TestChangeOfLayout|TestNamespacesOnOneSwitch|TestOld|TestLocalnet|TestRenewal|TestLateChassis|TestPolicyLog|TestCluster|TestSchedules
ON_ODL     := COE_BRIDGE_TEST_ODL=1 $(GO_TEST) -vet=off -count=1 -p 1 -run RealOpenDaylight
# The tests of these packages run other programs, have one goroutine, or send packets to what other tests run too: the
# race detector has nothing to find. Those tests of cni/agent for which this is not so have InProcess in their names, or
# need nothing: test-race runs them.
# Packages that take long come first.
PLAIN      := ./cni/agent ./test/suite/replicas ./test/suite/deploy ./cni/porttables \
	./test/suite/ovncluster ./test/suite/policies ./test/suite/csit ./test/lab/story ./test/suite/conformance ./test/docs ./test/arch ./yang/... \
	./mapping ./mapping/policy/... ./restconf/document ./restconf/openapi ./dhcppool
# Those of the other packages that take long.
LONG       := ./mapping/backend/ovn ./test/suite/kubernetes ./mapping/backend/odl ./restconf ./cmd/coe-bridge ./test/suite/e2e ./test/suite/hostile
# For these tests of the other packages the same is true, or tests beside them run the same code with the race detector, which
# makes most of them many times as long. TestSchedules resets connections while libovsdb 0.8.1 makes them, which races in there (Connect adds to a WaitGroup while the end of the connection waits for it),
# and TestServerThatDoesNotRead gets an answer after its deadline, which races there too.
PLAIN_IN   := ./test/suite/kubernetes ./mapping/backend/ovn ./mapping/backend/odl ./test/suite/e2e ./cmd/coe-bridge ./restconf ./cni/nic ./cni/ovs
NO_RACE    := Storms OutagesOfLayoutNode \w*Traffic\w* NamespacesOnOneSwitch LocalnetChanges Renewal LateChassis PolicyLog ReadOrder LeftBinding \
	BindingOfNoPod Schedules Access OpenAPI\w* HostileBodies InsertAndPoint PostOfManyToMany Killed BootInTheMiddle ServerThatDoesNotRead Damage ManyRefusedAlone HugeAnswer
NO_RACE    := ^Test($(shell echo '$(NO_RACE)' | tr ' ' '|'))$$
TEST_DEMO  := go run ./test/demo/ovn up --listen 127.0.0.1:18181 && go run ./test/demo/ovn down
export CGO_ENABLED = 0
export GOFLAGS = -trimpath -buildvcs=false
# OVN=25.03 in the command line runs tests, demos and benchmarks on the OVN of make ovn, not on the installed one.
ifeq ($(origin OVN),command line)
ifneq ($(OVN),25.03)
$(error OVN=$(OVN): want 25.03, or none for the installed OVN)
endif
ifndef OVN_BIN # the make that called this one has not set PATH
export OVN_BIN := $(shell go run ./test/lab/ovn25/build)
ifeq ($(OVN_BIN),)
$(error OVN $(OVN) is missing: run make ovn)
endif
export PATH := $(OVN_BIN):$(PATH)
endif
endif

help: ## list these targets
	@awk -F ':.*## ' '/^##@ / { printf "\n%s\n", substr($$0, 5) } /^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@printf '\nCONTRIBUTING.md describes the other targets.\n'

##@ Try it

run: build ## start the bridge alone: no root, memory backend, http://127.0.0.1:8181
	bin/coe-bridge serve --dev --data-dir $${COE_BRIDGE_DATA_DIR:-.run/data}

demo: build ## OVN, two hosts, and pods that reach each other; demo-down removes it (root)
	go run ./test/demo/ovn up

# demo-down: remove what make demo left running (root)
demo-down:
	go run ./test/demo/ovn down

demo-k8s: build ## two Kubernetes nodes, on OVN or (BACKEND=odl) OpenDaylight; demo-k8s-down removes it (root)
	go run ./test/demo/kube up --backend $(BACKEND)

# demo-k8s-down: remove what make demo-k8s left running (root)
demo-k8s-down:
	go run ./test/demo/kube down

demo-odl: build ## two hosts that a real OpenDaylight programs; demo-odl-down removes it (root)
	go run ./test/demo/odl up

# demo-odl-down: remove what make demo-odl left running (root)
demo-odl-down:
	go run ./test/demo/odl down

##@ Build

build: ## build bin/coe-bridge and the CNI plugin bin/coe-cni
	@mkdir -p bin
	go build -ldflags "-s -w -X main.version=$(VERSION)" -o bin/ ./cmd/coe-bridge ./cmd/coe-cni

deps: ## install the Debian packages that tests and demos need (root)
	.ci/deps

# kube: build the Kubernetes for tests and demos, once, into a cache (six minutes)
kube:
	go run ./test/lab/kubelab/build

# odl: install the OpenDaylights for tests and demos, once, into a cache (ten minutes)
odl:
	.ci/deps maven patchelf
	go run ./test/lab/odl/build

# ovn: install OVN 25.03 for tests and demos beside the installed OVN, once, into a cache (half a minute)
ovn:
	.ci/deps patchelf
	go run ./test/lab/ovn25/build

clean: ## remove what was built, and the data of make run
	rm -rf bin .run

##@ Test

test-fast: ## run the tests that need nothing
	$(GO_TEST) -short ./...

test: deps kube odl ovn ## run all tests on real programs, except those of make test-odl (root; half an hour)
	$(MAKE) -j3 test-race test-plain

# Most tests wait for other programs, so two packages of each of test-race and test-plain run at a time. make check
# vets them. OpenDaylight comes last: its tests failed twice while the machine compiled the other tests.
test-race:
	CGO_ENABLED=1 $(WAITING) -race -p 2 -skip '$(NO_RACE)' $(LONG) $$(go list ./... | grep -vxFf <(go list $(LONG) ./test/suite/kubelet ./test/suite/ansible $(PLAIN)))
	CGO_ENABLED=1 $(WAITING) -race -short ./cni/agent
	CGO_ENABLED=1 $(WAITING) -race -run InProcess ./cni/agent

test-plain: test-plain-ovn test-plain-kubelet
	$(WAITING) -p 2 -skip 'InProcess$$' $(PLAIN)
	$(WAITING) -p 2 -run '$(NO_RACE)' $(PLAIN_IN)
	$(WAITING) -p 2 -run Conformance ./mapping/backend/odl ./mapping/backend/memory
	$(MAKE) test-oxygen

# The first parts of test-plain have one package at a time each. make -j runs them at the same time.
test-plain-ovn:
	$(MAKE) test-ovn OVN=25.03 AT_A_TIME=1
	$(TEST_DEMO)

test-plain-kubelet:
	$(WAITING) -p 1 ./test/suite/kubelet ./test/suite/ansible

test-oxygen:
	$(ON_ODL)/oxygen ./mapping/backend/odl

# test-ovn: run the suite of all backends, tests with traffic and faults, and the demo on OVN (root); test-plain runs it with OVN=25.03
test-ovn: build
	ovn-northd --version
	$(GO_TEST) -vet=off -count=1 -p 1 ./mapping/backend/ovn/nb ./mapping/backend/ovn/acl ./mapping/backend/ovn/codec ./mapping/backend/ovn/identity ./mapping/backend/ovn/ovsdb
	$(WAITING) -count=1 -p $(AT_A_TIME) -run '$(ON_OVN)' ./mapping/backend/ovn ./test/suite/ovncluster ./test/suite/policies ./test/suite/e2e
	$(TEST_DEMO)

# faults: run random schedules of faults of OVN's northbound database, SEEDS=200 in each layout, and kill the bridge 50 times in each (root; an hour)
faults: deps kube
	go test -vet=off -count=1 -v -timeout 2h -parallel 3 -run TestSchedules ./mapping/backend/ovn -seeds $(or $(SEEDS),200) -within 10s
	go test -vet=off -count=1 -v -timeout 2h -run TestOutages ./test/suite/kubernetes -kills 50

# test-odl: run all tests on real OpenDaylights; make test runs those of the backend on Oxygen (root; an hour or two). With WATCHER=PROGRAM
# OpenDaylight's own Kubernetes watcher is tested too: docs/opendaylight.md builds it
test-odl: deps odl
	$(ON_ODL) ./test/lab/odl ./test/lab/story ./mapping/backend/odl ./test/lab/odlpods ./test/suite/odle2e ./test/suite/odlcluster ./test/suite/odldiff ./test/suite/kubelet ./test/suite/csit
	$(if $(WATCHER),COE_BRIDGE_TEST_ODL=1 $(GO_TEST) -vet=off -count=1 -run '^TestWatcher$$' ./test/lab/odlpods -watcher $(abspath $(WATCHER)))

# csit: run the Robot Framework suites (root); CONTROLLER=http://… tests a running OpenDaylight
csit: deps
	$(GO_TEST) -count=1 -v -run TestSuites -artifacts -outputdir $$(mktemp -d --tmpdir coe-bridge-csit.XXXXXX) ./test/suite/csit $(if $(CONTROLLER),-controller $(CONTROLLER))

# conformance: run Kubernetes' own network tests on seven nodes, which OVN or (BACKEND=odl) OpenDaylight programs (root);
# IPV6_FIRST=1 runs those that need both families on a cluster whose first family is IPv6
conformance: deps kube build
	go run ./test/suite/conformance -backend $(BACKEND) $(if $(IPV6_FIRST),-ipv6-first)

# fuzz: run every fuzz target for a fixed number of inputs
fuzz:
	.ci/fuzz

# fuzz-build: build the programs of the fuzz targets into the folder FUZZ_PROGRAMS, where make fuzz finds them
fuzz-build:
	.ci/fuzz build

check: lint ## check format, vet and lint
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "run gofmt on these"; exit 1; }

lint: $(LINT)
	$(LINT) run ./...

$(LINT):
	@mkdir -p $(TOOLS)
	@echo "building golangci-lint once, into $(TOOLS) (two to five minutes)"
	GOFLAGS= GOBIN=$(TOOLS) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.11.3
	@mv $(TOOLS)/golangci-lint $@

##@ Measure

bench: deps ## print the figures of the bridge (docs/benchmarks.md)
	go run ./test/bench/bridge

# bench-kube: print the figures of the Kubernetes source
bench-kube: deps kube
	go run ./test/bench/kube

# bench-policy: print the figures of network policies, on a real OVN (root)
bench-policy: deps
	go run ./test/bench/policy

# bench-cni: print the figures of the CNI plugin and the node agent (root)
bench-cni: deps
	go run ./test/bench/cni

# bench-edge: print the figures of services from outside the cluster, beside kube-proxy (root)
bench-edge: deps kube
	go run ./test/bench/edge

# bench-ovn: print the figures of what pods cost OVN (root); OVN=25.03 measures the other release
bench-ovn: deps
	go run ./test/bench/ovn

# bench-scale: print what clusters of 100, 300 and 1,000 nodes cost each program, SIZES=100 one of them (root; half an hour)
bench-scale: deps
	go run ./test/bench/scale $(if $(SIZES),-only $(SIZES))

# bench-odl: print the figures of the OpenDaylight backend, on a real one (root)
bench-odl: deps kube odl
	go run ./test/bench/odl
	go run ./test/bench/edge -only clusterip

.PHONY: help build csit run demo demo-down demo-k8s demo-k8s-down demo-odl demo-odl-down test test-race test-plain test-plain-ovn test-plain-kubelet test-oxygen test-ovn test-odl conformance test-fast fuzz fuzz-build bench bench-kube bench-policy bench-cni bench-edge bench-ovn bench-scale bench-odl check lint deps kube odl ovn clean
