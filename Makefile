# One command for each habit; `make` alone lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
# The languages of the clients; `make test-clients LANGUAGES=go` takes one.
LANGUAGES := cpp go java python rust typescript
CLIENTS := $(LANGUAGES:%=client-%)
.PHONY: docs screenshots help run test test-all test-postgres test-engine test-fuzz test-benches test-peers judges check quire-release quire-packaged clients package deny dist dist-clients tarball wheel test-package test-clients clients-page $(CLIENTS) cluster cluster-down need-cluster test-cluster bench-cluster bench bench-engine bench-tools reproduce peers peers-cpp peers-go peers-java fuzz clean

# Programs by others that judge the server; their versions are part of the tests.
TOOLS := target/tools
JUDGES := \
	github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.4 \
	github.com/bojand/ghz/cmd/ghz@v0.121.0 \
	github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible \
	google.golang.org/grpc/interop/client@v1.85.0 \
	google.golang.org/grpc/interop/server@v1.85.0 \
	connectrpc.com/conformance/cmd/connectconformance@v1.0.6
# One file says that all of them are there, by a sum of their names and versions.
INSTALLED := $(TOOLS)/bin/judges-$(shell echo $(JUDGES) | cksum | cut -d' ' -f1)
VENV := $(TOOLS)/venv/requirements.txt
# Debian's Prometheus, without its daemon.
PROMETHEUS := $(TOOLS)/prometheus/usr/bin/prometheus
# Protobuf's conformance suite.
PROTOBUF := $(TOOLS)/bin/conformance_test_runner
# The clients of web pages, in one script.
BROWSER := $(TOOLS)/browser/bundle.js

# What makes and checks packages.
AUDITABLE2CDX := $(TOOLS)/auditable2cdx-0.1.0/bin/auditable2cdx
CARGO_AUDITABLE := $(CURDIR)/$(TOOLS)/cargo-auditable-0.7.7/bin/cargo-auditable
CARGO_DEB := $(TOOLS)/cargo-deb-3.8.0/bin/cargo-deb
CARGO_DENY := $(TOOLS)/cargo-deny-0.20.2/bin/cargo-deny
MATURIN := $(TOOLS)/maturin-1.16.0/bin/maturin

# Installs Debian's packages if a program is missing: $(call need,PROGRAM,PACKAGES).
need = command -v $(1) >/dev/null || tests/apt.sh $(2)
need-postgres = ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || tests/apt.sh postgresql

# Seconds for each fuzz target.
FUZZ_SECONDS := 600
FUZZ_TARGETS := frames hpack connection task_lines lean_session lean_client game_messages json envelopes

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

# Built as the tests are, to start soon; `cargo build --release -p server` is fast, and has PostgreSQL, the key-value journal, zstd
# and brotli.
run: ## start the server on the embedded database with the sample catalogue
	cargo run -p server --no-default-features -- serve

# What needs only Rust and a C compiler: not the fuzz targets, which need C++, nor PostgreSQL. The benchmarks need more crates.
PARTS := server/activation,server/brotli,server/journal,server/zstd
TESTED := --workspace --exclude fuzz --exclude benches --no-default-features --features $(PARTS)
# Tests wait more than they compute.
export RUST_TEST_THREADS ?= 8

test: ## every test that needs only Rust and a C compiler, some minutes the first time
	cargo test $(TESTED) --no-fail-fast

test-all: ## `make test` and then each part below, an hour; each prints what it installs
	tests/run.sh test test-postgres test-engine judges test-cluster test-clients test-fuzz test-benches test-peers

# A server's program that is built already, if you name one.
QUIRE :=
QUIRE_RELEASE = $(or $(QUIRE),target/release/quire)
quire-release:
	test -n "$(QUIRE)" || cargo build --release -p server

# With the server's features, so that little is built that `make test` has not built.
test-postgres: ## the bookstore over PostgreSQL
	@echo "$@ installs postgresql from Debian if it is missing"
	$(need-postgres)
	cargo test -p bookstore -p server --no-default-features --features $(PARTS),bookstore/postgres --lib --test ledger

