"""Broken headers of IPv6: counted, dropped, never forwarded."""

from scapy.layers.inet import TCP, UDP
from scapy.layers.inet6 import (
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
    PadN,
)
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw

from frames import CLIENT6, CLIENT_MAC, LADDR6, VIP6, real_address
from rows import row


def syn(*extensions, **ip):
    """A SYN to the service."""
    packet = IPv6(src=CLIENT6, dst=VIP6, **ip)
    for extension in extensions:
        packet = packet / extension
    return packet / TCP(sport=40000, dport=80, flags="S", seq=7)


def ask(**ip):
    """A datagram to the service."""
    return IPv6(src=CLIENT6, dst=VIP6, **ip) / UDP(sport=40000, dport=53) / Raw(b"question")


def two_services(s):
    """One of each protocol."""
    s.service(version=6)
    s.service("dns", "udp", 53, version=6)


def with_length(packet, length):
    """The first bytes of a packet that says that `length` follow its header."""
    packet = packet.copy()
    packet.plen = length
    return Raw(bytes(packet)[: 40 + length])


def frame(s, packet):
    """A frame with what may be no right packet in it."""
    return Ether(src=CLIENT_MAC, dst=s.front.mac, type=0x86DD) / Raw(bytes(packet))


@row("IPv6: a frame that ends within the header, from 0 to 39 bytes of it")
def ipv6_truncated(s):
    two_services(s)
    whole = bytes(frame(s, syn()))
    for length in range(14, 54):
        s.drops(s.front, whole[:length], "truncated")


@row("IPv6: a frame that ends within a VLAN tag or behind it")
def ipv6_truncated_vlan(s):
    two_services(s)
    whole = bytes(Ether(src=CLIENT_MAC, dst=s.front.mac) / Dot1Q(vlan=10) / syn())
    for length in (14, 17, 18, 57):
        s.drops(s.front, whole[:length], "truncated")


@row("IPv6: a packet that ends within the TCP header, from 0 to 19 bytes of it")
def ipv6_truncated_tcp(s):
    two_services(s)
    for length in range(20):
        s.drops(s.front, frame(s, with_length(syn(), length)), "truncated")


@row("IPv6: a packet that ends within the UDP header, from 0 to 7 bytes of it")
def ipv6_truncated_udp(s):
    two_services(s)
    for length in range(8):
        s.drops(s.front, frame(s, with_length(ask(), length)), "truncated")


@row("IPv6: a payload length longer than the frame")
def ipv6_longer_than_frame(s):
    two_services(s)
    whole = bytes(frame(s, syn() / Raw(b"data")))
    for missing in (1, 4, 23):
        s.drops(s.front, whole[:-missing], "bad_ip_length")
    s.drops(s.front, frame(s, syn(plen=65535)), "bad_ip_length")


@row("IPv6: a version other than 6 behind the Ethernet type of IPv6")
def ipv6_version(s):
    two_services(s)
    for version in (0, 4, 5, 7, 15):
        s.drops(s.front, frame(s, syn(version=version)), "bad_ip_header")


@row("IPv6: an extension header that the packet ends within")
def ipv6_extension_truncated(s):
    two_services(s)
    options = IPv6ExtHdrDestOpt(options=[PadN(optdata=b"\0" * 12)])
    whole = syn(options)
    for length in (0, 1, 7, 8, 15):
        s.drops(s.front, frame(s, with_length(whole, length)), "truncated")
    for length in (0, 7):
        packet = syn(IPv6ExtHdrFragment(id=1))
        s.drops(s.front, frame(s, with_length(packet, length)), "truncated")


@row("IPv6: an extension header that says it is longer than the packet")
def ipv6_extension_too_long(s):
    two_services(s)
    packet = syn(IPv6ExtHdrDestOpt(len=255, options=[PadN(optdata=b"\0" * 4)]))
    s.drops(s.front, frame(s, packet), "truncated")


@row("IPv6: more extension headers than the director walks")
def ipv6_extensions_many(s):
    two_services(s)
    many = [IPv6ExtHdrDestOpt(options=[PadN(optdata=b"\0" * 4)]) for _ in range(30)]
    s.drops(s.front, frame(s, syn(*many)), "extension_headers")


@row("IPv6: a TCP data offset below five words; one beyond the segment")
def ipv6_tcp_data_offset(s):
    two_services(s)
    for words in range(16):
        packet = IPv6(src=CLIENT6, dst=VIP6) / TCP(dport=80, flags="S", dataofs=words)
        if words != 5:
            s.drops(s.front, frame(s, packet), "bad_l4_header" if words < 5 else "truncated")


@row("IPv6: a UDP length below eight, or beyond the packet")
def ipv6_udp_length(s):
    two_services(s)
    for length in (1, 7, 17, 65535):
        packet = ask()
        packet[UDP].len = length
        s.drops(s.front, frame(s, packet), "bad_l4_header")


@row("IPv6: the same from a real server to a local port")
def ipv6_broken_outbound(s):
    s.service(version=6)
    f = s.flow().handshake()
    back = {"src": real_address(1, 6), "dst": LADDR6}
    head = {"sport": 80, "dport": f.lport, "flags": "A"}
    for words, reason in ((0, "bad_l4_header"), (4, "bad_l4_header"), (15, "truncated")):
        packet = IPv6(**back) / TCP(**head, dataofs=words)
        s.drops(s.back, s.real_frame(packet), reason)
    f.answer(b"and the session is well")


@row("IPv6: sources that no packet from a network can have open no session")
def ipv6_martian_sources(s):
    two_services(s)
    for source in ("::", "::1", "ff02::1", "ff0e::1"):
        for packet in (syn(), ask()):
            packet.src = source
            s.drops(s.front, frame(s, packet), "martian")


@row("IPv6: the virtual address as its own client")
def ipv6_martian_land(s):
    two_services(s)
    land = IPv6(src=VIP6, dst=VIP6) / TCP(sport=80, dport=80, flags="S")
    s.drops(s.front, frame(s, land), "martian")


@row("IPv6: hop-by-hop options anywhere but first are not walked")
def ipv6_hop_by_hop_later(s):
    two_services(s)
    options = IPv6ExtHdrDestOpt(options=[PadN(optdata=b"\0" * 4)])
    packet = syn(options, IPv6ExtHdrHopByHop(options=[PadN(optdata=b"\0" * 4)]))
    s.drops(s.front, frame(s, packet), "bad_ip_header")


@row("IPv6: a routing header that is done with is walked over")
def ipv6_routing_done(s):
    s.service(version=6)
    s.flow().syn(ip={"ext": [IPv6ExtHdrRouting(type=2, addresses=[VIP6], segleft=0)]})
