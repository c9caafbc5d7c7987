"""ICMP errors about packets of sessions reach whom they are for, translated."""

from icmp import reported
from modes import ALL, DR, FNAT4, FNAT46, FNAT64, FNAT6, IPIP, NAT, TWO_WAY
from rows import rows_for

BOTH = (FNAT4, *TWO_WAY)
# So that no tunnel has to number anything.
WHOLE = {"flags": "DF"}
PLAIN = (FNAT4, FNAT6, *NAT)


def router(m, side):
    """A router somewhere on a side."""
    version = m.version if side == "client" else m.real_version
    return "203.0.113.1" if version == 4 else "2001:db8:ffff::1"


def dns(s, m, **keys):
    """A UDP service and a session of it."""
    m.service(s, "dns", "udp", 53, **keys)
    f = s.flow("dns")
    f.fields = WHOLE
    f.ask()
    f.reply()
    return f


def web(s, m, **keys):
    """A TCP service and a session of it."""
    m.service(s, **keys)
    f = s.flow()
    f.fields = WHOLE
    return f.handshake()


@rows_for(BOTH, "port unreachable from the real server reaches the client")
def icmp_port_from_real(s, m):
    f = dns(s, m)
    reported(f, "inbound", "port")
    f.ask(b"and it goes on")
    f.reply()


@rows_for(ALL, "port unreachable from the client reaches the real server")
def icmp_port_from_client(s, m):
    f = dns(s, m)
    reported(f, "outbound", "port")
    f.ask(b"and it goes on")


@rows_for(PLAIN, "the path to the real server is narrow: its MTU reaches the client")
def icmp_too_big_from_real(s, m):
    f = web(s, m)
    reported(f, "inbound", "too_big", 1400, data=b"x" * 100, source=router(m, "real"))


@rows_for((FNAT46, FNAT64), "a path MTU is told 20 bytes more or less")
def icmp_too_big_crossing(s, m):
    f = web(s, m)
    wider = 20 if m is FNAT64 else -20
    from_real = {"told": 1400 + wider, "source": router(m, "real")}
    reported(f, "inbound", "too_big", 1400, data=b"x" * 100, **from_real)
    from_client = {"told": 1400 - wider, "source": router(m, "client")}
    reported(f, "outbound", "too_big", 1400, data=b"x" * 100, **from_client)


@rows_for((FNAT4, FNAT6, *NAT, *DR, *IPIP), "the path to the client is narrow: its MTU reaches "
          "the real server")
def icmp_too_big_from_client(s, m):
    f = web(s, m)
    reported(f, "outbound", "too_big", 1300, data=b"x" * 100, source=router(m, "client"))


@rows_for(BOTH, "time exceeded on the way to the real server")
def icmp_ttl_from_real(s, m):
    f = web(s, m)
    reported(f, "inbound", "ttl", source=router(m, "real"))


@rows_for(ALL, "time exceeded on the way to the client")
def icmp_ttl_from_client(s, m):
    f = web(s, m)
    reported(f, "outbound", "ttl", source=router(m, "client"))


@rows_for(BOTH, "host unreachable, both ways")
def icmp_host(s, m):
    f = web(s, m)
    reported(f, "inbound", "host", source=router(m, "real"))
    reported(f, "outbound", "host", source=router(m, "client"))


@rows_for(BOTH, "administratively prohibited, both ways")
def icmp_admin(s, m):
    f = dns(s, m)
    reported(f, "inbound", "admin", source=router(m, "real"))
    reported(f, "outbound", "admin", source=router(m, "client"))


@rows_for(PLAIN, "a parameter problem keeps its pointer")
def icmp_parameter(s, m):
    f = web(s, m)
    reported(f, "inbound", "parameter", 8, source=router(m, "real"))
    reported(f, "outbound", "parameter", 8, source=router(m, "client"))


@rows_for(BOTH, "fragment reassembly time exceeded, both ways")
def icmp_reassembly(s, m):
    f = dns(s, m)
    reported(f, "inbound", "reassembly")
    reported(f, "outbound", "reassembly")


@rows_for(BOTH, "a quote of no more than the ports and the next four bytes")
def icmp_short_quote(s, m):
    f = web(s, m)
    reported(f, "inbound", "ttl", source=router(m, "real"), size=8)
    reported(f, "outbound", "ttl", source=router(m, "client"), size=8)


@rows_for(BOTH, "a quote of a UDP header alone, its checksum adjusted")
def icmp_short_quote_udp(s, m):
    f = dns(s, m)
    reported(f, "inbound", "port", size=8)
    reported(f, "outbound", "port", size=8)


@rows_for(BOTH, "a quote that ends in the middle of the data, of odd length")
def icmp_cut_quote(s, m):
    f = dns(s, m)
    data = bytes(range(200))
    reported(f, "inbound", "port", data=data, size=101)
    reported(f, "outbound", "port", data=data, size=57)


@rows_for((FNAT4, FNAT6, *NAT), "real servers on another port: the quote tells the virtual one")
def icmp_real_port(s, m):
    f = dns(s, m, real_port=5353)
    reported(f, "inbound", "port")
    reported(f, "outbound", "port")


@rows_for((FNAT4, FNAT6, *NAT), "with VLANs on both sides")
def icmp_vlan(s, m):
    m.service(s, "dns", "udp", 53)
    s.vlan(m.client, 10)
    f = s.flow("dns")
    s.vlan(f.real_address, 20)
    f.ask()
    reported(f, "inbound", "port")
    reported(f, "outbound", "port")


@rows_for((FNAT4, FNAT6, *NAT), "an error neither keeps a session alive nor ends it")
def icmp_leaves_session(s, m):
    s.timeouts["udp_s"] = 10
    f = dns(s, m)
    s.wait(6)
    reported(f, "inbound", "port")
    s.wait(6)
    f.expire()
    s.flow("dns", real=2).ask()
