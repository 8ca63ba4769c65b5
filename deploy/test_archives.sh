#!/usr/bin/env bash
# Checks the server's Debian package, wheel and tarball without installing them on this machine: test_archives.sh FOLDER. Each program has
# the list of its crates in it, and a document beside the archives has the same.
set -euo pipefail
folder=$(realpath "$1")
unpacked=$(mktemp -d)
trap 'kill "${server-}" 2>/dev/null || true; rm -rf "$unpacked"' EXIT

lists_crates() { # PROGRAM PACKAGE
    cargo tree --locked --package "$2" --edges normal --target x86_64-unknown-linux-gnu --prefix none --format '{p}' >"$unpacked/crates"
    objcopy --output-target binary --only-section .dep-v0 --set-section-flags .dep-v0=alloc "$1" "$unpacked/list"
    python3 - "$unpacked/crates" "$unpacked/list" "$folder/${1##*/}.cdx.json" <<'END'
import json, sys, zlib

built = {" ".join(line.split()[:2]).replace(" v", " ") for line in open(sys.argv[1])}
inside = {f"{one['name']} {one['version']}" for one in json.loads(zlib.decompress(open(sys.argv[2], "rb").read()))["packages"]}
document = json.load(open(sys.argv[3]))
assert document["bomFormat"] == "CycloneDX", document["bomFormat"]
beside = {f"{one['name']} {one['version']}" for one in [document["metadata"]["component"], *document["components"]]}
assert len(built) > 50 and built <= inside, sorted(built - inside)
assert beside == inside, sorted(beside ^ inside)
END
}

echo "== the Debian package"
dpkg-deb -x "$folder"/quire_*.deb "$unpacked/deb"
for program in quire quire-bench; do
    "$unpacked/deb/usr/bin/$program" --version
done
lists_crates "$unpacked/deb/usr/bin/quire" server
lists_crates "$unpacked/deb/usr/bin/quire-bench" bench

echo "== the wheel"
python3 -m venv "$unpacked/venv"
"$unpacked/venv/bin/pip" install --quiet --disable-pip-version-check --no-index "$folder"/quire_server-*.whl
"$unpacked/venv/bin/quire" --version
lists_crates "$unpacked/venv/bin/quire" server
(cd "$unpacked" && venv/bin/quire config check <(venv/bin/quire config template))

echo "== the tarball"
mkdir "$unpacked/tarball"
tar -xf "$folder"/quire-*-linux.tar.gz --strip-components=1 -C "$unpacked/tarball"
lists_crates "$unpacked/tarball/quire" server
lists_crates "$unpacked/tarball/quire-bench" bench
cd "$unpacked/tarball"
if ldd quire quire-bench | grep '=>'; then exit 1; fi
./quire config check quire.toml
./quire-bench --version
ls quire.{service,socket} man/quire-serve.1.gz completions/quire.bash
exec {log}< <(exec ./quire serve --listen 127.0.0.1:0 --only bookstore --data "$unpacked/data" </dev/null 2>&1)
server=$!
line=
until [[ $line == *" listening address="* ]]; do read -r line <&"$log"; echo "$line"; done
address=${line#* address=}
./quire client "${address%% *}" buy 53477
kill "$server"
cat <&"$log"
wait "$server"
echo "1 passed: the package, the wheel and the tarball have programs that start, and the lists of their crates"
