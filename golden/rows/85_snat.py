"""Source NAT: what real servers open to the outside."""

from scapy.layers.inet import TCP, UDP

from checksums import payload_for, shift
from frames import (
    CLIENT_MAC,
    GATEWAY,
    GATEWAY_MAC,
    WAN,
    WAN6,
    real_address,
    real_mac,
)
from icmp import reported
from rows import row, rows_for
from snat import ALL4, ALL6, BOTH, SNAT4, inside


@rows_for(BOTH, "TCP: handshake, request, answer, four-way close")
def tcp(s, m):
    f = inside(s, m).handshake()
    f.send(b"GET / HTTP/1.0\r\n\r\n")
    f.real_ack()
    f.answer(b"HTTP/1.0 200 OK\r\n\r\nOutside\n")
    f.ack()
    f.close()


@rows_for(BOTH, "TCP: the far side closes first")
def tcp_close_far(s, m):
    f = inside(s, m).handshake()
    f.real_fin()
    f.ack()
    f.fin()
    f.real_ack(ends=True)


@rows_for(BOTH, "TCP: the last acknowledgement is lost; then another needs the port")
def tcp_last_ack_lost(s, m):
    six = m.version == 6
    address = "2001:db8:1::20" if six else "198.51.100.20"
    s.pools["wan"] = {"addresses": [address], "ports": "1024-1024"}
    f = inside(s, m, pool=address).handshake()
    f.close()
    f.from_real("FA", seq=f.real_seq - 1)
    f.ack(late=True)
    g = inside(s, m, inside=(real_address(2, m.version), 50000), pool=address).handshake()
    g.close()
    s.wait(2)
    g.from_real("FA", seq=g.real_seq - 1, drop="no_session")


@rows_for(BOTH, "TCP: resets of either side end the session")
def tcp_reset(s, m):
    f = inside(s, m).handshake()
    f.from_client("R", ack=0, ends=True)
    f.answer(b"too late", drop="no_session")
    g = inside(s, m, lport=1025, inside=(f.client, 50001)).handshake()
    g.from_real("R", ack=0, ends=True)
    g.answer(b"too late", drop="no_session")


@rows_for(BOTH, "UDP: questions and answers")
def udp(s, m):
    f = inside(s, m, "udp")
    for number in range(3):
        f.ask(b"question %d" % number)
        f.reply(b"answer %d" % number)


@rows_for(BOTH, "ICMP echo: the identifier is the port")
def echo(s, m):
    f = inside(s, m, "icmp")
    for seq in range(1, 4):
        f.ping(seq=seq)
        f.pong(seq=seq)


@rows_for(BOTH, "ICMP echoes of two hosts with the same identifier")
def echo_two(s, m):
    one = inside(s, m, "icmp")
    two = inside(s, m, "icmp", inside=(real_address(2, m.version), 50000), lport=1025)
    one.ping()
    two.ping()
    two.pong()
    one.pong()


@rows_for(BOTH, "an echo is waited for 30 seconds")
def echo_expiry(s, m):
    f = inside(s, m, "icmp")
    f.ping()
    s.wait(28)
    f.pong()
    s.wait(32)
    f.expire()
    f.pong(drop="no_session")


@rows_for(BOTH, "checksums that come out as zero: UDP 0xffff, TCP zero")
def checksum_zero(s, m):
    f = inside(s, m)
    f.handshake()
    f.send(payload_for(f, "inbound", "PA", 0))
    f.answer(payload_for(f, "outbound", "PA", 0))
    g = inside(s, m, "udp", lport=1025)
    g.ask(payload_for(g, "inbound", "", 0))
    g.reply(payload_for(g, "outbound", "", 0))


@rows_for(BOTH, "wrong checksums stay wrong by as much")
def wrong_checksum(s, m):
    f = inside(s, m).handshake()
    f.send(b"damaged on the way", edit=lambda packet: shift(packet, TCP, 0x1234))
    f.answer(b"damaged too", edit=lambda packet: shift(packet, TCP, 0xFF00))
    g = inside(s, m, "udp", lport=1025)
    g.ask(b"damaged", edit=lambda packet: shift(packet, UDP, 0x4321))


@rows_for((SNAT4,), "UDP without a checksum stays without")
def udp_zero_checksum(s, m):
    f = inside(s, m, "udp")
    f.ask(chksum=0)
    f.reply(chksum=0)


@rows_for(BOTH, "odd and even lengths keep right checksums")
def lengths(s, m):
    f = inside(s, m).handshake()
    for length in (1, 2, 3, 5, 255):
        f.send(bytes(range(length)))
        f.answer(bytes(range(255, 255 - length, -1)))
    g = inside(s, m, "icmp", lport=1025)
    for length in (0, 1, 56, 1001):
        g.ping(b"p" * length)
        g.pong(b"p" * length)


