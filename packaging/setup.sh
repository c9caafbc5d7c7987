#!/usr/bin/env bash
# Makes a Debian 12 machine ready to build and show Sluice: packages, Rust's version, huge pages;
# with `--tests` also to test it. Says and changes nothing when everything is there. Needs no
# sudo.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
lists=("$here/debian-packages.txt")
case "${1-}" in
'') tests=false ;;
--tests) tests=true lists+=("$here/test-packages.txt") ;;
*)
    printf 'setup: unknown option %s; use --tests or none\n' "$1" >&2
    exit 2
    ;;
esac
want_schemathesis=4.32.5
want_rust=1.95
want_huge_pages=512 # of 2 MB: 1 GiB, enough for the demo
# Tests run side by side: two thirds were taken at times.
if "$tests"; then want_huge_pages=768; fi

fail() {
    printf 'setup: %s\n' "$*" >&2
    exit 1
}
warn() { printf 'setup: warning: %s\n' "$*" >&2; }

missing_packages() {
    local wanted
    wanted=$(sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "${lists[@]}")
    # dpkg-query exits 1 when it does not know a name: that name is simply missing.
    # shellcheck disable=SC2086
    comm -23 <(printf '%s\n' $wanted | LC_ALL=C sort -u) \
        <({ dpkg-query -W -f '${db:Status-Status} ${Package}\n' $wanted 2>/dev/null || true; } |
            sed -n 's/^installed //p' | LC_ALL=C sort -u)
}

# Packages such as nginx start a service when they are installed; nothing here wants one.
# Debian's way to forbid it is a policy-rc.d that says 101, "action forbidden by policy".
forbid_services() {
    [ -e /usr/sbin/policy-rc.d ] && return
    printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
    chmod 755 /usr/sbin/policy-rc.d
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
}

install_packages() {
    local missing
    missing=$(missing_packages)
    [ -n "$missing" ] || return 0
    [ "$(id -u)" -eq 0 ] || fail "these Debian packages are missing and only root may install them:
$(printf '%s ' $missing)
Run \`make setup\` once as root."
    printf 'setup: installing %s\n' "$(printf '%s ' $missing)"
    export DEBIAN_FRONTEND=noninteractive
    forbid_services
    apt-get update -qq || warn "apt-get update failed; trying with the package lists at hand"
    # shellcheck disable=SC2086
    apt-get install -y -qq --no-install-recommends -o Dpkg::Use-Pty=0 $missing >/dev/null ||
        fail "apt-get install failed; see above"
}

check_debian() {
    command -v dpkg-query >/dev/null 2>&1 ||
        fail "this script knows Debian only; elsewhere install what ${lists[*]} name by hand"
    case "$(cat /etc/debian_version 2>/dev/null)" in
    12*) ;;
    *) warn "made for Debian 12 (DPDK 22.11); this is $(cat /etc/debian_version 2>/dev/null)" ;;
    esac
}

check_rust() {
    command -v rustc >/dev/null 2>&1 && command -v cargo >/dev/null 2>&1 ||
        fail "rustc and cargo are missing: install Rust $want_rust or newer (https://rustup.rs)"
    local have
    have=$(cd "$here/.." && rustc --version 2>/dev/null | awk '{ print $2 }') || true
    [ -n "$have" ] || fail "rustc does not run here; Rust $want_rust or newer is needed"
    printf '%s\n%s\n' "$want_rust" "$have" | sort -C -V ||
        fail "rustc is $have; Rust $want_rust or newer is needed (rustup update)"
}

# Huge pages are a help, not a need: the director falls back to ordinary pages. So never take more
# than a quarter of the free memory, and only warn when there are none to be had.
reserve_huge_pages() {
    local knob=/proc/sys/vm/nr_hugepages have free_kb size_kb bound target
    size_kb=$(awk '/^Hugepagesize:/ { print $2 }' /proc/meminfo)
    if [ ! -r "$knob" ] || [ -z "$size_kb" ]; then
        warn "this kernel has no huge pages; the director will run with ordinary ones"
        return 0
    fi
    have=$(cat "$knob")
    free_kb=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)
    bound=$((free_kb / 4 / size_kb))
    target=$((want_huge_pages * 2048 / size_kb))
    [ "$target" -le $((have + bound)) ] || target=$((have + bound))
    [ "$have" -lt "$target" ] || return 0
    if ! echo "$target" 2>/dev/null >"$knob" || [ "$(cat "$knob")" -lt "$target" ]; then
        warn "only $(cat "$knob") of $target huge pages could be reserved;" \
            "the director falls back to ordinary ones"
    fi
}

# What tests the API by its description, beside the build; only the end-to-end tests need it.
install_schemathesis() {
    local place=$here/../target/schemathesis
    if "$place/bin/schemathesis" --version 2>/dev/null | grep -q " $want_schemathesis\$"; then
        return 0
    fi
    python3 -m venv --clear "$place" &&
        "$place/bin/pip" -q install "schemathesis==$want_schemathesis" ||
        warn "schemathesis $want_schemathesis could not be installed (pip); its test is skipped"
}

check_debian
install_packages
check_rust
reserve_huge_pages
if "$tests"; then install_schemathesis; fi
