# Targets build and fetch what they need in a fresh clone. What they cannot fetch (root, a compiler, VPP, recordings) stands in
# their lines, which "make help" lists, and in CONTRIBUTING.md.
SHELL := /bin/bash
.DEFAULT_GOAL := help
BIN := bin
TOOLS := .bin
# The page that e2e-kubernetes writes is in no program: written, it makes no other version.
VERSION ?= $(shell git describe --tags --always 2>/dev/null || echo unknown)$(shell git diff --quiet HEAD -- ':!docs/reference/conformance.md' 2>/dev/null || echo -dirty)
GOBUILD := CGO_ENABLED=0 go build -trimpath -tags grpcnotrace -ldflags "-s -w -X github.com/sluice-net/sluice/internal/lib/version.version=$(VERSION)"
GOLANGCI := $(TOOLS)/golangci-lint-v2.15.0
# The kube-apiserver of the end-to-end tests, a module of its own. It is built once: minutes of two cores, so that
# what is kept is the program, under the hash of what it is built from.
KUBE_VERSION := v1.37.2
KUBE_BIN := $(TOOLS)/kube-$(shell cat tests/lab/tools/kube/go.mod tests/lab/tools/kube/go.sum | sha256sum | cut -c1-12)
KUBE := $(KUBE_BIN)/kube-apiserver
KUBE_X := -X k8s.io/component-base/version
KUBE_BUILD = CGO_ENABLED=0 go build -C tests/lab/tools/kube -trimpath -o $(abspath $(KUBE_BIN))/ \
	  -ldflags "-s -w $(KUBE_X).gitVersion=$(KUBE_VERSION) $(KUBE_X).gitMajor=1 $(KUBE_X).gitMinor=37"
# What make kube and make e2e-kubernetes need besides: modules of their own, so that a change of one does not build
# Kubernetes again.
sums = $(shell cat $(foreach m,$(1),tests/lab/tools/$(m)/go.mod tests/lab/tools/$(m)/go.sum) | sha256sum | cut -c1-12)
COREDNS := $(TOOLS)/coredns-$(call sums,coredns)
HELM := $(TOOLS)/helm-$(call sums,helm)
SUITES := $(TOOLS)/suites-$(call sums,kubesuites netpolapi netpolapi-v1alpha2 netpolapi-v1alpha1 cyclonus)
# Modules that import this one: their go.sum needs what this one needs.
MODULES := deploy/release tests/system/alerts tests/bench/xdp tests/system/charts tests/dataplane/ligato
PKG ?= ./...
FUZZTIME ?= 10s
COUNT ?= 6
BENCHSTAT := go run golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da
SEQUENCES ?= 1000
# Random searches of which the other targets run a part. What they draw stands in renderer/renderertest/size.go.
SEARCHES ?= ./renderer/acl ./renderer/session ./renderer/xdp/... ./tests/spec/differential ./tests/spec/neverfewer ./tests/spec/scenarios ./tests/spec/sequences
# What controls the browser of the test of the page, and where its screenshots go.
PLAYWRIGHT_VERSION := 1.65.1
PLAYWRIGHT := $(TOOLS)/playwright-$(PLAYWRIGHT_VERSION)
SHOTS ?= /tmp/sluice-page
WORKERS ?= 2
DOCKER ?= docker
CHURN ?= 1h
DURATION ?= 1h
SIZE ?= XL
KUBE_DIR ?= /tmp/sluice-kube
KUBE_ROUNDS ?= 100
FROM ?= 8768d9f
DIST ?= dist
ARCHES ?= amd64 arm64
# Built trees of VPP, one for each release that a release has a package of the plugin for.
VPP_SRCS ?=
# Time of what is released: that of the commit.
EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
# What the binaries may weigh, in MB.
BUDGET := sluicectl:36 sluice-agent:36 sluice-ksr:36 sluice-neutron:34 sluice-cni:10.6
SCALE ?= pods=10000 agents=1000 rate=100 seconds=20

