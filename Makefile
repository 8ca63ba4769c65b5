# One command for each habit; `make` alone lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.PHONY: help run test check bench bench-engine clean

# Programs by others that judge the server; their versions are part of the tests.
TOOLS := target/tools
GRPCURL_VERSION := v1.9.4
GRPCURL := $(TOOLS)/bin/grpcurl-$(GRPCURL_VERSION)
VENV := $(TOOLS)/venv/requirements.txt

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

run: ## start the server on the embedded database with the sample catalogue
	cargo run --release --bin quire -- serve

test: $(GRPCURL) $(VENV) ## run every test: Rust, the benchmarks once, clients in other languages
	JUDGES_GRPCURL=$(GRPCURL) tests/run.sh

check: ## formatting and lints
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

bench: ## measure the store: durable purchases a second, lookups, searches
	cargo bench -p bookstore

bench-engine: ## our gRPC engine beside tonic: requests a second and CPU a call, some minutes
	cargo build --release --bin quire
	cargo build --release --manifest-path peers/Cargo.toml
	command -v h2load >/dev/null || { apt-get update -qq && apt-get install -y -qq nghttp2-client; }
	python3 peers/bench_engine.py

clean: ## remove everything that was built, the judges' tools included
	cargo clean
	rm -rf target

$(GRPCURL):
	GOBIN=$(CURDIR)/$(TOOLS)/bin go install github.com/fullstorydev/grpcurl/cmd/grpcurl@$(GRPCURL_VERSION)
	mv $(TOOLS)/bin/grpcurl $@

$(VENV): tests/judges/requirements.txt
	python3 -m venv $(TOOLS)/venv
	$(TOOLS)/venv/bin/pip install --quiet --disable-pip-version-check --requirement $<
	cp $< $@
