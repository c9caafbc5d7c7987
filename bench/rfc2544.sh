#!/usr/bin/env bash
# RFC 2544's throughput of one worker between two ports: MAX, PDR and NDR by size.
#
#   sluice-bench rfc2544 ─wire▶ sluiced (front ─▶ back) ─wire▶ sluice-bench rfc2544
#
# Generator and receiver take turns on one core; the director's worker has another. Full NAT, UDP.
# Run it as root:
#
#   bench/rfc2544.sh [--wire memif|af_packet] [--sessions N] [--cores N[,N]] [--check]
#       [--driver own|dpdk] [--generator-driver own|dpdk] [--copy cpu|dma] [OPTION…]
#
# The drivers are of memif: our own, or DPDK's for comparison. With `--copy dma` the director's
# frames are copied by dma_skeleton, a thread in place of a copy engine.
#
# Options that are not its own go to `sluice-bench rfc2544` (`--help` has them): --size, --json,
# --directions, --duration and others. Everything lives in one network namespace and one directory,
# and is removed at the end. With --check, which needs memif and --json, the director's counters and
# the generator's must agree to the packet, or it fails.
set -euo pipefail
cd "$(dirname "$0")/.."

script=rfc2544 wire=memif tries=0 sessions=100000 check='' generator_cores=''
driver=own generator_driver=own copy=cpu clients=198.18.0.0/16
options=() said=("$@")
usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit "${1:-0}"; }
while [ $# -gt 0 ]; do
    case $1 in
    --wire) wire=$2; shift ;;
    --sessions) sessions=$2; shift ;;
    --cores) generator_cores=$2; shift ;;
    --check) check=1 ;;
    --driver) driver=$2; shift ;;
    --copy) copy=$2; shift ;;
    --generator-driver) generator_driver=$2; shift ;;
    -h | --help) usage ;;
    *) options+=("$1") ;;
    esac
    shift
done
case $wire,$driver,$generator_driver in
memif,own,own | memif,own,dpdk | memif,dpdk,own | memif,dpdk,dpdk | af_packet,own,own) ;;
*) usage 2 >&2 ;;
esac
case $wire,$driver,$copy in *,cpu | memif,own,dma) ;; *) usage 2 >&2 ;; esac
[[ $sessions =~ ^[0-9]+$ ]] || usage 2 >&2

# shellcheck source=bench/bed.sh
. bench/bed.sh

# generate RESULT: the search itself.
generate() {
    local front=${front_device/:front/:gfront} back=${back_device/:back/:gback}
    if [ "$wire" = memif ] && [ "$generator_driver" = dpdk ]; then
        front=$(by_dpdk 0 "$front" client) back=$(by_dpdk 1 "$back" client)
    fi
    first "$bin/sluice-bench" rfc2544 --port "$front" --port "$back" \
        --director-mac "$(mac tfront)" --vip $vip:$port --sessions "$sessions" \
        --cores "${generator_cores:-$generator_core}" --about "$about" "${options[@]}" \
        >"$1" 2> >(tee "$dir/generator.log" >&2) &
    generator_pid=$!
    wait "$generator_pid" || fail "the generator ended with $?"
    generator_pid=''
}

# The director's side of it. The counters of DPDK's memif begin anew when its peer leaves, those of
# services and drops do not: what the generator's rings took, opening frames included, is what the
# service had and what was dropped before it; what they gave is what the service had and the ports
# could send.
account() {
    took=$(ask services | jq '[.services[].packets | .inbound + .outbound] | add')
    full=$(ask drops | jq '[.drops[] | select(.reason == "tx_full") | .packets] | add // 0')
    dropped=$(fate dropped) kernel=$(fate kernel)
    sent=$(jq '[.ports[].tx_frames] | add' "$dir/result")
    received=$(jq '[.ports[].rx_frames] | add' "$dir/result")
    [ "$kernel" -eq 0 ] && [ "$sent" -eq $((took + dropped - full)) ] &&
        [ "$received" -eq $((took - full)) ]
}

compare() {
    local took full dropped kernel sent received
    # The last of the counters may be on their way.
    until account 2>/dev/null || [ $((tries += 1)) -gt 40 ]; do sleep 0.05; done
    printf 'generator: %s sent, %s received; director: %s of the service, %s dropped: %s\n' \
        "$sent" "$received" "$took" "$dropped" "$(reasons)" >&2
    account || fail "the counters do not agree"
}

about="FNAT over $wire: one worker with a core, the generator with another"
check_machine "$bin/sluice-bench"
make_namespace
lay_wires
start_director
generate "$dir/result"
[ -z "$check" ] || compare
# What can be typed again.
if jq -e .command "$dir/result" >/dev/null 2>&1; then
    jq --arg said "bench/rfc2544.sh ${said[*]}" '.command_line = $said' "$dir/result"
else
    cat "$dir/result"
fi