.PHONY: help run build test race bench bench-report bench-vpp fuzz conformance soak soak-scale mutation lint generate verify nightly soak-short e2e e2e-faults kube test-kube test-install bench-kube e2e-kubernetes kube-down scale bench-xdp test-xdp lifecycle vpp-plugin test-vpp churn-vpp test-page test-neutron test-ligato images release test-release test-alerts test-charts test-arm64 size

help: ## List the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## Build static binaries into bin/
	$(GOBUILD) -o $(BIN)/ ./cmd/...

run: build ## Run the shop example on embedded parts (ARGS=--once to end after the first report)
	$(BIN)/sluice-agent dev --manifests docs/examples/shop $(ARGS)

test: ## Run all tests that need no VPP, and of random searches a small part; those that need root or kernel features skip without
	go test -timeout 30m $(PKG)

race: ## Run tests under the race detector, but those of tests/dataplane/lifecycle, whose programs are processes ("make lint" vets, once; needs a C compiler)
	CGO_ENABLED=1 go test -race -short -vet=off -timeout 30m $$(go list $(PKG) | grep -v /tests/dataplane/lifecycle)

bench: ## Run the benchmarks COUNT times into bench.txt (feed two such files to benchstat)
	go test -run '^$$' -timeout 2h -bench . -benchmem -count $(COUNT) $(PKG) | tee bench.txt

bench-report: ## Run the cluster-sized benchmarks and print their medians (SLUICE_WORKLOAD=dir1:dir2 adds workloads)
	go test -run '^$$' -timeout 1h -bench . -benchtime 200ms -count $(COUNT) ./tests/bench > bench-cluster.txt
	$(BENCHSTAT) bench-cluster.txt

bench-vpp: ## Measure what traffic notices of pods that come and go on a real VPP (root; SLUICE_VPP_BIN names the vpp)
	go test -run '^$$' -timeout 1h -bench '^BenchmarkVPPPauses$$' -benchtime 1x ./tests/bench

bench-xdp: ## Measure what a packet costs in the kernel, beside other designs (root; a module of its own; writes Markdown, and plots; nftables where nft is)
	go vet -C tests/bench/xdp ./... && go run -C tests/bench/xdp . -plots $(abspath docs/reference)

fuzz: ## Fuzz every target for FUZZTIME each
	@set -e; for pkg in $$(go list $(PKG)); do \
	  for f in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "$$pkg $$f"; go test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$pkg; done; done

$(GOLANGCI):
	GOBIN=$(abspath $(TOOLS)) CGO_ENABLED=0 go install -trimpath -ldflags '-s -w' github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
	mv $(TOOLS)/golangci-lint $@

conformance: ## Replay the recorded public suites and write docs/reference/conformance.md (needs the recordings, which are not part of the module)
	go run ./tests/spec/conformance/report -o docs/reference/conformance.md

soak: ## Play SEQUENCES random sequences of events on each backend, against the specification (from SEED on; WORKERS at the same time; SLUICE_STACK=acl for one backend), then run the tests of SEARCHES whole (hours; SEARCHES= for none)
	go test -count 1 -timeout 0 -v -run PlaySeeds ./tests/spec/differential -args -seeds $(SEQUENCES) -players $(WORKERS) -first-seed $(or $(SEED),$(shell date +%s))
	$(if $(strip $(SEARCHES)),SLUICE_LONG=1 go test -count 1 -timeout 12h $(SEARCHES))

soak-scale: ## Have pods of a workload of SIZE come and go at 500 events/s for DURATION, from the mirror of sluice-ksr through etcd to a node of each dataplane; what grows or drifts fails (root, for the kernel's)
	go run ./tests/bench/npgen -w churn -size $(SIZE) -out $(TOOLS)/churn-$(SIZE)
	SLUICE_SOAK=$(DURATION) SLUICE_WORKLOAD=$(abspath $(TOOLS))/churn-$(SIZE) go test -count 1 -timeout 0 -v -run WorkloadSoak ./tests/bench

