"""What a golden row is made with: a small network around a director, and flows through it.

A row says in order which frame enters which port, and what must come of it: the frame that must
leave, and where, or the reason it must be counted under. Nothing in here runs the director or
knows how it works. A frame that must leave is built by scapy from the description of Full NAT (new
addresses, new ports, TTL less one, the next hop's MAC) and its checksums are computed from scratch,
so director and expectation agree only if both are right.
"""

import json
import struct
from collections import OrderedDict

from flow import Flow
from frames import CLIENT, CLIENT_MAC, LADDR, VIP, ethernet, real_address, real_mac

NS = 1_000_000_000
START_NS = 1_700_000_000 * NS
WAYS = ("inbound", "outbound")


def text(value):
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value)


class Port:
    """A port of the director."""

    def __init__(self, name, number):
        self.name = name
        self.keys = OrderedDict(name=name, device=f"tap:{name}")
        self.mac = f"02:00:00:00:00:{number:02x}"
        self.keys["mac"] = self.mac
        self.keys["mtu"] = 1500
        self.received = []
        self.sent = []


class Service:
    """A virtual service and what must be counted of it."""

    def __init__(self, name, protocol, port, reals, **keys):
        self.name = name
        self.protocol = protocol
        self.vip = keys.pop("vip", VIP)
        self.port = port
        self.mode = "fnat"
        self.pool = keys.pop("pool", "lan")
        self.real_port = keys.pop("real_port", port)
        self.weights = keys.pop("weights", {})
        self.reals = list(reals)
        self.sessions = {real: 0 for real in self.reals}
        self.active = {real: 0 for real in self.reals}
        self.packets = {way: {real: 0 for real in self.reals} for way in WAYS}
        self.bytes = {way: {real: 0 for real in self.reals} for way in WAYS}
        assert not keys, keys

    def toml(self):
        """The service's section of the configuration."""
        lines = [
            "[[service]]",
            f"name = {text(self.name)}",
            f"protocol = {text(self.protocol)}",
            f"vip = {text(self.vip)}",
            f"port = {self.port}",
            'mode = "fnat"',
            'scheduler = "rr"',
            f"pool = {text(self.pool)}",
        ]
        for real in self.reals:
            lines += ["", "[[service.real]]", f"address = {text(real_address(real))}"]
            if self.real_port != self.port:
                lines.append(f"port = {self.real_port}")
            if real in self.weights:
                lines.append(f"weight = {self.weights[real]}")
        return lines

    def count(self, way, real, length):
        """Counts a packet of `length` bytes that was forwarded."""
        self.packets[way][real] += 1
        self.bytes[way][real] += length

    def sums(self, reals):
        """What is counted of some of the real servers together."""
        return {
            "sessions": sum(self.sessions[real] for real in reals),
            "active": sum(self.active[real] for real in reals),
            "packets": {way: sum(self.packets[way][real] for real in reals) for way in WAYS},
            "bytes": {way: sum(self.bytes[way][real] for real in reals) for way in WAYS},
        }

    def expected(self):
        """The service's part of the expected counters."""
        reals = [
            {"address": real_address(real), "port": self.real_port, **self.sums([real])}
            for real in self.reals
        ]
        return {"name": self.name, **self.sums(self.reals), "reals": reals}


