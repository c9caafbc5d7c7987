#!/usr/bin/env bash
# Runs the whole suite, keeps each result as JSON in bench/results, and renders docs/suite.md with
# its plots.
#   RUNS=3        runs of each setting
#   SPAN_S=0.7    seconds that each measures
#   NICE=-20      nice value of the benchmark's scheduling group; empty: leave it as it is
#   LARGE=256M    sessions of the largest run; left out where memory is short, empty: never run
#   ONLY='a b'    only these results, by the names of their files
set -euo pipefail
cd "$(dirname "$0")/.."
bench=${BENCH:-target/release/sluice-bench}
runs=${RUNS:-3}
span=${SPAN_S:-0.7}
nice=${NICE--20}
large=${LARGE-256M}
results=bench/results
[ -x "$bench" ] || { echo "$bench is missing: make build" >&2; exit 1; }
# Written elsewhere first: a result that changed here would mark the commit of the next one.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# result NAME ARGUMENT…: one command's JSON.
result() {
    local name=$1
    shift
    case " ${ONLY-$name} " in *" $name "*) ;; *) return 0 ;; esac
    echo "$name: sluice-bench $*" >&2
    "$bench" "$@" ${nice:+--nice=$nice} --json >"$work/$name.json"
}

turns="--repeats $runs --seconds $span"
# shellcheck disable=SC2086 # they are words
{
    result mix mix $turns
    result memory memory $turns
    result elephant elephant $turns
    result scaling scaling $turns
    result latency latency $turns
    result churn churn --seconds 24
    for mode in fnat nat dr ipip snat; do
        for family in 4 6; do
            result "cps-$mode-$family" cps --mode "$mode" --family "$family" --seconds 2
        done
    done
    result matrix matrix $turns --workers "$([ "$(nproc)" -ge 2 ] && echo 1,2 || echo 1)"
    # A session takes 62 bytes, and the generator 6 more to know it.
    free=$(awk '/^MemAvailable/ { print int($2 / 1048576) }' /proc/meminfo)
    if [ -n "$large" ] && [ "$free" -ge 16 ]; then
        result "memory-$large" memory --families 4 --sessions "$large" --repeats 1 --seconds 10
    elif [ -n "$large" ]; then
        echo "memory-$large: left out, $free GiB of memory are free and 16 are needed" >&2
    fi
}
# Three minutes of trials at most; in namespaces, so that it needs root.
case " ${ONLY-rfc2544} " in *" rfc2544 "*)
    if [ "$(id -u)" -eq 0 ]; then
        echo "rfc2544: bench/rfc2544.sh" >&2
        SLUICE_BIN_DIR=$(dirname "$bench") bench/rfc2544.sh --size 64,512,1518,imix --duration 0.5 \
            --duration-sum 1.5 --trials 60 --json >"$work/rfc2544.json"
    else
        echo "rfc2544: left out, network namespaces need root" >&2
    fi
    ;;
esac
mkdir -p "$results"
cp "$work"/*.json "$results/"
"$bench" plot "$results" --out docs/plots --page docs/suite.md
