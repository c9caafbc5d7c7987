#!/usr/bin/env bash
# What one worker carries between two ports, with a generator that is not ours:
#
#   capture ─▶ dpdk-testpmd ─wire▶ sluiced (front ─▶ back) ─wire▶ dpdk-testpmd
#
# One lcore of testpmd plays a capture of UDP datagrams of 64 bytes over and over, one a flow, and
# takes what comes out of the director; the director's worker has the other core to itself. All of
# it is one direction of Full NAT: client to real servers. The wire is memif, or a pair of virtual
# Ethernet interfaces with packet sockets at both ends (af_packet). Run it as root:
#
#   bench/testpmd.sh [--wire memif|af_packet] [--flows N] [--rounds N] [--seconds N] [--burst N]
#       [--zero-copy] [--driver own|dpdk] [--json]
#
# --driver says whose memif driver the director has: its own, or DPDK's for comparison.
#
# Everything lives in one network namespace and one directory, and is removed at the end. Every
# packet must be accounted for, or it fails:
#   what testpmd sent = what front received + what the kernel dropped on the way (af_packet only:
#       front's packet socket has a ring of its own, and what it has no room for is lost);
#   what front received = what back sent + what was dropped, by reason;
#   what back sent = what testpmd received + what the kernel dropped on the way.
set -euo pipefail
cd "$(dirname "$0")/.."

script=testpmd clients=203.0.113.0/24
wire=memif flows=100000 rounds=5 seconds=1 burst=64 zero_copy=no driver=own json=
usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit "${1:-0}"; }
while [ $# -gt 0 ]; do
    case $1 in
    --wire) wire=$2; shift ;;
    --flows) flows=$2; shift ;;
    --rounds) rounds=$2; shift ;;
    --seconds) seconds=$2; shift ;;
    --burst) burst=$2; shift ;;
    --zero-copy) zero_copy=yes ;;
    --driver) driver=$2; shift ;;
    --json) json=1 ;;
    -h | --help) usage ;;
    *) usage 2 >&2 ;;
    esac
    shift
done
case $wire in memif | af_packet) ;; *) usage 2 >&2 ;; esac
case $driver in own | dpdk) ;; *) usage 2 >&2 ;; esac
sessions=$flows

# shellcheck source=bench/bed.sh
. bench/bed.sh
before_the_end() { [ -z "$generator_pid" ] || say stop; }

say() { printf '%s\n' "$1" >&3 2>/dev/null || true; }
# Its packet memory holds the whole capture and what is in flight.
start_testpmd() {
    local memory ends mbufs=$((flows + 60000)) room=256 pages megabytes
    # A packet socket's frames must fit whole into a buffer.
    [ "$wire" = memif ] || room=2304
    megabytes=$((mbufs * (room + 444) / 1048576 + 128))
    pages=$(awk '/^HugePages_Free:/ { n = $2 } /^Hugepagesize:/ { print int(n * $2 / 1024) }' \
        /proc/meminfo)
    # Zero-copy shares the packet memory by its descriptor, which only huge pages have.
    memory=(--in-memory --single-file-segments -m "$megabytes")
    if [ "$pages" -lt "$megabytes" ]; then
        memory=(--no-huge --no-shconf -m "$megabytes") zero_copy=no
    fi
    if [ "$wire" = memif ]; then
        local option=role=client,socket-abstract=no,rsize=11,zero-copy=$zero_copy
        ends=("--vdev=net_memif0,id=0,socket=$dir/front.sock,$option"
            "--vdev=net_memif1,id=1,socket=$dir/back.sock,$option")
    else
        local option=framesz=2048,blocksz=65536,framecnt=2048
        ends=("--vdev=net_af_packet0,iface=gfront,$option"
            "--vdev=net_af_packet1,iface=gback,$option") zero_copy=no
    fi
    mkfifo "$dir/testpmd.in"
    first stdbuf -oL dpdk-testpmd "${memory[@]}" --no-pci --no-telemetry \
        --file-prefix="$name" --lcores="0@$generator_core,1@$generator_core" \
        --vdev="net_pcap0,rx_pcap=$dir/flows.pcap,infinite_rx=1" \
        "${ends[@]}" \
        -- --interactive --port-topology=chained --forward-mode=io --burst="$burst" \
        --mbuf-size=$room --total-num-mbufs="$mbufs" \
        <"$dir/testpmd.in" >"$dir/testpmd.log" 2>&1 &
    generator_pid=$!
    exec 3>"$dir/testpmd.in"
    until_true 30 "testpmd's links" links_up
}

