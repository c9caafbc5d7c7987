"""Too large for the way on, and too long on the way."""

from modes import (
    ALL,
    DR,
    DR4,
    DR6,
    FNAT4,
    FNAT6,
    FNAT46,
    FNAT64,
    IN_TUNNELS,
    IPIP4,
    IPIP46,
    NAT,
    NAT4,
    TWO_WAY,
)
from rows import rows_for

SAME = (FNAT4, FNAT6, *NAT, *DR)
V4 = (FNAT4, NAT4, DR4)


def head(m):
    """Bytes of the client's IP and TCP headers."""
    return 40 if m.version == 4 else 60


def open_with_mtu(s, m, back=1400, front=1500):
    """A session between ports of these MTUs."""
    s.back.keys["mtu"] = back
    s.front.keys["mtu"] = front
    m.service(s)
    return s.flow().handshake()


@rows_for(SAME, "larger than the MTU towards the real server, with DF or in IPv6: the client is "
          "told the MTU")
def too_big_inbound(s, m):
    f = open_with_mtu(s, m)
    fits = 1400 - head(m)
    f.send(b"x" * (fits + 1), ip={"flags": "DF"}, drop="too_big", answer=("too_big", 1400))
    f.client_seq -= fits + 1
    f.send(b"x" * fits, ip={"flags": "DF"})


@rows_for((FNAT4, FNAT6, *NAT), "larger than the MTU towards the client: the real server is told")
def too_big_outbound(s, m):
    f = open_with_mtu(s, m, 1500, 1300)
    fits = 1300 - head(m)
    f.answer(b"x" * (fits + 1), ip={"flags": "DF"}, drop="too_big", answer=("too_big", 1300))
    f.real_seq -= fits + 1
    f.answer(b"x" * fits, ip={"flags": "DF"})


@rows_for((FNAT46, FNAT64), "the MTU that is told counts what the other family's header adds")
def too_big_crossing(s, m):
    f = open_with_mtu(s, m)
    mtu = 1380 if m is FNAT46 else 1420
    fits = mtu - head(m)
    f.send(b"x" * (fits + 1), ip={"flags": "DF"}, drop="too_big", answer=("too_big", mtu))
    f.client_seq -= fits + 1
    f.send(b"x" * fits, ip={"flags": "DF"})


@rows_for(IN_TUNNELS, "larger than the MTU with the tunnel's header: the client is told what fits")
def too_big_tunnel(s, m):
    f = open_with_mtu(s, m, 1500)
    mtu = 1500 - m.overhead
    fits = mtu - head(m)
    f.send(b"x" * (fits + 1), ip={"flags": "DF"}, drop="too_big", answer=("too_big", mtu))
    f.client_seq -= fits + 1
    f.send(b"x" * fits, ip={"flags": "DF"})


@rows_for(V4, "larger than the MTU without DF: it leaves in fragments")
def too_big_cut(s, m):
    f = open_with_mtu(s, m)
    f.send(b"x" * 1361, mtu=1400)
    f.send(bytes(range(256)) * 5 + b"y" * 180, mtu=1400)


@rows_for((FNAT4, NAT4), "an answer larger than the MTU without DF: it leaves in fragments")
def too_big_cut_back(s, m):
    f = open_with_mtu(s, m, 1500, 600)
    f.answer(bytes(range(256)) * 5 + b"y" * 180, mtu=600)


@rows_for((FNAT46,), "an IPv4 packet without DF becomes IPv6 of at most 1,280 bytes, in fragments "
          "if it must; with DF it goes on whole (RFC 7915 4.1)")
def too_big_cut_crossing(s, m):
    m.service(s, "dns", "udp", 53)
    f = s.flow("dns")
    f.ask(b"x" * 1212)
    f.ask(b"x" * 1213)
    f.ask(b"x" * 1232)
    f.ask(b"x" * 1233, mtu=1280)
    f.ask(bytes(range(256)) * 5 + b"y" * 192, mtu=1280)
    f.ask(b"x" * 1452, ip={"flags": "DF"})
    f.ask(b"x" * 1452, mtu=1280)


