#!/usr/bin/env bash
# Puts what `make build` made into place: programs, the library for stock programs, the systemd
# unit, completions, manual pages; or removes them again.
#   install.sh [--remove] DESTDIR PREFIX
# Nothing is started, stopped or enabled, and a configuration that is there stays.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
remove=false
if [ "${1-}" = --remove ]; then remove=true && shift; fi
dest=${1-} prefix=${2:-/usr}
programs=${CARGO_TARGET_DIR:-$here/../target}/release

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
/usr) unit=$dest/usr/lib/systemd/system/sluiced.service ;;
*) unit=$dest/usr/local/lib/systemd/system/sluiced.service ;;
esac

pages=$(mktemp -d)
trap 'rm -rf "$pages"' EXIT

if "$remove"; then
    # The installed command knows which pages came with it.
    if [ -x "$bin/sluice" ]; then
        "$bin/sluice" man "$pages"
        for page in "$pages"/*; do rm -f "$share/man/man${page##*.}/${page##*/}"; done
    fi
    rm -f "$bin/sluice" "$bin/sluiced" "$library" "$unit" "$dropin" "$bash" "$zsh" "$fish"
    for own in "${library%/*}" "${dropin%/*}" "$share/sluice"; do
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
install -d -m 755 "$dest/etc/sluice"
