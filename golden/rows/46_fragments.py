"""Fragments follow the first of their datagram."""

from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.packet import Raw

import wire
from fragments import Pieces
from frames import CLIENT, VIP
from modes import DR, DR4, DR6, FNAT4, FNAT6, FNAT46, FNAT64, IPIP, IPIP4, NAT, NAT4
from rows import row, rows_for
from told import Told

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


@rows_for(ACROSS, "fragments have no like in the other family here: counted and dropped")
def fragments_across(s, m):
    f = dns(s, m)
    f.ask()
    pieces = Pieces(f, "inbound", UDP(), DATA[:1500], [800])
    pieces.arrive(0, drop="untranslatable")
    pieces.arrive(1, drop="untranslatable")
    f.ask(b"whole")


@rows_for((FNAT4, FNAT6, NAT4, DR6), "a fragment whose first does not come is given up")
def fragments_orphan(s, m):
    f = dns(s, m)
    pieces = Pieces(f, "inbound", UDP(), DATA[:1500], [800])
    pieces.arrive(1, leave=())
    s.wait(1.5)
    f.ask()
    s.count("fragment_orphan")
    s.wait(0.1)
    f.ask()


@rows_for((FNAT4, FNAT6, NAT4, DR6), "overlapping and repeated fragments are all forwarded: the "
          "receiver judges")
def fragments_overlap(s, m):
    f = dns(s, m)
    same = {"id": 99}
    pieces = Pieces(f, "inbound", UDP(), DATA[:1500], [800], same)
    other = Pieces(f, "inbound", UDP(), DATA[:1500], [400], same)
    pieces.arrive(0)
    other.arrive(1)
    pieces.arrive(1)
    pieces.arrive(1)


@rows_for((FNAT4, FNAT6, NAT4, DR6), "a first fragment that ends within the TCP header, and a "
          "later one that lies within it (RFC 1858, RFC 3128)")
def fragments_tiny(s, m):
    m.service(s)
    f = s.flow().handshake()
    head = TCP(flags="PA", seq=f.client_seq, ack=f.real_seq)
    for place in (8, 16):
        pieces = Pieces(f, "inbound", head, DATA[:100], [place])
        pieces.arrive(0, drop="tiny_fragment")
        pieces.arrive(1, drop="tiny_fragment")
    f.send(b"whole")


@rows_for((FNAT4, FNAT6, NAT4, DR6), "what is refused is refused with all its fragments")
def fragments_refused(s, m):
    m.service(s)
    f = s.flow()
    head = TCP(flags="PA", seq=f.client_seq, ack=f.real_seq)
    Pieces(f, "inbound", head, DATA[:1000], [512]).arrive(0, 1, drop="no_session")


@rows_for((FNAT4, FNAT6, NAT4, DR6), "fragments that are not the director's are the kernel's")
def fragments_kernel(s, m):
    dns(s, m)
    f = s.flow("dns")
    f.vport = 9999
    pieces = Pieces(f, "inbound", UDP(), DATA[:1500], [800])
    pieces.arrive(0, 1, drop="not_ours")
    s.to_kernel += 2


@rows_for((FNAT4, FNAT6), "a service that tells the client's address cannot take fragments")
def fragments_told(s, m):
    service = m.service(s, "dns", "udp", 53, client_address="proxy_v2")
    f = Told(s, service)
    f.ask()
    Pieces(f, "inbound", UDP(), DATA[:1500], [800]).arrive(0, 1, drop="fragment")


@rows_for((FNAT4, FNAT6, NAT4, DR6), "fragments in VLANs")
def fragments_vlan(s, m):
    f = dns(s, m)
    s.vlan(m.client, 10)
    s.vlan(f.real_address, 20)
    Pieces(f, "inbound", UDP(), DATA[:1500], [800]).all()


@rows_for((FNAT4, NAT4, DR4, IPIP4), "fragments larger than the MTU are cut again")
def fragments_cut(s, m):
    s.back.keys["mtu"] = 600
    f = dns(s, m)
    pieces = Pieces(f, "inbound", UDP(), DATA[:1500], [1000])
    pieces.mtu = 600
    pieces.all()


@rows_for((FNAT4, NAT4, DR4), "fragments with DF and too large for the way: the client is told")
def fragments_too_big(s, m):
    s.back.keys["mtu"] = 600
    f = dns(s, m)
    f.ask()
    pieces = Pieces(f, "inbound", UDP(), DATA[:1500], [1000], {"flags": "DF"})
    pieces.arrive(0, drop="too_big", answer=("too_big", 600))


@row("Fragments of pings to the virtual address are the kernel's")
def fragments_ping(s):
    s.service()
    echo = bytes(IP(src=CLIENT, dst=VIP, id=5) / ICMP(id=1) / Raw(DATA[:2000]))
    for piece in wire.cut(echo, [1000]):
        s.kernel(s.front, s.client_frame(IP(piece)), "not_ours")
