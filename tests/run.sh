#!/usr/bin/env bash
# Runs targets of the Makefile one after another, also after one has failed, and prints at the end how each ended. Called by
# `make test-all` and by CI.
set -uo pipefail
cd "$(dirname "$0")/.."

reports=${CARGO_TARGET_DIR:-target}/reports
mkdir -p "$reports"
summary=()
passed=0
failed=0

count() { # PATTERN FILE: the sum of the numbers before the pattern
    grep -oE "[0-9]+ $1" "$2" | awk '{ sum += $1 } END { print sum + 0 }'
}

part() { # TARGET
    local report="$reports/$1.txt" start=$SECONDS outcome=ok good bad again
    printf '\n== make %s\n' "$1"
    make --no-print-directory "$@" </dev/null 2>&1 | tee "$report" || outcome=FAILED
    good=$(count passed "$report")
    bad=$(count '(failed|errors?\b)' "$report")
    # A part that could not even start has no test that failed.
    if [ "$outcome" = FAILED ] && [ "$bad" = 0 ]; then bad=1; fi
    again=$(grep -c 'run again: ' "$report")
    passed=$((passed + good))
    failed=$((failed + bad))
    summary+=("$(printf '%-14s %-6s %4d passed, %d failed, %d run again, %4d s' "$1" "$outcome" "$good" "$bad" "$again" $((SECONDS - start)))")
}

for target in "$@"; do part "$target"; done

echo
printf '%s\n' "${summary[@]}"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
