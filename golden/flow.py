"""One client's flow through the director, from both ends."""

from scapy.layers.inet import TCP, UDP
from scapy.layers.sctp import SCTP

import icmp
import wire
from frames import CLIENT, CLIENT6, LADDR, LADDR6, family, ip_header, real_mac, segment, version_of

ONE_WAY = ("dr", *wire.TUNNELS)
OPTIONS = [("MSS", 1460), ("SAckOK", b""), ("NOP", None), ("WScale", 7)]
ANSWER_OPTIONS = [("MSS", 1460), ("NOP", None), ("NOP", None), ("SAckOK", b"")]


class Flow:
    """One client's flow, from both ends: served by `real` (counted from 1), in Full NAT from
    `laddr`:`lport`, behind the gateways `via` and `real_via` where there are some. `port` is the
    virtual port where the service has several. `real=None` leaves the choice open, in direct
    routing: all packets of flows with the same `same` must then go to the same one.

    Each call is one packet that enters the director, with what must come of it: it leaves on the
    other side rewritten (nothing said), is dropped (`drop="reason"`), or goes to the kernel
    (`kernel="reason"`). `ends=True` says that the session is gone after it, `opens=True` that it
    opens one though it is dropped, `replaces=FLOW` that the session of that one is evicted for it,
    `late=True` that a client's packet is one of a session that has ended.
    `answer=(kind, mtu)` with a drop says that its sender gets an ICMP error from the director.
    `mtu=N` says that it leaves in fragments for that MTU. What the real server says goes past the
    director in direct routing and tunnels, and is only noted.
    """

    def __init__(
        self,
        scene,
        service,
        real=1,
        lport=1024,
        laddr=None,
        client=None,
        via=None,
        real_via=None,
        port=None,
        same=None,
        outer=None,
    ):
        self.scene = scene
        self.service = service
        self.open_choice = real is None
        self.same = same
        self.spread = None
        self.real = service.reals[0] if real is None else real
        self.mode = service.mode_of(self.real)
        self.one_way = self.mode in ONE_WAY
        self.real_address = service.address_of(self.real)
        self.vport = port or service.port
        self.real_port = service.real_port or self.vport
        self.lport = lport
        self.laddr = laddr or (LADDR if family(self.real_address) == 4 else LADDR6)
        default = (CLIENT if family(service.vip) == 4 else CLIENT6), 40000
        self.client, self.cport = client or default
        self.client_hop = via or self.client
        self.real_hop = real_via or self.real_address
        self.outer = outer
        self.fields = {}
        self.is_open = False
        self.client_seq = 1_000_000
        self.real_seq = 2_000_000

    # TCP.

    def syn(self, **how):
        """The client's first packet; opens the session."""
        options = how.pop("options", OPTIONS)
        self.from_client("S", seq=self.client_seq, ack=0, options=options, **how)

    def syn_ack(self, **how):
        """The real server's answer to it."""
        how.setdefault("options", ANSWER_OPTIONS)
        self.from_real("SA", seq=self.real_seq, ack=self.client_seq + 1, **how)
        self.client_seq += 1
        self.real_seq += 1

    def handshake(self):
        """SYN, SYN+ACK, ACK."""
        self.syn()
        self.syn_ack()
        self.ack()
        return self

    def ack(self, **how):
        """The client acknowledges all."""
        self.from_client("A", **how)

    def real_ack(self, **how):
        """The real server acknowledges all."""
        self.from_real("A", **how)

    def send(self, data, **how):
        """The client sends `data`."""
        self.from_client("PA", data, **how)

    def answer(self, data, **how):
        """The real server sends `data`."""
        self.from_real("PA", data, **how)

    def fin(self, **how):
        """The client closes its side."""
        self.from_client("FA", **how)
        self.client_seq += 1

    def real_fin(self, **how):
        """The real server closes its side."""
        self.from_real("FA", **how)
        self.real_seq += 1

    def close(self):
        """The four-way close, begun by the client; the session is gone with the last packet,
        unless the director sees only one side of it."""
        self.fin()
        self.real_fin()
        self.ack(ends=not self.one_way)

    def from_client(self, flags, data=b"", **how):
        """Any TCP segment of the client's."""
        seq, ack = how.pop("seq", self.client_seq), how.pop("ack", self.real_seq)
        head = TCP(flags=flags, seq=seq, ack=ack, options=how.pop("options", []))
        self.inbound(head, data, **how)
        self.client_seq += len(data)

    def from_real(self, flags, data=b"", **how):
        """Any TCP segment of the real server's."""
        seq, ack = how.pop("seq", self.real_seq), how.pop("ack", self.client_seq)
        head = TCP(flags=flags, seq=seq, ack=ack, options=how.pop("options", []))
        self.outbound(head, data, **how)
        self.real_seq += len(data)

    # UDP, SCTP, other protocols.

    def ask(self, data=b"question", **how):
        """The client's datagram."""
        self.inbound(UDP(chksum=how.pop("chksum", None)), data, **how)

    def reply(self, data=b"answer", **how):
        """The real server's datagram."""
        self.outbound(UDP(chksum=how.pop("chksum", None)), data, **how)

    def chunk(self, chunk, **how):
        """The client's SCTP chunk; scapy computes the CRC32c (RFC 9260 6.8)."""
        self.inbound(SCTP(tag=how.pop("tag", 0x51517171)), bytes(chunk), **how)

    def real_chunk(self, chunk, **how):
        """The real server's SCTP chunk."""
        self.outbound(SCTP(tag=how.pop("tag", 0x62628282)), bytes(chunk), **how)

    def raw(self, protocol, data, **how):
        """The client's packet of a protocol without ports."""
        self.inbound(protocol, data, **how)

    def real_raw(self, protocol, data, **how):
        """The real server's."""
        self.outbound(protocol, data, **how)

    # Packets.

    def ends(self, way, side):
        """Source, source port, destination and destination port of packets of `way` as they are on
        a side: "client" or "real".
        """
        client = self.client, self.cport
        if side == "client":
            source, target = client, (self.service.vip, self.vport)
        else:
            source, target = {
                "fnat": ((self.laddr, self.lport), (self.real_address, self.real_port)),
                "nat": (client, (self.real_address, self.real_port)),
            }.get(self.mode, (client, (self.service.vip, self.vport)))
        return (*source, *target) if way == "inbound" else (*target, *source)

    def packet(self, way, side, head, data, fields):
        """A packet of `way` as it is on a side, before any tunnel."""
        src, sport, dst, dport = self.ends(way, side)
        return segment(ip_header(src, dst, fields), head, (sport, dport), data)

    def left(self, way, head, data, fields, edit=None):
        """What the director makes of a packet: bytes, and parts that are not prescribed."""
        side = "real" if way == "inbound" else "client"
        before = self.ends(way, "client" if side == "real" else "real")
        fields, head = wire.translated(before[0], self.ends(way, side)[0], fields, head)
        fields["ttl"] -= 1
        packet = self.packet(way, side, head, data, fields)
        if edit:
            edit(packet)
        packet, loose = bytes(packet), []
        if family(before[0]) == 6 and version_of(packet) == 4:
            packet, loose = wire.identified(packet)
        if way == "inbound" and self.mode in wire.TUNNELS:
            sources = self.outer or self.scene.ipip[f"source_v{family(self.real_address)}"]
            packet, loose = wire.tunnelled(packet, sources, self.real_address, self, self.same)
        return packet, loose

    def inbound(self, head, data, **how):
        """Client → VIP enters; what the mode makes of it must leave."""
        if old := how.pop("replaces", None):
            old.count_end({"ends": True})
        opens, late = how.pop("opens", False), how.pop("late", False)
        length = self.passes("inbound", head, data, how)
        if (length or opens) and not (self.is_open or late):
            self.is_open = True
            self.service.opened(self.real)
            self.scene.created += 1
        if length:
            self.service.count("inbound", self.real, length)
        self.count_end(how)

    def outbound(self, head, data, **how):
        """Real server → client; what the mode makes of it must leave."""
        if self.one_way and not how.pop("anyway", False):
            return
        if length := self.passes("outbound", head, data, how):
            self.service.count("outbound", self.real, length)
        self.count_end(how)

    def count_end(self, how):
        """Notes the end of the session when the packet was said to bring it."""
        if how.pop("ends", False):
            self.is_open = False
            self.service.ended(self.real)
            self.scene.closed += 1
        assert not how, f"unknown: {how}"

    def expire(self):
        """Notes that the session ran out of time (after `Scene.wait`)."""
        self.is_open = False
        self.service.ended(self.real)
        self.scene.expired += 1

    def evict(self):
        """Notes that the session has given way to the one that the next packet opens."""
        self.is_open = False
        self.service.ended(self.real)
        self.scene.evicted += 1

    def hops(self, way):
        """The neighbours that a packet of `way` comes from and goes to."""
        hops = self.client_hop, self.real_hop
        return hops if way == "inbound" else hops[::-1]

    def passes(self, way, head, data, how):
        """Lets one packet in.

        Gives the length of the IP packet that must be counted, 0 when none must: those that leave,
        and those that would if their neighbour were known.
        """
        scene, hops = self.scene, self.hops(way)
        fields = {"id": scene.next_id(), "ttl": 64, **self.fields, **how.pop("ip", {})}
        side = "client" if way == "inbound" else "real"
        entered = self.packet(way, side, head, data, fields)
        edit, edit_left = how.pop("edit", None), how.pop("edit_left", None)
        if edit:
            edit(entered)
        entered = bytes(entered)
        changed = self.stream(way, head, data)
        count, mtu = how.pop("count", None), how.pop("mtu", None)
        pad, pad_left = how.pop("pad", b""), how.pop("pad_left", b"")
        cut, tags, enters = how.pop("cut", None), how.pop("tags", None), how.pop("enters", None)
        answer, drop, kernel = how.pop("answer", None), how.pop("drop", None), how.pop("kernel", 0)
        told = (entered + pad)[: cut and cut - 14]
        port = scene.arrives_from(hops[0], told, enters, tags)
        if drop or kernel:
            scene.count(drop or kernel)
            scene.to_kernel += bool(kernel)
            if answer:
                mac, _, vlan = scene.hops[hops[0]]
                tags = ((vlan,) if vlan else ()) if tags is None else tags
                # Who was sent to is not the director, whose address of the session it is then.
                if self.mode == "snat":
                    teller = self.laddr
                else:
                    nat = self.mode == "nat" and way == "outbound"
                    teller = self.service.vip if nat else None
                icmp.answered(scene, port, mac, tags, entered, *answer, teller=teller)
            return len(entered) if drop == "unresolved" else 0
        for head, data in changed:
            left, loose = self.left(way, head, data, fields, edit_left or edit)
            if self.open_choice:
                loose = [*loose, (-14, -8, self.choice())]
            pieces, loose = wire.fragments(left, mtu, loose) if mtu else ((left,), loose)
            for piece in pieces:
                scene.sends_to(hops[1], piece, pad_left, loose)
        return count or len(entered)

    def choice(self):
        """What is prescribed of the destination MAC when the choice is open."""
        macs = [real_mac(real).replace(":", "") for real in self.service.reals]
        rules = {"same": self.same, "spread": self.spread}
        return {"one_of": macs, **{key: name for key, name in rules.items() if name}}

    def stream(self, way, head, data):
        """What the director does to the transport header and data: (header, data) for each packet
        that leaves. Nothing, here."""
        return [(head, data)]

    def apart(self, way, head, data):
        """A packet that comes in fragments: its transport header as it enters and as it leaves, the
        data with which it leaves, and by how much its first fragment has grown."""
        return head, head, data, 0
