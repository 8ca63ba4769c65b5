#!/usr/bin/env bash
# Installs a Debian package on this machine, starts the server as its unit does, upgrades over itself, removes and purges:
# test_package.sh FILE.deb. Needs root; refuses to run if anything of Quire is installed; leaves nothing, also when it fails.
set -euo pipefail
cd /

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

setting() { sed -n "s/^$1=//p" "$unit"; }

# Parts of the tests that install Debian's packages run side by side.
locked() { flock --close "${TMPDIR:-/tmp}/quire-apt.lock" "$@" </dev/null; }

# Pages and completions too where the machine leaves them out, as images for containers do.
install_package() { locked dpkg --path-include='/usr/share/*' -i "$package"; }

start() {
    exec {log}< <(
        cd "$(setting WorkingDirectory)"
        umask "$(setting UMask)"
        exec setpriv --reuid "$(setting User)" --regid "$(setting Group)" --clear-groups --bounding-set=-all --no-new-privs \
            env -i PATH="$PATH" $(setting ExecStart) </dev/null 2>&1
    )
    server=$!
    while read -r -t 60 -u "$log" line; do
        echo "$line"
        if [[ $line == *" listening address="* ]]; then
            address=${line#* address=}
            address=${address%% *}
            quire health "$address"
            return
        fi
    done
    fail "the server does not listen"
}

stop() {
    kill "$server"
    cat <&"$log"
    wait "$server" || fail "the server ended with $?"
    server=
}

stock() { quire client --json "$address" lookup 53477; }

undo() {
    status=$?
    trap - EXIT
    set +e
    [ -z "$server" ] || { kill -KILL "$server" && wait "$server"; }
    if dpkg-query --show quire >/dev/null 2>&1; then
        # Also if the package's own scripts fail.
        locked dpkg --purge quire || {
            rm -f /var/lib/dpkg/info/quire.{prerm,postrm}
            locked dpkg --purge --force-remove-reinstreq quire
            for change in purge unmask; do DPKG_MAINTSCRIPT_PACKAGE=quire deb-systemd-helper "$change" quire.service quire.socket; done
        }
    fi
    rm -rf /etc/quire /var/lib/quire
    if getent passwd quire >/dev/null; then userdel quire; fi
    exit "$status"
}

export PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
package=$(cd "$OLDPWD" && realpath "${1:?names the package}")
unit=/usr/lib/systemd/system/quire.service
paths=(/usr/bin/quire /usr/bin/quire-bench /etc/quire /var/lib/quire "$unit" "${unit%service}socket" /etc/systemd/system/quire.service)

[ -f "$package" ] || fail "$package is not a file"
[ "$(id -u)" = 0 ] || fail "this test needs root: it installs $package on this machine"
for path in "${paths[@]}"; do
    [ ! -e "$path" ] || fail "Quire is installed here: $path exists"
done
if getent passwd quire || getent group quire || dpkg-query --show quire 2>/dev/null; then
    fail "Quire is or was installed here: purge it, or run this test on another machine"
fi
server=
trap undo EXIT
trap 'exit 1' HUP INT TERM

echo "== installs"
install_package
cmp /etc/quire/quire.toml <(quire config template | sed 's|^#data = .*|data = "/var/lib/quire"|') || fail "not the settings of this program"
quire config check /etc/quire/quire.toml
[ "$(stat -c %U:%G:%a /etc/quire/quire.toml)" = root:quire:640 ] || fail "the settings are open"
[ "$(stat -c %U:%G:%a /var/lib/quire)" = quire:quire:700 ] || fail "the data folder is open"
! grep 'start.*quire\.socket' /var/lib/dpkg/info/quire.postinst || fail "an upgrade closes the sockets"
for program in quire quire-bench; do
    "$program" --version
    bash -c ". /usr/share/bash-completion/completions/$program && complete -p $program"
    [ -s "/usr/share/fish/vendor_completions.d/$program.fish" ] && [ -s "/usr/share/zsh/vendor-completions/_$program" ] ||
        fail "$program has no completions for fish or zsh"
done
for page in quire quire-serve quire-config-check quire-bench quire-bench-grpc; do
    zgrep -q '^\.SH NAME' "/usr/share/man/man1/$page.1.gz" || fail "there is no manual page $page"
done
if command -v man >/dev/null; then
    for page in /usr/share/man/man1/quire*.1.gz; do
        warnings=$(man --warnings=w -l -Tutf8 -Z "$page" 2>&1 >/dev/null) && [ -z "$warnings" ] || fail "$page: $warnings"
    done
fi
listed=$(quire config template | sed -nE 's/^#(lean_)?listen = "([^"]+)".*/\2/p' | sort)
[ "$(sed -n 's/^ListenStream=//p' "${unit%service}socket" | sort)" = "$listed" ] || fail "quire.socket has other ports than $listed"
systemd-analyze verify --man=no "$unit" "${unit%service}socket"
exposure=$(systemd-analyze security --offline=yes --no-pager --threshold=12 "$unit" 2>&1) ||
    fail "the exposure is above 1.2, as $(systemd-analyze --version | head -1) rates it: $exposure"

echo "== starts with edited settings"
sed -i -E 's|^#((lean_)?listen = "127.0.0.1:)[0-9]+|\10|' /etc/quire/quire.toml
edited=$(sha256sum /etc/quire/quire.toml)
start
quire client "$address" buy 53477
sold=$(stock)
stop
[ "$(stat -c %U:%G:%a /var/lib/quire/bookstore.db)" = quire:quire:600 ] || fail "the store is not the user's alone"

echo "== upgrades over itself"
install_package
[ "$(sha256sum /etc/quire/quire.toml)" = "$edited" ] || fail "the upgrade changed the settings"
start
[ "$(stock)" = "$sold" ] || fail "the sale is lost: $(stock)"
stop

echo "== removes"
locked apt-get remove -y -qq quire
[ ! -e /usr/bin/quire ] || fail "the program is still there"
[ "$(sha256sum /etc/quire/quire.toml)" = "$edited" ] || fail "the removal changed the settings"
[ -s /var/lib/quire/bookstore.db ] || fail "the removal took the data"

echo "== purges"
locked apt-get purge -y -qq quire
for path in "${paths[@]}" /usr/share/man/man1/quire{,-serve}.1.gz; do
    [ ! -e "$path" ] || fail "$path is still there"
done
! getent passwd quire && ! getent group quire && ! dpkg-query --show quire 2>/dev/null || fail "the user or the package is still there"
echo "1 passed: the package installs, serves, upgrades, is removed and purged"
