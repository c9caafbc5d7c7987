#!/usr/bin/env bash
# Runs a package's tests again and again beside busy loops, and counts. See `usage`.
set -uo pipefail

usage() {
    cat <<'END'
Repeats tests on a busy machine: finds those that pass only where nothing else runs.

  packaging/repeat.sh COUNT LOOPS PACKAGE [FILTER] [-- ARGUMENTS]

  COUNT      runs of each of the package's test programs, 1 to 1000
  LOOPS      busy loops beside each run, 0 to 16
  PACKAGE    a crate of the workspace: sluice-dpdk
  FILTER     only tests whose names contain this
  ARGUMENTS  passed on to the test programs: --test-threads=1

Prints a line for each test: passes, failures, test program and name; failures first. What a failed
run has said is kept in target/repeat. The exit status is 1 when any test failed.

Environment: REPEAT_TIMEOUT_S, after which a run is ended and counts as failed (default 1800);
REPEAT_LOCK, a file to be locked during each run where others test on the same machine.

  packaging/repeat.sh 20 2 sluice-dpdk
  SLUICE_BIN_DIR=$PWD/target/debug packaging/repeat.sh 5 2 sluice-e2e reload -- --test-threads=1
END
}

is_within() { [[ $1 =~ ^[0-9]+$ ]] && [ "$1" -ge "$2" ] && [ "$1" -le "$3" ]; }

if [ $# -lt 3 ] || ! is_within "$1" 1 1000 || ! is_within "$2" 0 16; then
    usage
    exit 2
fi
count=$1 loops=$2 package=$3
shift 3
filter=
if [ $# -gt 0 ] && [ "$1" != -- ]; then
    filter=$1
    shift
fi
[ "${1:-}" = -- ] && shift

cd "$(dirname "$0")/.." || exit 2
folder=$PWD/target/repeat
mkdir -p "$folder"
results=$folder/results
: >"$results"
pids=()
# Uses a processor until it is stopped, or whoever started it is gone.
busy_loop() {
    local turn
    while kill -0 $$ 2>/dev/null; do
        for ((turn = 0; turn < 100000; turn++)); do :; done
    done
}

stop_loops() {
    [ ${#pids[@]} -eq 0 ] && return
    kill "${pids[@]}" 2>/dev/null
    wait "${pids[@]}" 2>/dev/null
    pids=()
}
trap stop_loops EXIT
trap 'exit 130' INT TERM

# Each test program, with the folder that cargo would run it in. Built before anything is timed.
programs=$(cargo test --locked -p "$package" --no-run --message-format=json |
    jq -r 'select(.profile.test? and .executable) |
        [.executable, (.manifest_path | rtrimstr("/Cargo.toml")), .target.name] | @tsv') || exit 2
[ -n "$programs" ] || exit 2

# run PROGRAM FOLDER NAME NUMBER ARGUMENTS…: one run beside the loops; notes how each test ended.
run() {
    local program=$1 place=$2 name=$3 log="$folder/$3.$4.log" status loop
    shift 4
    for ((loop = 0; loop < loops; loop++)); do
        busy_loop 9>&- &
        pids+=($!)
    done
    (cd "$place" && timeout "${REPEAT_TIMEOUT_S:-1800}" "$program" "$@") \
        >"$log" 2>"$log.err" 9>&-
    status=$?
    stop_loops
    sed -n -e "s/^test \([^ ]*\) .*\bok\$/ok $name \1/p" \
        -e "s/^test \([^ ]*\) .*FAILED\$/failed $name \1/p" "$log" >>"$results"
    if [ $status -ne 0 ] && ! grep -q ' FAILED$' "$log"; then
        printf 'failed %s (the run ended with status %d)\n' "$name" $status >>"$results"
    fi
    [ $status -eq 0 ] && rm "$log" "$log.err"
}

for ((number = 1; number <= count; number++)); do
    while IFS=$'\t' read -r program place name; do
        if [ -n "${REPEAT_LOCK:-}" ]; then
            exec 9>"$REPEAT_LOCK"
            flock 9
        fi
        run "$program" "$place" "$name" "$number" ${filter:+"$filter"} "$@" </dev/null
        exec 9>&-
    done <<<"$programs"
done

awk '{ what = $2 " " $3 (NF > 3 ? substr($0, index($0, $3) + length($3)) : "")
       seen[what]; if ($1 == "ok") ok[what]++; else bad[what]++ }
     END { for (what in seen) printf "%4d passed %4d failed  %s\n", ok[what], bad[what], what }' \
    "$results" | sort -k3,3nr -k5
! grep -q '^failed ' "$results"
