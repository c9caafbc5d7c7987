#!/usr/bin/env bash
# Holds the instructions that the worker's turns take for fixed workloads against those in
# bench/instructions.txt: a regression shows whatever else the machine does. callgrind counts them
# in a sluice-bench that is built; the same program gives the same number within a few thousandths
# of a percent, the same source with another compiler may not.
#   packaging/instructions.sh PROFILE            fails where one takes over 3 % more
#   packaging/instructions.sh PROFILE --update   writes what is counted
# PROFILE is dev (what tests are built with; it shows that the path does more) or release (what
# users get; it also shows that the compiler makes more of the same source).
set -uo pipefail
cd "$(dirname "$0")/.."
committed=bench/instructions.txt
case "${1-}" in
dev) built=debug ;;
release) built=release ;;
*) echo "instructions: the profile is missing: dev or release" >&2 && exit 2 ;;
esac
profile=$1
bench=${CARGO_TARGET_DIR:-target}/$built/sluice-bench
margin=3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A name, and what sluice-bench is asked to do.
workloads() {
    local least='--seconds 0.01 --pages ordinary --json' few='--frames 256'
    echo "fnat4-udp throughput --sessions 1k $few $least"
    echo "fnat4-tcp throughput --sessions 1k --protocol tcp $few $least"
    echo "nat4-udp throughput --mode nat --sessions 1k $few $least"
    echo "dr4-udp throughput --mode dr --sessions 1k $few $least"
    echo "ipip4-udp throughput --mode ipip --sessions 1k $few $least"
    echo "fnat6-udp throughput --family 6 --sessions 1k $few $least"
    echo "fnat6-tcp throughput --family 6 --sessions 1k --protocol tcp $few $least"
    echo "dr6-udp throughput --family 6 --mode dr --sessions 1k $few $least"
    echo "snat4-udp throughput --mode snat --sessions 1k $few $least"
    echo "elephant throughput --elephant 1 --sessions 1k $few $least"
    echo "fnat4-connections cps --group 64 --sessions 1k $least"
    echo "nat4-connections cps --mode nat --group 64 --sessions 1k $least"
}

# count NAME ARGUMENT…: instructions within the worker's turns, and the level of its kernels.
count() {
    local name=$1
    shift
    valgrind --tool=callgrind --callgrind-out-file="$work/$name" \
        --toggle-collect='sluice_worker::worker::Worker*::turn*' \
        "$bench" "$@" >"$work/$name.json" 2>"$work/$name.log" || {
        cat "$work/$name.log" >&2
        return 1
    }
    local counted
    counted=$(sed -n 's/^totals: //p' "$work/$name")
    [ "${counted:-0}" -gt 0 ] || { echo "$name: nothing was counted" >&2; return 1; }
    echo "$profile $(jq -r .machine.kernels "$work/$name.json") $name $counted"
}

if [ ! -x "$bench" ]; then
    echo "$bench is missing: cargo build --profile $profile -p sluice-bench" >&2
    exit 1
fi
while read -r name arguments; do
    # shellcheck disable=SC2086 # they are words
    count "$name" $arguments || exit 1
done < <(workloads) >"$work/counted"

level=$(awk 'NR == 1 { print $1 " " $2 }' "$work/counted")
if [ "${2:-}" = --update ]; then
    { grep '^#' "$committed"; grep -v "^#\|^$level " "$committed"; cat "$work/counted"; } \
        >"$work/new" && cp "$work/new" "$committed"
    exit
fi
if ! grep -q "^$level " "$committed"; then
    echo "skipped: $committed has nothing for $level (profile, level of the kernels)"
    exit 0
fi
awk -v margin=$margin -v profile="$profile" '
    NR == FNR { if ($0 !~ /^#/) known[$1 " " $2 " " $3] = $4; next }
    {
        was = known[$1 " " $2 " " $3]
        if (!was) { printf "%-20s %12d  not in bench/instructions.txt\n", $3, $4; bad++; next }
        change = ($4 / was - 1) * 100
        more = change > margin
        bad += more
        printf "%-20s %12d  %+6.2f %%%s\n", $3, $4, change, more ? "  too many" : ""
        less = less || change < -margin
    }
    END {
        update = "packaging/instructions.sh " profile " --update"
        if (less) print "Some take less: " update " makes that the mark."
        exit bad > 0
    }' "$committed" "$work/counted"
