"""Fragments follow the first of their datagram."""

from scapy.layers.inet import TCP, UDP

from fragments import Pieces
from modes import DR, FNAT4, FNAT6, FNAT46, FNAT64, IPIP, NAT
from rows import rows_for

BOTH = (FNAT4, FNAT6, *NAT)
ALL = (*BOTH, *DR, *IPIP)
ACROSS = (FNAT46, FNAT64)
DATA = bytes(index * 31 % 251 for index in range(3000))


def dns(s, m, **keys):
    """A UDP service and a flow to it."""
    m.service(s, "dns", "udp", 53, **keys)
    return s.flow("dns")


@rows_for(ALL, "a question in two fragments opens a session; both reach its real server")
def fragments_two(s, m):
    f = dns(s, m)
    Pieces(f, "inbound", UDP(), DATA[:1500], [800]).all()
    f.ask(b"whole again")


@rows_for(ALL, "three fragments of a full datagram, in order")
def fragments_three(s, m):
    f = dns(s, m)
    Pieces(f, "inbound", UDP(), DATA, [1200, 2400]).all()
    Pieces(f, "inbound", UDP(), DATA, [1200, 2400]).all()


@rows_for(BOTH, "an answer in three fragments")
def fragments_back(s, m):
    f = dns(s, m)
    f.ask()
    Pieces(f, "outbound", UDP(), DATA, [1200, 2400]).all()


@rows_for(ALL, "out of order: what came before the first waits for it")
def fragments_out_of_order(s, m):
    f = dns(s, m)
    pieces = Pieces(f, "inbound", UDP(), DATA, [1200, 2400])
    pieces.arrive(2, leave=())
    pieces.arrive(1, leave=())
    pieces.arrive(0, leave=(0, 2, 1))


@rows_for(BOTH, "an answer out of order")
def fragments_back_out_of_order(s, m):
    f = dns(s, m)
    f.ask()
    pieces = Pieces(f, "outbound", UDP(), DATA, [1200, 2400])
    pieces.arrive(1, leave=())
    s.wait(0.002)
    pieces.arrive(0, leave=(0, 1))
    s.wait(0.002)
    pieces.arrive(2)


@rows_for(BOTH, "TCP in fragments, both ways")
def fragments_tcp(s, m):
    m.service(s)
    f = s.flow().handshake()
    head = TCP(flags="PA", seq=f.client_seq, ack=f.real_seq)
    Pieces(f, "inbound", head, DATA[:1000], [24, 512]).all()
    f.client_seq += 1000
    head = TCP(flags="PA", seq=f.real_seq, ack=f.client_seq)
    Pieces(f, "outbound", head, DATA[:1000], [256]).all()
    f.real_seq += 1000
    f.ack()


@rows_for(BOTH, "two datagrams of one flow, their fragments interleaved")
def fragments_interleaved(s, m):
    f = dns(s, m)
    one = Pieces(f, "inbound", UDP(), DATA[:1500], [800])
    two = Pieces(f, "inbound", UDP(), DATA[1500:], [800])
    one.arrive(0)
    two.arrive(0)
    two.arrive(1)
    one.arrive(1)


@rows_for(BOTH, "datagrams of two clients with the same identification")
def fragments_same_id(s, m):
    one = dns(s, m)
    other = m.client_at(99)
    s.hop(other, "02:00:00:00:02:99")
    two = s.flow("dns", real=2, client=(other, 40000))
    same = {"id": 77}
    first = Pieces(one, "inbound", UDP(), DATA[:1500], [800], same)
    second = Pieces(two, "inbound", UDP(), DATA[1500:], [800], same)
    first.arrive(0)
    second.arrive(0)
    first.arrive(1)
    second.arrive(1)
