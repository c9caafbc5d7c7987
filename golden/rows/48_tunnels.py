"""What an outer header says (RFC 2003, 2473, 6040)."""

from frames import TUNNEL, TUNNEL6
from modes import IPIP, IPIP4, IPIP6, IPIP46, IPIP64
from rows import rows_for

OVER4 = (IPIP4, IPIP64)
OVER6 = (IPIP6, IPIP46)


@rows_for((IPIP4,), "DF inside is DF outside, and no DF inside is none outside")
def df(s, m):
    m.service(s, "dns", "udp", 53)
    f = s.flow("dns")
    f.ask(ip={"flags": "DF"})
    f.ask()
    f.ask(ip={"flags": "DF", "id": 0})


@rows_for((IPIP46,), "DF inside has no place outside, and stays inside")
def df_inside(s, m):
    m.service(s, "dns", "udp", 53)
    f = s.flow("dns")
    f.ask(ip={"flags": "DF"})
    f.ask()


@rows_for(IPIP, "ECN not-ECT, ECT(1), ECT(0) and CE are copied outside (RFC 6040 normal mode)")
def ecn(s, m):
    m.service(s, "dns", "udp", 53)
    f = s.flow("dns")
    for field in range(4):
        f.ask(ip={"tos": 0xB8 | field})


@rows_for(IPIP, "the outer source comes from a prefix: one for each flow, and spread over flows")
def spread(s, m):
    s.ipip["source_v4"] = "192.0.2.64/28"
    s.ipip["source_v6"] = "2001:db8:2::a0/124"
    m.service(s, "dns", "udp", 53, reals=[1])
    flows = [s.flow("dns", client=(m.client, 40000 + n), same=f"flow {n}") for n in range(16)]
    for _ in range(2):
        for flow in flows:
            flow.ask(ip={"flags": "DF"})


@rows_for(IPIP, "the outer source is the configured one")
def source(s, m):
    s.ipip["source_v4"] = "192.0.2.77"
    s.ipip["source_v6"] = "2001:db8:2::77"
    m.service(s)
    s.flow().handshake()


@rows_for(OVER4, "IP options inside stay inside, the outer header has none")
def options_inside(s, m):
    from scapy.layers.inet import IPOption_NOP
    from scapy.layers.inet6 import IPv6ExtHdrDestOpt, PadN

    inner = {"options": [IPOption_NOP()] * 8} if m.version == 4 else {
        "ext": [IPv6ExtHdrDestOpt(options=[PadN(optdata=b"\0" * 4)])]}
    m.service(s)
    s.flow().syn(ip=inner)


@rows_for(IPIP, "two tunnels of one service: a real server of each family")
def mixed(s, m):
    other = 10 - m.real_version
    m.service(s, reals=[1, 2], versions={2: other})
    s.flow().handshake()
    s.flow(real=2, client=(m.client, 40001)).handshake()


