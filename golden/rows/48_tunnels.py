"""What an outer header says (RFC 2003, 2473, 6040)."""

from scapy.layers.inet import IPOption_NOP
from scapy.layers.inet6 import IPv6ExtHdrDestOpt, PadN

import wire
from frames import real_address
from icmp import error, quoted
from modes import IN_TUNNELS, IPIP4, IPIP46
from rows import rows_for

OVER4 = tuple(m for m in IN_TUNNELS if m.real_version == 4)


@rows_for((IPIP4,), "DF inside is DF outside, and no DF inside is none outside")
def df(s, m):
    m.service(s, "dns", "udp", 53)
    f = s.flow("dns")
    f.ask(ip={"flags": "DF"})
    f.ask()
    f.ask(ip={"flags": "DF", "id": 0})


@rows_for((IPIP46,), "DF inside has no place outside, and stays inside")
def df_inside(s, m):
    m.service(s, "dns", "udp", 53)
    f = s.flow("dns")
    f.ask(ip={"flags": "DF"})
    f.ask()


@rows_for(IN_TUNNELS, "ECN not-ECT, ECT(1), ECT(0) and CE are copied outside (RFC 6040 normal "
          "mode)")
def ecn(s, m):
    m.service(s, "dns", "udp", 53)
    f = s.flow("dns")
    for field in range(4):
        f.ask(ip={"tos": 0xB8 | field})


@rows_for(IN_TUNNELS, "the outer source comes from a prefix: one for each flow, and spread over "
          "flows")
def spread(s, m):
    s.ipip["source_v4"] = "192.0.2.64/28"
    s.ipip["source_v6"] = "2001:db8:2::a0/124"
    m.service(s, "dns", "udp", 53, reals=[1])
    flows = [s.flow("dns", client=(m.client, 40000 + n), same=f"flow {n}") for n in range(16)]
    for _ in range(2):
        for flow in flows:
            flow.ask(ip={"flags": "DF"})


@rows_for(IN_TUNNELS, "the outer source is the configured one")
def source(s, m):
    s.ipip["source_v4"] = "192.0.2.77"
    s.ipip["source_v6"] = "2001:db8:2::77"
    m.service(s)
    s.flow().handshake()


@rows_for(OVER4, "IP options inside stay inside, the outer header has none")
def options_inside(s, m):
    inner = {"options": [IPOption_NOP()] * 8} if m.version == 4 else {
        "ext": [IPv6ExtHdrDestOpt(options=[PadN(optdata=b"\0" * 4)])]}
    m.service(s)
    s.flow().syn(ip=inner)


@rows_for(IN_TUNNELS, "two tunnels of one service: a real server of each family")
def mixed(s, m):
    other = 10 - m.real_version
    m.service(s, reals=[1, 2], versions={2: other})
    s.flow().handshake()
    s.flow(real=2, client=(m.client, 40001)).handshake()




def on_the_way(s, m, f, data, kind, mtu=0):
    """A router between director and real server reports on a tunnelled packet of the flow."""
    four = m.real_version == 4
    source = s.ipip["source_v4" if four else "source_v6"]
    router = "192.0.2.14" if four else real_address(4, 6)
    inner = quoted(f, "inbound", "client", None, data, None, {"ttl": 63, "flags": "DF"})
    outer, _ = wire.tunnelled(inner, source, f.real_address, f)
    outer = outer[: 548 if four else 1232]
    s.arrives_from(real_address(4, m.real_version), bytes(error(kind, router, source, outer, mtu)))
    return outer[m.overhead :]


def tells(s, m, f, inner, kind, mtu=0):
    """The director tells the client, in its own name."""
    fields = {"flags": "DF", "tos": 0xC0} if m.version == 4 else {}
    inner = inner[: 548 if m.version == 4 else 1232]
    s.sends_to(f.client_hop, error(kind, f.service.vip, f.client, inner, mtu, fields))


@rows_for(IN_TUNNELS, "a router on the tunnel's way tells its MTU: the client is told what fits, "
          "and from then on by the director")
def path_mtu(s, m):
    m.service(s)
    f = s.flow()
    f.fields = {"flags": "DF"}
    f.handshake()
    f.send(b"x" * 1380)
    f.client_seq -= 1380
    inner = on_the_way(s, m, f, b"x" * 1380, "too_big", 1400)
    fits = 1400 - m.overhead
    tells(s, m, f, inner, "too_big", fits)
    f.send(b"x" * 1380, drop="too_big", answer=("too_big", fits))
    f.client_seq -= 1380
    f.send(b"x" * (fits - (40 if m.version == 4 else 60)))


@rows_for(IN_TUNNELS, "the tunnel's end cannot be reached: the client is told that the host cannot")
def end_unreachable(s, m):
    m.service(s)
    f = s.flow()
    f.fields = {"flags": "DF"}
    f.handshake()
    f.send(b"x" * 100)
    f.client_seq -= 100
    for kind in ("host", "net", "admin", "ttl"):
        inner = on_the_way(s, m, f, b"x" * 100, kind)
        tells(s, m, f, inner, "host")
        s.wait(1)


@rows_for(IN_TUNNELS, "a report on a tunnelled packet of nobody's is counted and dropped")
def report_stranger(s, m):
    m.service(s, "dns", "udp", 53)
    f = s.flow("dns")
    f.ask()
    stranger = s.flow("dns", client=(m.client, 5))
    stranger.vport = 9999
    on_the_way(s, m, stranger, b"x", "host")
    s.count("icmp_error")


@rows_for(IN_TUNNELS, "an error about a packet that was never sent changes nothing, and nobody is "
          "told")
def path_mtu_forged(s, m):
    m.service(s)
    f = s.flow()
    f.fields = {"flags": "DF"}
    f.handshake()
    never = s.flow(client=(m.client, 40001))
    for kind, mtu in (("too_big", 1280), ("too_big", 1400), ("host", 0)):
        on_the_way(s, m, never, b"x" * 1380, kind, mtu)
        s.count("icmp_error")
    f.send(b"x" * 1380)


@rows_for(OVER4, "an MTU that no path has is taken for the least that is believed: 576")
def path_mtu_least(s, m):
    m.service(s)
    f = s.flow()
    f.fields = {"flags": "DF"}
    f.handshake()
    f.send(b"x" * 1380)
    f.client_seq -= 1380
    inner = on_the_way(s, m, f, b"x" * 1380, "too_big", 80)
    fits = max(576 - m.overhead, 0 if m.version == 4 else 1280)
    tells(s, m, f, inner, "too_big", fits)
    f.send(b"x" * 1380, drop="too_big", answer=("too_big", fits))


@rows_for(IN_TUNNELS, "an MTU that no link may have is no error (RFC 791 3.2, RFC 8201 4)")
def path_mtu_impossible(s, m):
    m.service(s)
    f = s.flow()
    f.fields = {"flags": "DF"}
    f.handshake()
    f.send(b"x" * 1380)
    f.client_seq -= 1380
    on_the_way(s, m, f, b"x" * 1380, "too_big", 67 if m.real_version == 4 else 1279)
    s.count("icmp_error")
    f.send(b"x" * 1380)
