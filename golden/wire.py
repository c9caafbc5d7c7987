"""What happens to whole packets: other families, tunnels, fragments."""

import hashlib
import ipaddress

from scapy.layers.inet import ICMP, IP, UDP, defragment
from scapy.layers.l2 import GRE
from scapy.layers.inet6 import IPv6, IPv6ExtHdrFragment, defragment6
from scapy.packet import Raw

from frames import family, header_length, version_of

DF, MF = 0x4000, 0x2000


def translated(before, after, fields, head):
    """The IP fields and transport header of a packet that goes on as another family (RFC 7915)."""
    fields = dict(fields)
    if family(before) == family(after):
        return fields, head
    fields = {key: fields[key] for key in ("ttl", "tos") if key in fields}
    if family(after) == 4:
        fields.update(id=0, flags=0)
    if getattr(head, "chksum", None) == 0:
        # RFC 8200 8.1: a UDP checksum is needed in IPv6.
        head = head.copy()
        head.chksum = None
    return fields, head


HEADER_SUM = (10, 12, {"sums": [0, 20]})


def identified(packet):
    """An IPv4 packet made from IPv6, and what is not prescribed of it (RFC 7915 5.1): up to 1,260
    bytes it may be fragmented, and has an identification of its own.
    """
    header = IP(packet[:20])
    header.flags = "DF" if len(packet) > 1260 else 0
    header.chksum = None
    identification = {} if len(packet) > 1260 else {"distinct": "identification"}
    return bytes(header) + packet[20:], [(4, 6, identification), HEADER_SUM]


TUNNELS = ("ipip", "gue", "gre")


def overhead(kind, version, keys):
    """Bytes that a tunnel to a real server puts before a packet."""
    return (20 if version == 4 else 40) + len(SHIMS[kind](b"", (4, 4), keys)[0])


def no_shim(packet, _ends, _keys):
    """IP in IP: nothing between the headers."""
    return b"", 4 if not packet or version_of(packet) == 4 else 41, None


def gue_shim(packet, ends, keys):
    """A UDP and a GUE header (draft-ietf-intarea-gue, variant 0)."""
    inside = 4 if not packet or version_of(packet) == 4 else 41
    udp = UDP(sport=0, dport=keys.get("tunnel_port", 6080), chksum=0, len=12 + len(packet))
    checked = 6 if keys.get("tunnel_checksum") else None
    return bytes(udp) + bytes([0, inside, 0, 0]), 17, checked


def gre_shim(packet, ends, keys):
    """A GRE header (RFC 2784, RFC 2890). Its checksum is over all that follows the outer header."""
    inside = 0x0800 if not packet or version_of(packet) == 4 else 0x86DD
    checked, key = keys.get("tunnel_checksum"), keys.get("tunnel_key")
    parts = {"chksum_present": 1} if checked else {}
    parts |= {"key_present": 1, "key": key} if key is not None else {}
    made = bytes(GRE(proto=inside, **parts) / Raw(packet))
    return made[: len(made) - len(packet)], 47, None


SHIMS = {"ipip": no_shim, "gue": gue_shim, "gre": gre_shim}


def choices(shim, packet, checked, start, flow):
    """What is not prescribed of a shim that begins at `start`: the UDP source port is the flow's,
    and the checksum over it is right.
    """
    loose = []
    length = len(shim) + len(packet)
    if flow and flow.mode == "gue":
        same = f"port of {flow.service.name} {flow.client} {flow.cport}"
        loose.append((start, start + 2, {"same": same}))
    if checked:
        at = checked
        # The addresses are before it, and with these two numbers all of the pseudo header.
        first = {20: 12, 40: 8}[start]
        rule = {"sums": [first, start + length], "pseudo": 17 + length}
        loose.append((start + at, start + at + 2, rule))
    return loose


