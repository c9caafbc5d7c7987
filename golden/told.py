"""Flows whose real server is told who its client is: TOA option, PROXY protocol."""

import socket
import struct

from scapy.layers.inet import TCP

from flow import Flow
from frames import family

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
TOA = 254
WRAP = 1 << 32


def packed(address):
    """An address as bytes."""
    return socket.inet_pton(socket.AF_INET6 if family(address) == 6 else socket.AF_INET, address)


def proxy_v1(source, target):
    """The line of the PROXY protocol, version 1 (proxy-protocol.txt 2.1)."""
    kind = f"TCP{family(source[0])}"
    return f"PROXY {kind} {source[0]} {target[0]} {source[1]} {target[1]}\r\n".encode()


def proxy_v2(source, target, datagram=False, padding=b""):
    """The header of version 2 (2.2), maybe with a TLV that means nothing (2.2.5)."""
    body = packed(source[0]) + packed(target[0]) + struct.pack(">HH", source[1], target[1])
    body += padding
    kind = (0x20 if family(source[0]) == 6 else 0x10) | (2 if datagram else 1)
    return SIGNATURE + struct.pack(">BBH", 0x21, kind, len(body)) + body


def toa(source):
    """The option of the TOA kernel modules: port and address."""
    return TOA, struct.pack(">H", source[1]) + packed(source[0])


def without_toa(options):
    """Options of a client, its own of TOA's kind overwritten by no-operations."""
    kept = []
    for name, value in options:
        kept += [("NOP", None)] * (2 + len(value)) if name == TOA else [(name, value)]
    return kept


def without_fast_open(options):
    """Options of a SYN, those of TCP Fast Open (RFC 7413) overwritten by no-operations."""
    kept = []
    for name, value in options:
        gone = name == 34 or name in (253, 254) and value[:2] == b"\xf9\x89"
        kept += [("NOP", None)] * (2 + len(value)) if gone else [(name, value)]
    return kept


class Told(Flow):
    """A flow of a service with `client_address`. The client's segments that begin where its stream
    begins tell the real server, until that one has answered; what comes behind a PROXY header is
    renumbered.

    `before=True` on a packet of the real server's says that it left before the header arrived.
    """

    def __init__(self, scene, service, **keys):
        super().__init__(scene, service, **keys)
        self.how = service.keys["client_address"]
        ends = (self.client, self.cport), (service.vip, self.vport)
        self.header = {
            "toa": lambda *_: b"",
            "proxy_v1": proxy_v1,
            "proxy_v2": lambda *ends: proxy_v2(*ends, service.protocol == "udp"),
        }[self.how](*ends)
        # That of a datagram in fragments, whose places are multiples of eight octets.
        self.padded = proxy_v2(*ends, True, b"\x04\0\x01\0")
        self.first = None
        self.knows = False
        self.plain = None
        self.clamped = None

    def syn(self, **how):
        """The SYN, whose number is where the client's stream begins."""
        self.first = (how.get("seq", self.client_seq) + 1) % WRAP
        self.knows = False
        super().syn(**how)

    def stream(self, way, head, data):
        """What is put into a segment, and its new numbers."""
        if way == "outbound":
            return [(self.plain, data)]
        head = head.copy()
        if self.service.protocol == "udp":
            return [(head, self.header + data)]
        flags = head.flags
        if self.how == "toa":
            head.options = without_toa(head.options)
        if "S" in flags and self.how == "toa":
            return [(head, data)]
        if "S" in flags:
            head.options = without_fast_open(head.options)
            return [(head, b"")]
        behind = (head.seq - self.first) % WRAP >= WRAP // 2
        if self.how != "toa" and behind and not self.knows:
            early = (self.first - head.seq) % WRAP
            return [(head, data if len(data) <= early else b"")]
        begins = head.seq == self.first and not self.knows
        if self.how == "toa":
            room = 40 - len(TCP(bytes(TCP(options=head.options)))) + 20
            option = toa((self.client, self.cport))
            if begins and "R" not in flags and room >= 2 + len(option[1]):
                head.options = [option, *head.options]
        elif begins and "R" not in flags:
            data = self.header + data
            if "U" in flags:
                head.urgptr += len(self.header)
        elif not begins:
            head.seq = (head.seq + len(self.header)) % WRAP
        return [(head, data)]

    def apart(self, way, head, data):
        """The same for a packet in fragments: no-operations make what is put in a multiple of eight
        octets long, beside the option or before the header in the stream."""
        if way == "outbound":
            head, plain = self.numbered(head, False)
            return head, plain, data, 0
        if self.service.protocol == "udp":
            return head, head, self.padded + data, len(self.padded)
        ((changed, put),) = self.stream(way, head, data)
        shift = len(bytes(TCP(options=changed.options))) - len(bytes(TCP(options=head.options)))
        shift += len(put) - len(data)
        if padding := -shift % 8:
            assert padding == 4, "not to be padded"
            changed = changed.copy()
            nops = [("NOP", None)] * 4
            options = list(changed.options)
            at = 1 if self.how == "toa" else 0
            changed.options = [*options[:at], *nops, *options[at:]]
        return head, changed, put, shift + padding

    def outbound(self, head, data, **how):
        """A packet of the real server's."""
        head, self.plain = self.numbered(head, how.pop("before", False))
        super().outbound(head, data, **how)

    def numbered(self, head, before):
        """A segment of the real server's, counting what it got before the client's stream too, and
        as the client gets it."""
        plain = head.copy()
        if self.service.protocol == "tcp" and "S" not in head.flags and "A" in head.flags:
            head = head.copy()
            if before:
                plain.ack = head.ack = self.first
            else:
                head.ack = (head.ack + len(self.header)) % WRAP
                self.knows = True
            moved = []
            for name, value in head.options:
                if name == "SAck":
                    value = tuple((edge + len(self.header)) % WRAP for edge in value)
                moved.append((name, value))
            head.options = moved
        if self.clamped is not None and "S" in getattr(head, "flags", ""):
            plain.options = [
                (name, self.clamped if name == "MSS" else value) for name, value in head.options
            ]
        return head, plain