@rows_for(BOTH, "endpoint-independent mapping: one pool port to all destinations")
def endpoint_independent(s, m):
    there, other = m.client, m.client_at(77)
    s.hop(other, CLIENT_MAC)
    one = inside(s, m, "udp", outside=(there, 53))
    two = inside(s, m, "udp", outside=(other, 53))
    three = inside(s, m, "udp", outside=(there, 5353))
    for flow in (one, two, three):
        flow.ask()
    for flow in (three, two, one):
        flow.reply()


@rows_for(BOTH, "endpoint-independent mapping: another inside port has another pool port")
def endpoint_independent_ports(s, m):
    flows = [inside(s, m, "udp", inside=(real_address(1, m.version), 50000 + n), lport=1024 + n)
             for n in range(4)]
    for flow in flows:
        flow.ask()
    for flow in reversed(flows):
        flow.reply()


@rows_for(BOTH, "per-session mapping: the same inside port to two destinations")
def per_session(s, m):
    rule = {"mapping": "per_session"}
    other = m.client_at(77)
    s.hop(other, CLIENT_MAC)
    one = inside(s, m, "udp", rule, outside=(m.client, 53))
    two = inside(s, m, "udp", rule, outside=(other, 53), lport=1025)
    one.ask()
    two.ask()
    two.reply()
    one.reply()


@rows_for(BOTH, "an answer from somebody who was not asked is not let in")
def stranger(s, m):
    f = inside(s, m, "udp")
    f.ask()
    g = inside(s, m, "udp", outside=(m.client, 9999))
    g.reply(drop="no_session")
    f.reply()


@rows_for(BOTH, "two hosts inside with the same port")
def two_hosts(s, m):
    one = inside(s, m).handshake()
    two = inside(s, m, inside=(real_address(2, m.version), 50000), lport=1025).handshake()
    one.answer(b"to one")
    two.answer(b"to two")


@rows_for(BOTH, "no other network than the rule's sources")
def other_source(s, m):
    s.hop(real_address(9, m.version), real_mac(1), "back")
    net = "192.0.2.8/30" if m.version == 4 else "2001:db8:2::10/126"
    s.snat(sources=[net])
    s.inside(version=m.version).syn()
    source = real_address(9, m.version)
    s.inside(version=m.version, inside=(source, 50000)).syn(kernel="not_ours")


@rows_for(BOTH, "only the rule's destinations")
def destinations(s, m):
    net = "198.51.100.48/32" if m.version == 4 else "2001:db8:1::48/128"
    other = m.client_at(77)
    s.hop(other, CLIENT_MAC)
    f = inside(s, m, rule={"destinations": [net]})
    f.syn()
    g = inside(s, m, outside=(other, 80), lport=1025)
    g.syn(kernel="not_ours")


@rows_for(BOTH, "only the rule's protocols: UDP, neither TCP nor echo")
def protocols(s, m):
    f = inside(s, m, "udp", {"protocols": ["udp"]})
    f.ask()
    f.reply()
    inside(s, m).syn(kernel="not_ours")
    inside(s, m, "icmp").ping(kernel="not_ours")


@rows_for(BOTH, "of two rules that match the first counts")
def first_rule(s, m):
    six = m.version == 6
    pool = "2001:db8:1::20" if six else "198.51.100.20"
    s.pools["second"] = {"addresses": [pool]}
    source = real_address(1, m.version)
    s.snat("one", sources=[f"{source}/{128 if six else 32}"])
    s.snat("rest", sources=[ALL6 if six else ALL4], pool="second")
    s.inside(version=m.version).handshake()
    other = real_address(2, m.version)
    s.inside(version=m.version, inside=(other, 50000), pool=pool).handshake()


@rows_for(BOTH, "only where packets leave by the rule's egress port")
def egress(s, m):
    f = inside(s, m, rule={"egress": "front"})
    f.handshake()
    g = inside(s, m, inside=(real_address(1, m.version), 50001),
               outside=(real_address(2, m.version), 80))
    g.syn(kernel="not_ours")