# testpmd_count PORT FIELD: from its last `show port stats`.
testpmd_count() {
    awk -v port="$1" -v field="$2:" '
        /tatistics for / { at = $2 == "NIC" ? $6 : "" }
        at == port { for (i = 1; i < NF; i++) if ($i == field) found = $(i + 1) }
        END { print found + 0 }' "$dir/testpmd.log"
}

# Asks testpmd for its counters and waits until it has said them all.
show_stats() {
    local shown
    shown=$(grep -c Tx-pps: "$dir/testpmd.log" || true)
    say 'show port stats 1'
    say 'show port stats 2'
    until_true 30 "testpmd's counters" stats_shown "$shown"
}
stats_shown() {
    # The last line of a port's counters, twice.
    [ "$(grep -c Tx-pps: "$dir/testpmd.log")" -ge $(($1 + 2)) ]
}

# thread PID NAME: the number of a process's thread.
thread() { grep -l "^$2" /proc/"$1"/task/*/comm | cut -d/ -f5; }

# Nanoseconds that the worker ran.
worker_ns() { awk '{ print $1 }' "/proc/$sluiced_pid/task/$worker/schedstat"; }
all_open() { [ "$(ask status | jq .sessions.live)" -ge "$flows" ]; }
sample() { printf '%s %s %s\n' "$(date +%s%N)" "$(worker_ns)" "$(count back tx)"; }

# Seconds that the worker had packets at hand, so far, and those since the start, of which it
# tells the share.
busy_seconds() { ask status | jq -r '"\(.workers[0].busy_share * .uptime_s) \(.uptime_s)"'; }

# Each round adds a line: Mpps, and the share of its core that the worker had.
measure() {
    local round from to busy_from
    worker=$(thread "$sluiced_pid" worker)
    say start
    until_true 60 "all flows to have a session" all_open
    busy_from=$(busy_seconds)
    for round in $(seq "$rounds"); do
        from=$(sample)
        # Not a wait for something to happen: the span is what is measured.
        sleep "$seconds"
        to=$(sample)
        echo "$from $to" | awk '{ printf "%.2f %.2f\n", ($6 - $3) / ($4 - $1) * 1000,
            ($5 - $2) / ($4 - $1) }'
    done >"$dir/rounds"
    stages=$(ask stages | jq -c '.workers[0] | .timed_packets as $packets |
        [.stages[] | {(.stage): (.ticks / $packets * 10 | round / 10)}] | add')
    busy=$(echo "$busy_from $(busy_seconds)" | awk '{ printf "%.2f", ($3 - $1) / ($4 - $2) }')
}

# spread COLUMN: median, least and most of the rounds, as JSON.
spread() {
    cut -d' ' -f"$1" "$dir/rounds" | sort -n | jq -cs '
        {median: .[length / 2 | floor], min: first, max: last}'
}
shown() { spread "$1" | jq -r '"\(.median) (\(.min)-\(.max))"'; }

# Stops sending, then only receives until nothing is on the way any more.
drain() {
    say stop
    say 'set fwd rxonly'
    say start
    until_true 60 "the last packets" drained
}
drained() {
    show_stats
    local before=${seen:-}
    seen="$(count front rx) $(testpmd_count 2 RX-packets)"
    [ "$wire" = af_packet ] && [ "$seen" = "$before" ] && return 0
    [ "$(testpmd_count 1 TX-packets)" -eq "$(count front rx)" ] &&
        [ "$(testpmd_count 2 RX-packets)" -eq "$(count back tx)" ]
}

# lost FROM TO: what the kernel dropped between two counts; over memif nothing may be.
lost() {
    [ "$1" -ge "$2" ] || fail "more came ($2) than was sent ($1)"
    [ "$wire" = af_packet ] || [ "$1" -eq "$2" ] || fail "$1 were sent, $2 came"
    echo $(($1 - $2))
}

account() {
    local got to_kernel
    sent=$(testpmd_count 1 TX-packets) received=$(testpmd_count 2 RX-packets)
    got=$(count front rx) forwarded=$(count back tx)
    dropped=$(fate dropped) to_kernel=$(fate kernel) reasons=$(reasons)
    lost_in=$(lost "$sent" "$got")
    lost_out=$(lost "$forwarded" "$received")
    [ "$got" -eq $((forwarded + dropped + to_kernel)) ] ||
        fail "of $got packets $forwarded were forwarded, $dropped dropped, $to_kernel not ours"
    [ "$to_kernel" -eq 0 ] || fail "$to_kernel packets were given to the kernel: $reasons"
}

report() {
    local commit cpu
    commit=$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
    cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
    if [ -n "$json" ]; then
        jq -n --arg cpu "$cpu" --arg kernel "$(uname -r)" --arg commit "$commit" \
            --arg zero_copy "$zero_copy" --arg wire "$wire" --arg driver "$driver" \
            --argjson flows "$flows" --argjson rounds "$rounds" \
            --argjson seconds "$seconds" --argjson burst "$burst" --argjson mpps "$(spread 1)" \
            --argjson core "$(spread 2)" --argjson busy "$busy" \
            --argjson stages "$stages" --argjson sent "$sent" --argjson received "$received" \
            --argjson dropped "$dropped" --argjson reasons "$reasons" \
            --argjson lost_in "$lost_in" --argjson lost_out "$lost_out" \
            '{machine: {cpu: $cpu, kernel: $kernel}, commit: $commit, wire: $wire, driver: $driver,
              mode: "fnat",
              frame: 64, flows: $flows, rounds: $rounds, seconds: $seconds, burst: $burst,
              zero_copy: ($zero_copy == "yes"), mpps: $mpps,
              worker: {core_share: $core, busy_share: $busy, ticks_a_packet: $stages},
              packets: {sent: $sent, received: $received, dropped: $dropped, reasons: $reasons,
                        lost_by_kernel: {front: $lost_in, back: $lost_out}}}'
        return
    fi
    printf '%s, kernel %s, commit %s\n' "$cpu" "$(uname -r)" "$commit"
    printf 'FNAT, UDP, 64 bytes, %s flows, one direction, %s, driver %s; ' \
        "$flows" "$wire" "$driver"
    printf 'testpmd: bursts of %s, zero-copy %s\n' "$burst" "$zero_copy"
    printf 'median (least-most) of %s rounds of %s s\n\n' "$rounds" "$seconds"
    printf 'forwarded      %s Mpps\n' "$(shown 1)"
    printf 'worker         had %s of its core; packets at hand in %s of the time\n' \
        "$(shown 2)" "$busy"
    printf 'ticks a packet %s\n' "$stages"
    printf 'sent           %s\nreceived       %s\ndropped        %s %s\n' \
        "$sent" "$received" "$dropped" "$reasons"
    [ "$wire" = memif ] ||
        printf 'lost in sockets %s before the director, %s behind it\n' "$lost_in" "$lost_out"
    printf 'accounting     every packet is accounted for\n'
}

check_machine dpdk-testpmd python3 stdbuf
make_namespace
lay_wires
start_director
python3 bench/testpmd-flows.py "$dir/flows.pcap" "$flows" $router_mac "$(mac tfront)" $vip $port
start_testpmd
measure
drain
account
report
