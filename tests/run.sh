#!/usr/bin/env bash
# Runs targets of the Makefile one after another, also after one has failed, and prints at the end how each ended. Those after
# `--beside` run, one after another too, at the same time as the others; their output follows. Those after `--alone` run when all
# others have ended. Called by `make test-all` and by CI.
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

targets=()
beside=()
alone=()
declare -n list=targets
for word; do
    case $word in
    --beside) declare -n list=beside ;;
    --alone) declare -n list=alone ;;
    *) list+=("$word") ;;
    esac
done
if [ ${#beside[@]} -gt 0 ]; then
    (for target in "${beside[@]}"; do part "$target"; done) >/dev/null &
    # Ctrl-C ends what stands in the foreground only.
    trap 'kill $! $(pgrep -P $!) 2>/dev/null; exit 130' INT TERM
fi
for target in "${targets[@]}"; do part "$target"; done
wait
for target in "${beside[@]}"; do
    printf '\n== make %s\n' "$target"
    cat "$reports/$target.txt"
done
for target in "${alone[@]}"; do part "$target"; done

echo
passed=0
failed=0
for target in "${targets[@]}" "${beside[@]}" "${alone[@]}"; do
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
