#!/usr/bin/env bash
# What `make test` runs, section by section. A section that fails does not stop the others; the
# exit status is that of the whole, and the last line is the count of everything:
#   N passed, N failed[, N skipped]
# A cargo section counts its tests, any other section counts as one. Name sections as arguments to
# run only those (`packaging/tests.sh lint end-to-end`).
set -uo pipefail
cd "$(dirname "$0")/.."
logs=target/test-logs
mkdir -p "$logs"
only=("$@")
passed=0 failed=0 skipped=0
summary=()
host=$(rustc -vV | sed -n 's/^host: //p')
# Snapshots are compared, never accepted, by a test run.
export INSTA_UPDATE=no CARGO_TERM_COLOR=never

wanted() {
    [ ${#only[@]} -eq 0 ] && return 0
    local name
    for name in "${only[@]}"; do [ "$name" = "$1" ] && return 0; done
    return 1
}

# sum FIELD LOG: of cargo's `test result: ok. 3 passed; 0 failed; 1 ignored; …` lines.
sum() {
    sed -n "s/^test result: .* \([0-9][0-9]*\) $1;.*/\1/p" "$2" |
        awk '{ n += $1 } END { print n + 0 }'
}

# section NAME COMMAND…: runs it, shows what it says, and counts.
section() {
    local name=$1 log="$logs/$1.log" status started=$SECONDS p f s
    shift
    wanted "$name" || return 0
    printf '\n=== %s: %s\n' "$name" "$*"
    "$@" 2>&1 | tee "$log"
    status=${PIPESTATUS[0]}
    if grep -q '^test result: ' "$log"; then
        p=$(sum passed "$log") f=$(sum failed "$log") s=$(sum ignored "$log")
        s=$((s + $(grep -c '^skipped: ' "$log")))
        p=$((p - $(grep -c '^skipped: ' "$log")))
    else
        p=$((status == 0)) f=0 s=0
    fi
    # A section that did not even get to its tests (it does not compile, say) failed once.
    [ "$status" -eq 0 ] || [ "$f" -gt 0 ] || f=1
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    summary+=("$(printf '%-22s %5d passed %4d failed %4d skipped %6d s' \
        "$name" "$p" "$f" "$s" $((SECONDS - started)))")
}

skip() {
    wanted "$1" || return 0
    printf '\n=== %s: skipped: %s\n' "$1" "$2"
    skipped=$((skipped + 1))
    summary+=("$(printf '%-22s skipped: %s' "$1" "$2")")
}

# The unsafe crates once more under AddressSanitizer, whose runtime comes with the stable compiler;
# only the switch is kept for bootstrapping. A bounded part: fewer random cases.
sanitized() {
    env RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address PROPTEST_CASES=24 \
        cargo test --locked --target "$host" --target-dir target/asan --lib --tests "$@"
}

section format cargo fmt --all --check
section format-fuzz cargo fmt --manifest-path fuzz/Cargo.toml --check
section lint cargo clippy --workspace --all-targets --locked -- -D warnings
section tidy cargo xtask tidy
# What needs no namespaces; golden rows, corpora and end to end follow by themselves.
section unit cargo test --locked --workspace --no-fail-fast \
    --exclude sluice-e2e --exclude sluice-golden --exclude sluice-properties --exclude sluice-sim
section golden cargo test --locked -p sluice-golden --no-fail-fast
section simulated-world cargo test --locked -p sluice-sim --no-fail-fast
section fuzz-corpora cargo test --locked -p sluice-properties --no-fail-fast
section address-sanitizer sanitized -p sluice-table -p sluice-lanes
section release-build cargo build --release --locked \
    -p sluiced -p sluice -p sluice-preload -p sluice-bench -p sluice-e2e
section instructions packaging/instructions.sh
if [ "$(id -u)" -eq 0 ] || [ "${CI:-}" = true ]; then
    section end-to-end cargo test --locked -p sluice-e2e --no-fail-fast -- --test-threads=1
else
    skip end-to-end "network namespaces need root"
fi

printf '\n=== what ran\n'
printf '%s\n' "${summary[@]}"
printf '\n'
if [ "$skipped" -gt 0 ]; then
    printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
else
    printf '%d passed, %d failed\n' "$passed" "$failed"
fi
[ "$failed" -eq 0 ]
