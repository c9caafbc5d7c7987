#!/usr/bin/env bash
# Puts what `make build` made into place: programs, the library for stock programs, the systemd
# unit, the group that may use the control socket, completions, manual pages, the configuration's
# schema, examples, alerts and a dashboard for Grafana; or removes them again.
#   install.sh [--remove] DESTDIR PREFIX
# Nothing is started, stopped or enabled. A machine without a configuration gets one to begin with;
# one that is there stays, also when the rest is removed. Programs are taken from SLUICE_BIN_DIR, if
# that is set, else from target/release.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
remove=false
if [ "${1-}" = --remove ]; then remove=true && shift; fi
dest=${1-} prefix=${2:-/usr}
programs=${SLUICE_BIN_DIR:-${CARGO_TARGET_DIR:-$here/../target}/release}

# It gets into units, where other characters mean something.
if [[ ! $prefix =~ ^(/[A-Za-z0-9._+-]+)+$ ]]; then
    echo "PREFIX=$prefix: not a folder's whole path of letters, digits and ._+-, as /usr is" >&2
    exit 2
fi
bin=$dest$prefix/bin
library=$dest$prefix/lib/sluice/libsluice-ipvs.so
share=$dest$prefix/share
dropin=$share/sluice/keepalived.service.d/sluice.conf
bash=$share/bash-completion/completions/sluice
zsh=$share/zsh/site-functions/_sluice
fish=$share/fish/vendor_completions.d/sluice.fish
# Where systemd looks, wherever the programs are. Not /lib: that is a link, which a folder of an
# unpacked DESTDIR would take the place of.
case $prefix in
/usr) systemd=$dest/usr/lib ;;
*) systemd=$dest/usr/local/lib ;;
esac
unit=$systemd/systemd/system/sluiced.service
sysusers=$systemd/sysusers.d/sluice.conf
schema=$share/sluice/sluice.schema.json
configuration=$dest/etc/sluice/sluice.toml
# What is copied as it is: folders below packaging, and files in them.
extras=(prometheus/prometheus-example.yml prometheus/sluice.rules.yml grafana/sluice.json)

pages=$(mktemp -d)
trap 'rm -rf "$pages"' EXIT

if "$remove"; then
    # The installed command knows which pages came with it.
    if [ -x "$bin/sluice" ]; then
        "$bin/sluice" man "$pages"
        for page in "$pages"/*; do rm -f "$share/man/man${page##*.}/${page##*/}"; done
    fi
    rm -f "$bin/sluice" "$bin/sluiced" "$library" "$unit" "$dropin" "$bash" "$zsh" "$fish"
    rm -f "$sysusers" "$schema" "${extras[@]/#/$share/sluice/}"
    for example in "$here"/../examples/*.toml; do
        rm -f "$share/sluice/examples/${example##*/}"
    done
    for own in "${library%/*}" "${dropin%/*}" "$share"/sluice/{examples,prometheus,grafana} \
        "$share/sluice"; do
        if [ -d "$own" ]; then rmdir --ignore-fail-on-non-empty "$own"; fi
    done
    copy=$dest/etc/systemd/system/keepalived.service.d/sluice.conf
    if [ -e "$copy" ]; then
        echo "$copy is left: keepalived does not start with it, remove it too" >&2
    fi
    exit 0
fi

for program in sluice sluiced libsluice_preload.so; do
    [ -x "$programs/$program" ] || {
        echo "$programs/$program is not there: run \`make build\` first" >&2
        exit 1
    }
done
install -D -m 755 -t "$bin" "$programs/sluice" "$programs/sluiced"
# What stock ipvsadm and keepalived are run with; below, the drop-in that does it for the latter.
install -D -m 644 "$programs/libsluice_preload.so" "$library"

"$bin/sluice" man "$pages"
for page in "$pages"/*; do
    install -D -m 644 -t "$share/man/man${page##*.}" "$page"
done

# put FILE: what comes in becomes FILE.
put() { install -D -m 644 /dev/stdin "$1"; }
"$bin/sluice" completions bash | put "$bash"
"$bin/sluice" completions zsh | put "$zsh"
"$bin/sluice" completions fish | put "$fish"

# Both name /usr.
relocated() { sed "s|/usr/bin/|$prefix/bin/|g; s|/usr/share/|$prefix/share/|g" "$1"; }
relocated "$here/sluiced.service" | put "$unit"
relocated "$here/keepalived.service.d/sluice.conf" | put "$dropin"

# What a configuration is checked by in an editor, and what to begin one from.
install -D -m 644 "$here/../docs/sluice.schema.json" "$schema"
# with_schema FILE: the example, which names the schema in the sources.
with_schema() { sed "1s|^#:schema .*|#:schema $prefix/share/sluice/sluice.schema.json|" "$1"; }
for example in "$here"/../examples/*.toml; do
    with_schema "$example" | put "$share/sluice/examples/${example##*/}"
done
for extra in "${extras[@]}"; do
    install -D -m 644 "$here/$extra" "$share/sluice/$extra"
done
install -d -m 755 "$dest/etc/sluice"
if [ ! -e "$configuration" ] && [ ! -L "$configuration" ]; then
    with_schema "$here/../examples/two-arm.toml" | put "$configuration"
fi

# Packages make the group when they are unpacked; here it is made at once.
install -D -m 644 "$here/sysusers.conf" "$sysusers"
if [ -z "$dest" ] && ! getent group sluice >/dev/null; then
    systemd-sysusers "$sysusers" >/dev/null 2>&1 || groupadd --system sluice >/dev/null 2>&1 ||
        echo "the group sluice could not be made: until it is, only root may use sluice" >&2
fi
