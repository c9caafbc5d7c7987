"""What a golden row is made with: a small network around a director, and flows through it.

A row says in order which frame enters which port, and what must come of it: the frames that must
leave, and where, or the reason it must be counted under. Nothing in here runs the director or
knows how it works. A frame that must leave is built by scapy from the description of the forwarding
mode (new addresses, new ports, TTL less one, the next hop's MAC) and its checksums are computed
from scratch, so director and expectation agree only if both are right.
"""

import json
from collections import OrderedDict
from contextlib import contextmanager

from capture import NS, pcap
from flow import Flow
from frames import (
    CLIENT,
    CLIENT6,
    CLIENT_MAC,
    LADDR,
    LADDR6,
    TUNNEL,
    TUNNEL6,
    WAN,
    WAN6,
    ethernet,
    real_address,
    real_mac,
    version_of,
)
from service import Rule, Service, text
from snat import Inside
from wire import TUNNELS

START_NS = 1_700_000_000 * NS
REALS = range(1, 8)


class Port:
    """A port of the director."""

    def __init__(self, name, number, **keys):
        self.name = name
        self.keys = OrderedDict(name=name, device=f"tap:{name}", **keys)
        self.mac = f"02:00:00:00:00:{number:02x}"
        self.keys["mac"] = self.mac
        self.keys["mtu"] = 1500
        self.received = []
        self.sent = []


