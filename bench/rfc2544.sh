#!/usr/bin/env bash
# RFC 2544's throughput of one worker between two memif ports: MAX, PDR and NDR by size.
#
#   sluice-bench rfc2544 ─memif▶ sluiced (front ─▶ back) ─memif▶ sluice-bench rfc2544
#
# Generator and receiver take turns on one core; the director's worker has another. Full NAT, UDP.
# Run it as root:
#
#   bench/rfc2544.sh [--sessions N] [--check] [OPTION…]
#
# Options that are not its own go to `sluice-bench rfc2544` (`--help` has them): --size, --directions,
# --duration, --json and others. Everything lives in one network namespace and one directory, and is
# removed at the end. Every packet that the director took must be accounted for; with --check, which
# needs --json, its counters and the generator's must agree to the packet.
set -euo pipefail
cd "$(dirname "$0")/.."

script=rfc2544 sessions=100000 check='' clients=198.18.0.0/16
options=()
usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit "${1:-0}"; }
while [ $# -gt 0 ]; do
    case $1 in
    --sessions) sessions=$2; shift ;;
    --check) check=1 ;;
    -h | --help) usage ;;
    *) options+=("$1") ;;
    esac
    shift
done
[[ $sessions =~ ^[0-9]+$ ]] || usage 2 >&2

# shellcheck source=bench/bed.sh
. bench/bed.sh

# generate RESULT: the search itself.
generate() {
    first "$bin/sluice-bench" rfc2544 --port "memif:$dir/front.sock,id=0,role=client" \
        --port "memif:$dir/back.sock,id=1,role=client" --director-mac "$(mac tfront)" \
        --vip $vip:$port --sessions "$sessions" --cores "$generator_core" \
        --about "$about" "${options[@]}" >"$1" 2> >(tee "$dir/generator.log" >&2) &
    generator_pid=$!
    wait "$generator_pid" || fail "the generator ended with $?"
    generator_pid=''
}

# compare: what the generator's ports counted is what the director's did, opening frames included.
compare() {
    local at port way counted
    at=0
    for port in front back; do
        for way in rx tx; do
            counted=$(jq ".ports[$at].$([ $way = rx ] && echo tx || echo rx)_frames" "$dir/result")
            [ "$counted" -eq "$(count $port $way)" ] ||
                fail "$port $way: the director counted $(count $port $way), the generator $counted"
        done
        at=$((at + 1))
    done
}

# The generator knows what its rings took and gave; opening sessions is in the director's counters
# only. Every packet that the director took must have gone somewhere.
account() {
    local got forwarded dropped kernel
    got=$(($(count front rx) + $(count back rx)))
    forwarded=$(($(count front tx) + $(count back tx)))
    dropped=$(fate dropped) kernel=$(fate kernel)
    printf 'the director took %s packets, sent %s, dropped %s: %s\n' \
        "$got" "$forwarded" "$dropped" "$(reasons)" >&2
    [ "$got" -eq $((forwarded + dropped + kernel)) ] ||
        fail "of $got packets $forwarded were forwarded, $dropped dropped, $kernel not ours"
    [ -z "$check" ] || compare
    [ "$kernel" -eq 0 ] || fail "$kernel packets were given to the kernel: $(reasons)"
}

about='FNAT over memif: one worker with a core, the generator with another'
check_machine "$bin/sluice-bench"
make_namespace
start_director "memif:$dir/front.sock,id=0,role=server" "memif:$dir/back.sock,id=1,role=server"
generate "$dir/result"
cat "$dir/result"
account
