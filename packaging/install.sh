#!/usr/bin/env bash
# Puts what `make build` made into place: programs, the library for stock programs, the systemd
# unit, completions, manual pages.
#   install.sh DESTDIR PREFIX
# Nothing is started or enabled, and a configuration that is there stays.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
dest=${1-} prefix=${2:-/usr}
programs=${CARGO_TARGET_DIR:-$here/../target}/release
share=$dest$prefix/share

for program in sluice sluiced; do
    [ -x "$programs/$program" ] || {
        echo "$programs/$program is not there: run \`make build\` first" >&2
        exit 1
    }
    install -D -m 755 "$programs/$program" "$dest$prefix/bin/$program"
done
sluice=$dest$prefix/bin/sluice

# What stock ipvsadm and keepalived are run with, and the drop-in that does it for the latter.
library=$programs/libsluice_preload.so
[ -f "$library" ] || {
    echo "$library is not there: run \`make build\` first" >&2
    exit 1
}
install -D -m 644 "$library" "$dest$prefix/lib/sluice/libsluice-ipvs.so"

pages=$(mktemp -d)
trap 'rm -rf "$pages"' EXIT
"$sluice" man "$pages"
for page in "$pages"/*; do
    install -D -m 644 -t "$share/man/man${page##*.}" "$page"
done

complete() {
    install -d "$(dirname "$2")"
    "$sluice" completions "$1" >"$2"
    chmod 644 "$2"
}
complete bash "$share/bash-completion/completions/sluice"
complete zsh "$share/zsh/site-functions/_sluice"
complete fish "$share/fish/vendor_completions.d/sluice.fish"

# The unit names /usr/bin.
install -d "$dest/lib/systemd/system"
sed "s|/usr/bin/|$prefix/bin/|g" "$here/sluiced.service" >"$dest/lib/systemd/system/sluiced.service"
chmod 644 "$dest/lib/systemd/system/sluiced.service"
dropin=$share/sluice/keepalived.service.d/sluice.conf
install -d "$(dirname "$dropin")"
sed "s|/usr/bin/|$prefix/bin/|g; s|/usr/share/|$prefix/share/|g" \
    "$here/keepalived.service.d/sluice.conf" >"$dropin"
chmod 644 "$dropin"
install -d -m 755 "$dest/etc/sluice"
