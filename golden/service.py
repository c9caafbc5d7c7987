"""What is configured and counted: virtual services and rules of source NAT."""

import json

from frames import VIP, VIP6, real_address

WAYS = ("inbound", "outbound")
ANY = "any"


def text(value):
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value)


class Counted:
    """What is counted of some real servers."""

    def __init__(self, reals):
        self.reals = list(reals)
        self.sessions = {real: 0 for real in self.reals}
        self.active = {real: 0 for real in self.reals}
        self.packets = {way: {real: 0 for real in self.reals} for way in WAYS}
        self.bytes = {way: {real: 0 for real in self.reals} for way in WAYS}

    def count(self, way, real, length, packets=1):
        """Counts a packet of `length` bytes that was forwarded."""
        self.packets[way][real] += packets
        self.bytes[way][real] += length

    def opened(self, real):
        """Counts a session."""
        self.sessions[real] += 1
        self.active[real] += 1

    def ended(self, real):
        """Counts the end of one."""
        self.active[real] -= 1

    def spread(self, shares):
        """Says how sessions that were alike, and all counted of the first real server, were spread
        over all: (real server, sessions).
        """
        first = self.reals[0]
        total = self.sessions[first]
        assert sum(shares.values()) == total, (shares, total)
        tables = [self.sessions, self.active]
        tables += [table[way] for table in (self.packets, self.bytes) for way in WAYS]
        for table in tables:
            each, rest = divmod(table[first], total)
            assert not rest
            for real, share in shares.items():
                table[real] = each * share

    def sums(self, reals):
        """What is counted of some of the real servers together."""
        return {
            "sessions": sum(self.sessions[real] for real in reals),
            "active": sum(self.active[real] for real in reals),
            "packets": {way: sum(self.packets[way][real] for real in reals) for way in WAYS},
            "bytes": {way: sum(self.bytes[way][real] for real in reals) for way in WAYS},
        }


class Service(Counted):
    """A virtual service and what must be counted of it.

    `version` is the family of the VIP, `real_version` that of the real servers, `versions` and
    `modes` those of some of them. `real_keys` are more keys of some of them, `keys` of the service.
    """

    def __init__(self, name, protocol, port, reals, **keys):
        super().__init__(reals)
        self.name = name
        self.protocol = protocol
        self.version = keys.pop("version", 4)
        self.vip = keys.pop("vip", VIP if self.version == 4 else VIP6)
        self.port = port
        self.mode = keys.pop("mode", "fnat")
        self.modes = keys.pop("modes", {})
        self.real_version = keys.pop("real_version", self.version)
        self.versions = keys.pop("versions", {})
        self.scheduler = keys.pop("scheduler", "rr")
        uses_pool = "fnat" in (self.mode, *self.modes.values())
        self.pool = keys.pop("pool", "lan" if uses_pool else None)
        self.real_port = keys.pop("real_port", port if isinstance(port, int) else 0)
        self.weights = keys.pop("weights", {})
        self.real_keys = keys.pop("real_keys", {})
        self.loose = keys.pop("loose", False)
        self.keys = keys

    def mode_of(self, real):
        """The forwarding mode of a real server."""
        return self.modes.get(real, self.mode)

    def address_of(self, real):
        """The address of a real server."""
        return real_address(real, self.version_of(real))

    def version_of(self, real):
        """The family of a real server."""
        return self.versions.get(real, self.real_version)

    def toml(self):
        """The service's section of the configuration."""
        lines = [
            "[[service]]",
            f"name = {text(self.name)}",
            f"protocol = {text(self.protocol)}",
            f"vip = {text(self.vip)}",
        ]
        lines += [f"port = {text(self.port)}"] if self.port is not None else []
        lines += [f"mode = {text(self.mode)}", f"scheduler = {text(self.scheduler)}"]
        lines += [f"pool = {text(self.pool)}"] if self.pool else []
        lines += [f"{key} = {text(value)}" for key, value in self.keys.items()]
        for real in self.reals:
            lines += ["", "[[service.real]]", f"address = {text(self.address_of(real))}"]
            if self.real_port != self.port and self.real_port:
                lines.append(f"port = {self.real_port}")
            if real in self.weights:
                lines.append(f"weight = {self.weights[real]}")
            if real in self.modes:
                lines.append(f"mode = {text(self.modes[real])}")
            for key, value in self.real_keys.get(real, {}).items():
                lines.append(f"{key} = {text(value)}")
        return lines

    def expected(self):
        """The service's part of the expected counters."""
        reals = []
        for real in self.reals:
            counted = self.sums([real])
            if self.loose:
                counted = {key: ANY for key in counted}
            address = {"address": self.address_of(real), "port": self.real_port or 0}
            reals.append({**address, **counted})
        return {"name": self.name, **self.sums(self.reals), "reals": reals}


class Rule:
    """A rule of source NAT."""

    def __init__(self, name, **keys):
        self.name = name
        self.keys = keys

    def toml(self):
        """The rule's section of the configuration."""
        lines = ["[[snat]]", f"name = {text(self.name)}"]
        return lines + [f"{key} = {text(value)}" for key, value in self.keys.items()]