class Scene:
    """One row: the configuration, the frames in and out, the counters.

    As it stands: two arms. `front` towards clients (198.51.100.0/24), `back` towards real servers
    (192.0.2.0/24), both on-link, the client's and the real servers' MACs known. `one_arm()` makes
    it one port. A service of IPv6 brings 2001:db8:1::/64 and 2001:db8:2::/64 with it.
    """

    def __init__(self):
        self.front = Port("front", 1)
        self.back = Port("back", 2)
        self.ports = [self.front, self.back]
        self.services = OrderedDict()
        self.rules = []
        self.pools = OrderedDict(lan={"addresses": [LADDR]})
        self.director = OrderedDict()
        # Small tables, so that a row is played quickly.
        self.limits = OrderedDict(sessions=4096)
        self.timeouts = OrderedDict()
        self.tcp_policy = OrderedDict()
        self.icmp = OrderedDict()
        self.ipip = OrderedDict()
        self.routes = [("198.51.100.0/24", None, "front"), ("192.0.2.0/24", None, "back")]
        self.hops = OrderedDict()
        self.hops[CLIENT] = (CLIENT_MAC, "front", None)
        for number in REALS:
            self.hops[real_address(number)] = (real_mac(number), "back", None)
        self.unknown = set()
        self.versions = {4}
        # Isolated networks: what of the above is another one in each, and which it is now.
        self.networks = OrderedDict()
        self.network = None
        self.now_ns = START_NS
        self.reasons = {}
        self.to_kernel = 0
        self.created = 0
        self.expired = 0
        self.evicted = 0
        self.closed = 0
        self.packet_id = 0
        self.loose = []

    # The network.

    def service(self, name="web", protocol="tcp", port=80, reals=(1, 2, 3), **keys):
        """Adds a virtual service."""
        if self.network:
            keys = {"network": self.network, "pool": self.named("lan"), **keys}
            if "fnat" not in (keys.get("mode", "fnat"), *keys.get("modes", {}).values()):
                del keys["pool"]
        made = Service(name, protocol, port, reals, **keys)
        self.services[name] = made
        if 6 in (made.version, made.real_version, *made.versions.values()):
            self.ipv6()
        if {*TUNNELS} & {made.mode, *made.modes.values()}:
            used = {made.version_of(real) for real in made.reals}
            if 4 in used:
                self.ipip.setdefault("source_v4", TUNNEL)
            if 6 in used:
                self.ipip.setdefault("source_v6", TUNNEL6)
        return made

    def snat(self, name="out", **keys):
        """Adds a rule of source NAT, with a pool of its own on the front side."""
        sources = keys.pop("sources", ["192.0.2.0/24"])
        pool = keys.pop("pool", self.named("wan"))
        six = any(":" in source for source in sources)
        if six:
            self.ipv6()
        if self.network:
            keys["network"] = self.network
        known = self.pools.setdefault(pool, {"addresses": [], **self.of_network()})
        if not known["addresses"]:
            known["addresses"].append(WAN6 if six else WAN)
        self.rules.append(Rule(name, sources=sources, pool=pool, **keys))

    def ipv6(self):
        """Adds IPv6 to the network."""
        if 6 in self.versions:
            return
        self.versions.add(6)
        front = self.front.name
        back = self.back.name if self.back in self.ports else front
        self.routes.append(("2001:db8:1::/64", None, front))
        self.routes.append(("2001:db8:2::/64", None, back))
        self.hops.setdefault(CLIENT6, (CLIENT_MAC, front, None))
        for number in REALS:
            self.hops.setdefault(real_address(number, 6), (real_mac(number), back, None))
        lan = self.pools[self.named("lan")]
        if lan["addresses"] == [LADDR]:
            lan["addresses"].append(LADDR6)

    def isolated(self, name):
        """Adds an isolated network with two ports of its own, NAME-front and NAME-back, and behind
        them the same addresses and MACs as behind the others.
        """
        number = len(self.ports) + 1
        front, back = (
            Port(f"{name}-{side}", number + at, network=name)
            for at, side in enumerate(("front", "back"))
        )
        self.ports += [front, back]
        routes = [("198.51.100.0/24", None, front.name), ("192.0.2.0/24", None, back.name)]
        hops = OrderedDict({CLIENT: (CLIENT_MAC, front.name, None)})
        for real in REALS:
            hops[real_address(real)] = (real_mac(real), back.name, None)
        self.networks[name] = {
            "front": front,
            "back": back,
            "routes": routes,
            "hops": hops,
            "versions": {4},
            "ipip": OrderedDict(),
            "network": name,
        }
        self.pools[f"{name}-lan"] = {"network": name, "addresses": [LADDR]}

    @contextmanager
    def within(self, name):
        """All that is added, and all frames, are of that network."""
        inner = self.networks[name]
        outer = {key: getattr(self, key) for key in inner}
        self.__dict__.update(inner)
        try:
            yield
        finally:
            self.__dict__.update(outer)

    def named(self, pool):
        """The name of a network's pool."""
        return f"{self.network}-{pool}" if self.network else pool

    def of_network(self):
        """The key that says in which network something is."""
        return {"network": self.network} if self.network else {}

    def one_arm(self):
        """Clients and real servers both on `front`."""
        self.ports = [self.front]
        self.routes = [(prefix, via, "front") for prefix, via, _ in self.routes]
        for address, (mac, _, vlan) in self.hops.items():
            self.hops[address] = (mac, "front", vlan)

    def hop(self, address, mac, port="front", vlan=None):
        """Makes a neighbour known."""
        self.hops[address] = (mac, port, vlan)

    def vlan(self, address, vlan):
        """Puts a known neighbour on a VLAN."""
        mac, port, _ = self.hops[address]
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

    def leaves(self, port, frame, loose=()):
        """What just entered must leave `port` as `frame`.

        `loose` are parts of it that are not prescribed: (first byte, byte behind the last, rules).
        """
        frame = bytes(frame)
        for first, end, rules in loose:
            if self.network and "distinct" in rules:
                rules = {**rules, "distinct": f"{rules['distinct']} in {self.network}"}
            at = {"port": port.name, "packet": len(port.sent) + 1, "from": first, "to": end}
            self.loose.append({**at, **rules})
        port.sent.append((self.now_ns, frame))

    def arrives_from(self, hop, packet, enters=None, tags=None):
        """`packet` arrives from the neighbour `hop`; gives the port."""
        mac, _, vlan = self.hops[hop]
        port = enters or self.side(hop)
        tags = ((vlan,) if vlan else ()) if tags is None else tags
        self.enters(port, bytes(ethernet(mac, port.mac, tags, version_of(packet))) + bytes(packet))
        return port

    def sends_to(self, hop, packet, pad=b"", loose=()):
        """What just entered must leave to the neighbour `hop` as `packet`."""
        mac, name, vlan = self.hops[hop]
        port = self.port_named(name)
        link = bytes(ethernet(port.mac, mac, (vlan,) if vlan else (), version_of(packet)))
        by = len(link)
        shifted = []
        for first, end, rules in loose:
            if "sums" in rules:
                rules = {**rules, "sums": [by + place for place in rules["sums"]]}
            shifted.append((by + first, by + end, rules))
        self.leaves(port, link + bytes(packet) + pad, shifted)

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
        return ethernet(CLIENT_MAC, self.front.mac, version=version_of(packet)) / packet

    def real_frame(self, packet, real=1):
        """A frame of a real server's with any IP packet in it."""
        port = self.back if self.back in self.ports else self.front
        return ethernet(real_mac(real), port.mac, version=version_of(packet)) / packet

    # Flows.

    def flow(self, service="web", **keys):
        """A client's flow to `service`; see `Flow` for what it may name."""
        return Flow(self, self.services[service], **keys)

    def inside(self, **keys):
        """A flow that a real server opens to the outside; see `Inside` for what it may name."""
        return Inside(self, **keys)

    # Files.

    def config(self):
        """The configuration file."""
        lines = []
        for name, keys in (
            ("director", self.director),
            ("limits", self.limits),
            ("timeouts", self.timeouts),
            ("tcp", self.tcp_policy),
            ("icmp", self.icmp),
            ("ipip", self.ipip),
        ):
            if keys:
                lines += [f"[{name}]", *(f"{key} = {text(keys[key])}" for key in keys), ""]
        for number, (name, inner) in enumerate(self.networks.items()):
            keys = {"name": name, "table": 100 + number, "sessions": 4096, **inner["ipip"]}
            lines += ["[[network]]", *(f"{key} = {text(keys[key])}" for key in keys), ""]
        for port in self.ports:
            lines += ["[[port]]", *(f"{key} = {text(port.keys[key])}" for key in port.keys), ""]
        used = {service.pool for service in self.services.values()}
        used |= {rule.keys["pool"] for rule in self.rules}
        for name, keys in self.pools.items():
            if name in used:
                lines += ["[[pool]]", f"name = {text(name)}"]
                lines += [f"{key} = {text(keys[key])}" for key in keys] + [""]
        for section in (*self.services.values(), *self.rules):
            lines += section.toml() + [""]
        routes = list(self.routes)
        hops = list(self.hops.items())
        for inner in self.networks.values():
            routes += inner["routes"]
            hops += inner["hops"].items()
        for prefix, via, port in routes:
            lines += ["[[route]]", f"prefix = {text(prefix)}"]
            lines += [f"via = {text(via)}"] if via else []
            lines += [f"port = {text(port)}", ""]
        known = [item for item in hops if item[0] not in self.unknown]
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
                **({"evicted": self.evicted} if self.evicted else {}),
                "live": self.created - self.expired - self.closed - self.evicted,
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
        if self.loose:
            lines = ",\n".join("  " + json.dumps(part) for part in self.loose)
            files["loose.json"] = f"[\n{lines}\n]\n".encode()
        for port in self.ports:
            if port.received:
                files[f"{port.name}.in.pcap"] = pcap(port.received)
            files[f"{port.name}.out.pcap"] = pcap(port.sent)
        return files
