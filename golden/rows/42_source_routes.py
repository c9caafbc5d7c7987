"""Packets whose senders chose the routers that they go by."""

from scapy.layers.inet import IP, UDP, IPOption_LSRR, IPOption_RR, IPOption_SSRR
from scapy.layers.inet6 import IPv6, IPv6ExtHdrRouting

from fragments import Pieces
from frames import CLIENT6, VIP6
from icmp import reported
from modes import DR4, DR6, FNAT4, FNAT6, FNAT46, FNAT64, IPIP4, IPIP6, NAT4, NAT6
from rows import row, rows_for

FOUR = (FNAT4, FNAT46, NAT4, DR4, IPIP4)
SIX = (FNAT6, FNAT64, NAT6, DR6, IPIP6)
TWO_WAY4 = (FNAT4, NAT4)
DATA = bytes(index * 31 % 251 for index in range(1500))


def routes():
    """IPv4's two, on their way and done with."""
    for option in (IPOption_LSRR, IPOption_SSRR):
        for pointer in (4, 8):
            yield {"options": [option(routers=["203.0.113.1"], pointer=pointer)]}


def of_type(kind):
    """IPv6's, done with."""
    return {"ext": [IPv6ExtHdrRouting(type=kind, addresses=[VIP6], segleft=0)]}


@rows_for(FOUR, "loose and strict source routes are dropped, before and in a session; other "
          "options pass")
def source_route(s, m):
    m.service(s)
    f = s.flow()
    for route in routes():
        f.syn(ip=route, drop="source_route")
    f.handshake()
    for route in routes():
        f.send(b"dropped", ip=route, drop="source_route")
        f.client_seq -= len(b"dropped")
    if m in (FNAT4, NAT4):
        f.send(b"record", ip={"options": [IPOption_RR(routers=["203.0.113.1"])]})
    f.send(b"and the session is well")


@rows_for(TWO_WAY4, "source routes in answers, in fragments and around ICMP errors")
def source_route_odd(s, m):
    m.service(s, "dns", "udp", 53)
    f = s.flow("dns")
    f.ask()
    for route in routes():
        f.reply(ip=route, drop="source_route")
        for way in ("inbound", "outbound"):
            reported(f, way, "port", ip=route, drop="source_route")
            Pieces(f, way, UDP(), DATA, [800], route).arrive(0, 1, drop="source_route")
    f.reply()


@rows_for(SIX, "IPv6's routing header of type 0 is dropped, before and in a session (RFC 5095); "
          "others that are done with pass")
def routing_header(s, m):
    m.service(s)
    f = s.flow()
    f.syn(ip=of_type(0), drop="source_route")
    f.handshake()
    f.send(b"dropped", ip=of_type(0), drop="source_route")
    f.client_seq -= len(b"dropped")
    f.send(b"mobile", ip=of_type(2))
    f.send(b"segments", ip=of_type(4))


@row("Source routes from the inside are dropped where a rule of source NAT would take them")
def snat_source_route(s):
    s.snat()
    f = s.inside()
    for route in routes():
        f.syn(ip=route, drop="source_route")
    f.handshake()
    for route in routes():
        f.answer(b"dropped", ip=route, drop="source_route")
        f.real_seq -= len(b"dropped")


@row("Source routes that are not the director's to forward are the kernel's")
def source_route_kernels(s):
    s.service()
    s.service("six", version=6)
    for route in routes():
        packet = IP(src="198.51.100.48", dst="198.51.100.200", **route) / UDP(dport=9999)
        s.kernel(s.front, s.client_frame(packet), "not_ours")
    on_its_way = IPv6ExtHdrRouting(type=0, addresses=[VIP6], segleft=1)
    packet = IPv6(src=CLIENT6, dst=VIP6) / on_its_way / UDP(dport=80)
    s.kernel(s.front, s.client_frame(packet), "not_ours")
