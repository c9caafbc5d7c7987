"""Source NAT between hosts inside, by what they have outside."""

from scapy.layers.inet import TCP, UDP

from frames import ip_header, real_address, segment
from icmp import error
from rows import rows_for
from snat import BOTH, hairpin, inside
from wire import cut


def two_inside(s, m, protocol="udp", rule=None):
    """Two hosts inside, and what each has outside."""
    one = inside(s, m, protocol, rule)
    return one, inside(s, m, protocol, inside=(real_address(2, m.version), 50000), lport=1025)


@rows_for(BOTH, "hairpinning, UDP: hosts inside reach each other by what they have outside, and "
          "see each other under it (RFC 4787 REQ-9)")
def hairpin_udp(s, m):
    one, two = two_inside(s, m)
    one.ask()
    two.ask()
    hairpin(one, two, UDP(), b"hello", opens=2)
    hairpin(two, one, UDP(), b"hello, too")
    hairpin(one, two, UDP(), b"so it works")
    one.reply()
    two.reply()


@rows_for(BOTH, "hairpinning, UDP: who has nothing outside yet gets it then; who is asked must "
          "have something")
def hairpin_first(s, m):
    two, one = two_inside(s, m)
    two.ask()
    hairpin(one, two, UDP(), b"hello", opens=2)
    hairpin(two, one, UDP(), b"hello, too")
    three = inside(s, m, "udp", inside=(real_address(3, m.version), 50000), lport=1999)
    hairpin(one, three, UDP(), b"anybody?", opens=1, drop="no_session")


@rows_for(BOTH, "hairpinning, UDP: to oneself, by another port")
def hairpin_self(s, m):
    one = inside(s, m, "udp")
    one.ask()
    other = inside(s, m, "udp", inside=(one.client, 50001), lport=1025)
    hairpin(other, one, UDP(), b"is it me?", opens=2)
    hairpin(one, other, UDP(), b"it is")


@rows_for(BOTH, "hairpinning, TCP: a connection between hosts inside (RFC 5382 REQ-8)")
def hairpin_tcp(s, m):
    two, one = two_inside(s, m, "tcp")
    two.handshake()
    hairpin(one, two, TCP(flags="A", seq=6, ack=9), opens=0, drop="no_session")
    hairpin(one, two, TCP(flags="S", seq=5), opens=2)
    hairpin(two, one, TCP(flags="SA", seq=8, ack=6))
    hairpin(one, two, TCP(flags="A", seq=6, ack=9))
    hairpin(one, two, TCP(flags="PA", seq=6, ack=9), b"question")
    hairpin(two, one, TCP(flags="PA", seq=9, ack=14), b"answer")
    hairpin(one, two, TCP(flags="R", seq=14), ends=2)
    hairpin(one, two, TCP(flags="A", seq=14, ack=15), drop="no_session")
    two.answer(b"and this one is well")


@rows_for(BOTH, "hairpinning switched off: no session")
def hairpin_off(s, m):
    one, two = two_inside(s, m, rule={"hairpinning": False})
    one.ask()
    two.ask()
    hairpin(one, two, UDP(), drop="no_session")


@rows_for(BOTH, "hairpinning is for hosts inside: who claims such an address outside is not let "
          "in, whoever talks to whom")
def hairpin_forged(s, m):
    six = m.version == 6
    pools = ["2001:db8:1::20", "2001:db8:1::21"] if six else ["198.51.100.20", "198.51.100.21"]
    s.pools["wan"] = {"addresses": pools}
    one = inside(s, m, "udp", pool=pools[0])
    one.ask()
    two = inside(s, m, "udp", pool=pools[1], inside=(real_address(2, m.version), 50000))
    two.ask()

    def forged(source, port, target, reason):
        ip = ip_header(source, target.laddr, {"id": s.next_id()})
        s.arrives_from(one.real_address, bytes(segment(ip, UDP(), (port, target.lport), b"forged")))
        s.count(reason)

    forged(pools[0], 1025, one, "martian")
    forged(pools[1], 1025, one, "no_session")
    hairpin(one, two, UDP(), b"hello", opens=2)
    forged(one.laddr, one.lport, two, "martian")
    forged(two.laddr, two.lport, one, "martian")
    hairpin(two, one, UDP(), b"hello, too")
    one.reply()


@rows_for(BOTH, "hairpinning, TCP: both sides close, and the next connection has the same ports")
def hairpin_tcp_again(s, m):
    two, one = two_inside(s, m, "tcp")
    two.handshake()
    one.handshake()
    hairpin(one, two, TCP(flags="S", seq=5), opens=2)
    hairpin(two, one, TCP(flags="SA", seq=8, ack=6))
    hairpin(one, two, TCP(flags="A", seq=6, ack=9))
    hairpin(one, two, TCP(flags="FA", seq=6, ack=9))
    hairpin(two, one, TCP(flags="FA", seq=9, ack=7))
    hairpin(one, two, TCP(flags="A", seq=7, ack=10))
    hairpin(one, two, TCP(flags="S", seq=0x9000_0000), opens=2, ends=2)
    hairpin(two, one, TCP(flags="SA", seq=0x1000_0000, ack=0x9000_0001))
    hairpin(one, two, TCP(flags="A", seq=0x9000_0001, ack=0x1000_0001))
    s.wait(100)
    hairpin(one, two, TCP(flags="PA", seq=0x9000_0001, ack=0x1000_0001), b"still there?")
    hairpin(two, one, TCP(flags="R", seq=0x1000_0001), ends=2)


@rows_for(BOTH, "hairpinning, TCP: who is asked refuses")
def hairpin_tcp_refused(s, m):
    two, one = two_inside(s, m, "tcp")
    two.handshake()
    hairpin(one, two, TCP(flags="S", seq=0x5000_0000), opens=2)
    hairpin(two, one, TCP(flags="RA", seq=0, ack=0x5000_0001), ends=2)


@rows_for(BOTH, "what hairpinning does not bring on: fragments, ICMP errors, packets that are too "
          "old; nobody is told")
def hairpin_dropped(s, m):
    one, two = two_inside(s, m)
    one.ask()
    two.ask()
    hairpin(one, two, UDP(), b"hello", opens=2)
    ip = ip_header(one.laddr, two.client, {"id": s.next_id(), "ttl": 62})
    quoted = bytes(segment(ip, UDP(), (one.lport, two.cport), b"hello"))
    s.arrives_from(two.client, bytes(error("port", two.client, one.laddr, quoted)))
    s.count("icmp_error")
    ip = ip_header(one.client, two.laddr, {"id": s.next_id(), "ttl": 64})
    whole = bytes(segment(ip, UDP(), (one.cport, two.lport), bytes(100)))
    for piece in cut(whole, [40], 0x1234):
        s.arrives_from(one.client, piece)
        s.count("fragment")
    hairpin(one, two, UDP(), b"hello", drop="ttl_expired", ttl=2)
    hairpin(two, one, UDP(), b"hello, too")


@rows_for(BOTH, "hairpinning needs to know who is inside: not if a rule's sources are everybody")
def hairpin_everybody(s, m):
    everybody = ["0.0.0.0/0" if m.version == 4 else "::/0"]
    s.snat(sources=everybody, destinations=everybody)
    one, two = two_inside(s, m)
    one.ask()
    two.ask()
    hairpin(one, two, UDP(), b"hello", drop="no_session")
    ip = ip_header(one.real_address, one.laddr, {"id": s.next_id()})
    s.arrives_from(one.real_address, bytes(segment(ip, UDP(), (4000, one.lport), b"let me in")))
    s.count("no_session")
