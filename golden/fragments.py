"""Datagrams that arrive in fragments."""

import icmp
import wire
from frames import family, header_length


class Pieces:
    """A packet of a flow in fragments, as they arrive and as they must leave.

    `places` are where it is cut: octets behind the IP header, multiples of 8.
    """

    def __init__(self, flow, way, head, data, places, fields=None):
        self.flow = flow
        self.way = way
        fields = {"id": flow.scene.next_id(), "ttl": 64, **(fields or {})}
        side, far = ("client", "real") if way == "inbound" else ("real", "client")
        head, changed, put, shift = flow.apart(way, head, data)
        whole = bytes(flow.packet(way, side, head, data, fields))
        identification = 0x1234_0000 | fields["id"]
        self.entered = wire.cut(whole, places, identification)
        # As an error quotes them to their sender: a hop older, and with what both families have of
        # the identification.
        older = bytes(flow.packet(way, side, head, data, {**fields, "ttl": fields["ttl"] - 1}))
        self.known = wire.cut(older, places, identification & 0xFFFF)
        before, after = flow.ends(way, side)[0], flow.ends(way, far)[0]
        fields, changed = wire.translated(before, after, fields, changed)
        fields["ttl"] -= 1
        if family(before) == 6 and family(after) == 4:
            # RFC 7915 5.1.1: the low half of the identification, and no DF.
            fields.update(id=identification & 0xFFFF, flags=0)
        elif family(before) == 4 and family(after) == 6:
            identification &= 0xFFFF
        whole = bytes(flow.packet(way, far, changed, put, fields))
        # What was put into the first moves the others.
        self.left = wire.cut(whole, [place + shift for place in places], identification)
        assert wire.assembled(self.left) == whole[header_length(whole) :]
        # The MTU that they are cut again for.
        self.mtu = None

    def arrive(self, *numbers, leave=None, **how):
        """These pieces arrive, counted from 0; with the last of them those of `leave` leave, as
        they came when nothing is said.

        `drop` is for all of them.
        """
        flow, scene = self.flow, self.flow.scene
        hops = flow.hops(self.way)
        drop, opens, ends = how.pop("drop", None), how.pop("opens", True), how.pop("ends", False)
        answer = how.pop("answer", None)
        assert not how, f"unknown: {how}"
        for number in numbers:
            port = scene.arrives_from(hops[0], self.entered[number])
            if drop:
                scene.count(drop)
                if answer:
                    mac = scene.hops[hops[0]][0]
                    icmp.answered(scene, port, mac, (), self.entered[number], *answer)
            elif leave is None:
                self.leave(number, opens)
        for number in leave or ():
            self.leave(number, opens)
        flow.count_end({"ends": ends})
        return self

    def reported(self, number, kind, mtu=0, size=None, **how):
        """Somebody on the far side reports an error about a piece (`icmp.reported`), which quotes
        `size` octets of its data, or all.
        """
        quotes = self.left[number], self.known[number]
        if size is not None:
            own = [8 if packet[:1] >= b"\x60" else 0 for packet in quotes]
            lengths = [header_length(packet) + more + size for packet, more in zip(quotes, own)]
            quotes = [packet[:length] for packet, length in zip(quotes, lengths)]
        icmp.reported(self.flow, self.way, kind, mtu, quotes=quotes, **how)

    def leave(self, number, opens=True):
        """A piece leaves."""
        flow, scene = self.flow, self.flow.scene
        piece, loose = self.left[number], ()
        if opens and self.way == "inbound" and not flow.is_open:
            flow.is_open = True
            flow.service.opened(flow.real)
            scene.created += 1
        if flow.mode in wire.TUNNELS and self.way == "inbound":
            sources = scene.ipip[f"source_v{family(flow.real_address)}"]
            piece, loose = wire.tunnelled(piece, sources, flow.real_address, flow)
        if flow.open_choice:
            loose = [*loose, (-14, -8, flow.choice())]
        pieces, loose = wire.fragments(piece, self.mtu, loose) if self.mtu else ((piece,), loose)
        for part in pieces:
            scene.sends_to(flow.hops(self.way)[1], part, loose=loose)
        flow.service.count(self.way, flow.real, len(self.entered[number]))

    def all(self, **how):
        """All pieces in order, each leaving as it comes."""
        return self.arrive(*range(len(self.entered)), **how)
