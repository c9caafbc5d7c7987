"""Frames and packets as rows and flows put them together."""

from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw

CLIENT = "198.51.100.48"
CLIENT_MAC = "02:00:00:00:02:48"
VIP = "198.51.100.200"
LADDR = "192.0.2.10"
GATEWAY = "198.51.100.254"
GATEWAY_MAC = "02:00:00:00:02:fe"


def real_address(number):
    """The address of real server `number`, counted from 1."""
    return f"192.0.2.{10 + number}"


def real_mac(number):
    """The MAC of real server `number`, counted from 1."""
    return f"02:00:00:00:01:{10 + number:02d}"


def segment(ip, head, ports, data):
    """IP, TCP or UDP, and data; the checksums computed when the packet is built."""
    head = head.copy()
    head.sport, head.dport = ports
    return ip / head / Raw(data) if data else ip / head


def ethernet(source, destination, tags=()):
    """An Ethernet header with 802.1Q tags, outermost first; two make 802.1ad."""
    frame = Ether(src=source, dst=destination)
    for depth, tag in enumerate(tags):
        if len(tags) == 2 and depth == 0:
            frame.type = 0x88A8
        frame = frame / Dot1Q(vlan=tag)
    if tags:
        frame[Dot1Q:len(tags)].type = 0x0800
    else:
        frame.type = 0x0800
    return frame
