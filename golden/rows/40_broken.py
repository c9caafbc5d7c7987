"""Broken headers of every layer: counted, dropped, never forwarded."""

from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw

from frames import CLIENT, CLIENT_MAC, LADDR, VIP, real_address
from rows import row


def syn(**ip):
    """A SYN to the service, as scapy makes it."""
    return IP(src=CLIENT, dst=VIP, **ip) / TCP(sport=40000, dport=80, flags="S", seq=7)


def ask(**ip):
    """A datagram to the service."""
    return IP(src=CLIENT, dst=VIP, **ip) / UDP(sport=40000, dport=53) / Raw(b"question")


def two_services(s):
    """One of each protocol."""
    s.service()
    s.service("dns", "udp", 53)


def with_length(packet, length):
    """The first `length` bytes of an IP packet that says it is so long."""
    packet = packet.copy()
    packet.len = length
    return Raw(bytes(packet)[:length])


@row("A frame that ends within the Ethernet header, from 1 to 13 bytes")
def truncated_ethernet(s):
    two_services(s)
    frame = bytes(s.client_frame(syn()))
    for length in range(1, 14):
        s.drops(s.front, frame[:length], "truncated")


@row("A frame that ends within a VLAN tag, or within the second of two")
def truncated_vlan(s):
    two_services(s)
    one = bytes(Ether(src=CLIENT_MAC, dst=s.front.mac) / Dot1Q(vlan=10) / syn())
    for length in range(14, 18):
        s.drops(s.front, one[:length], "truncated")
    two = bytes(Ether(src=CLIENT_MAC, dst=s.front.mac) / Dot1Q(vlan=1) / Dot1Q(vlan=2) / syn())
    for length in range(18, 22):
        s.drops(s.front, two[:length], "truncated")


@row("A frame that ends within the IP header, from 0 to 19 bytes of it")
def truncated_ip(s):
    two_services(s)
    frame = bytes(s.client_frame(syn()))
    for length in range(14, 34):
        s.drops(s.front, frame[:length], "truncated")


@row("A frame that ends within the IP options")
def truncated_ip_options(s):
    two_services(s)
    for length in range(40):
        packet = IP(src=CLIENT, dst=VIP, ihl=15, len=60, proto=6)
        frame = bytes(s.client_frame(packet))[:34] + b"\x01" * length
        s.drops(s.front, frame, "truncated")


@row("An IP packet that ends within the TCP header, from 0 to 19 bytes of it")
def truncated_tcp(s):
    two_services(s)
    for length in range(20):
        s.drops(s.front, s.client_frame(with_length(syn(), 20 + length)), "truncated")


@row("An IP packet that ends within the UDP header, from 0 to 7 bytes of it")
def truncated_udp(s):
    two_services(s)
    for length in range(8):
        s.drops(s.front, s.client_frame(with_length(ask(), 20 + length)), "truncated")


@row("An IP packet that ends within the ICMP header is the kernel's, like all of ICMP but errors")
def truncated_icmp(s):
    two_services(s)
    ping = IP(src=CLIENT, dst=VIP) / ICMP()
    for length in (0, 1, 7):
        frame = s.client_frame(with_length(ping, 20 + length))
        s.kernel(s.front, frame, "not_ours")


@row("A header cut short stays cut short when Ethernet padding follows it")
def truncated_padded(s):
    two_services(s)
    for packet, length in ((syn(), 33), (syn(), 39), (ask(), 27)):
        frame = bytes(s.client_frame(with_length(packet, length)))
        s.drops(s.front, frame.ljust(60, b"\0"), "truncated")


@row("An IP total length longer than the frame")
def ip_longer_than_frame(s):
    two_services(s)
    frame = bytes(s.client_frame(syn() / Raw(b"data")))
    for missing in (1, 4, 23):
        s.drops(s.front, frame[:-missing], "bad_ip_length")
    s.drops(s.front, s.client_frame(syn(len=65535)), "bad_ip_length")


@row("An IP total length shorter than the IP header")
def ip_shorter_than_header(s):
    two_services(s)
    for length in (0, 1, 19):
        s.drops(s.front, s.client_frame(syn(len=length)), "bad_ip_length")
    s.drops(s.front, s.client_frame(syn(ihl=6, len=23)), "bad_ip_length")


@row("An IP header length below five words")
def ip_header_length(s):
    two_services(s)
    for words in range(5):
        s.drops(s.front, s.client_frame(syn(ihl=words)), "bad_ip_header")


@row("An IP version other than 4 behind the Ethernet type of IPv4")
def ip_version(s):
    two_services(s)
    for version in (0, 5, 6, 15):
        s.drops(s.front, s.client_frame(syn(version=version)), "bad_ip_header")


@row("A wrong IP header checksum, every single bit of the header flipped, both ways")
def ip_checksum(s):
    two_services(s)
    f = s.flow().handshake()
    frame = bytearray(bytes(s.client_frame(syn())))
    # Bits of the version and header length fields break other rules first, so do lengths.
    for byte in [*range(1, 2), *range(4, 20)]:
        for bit in range(8):
            bad = frame.copy()
            bad[14 + byte] ^= 1 << bit
            s.drops(s.front, bad, "bad_ip_checksum")

    def wrong(packet):
        packet.chksum = 0x1234

    f.answer(b"x", edit=wrong, drop="bad_ip_checksum")


@row("A TCP data offset below five words; one beyond the segment: its header is cut short")
def tcp_data_offset(s):
    two_services(s)
    for words in range(16):
        packet = IP(src=CLIENT, dst=VIP) / TCP(sport=40000, dport=80, flags="S", dataofs=words)
        if words != 5:
            reason = "bad_l4_header" if words < 5 else "truncated"
            s.drops(s.front, s.client_frame(packet), reason)


@row("A UDP length below eight, or beyond the IP packet")
def udp_length(s):
    two_services(s)
    for length in (1, 7, 17, 65535):
        packet = ask()
        packet[UDP].len = length
        s.drops(s.front, s.client_frame(packet), "bad_l4_header")


@row("The same from a real server to a local port")
def broken_outbound(s):
    s.service()
    f = s.flow().handshake()
    back = {"src": real_address(1), "dst": LADDR}
    head = {"sport": 80, "dport": f.lport, "flags": "A"}
    for words, reason in ((0, "bad_l4_header"), (4, "bad_l4_header"), (15, "truncated")):
        packet = IP(**back) / TCP(**head, dataofs=words)
        s.drops(s.back, s.real_frame(packet), reason)
    s.drops(s.back, s.real_frame(with_length(IP(**back) / TCP(**head), 39)), "truncated")
    s.drops(s.back, s.real_frame(IP(**back, ihl=4) / TCP(**head)), "bad_ip_header")
    s.drops(s.back, s.real_frame(IP(**back, len=19) / TCP(**head)), "bad_ip_length")
    f.answer(b"and the session is well")


@row("Sources that no packet from a network can have open no session")
def martian_sources(s):
    two_services(s)
    for source in ("0.0.0.0", "0.1.2.3", "127.0.0.1", "224.0.0.5", "240.0.0.1", "255.255.255.255"):
        packet = syn()
        packet.src = source
        s.drops(s.front, s.client_frame(packet), "martian")
        packet = ask()
        packet.src = source
        s.drops(s.front, s.client_frame(packet), "martian")


@row("The virtual address as its own client (the LAND attack)")
def martian_land(s):
    two_services(s)
    land = IP(src=VIP, dst=VIP) / TCP(sport=80, dport=80, flags="S")
    s.drops(s.front, s.client_frame(land), "martian")
