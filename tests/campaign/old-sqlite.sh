#!/usr/bin/env bash
# Runs the campaign over SQLite 3.51.2, the last version with the bug of the WAL's reset (https://sqlite.org/wal.html#walresetbug), which
# only several connections meet: old-sqlite.sh WORDS-OF-CAMPAIGN. The source is that of an npm package which carries it.
set -euo pipefail
cd "$(dirname "$0")/../.."
export CARGO_TARGET_DIR=$PWD/target/old-sqlite
mkdir -p "$CARGO_TARGET_DIR"
(
    cd "$CARGO_TARGET_DIR"
    test -f package.tgz || mv "$(npm pack --silent better-sqlite3@12.6.2)" package.tgz
    tar xzf package.tgz package/deps/sqlite3
    grep -q 'define SQLITE_VERSION .*"3.51.2"' package/deps/sqlite3/sqlite3.h
    # The options of libsqlite3-sys that change what is compiled.
    cc -O2 -c -DSQLITE_CORE -DSQLITE_THREADSAFE=1 -DSQLITE_DEFAULT_FOREIGN_KEYS=1 -DSQLITE_ENABLE_API_ARMOR -DSQLITE_ENABLE_COLUMN_METADATA \
        -DSQLITE_ENABLE_DBSTAT_VTAB -DSQLITE_ENABLE_FTS5 -DSQLITE_ENABLE_STAT4 -DSQLITE_USE_URI -DHAVE_USLEEP=1 -DHAVE_ISNAN \
        package/deps/sqlite3/sqlite3.c -o sqlite3.o
    ar rcs libsqlite3.a sqlite3.o
    printf 'Name: sqlite3\nDescription: SQLite\nVersion: 3.51.2\nLibs: -L%s -lsqlite3\n' "$PWD" >sqlite3.pc
)
export LIBSQLITE3_SYS_USE_PKG_CONFIG=1 PKG_CONFIG_PATH=$CARGO_TARGET_DIR SQLITE3_STATIC=1
cargo build -q -p campaign
exec "$CARGO_TARGET_DIR/debug/campaign" "$@"
