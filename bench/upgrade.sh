#!/usr/bin/env bash
# What an upgrade of a running director costs that has many sessions:
#
#   sluice-bench rfc2544 ─AF_PACKET▶ director ─AF_PACKET▶ sluice-bench rfc2544
#
# Sessions are opened, and 20,000 packets a second are sent by all of them in turn from then on, and
# as many answers. Meanwhile the director hands over to a new process twice:
# once to a program that reads its slots, and once to one of another layout, which imports the
# sessions by addresses. (The layout's number is changed in the file that names the slots.) Shown is
# what `sluice ha upgrade` says. At last the director is killed and started again. Run it as root:
#
#   bench/upgrade.sh [--sessions N] [--rate N] [--json]
#
#   --sessions   sessions that are opened: 1000000
#   --rate       of them in a second: 20000
#   --json       one JSON object
#
# The director's worker has a core of its own; the generator and the new process share another.
# Everything lives in one network namespace and one
# directory, and is removed at the end.
set -euo pipefail
cd "$(dirname "$0")/.."

script=upgrade wire=af_packet sessions=1000000 rate=20000 json='' clients=198.18.0.0/16
usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit "${1:-0}"; }
while [ $# -gt 0 ]; do
    case $1 in
    --sessions | --rate)
        [ $# -ge 2 ] || usage 2 >&2
        declare "${1#--}=$2" && shift
        ;;
    --json) json=1 ;;
    -h | --help) usage ;;
    *) usage 2 >&2 ;;
    esac
    shift
done
for number in "$sessions" "$rate"; do [[ $number =~ ^[1-9][0-9]*$ ]] || usage 2 >&2; done

# shellcheck source=bench/bed.sh
. bench/bed.sh
say() { printf '%s: %s\n' "$script" "$*" >&2; }
upgrade() { "$bin/sluice" --socket "$dir/sluice.sock" ha upgrade --json; }
live() { ask status | jq .sessions.live; }

# The file of names begins with a line of text: layout, length, CRC-32C of all but that.
other_layout() {
    python3 - "/dev/shm/sluice/$(tr / - <<<"${dir#/}")-state" <<'END'
import glob, sys
def crc(data):
    it = 0xffffffff
    for byte in data:
        it ^= byte
        for _ in range(8):
            it = it >> 1 ^ (0x82f63b78 if it & 1 else 0)
    return it ^ 0xffffffff
[name] = glob.glob(glob.escape(sys.argv[1]) + "*/names")
line, head = open(name, "rb").read().split(b"\n", 1)
layout = line.split()[1]
begin = b"layout %d length %d " % (int(layout) + 6, len(head))
open(name, "wb").write(begin + b"crc32c %08x\n" % crc(begin + head) + head)
END
}

before_the_end() { rm -rf "/dev/shm/sluice/$(tr / - <<<"${dir#/}")-state"*; }

check_machine "$bin/sluice-bench" python3
make_namespace
lay_wires
# Sixteen local addresses have ports for three million sessions.
write_first() {
    printf '[timeouts]\nudp_s = 3600\n\n'
    write_config "$@" | sed '/^idle = /d; s|192.0.2.64/28|198.19.0.0/25|'
}
writer=write_first
start_director

say "opening $sessions sessions, $rate a second"
first "$bin/sluice-bench" rfc2544 --port "${front_device/:front/:gfront}" \
    --port "${back_device/:back/:gback}" --director-mac "$(mac tfront)" --vip $vip:$port \
    --sessions "$sessions" --cores "$generator_core" --size 64 --json --opening-rate "$rate" \
    --directions both --trials 1 --first-duration 60 --duration 60 --duration-sum 120 \
    --most-load 20k --least-load 10k \
    >"$dir/generated" 2>"$dir/generator.log" &
generator_pid=$!
all_open() { [ "$(live)" -ge "$sessions" ]; }
# They are opened in one direction after the other, and traffic begins when that is done.
trial_begins() { [ "$(count back rx)" -ge $((sessions + 100000)) ]; }
until_true $((sessions / rate * 8 + 60)) "all sessions" all_open
until_true $((sessions / rate * 8 + 60)) "traffic" trial_begins
opened=$(live)

say "upgrades with $opened sessions"
by_slots=$(upgrade)
other_layout
by_addresses=$(upgrade)
left=$(live)
sluiced_pid=$(jq .pid <<<"$by_addresses")

say "kill -9 and a start with $left sessions"
kill -KILL "$sluiced_pid"
until_true 10 "its end" gone "$sluiced_pid"
begun=$(date +%s%3N)
first "$bin/sluiced" --config "$dir/sluice.toml" >"$dir/second.log" 2>&1 &
sluiced_pid=$!
until_true 60 "the director to be ready" ask status
restarted=$(($(date +%s%3N) - begun))
taken=$(sed -n 's/.*sessions go on from before.* sessions=\([0-9]*\).*/\1/p' "$dir/second.log")

result=$(jq -n --argjson opened "$opened" --argjson left "$left" \
    --argjson slots "$by_slots" --argjson addresses "$by_addresses" \
    --argjson restarted "$restarted" --argjson taken "${taken:-0}" '
    {sessions: $opened, sessions_afterwards: $left, by_slots: {gap_ms: $slots.gap_ms},
     by_addresses: {gap_ms: $addresses.gap_ms, told: $addresses.told},
     restart: {ready_ms: $restarted, sessions: $taken}}')
if [ -n "$json" ]; then
    printf '%s\n' "$result"
else
    jq -r '"sessions      \(.sessions), afterwards \(.sessions_afterwards)",
        "by slots      nothing forwarded for \(.by_slots.gap_ms) ms",
        "by addresses  nothing forwarded for \(.by_addresses.gap_ms) ms; "
        + "\(.by_addresses.told.sessions) sessions within \(.by_addresses.told.took_ms) ms, "
        + "\(.by_addresses.told.changed) that had changed",
        "restart       ready after \(.restart.ready_ms) ms with \(.restart.sessions) sessions"' \
        <<<"$result"
fi