@rows_for(BOTH, "several pool addresses take turns")
def pool_addresses(s, m):
    six = m.version == 6
    addresses = ["2001:db8:1::20", "2001:db8:1::21"] if six else ["198.51.100.20", "198.51.100.21"]
    s.pools["wan"] = {"addresses": addresses}
    s.snat(sources=[ALL6 if six else ALL4], pool="wan", mapping="per_session")
    for number in range(4):
        f = s.inside(version=m.version, inside=(real_address(1, m.version), 50000 + number),
                     pool=addresses[number % 2], lport=1024 + number // 2)
        f.handshake()


@rows_for(BOTH, "all pool ports in use: refused, and free again after a close")
def pool_exhausted(s, m):
    rule = {"mapping": "per_session"}
    s.pools["wan"] = {"addresses": [WAN if m.version == 4 else WAN6], "ports": "2000-2001"}
    at = real_address(1, m.version)
    flows = [inside(s, m, "tcp", rule, inside=(at, 50000 + n), lport=2000 + n) for n in range(2)]
    for flow in flows:
        flow.handshake()
    inside(s, m, inside=(at, 50002)).syn(drop="local_ports_exhausted")
    flows[0].close()
    inside(s, m, inside=(at, 50003), lport=2000).handshake()


@rows_for(BOTH, "TCP that is no SYN opens nothing")
def no_session(s, m):
    f = inside(s, m)
    for flags in ("A", "FA", "SA", "R"):
        f.from_client(flags, drop="no_session")
    f.syn()


@rows_for(BOTH, "VLANs on both sides")
def vlan(s, m):
    f = inside(s, m, "udp")
    s.vlan(m.client, 10)
    s.vlan(f.client, 20)
    f.ask()
    f.reply()


@rows_for((SNAT4,), "through a gateway")
def gateway(s, m):
    s.routes.append(("0.0.0.0/0", GATEWAY, "front"))
    s.hop(GATEWAY, GATEWAY_MAC)
    f = inside(s, m, outside=("203.0.113.5", 443), via=GATEWAY).handshake()
    f.answer(b"from afar")


@rows_for(BOTH, "TTL or hop limit 1: the host inside is told, from the pool address of its session")
def ttl_expired(s, m):
    f = inside(s, m)
    # Before there is a session the director has no address here to say it from.
    f.syn(ip={"ttl": 1}, drop="ttl_expired")
    f.handshake()
    f.send(b"x", ip={"ttl": 1}, drop="ttl_expired", answer=("ttl", 0))


@rows_for(BOTH, "UDP: 300 seconds without a packet end the session")
def udp_expiry(s, m):
    f = inside(s, m, "udp")
    f.ask()
    s.wait(298)
    f.reply()
    s.wait(302)
    f.expire()
    f.reply(drop="no_session")


@rows_for(BOTH, "an established connection may be silent for 7,440 seconds (RFC 5382 REQ-5)")
def tcp_idle(s, m):
    f = inside(s, m).handshake()
    s.wait(7438)
    f.answer(b"still there")
    f.ack()
    s.wait(7442)
    f.expire()
    f.answer(b"too late", drop="no_session")


@rows_for(BOTH, "or as long as the rule says, whatever services have")
def tcp_idle_rule(s, m):
    s.timeouts["tcp_established_s"] = 500
    f = inside(s, m, rule={"tcp_established_s": 100}).handshake()
    s.wait(98)
    f.answer(b"still there")
    f.ack()
    s.wait(102)
    f.expire()
    f.answer(b"too late", drop="no_session")


@rows_for(BOTH, "beside a service with Full NAT")
def beside_fnat(s, m):
    s.service(version=m.version)
    s.flow().handshake()
    inside(s, m).handshake().answer(b"from outside")


@rows_for(BOTH, "beside a service with NAT: answers to clients are the service's")
def beside_nat(s, m):
    s.service(version=m.version, mode="nat")
    f = s.flow().handshake()
    inside(s, m).handshake()
    f.answer(b"from the service")


@rows_for(BOTH, "port unreachable from the outside reaches the host inside")
def icmp_port(s, m):
    f = inside(s, m, "udp")
    f.ask()
    reported(f, "inbound", "port")


@rows_for(BOTH, "a narrow path outside: its MTU reaches the host inside")
def icmp_too_big(s, m):
    f = inside(s, m).handshake()
    router = "203.0.113.1" if m.version == 4 else "2001:db8:ffff::1"
    reported(f, "inbound", "too_big", 1400, data=b"x" * 100, source=router)


@rows_for(BOTH, "time exceeded outside, for TCP (a trace of the route)")
def icmp_ttl(s, m):
    f = inside(s, m).handshake()
    router = "203.0.113.1" if m.version == 4 else "2001:db8:ffff::1"
    reported(f, "inbound", "ttl", source=router, size=8)


@rows_for(BOTH, "port unreachable from the host inside reaches the outside")
def icmp_from_inside(s, m):
    f = inside(s, m, "udp")
    f.ask()
    reported(f, "outbound", "port")


@row("Source NAT, both families through one rule")
def snat_both(s):
    s.snat(sources=[ALL4, ALL6])
    s.pools["wan"]["addresses"] = [WAN, WAN6]
    s.inside().handshake()
    s.inside(version=6, lport=1025).handshake()
