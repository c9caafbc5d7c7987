"""ICMP and ICMPv6 errors, of the director's own and of others about its packets."""

from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import (
    ICMPv6DestUnreach,
    ICMPv6PacketTooBig,
    ICMPv6ParamProblem,
    ICMPv6TimeExceeded,
    IPv6,
)
from scapy.packet import Raw

from frames import ethernet, family, header_length, version_of
from wire import TUNNELS, translated, tunnelled

# The same error in both families: RFC 792 and RFC 4443, paired as in RFC 7915 4.2 and 5.2.
V4 = {
    "net": (3, 0),
    "host": (3, 1),
    "protocol": (3, 2),
    "port": (3, 3),
    "too_big": (3, 4),
    "host_admin": (3, 10),
    "admin": (3, 13),
    "ttl": (11, 0),
    "reassembly": (11, 1),
    "parameter": (12, 0),
}
# What an error of one family is in the other (RFC 7915 4.2 and 5.2), where it is not the same.
TO_V6 = {"host": "net", "protocol": "next_header"}
TO_V4 = {"net": "host", "admin": "host_admin", "next_header": "protocol"}

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


def answered(scene, port, mac, tags, packet, kind, mtu=0, teller=None):
    """The director answers `packet`, which just entered `port` from `mac`, with an error that comes
    from where the packet went, or from `teller`.

    It quotes as much as fits in 576 bytes (RFC 1812 4.3.2.3), with precedence 6 (4.3.2.5), or in
    1280 (RFC 4443 2.4).
    """
    if kind == "reset":
        return refused(scene, port, mac, tags, packet)
    if version_of(packet) == 4:
        ip = IP(packet)
        src, dst, room = ip.dst, ip.src, 576 - 28
    else:
        ip = IPv6(packet)
        src, dst, room = ip.dst, ip.src, 1280 - 48
    fields = {"flags": "DF", "tos": 0xC0} if version_of(packet) == 4 else {}
    told = error(kind, teller or src, dst, packet[:room], mtu, fields)
    scene.leaves(port, ethernet(port.mac, mac, tags, version_of(packet)) / told)


def refused(scene, port, mac, tags, packet):
    """The director answers the SYN `packet` with a reset, as a host does where nobody listens (RFC
    9293 3.10.7.1)."""
    if version_of(packet) == 4:
        ip = IP(packet)
        back = IP(src=ip.dst, dst=ip.src, ttl=64, id=0, flags="DF")
    else:
        ip = IPv6(packet)
        back = IPv6(src=ip.dst, dst=ip.src, hlim=64)
    syn = ip[TCP]
    ack = (syn.seq + 1 + len(bytes(syn.payload))) % (1 << 32)
    head = TCP(sport=syn.dport, dport=syn.sport, flags="RA", seq=0, ack=ack, window=0)
    scene.leaves(port, ethernet(port.mac, mac, tags, version_of(packet)) / back / head)


def quoted(flow, way, side, head, data, size, fields=None):
    """The start of a packet of the flow, as far as a router quotes it: `size` bytes behind the IP
    header, or all."""
    if head is None:
        seq, ack = flow.client_seq, flow.real_seq
        if way == "outbound":
            seq, ack = ack, seq
        tcp = flow.service.protocol == "tcp"
        head = TCP(flags="PA", seq=seq, ack=ack) if tcp else UDP()
    fields = {"id": 0x4711, "ttl": 60, **(fields or {})}
    packet = bytes(flow.packet(way, side, head, data, fields))
    return packet if size is None else packet[: header_length(packet) + size]


def reported(flow, way, kind, mtu=0, head=None, data=b"quoted", size=None, source=None, **how):
    """Somebody on the far side reports an error about a packet of the flow that went `way`, and the
    report must reach its sender with what the sender knows in it.

    `source` is a router that says so; the packet's receiver without. `told` is the MTU that the
    sender must be told, where that is another. `quotes` are the packet as it is quoted on the far
    side and must be on the near one, where it is no whole packet of the flow. Across families the
    message is a new one, which says the same by RFC 7915 4.2 and 5.2; the identification of the
    packet that it quotes is not known.
    """
    scene = flow.scene
    back = way == "inbound"
    near, far = ("client", "real") if back else ("real", "client")
    hops = flow.hops("outbound" if back else "inbound")
    fields = {"id": scene.next_id(), "ttl": 61, **flow.fields, **how.pop("ip", {})}
    src, _, dst, _ = flow.ends(way, far)
    quotes = how.pop("quotes", None)
    quote = quotes[0] if quotes else quoted(flow, way, far, head, data, size)
    if back and flow.mode in TUNNELS:
        dst = flow.scene.ipip[f"source_v{family(flow.real_address)}"]
        quote, _ = tunnelled(quote, dst, flow.real_address, flow)
        src = dst
        dst = flow.real_address
    entered = error(kind, source or dst, src, quote, mtu, fields)
    if edit := how.pop("edit", None):
        edit(entered)
    entered = bytes(entered)
    scene.arrives_from(hops[0], entered)
    drop, kernel = how.pop("drop", None), how.pop("kernel", None)
    told = how.pop("told", mtu)
    from_router = how.pop("from_router", None)
    assert not how, f"unknown: {how}"
    if drop or kernel:
        scene.count(drop or kernel)
        scene.to_kernel += bool(kernel)
        return
    to, _, about, _ = flow.ends(way, near)
    crosses = family(to) != family(dst)
    fields, _ = translated(source or dst, to, fields, None)
    fields["ttl"] -= 1
    unknown = {}
    if crosses:
        fields.update(id=0, flags="DF")
        unknown = {"id": 0}
        kind = (TO_V6 if family(to) == 6 else TO_V4).get(kind, kind)
    quote = quotes[1] if quotes else quoted(flow, way, near, head, data, size, unknown)
    # The sender hears it from where it sent to. With NAT a real server sends to the client itself,
    # and a router on the way there stays the one that says so.
    keeps = flow.mode == "snat" if back else flow.mode in ("nat", "dr", *TUNNELS)
    teller = (source or about) if keeps else from_router or about
    left = bytes(error(kind, teller, to, quote, told, fields))
    loose = ()
    if flow.mode in TUNNELS and not back:
        sources = scene.ipip[f"source_v{family(flow.real_address)}"]
        left, loose = tunnelled(left, sources, flow.real_address, flow)
    scene.sends_to(hops[1], left, loose=loose)
