#!/usr/bin/env bash
# Installs a Debian package, starts the server as its unit does, upgrades over itself, and purges: test_package.sh FILE.deb
# Needs root. The machine is not changed: all of it happens on an overlay of its file system, in a mount namespace.
set -euo pipefail

fail() {
	echo "FAILED: $*" >&2
	exit 1
}

if [ -z "${INSIDE:-}" ]; then
	package=$(realpath "$1")
	export INSIDE=yes
	exec unshare --mount --net --pid --fork --kill-child bash "$(realpath "$0")" "$package"
fi

if [ "$INSIDE" = yes ]; then
	base=$(mktemp -d)
	mount -t tmpfs tmpfs "$base"
	mkdir "$base/upper" "$base/work" "$base/root"
	mount -t overlay overlay -o "lowerdir=/,upperdir=$base/upper,workdir=$base/work" "$base/root"
	mount -t proc proc "$base/root/proc"
	mount --rbind /dev "$base/root/dev"
	mount -t tmpfs tmpfs "$base/root/run"
	cp "$1" "$base/root/run/quire.deb"
	cp "$0" "$base/root/run/test_package.sh"
	ip link set lo up
	INSIDE=overlay exec chroot "$base/root" bash /run/test_package.sh
fi

export PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive
unit=/usr/lib/systemd/system/quire.service
setting() { sed -n "s/^$1=//p" "$unit"; }

start() {
	command=$(setting ExecStart)
	cd "$(setting WorkingDirectory)"
	(umask "$(setting UMask)" && exec setpriv --reuid "$(setting User)" --regid "$(setting Group)" --clear-groups \
		--bounding-set=-all --no-new-privs env -i "PATH=$PATH" $command) </dev/null >/run/log 2>&1 &
	server=$!
	for _ in $(seq 300); do
		if quire health >/dev/null 2>&1; then return; fi
		kill -0 "$server" || fail "the server ended: $(cat /run/log)"
		sleep 0.1
	done
	fail "the server is not healthy after 30 s: $(cat /run/log)"
}

stop() {
	kill -TERM "$server"
	wait "$server" || fail "the server ended with $?: $(cat /run/log)"
}

stock() { quire client --json lookup 53477; }

echo "installs"
dpkg -i /run/quire.deb
command -v quire quire-bench >/dev/null || fail "a program is missing"
quire config check /etc/quire/quire.toml
[ "$(stat -c %U:%a /var/lib/quire)" = quire:700 ] || fail "the data folder is open"
[ "$(stat -c %G:%a /etc/quire/quire.toml)" = quire:640 ] || fail "the settings are open"
if command -v systemd-analyze >/dev/null; then systemd-analyze verify --man=no "$unit"; fi
if command -v man >/dev/null; then
	for page in /usr/share/man/man1/quire*.1.gz; do
		warnings=$(man --warnings=w -l -Tutf8 -Z "$page" 2>&1 >/dev/null) && [ -z "$warnings" ] || fail "$page: $warnings"
	done
fi
for file in /usr/share/bash-completion/completions/quire*; do bash -n "$file"; done

echo "starts as the unit does"
start
before=$(stock)
quire client buy 53477 >/dev/null
after=$(stock)
[ "$before" != "$after" ] || fail "nothing was sold"
stop

echo "upgrades over itself and keeps settings and data"
echo '# mine' >>/etc/quire/quire.toml
dpkg -i /run/quire.deb
grep -q '^# mine' /etc/quire/quire.toml || fail "the settings were replaced"
start
[ "$(stock)" = "$after" ] || fail "the sale is gone: $(stock)"
stop

echo "removes, and keeps settings and data; then purges"
dpkg -r quire
[ -e /var/lib/quire/bookstore.db ] && [ -e /etc/quire/quire.toml ] || fail "a removal took data or settings"
[ ! -e /usr/bin/quire ] || fail "the program is still there"
dpkg -P quire
for path in /var/lib/quire /etc/quire /usr/share/man/man1/quire.1.gz "$unit"; do
	[ ! -e "$path" ] || fail "$path is still there"
done
echo "the package installs, starts, upgrades and purges"