mutation: ## Seed faults into the product one by one; every one must be caught (root: also into the program of the kernel; ARGS="-run ^cidr/" or -list)
	go run ./tests/repo/mutation $(ARGS)

lint: $(GOLANGCI) ## Lint
	$(GOLANGCI) run $(PKG)

generate: ## Regenerate protobuf code and BPF objects (needs protoc 3.21 and clang-14: apt-get install protobuf-compiler clang-14 llvm-14)
	@command -v protoc >/dev/null || { echo "protoc is missing: apt-get install protobuf-compiler"; exit 1; }
	go build -o $(TOOLS)/protoc-gen-go google.golang.org/protobuf/cmd/protoc-gen-go
	@command -v clang-14 >/dev/null && command -v llvm-strip-14 >/dev/null || { echo "clang-14 is missing: apt-get install clang-14 llvm-14"; exit 1; }
	go generate ./...
	cd tests/bench/xdp && go generate ./...

verify: generate lint ## What CI checks besides the tests: generated files, go.mod, formatting, lint (needs what generate needs)
	go mod tidy -diff
	set -e; for m in $(MODULES); do go list -C $$m -test -deps ./... > /dev/null; done
	git diff --exit-code -- "*.pb.go" "*_bpfel.*" go.mod go.sum

nightly: race soak-short e2e ## What takes too long for CI: races, random sequences, the end-to-end tests on the static binaries (an hour)

soak-short:
	$(MAKE) soak SEQUENCES=300 SEARCHES=

$(KUBE):
	@echo "building a kube-apiserver, once: some minutes"
	$(KUBE_BUILD) k8s.io/kubernetes/cmd/kube-apiserver

$(KUBE_BIN)/all: $(KUBE)
	@echo "building Kubernetes and etcd, once: 10 minutes or more"
	$(KUBE_BUILD) tool
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o $(KUBE_BIN)/etcd go.etcd.io/etcd/server/v3
	@touch $@

$(COREDNS):
	@echo "building CoreDNS, once: a minute or two"
	CGO_ENABLED=0 go build -C tests/lab/tools/coredns -trimpath -ldflags "-s -w" -o $(abspath $@) github.com/coredns/coredns

$(HELM):
	@echo "building Helm, once: a minute or two"
	CGO_ENABLED=0 go build -C tests/lab/tools/helm -trimpath -ldflags "-s -w" -o $(abspath $@) helm.sh/helm/v3/cmd/helm

$(SUITES)/all:
	@echo "building the upstream suites, once: 10 minutes or less"
	CGO_ENABLED=0 go build -C tests/lab/tools/kubesuites -trimpath -ldflags "-s -w" -o $(abspath $(SUITES))/ github.com/onsi/ginkgo/v2/ginkgo mvdan.cc/sh/v3/cmd/gosh
	CGO_ENABLED=0 go test -C tests/lab/tools/kubesuites -c -vet=off -trimpath -o $(abspath $(SUITES))/e2e.test k8s.io/kubernetes/test/e2e
	CGO_ENABLED=0 go build -C tests/lab/tools/cyclonus -trimpath -ldflags "-s -w" -o $(abspath $(SUITES))/ github.com/mattfenwick/cyclonus/cmd/cyclonus
	set -e; for m in netpolapi netpolapi-v1alpha2 netpolapi-v1alpha1; do \
	  CGO_ENABLED=0 go test -C tests/lab/tools/$$m -c -vet=off -trimpath -o $(abspath $(SUITES))/$$m.test sigs.k8s.io/network-policy-api/conformance; \
	  sed -s '1i ---' $$(go list -C tests/lab/tools/$$m -m -f '{{.Dir}}' sigs.k8s.io/network-policy-api)/config/crd/experimental/policy.*.yaml > $(SUITES)/$$m.yaml; done
	@touch $@