class Scene:
    """One row: the configuration, the frames in and out, the counters.

    As it stands: two arms. `front` towards clients (198.51.100.0/24), `back` towards real servers
    (192.0.2.0/24), both on-link, the client's and the real servers' MACs known. `one_arm()` makes
    it one port.
    """

    def __init__(self):
        self.front = Port("front", 1)
        self.back = Port("back", 2)
        self.ports = [self.front, self.back]
        self.services = OrderedDict()
        self.pools = OrderedDict(lan={"addresses": [LADDR]})
        self.limits = OrderedDict()
        self.timeouts = OrderedDict()
        self.tcp_policy = OrderedDict()
        self.routes = [("198.51.100.0/24", None, "front"), ("192.0.2.0/24", None, "back")]
        self.hops = OrderedDict()
        self.hops[CLIENT] = (CLIENT_MAC, "front", None)
        for number in range(1, 8):
            self.hops[real_address(number)] = (real_mac(number), "back", None)
        self.unknown = set()
        self.now_ns = START_NS
        self.reasons = {}
        self.to_kernel = 0
        self.created = 0
        self.expired = 0
        self.closed = 0
        self.packet_id = 0

    # The network.

    def service(self, name="web", protocol="tcp", port=80, reals=(1, 2, 3), **keys):
        """Adds a virtual service."""
        self.services[name] = Service(name, protocol, port, reals, **keys)
        return self.services[name]

    def one_arm(self):
        """Clients and real servers both on `front`."""
        self.ports = [self.front]
        self.routes = [(prefix, via, "front") for prefix, via, _ in self.routes]
        for address, (mac, _, vlan) in self.hops.items():
            self.hops[address] = (mac, "front", vlan)

    def hop(self, address, mac, port="front", vlan=None):
        """Makes a neighbour known."""
        self.hops[address] = (mac, port, vlan)

    def forget(self, address):
        """Makes a neighbour's MAC unknown to the director."""
        self.unknown.add(address)

    def port_named(self, name):
        """The port called `name`."""
        return next(port for port in self.ports if port.name == name)

    def side(self, address):
        """The port on which `address`, a neighbour, is."""
        return self.port_named(self.hops[address][1])

    # Time and frames.

    def wait(self, seconds):
        """Lets time pass."""
        self.now_ns += round(seconds * NS)

    def next_id(self):
        """An IP identification for the next packet."""
        self.packet_id += 1
        return self.packet_id

    def enters(self, port, frame):
        """`frame` arrives at `port`, a microsecond after what was before."""
        self.now_ns += 1000
        port.received.append((self.now_ns, bytes(frame)))

    def leaves(self, port, frame):
        """What just entered must leave `port` as `frame`."""
        port.sent.append((self.now_ns, bytes(frame)))

    def drops(self, port, frame, reason):
        """`frame` arrives at `port` and must be dropped for `reason`."""
        self.enters(port, frame)
        self.count(reason)

    def kernel(self, port, frame, reason):
        """`frame` arrives at `port` and is for the kernel, for `reason`."""
        self.enters(port, frame)
        self.count(reason)
        self.to_kernel += 1

    def count(self, reason):
        """Counts what just entered under `reason`."""
        self.reasons[reason] = self.reasons.get(reason, 0) + 1

    def client_frame(self, packet):
        """A frame of the client's with any IP packet in it."""
        return ethernet(CLIENT_MAC, self.front.mac) / packet

    def real_frame(self, packet, real=1):
        """A frame of a real server's with any IP packet in it."""
        return ethernet(real_mac(real), self.back.mac) / packet

    # Flows.

    def flow(self, service="web", **keys):
        """A client's flow to `service`; see `Flow` for what it may name."""
        return Flow(self, self.services[service], **keys)

    # Files.

    def config(self):
        """The configuration file."""
        lines = []
        sections = [("limits", self.limits), ("timeouts", self.timeouts), ("tcp", self.tcp_policy)]
        for name, keys in sections:
            if keys:
                lines += [f"[{name}]", *(f"{key} = {text(keys[key])}" for key in keys), ""]
        for port in self.ports:
            lines += ["[[port]]", *(f"{key} = {text(port.keys[key])}" for key in port.keys), ""]
        for name, keys in self.pools.items():
            lines += ["[[pool]]", f"name = {text(name)}"]
            lines += [f"{key} = {text(keys[key])}" for key in keys] + [""]
        for service in self.services.values():
            lines += service.toml() + [""]
        for prefix, via, port in self.routes:
            lines += ["[[route]]", f"prefix = {text(prefix)}"]
            lines += [f"via = {text(via)}"] if via else []
            lines += [f"port = {text(port)}", ""]
        known = [item for item in self.hops.items() if item[0] not in self.unknown]
        for address, (mac, port, vlan) in known:
            lines += ["[[neighbour]]", f"address = {text(address)}", f"mac = {text(mac)}"]
            lines += [f"port = {text(port)}"] + ([f"vlan = {vlan}"] if vlan else []) + [""]
        return "\n".join(lines)

    def expected(self):
        """The counters that the replay must end with."""
        return {
            "services": [service.expected() for service in self.services.values()],
            "reasons": dict(sorted(self.reasons.items())),
            "to_kernel": self.to_kernel,
            "sessions": {
                "created": self.created,
                "expired": self.expired,
                "closed": self.closed,
                "live": self.created - self.expired - self.closed,
            },
            "ports": [
                {"name": port.name, "received": len(port.received), "sent": len(port.sent)}
                for port in self.ports
            ],
        }

    def files(self):
        """Every file of the row by its name."""
        files = {
            "config.toml": self.config().encode(),
            "expected.json": (json.dumps(self.expected(), indent=2) + "\n").encode(),
        }
        for port in self.ports:
            if port.received:
                files[f"{port.name}.in.pcap"] = pcap(port.received)
            files[f"{port.name}.out.pcap"] = pcap(port.sent)
        return files


def pcap(records):
    """A capture file with nanosecond time stamps, little-endian whatever the machine."""
    out = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262_144, 1)
    for at_ns, frame in records:
        out += struct.pack("<IIII", at_ns // NS, at_ns % NS, len(frame), len(frame)) + frame
    return out
