# Sourced by the scripts that put a director between the two ports of a generator:
#
#   generator ─▶ front │ sluiced │ back ─▶ generator
#
# One network namespace and one directory hold all of it, and both are removed at the end. The
# director's ports have TAP twins, which carry the addresses and routes that it follows; neighbours
# are told, since nobody would answer for them. The script that sources this sets `script`, its
# name for messages; `wire`, memif or af_packet; `clients`, the prefix that clients are in;
# `sessions`; and `writer`, if the director's configuration is not that of `write_config` alone.
# shellcheck shell=bash disable=SC2154 # set by those

bin=${SLUICE_BIN_DIR:-${CARGO_TARGET_DIR:-target}/release}
name=sl-bench-$$
dir=$(mktemp -d "/tmp/$name.XXXXXX")
vip=198.51.100.200 port=9
# What stands for the clients' router; real servers have 02:00:00:00:01:NN.
router_mac=02:00:00:00:00:48
sluiced_pid='' generator_pid=''

fail() {
    local log
    printf '%s: FAILED: %s\n' "$script" "$*" >&2
    for log in "$dir"/*.log; do
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

# end PID: asks it to end, and makes it. The generator goes first: DPDK's memif driver, where it is
# the director's, does not take it well when its peer leaves under traffic.
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

# A script with more to end than the processes defines this anew.
before_the_end() { :; }

tidy_up() {
    trap - EXIT
    trap '' INT TERM HUP
    before_the_end
    end "$generator_pid"
    end "$sluiced_pid"
    # What a script has lost sight of would run for ever.
    mapfile -t left < <(ip netns pids "$name" 2>/dev/null)
    [ ${#left[@]} -eq 0 ] || kill -KILL "${left[@]}" 2>/dev/null || true
    ip netns delete "$name" 2>/dev/null || true
    rm -rf "$dir"
}
trap tidy_up EXIT
trap 'exit 130' INT TERM HUP
# A generator that has gone is not the end of a script, which cleans up.
trap '' PIPE

# check_machine PROGRAM…: root, programs, and a core each for the generator and the director.
check_machine() {
    local program
    [ "$(id -u)" -eq 0 ] || fail "network namespaces need root"
    for program in jq ip "$bin/sluiced" "$bin/sluice" "$@"; do
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
        ip netns exec "$name" "$@"
}

# write_config FRONT BACK: the devices of its ports.
write_config() {
    local real
    printf '[director]\ncores = [%s]\nidle = "busy"\ncontrol_socket = "%s"\nstate_dir = "%s"\n\n' \
        "$worker_core" "$dir/sluice.sock" "$dir/state"
    # Flows that nobody answers age within seconds where they fill a quarter of the table.
    printf '[limits]\nsessions = %s\n\n' $((sessions * 17 / 4 + 1000))
    printf '[[port]]\nname = "front"\ntwin = "tfront"\ndevice = "%s"\n\n' "$1"
    printf '[[port]]\nname = "back"\ntwin = "tback"\ndevice = "%s"\n\n' "$2"
    printf '[[pool]]\nname = "lan"\naddresses = ["192.0.2.64/28"]\n\n'
    printf '[[service]]\nname = "udp"\nprotocol = "udp"\nvip = "%s"\nport = %s\n' $vip $port
    printf 'pool = "lan"\n\n'
    for real in 11 12 13; do printf '[[service.real]]\naddress = "192.0.2.%s"\n\n' $real; done
}

ask() { "$bin/sluice" --socket "$dir/sluice.sock" "$1" --json; }
mac() { ip -n "$name" -j link show dev "$1" | jq -r '.[0].address'; }
links_up() { ask ports | jq -e '[.ports[].state] | all(. == "up")'; }

# count PORT DIRECTION: packets that the director counted.
count() { ask ports | jq ".ports[] | select(.name == \"$1\") | .$2.packets"; }

# Packets by their fate: dropped, kernel.
fate() { ask drops | jq "[.drops[] | select(.fate == \"$1\") | .packets] | add"; }
reasons() { ask drops | jq -c '[.drops[] | select(.packets > 0) | {(.reason): .packets}] | add'; }

# Neighbours come before addresses, so that the director never asks anybody for one: what it asks
# would be a packet that no generator has sent.
settle() {
    local address
    for address in tfront tback; do ip -n "$name" link set "$address" up; done
    ip -n "$name" neighbour replace 198.51.100.254 lladdr $router_mac dev tfront nud permanent
    for address in 11 12 13; do
        ip -n "$name" neighbour replace "192.0.2.$address" lladdr "02:00:00:00:01:$address" \
            dev tback nud permanent
    done
    for address in 198.51.100.1/24 $vip/32; do ip -n "$name" address add $address dev tfront; done
    ip -n "$name" address add 192.0.2.1/24 dev tback
    for address in $(seq 64 79); do
        ip -n "$name" address add "192.0.2.$address/32" dev tback
    done
    ip -n "$name" route replace "$clients" via 198.51.100.254
}

make_namespace() {
    ip netns add "$name"
    # Otherwise the interfaces have something of their own to say.
    ip netns exec "$name" sysctl -qw net.ipv6.conf.all.disable_ipv6=1 \
        net.ipv6.conf.default.disable_ipv6=1
}

# What the ports sit on: memif's sockets, or virtual Ethernet, whose other ends (gfront, gback) are
# the generator's. No end has an address: nothing but packet sockets is to take what comes.
lay_wires() {
    local end
    if [ "$wire" = memif ]; then
        front_device=memif:$dir/front.sock,id=0 back_device=memif:$dir/back.sock,id=1
        return
    fi
    front_device=af_packet:front back_device=af_packet:back
    for end in front back; do
        ip -n "$name" link add $end type veth peer name g$end
        ip -n "$name" link set $end up
        ip -n "$name" link set g$end up
    done
}

# by_dpdk NUMBER MEMIF ROLE: the same interface by DPDK's driver instead of ours.
by_dpdk() {
    local what=${2#memif:}
    printf 'dpdk:net_memif%s,role=%s,%s,socket=%s,socket-abstract=no,rsize=11' \
        "$1" "$3" "${what#*,}" "${what%%,*}"
}

start_director() {
    local front=$front_device back=$back_device
    if [ "$wire" = memif ] && [ "${driver:-own}" = dpdk ]; then
        front=$(by_dpdk 0 "$front" server) back=$(by_dpdk 1 "$back" server)
    elif [ "$wire" = memif ]; then
        front+=,role=server back+=,role=server
        if [ "${copy:-cpu}" = dma ]; then
            front+=,copy=dma,dma_device=dma_skeleton back+=,copy=dma,dma_device=dma_skeleton
        fi
    fi
    "${writer:-write_config}" "$front" "$back" >"$dir/sluice.toml"
    first "$bin/sluiced" --config "$dir/sluice.toml" >"$dir/sluiced.log" 2>&1 &
    sluiced_pid=$!
    until_true 30 "the director to be ready" ask status
    settle
}
