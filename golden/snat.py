"""A flow that a real server opens to the outside, through source NAT."""

from scapy.layers.inet import ICMP
from scapy.layers.inet6 import ICMPv6EchoReply, ICMPv6EchoRequest

from flow import Flow
from frames import CLIENT, CLIENT6, WAN, WAN6, family, ip_header, real_address, segment
from modes import Mode
from service import Counted

SNAT4 = Mode("snat4", "Source NAT, IPv4", "snat", 4)
SNAT6 = Mode("snat6", "Source NAT, IPv6", "snat", 6)
BOTH = (SNAT4, SNAT6)
ALL4, ALL6 = "192.0.2.0/24", "2001:db8:2::/64"


class Outside(Counted):
    """What a rule's sessions are counted under: nothing that a replay reports."""

    def __init__(self, protocol):
        super().__init__([1])
        self.protocol = protocol


class Inside(Flow):
    """A real server's own connection: `inside` → `outside` becomes `pool`:`lport` → `outside`.

    The real server takes the part of the client in `Flow`: `syn`, `send`, `ask` are what it sends,
    `syn_ack`, `answer`, `reply` what the outside does. Without ports, an echo's identifier is the
    port of both sides.
    """

    def __init__(self, scene, protocol="tcp", version=4, inside=None, outside=None, **keys):
        inside = inside or (real_address(1, version), 50000)
        port = {"tcp": 80, "udp": 53}.get(protocol, 0)
        outside = outside or (CLIENT if version == 4 else CLIENT6, port)
        self.scene = scene
        self.service = Outside(protocol)
        self.mode = "snat"
        self.one_way = False
        self.open_choice = False
        self.same = self.spread = self.outer = None
        self.fields = {}
        self.real = 1
        self.client, self.cport = inside
        self.real_address, self.real_port = outside
        self.laddr = keys.pop("pool", WAN if family(outside[0]) == 4 else WAN6)
        self.lport = keys.pop("lport", 1024)
        self.client_hop = keys.pop("inside_via", None) or self.client
        self.real_hop = keys.pop("via", None) or self.real_address
        assert not keys, keys
        self.is_open = False
        self.client_seq = 3_000_000
        self.real_seq = 4_000_000

    def ends(self, way, side):
        """As in `Flow`; the inside is the "client"."""
        source = (self.client, self.cport) if side == "client" else (self.laddr, self.lport)
        target = self.real_address, self.real_port
        if self.service.protocol == "icmp":
            target = self.real_address, source[1]
        return (*source, *target) if way == "inbound" else (*target, *source)

    # Echoes.

    def ping(self, data=b"abcdefgh", **how):
        """An echo request."""
        six = family(self.client) == 6
        seq = how.pop("seq", 1)
        self.inbound(ICMPv6EchoRequest(seq=seq) if six else ICMP(type=8, seq=seq), data, **how)

    def pong(self, data=b"abcdefgh", **how):
        """An echo reply."""
        six = family(self.client) == 6
        seq = how.pop("seq", 1)
        self.outbound(ICMPv6EchoReply(seq=seq) if six else ICMP(type=0, seq=seq), data, **how)


def inside(s, m, protocol="tcp", rule=None, **keys):
    """A rule for all of the inside, and a flow of real server 1."""
    if not s.rules:
        s.snat(sources=[ALL4 if m.version == 4 else ALL6], **(rule or {}))
    return s.inside(protocol=protocol, version=m.version, **keys)


def hairpin(one, two, head, data=b"", opens=0, ends=0, drop=None, ttl=64):
    """A packet of the host inside that `one` is of, to what that of `two` has outside: it arrives
    there from what the first has outside, two hops older, since it goes through the director twice.

    It opens and ends so many sessions.
    """
    scene, fields = one.scene, {"id": one.scene.next_id(), "ttl": ttl}
    ip = ip_header(one.client, two.laddr, fields)
    scene.arrives_from(one.client, bytes(segment(ip, head, (one.cport, two.lport), data)))
    scene.created += opens
    scene.closed += ends
    if drop:
        scene.count(drop)
        return
    ip = ip_header(one.laddr, two.client, {**fields, "ttl": ttl - 2})
    scene.sends_to(two.client, bytes(segment(ip, head, (one.lport, two.cport), data)))