kube: build $(KUBE_BIN)/all $(COREDNS) ## Start a real Kubernetes with Sluice on this machine, in namespaces of its own (root; ARGS="--cni bridge --proxy iptables --family dual", or "--dataplane vpp"; docs/guide/kube.md)
	CGO_ENABLED=0 go build -trimpath -o $(TOOLS)/ ./tests/system/kube ./tests/system/kube/agnhost
	$(TOOLS)/kube up --dir $(KUBE_DIR) --bin $(BIN) --kube-bin $(KUBE_BIN) --coredns $(COREDNS) --sctp $(TOOLS)/agnhost $(ARGS)

test-kube: kube ## Test that Kubernetes: services, the node, probes, pods from birth to death, nodes that start anew
	SLUICE_KUBE=$(KUBE_DIR) go test -count 1 -v -timeout 40m ./tests/system/kube

test-install: build $(KUBE_BIN)/all $(COREDNS) $(HELM) ## Install Sluice in that Kubernetes as docs/start says, upgrade it there from the commit FROM under traffic, and remove it
	rm -rf $(KUBE_DIR)-from && mkdir -p $(KUBE_DIR)-from && git archive $(FROM) | tar -x -C $(KUBE_DIR)-from
	$(MAKE) -C $(KUBE_DIR)-from build VERSION=$(FROM)
	$(MAKE) kube KUBE_DIR=$(KUBE_DIR)-install ARGS="$(ARGS) --bare"
	SLUICE_KUBE=$(KUBE_DIR)-install SLUICE_HELM=$(abspath $(HELM)) SLUICE_OLD=$(KUBE_DIR)-from go test -count 1 -v -timeout 30m -run '^TestInstall' ./tests/system/kube
	$(TOOLS)/kube down --dir $(KUBE_DIR)-install && rm -rf $(KUBE_DIR)-from

bench-kube: kube ## Measure there from a policy to its enforcement on both nodes, and from a pod to its first packet, beside a cluster without Sluice
	SLUICE_KUBE=$(KUBE_DIR) go test -run '^$$' -bench BenchmarkCluster -benchtime $(KUBE_ROUNDS)x -timeout 40m ./tests/system/kube
	$(TOOLS)/kube down --dir $(KUBE_DIR)
	$(MAKE) kube KUBE_DIR=$(KUBE_DIR)-bare ARGS="$(ARGS) --bare"
	SLUICE_KUBE=$(KUBE_DIR)-bare go test -run '^$$' -bench BenchmarkClusterPod -benchtime $(KUBE_ROUNDS)x -timeout 40m ./tests/system/kube
	$(TOOLS)/kube down --dir $(KUBE_DIR)-bare

e2e-kubernetes: kube $(SUITES)/all ## Run the upstream suites on that Kubernetes and write their results to docs/reference/conformance.md (root; ARGS as for kube, SUITES_ARGS="--only e2e,cnp")
	$(TOOLS)/kube suites --dir $(KUBE_DIR) --suites-bin $(SUITES) --page docs/reference/conformance.md $(SUITES_ARGS)

kube-down: ## Stop that Kubernetes and remove what it left
	go run ./tests/system/kube down --dir $(KUBE_DIR)

e2e: build $(KUBE) ## Run the end-to-end tests on the static binaries, with a real kube-apiserver
	rm -rf $(BIN)-manifests && mkdir $(BIN)-manifests && GOFLAGS= go run -C tests/system/charts . $(abspath $(BIN))-manifests
	SLUICE_BIN=$(abspath $(BIN)) SLUICE_KUBE_APISERVER=$(abspath $(KUBE)) SLUICE_MANIFESTS=$(abspath $(BIN))-manifests go test -count 1 ./tests/system/e2e/...

e2e-faults: build $(KUBE) ## Kill, cut off, fill up and set back the API server, sluice-ksr and the members of etcd, and count what is lost
	SLUICE_BIN=$(abspath $(BIN)) SLUICE_KUBE_APISERVER=$(abspath $(KUBE)) SLUICE_FAULTS=1 go test -count 1 -v -timeout 20m -run 'Fault|Leader' ./tests/system/e2e

