"""IPv6 that is not the director's business goes to the kernel."""

from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import (
    ICMPv6EchoRequest,
    ICMPv6MLReport2,
    ICMPv6ND_NA,
    ICMPv6ND_NS,
    ICMPv6ND_RA,
    ICMPv6NDOptDstLLAddr,
    ICMPv6NDOptSrcLLAddr,
    IPv6,
)
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from frames import CLIENT6, CLIENT_MAC, LADDR6, VIP6, real_address
from rows import row


def web(s):
    """A service of IPv6."""
    s.service(version=6)


@row("IPv6: neighbour solicitations and advertisements, to groups and to one")
def ipv6_neighbours(s):
    web(s)
    ask = ICMPv6ND_NS(tgt=VIP6) / ICMPv6NDOptSrcLLAddr(lladdr=CLIENT_MAC)
    group = Ether(src=CLIENT_MAC, dst="33:33:ff:00:02:00")
    s.kernel(s.front, group / IPv6(src=CLIENT6, dst="ff02::1:ff00:200", hlim=255) / ask, "group")
    to_one = IPv6(src=CLIENT6, dst=VIP6, hlim=255)
    s.kernel(s.front, s.client_frame(to_one / ask), "not_ours")
    say = ICMPv6ND_NA(tgt=CLIENT6) / ICMPv6NDOptDstLLAddr(lladdr=CLIENT_MAC)
    s.kernel(s.front, s.client_frame(to_one / say), "not_ours")


@row("IPv6: router advertisements and multicast listener reports")
def ipv6_groups(s):
    web(s)
    frame = Ether(src=CLIENT_MAC, dst="33:33:00:00:00:01")
    s.kernel(s.front, frame / IPv6(src="fe80::1", dst="ff02::1", hlim=255) / ICMPv6ND_RA(), "group")
    frame = Ether(src=CLIENT_MAC, dst="33:33:00:00:00:16")
    s.kernel(s.front, frame / IPv6(src="fe80::1", dst="ff02::16") / ICMPv6MLReport2(), "group")


@row("IPv6: a ping to the virtual address, and one to a local address")
def ipv6_ping(s):
    web(s)
    ping = ICMPv6EchoRequest(id=1, seq=1, data=b"ping")
    s.kernel(s.front, s.client_frame(IPv6(src=CLIENT6, dst=VIP6) / ping), "not_ours")
    to_local = IPv6(src=real_address(1, 6), dst=LADDR6) / ping
    s.kernel(s.back, s.real_frame(to_local), "not_ours")


@row("IPv6: ports without a service, other addresses, other protocols")
def ipv6_not_ours(s):
    web(s)
    ip = IPv6(src=CLIENT6, dst=VIP6)
    s.kernel(s.front, s.client_frame(ip / TCP(sport=4, dport=22, flags="S")), "not_ours")
    s.kernel(s.front, s.client_frame(ip / UDP(sport=4, dport=80) / Raw(b"quic?")), "not_ours")
    away = IPv6(src=CLIENT6, dst="2001:db8:ffff::9") / TCP(sport=4, dport=80, flags="S")
    s.kernel(s.front, s.client_frame(away), "not_ours")
    for protocol in (47, 50, 89, 103, 132):
        other = IPv6(src=CLIENT6, dst=VIP6, nh=protocol) / Raw(b"\0" * 32)
        s.kernel(s.front, s.client_frame(other), "not_ours")


@row("IPv6: link-local traffic")
def ipv6_link_local(s):
    web(s)
    packet = IPv6(src="fe80::48", dst="fe80::1") / TCP(sport=179, dport=179, flags="S")
    s.kernel(s.front, s.client_frame(packet), "not_ours")


@row("IPv6: a packet that has no next header")
def ipv6_no_next_header(s):
    web(s)
    s.kernel(s.front, s.client_frame(IPv6(src=CLIENT6, dst=VIP6, nh=59)), "not_ours")


@row("IPv6: a local address's port below the pool's range, and above it")
def ipv6_outside_pool(s):
    s.ipv6()
    s.pools["lan"]["ports"] = "2000-2999"
    web(s)
    for port in (22, 1999, 3000, 65535):
        packet = IPv6(src=real_address(1, 6), dst=LADDR6) / TCP(sport=80, dport=port, flags="A")
        s.kernel(s.back, s.real_frame(packet), "not_ours")


@row("IPv4, where only IPv6 is balanced")
def kernel_ipv4(s):
    web(s)
    syn = IP(src="198.51.100.48", dst="198.51.100.200") / TCP(dport=80, flags="S")
    s.kernel(s.front, s.client_frame(syn), "not_ours")
