#!/usr/bin/env bash
# Makes the Python environment that drives Debian's Chromium in the dashboard's end-to-end test, in
# target/browser. Says nothing and changes nothing when it is there already.
set -euo pipefail
cd "$(dirname "$0")/.."
wanted=e2e/browser/requirements.txt
place=target/browser
cmp -s "$wanted" "$place/installed.txt" && exit 0
# Tests that run side by side ask for it at the same time: one makes it, the others wait.
mkdir -p "$(dirname "$place")"
exec 9>"$place.lock"
flock 9
cmp -s "$wanted" "$place/installed.txt" && exit 0
rm -rf "$place"
/usr/bin/python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: -r "$wanted"
# Last: what was broken off is made again.
cp "$wanted" "$place/installed.txt"