def tunnelled(packet, sources, destination, flow=None, same=None):
    """An IP packet in another (RFC 2003, 2473; ECN and DSCP by RFC 6040's normal mode), or in what
    the flow's tunnel puts between the two.

    `sources` is an address, or a prefix of which each flow has one: all of `same` the same.
    """
    if version_of(packet) == 4:
        tos = packet[1]
        fragmentable = not packet[6] & 0x40
    else:
        tos = (packet[0] << 4 | packet[1] >> 4) & 0xFF
        fragmentable = False
    kind, keys = (flow.mode, flow.service.keys) if flow else ("ipip", {})
    shim, protocol, checked = SHIMS[kind](packet, (sources, destination), keys)
    loose, source = [], sources
    if "/" in sources:
        network = ipaddress.ip_network(sources)
        source = str(network[1])
        spread = [address.packed.hex() for address in network]
        rules = {"one_of": spread, **({"same": same} if same else {})}
        if family(destination) == 4:
            loose = [HEADER_SUM, (12, 16, rules)]
        else:
            loose = [(8, 24, rules)]
    start = 20 if family(destination) == 4 else 40
    more = choices(shim, packet, checked, start, flow)
    packet = shim + packet
    if family(destination) == 6:
        outer = IPv6(src=source, dst=destination, tc=tos, hlim=64, nh=protocol)
        return bytes(outer / Raw(packet)), [*loose, *more]
    fields = {"tos": tos, "ttl": 64, "proto": protocol, "id": 0, "flags": "DF"}
    if fragmentable:
        fields["flags"] = 0
        loose = [(4, 6, {}), HEADER_SUM, *loose[1:]]
    return bytes(IP(src=source, dst=destination, **fields) / Raw(packet)), [*loose, *more]


def fragments(packet, mtu, loose=()):
    """A packet cut for an MTU (RFC 791 3.2, RFC 8200 4.5), and what is not prescribed of each
    piece. An identification that may be anything must be that of all pieces.
    """
    if len(packet) <= mtu:
        return [packet], loose
    if version_of(packet) == 6 and packet[6] == 44:
        return cut_again(packet, mtu), loose
    length = header_length(packet)
    own = 8 if version_of(packet) == 6 else 0
    room = (mtu - length - own) // 8 * 8
    pieces = cut(packet, range(room, len(packet) - length, room))
    same = {"same": f"datagram {hashlib.sha256(packet).hexdigest()[:8]}"}
    if own:
        return pieces, [*loose, (44, 48, same)]
    return pieces, [(4, 6, same) if part[:2] == (4, 6) else part for part in loose]


def cut(packet, places, identification=None):
    """An IP packet in fragments, cut at these places of what may be fragmented, in octets that are
    multiples of 8: by RFC 791 3.2, or with a Fragment header by RFC 8200 4.5.
    """
    length = header_length(packet)
    body = packet[length:]
    bounds = [0, *places, len(body)]
    pieces = []
    for first, end in zip(bounds, bounds[1:]):
        more = end < len(body)
        if version_of(packet) == 4:
            pieces.append(fragment4(packet, body[first:end], first, more))
        else:
            header = IPv6(packet[:40])
            header.plen = None
            part = IPv6ExtHdrFragment(
                nh=packet[6], offset=first // 8, m=int(more), id=identification or 0x1234
            )
            header.nh = 44
            pieces.append(bytes(header / part / Raw(body[first:end])))
    return pieces


def cut_again(packet, mtu):
    """A fragment of IPv6 in smaller ones: places go on from its own."""
    header, own, body = packet[:40], IPv6ExtHdrFragment(packet[40:48]), packet[48:]
    room = (mtu - 48) // 8 * 8
    pieces = []
    for first in range(0, len(body), room):
        part, data = own.copy(), body[first : first + room]
        part.offset = own.offset + first // 8
        part.m = int(bool(own.m) or first + room < len(body))
        fixed = IPv6(header)
        fixed.plen = 8 + len(data)
        pieces.append(bytes(fixed)[:40] + bytes(part)[:8] + data)
    return pieces


def assembled(pieces):
    """What scapy's reassembly makes of fragments: what the datagram carries."""
    if version_of(pieces[0]) == 6:
        return bytes(defragment6([IPv6(piece) for piece in pieces]).payload)
    (whole,) = defragment([IP(piece) for piece in pieces])
    return bytes(whole.payload)


def fragment4(packet, data, first, more):
    """One fragment of an IPv4 packet; options that are not to be copied become no-operations."""
    header = IP(packet[: header_length(packet)])
    offset = header.frag + first // 8
    header.frag = offset
    header.flags = (header.flags.value & 2) | int(more or bool(header.flags.value & 1))
    header.len = None
    header.chksum = None
    if first and header.options:
        kept = [option for option in header.options if option.copy_flag]
        header.options = kept
        header.ihl = None
    return bytes(header / Raw(data))


__all__ = ["ICMP", "assembled", "cut", "fragments", "translated", "tunnelled"]
