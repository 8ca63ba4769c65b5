#!/usr/bin/env bash
# Installs what the record queries are measured beside: DuckDB for Python in load/peers/target/venv, and nginx.
# What is not there when the experiment runs is named in its page as missing.
set -euo pipefail
cd "$(dirname "$0")/../../.."
python3 -m venv load/peers/target/venv
load/peers/target/venv/bin/pip install --quiet --disable-pip-version-check --requirement load/peers/records/requirements.txt
command -v nginx >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends nginx-light; }
