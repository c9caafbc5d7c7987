"""ICMP errors about packets of sessions reach whom they are for, translated."""

from scapy.layers.inet import ICMP, IP, TCP
from scapy.packet import Raw

from frames import CLIENT, LADDR, VIP
from icmp import error, quoted, reported
from modes import ALL, DR, FNAT4, FNAT46, FNAT64, FNAT6, IN_TUNNELS, NAT, TWO_WAY
from rows import row, rows_for

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


@rows_for((FNAT4, FNAT6, *NAT, *DR, *IN_TUNNELS), "the path to the client is narrow: its MTU "
          "reaches the real server")
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


def strange(s, m, way="outbound", **keys):
    """A report on a packet of a flow that there is not."""
    f = web(s, m)
    g = s.flow(client=(m.client, 55555), lport=2000)
    reported(g, way, "host", **keys)
    f.send(b"and the session is well")


@rows_for(ALL, "a report on a packet of no session is counted and dropped")
def icmp_stranger(s, m):
    strange(s, m, drop="icmp_error")


@rows_for((FNAT4, FNAT6, FNAT46, FNAT64), "the same from the real server's side")
def icmp_stranger_back(s, m):
    strange(s, m, "inbound", drop="icmp_error")


@rows_for(ALL, "a report on a packet of a session that has ended")
def icmp_late(s, m):
    f = web(s, m)
    f.from_client("R", ack=0, ends=True)
    reported(f, "outbound", "host", drop="icmp_error")


@rows_for(BOTH, "a report whose checksum is wrong")
def icmp_wrong_checksum(s, m):
    f = web(s, m)

    def wrong(packet):
        packet.lastlayer().underlayer.setfieldval("cksum" if m.version == 6 else "chksum", 0x1234)

    reported(f, "outbound", "host", edit=wrong, drop="bad_l4_checksum")


@rows_for(BOTH, "a report with TTL or hop limit 1 goes no further, and nobody is told of it")
def icmp_old(s, m):
    f = web(s, m)
    reported(f, "outbound", "host", ip={"ttl": 1}, drop="ttl_expired")


@rows_for(PLAIN, "a report about a packet that went through another address than it quotes")
def icmp_other_address(s, m):
    f = web(s, m)
    quote = quoted(f, "outbound", "client", None, b"", None)
    other = "198.51.100.201" if m.version == 4 else "2001:db8:1::201"
    s.kernel(s.front, s.client_frame(error("host", m.client, other, quote)), "not_ours")


@rows_for((FNAT4, FNAT6, *NAT), "TCP options and data in the quote stay as they are")
def icmp_quote_options(s, m):
    f = web(s, m)
    options = [("NOP", None), ("NOP", None), ("Timestamp", (1, 2))]
    head = TCP(flags="PA", seq=f.client_seq, ack=f.real_seq, options=options)
    reported(f, "inbound", "ttl", head=head, data=b"odd", source=router(m, "real"))
    head = TCP(flags="PA", seq=f.real_seq, ack=f.client_seq, options=options)
    reported(f, "outbound", "ttl", head=head, data=b"odd", source=router(m, "client"))


@row("ICMP: redirects and source quenches for the virtual address are the kernel's")
def icmp_link_business(s):
    s.service()
    f = s.flow().handshake()
    quote = Raw(quoted(f, "outbound", "client", None, b"", None))
    for kind, code in ((4, 0), (5, 1)):
        packet = IP(src="198.51.100.254", dst=VIP) / ICMP(type=kind, code=code) / quote
        s.kernel(s.front, s.client_frame(packet), "not_ours")


@row("ICMP: a report that is cut short, from nothing to a quote without ports")
def icmp_cut(s):
    s.service()
    f = s.flow().handshake()
    quote = quoted(f, "outbound", "client", None, b"", None)
    for length in range(8):
        message = bytes(ICMP(type=3, code=1))[:length]
        packet = IP(src=CLIENT, dst=VIP, proto=1) / Raw(message)
        if length:
            s.drops(s.front, s.client_frame(packet), "truncated")
        else:
            s.kernel(s.front, s.client_frame(packet), "not_ours")
    for length in (0, 1, 19, 20, 23):
        packet = error("host", CLIENT, VIP, quote[:length])
        s.drops(s.front, s.client_frame(packet), "icmp_error")
    f.send(b"and the session is well")


@row("ICMP: extensions behind the quote (RFC 4884) stay as they are")
def icmp_extensions(s):
    s.service("dns", "udp", 53)
    f = s.flow("dns")
    f.ask()
    extension = bytes.fromhex("2000dfff") + b"\x00\x08\x01\x01" + b"\0\1\2\3"
    for side, hop, ends in (
        ("real", f.real_address, (f.real_address, LADDR)),
        ("client", f.client_hop, (VIP, CLIENT)),
    ):
        quote = quoted(f, "inbound", side, None, b"x", None, {"ttl": 59}).ljust(128, b"\0")
        packet = IP(src=ends[0], dst=ends[1], id=7, ttl=61 if side == "real" else 60)
        packet = packet / ICMP(type=3, code=3, length=32) / Raw(quote + extension)
        if side == "real":
            s.arrives_from(hop, bytes(packet))
        else:
            s.sends_to(hop, bytes(packet))


@rows_for((*PLAIN, FNAT46, FNAT64), "an MTU that no link may have is no error (RFC 791 3.2, RFC "
          "8201 4)")
def icmp_too_big_impossible(s, m):
    f = dns(s, m)
    for way, version in (("inbound", m.real_version), ("outbound", m.version)):
        for mtu in (8, 67) if version == 4 else (0, 8, 1279):
            source = router(m, "real" if way == "inbound" else "client")
            data = b"x" * 100
            reported(f, way, "too_big", mtu, data=data, source=source, drop="icmp_error")
