#!/usr/bin/env bash
# What session synchronisation costs, and how fast it is, between two running directors:
#
#   sluice-bench rfc2544 ─memif▶ first director ─memif▶ sluice-bench rfc2544
#                                      │ UDP on loopback
#                                second director (no traffic)
#
# Sessions are opened at a given rate, and each is answered, so that each is told at once. Shown are
# how long reports wait for an acknowledgement, bytes a session on the wire, how long a second
# director that starts with nothing takes to have all sessions, and how much of its core the first
# one's worker spends on that. Run it as root:
#
#   bench/sync.sh [--sessions N] [--rate N] [--json]
#
#   --sessions   sessions that are opened: 1000000
#   --rate       of them in a second: 100000
#   --json       one JSON object
#
# The first director's worker has a core of its own; the generator, the second director and both
# threads of synchronisation share another. Everything lives in one network namespace and one
# directory, and is removed at the end.
set -euo pipefail
cd "$(dirname "$0")/.."

script=sync wire=memif sessions=1000000 rate=100000 json='' clients=198.18.0.0/16
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
second_pid=''
# Sixteen local addresses have ports for three million sessions.
more_ports='s|192.0.2.64/28|198.19.0.0/25|'
before_the_end() { end "$second_pid"; }

ask_second() { "$bin/sluice" --socket "$dir/second/sluice.sock" "$1" --json; }
say() { printf '%s: %s\n' "$script" "$*" >&2; }
now() { date +%s.%N; }
since() { jq -n "$(now) - $1"; }

# synchronise OWN PEER: what both configurations have beside the bed's.
synchronise() {
    printf '[sync]\nlisten = "127.0.0.1:%s"\npeers = ["127.0.0.1:%s"]\nkey_files = ["%s"]\n\n' \
        "$1" "$2" "$dir/sync.key"
    printf '[timeouts]\nudp_s = 3600\n\n'
}

# The second director has the same services, and ports that nobody connects to.
start_second() {
    mkdir -p "$dir/second"
    {
        synchronise 8849 8848
        dir=$dir/second worker_core=$generator_core write_config \
            "memif:$dir/second/front.sock,id=0,role=server" \
            "memif:$dir/second/back.sock,id=1,role=server" |
            sed "s/^idle = .*/keep_sessions = false/; s/\"t\(front\|back\)\"/\"s\1\"/; $more_ports"
    } >"$dir/second.toml"
    first "$bin/sluiced" --config "$dir/second.toml" >"$dir/second.log" 2>&1 &
    second_pid=$!
}

has_all() { ask_second ha | jq -e '.sync.synchronised'; }
knows() { ask_second ha | jq -e ".sync.reports_received | .new + .newer >= $sessions"; }
is_heard() { ask ha | jq -e '.sync.peers[0].up and .sync.synchronised'; }

# generate OPTIONS…: opens all sessions, and more by the options.
generate() {
    first "$bin/sluice-bench" rfc2544 --port "${front_device/:front/:gfront}" \
        --port "${back_device/:back/:gback}" --director-mac "$(mac tfront)" --vip $vip:$port \
        --sessions "$sessions" --cores "$generator_core" --size 64 --json "$@" \
        >"$dir/generated" 2>"$dir/generator.log" &
    generator_pid=$!
}

# worker_seconds: processor time of the first director's worker until now.
worker_seconds() {
    local task ticks
    for task in /proc/"$sluiced_pid"/task/*; do
        [[ $(<"$task/comm") == worker* ]] || continue
        read -r _ _ _ _ _ _ _ _ _ _ _ ticks system _ < <(sed 's/.*) /x /' "$task/stat")
        jq -n "($ticks + $system) / $(getconf CLK_TCK)"
    done
}

# Sets `pull`: seconds until a second director that starts now has all sessions. Not in a subshell,
# so that the director is known to whoever ends it.
fetch() {
    local begun
    end "$second_pid"
    start_second
    until_true 30 "the second director to be ready" ask_second status
    begun=$(now)
    until_true 300 "the second director to have all sessions" has_all
    pull=$(since "$begun")
}

check_machine "$bin/sluice-bench" openssl
make_namespace
ip -n "$name" link set lo up
lay_wires
(umask 077 && openssl rand -hex 32 >"$dir/sync.key")
# Workers sleep as they do by default: waking up is part of what is measured.
write_first() { synchronise 8848 8849 && write_config "$@" | sed "/^idle = /d; $more_ports"; }
writer=write_first
start_director
start_second
until_true 60 "the directors to hear each other" is_heard

say "opening $sessions sessions, $rate a second"
# One trial of a moment: sessions are what is wanted.
generate --opening-rate "$rate" --directions both --trials 1 --first-duration 0.1 \
    --most-load 2k --least-load 1k
samples=()
while ! gone "$generator_pid"; do
    sample=$(ask ha | jq -c '{told: .sync.reports_sent, lag: .sync.peers[0].lag_ms}')
    samples+=("$sample")
    sleep 0.1
done
wait "$generator_pid" || fail "the generator ended with $?"
until_true 60 "the second director to know all sessions" knows
opened=$(printf '%s\n' "${samples[@]}" | jq -s --argjson all "$sessions" '
    map(select(.told > 0 and .told < $all) | .lag) | sort |
    {samples: length, p50_ms: .[length / 2 | floor], p99_ms: .[length * 99 / 100 | floor],
     max_ms: last}')
[ "$(jq .samples <<<"$opened")" -gt 0 ] || fail "opened before a sample: more --sessions"
wire=$(ask ha | jq '.sync | {reports: .reports_sent,
    bytes_per_report: (.datagrams.bytes_sent / .reports_sent), repaired: .datagrams.repaired,
    lost: .datagrams.lost}')

say "fetching all sessions"
worked=$(worker_seconds)
fetch
worked=$(jq -n "$(worker_seconds) - $worked")
end "$generator_pid"

result=$(jq -n --argjson sessions "$sessions" --argjson rate "$rate" --argjson lag "$opened" \
    --argjson wire "$wire" --argjson pull "$pull" --argjson worked "$worked" '
    {sessions: $sessions, opened_per_s: $rate, lag: $lag, wire: $wire,
     pull: {seconds: $pull, worker_seconds: $worked}}')
if [ -n "$json" ]; then
    printf '%s\n' "$result"
else
    jq -r '"sessions      \(.sessions), \(.opened_per_s) a second",
        "lag           p50 \(.lag.p50_ms) ms, p99 \(.lag.p99_ms) ms of \(.lag.samples) samples",
        "on the wire   \(.wire.bytes_per_report) bytes a report, \(.wire.repaired) sent again",
        "all sessions  \(.pull.seconds) s, of which the worker works \(.pull.worker_seconds) s"' \
        <<<"$result"
fi