test-engine: ## judges that others wrote for gRPC, Connect and protobuf, on test services of the engine
	@echo "$@ installs h2spec, grpc-go's interop, connectconformance, grpcurl and ghz into $(TOOLS), by Go, protobuf's suite, by npm, and Python packages"
	$(call need,npm,npm)
	$(MAKE) --no-print-directory $(INSTALLED) $(PROTOBUF) $(VENV)
	ENGINE_TOOLS=$(CURDIR)/$(TOOLS)/bin cargo test $(TESTED),rpc-testing/protobuf-testee --test judges -- --include-ignored --test-threads=1 --nocapture

judges: ## judges and clients that others wrote, on `quire serve` as it is released
	@echo "$@ installs Go and Python programs into $(TOOLS), and from Debian, if missing: chromium, curl, h2load, JDK 17, Maven, npm, postgresql, and Prometheus into $(TOOLS)"
	$(MAKE) --no-print-directory $(INSTALLED) $(PROMETHEUS) $(VENV) $(BROWSER) quire-release
	$(need-postgres)
	$(call need,chromium,chromium)
	$(call need,chromedriver,chromium-driver)
	$(call need,curl,curl)
	$(call need,h2load,nghttp2-client)
	$(call need,javac,openjdk-17-jdk-headless)
	$(call need,mvn,maven)
	cargo build --release --bin quire-bench
	cargo build $(TESTED) --example sample_reports
	cargo test $(TESTED) --test load -- --ignored
	JUDGED_BINARY=$(QUIRE_RELEASE) JUDGES_BIN=$(CURDIR)/$(TOOLS)/bin \
		$(TOOLS)/venv/bin/python -m pytest -q -p no:cacheprovider tests/judges

screenshots: $(VENV) ## every page of the shop and the operator's room, in both themes and three widths, into target/screenshots
	$(call need,chromium,chromium)
	$(call need,chromedriver,chromium-driver)
	test -n "$(QUIRE)" || cargo build --release -p server
	$(TOOLS)/venv/bin/python tests/judges/screenshots.py $(QUIRE_RELEASE)

HISTORIES := 1000
test-fuzz: ## build the fuzz targets, and judge random histories of every service by models
	@echo "$@ installs nothing; it needs a C++ compiler"
	cargo build --workspace --exclude benches --no-default-features --features $(PARTS) --bins --examples
	target/debug/examples/models all $(HISTORIES)

test-benches: ## run each benchmark of the stores once
	@echo "$@ installs nothing"
	cargo test -p benches --benches

test-peers: ## build what Quire is measured against, and ask each for one answer
	@echo "$@ installs Python packages into $(TOOLS), and from Debian, if missing: cmake, gRPC C++, h2load, JDK 17, Maven, pkg-config, protoc, redis, xxHash; it needs Go"
	cargo test --manifest-path load/peers/Cargo.toml --workspace --test contract
	$(MAKE) --no-print-directory peers-cpp peers-go peers-java $(VENV) quire-release
	cargo build --manifest-path load/peers/Cargo.toml
	$(call need,h2load,nghttp2-client)
	$(call need,redis-server,redis-server)
	$(TOOLS)/venv/bin/python load/peers/bench_engine.py --check --profile debug

