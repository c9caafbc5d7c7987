"""Sums that rows about checksums need: the Internet checksum (RFC 1071) by its definition."""

from scapy.layers.inet import IP, TCP, UDP

from frames import real_address


def ones_add(a, b):
    """One's complement addition of two 16-bit words."""
    total = a + b
    return (total & 0xFFFF) + (total >> 16)


def shift(packet, layer, by):
    """Makes a checksum wrong by `by`, whatever it would be right."""
    packet[layer].chksum = None
    right = IP(bytes(packet))[layer].chksum
    packet[layer].chksum = ones_add(right, by)


def payload_for(flow, way, flags, target, left=True):
    """Data with which the next segment's checksum comes out as `target`.

    For the packet that leaves the director, or (`left=False`) for the one that enters it.
    """
    client, vip = (flow.client, flow.cport), (flow.service.vip, flow.service.port)
    local = flow.laddr, flow.lport
    real = real_address(flow.real), flow.service.real_port
    if way == "inbound":
        src, dst = (local, real) if left else (client, vip)
        numbers = {"seq": flow.client_seq, "ack": flow.real_seq}
    else:
        src, dst = (vip, client) if left else (real, local)
        numbers = {"seq": flow.real_seq, "ack": flow.client_seq}
    if flow.service.protocol == "tcp":
        head = TCP(sport=src[1], dport=dst[1], flags=flags, **numbers)
    else:
        head = UDP(sport=src[1], dport=dst[1])
    packet = IP(src=src[0], dst=dst[0]) / head / b"tuned\0\0\0"
    built = IP(bytes(packet))
    with_zero = built[type(head)].chksum
    word = ones_add(~target & 0xFFFF, with_zero)
    return b"tuned\0" + word.to_bytes(2, "big")
