"""Isolated networks: the same addresses in two, and nothing of one in the other."""

from scapy.layers.inet import TCP, UDP

from fragments import Pieces
from icmp import error, quoted
from modes import ALL, FNAT4, FNAT6, NAT
from rows import row, rows_for
from snat import BOTH as SNAT
from snat import Inside

BOTH_WAYS = (FNAT4, FNAT6, *NAT)
DATA = bytes(index * 31 % 251 for index in range(1500))


def ghost(s, hop, packet, reason="not_ours"):
    """A packet of a flow in the default network enters at the same neighbour in blue, where it is
    nobody's: the kernel has it."""
    with s.within("blue"):
        s.arrives_from(hop, packet)
    s.count(reason)
    s.to_kernel += 1


def web(s, m, **keys):
    """A service in the default network, a connection to it, and blue without one."""
    s.isolated("blue")
    if m.version == 6 or m.real_version == 6:
        with s.within("blue"):
            s.ipv6()
    m.service(s, **keys)
    return s.flow().handshake()


def as_sent(f, way, side, head=None, data=b"forged"):
    """A packet of the flow as it is on a side."""
    return quoted(f, way, side, head, data, None, {"ttl": 64})


@rows_for(ALL, "the same connection in two networks, each by its own ports")
def networks_same_connection(s, m):
    s.isolated("blue")
    m.service(s)
    with s.within("blue"):
        m.service(s, "web-blue")
        blue = s.flow("web-blue")
    f = s.flow()
    for step in ("syn", "syn_ack", "ack", "real_ack"):
        getattr(f, step)()
        with s.within("blue"):
            getattr(blue, step)()
    f.send(b"GET / HTTP/1.0\r\n\r\n")
    with s.within("blue"):
        blue.send(b"GET /blue HTTP/1.0\r\n\r\n")
        blue.answer(b"HTTP/1.0 200 OK\r\n\r\nblue\n")
    f.answer(b"HTTP/1.0 200 OK\r\n\r\nReal Server 01\n")
    with s.within("blue"):
        blue.close()
    f.ack()
    f.close()


@rows_for(BOTH_WAYS, "a service of another network is none")
def networks_no_service(s, m):
    f = web(s, m)
    syn = TCP(flags="S", seq=1, ack=0)
    ghost(s, f.client_hop, as_sent(f, "inbound", "client", syn, b""))
    f.ack()


@rows_for(BOTH_WAYS, "what a client sends in another network is not of its connection")
def networks_forged_client(s, m):
    f = web(s, m)
    ghost(s, f.client_hop, as_sent(f, "inbound", "client"))
    reset = TCP(flags="R", seq=f.client_seq, ack=0)
    ghost(s, f.client_hop, as_sent(f, "inbound", "client", reset, b""))
    fin = TCP(flags="FA", seq=f.client_seq, ack=f.real_seq)
    ghost(s, f.client_hop, as_sent(f, "inbound", "client", fin, b""))
    f.send(b"as if nothing had been")
    f.answer(b"at all")
    f.close()


@rows_for(BOTH_WAYS, "what a real server's address sends in another network is not translated")
def networks_forged_answer(s, m):
    f = web(s, m)
    ghost(s, f.real_hop, as_sent(f, "outbound", "real"))
    reset = TCP(flags="R", seq=f.real_seq, ack=0)
    ghost(s, f.real_hop, as_sent(f, "outbound", "real", reset, b""))
    f.answer(b"as if nothing had been")
    f.close()


@rows_for(BOTH_WAYS, "an ICMP error in another network says nothing of a connection")
def networks_forged_error(s, m):
    f = web(s, m)
    for way, side, hop in (("inbound", "real", f.real_hop), ("outbound", "client", f.client_hop)):
        quote = as_sent(f, way, side)
        source, _, target, _ = f.ends(way, side)
        narrow = error("too_big", target, source, quote, 1280 if m.version == 6 else 576)
        ghost(s, hop, bytes(narrow))
        ghost(s, hop, bytes(error("port", target, source, quote)))
    f.send(b"x" * 1400)
    f.answer(b"y" * 1400)
    f.close()


@rows_for(BOTH_WAYS, "a fragment in another network does not follow the first")
def networks_fragments(s, m):
    s.isolated("blue")
    if m.version == 6:
        with s.within("blue"):
            s.ipv6()
    m.service(s, "dns", "udp", 53)
    f = s.flow("dns")
    pieces = Pieces(f, "inbound", UDP(), DATA, [800])
    pieces.arrive(0)
    ghost(s, f.client_hop, pieces.entered[1])
    pieces.arrive(1)


@rows_for(SNAT, "what a real server opens in another network is not translated")
def networks_snat(s, m):
    s.isolated("blue")
    six = m.version == 6
    if six:
        with s.within("blue"):
            s.ipv6()
    s.snat(sources=["2001:db8:2::/64" if six else "192.0.2.0/24"])
    f = Inside(s, version=m.version).handshake()
    ghost(s, f.client_hop, as_sent(f, "inbound", "client"))
    ghost(s, f.real_hop, as_sent(f, "outbound", "real"))
    f.send(b"as if nothing had been")
    f.answer(b"at all")
    f.close()


@row("Source NAT in two networks by the same addresses and ports")
def networks_snat_same(s):
    s.isolated("blue")
    s.snat()
    with s.within("blue"):
        s.snat("out-blue")
        blue = Inside(s)
    f = Inside(s)
    for step in ("syn", "syn_ack", "ack"):
        getattr(f, step)()
        with s.within("blue"):
            getattr(blue, step)()
    f.close()
    with s.within("blue"):
        blue.answer(b"still here")
        blue.close()
