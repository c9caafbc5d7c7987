"""One client's flow through the director, from both ends."""

from scapy.layers.inet import IP, TCP, UDP

from frames import CLIENT, LADDR, ethernet, real_address, segment


class Flow:
    """One client's flow, from both ends: served by `real` (counted from 1) from `laddr`:`lport`,
    behind the gateways `via` and `real_via` where there are some.

    Each call is one packet that enters the director, with what must come of it: it leaves on the
    other side rewritten (nothing said), is dropped (`drop="reason"`), or goes to the kernel
(`kernel="reason"`). `ends=True` says that the session is gone after it, `opens=True` that it
    opens one though it is dropped, `reopens=True` that it opens one in the place of an old one.
    """

    def __init__(
        self,
        scene,
        service,
        real=1,
        lport=1024,
        laddr=LADDR,
        client=(CLIENT, 40000),
        via=None,
        real_via=None,
    ):
        self.scene = scene
        self.service = service
        self.real = real
        self.lport = lport
        self.laddr = laddr
        self.client, self.cport = client
        self.client_hop = via or self.client
        self.real_hop = real_via or real_address(real)
        self.is_open = False
        self.client_seq = 1_000_000
        self.real_seq = 2_000_000

    # TCP.

    def syn(self, **how):
        """The client's first packet; opens the session."""
        options = how.pop("options", [("MSS", 1460), ("SAckOK", b""), ("NOP", None), ("WScale", 7)])
        self.from_client("S", seq=self.client_seq, ack=0, options=options, **how)

    def syn_ack(self, **how):
        """The real server's answer to it."""
        options = [("MSS", 1460), ("NOP", None), ("NOP", None), ("SAckOK", b"")]
        seq = {"seq": self.real_seq, "ack": self.client_seq + 1, "options": options}
        self.from_real("SA", **seq, **how)
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
        """The four-way close, begun by the client; the session is gone with the last packet."""
        self.fin()
        self.real_fin()
        self.ack(ends=True)

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

    # UDP.

    def ask(self, data=b"question", **how):
        """The client's datagram."""
        self.inbound(UDP(chksum=how.pop("chksum", None)), data, **how)

    def reply(self, data=b"answer", **how):
        """The real server's datagram."""
        self.outbound(UDP(chksum=how.pop("chksum", None)), data, **how)

    # Frames.

    def inbound(self, head, data, **how):
        """Client → VIP enters; laddr:lport → real must leave."""
        before = {"src": self.client, "dst": self.service.vip}
        after = {"src": self.laddr, "dst": real_address(self.real)}
        ports = (self.cport, self.service.port), (self.lport, self.service.real_port)
        hops = self.client_hop, self.real_hop
        if how.pop("reopens", False):
            self.count_end({"ends": True})
        opens = how.pop("opens", False)
        length = self.passes(head, data, before, after, ports, hops, how)
        if (length or opens) and not self.is_open:
            self.is_open = True
            self.service.sessions[self.real] += 1
            self.service.active[self.real] += 1
            self.scene.created += 1
        if length:
            self.service.count("inbound", self.real, length)
        self.count_end(how)

    def outbound(self, head, data, **how):
        """Real → laddr:lport enters; VIP → client must leave."""
        before = {"src": real_address(self.real), "dst": self.laddr}
        after = {"src": self.service.vip, "dst": self.client}
        ports = (self.service.real_port, self.lport), (self.service.port, self.cport)
        hops = self.real_hop, self.client_hop
        if length := self.passes(head, data, before, after, ports, hops, how):
            self.service.count("outbound", self.real, length)
        self.count_end(how)

    def count_end(self, how):
        """Notes the end of the session when the packet was said to bring it."""
        if how.pop("ends", False):
            self.is_open = False
            self.service.active[self.real] -= 1
            self.scene.closed += 1
        assert not how, f"unknown: {how}"

    def expire(self):
        """Notes that the session ran out of time (after `Scene.wait`)."""
        self.is_open = False
        self.service.active[self.real] -= 1
        self.scene.expired += 1

    def passes(self, head, data, before, after, ports, hops, how):
        """Lets one packet in.

        Gives the length of the IP packet that must be counted, 0 when none must: those that leave,
        and those that would if their neighbour were known.
        """
        scene = self.scene
        fields = {"id": scene.next_id(), "ttl": 64, **how.pop("ip", {})}
        entered = segment(IP(**fields, **before), head, ports[0], data)
        if edit := how.pop("edit", None):
            edit(entered)
        port = how.pop("enters", None) or scene.side(hops[0])
        mac, _, vlan = scene.hops[hops[0]]
        frame = ethernet(mac, port.mac, how.pop("tags", (vlan,) if vlan else ()))
        frame = bytes(frame / entered) + how.pop("pad", b"")
        if cut := how.pop("cut", None):
            frame = frame[:cut]
        drop, kernel = how.pop("drop", None), how.pop("kernel", None)
        if drop:
            scene.drops(port, frame, drop)
            return len(entered) if drop == "unresolved" else 0
        if kernel:
            scene.kernel(port, frame, kernel)
            return 0
        scene.enters(port, frame)
        fields["ttl"] -= 1
        left = segment(IP(**fields, **after), head, ports[1], data)
        if edit_left := how.pop("edit_left", edit):
            edit_left(left)
        mac, name, vlan = scene.hops[hops[1]]
        port = scene.port_named(name)
        frame = ethernet(port.mac, mac, (vlan,) if vlan else ())
        scene.leaves(port, bytes(frame / left) + how.pop("pad_left", b""))
        return len(left)
