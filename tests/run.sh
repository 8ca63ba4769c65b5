#!/usr/bin/env bash
# Runs every suite, also after one has failed, and says at the end how each ended. Called by `make test`, which
# has made the judges' tools.
set -uo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
reports=$target/reports
mkdir -p "$reports"
summary=()
passed=0
failed=0

count() { # PATTERN FILE: the sum of the numbers before the pattern
    grep -oE "[0-9]+ $1" "$2" | awk '{ sum += $1 } END { print sum + 0 }'
}

suite() { # NAME COMMAND...
    local name=$1 report="$reports/$1.txt" start=$SECONDS outcome=ok good bad
    shift
    printf '\n== %s: %s\n' "$name" "$*"
    "$@" </dev/null 2>&1 | tee "$report" || outcome=FAILED
    good=$(count passed "$report")
    bad=$(count '(failed|errors?\b)' "$report")
    # A suite that could not even start has no test that failed.
    if [ "$outcome" = FAILED ] && [ "$bad" = 0 ]; then bad=1; fi
    passed=$((passed + good))
    failed=$((failed + bad))
    summary+=("$(printf '%-12s %-6s %4d passed, %d failed, %4d s' "$name" "$outcome" "$good" "$bad" $((SECONDS - start)))")
}

export ENGINE_TOOLS=$JUDGES_BIN
suite rust cargo test --workspace --no-fail-fast
suite benches cargo test --workspace --bench '*'
# The whole workspace, so that nothing is built again with other features.
suite engine cargo test --workspace --test judges -- --ignored --test-threads=1
suite fuzz cargo build --workspace --bins
suite models "$target/debug/examples/models" all 1000
suite peers cargo test --manifest-path peers/Cargo.toml --workspace --test contract
suite peers-others make --no-print-directory peers-cpp peers-go peers-java
suite peers-built cargo build --manifest-path peers/Cargo.toml
suite peers-answer target/tools/venv/bin/python peers/bench_engine.py --check --profile debug
export JUDGED_BINARY=$target/debug/quire
suite judges target/tools/venv/bin/python -m pytest -q -p no:cacheprovider tests/judges
suite cluster make --no-print-directory test-cluster QUIRE="$target/debug/quire" ROUNDS=9
suite clients make --no-print-directory test-clients QUIRE="$target/debug/quire"

echo
printf '%s\n' "${summary[@]}"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