@rows_for((FNAT46,), "TCP without DF, both ways: only what becomes IPv6 is cut")
def too_big_cut_crossing_tcp(s, m):
    m.service(s)
    f = s.flow().handshake()
    f.send(b"x" * 1220)
    f.send(b"x" * 1221, mtu=1280)
    f.send(b"x" * 1440, ip={"flags": "DF"})
    f.answer(b"x" * 1440)


@rows_for((FNAT64,), "an answer without DF becomes IPv6 of at most 1,280 bytes, in fragments if it "
          "must (RFC 7915 4.1)")
def too_big_cut_crossing_back(s, m):
    m.service(s, "dns", "udp", 53)
    f = s.flow("dns")
    f.ask(b"x" * 1432)
    f.reply(b"x" * 1232)
    f.reply(b"x" * 1233, mtu=1280)
    f.reply(b"x" * 1452, ip={"flags": "DF"})


@rows_for((IPIP46,), "without DF the tunnel's own packet leaves in fragments (RFC 2473 7.2)")
def too_big_cut_outside6(s, m):
    f = open_with_mtu(s, m, 1500)
    f.send(b"x" * 1421, mtu=1500)
    f.send(b"y" * 1460, mtu=1500)


@rows_for((IPIP4,), "without DF the tunnelled packet leaves in fragments (RFC 2003 5.1)")
def too_big_cut_outside(s, m):
    f = open_with_mtu(s, m, 1500)
    f.send(b"x" * 1460, mtu=1500)


@rows_for(ALL, "TTL or hop limit 1: the client is told that its time is exceeded")
def ttl_expired(s, m):
    m.service(s)
    f = s.flow()
    f.syn(ip={"ttl": 1}, drop="ttl_expired", answer=("ttl", 0))
    f.syn()
    f.syn_ack()
    f.send(b"x", ip={"ttl": 1}, drop="ttl_expired", answer=("ttl", 0))


@rows_for((FNAT4, *TWO_WAY), "TTL or hop limit 1 on the way back: the real server is told")
def ttl_expired_back(s, m):
    m.service(s)
    f = s.flow().handshake()
    f.answer(b"x", ip={"ttl": 1}, drop="ttl_expired", answer=("ttl", 0))


@rows_for((FNAT4, FNAT6), "the director's own errors are limited in number: 3 a second")
def errors_limited(s, m):
    s.icmp["errors_per_s"] = 3
    m.service(s)
    f = s.flow().handshake()
    for number in range(5):
        told = {"answer": ("ttl", 0)} if number < 3 else {}
        f.send(b"x", ip={"ttl": 1}, drop="ttl_expired", **told)
    s.wait(1.5)
    f.send(b"x", ip={"ttl": 1}, drop="ttl_expired", answer=("ttl", 0))


@rows_for((FNAT4, FNAT6), "with errors_per_s = 0 the director says nothing")
def errors_off(s, m):
    s.icmp["errors_per_s"] = 0
    f = open_with_mtu(s, m)
    f.send(b"x", ip={"ttl": 1}, drop="ttl_expired")
    f.send(b"x" * 1400, ip={"flags": "DF"}, drop="too_big")


@rows_for((FNAT4, FNAT6, DR4, DR6), "the answer goes back the way the packet came, tags and all")
def errors_tagged(s, m):
    m.service(s)
    s.vlan(m.client, 10)
    s.flow().syn(ip={"ttl": 1}, drop="ttl_expired", answer=("ttl", 0))


@rows_for((FNAT4, FNAT6), "a quote is cut at 576 bytes of ICMP, or 1,280 of ICMPv6")
def errors_quote(s, m):
    m.service(s)
    f = s.flow().handshake()
    for length in (400, 520, 1200, 1400):
        f.send(b"q" * length, ip={"ttl": 1}, drop="ttl_expired", answer=("ttl", 0))
