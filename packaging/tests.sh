#!/usr/bin/env bash
# What `make check`, `make test` and `make test-all` run, section by section:
#   packaging/tests.sh check   before each commit: what needs no namespaces and no optimised build
#   packaging/tests.sh         what decides whether a change may land
#   packaging/tests.sh all     the whole matrix, more random cases, sanitizers whole
# A section that fails does not stop the others; the exit status is that of the whole, and the last
# line is the count of everything:
#   N passed, N failed[, N skipped]
# A section that takes longer than SECTION_S seconds (1,800; a day for `all`) is ended and has
# failed. A cargo section counts its tests, any other section counts as one. Name sections as
# further arguments to run only those (`packaging/tests.sh all lint end-to-end`).
set -uo pipefail
cd "$(dirname "$0")/.."
logs=target/test-logs
mkdir -p "$logs"
mode=test
# The most that a section may take, in seconds.
limit_s=${SECTION_S:-1800}
case "${1-}" in check | test | all) mode=$1 && shift ;; esac
only=("$@")
passed=0 failed=0 skipped=0
summary=() groups=()
host=$(rustc -vV | sed -n 's/^host: //p')
# End-to-end tests mostly wait: more of them at a time than there are cores.
threads=${E2E_THREADS:-4}
# Snapshots are compared, never accepted, by a test run.
export INSTA_UPDATE=no CARGO_TERM_COLOR=never
# Where nothing is built twice, preparing for a second build is a fifth of the time. Line numbers of
# backtraces are a fifth of what is left; a panic says where it was without.
[ "${CI:-}" != true ] || export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=none

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

# counted NAME STATUS SECONDS: adds a section that has ended to the count, from its log.
counted() {
    local name=$1 status=$2 took=$3 log="$logs/$1.log" p f s
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
        "$name" "$p" "$f" "$s" "$took")")
}

# limited NAME COMMAND…: runs it in a process group of its own, which is ended when it takes too
# long: a test that hangs costs its section and not the whole run.
limited() {
    local name=$1 group watch status
    shift
    set -m
    "$@" </dev/null &
    set +m
    group=$!
    trap 'kill -TERM -- "-$group" 2>/dev/null; exit 143' INT TERM
    overdue "$name" "$group" &
    watch=$!
    wait "$group"
    status=$?
    trap - INT TERM
    kill "$watch" 2>/dev/null
    return "$status"
}

# overdue NAME GROUP: ends a process group when its time is over.
overdue() {
    sleep "$limit_s" >/dev/null 2>&1 &
    trap "kill $! 2>/dev/null; exit" TERM
    wait $!
    printf '\n%s: ended, for it was not done after %d s\n' "$1" "$limit_s"
    kill -TERM -- "-$2"
}

# section NAME COMMAND…: runs it, shows what it says, and counts.
section() {
    local name=$1 log="$logs/$1.log" started=$SECONDS
    shift
    wanted "$name" || return 0
    printf '\n=== %s: %s\n' "$name" "$*"
    limited "$name" "$@" 2>&1 | tee "$log"
    counted "$name" "${PIPESTATUS[0]}" $((SECONDS - started))
}

# beside NAME COMMAND…: like `section` for one that runs beside others: it is silent, and leaves its
# status and time in files.
beside() {
    local name=$1 log="$logs/$1.log" started=$SECONDS
    shift
    wanted "$name" || return 0
    limited "$name" "$@" >"$log" 2>&1
    printf '%d %d\n' $? $((SECONDS - started)) >"$logs/$name.status"
}

# background COMMAND…: runs it beside this script, in a process group of its own, so that it ends
# with this script.
background() {
    set -m
    "$@" </dev/null &
    set +m
    groups+=($!)
}

# joined NAME…: shows and counts sections that ran beside others.
joined() {
    local name status took
    for name in "$@"; do
        wanted "$name" || continue
        printf '\n=== %s (ran beside others)\n' "$name"
        cat "$logs/$name.log"
        read -r status took <"$logs/$name.status"
        counted "$name" "$status" "$took"
    done
}

skip() {
    wanted "$1" || return 0
    printf '\n=== %s: skipped: %s\n' "$1" "$2"
    skipped=$((skipped + 1))
    summary+=("$(printf '%-22s skipped: %s' "$1" "$2")")
}

# All is built for the same packages even where one program of them runs: with the same features of
# all dependencies. xtask is apart: it uses as ordinary dependencies what derive macros are made of
# (syn), and beside it cargo builds these, and all that derives anything, a second time.
rest=(--locked --workspace --exclude xtask)
tests_of() {
    cargo test "${rest[@]}" --no-fail-fast --test "$@"
}

tidy() {
    cargo build --locked --workspace --bin xtask || return
    cargo test --locked --workspace --bin xtask || return
    "${CARGO_TARGET_DIR:-target}/debug/xtask" tidy
}

