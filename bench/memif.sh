#!/usr/bin/env bash
# What one worker carries between two memif ports, with a generator that is not ours:
#
#   capture ─▶ dpdk-testpmd ─memif▶ sluiced (front ─▶ back) ─memif▶ dpdk-testpmd
#
# One lcore of testpmd plays a capture of UDP datagrams of 64 bytes over and over, one a flow, and
# takes what comes out of the director; the director's worker has the other core to itself. All of
# it is one direction of Full NAT: client to real servers. Run it as root:
#
#   bench/memif.sh [--flows N] [--rounds N] [--seconds N] [--burst N] [--zero-copy] [--json]
#
# Everything lives in one network namespace and one directory, and is removed at the end. Every
# packet must be accounted for, or it fails:
#   what testpmd sent = what front received = what back sent + what was dropped, by reason;
#   what back sent = what testpmd received.
set -euo pipefail
cd "$(dirname "$0")/.."

flows=100000 rounds=5 seconds=1 burst=64 zero_copy=no json=
usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit "${1:-0}"; }
while [ $# -gt 0 ]; do
    case $1 in
    --flows) flows=$2; shift ;;
    --rounds) rounds=$2; shift ;;
    --seconds) seconds=$2; shift ;;
    --burst) burst=$2; shift ;;
    --zero-copy) zero_copy=yes ;;
    --json) json=1 ;;
    -h | --help) usage ;;
    *) usage 2 >&2 ;;
    esac
    shift
done

bin=${SLUICE_BIN_DIR:-${CARGO_TARGET_DIR:-target}/release}
name=sl-memif-$$
dir=$(mktemp -d "/tmp/$name.XXXXXX")
vip=198.51.100.200 port=9
sluiced_pid='' testpmd_pid=''

fail() {
    printf 'memif: FAILED: %s\n' "$*" >&2
    for log in "$dir/sluiced.log" "$dir/testpmd.log"; do
        [ -s "$log" ] && printf -- '--- %s\n' "${log##*/}" >&2 && tail -n 15 "$log" >&2
    done
    exit 1
}

# until_true SECONDS WHAT COMMAND…: asks again and again.
until_true() {
    local limit=$((SECONDS + $1)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $limit ] || fail "waited in vain for $what"
        sleep 0.05
    done
}

gone() { ! kill -0 "$1" 2>/dev/null; }

# end PID: asks it to end, and makes it. The generator goes first: DPDK's memif driver does not
# take it well when its peer leaves under traffic.
end() {
    local at
    [ -n "$1" ] || return 0
    kill "$1" 2>/dev/null || return 0
    for at in $(seq 100); do
        gone "$1" && return 0
        sleep 0.05
    done
    kill -KILL "$1" 2>/dev/null || true
}

tidy_up() {
    trap - EXIT
    trap '' INT TERM HUP
    [ -z "$testpmd_pid" ] || say stop
    end "$testpmd_pid"
    end "$sluiced_pid"
    ip netns delete "$name" 2>/dev/null || true
    rm -rf "$dir"
}
trap tidy_up EXIT
trap 'exit 130' INT TERM HUP
# A generator that has gone is not the end of this script, which cleans up.
trap '' PIPE