scale: build $(KUBE) ## Measure from the API server to the tables (SCALE="pods=10000 agents=1000 rate=100 seconds=20")
	SLUICE_BIN=$(abspath $(BIN)) SLUICE_KUBE_APISERVER=$(abspath $(KUBE)) SLUICE_SCALE="$(SCALE)" \
	  go test -count 1 -v -timeout 30m -run TestScale ./tests/system/e2e | grep -v '^=== '

vpp-plugin: ## Build Sluice's plugin into bin/vpp-plugin for the release of a built tree of VPP: 25.10, 26.02 or 26.06 (finds one by itself, or VPP_SRC=/path/to/vpp; VPP_BUILD and CC name another build and compiler)
	$(MAKE) --no-print-directory -f renderer/plugin/src/Makefile OUT=$(abspath bin/vpp-plugin) $(if $(VPP_SRC),VPP_SRC=$(abspath $(VPP_SRC))) $(if $(VPP_BUILD),VPP_BUILD=$(abspath $(VPP_BUILD))) needs all

test-vpp: ## Run the suites on a real VPP: 25.10, 26.02 or 26.06 (SLUICE_VPP_BIN=/path/to/vpp; SLUICE_VPP_PLUGIN=bin/vpp-plugin/sluice_plugin.so for those on the plugin)
	@test -n "$(SLUICE_VPP_BIN)" || { echo "set SLUICE_VPP_BIN to the vpp binary"; exit 1; }
	SLUICE_VPP_BIN=$(SLUICE_VPP_BIN) SLUICE_LONG=usual go test -count 1 -timeout 60m -v -run VPP ./renderer/acl/... ./tests/...
	test -z "$(SLUICE_VPP_PLUGIN)" || SLUICE_STACK=vpp-plugin go test -count 1 -timeout 60m ./tests/spec/sequences ./tests/spec/differential ./tests/spec/conformance/replay

churn-vpp: ## Have pods, policies and agents come and go under traffic on a real VPP for CHURN (1h; root; SLUICE_VPP_BIN names the vpp)
	@test -n "$(SLUICE_VPP_BIN)" || { echo "set SLUICE_VPP_BIN to the vpp binary"; exit 1; }
	SLUICE_VPP_BIN=$(SLUICE_VPP_BIN) SLUICE_VPP_CHURN=$(CHURN) go test -count 1 -timeout 0 -v -run '^TestVPPChurn$$' ./tests/system/e2e

test-neutron: ## Run the tests on a real Neutron with MariaDB, Keystone and OVN (root; Debian's neutron-common, mariadb-server, keystone, ovn-central, ovn-host, openvswitch-switch; SLUICE_NEUTRON_CASES=1 replays all recorded cases through its API, for hours)
	SLUICE_NEUTRON=1 go test -count 1 -timeout 12h -v ./tests/dataplane/neutron

test-xdp: ## Run the tests of the XDP renderer in the kernel in full: every mode, every flow, every suite (root; some minutes)
	SLUICE_LONG=1 go test -count 1 -timeout 30m ./renderer/xdp/...
	SLUICE_STACK=xdp-kernel SLUICE_LONG=usual go test -count 1 -timeout 30m ./tests/spec/scenarios ./tests/spec/sequences ./tests/spec/differential ./tests/spec/conformance/replay
	SLUICE_LONG=1 go test -count 1 -timeout 30m -run Kernel ./tests/system/e2e

lifecycle: ## Follow pods from birth to death in the kernel, whole: 50 killed agents, 1000 pods (root, some minutes; apt-get install containernetworking-plugins)
	SLUICE_LONG=1 go test -count 1 -v -timeout 30m ./tests/dataplane/lifecycle

