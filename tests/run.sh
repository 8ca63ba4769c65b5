#!/usr/bin/env bash
# Runs targets of the Makefile one after another, also after one has failed, and prints at the end how each ended.
# `--beside TARGET` runs one at the same time as the others and prints its output after theirs. Called by `make test-all` and by CI.
set -uo pipefail
cd "$(dirname "$0")/.."

reports=${CARGO_TARGET_DIR:-target}/reports
mkdir -p "$reports"

part() { # TARGET
    local start=$SECONDS outcome=ok
    printf '\n== make %s\n' "$1"
    make --no-print-directory "$1" </dev/null 2>&1 | tee "$reports/$1.txt" || outcome=FAILED
    echo "$outcome $((SECONDS - start))" >"$reports/$1.end"
}

count() { # PATTERN FILE: the sum of the numbers before the pattern
    grep -oE "[0-9]+ $1" "$2" | awk '{ sum += $1 } END { print sum + 0 }'
}

beside=
if [ "${1-}" = --beside ]; then
    beside=$2
    shift 2
    part "$beside" >/dev/null &
fi
for target in "$@"; do part "$target"; done
if [ -n "$beside" ]; then
    wait
    printf '\n== make %s\n' "$beside"
    cat "$reports/$beside.txt"
fi

echo
passed=0
failed=0
for target in "$@" $beside; do
    report=$reports/$target.txt
    read -r outcome seconds <"$reports/$target.end"
    good=$(count passed "$report")
    bad=$(count '(failed|errors?\b)' "$report")
    # A part that could not even start has no test that failed.
    if [ "$outcome" = FAILED ] && [ "$bad" = 0 ]; then bad=1; fi
    passed=$((passed + good))
    failed=$((failed + bad))
    again=$(grep -c 'run again: ' "$report")
    printf '%-14s %-6s %4d passed, %d failed, %d run again, %4d s\n' "$target" "$outcome" "$good" "$bad" "$again" "$seconds"
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