check_machine() {
    local program
    [ "$(id -u)" -eq 0 ] || fail "network namespaces need root"
    for program in dpdk-testpmd jq python3 ip stdbuf "$bin/sluiced" "$bin/sluice"; do
        command -v "$program" >/dev/null || fail "$program is missing: run \`make build\` first"
    done
    mapfile -t cores < <(taskset -cp $$ | sed 's/.*: //; s/,/\n/g' |
        awk -F- '{ for (core = $1; core <= $NF; core++) print core }')
    [ ${#cores[@]} -ge 2 ] || fail "the generator and the director need a core each"
    generator_core=${cores[-2]} worker_core=${cores[-1]}
}

# Where processes are scheduled by groups (one a session), what others run in theirs takes half of
# a core from one that polls. So each of ours gets a session of its own, of the highest weight.
first() {
    exec setsid sh -c 'echo -20 >/proc/self/autogroup; exec "$@"' sh \
        ip netns exec "$name" "$@" 2>&1
}

write_config() {
    local index real
    printf '[director]\ncores = [%s]\nidle = "busy"\ncontrol_socket = "%s"\nstate_dir = "%s"\n\n' \
        "$worker_core" "$dir/sluice.sock" "$dir/state"
    printf '[limits]\nsessions = %s\n\n' $((flows + flows / 4 + 1000))
    index=0
    for real in front back; do
        printf '[[port]]\nname = "%s"\ntwin = "t%s"\n' $real $real
        printf 'device = "memif:%s,id=%s,role=server"\n\n' "$dir/$real.sock" $index
        index=$((index + 1))
    done
    printf '[[pool]]\nname = "lan"\naddresses = ["192.0.2.64/28"]\n\n'
    printf '[[service]]\nname = "udp"\nprotocol = "udp"\nvip = "%s"\nport = %s\n' $vip $port
    printf 'pool = "lan"\n\n'
    for real in 11 12 13; do printf '[[service.real]]\naddress = "192.0.2.%s"\n\n' $real; done
}

ask() { "$bin/sluice" --socket "$dir/sluice.sock" "$1" --json; }
mac() { ip -n "$name" -j link show dev "$1" | jq -r '.[0].address'; }

# memif has no kernel side: the ports' TAP twins carry the addresses and routes that the director
# follows, and neighbours are told, since nobody would answer for them.
settle() {
    local address
    for address in 198.51.100.1/24 $vip/32; do ip -n "$name" address add $address dev tfront; done
    ip -n "$name" address add 192.0.2.1/24 dev tback
    for address in $(seq 64 79); do
        ip -n "$name" address add "192.0.2.$address/32" dev tback
    done
    for address in tfront tback; do ip -n "$name" link set "$address" up; done
    ip -n "$name" neighbour replace 198.51.100.254 lladdr 02:00:00:00:00:48 dev tfront \
        nud permanent
    ip -n "$name" route replace 203.0.113.0/24 via 198.51.100.254
    for address in 11 12 13; do
        ip -n "$name" neighbour replace "192.0.2.$address" lladdr "02:00:00:00:01:$address" \
            dev tback nud permanent
    done
}

start_director() {
    ip netns add "$name"
    # Otherwise the twins have something of their own to say.
    ip netns exec "$name" sysctl -qw net.ipv6.conf.all.disable_ipv6=1 \
        net.ipv6.conf.default.disable_ipv6=1
    write_config >"$dir/sluice.toml"
    first "$bin/sluiced" --config "$dir/sluice.toml" >"$dir/sluiced.log" &
    sluiced_pid=$!
    until_true 30 "the director to be ready" ask status
    settle
}

say() { printf '%s\n' "$1" >&3 2>/dev/null || true; }
links_up() { ask ports | jq -e '[.ports[].state] | all(. == "up")'; }
# Its packet memory holds the whole capture and what is in flight.
start_testpmd() {
    local option=role=client,socket-abstract=no,rsize=11 memory mbufs=$((flows + 60000)) pages
    local megabytes=$((mbufs * 700 / 1048576 + 128))
    pages=$(awk '/^HugePages_Free:/ { n = $2 } /^Hugepagesize:/ { print int(n * $2 / 1024) }' \
        /proc/meminfo)
    # Zero-copy shares the packet memory by its descriptor, which only huge pages have.
    memory=(--in-memory --single-file-segments -m "$megabytes")
    if [ "$pages" -lt "$megabytes" ]; then
        memory=(--no-huge --no-shconf -m "$megabytes") zero_copy=no
    fi
    option=$option,zero-copy=$zero_copy
    mkfifo "$dir/testpmd.in"
    first stdbuf -oL dpdk-testpmd "${memory[@]}" --no-pci --no-telemetry \
        --file-prefix="$name" --lcores="0@$generator_core,1@$generator_core" \
        --vdev="net_pcap0,rx_pcap=$dir/flows.pcap,infinite_rx=1" \
        --vdev="net_memif0,id=0,socket=$dir/front.sock,$option" \
        --vdev="net_memif1,id=1,socket=$dir/back.sock,$option" \
        -- --interactive --port-topology=chained --forward-mode=io --burst="$burst" \
        --mbuf-size=256 --total-num-mbufs="$mbufs" \
        <"$dir/testpmd.in" >"$dir/testpmd.log" &
    testpmd_pid=$!
    exec 3>"$dir/testpmd.in"
    until_true 30 "testpmd's links" links_up
}

# count PORT DIRECTION: packets that the director counted.
count() { ask ports | jq ".ports[] | select(.name == \"$1\") | .$2.packets"; }

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
    until_true 10 "testpmd's counters" stats_shown "$shown"
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
    until_true 10 "the last packets" drained
}
drained() {
    show_stats
    [ "$(testpmd_count 1 TX-packets)" -eq "$(count front rx)" ] &&
        [ "$(testpmd_count 2 RX-packets)" -eq "$(count back tx)" ]
}

account() {
    local got to_kernel
    sent=$(testpmd_count 1 TX-packets) received=$(testpmd_count 2 RX-packets)
    got=$(count front rx) forwarded=$(count back tx)
    dropped=$(ask drops | jq '[.drops[] | select(.fate == "dropped") | .packets] | add')
    to_kernel=$(ask drops | jq '[.drops[] | select(.fate == "kernel") | .packets] | add')
    reasons=$(ask drops | jq -c '[.drops[] | select(.packets > 0) | {(.reason): .packets}] | add')
    [ "$sent" -eq "$got" ] || fail "testpmd sent $sent packets, front received $got"
    [ "$got" -eq $((forwarded + dropped + to_kernel)) ] ||
        fail "of $got packets $forwarded were forwarded, $dropped dropped, $to_kernel not ours"
    [ "$forwarded" -eq "$received" ] || fail "back sent $forwarded, testpmd received $received"
    [ "$to_kernel" -eq 0 ] || fail "$to_kernel packets were given to the kernel: $reasons"
}

report() {
    local commit cpu
    commit=$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
    cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
    if [ -n "$json" ]; then
        jq -n --arg cpu "$cpu" --arg kernel "$(uname -r)" --arg commit "$commit" \
            --arg zero_copy "$zero_copy" --argjson flows "$flows" --argjson rounds "$rounds" \
            --argjson seconds "$seconds" --argjson burst "$burst" --argjson mpps "$(spread 1)" \
            --argjson core "$(spread 2)" --argjson busy "$busy" \
            --argjson sent "$sent" --argjson received "$received" \
            --argjson dropped "$dropped" --argjson reasons "$reasons" \
            '{machine: {cpu: $cpu, kernel: $kernel}, commit: $commit, mode: "fnat", frame: 64,
              flows: $flows, rounds: $rounds, seconds: $seconds, burst: $burst,
              zero_copy: ($zero_copy == "yes"), mpps: $mpps,
              worker: {core_share: $core, busy_share: $busy},
              packets: {sent: $sent, received: $received, dropped: $dropped, reasons: $reasons}}'
        return
    fi
    printf '%s, kernel %s, commit %s\n' "$cpu" "$(uname -r)" "$commit"
    printf 'FNAT, UDP, 64 bytes, %s flows, one direction; ' "$flows"
    printf 'testpmd: bursts of %s, zero-copy %s\n' "$burst" "$zero_copy"
    printf 'median (least-most) of %s rounds of %s s\n\n' "$rounds" "$seconds"
    printf 'forwarded      %s Mpps\n' "$(shown 1)"
    printf 'worker         had %s of its core; packets at hand in %s of the time\n' \
        "$(shown 2)" "$busy"
    printf 'sent           %s\nreceived       %s\ndropped        %s %s\n' \
        "$sent" "$received" "$dropped" "$reasons"
    printf 'accounting     every packet is accounted for\n'
}

check_machine
start_director
python3 bench/memif-flows.py "$dir/flows.pcap" "$flows" 02:00:00:00:00:48 "$(mac tfront)" \
    $vip $port
start_testpmd
measure
drain
account
report