# The crates for other people's programs, as arguments.
PUBLISHED = $(shell git ls-files '*Cargo.toml' | xargs grep -l '^publish = true' | xargs sed -sn '0,/^name/s/^name = "\(.*\)"/-p \1/p')
check: ## formatting, lints, links, what would be published, and `make deny`, for which cargo-deny is built once
	cargo fmt --all --check
	for other in load/peers/*; do \
		test ! -f $$other/Cargo.toml || cargo fmt --check --manifest-path $$other/Cargo.toml || exit 1; \
	done
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy -p server --no-default-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc -p quire-client -p quire-rpc -p quire-rpc-build -p quire-http2 --all-features --no-deps
	for features in client client,http1 server server,http1,tls server,channelz; do \
		cargo clippy -p quire-rpc --no-default-features --features $$features -- -D warnings || exit 1; \
	done
	cargo package --offline --quiet --no-verify --allow-dirty $(PUBLISHED)
	$(MAKE) --no-print-directory deny

clients: $(CLIENTS) ## build the clients in six languages into target/clients

$(CLIENTS): client-%:
	$(MAKE) -C clients/$* build

docs: ## the pages of reference of the clients' libraries, into target/clients; a warning fails
	for language in $(LANGUAGES); do $(MAKE) -C clients/$$language docs || exit 1; done

dist: dist-clients ## what users of the server and the clients install, with sums, into target/dist
	$(MAKE) --no-print-directory deny wheel tarball
	deploy/test_archives.sh target/dist
	$(call sums,target/dist)

# The sums of all archives in a folder: $(call sums,FOLDER).
sums = cd $(1) && ls | grep -E '\.(cdx\.json|crate|deb|jar|pom|tar\.gz|tgz|whl)$$' | xargs sha256sum >SHA256SUMS

dist-clients:
	mkdir -p target/dist && cd target/dist && rm -f *.crate *.jar *.pom *.tar.gz *.tgz *.whl
	for language in $(LANGUAGES); do $(MAKE) -C clients/$$language dist || exit 1; done
	$(call sums,target/dist)

PACKAGE_PROFILE := dist
PACKAGED = target/$(PACKAGE_PROFILE)
# What is released has the list of its crates in it, for `cargo audit bin`.
LISTED = $(filter dist,$(PACKAGE_PROFILE))
RELEASING = $(if $(LISTED),$(CARGO_AUDITABLE) auditable,cargo)
quire-packaged:
	@echo "$@ installs $(if $(LISTED),cargo-auditable into $(TOOLS) by Cargo,nothing)"
	$(if $(LISTED),$(MAKE) --no-print-directory $(CARGO_AUDITABLE))
	$(RELEASING) build --locked --profile $(PACKAGE_PROFILE) -p server

package: quire-packaged ## the Debian package of quire and quire-bench, and the lists of their crates, into target/dist
	@echo "$@ installs $(if $(LISTED),auditable2cdx and )cargo-deb into $(TOOLS), by Cargo"
	$(MAKE) --no-print-directory $(CARGO_DEB) $(if $(LISTED),$(AUDITABLE2CDX))
	$(RELEASING) build --locked --profile $(PACKAGE_PROFILE) --bin quire-bench
	$(if $(LISTED),for program in quire quire-bench; do \
		$(AUDITABLE2CDX) $(PACKAGED)/$$program >$(PACKAGED)/$$program.cdx.json || { rm $(PACKAGED)/$$program.cdx.json; exit 1; }; \
	done)
	cargo build $(TESTED) --example manual
	rm -rf $(PACKAGED)/package $(PACKAGED)/*.deb && mkdir $(PACKAGED)/package
	target/debug/examples/manual $(PACKAGED)/package
	gzip -9n $(PACKAGED)/package/man/*.1
	$(PACKAGED)/quire config template | sed 's|^#data = .*|data = "/var/lib/quire"|' >$(PACKAGED)/package/quire.toml
	$(CARGO_DEB) --package server --no-build --profile $(PACKAGE_PROFILE) $(PACKAGE_FLAGS) --output $(PACKAGED)/
	$(call sums,$(PACKAGED))

TARBALL = quire-$(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)-x86_64-linux
STATIC := -C target-feature=+crt-static
tarball: package ## what is in the Debian package, its programs linked statically, into target/dist
	rm -f $(PACKAGED)/quire-*-linux.tar.gz
	$(RELEASING) rustc --locked --profile $(PACKAGE_PROFILE) -p server --bin quire -- $(STATIC)
	$(RELEASING) rustc --locked --profile $(PACKAGE_PROFILE) -p bench --bin quire-bench -- $(STATIC)
	rm -rf $(PACKAGED)/$(TARBALL) && cp -r $(PACKAGED)/package $(PACKAGED)/$(TARBALL)
	cp $(PACKAGED)/{quire,quire-bench} deploy/quire.{service,socket} CHANGELOG.md LICENSE* $(PACKAGED)/$(TARBALL)
	cd $(PACKAGED) && tar --sort=name --mtime=@0 --owner=0 --group=0 -czf $(TARBALL).tar.gz $(TARBALL) && rm -r $(TARBALL)
	$(call sums,$(PACKAGED))

# The advisories are a repository of git.
ADVISORIES := https://github.com/rustsec/advisory-db
deny: $(CARGO_DENY) ## licences, sources, bans and, if they can be fetched, advisories of what is depended on
	$(CARGO_DENY) --locked check bans licenses sources
	if GIT_TERMINAL_PROMPT=0 timeout 20 git ls-remote --quiet $(ADVISORIES) HEAD >/dev/null 2>&1; then \
		$(CARGO_DENY) --locked check advisories; \
	else \
		echo "skipped: advisories, because $(ADVISORIES) cannot be reached"; \
	fi

# maturin calls `$CARGO rustc`, but cargo-auditable wants the word `auditable` first, which this script adds; cargo-auditable calls
# $CARGO in turn, so it is unset.
wheel: $(MATURIN) ## quire as a wheel for pip, into target/dist
	$(if $(LISTED),$(MAKE) --no-print-directory $(CARGO_AUDITABLE))
	printf '#!/bin/sh\nexec env -u CARGO %s "$$@"\n' '$(RELEASING)' >$(TOOLS)/releasing-cargo && chmod +x $(TOOLS)/releasing-cargo
	rm -f $(PACKAGED)/quire_server-*.whl
	cd deploy/wheel && CARGO=$(CURDIR)/$(TOOLS)/releasing-cargo ../../$(MATURIN) build --locked --profile $(PACKAGE_PROFILE) --out ../../$(PACKAGED)

# Packages the programs that other parts have built, without lists: with them, all of the workspace would be built again.
test-package: PACKAGE_PROFILE := release
test-package: PACKAGE_FLAGS := --fast
test-package: package ## install, start, upgrade, remove and purge the Debian package on this machine; needs root
	@echo "$@ installs systemd from Debian if it is missing"
	$(call need,systemd-analyze,systemd)
	deploy/test_package.sh $(PACKAGED)/quire_*.deb

JUDGE_CLIENTS = $(TOOLS)/venv/bin/python clients/conformance/suite.py --quire $(QUIRE_RELEASE)
test-clients: ## check, test and judge the clients; LANGUAGES=go takes one of them
	@echo "$@ installs from Debian, if missing: cmake, gRPC C++, JDK 17, Maven, npm; and each language's packages by its own tool"
	$(MAKE) --no-print-directory clients $(VENV) quire-release
	for language in $(LANGUAGES); do $(MAKE) -C clients/$$language check test || exit 1; done
	$(MAKE) --no-print-directory dist-clients
	$(TOOLS)/venv/bin/python clients/conformance/install.py --quire $(QUIRE_RELEASE) $(LANGUAGES)
	$(JUDGE_CLIENTS) $(LANGUAGES)

clients-page: LANGUAGES := cpp go java python rust typescript
clients-page: clients $(VENV) quire-release ## write the tables of docs/clients.md anew
	$(JUDGE_CLIENTS) --write-page

ROUNDS ?= 200
need-cluster: $(VENV)
	$(call need,etcd,etcd-server)
	$(need-postgres)

cluster: need-cluster quire-release ## three servers over three nodes of PostgreSQL, on this machine
	$(TOOLS)/venv/bin/python tests/cluster/up.py start $(QUIRE_RELEASE)

cluster-down: ## end what `make cluster` started
	$(TOOLS)/venv/bin/python tests/cluster/up.py stop

test-cluster: ## sell through 200 rounds of faults, half an hour; ROUNDS=20 is shorter
	@echo "$@ installs Patroni into $(TOOLS), and etcd and PostgreSQL from Debian if they are missing; it needs Go"
	$(MAKE) --no-print-directory need-cluster quire-release
	$(TOOLS)/venv/bin/python tests/cluster/campaign.py --quire $(QUIRE_RELEASE) --rounds $(ROUNDS)

bench-cluster: need-cluster ## purchases a second over PostgreSQL, alone and with a quorum, 20 minutes
	cargo build --profile dist -p server
	cargo build --profile dist --bin quire-bench
	$(TOOLS)/venv/bin/python tests/cluster/measure.py --quire target/dist/quire --bench target/dist/quire-bench

bench: ## measure the stores, and the clock of the load generator
	cargo bench --profile dist -p benches
	cargo bench --profile dist -p bench

bench-engine: peers ## our engine beside seven others: calls a second and CPU a call, half an hour
	cargo build --profile dist -p server
	$(call need,h2load,nghttp2-client)
	$(call need,redis-server,redis-server)
	python3 load/peers/bench_engine.py

bench-tools: $(INSTALLED) ## quire-bench beside h2load, wrk and ghz on the same servers, some minutes
	cargo build --profile dist -p server
	cargo build --profile dist --bin quire-bench
	$(call need,h2load,nghttp2-client)
	$(call need,wrk,wrk)
	python3 load/peers/bench_tools.py

EXPERIMENT := bookstore
reproduce: ## repeat a published experiment: make reproduce EXPERIMENT=bookstore, some ten minutes
	$(MAKE) $(if $(filter clients,$(EXPERIMENT)),clients PROFILE=--release,peers)
	cargo build --profile dist -p server
	cargo build --profile dist --bin quire-bench --bin quire-laboratory
	target/dist/quire-laboratory $(EXPERIMENT) --out target/reproduce-$(EXPERIMENT)

peers: peers-cpp peers-go peers-java ## build what Quire is measured against
	cargo build --release --manifest-path load/peers/Cargo.toml

peers-cpp:
	$(call need,cmake,cmake)
	$(call need,pkg-config,pkg-config)
	pkg-config --exists grpc++ libxxhash && command -v grpc_cpp_plugin >/dev/null || \
		tests/apt.sh libgrpc++-dev protobuf-compiler-grpc libxxhash-dev
	for peer in rpcgame-cpp arena-cpp; do \
		cmake -S load/peers/$$peer -B load/peers/target/$$peer && cmake --build load/peers/target/$$peer --parallel 2 || exit 1; \
	done

# Built in a copy, so that what protoc generates is not among the sources.
peers-go: export GOBIN = $(CURDIR)/load/peers/target/arena-go/bin
peers-go:
	command -v go >/dev/null || { echo "install Go 1.26 or later: Debian's is too old for grpc-go"; exit 1; }
	$(call need,protoc,protobuf-compiler)
	mkdir -p load/peers/target/arena-go
	cp load/peers/arena-go/* load/peers/target/arena-go
	cd load/peers/target/arena-go && go install tool && PATH=$$GOBIN:$$PATH go generate && go build -o arena-go .

peers-java:
	$(call need,javac,openjdk-17-jdk-headless)
	$(call need,mvn,maven)
	mvn -q -B -f load/peers/arena-java/pom.xml package

# cargo-fuzz wants a nightly compiler only for the sanitizers' flags, which the stable one has behind this variable.
fuzz: ## feed the engine's state machines random bytes and commands, ten minutes a target
	command -v cargo-fuzz >/dev/null || cargo install --quiet cargo-fuzz
	for target in $(FUZZ_TARGETS); do \
		RUSTC_BOOTSTRAP=1 CARGO_PROFILE_RELEASE_LTO=off cargo fuzz run --fuzz-dir tests/fuzz $$target -- -max_total_time=$(FUZZ_SECONDS) || exit 1; \
	done

clean: ## remove everything that was built, the judges' tools included
	rm -rf target load/peers/target

$(INSTALLED):
	for judge in $(JUDGES); do GOBIN=$(CURDIR)/$(TOOLS)/bin go install $$judge || exit 1; done
	touch $@

# Without optimisation they build in half the time.
$(AUDITABLE2CDX) $(CARGO_AUDITABLE) $(CARGO_DEB) $(CARGO_DENY):
	root=$(patsubst %/bin/$(@F),%,$@) && cargo install --quiet --locked --debug --root $$root $(@F)@$${root##*-}

$(MATURIN):
	python3 -m venv $(patsubst %/bin/maturin,%,$@)
	$(@D)/pip install --quiet --disable-pip-version-check $(@F)==$(patsubst maturin-%,%,$(notdir $(patsubst %/bin/maturin,%,$@)))

$(PROMETHEUS):
	apt-get update -qq
	mkdir -p $(TOOLS)/deb
	cd $(TOOLS)/deb && apt-get download -qq prometheus && dpkg-deb -x prometheus_*.deb ../prometheus
	rm -r $(TOOLS)/deb

$(VENV): tests/judges/requirements.txt
	python3 -m venv $(TOOLS)/venv
	$(TOOLS)/venv/bin/pip install --quiet --disable-pip-version-check --requirement $<
	cp $< $@

$(PROTOBUF): engine/testing/protobuf/package.json engine/testing/protobuf/package-lock.json engine/testing/protobuf/install.sh
	engine/testing/protobuf/install.sh $(TOOLS)

# The lock file holds each package's sum; no script of a package runs.
$(BROWSER): tests/judges/browser/package.json tests/judges/browser/package-lock.json tests/judges/browser/clients.js
	$(call need,npm,npm)
	mkdir -p $(TOOLS)/browser
	cp $^ $(TOOLS)/browser
	cd $(TOOLS)/browser && npm ci --silent --ignore-scripts --no-audit --no-fund
	cd $(TOOLS)/browser && node_modules/.bin/esbuild clients.js --bundle --outfile=bundle.js --log-level=warning
