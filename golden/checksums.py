"""Sums that rows about checksums need: the Internet checksum (RFC 1071) by its definition."""

from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6

from frames import ip_header, version_of


def parsed(packet):
    """A packet as scapy reads it from bytes, checksums and all."""
    raw = bytes(packet)
    return (IP if version_of(raw) == 4 else IPv6)(raw)


def ones_add(a, b):
    """One's complement addition of two 16-bit words."""
    total = a + b
    return (total & 0xFFFF) + (total >> 16)


def shift(packet, layer, by):
    """Makes a checksum wrong by `by`, whatever it would be right."""
    packet[layer].chksum = None
    right = parsed(packet)[layer].chksum
    packet[layer].chksum = ones_add(right, by)


def payload_for(flow, way, flags, target, left=True):
    """Data with which the next segment's checksum comes out as `target`.

    For the packet that leaves the director, or (`left=False`) for the one that enters it.
    """
    sides = ("client", "real") if way == "inbound" else ("real", "client")
    src, sport, dst, dport = flow.ends(way, sides[left])
    if way == "inbound":
        numbers = {"seq": flow.client_seq, "ack": flow.real_seq}
    else:
        numbers = {"seq": flow.real_seq, "ack": flow.client_seq}
    if flow.service.protocol == "tcp":
        head = TCP(sport=sport, dport=dport, flags=flags, **numbers)
    else:
        head = UDP(sport=sport, dport=dport)
    packet = ip_header(src, dst, {}) / head / b"tuned\0\0\0"
    with_zero = parsed(packet)[type(head)].chksum
    word = ones_add(~target & 0xFFFF, with_zero)
    return b"tuned\0" + word.to_bytes(2, "big")
