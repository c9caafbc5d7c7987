"""Addresses and headers as rows and flows put them together, for both families."""

from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw

CLIENT = "198.51.100.48"
CLIENT6 = "2001:db8:1::48"
CLIENT_MAC = "02:00:00:00:02:48"
VIP = "198.51.100.200"
VIP6 = "2001:db8:1::200"
LADDR = "192.0.2.10"
LADDR6 = "2001:db8:2::10"
TUNNEL = "192.0.2.9"
TUNNEL6 = "2001:db8:2::9"
WAN = "198.51.100.10"
WAN6 = "2001:db8:1::10"
GATEWAY = "198.51.100.254"
GATEWAY6 = "2001:db8:1::fe"
GATEWAY_MAC = "02:00:00:00:02:fe"


def family(address):
    """4 or 6."""
    return 6 if ":" in address else 4


def real_address(number, version=4):
    """The address of real server `number`, counted from 1."""
    return f"192.0.2.{10 + number}" if version == 4 else f"2001:db8:2::{10 + number}"


def real_mac(number):
    """The MAC of real server `number`, counted from 1."""
    return f"02:00:00:00:01:{10 + number:02d}"


def ip_header(src, dst, fields):
    """An IP header of either family. `ttl` and `tos` mean the hop limit and the traffic class too;
    what only the other family has is left out. `ext` are IPv6 extension headers.
    """
    fields = dict(fields)
    extensions = fields.pop("ext", ())
    label = fields.pop("fl", 0)
    if family(src) == 4:
        return IP(src=src, dst=dst, **fields)
    header = IPv6(src=src, dst=dst, hlim=fields.get("ttl", 64), tc=fields.get("tos", 0), fl=label)
    for extension in extensions:
        header = header / extension.copy()
    return header


def segment(ip, head, ports, data):
    """IP, a transport header, and data; the checksums computed when the packet is built.

    `head` may be a protocol's number: then `data` is all of it.
    """
    if isinstance(head, int):
        last = ip.lastlayer()
        last.setfieldval("proto" if isinstance(last, IP) else "nh", head)
        return ip / Raw(data) if data else ip
    head = head.copy()
    if hasattr(head, "sport"):
        head.sport, head.dport = ports
    elif hasattr(head, "id"):
        head.id = ports[0]
    return ip / head / Raw(data) if data else ip / head


def ethernet(source, destination, tags=(), version=4):
    """An Ethernet header with 802.1Q tags, outermost first; two make 802.1ad."""
    frame = Ether(src=source, dst=destination)
    for depth, tag in enumerate(tags):
        if len(tags) == 2 and depth == 0:
            frame.type = 0x88A8
        frame = frame / Dot1Q(vlan=tag)
    kind = 0x0800 if version == 4 else 0x86DD
    if tags:
        frame[Dot1Q:len(tags)].type = kind
    else:
        frame.type = kind
    return frame


def version_of(packet):
    """The family of an IP packet, as scapy holds it or as bytes; 4 for what is neither."""
    if isinstance(packet, (IP, IPv6)):
        return 4 if isinstance(packet, IP) else 6
    return 6 if bytes(packet)[:1] >= b"\x60" and bytes(packet)[:1] < b"\x70" else 4


def header_length(packet):
    """Bytes of an IP packet's own header, without IPv6 extension headers."""
    return (packet[0] & 0xF) * 4 if packet[0] >> 4 == 4 else 40