test-page: ## Test the page of sluicectl ui in headless Chromium, with screenshots in SHOTS (apt-get install chromium nodejs npm; skipped without)
	@command -v npm >/dev/null || { echo "the page is not tested: npm is not installed (apt-get install nodejs npm)"; exit 0; }; \
	  test -d $(PLAYWRIGHT)/node_modules/playwright-core || npm install --silent --no-audit --no-fund --prefix $(PLAYWRIGHT) playwright-core@$(PLAYWRIGHT_VERSION)
	mkdir -p $(SHOTS)
	SLUICE_PLAYWRIGHT=$(abspath $(PLAYWRIGHT)) SLUICE_SHOTS=$(abspath $(SHOTS)) go test -count 1 -v -timeout 10m ./tests/system/page

test-ligato: ## Run the plugin inside cn-infra, and what it publishes through the KVScheduler of vpp-agent (a module of its own)
	cd tests/dataplane/ligato && go vet ./... && go test -count 1 ./...

images: ## Build the container images sluice-agent, sluice-dev, sluice-ksr, sluice-neutron and sluicectl (DOCKER=docker)
	@set -e; for i in agent:sluice-agent dev:sluice-dev ksr:sluice-ksr neutron:sluice-neutron ctl:sluicectl; do \
	  $(DOCKER) build -f docker/Dockerfile --target $${i%%:*} --build-arg VERSION=$(VERSION) -t $${i##*:}:$(VERSION) -t $${i##*:}:dev .; done

release: ## Make binaries, archives, deb, rpm and OCI images for ARCHES, with SBOMs and checksums, in dist/ (equal sources give equal bytes); of the plugin for the built trees of VPP that VPP_SRCS names
	rm -rf $(DIST)
	@set -e; for a in $(ARCHES); do echo "building for $$a"; GOOS=linux GOARCH=$$a $(GOBUILD) -buildvcs=false -o $(DIST)/bin/linux_$$a/ ./cmd/...; done
	@set -e; for s in $(abspath $(VPP_SRCS)); do make="$(MAKE) --no-print-directory -f renderer/plugin/src/Makefile VPP_SRC=$$s LDFLAGS=-Wl,--strip-debug"; \
	  $$make needs; $$make OUT=$(abspath $(DIST))/bin/vpp/$$($$make -s release) all > /dev/null; done
	go run -C deploy/release . -version $(VERSION) -epoch $(EPOCH) -bin $(abspath $(DIST))/bin -plugins $(abspath $(DIST))/bin/vpp -out $(abspath $(DIST))
	@ls -l $(DIST) | awk 'NR>1 && !/^d/{printf "%8.1f MB  %s\n", $$5/1e6, $$9}'

test-release: ## Make a release twice and compare, read back what is in it, verify the units (systemd-analyze), run arm64 where qemu is
	go test -C deploy/release -count 1 -timeout 30m ./...

test-charts: ## Compare the Helm chart with the Kustomize overlays, and lint it (a module of its own)
	go test -C tests/system/charts -count 1 ./...

test-alerts: ## Break the programs, and have Prometheus evaluate the alerts of deploy/monitoring (a module of its own)
	go test -C tests/system/alerts -count 1 ./...

test-arm64: ## Run tests of what decides as arm64 programs, emulated (apt-get install qemu-user-static)
	GOARCH=arm64 CGO_ENABLED=0 go test -exec qemu-aarch64-static -timeout 30m ./api/... ./plugins/policy/... ./renderer/cache ./renderer/xdp/compile ./internal/analysis/oracle

size: build ## Print the sizes of the binaries, which fails where one is above its BUDGET
	@for b in $(BUDGET); do printf "%s %s %s\n" $${b%%:*} $$(stat -c %s $(BIN)/$${b%%:*}) $${b##*:}; done | \
	  awk '{printf "%-14s %6.1f MB of %s\n", $$1, $$2/1e6, $$3} $$2 > $$3*1e6 {print $$1 " is too large: see docs/design/build.md"; bad=1} END {exit bad}'
