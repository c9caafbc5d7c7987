"""What a client hears whose new connection nobody takes."""

from frames import CLIENT
from modes import ALL, DR4, FNAT4, FNAT6, NAT4
from rows import row, rows_for

DRAINED = {1: 0, 2: 0, 3: 0}


@rows_for(ALL, "a SYN that no real server takes is answered with a reset")
def syn_refused(s, m):
    m.service(s, weights=DRAINED)
    for number in range(2):
        f = s.flow(client=(m.client, 40000 + number))
        f.syn(drop="no_real", answer=("reset",))


@rows_for(ALL, "a datagram that no real server takes is answered with port unreachable")
def datagram_refused(s, m):
    m.service(s, "dns", "udp", 53, weights=DRAINED)
    for size in (0, 12, 1400):
        s.flow("dns", client=(m.client, 40000 + size)).ask(
            b"q" * size, drop="no_real", answer=("port",)
        )


@rows_for((FNAT4, FNAT6, NAT4, DR4), "at max_sessions a datagram is answered with port unreachable")
def datagram_full(s, m):
    m.service(s, "dns", "udp", 53, max_sessions=1)
    one = s.flow("dns", client=(m.client, 40000))
    one.ask()
    one.ask()
    one.reply()
    s.flow("dns", client=(m.client, 40001)).ask(drop="service_full", answer=("port",))


@rows_for((FNAT4, FNAT6), "with icmp.refused = \"drop\" who is refused hears nothing")
def refused_in_silence(s, m):
    s.icmp["refused"] = "drop"
    m.service(s, weights=DRAINED)
    m.service(s, "dns", "udp", 53, weights=DRAINED)
    s.flow(client=(m.client, 40000)).syn(drop="no_real")
    s.flow("dns", client=(m.client, 40000)).ask(drop="no_real")


@row("No more refusals in a second than errors_per_s says, and the next second some more")
def refusals_limited(s):
    s.icmp["errors_per_s"] = 2
    s.service(weights=DRAINED)
    s.service("dns", "udp", 53, weights=DRAINED)
    s.flow(client=(CLIENT, 40000)).syn(drop="no_real", answer=("reset",))
    s.flow("dns", client=(CLIENT, 40000)).ask(drop="no_real", answer=("port",))
    s.flow(client=(CLIENT, 40001)).syn(drop="no_real")
    s.flow("dns", client=(CLIENT, 40001)).ask(drop="no_real")
    s.wait(1)
    s.flow(client=(CLIENT, 40002)).syn(drop="no_real", answer=("reset",))


@row("Refusals take nothing from ICMP errors: both have what errors_per_s says")
def refusals_apart(s):
    s.icmp["errors_per_s"] = 1
    s.service(weights=DRAINED)
    s.flow(client=(CLIENT, 40000)).syn(drop="no_real", answer=("reset",))
    s.flow(client=(CLIENT, 40001)).syn(drop="no_real")
    s.flow(client=(CLIENT, 40002)).syn(ip={"ttl": 1}, drop="ttl_expired", answer=("ttl",))


@row("What a protocol of its own brings is refused in silence: nothing says that a port is closed")
def protocol_refused(s):
    s.service("all", "any", None, mode="nat", weights=DRAINED)
    s.flow("all").raw(47, b"tunnelled", drop="no_real")