# Test programs that need no namespaces of the end-to-end kind, and are no sections of their own.
integration() {
    # What tests start or load: programs of host/dpdk, the library beside ipvsadm.
    cargo build "${rest[@]}" --lib --examples || return
    export SLUICE_PRELOAD="${CARGO_TARGET_DIR:-$PWD/target}/debug/libsluice_preload.so"
    local names
    mapfile -t names < <(cargo metadata --locked --no-deps --format-version 1 | python3 -c '
import json, sys
sections = {"e2e", "rows", "corpora", "worlds", "clusters"}
packages = [p for p in json.load(sys.stdin)["packages"] if p["name"] != "xtask"]
tests = {t["name"] for p in packages for t in p["targets"] if t["kind"] == ["test"]}
print(*(f"--test={name}" for name in sorted(tests - sections)), sep="\n")')
    [ ${#names[@]} -gt 0 ] || return
    cargo test "${rest[@]}" --no-fail-fast "${names[@]}"
}

# Crates once more under a sanitizer, whose runtime comes with the stable compiler; only the switch
# is kept for bootstrapping. A bounded part: fewer random cases.
sanitized() {
    local sanitizer=$1
    shift
    env RUSTC_BOOTSTRAP=1 PROPTEST_CASES="$cases" \
        RUSTFLAGS="-Zsanitizer=$sanitizer -Cunsafe-allow-abi-mismatch=sanitizer" \
        TSAN_OPTIONS="suppressions=$PWD/packaging/thread-sanitizer.txt" \
        cargo test --locked --target "$host" --target-dir "target/$sanitizer-sanitizer" \
        --no-fail-fast --lib --tests "$@"
}

# Of the end-to-end tests that are the same for each kind of port and count of workers, `make test`
# runs those with AF_XDP and one worker: neither the modules of others, nor single tests by packet
# sockets or two workers that repeat another. Of faults of two directors it runs those that come
# first.
end_to_end() {
    local matrix=() other
    if [ "$mode" != all ]; then
        for other in af_xdp_two_workers af_packet_one_worker af_packet_two_workers faults; do
            matrix+=(--skip "::$other::")
        done
        matrix+=(--skip _by_packet_sockets --skip _by_two_workers)
    fi
    tests_of e2e -- "$@" "${matrix[@]}"
}

# The programs that end-to-end tests run, and these tests. In `make test` they are what all else is
# built from, not optimised but for the packet path, with overflow checks and debug assertions;
# `make test-all` runs those that users get. `make demo` does, too.
programs() {
    local release=()
    [ "$mode" != all ] || release=(--release)
    cargo build "${rest[@]}" --lib --bins "${release[@]}" || return
    cargo test "${rest[@]}" --test e2e --no-run
}

# End-to-end tests that keep processors busy themselves: a browser, a tester of APIs. Beside builds
# they take ten times as long, so they run after these.
busy=(dashboard:: api::openapi_)

# What `make test-all` tries ten thousands of times runs four times as fast optimised, and keeps the
# checks of what is not.
simulated() {
    local proof=()
    [ "$mode" != all ] || proof=(--profile proof)
    cargo test "${rest[@]}" "${proof[@]}" --no-fail-fast --test "$1"
}

# What mostly waits runs beside the rest.
beside_the_rest() {
    # It waits for processors that the rest keeps busy.
    limit_s=$((2 * limit_s))
    [ "$root" = false ] || beside end-to-end end_to_end --test-threads="$threads" --skip alone_ \
        "${busy[@]/#/--skip=}"
    # Of users' program too, where that is built.
    beside instructions packaging/instructions.sh dev
    [ "$mode" != all ] || beside instructions-release packaging/instructions.sh release
}

root=false cases=24 unsafe=(-p sluice-table -p sluice-lanes)
if [ "$(id -u)" -eq 0 ] || [ "${CI:-}" = true ]; then root=true; fi
# Other random cases in each run: over many runs a few of them see as much as many in each.
if [ "$mode" != all ]; then
    export PROPTEST_CASES=${PROPTEST_CASES:-128} SLUICE_EXAMPLES=${SLUICE_EXAMPLES:-8}
fi
if [ "$mode" = all ]; then
    limit_s=${SECTION_S:-86400} cases=256
    unsafe+=(-p sluice-wire -p sluice-director -p sluice-worker -p sluice-memif
        -p sluice-properties)
    export SLUICE_SEEDS=${SLUICE_SEEDS:-2000} SLUICE_SCRIPTS=${SLUICE_SCRIPTS:-200000}
    export SLUICE_CLUSTERS=${SLUICE_CLUSTERS:-10000}
fi
if [ "$mode" != check ]; then
    built=debug
    [ "$mode" != all ] || built=release
    section programs programs
    SLUICE_BIN_DIR="$(realpath -m "${CARGO_TARGET_DIR:-target}/$built")"
    export SLUICE_BIN_DIR
    trap 'for group in "${groups[@]}"; do kill -TERM -- "-$group" 2>/dev/null; done' EXIT
    trap 'exit 130' INT TERM
    background beside_the_rest
fi

section format cargo fmt --all --check
section format-fuzz cargo fmt --manifest-path fuzz/Cargo.toml --check
section lint cargo clippy --workspace --all-targets --locked -- -D warnings
section unit cargo test "${rest[@]}" --no-fail-fast --lib --bins
section tidy tidy
# Most of these tests wait, for the kernel or for each other.
[ "$mode" = check ] || background beside integration integration
section golden tests_of rows
if [ "$mode" != check ]; then
    section documentation cargo test "${rest[@]}" --no-fail-fast --doc
    section simulated-world simulated worlds
    section simulated-cluster simulated clusters
    section fuzz-corpora tests_of corpora
    section address-sanitizer sanitized address "${unsafe[@]}"
    # One test at a time: the sanitizer is for the threads that a test starts.
    [ "$mode" != all ] || section thread-sanitizer sanitized thread -p sluice-table \
        -p sluice-worker -- --test-threads=1
    wait
    trap - EXIT INT TERM
    joined integration instructions
    [ "$mode" != all ] || joined instructions-release
    if [ "$root" = true ]; then
        joined end-to-end
        section end-to-end-busy end_to_end --test-threads=2 "${busy[@]}"
        # Those that measure time or need the whole machine.
        section end-to-end-alone end_to_end --test-threads=1 alone_
    else
        skip end-to-end "network namespaces need root"
    fi
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
