"""ICMP and ICMPv6 errors, of the director's own and of others about its packets."""

from scapy.layers.inet import ICMP, IP
from scapy.layers.inet6 import (
    ICMPv6DestUnreach,
    ICMPv6PacketTooBig,
    ICMPv6ParamProblem,
    ICMPv6TimeExceeded,
    IPv6,
)
from scapy.packet import Raw

from frames import ethernet, version_of

# The same error in both families: RFC 792 and RFC 4443, paired as in RFC 7915 4.2 and 5.2.
V4 = {
    "net": (3, 0),
    "host": (3, 1),
    "protocol": (3, 2),
    "port": (3, 3),
    "too_big": (3, 4),
    "admin": (3, 13),
    "ttl": (11, 0),
    "reassembly": (11, 1),
    "parameter": (12, 0),
}
V6 = {
    "net": (ICMPv6DestUnreach, 0),
    "admin": (ICMPv6DestUnreach, 1),
    "host": (ICMPv6DestUnreach, 3),
    "port": (ICMPv6DestUnreach, 4),
    "too_big": (ICMPv6PacketTooBig, 0),
    "ttl": (ICMPv6TimeExceeded, 0),
    "reassembly": (ICMPv6TimeExceeded, 1),
    "parameter": (ICMPv6ParamProblem, 0),
    "next_header": (ICMPv6ParamProblem, 1),
}


def error(kind, src, dst, quoted, mtu=0, fields=None):
    """An ICMP error of the family of `src` that quotes the bytes `quoted`.

    `mtu` is the MTU of "too_big", the pointer of "parameter".
    """
    fields = {"ttl": 64, "id": 0, **(fields or {})}
    if ":" in src:
        layer, code = V6[kind]
        head = layer(code=code)
        if kind == "too_big":
            head.mtu = mtu
        elif kind == "parameter":
            head.ptr = mtu
        ip = IPv6(src=src, dst=dst, hlim=fields["ttl"], tc=fields.get("tos", 0))
        return ip / head / Raw(quoted)
    number, code = V4[kind]
    head = ICMP(type=number, code=code)
    if kind == "too_big":
        head.nexthopmtu = mtu
    elif kind == "parameter":
        head.ptr = mtu
    return IP(src=src, dst=dst, **fields) / head / Raw(quoted)


def answered(scene, port, mac, tags, packet, kind, mtu=0):
    """The director answers `packet`, which just entered `port` from `mac`, with an error.

    It quotes as much as fits in 576 bytes (RFC 1812 4.3.2.3) or 1280 (RFC 4443 2.4).
    """
    if version_of(packet) == 4:
        ip = IP(packet)
        src, dst, room = ip.dst, ip.src, 576 - 28
    else:
        ip = IPv6(packet)
        src, dst, room = ip.dst, ip.src, 1280 - 48
    told = error(kind, src, dst, packet[:room], mtu, {"flags": "DF"})
    scene.leaves(port, ethernet(port.mac, mac, tags, version_of(packet)) / told)
