"""Which service takes a packet: ports, ranges, protocols."""

from modes import DR4, DR6, FNAT4, FNAT6, FNAT46, FNAT64, IPIP4, IPIP6, NAT4, NAT6
from rows import row, rows_for

SIX = (FNAT4, FNAT6, NAT4, NAT6, DR4, DR6, IPIP4, IPIP6)


def opens(s, m, service, real, port, lport=1024, cport=40000):
    """One TCP session to a port, with an answer."""
    f = s.flow(service, real=real, port=port, lport=lport, client=(m.client, cport))
    f.syn()
    f.syn_ack()
    return f


@rows_for(SIX, "a range of ports: the real server is sent to on the port that the client meant")
def port_range(s, m):
    m.service(s, port="8000-8099", reals=[1])
    for number, port in enumerate((8000, 8001, 8099)):
        opens(s, m, "web", 1, port, 1024 + number)
    for port in (7999, 8100):
        s.flow(port=port).syn(kernel="not_ours")


@rows_for((FNAT4, FNAT6, NAT4, NAT6), "a range of ports to one port of the real server")
def port_range_to_one(s, m):
    m.service(s, port="8000-8099", reals=[1], real_port=80)
    cports = (40000, 40001, 40002)
    for number, port in enumerate((8000, 8050, 8099)):
        opens(s, m, "web", 1, port, 1024 + number, cports[number])


@rows_for(SIX, "all ports of an address: TCP")
def all_ports(s, m):
    m.service(s, port=None, reals=[1])
    for number, port in enumerate((1, 80, 443, 65535)):
        opens(s, m, "web", 1, port, 1024 + number)


@rows_for(SIX, "all ports of an address: UDP beside TCP is the kernel's")
def all_ports_udp(s, m):
    m.service(s, "dns", "udp", None, reals=[1])
    for number, port in enumerate((53, 443)):
        f = s.flow("dns", port=port, lport=1024 + number)
        f.ask()
        f.reply()
    m.service(s, "none", "udp", 9, reals=[2])
    s.flow("dns", port=80).syn(kernel="not_ours")


@rows_for(SIX, "the most specific wins: port over range over wider range over all ports")
def most_specific(s, m):
    m.service(s, "all", port=None, reals=[1])
    m.service(s, "wide", port="8000-8999", reals=[2])
    m.service(s, "narrow", port="8080-8089", reals=[3])
    m.service(s, "one", port=8085, reals=[4])
    counts = {}
    for service, real, port in (
        ("one", 4, 8085),
        ("narrow", 3, 8084),
        ("narrow", 3, 8086),
        ("wide", 2, 8079),
        ("wide", 2, 8090),
        ("all", 1, 7999),
        ("all", 1, 9000),
    ):
        counts[real] = counts.get(real, -1) + 1
        opens(s, m, service, real, port, 1024 + counts[real])


@rows_for((NAT4, NAT6, DR4, DR6, IPIP4, IPIP6), "protocol any: TCP and UDP on any port")
def any_tcp_udp(s, m):
    m.service(s, "host", "any", None, reals=[1])
    tcp = s.flow("host", port=80)
    tcp.handshake()
    tcp.close()
    udp = s.flow("host", port=53)
    udp.ask()
    udp.reply()


@rows_for((NAT4, NAT6, DR4, DR6, IPIP4, IPIP6), "protocol any: GRE and ESP, by address alone")
def any_gre_esp(s, m):
    m.service(s, "host", "any", None, reals=[1, 2])
    gre = s.flow("host", client=(m.client, 0), port=1)
    gre.raw(47, b"\0\0\x08\0" + b"inside")
    gre.real_raw(47, b"\0\0\x08\0" + b"answer")
    esp = s.flow("host", real=2, client=(m.client, 0), port=1)
    esp.raw(50, b"\0\0\1\0\0\0\0\1" + b"secret" * 4)
    esp.real_raw(50, b"\0\0\2\0\0\0\0\1" + b"answer" * 4)
    gre.raw(47, b"\0\0\x08\0" + b"inside")


@rows_for((NAT4, NAT6, DR4, DR6, IPIP4, IPIP6), "protocol any leaves ICMP echo to the kernel")
def any_not_icmp(s, m):
    m.service(s, "host", "any", None, reals=[1])
    number = 1 if m.version == 4 else 58
    ping = b"\x08\0\xf7\xff\0\0\0\0" if m.version == 4 else b"\x80\0\0\0\0\0\0\0"
    s.flow("host", port=1).raw(number, ping, kernel="not_ours")


@rows_for((NAT4, NAT6, DR4, DR6, IPIP4, IPIP6), "protocol any leaves IGMP, OSPF and VRRP to the "
          "kernel, and what carries nothing")
def any_not_kernels(s, m):
    m.service(s, "host", "any", None, reals=[1])
    for number in (2, 89, 112, 59):
        s.flow("host", port=1).raw(number, b"\2\1\0\x2c" * 8, kernel="not_ours")
    f = s.flow("host", client=(m.client, 0), port=1)
    f.raw(47, b"\0\0\x08\0inside")


@rows_for((NAT4, DR4, DR6), "a TCP service wins over protocol any, which takes the rest")
def any_last(s, m):
    m.service(s, "host", "any", None, reals=[1])
    m.service(s, "web", "tcp", 80, reals=[2])
    m.service(s, "all", "udp", None, reals=[3])
    s.flow("web", real=2).handshake()
    s.flow("all", real=3, port=53).ask()
    s.flow("host", real=1, port=81).handshake()


@row("Real servers of four modes behind one service")
def mixed_modes(s):
    s.service(reals=[1, 2, 3, 4], modes={2: "nat", 3: "dr", 4: "ipip"})
    for real in (1, 2, 3, 4):
        f = s.flow(real=real, client=("198.51.100.48", 40000 + real)).handshake()
        f.send(b"to %d" % real)
        f.answer(b"from %d" % real)


@row("The same for IPv6")
def mixed_modes6(s):
    s.service(reals=[1, 2, 3, 4], version=6, modes={2: "nat", 3: "dr", 4: "ipip"})
    for real in (1, 2, 3, 4):
        f = s.flow(real=real, client=("2001:db8:1::48", 40000 + real)).handshake()
        f.send(b"to %d" % real)
        f.answer(b"from %d" % real)


@row("Real servers of both families behind an IPv4 address")
def mixed_families4(s):
    s.service(reals=[1, 2, 3], versions={2: 6})
    for real in (1, 2, 3):
        f = s.flow(real=real, client=("198.51.100.48", 40000 + real)).handshake()
        f.answer(b"from %d" % real)


@row("Real servers of both families behind an IPv6 address")
def mixed_families6(s):
    s.service(reals=[1, 2, 3], version=6, versions={2: 4})
    for real in (1, 2, 3):
        f = s.flow(real=real, client=("2001:db8:1::48", 40000 + real)).handshake()
        f.answer(b"from %d" % real)


@row("An IPv4 and an IPv6 address for the same real servers")
def two_families(s):
    s.pools["lan6"] = {"addresses": ["2001:db8:2::10"]}
    s.service("web4", reals=[1, 2])
    s.service("web6", reals=[1, 2], version=6, pool="lan6")
    s.pools["lan"]["addresses"] = ["192.0.2.10"]
    for real in (1, 2):
        for service, client in (("web4", "198.51.100.48"), ("web6", "2001:db8:1::48")):
            f = s.flow(service, real=real, client=(client, 40000 + real)).handshake()
            f.answer(b"from %d" % real)
