# One command for each habit; `make` alone lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.PHONY: help run

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

run: ## start the server on the embedded database with the sample catalogue
	cargo run --release --bin quire -- serve
