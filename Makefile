# coe-bridge. `make help` lists the targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help

VERSION    ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
TOOLS      ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/coe-bridge/tools
GOLANGCI   := golangci-lint-v2.11.3
LINT       := $(TOOLS)/$(GOLANGCI)
ON_ODL     := COE_BRIDGE_TEST_ODL=1 go test -count=1 -p 1 -timeout 40m -run RealOpenDaylight
export CGO_ENABLED = 0
export GOFLAGS = -trimpath -buildvcs=false

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

build: ## build bin/coe-bridge, and the CNI plugin bin/coe-cni
	@mkdir -p bin
	go build -ldflags "-s -w -X main.version=$(VERSION)" -o bin/ ./cmd/coe-bridge ./cmd/coe-cni

run: build ## start the bridge alone: no root, embedded etcd, memory backend, http://127.0.0.1:8181
	bin/coe-bridge serve --dev --data-dir $${COE_BRIDGE_DATA_DIR:-.run/data}

demo: build ## two hosts, OVN, pods that reach each other: the specification's story (root)
	go run ./test/demo up

demo-down: ## remove all that make demo left running (root)
	go run ./test/demo down

demo-k8s: build ## two Kubernetes nodes, coe-bridge installed, pods made with kubectl (root)
	go run ./test/demokube up

demo-k8s-down: ## remove all that make demo-k8s left running (root)
	go run ./test/demokube down

demo-odl: build ## two hosts that a real OpenDaylight programs, and pods that reach each other (root)
	go run ./test/demoodl up

demo-odl-down: ## remove all that make demo-odl left running (root)
	go run ./test/demoodl down

test: deps kube odl ## get the real parts and run every test, but for make test-odl (root)
	CGO_ENABLED=1 go test -race -timeout 20m ./...
	$(ON_ODL)/oxygen ./mapping/backend/odl

csit: deps ## run the Robot Framework suites (root); CONTROLLER=http://… has them ask a running OpenDaylight
	go test -count=1 -v -run TestSuites -artifacts -outputdir $$(mktemp -d --tmpdir coe-bridge-csit.XXXXXX) ./test/csit $(if $(CONTROLLER),-controller $(CONTROLLER))

conformance: deps kube build ## run Kubernetes' own network tests on two nodes (root)
	go run ./test/conformance

test-odl: deps odl ## run all tests on real OpenDaylights, of which make test runs the backend's on Oxygen (root; half an hour)
	$(ON_ODL) ./test/odl ./mapping/backend/odl ./test/odlpods ./test/odle2e ./test/odldiff ./test/csit

test-fast: ## run the tests that need nothing
	go test -short ./...

fuzz: ## run every fuzz target for a fixed number of inputs
	.ci/fuzz

bench: deps ## print the figures (see docs/operations.md)
	go run ./test/bench

bench-kube: deps kube ## print those of the Kubernetes source
	go run ./test/benchkube

bench-cni: deps ## print those of the CNI plugin and the node agent (root)
	go run ./test/benchcni

bench-odl: deps odl ## print those of the OpenDaylight backend, on a real one (root)
	go run ./test/benchodl

check: lint ## what CI runs beside the tests: format, vet, lint, import rules, generated files
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "run gofmt on these"; exit 1; }
	go vet ./...

lint: $(LINT)
	$(LINT) run ./...

$(LINT):
	@mkdir -p $(TOOLS)
	@echo "building golangci-lint once, into $(TOOLS) (two to five minutes)"
	GOFLAGS= GOBIN=$(TOOLS) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.11.3
	@mv $(TOOLS)/golangci-lint $@

deps: ## install the Debian packages that the tests need, where they are missing (root)
	.ci/deps

kube: ## build the Kubernetes that tests and demo run, once, into a cache (six minutes)
	go run ./test/kubelab/build

odl: ## put the OpenDaylights that tests and demo run together, once, into a cache (ten minutes)
	.ci/deps maven patchelf
	go run ./test/odl/build

clean: ## remove what was built and what make run kept
	rm -rf bin .run

.PHONY: help build run demo demo-down demo-k8s demo-k8s-down demo-odl demo-odl-down test test-odl conformance test-fast fuzz bench bench-kube bench-cni bench-odl check lint deps kube odl clean
