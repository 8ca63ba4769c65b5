#!/usr/bin/env bash
# Checks the server's archives beside its Debian package: test_archives.sh FOLDER. Installs them into an environment that it removes.
set -euo pipefail
folder=$(realpath "$1")
environment=$(mktemp -d)
trap 'kill "${server-}" 2>/dev/null || true; rm -rf "$environment"' EXIT

# Every crate that the server is built from is in the document, with its version.
cargo tree --locked --package server --edges normal --target x86_64-unknown-linux-gnu --prefix none --format '{p}' |
    awk '{ print $1, substr($2, 2) }' | sort -u >"$environment/crates"
python3 - "$folder/quire.cdx.json" "$environment/crates" <<'END'
import json, sys

document = json.load(open(sys.argv[1]))
assert document["bomFormat"] == "CycloneDX", document["bomFormat"]
named = {f"{one['name']} {one['version']}" for one in document["components"]}
built = {line.strip() for line in open(sys.argv[2])} - {"server 0.1.0"}
assert built <= named, sorted(built - named)
print(f"{len(built)} crates are in quire.cdx.json")
END

# As they are in the program itself.
lists_crates() {
    objcopy --output-target binary --only-section .dep-v0 --set-section-flags .dep-v0=alloc "$1" "$environment/list"
    python3 - "$environment/list" "$environment/crates" <<'END'
import json, sys, zlib

named = {f"{one['name']} {one['version']}" for one in json.loads(zlib.decompress(open(sys.argv[1], "rb").read()))["packages"]}
built = {line.strip() for line in open(sys.argv[2])}
assert built <= named, sorted(built - named)
END
}

python3 -m venv "$environment/venv"
"$environment/venv/bin/pip" install --quiet --disable-pip-version-check --no-index "$folder"/quire_server-*.whl
"$environment/venv/bin/quire" --version
lists_crates "$environment/venv/bin/quire"
cd "$environment" && venv/bin/quire config check <(venv/bin/quire config template)

tar -xf "$folder"/quire-*-linux.tar.gz --strip-components=1
if ldd quire quire-bench | grep '=>'; then exit 1; fi
lists_crates quire
./quire config check quire.toml
./quire-bench --version
ls quire.{service,socket} man/quire-serve.1.gz completions/quire.bash
exec {log}< <(exec ./quire serve --listen 127.0.0.1:0 --only bookstore --data "$environment/data" </dev/null 2>&1)
server=$!
line=
until [[ $line == *" listening address="* ]]; do read -r line <&"$log"; echo "$line"; done
address=${line#* address=}
./quire client "${address%% *}" buy 53477
kill "$server"
cat <&"$log"
wait "$server"
