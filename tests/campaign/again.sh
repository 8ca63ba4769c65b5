#!/usr/bin/env bash
# Puts a bug of `bugs/` into a copy of the sources and lets the campaign look for it: again.sh NAME [ROUNDS].
# Succeeds if it is found. A bug that the campaign meets too seldom names the tests that find it in its first line.
set -euo pipefail
cd "$(dirname "$0")/../.."
name=${1?"the name of one of $(ls tests/campaign/bugs | tr '\n' ' ')"}
copy=target/bugs/copy
mkdir -p "$copy"
# What an earlier bug changed is put back, and only what differs is built again.
git ls-files -co --exclude-standard | sort -u | while read -r file; do
    cmp -s "$file" "$copy/$file" || cp --parents "$file" "$copy"
done
patch -s -p1 -d "$copy" <"tests/campaign/bugs/$name.patch"
export CARGO_TARGET_DIR=$PWD/target/bugs
tests=$(sed -n '1s/^found by: cargo test //p' "tests/campaign/bugs/$name.patch")
if [ -n "$tests" ]; then
    # shellcheck disable=SC2086
    if cargo test -q --manifest-path "$copy/Cargo.toml" $tests >"$CARGO_TARGET_DIR/$name.txt" 2>&1; then
        echo "$name: not found"
        exit 1
    fi
    grep -q 'running [1-9]' "$CARGO_TARGET_DIR/$name.txt" || { echo "$name: no test runs"; exit 2; }
    grep -m 1 panicked "$CARGO_TARGET_DIR/$name.txt" || { tail "$CARGO_TARGET_DIR/$name.txt"; exit 2; }
    exit
fi
cargo build -q -p campaign --manifest-path "$copy/Cargo.toml"
if "$CARGO_TARGET_DIR/debug/campaign" --rounds "${2-1000}" --jobs 2 --failures 1 >"$CARGO_TARGET_DIR/$name.txt"; then
    echo "$name: not found"
    exit 1
fi
echo "$name: $(grep '^all' "$CARGO_TARGET_DIR/$name.txt" | awk '{ print "found within " $2 + 1 " rounds" }')"
grep -m 1 '^seed' "$CARGO_TARGET_DIR/$name.txt" | cut -c 1-300
