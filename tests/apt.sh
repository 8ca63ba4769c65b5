#!/bin/sh
# Installs Debian's packages; one caller at a time, because parts of the tests run side by side.
set -eu
lock="${TMPDIR:-/tmp}/quire-apt.lock"
# Without the lock's descriptor: a daemon that a package starts would keep it.
flock --close "$lock" apt-get update -qq
flock --close "$lock" apt-get install -y -qq "$@"
