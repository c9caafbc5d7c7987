"""The forwarding modes over the families: what most rows are played in."""

import wire
from frames import CLIENT, CLIENT6, GATEWAY, GATEWAY6, VIP, VIP6


TUNNELS = ("ipip", "gue", "gre")
ONE_WAY_FORWARDS = ("dr", *TUNNELS)


class Mode:
    """A forwarding mode and the families of the virtual and the real addresses."""

    def __init__(self, name, title, forward, version, real_version=None, **keys):
        self.name = name
        self.title = title
        self.forward = forward
        self.keys = keys
        self.version = version
        self.real_version = real_version or version
        self.one_way = forward in ONE_WAY_FORWARDS
        self.crosses = forward == "fnat" and self.version != self.real_version
        self.vip = VIP if version == 4 else VIP6
        self.client = CLIENT if version == 4 else CLIENT6
        self.gateway = GATEWAY if version == 4 else GATEWAY6

    def service(self, s, name="web", protocol="tcp", port=80, reals=(1, 2, 3), **keys):
        """Adds a service of this mode to a scene."""
        keys = {"mode": self.forward, "version": self.version, **self.keys, **keys}
        keys.setdefault("real_version", self.real_version)
        return s.service(name, protocol, port, reals, **keys)

    @property
    def overhead(self):
        """Bytes that a tunnel puts before a packet."""
        return wire.overhead(self.forward, self.real_version, self.keys)

    def client_at(self, number):
        """The address of another client on the link."""
        return f"198.51.100.{number}" if self.version == 4 else f"2001:db8:1::{number:x}"


FNAT4 = Mode("fnat4", "Full NAT, IPv4", "fnat", 4)
FNAT6 = Mode("fnat6", "Full NAT, IPv6", "fnat", 6)
FNAT46 = Mode("fnat46", "Full NAT, IPv4 to IPv6", "fnat", 4, 6)
FNAT64 = Mode("fnat64", "Full NAT, IPv6 to IPv4", "fnat", 6, 4)
NAT4 = Mode("nat4", "NAT, IPv4", "nat", 4)
NAT6 = Mode("nat6", "NAT, IPv6", "nat", 6)
DR4 = Mode("dr4", "Direct routing, IPv4", "dr", 4)
DR6 = Mode("dr6", "Direct routing, IPv6", "dr", 6)
IPIP4 = Mode("ipip_4in4", "Tunnel, 4in4", "ipip", 4)
IPIP6 = Mode("ipip_6in6", "Tunnel, 6in6", "ipip", 6)
IPIP46 = Mode("ipip_4in6", "Tunnel, 4in6", "ipip", 4, 6)
IPIP64 = Mode("ipip_6in4", "Tunnel, 6in4", "ipip", 6, 4)
GUE4 = Mode("gue_4in4", "GUE, 4in4", "gue", 4)
GUE6 = Mode("gue_6in6", "GUE with checksum, 6in6", "gue", 6, tunnel_checksum=True)
GUE46 = Mode("gue_4in6", "GUE, 4in6", "gue", 4, 6, tunnel_port=5555)
GRE4 = Mode("gre_4in4", "GRE, 4in4", "gre", 4)
GRE6 = Mode("gre_6in6", "GRE with key, 6in6", "gre", 6, tunnel_key=7)
GRE46 = Mode("gre_4in6", "GRE with checksum, 4in6", "gre", 4, 6, tunnel_checksum=True)
GRE64 = Mode(
    "gre_6in4",
    "GRE with checksum and key, 6in4",
    "gre",
    6,
    4,
    tunnel_checksum=True,
    tunnel_key=2**32 - 1,
)
GUE64 = Mode("gue_6in4", "GUE with checksum, 6in4", "gue", 6, 4, tunnel_checksum=True)

FNAT = (FNAT6, FNAT46, FNAT64)
NAT = (NAT4, NAT6)
DR = (DR4, DR6)
IPIP = (IPIP4, IPIP6, IPIP46, IPIP64)
TWO_WAY = (*FNAT, *NAT)
GUE = (GUE4, GUE6, GUE46, GUE64)
GRE = (GRE4, GRE6, GRE46, GRE64)
IN_TUNNELS = (*IPIP, *GUE, *GRE)
ONE_WAY = (*DR, *IN_TUNNELS)
NEW = (*TWO_WAY, *ONE_WAY)
ALL = (FNAT4, *NEW)
