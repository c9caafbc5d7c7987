"""Fragments follow the first of their datagram."""

from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.sctp import SCTP, SCTPChunkData, SCTPChunkInit
from scapy.packet import Raw

import wire
from fragments import Pieces
from frames import CLIENT, VIP
from modes import DR, DR4, DR6, FNAT4, FNAT6, FNAT46, FNAT64, IN_TUNNELS, IPIP4, NAT, NAT4
from rows import row, rows_for
from told import Told

BOTH = (FNAT4, FNAT6, *NAT)
ALL = (*BOTH, *DR, *IN_TUNNELS)
ACROSS = (FNAT46, FNAT64)
FNAT = (FNAT4, FNAT6, *ACROSS)
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


def tcp_both_ways(s, m):
    """A connection with fragments of either side's."""
    m.service(s)
    f = s.flow().handshake()
    head = TCP(flags="PA", seq=f.client_seq, ack=f.real_seq)
    Pieces(f, "inbound", head, DATA[:1000], [24, 512]).all()
    f.client_seq += 1000
    head = TCP(flags="PA", seq=f.real_seq, ack=f.client_seq)
    Pieces(f, "outbound", head, DATA[:1000], [256]).all()
    f.real_seq += 1000
    f.ack()


@rows_for(BOTH, "TCP in fragments, both ways")
def fragments_tcp(s, m):
    tcp_both_ways(s, m)


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


@rows_for(ACROSS, "fragments become those of the other family, both ways (RFC 7915 4.1, 5.1.1)")
def fragments_across(s, m):
    f = dns(s, m)
    f.ask()
    Pieces(f, "inbound", UDP(), DATA[:1500], [800]).all()
    Pieces(f, "inbound", UDP(), DATA, [1200, 2400]).all()
    Pieces(f, "outbound", UDP(), DATA, [1200, 2400]).all()
    f.ask(b"whole")


@rows_for(ACROSS, "fragments of the other family's out of order, both ways")
def fragments_across_out_of_order(s, m):
    f = dns(s, m)
    for way in ("inbound", "outbound"):
        pieces = Pieces(f, way, UDP(), DATA, [1200, 2400])
        pieces.arrive(2, leave=())
        pieces.arrive(1, leave=())
        pieces.arrive(0, leave=(0, 2, 1))
        s.wait(0.002)


@rows_for(ACROSS, "TCP in fragments to the other family, both ways")
def fragments_across_tcp(s, m):
    tcp_both_ways(s, m)


@rows_for(ACROSS, "fragments too large for the other family's header are cut again")
def fragments_across_cut(s, m):
    if m is FNAT64:
        s.back.keys["mtu"] = 1400
    f = dns(s, m)
    # What may be cut becomes no IPv6 of more than 1,280 bytes (RFC 7915 4.1).
    mtu = 1280 if m is FNAT46 else 1400
    for places in ([1456], [1480], [40], [40, 1496]):
        pieces = Pieces(f, "inbound", UDP(), DATA[:1600], places)
        pieces.mtu = mtu
        pieces.all()
    pieces = Pieces(f, "inbound", UDP(), DATA, [1480, 2960])
    pieces.mtu = mtu
    pieces.arrive(1, leave=())
    pieces.arrive(0, leave=(0, 1))
    f.scene.wait(0.002)
    pieces.arrive(2)


@rows_for((FNAT46,), "fragments with DF too large with both headers of IPv6: the client is told")
def fragments_across_too_big(s, m):
    f = dns(s, m)
    f.ask()
    pieces = Pieces(f, "inbound", UDP(), DATA[:1600], [1456], {"flags": "DF"})
    pieces.arrive(0, drop="too_big", answer=("too_big", 1472))
    Pieces(f, "inbound", UDP(), DATA[:1600], [1448], {"flags": "DF"}).all()


def router(m, way):
    """A router behind the director, on the way of packets."""
    version = m.real_version if way == "inbound" else m.version
    return "203.0.113.1" if version == 4 else "2001:db8:ffff::1"


@rows_for(ACROSS, "an error that quotes a first fragment reaches its sender with the fragment that "
          "it sent (RFC 7915 4.2, 4.3, 5.2, 5.3)")
def fragments_across_reported(s, m):
    f = dns(s, m)
    f.ask()
    for way in ("inbound", "outbound"):
        pieces = Pieces(f, way, UDP(), DATA[:300], [104, 208]).all()
        pieces.reported(0, "reassembly")
        pieces.reported(0, "ttl", size=8, source=router(m, way))
        pieces.reported(0, "port", size=57)
    f.ask(b"and the session is well")


@rows_for(ACROSS, "the same of TCP")
def fragments_across_reported_tcp(s, m):
    m.service(s)
    f = s.flow().handshake()
    for way in ("inbound", "outbound"):
        seq, ack = f.client_seq, f.real_seq
        seq, ack = (seq, ack) if way == "inbound" else (ack, seq)
        head = TCP(flags="PA", seq=seq, ack=ack)
        pieces = Pieces(f, way, head, DATA[:300], [104, 208]).all()
        pieces.reported(0, "reassembly")
        pieces.reported(0, "ttl", size=8, source=router(m, way))


@rows_for(ACROSS, "a path too narrow for a first fragment: its sender is told what fits with its "
          "own header, and with a Fragment header in IPv6")
def fragments_across_reported_mtu(s, m):
    f = dns(s, m)
    f.ask()
    for way in ("inbound", "outbound"):
        to_four = (m is FNAT46) == (way == "inbound")
        pieces = Pieces(f, way, UDP(), DATA[:1400], [1200]).all()
        told = 1400 - 28 if to_four else 1400 + 20
        pieces.reported(0, "too_big", 1400, size=100, told=told, source=router(m, way))


@rows_for((FNAT4, FNAT6, *ACROSS), "an error that quotes a later fragment tells no ports, and so "
          "no session: counted and dropped")
def fragments_reported_later(s, m):
    f = dns(s, m)
    f.ask()
    for way in ("inbound", "outbound"):
        pieces = Pieces(f, way, UDP(), DATA[:300], [104]).all()
        pieces.reported(1, "ttl", source=router(m, way), drop="icmp_error")


@rows_for(ALL, "what waited for its datagram's first fragment leaves right behind it, before what "
          "came later")
def fragments_before_others(s, m):
    f = dns(s, m, reals=(1,))
    one = Pieces(f, "inbound", UDP(), DATA[:2000], [504, 1008, 1504])
    two = Pieces(f, "inbound", UDP(), DATA[500:2500], [504, 1008])
    one.arrive(3, leave=())
    two.arrive(2, leave=())
    f.ask(b"before")
    one.arrive(1, leave=())
    two.arrive(0, leave=(0, 2))
    f.ask(b"between")
    one.arrive(0, leave=(0, 3, 1))
    f.ask(b"behind")
    one.arrive(2)
    two.arrive(1)


@rows_for((FNAT46,), "a datagram in fragments without a checksum has none in IPv6: counted and "
          "dropped (RFC 7915 4.5)")
def fragments_across_no_checksum(s, m):
    f = dns(s, m)
    f.ask(chksum=0)
    pieces = Pieces(f, "inbound", UDP(chksum=0), DATA[:1500], [400, 800])
    pieces.arrive(1, 0, 2, drop="untranslatable")


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


def telling(s, m, how, protocol="udp", port=53):
    """A service that tells the client's address, and a flow to it."""
    return Told(s, m.service(s, "told", protocol, port, client_address=how))


@rows_for(FNAT, "PROXY v2 for UDP: the header is in the first fragment, padded by a TLV, and the "
          "others move")
def fragments_told(s, m):
    f = telling(s, m, "proxy_v2")
    f.ask()
    Pieces(f, "inbound", UDP(), DATA[:1400], [800]).all()
    Pieces(f, "inbound", UDP(), DATA, [8, 1200, 2400]).all()
    Pieces(f, "outbound", UDP(), DATA, [1200, 2400]).all()


@rows_for(FNAT, "PROXY v2 for UDP: fragments out of order")
def fragments_told_out_of_order(s, m):
    f = telling(s, m, "proxy_v2")
    for places in ([1200, 2400], [8, 1208]):
        pieces = Pieces(f, "inbound", UDP(), DATA[:2600], places)
        pieces.mtu = 1280 if m is FNAT46 else None
        pieces.arrive(2, leave=())
        pieces.arrive(0, leave=(0, 2))
        s.wait(0.002)
        pieces.arrive(1)
        s.wait(0.002)


@rows_for((FNAT4, FNAT46, FNAT64), "PROXY v2 for UDP: a first fragment that the header makes too "
          "large is cut again")
def fragments_told_cut(s, m):
    f = telling(s, m, "proxy_v2")
    for places in ([1448], [1464, 1472]):
        pieces = Pieces(f, "inbound", UDP(), DATA[:2000], places)
        pieces.mtu = 1280 if m is FNAT46 else 1500
        pieces.all()


@rows_for((FNAT6,), "PROXY v2 for UDP: a first fragment that the header makes too large: the "
          "client is told, and the others are of no use")
def fragments_told_too_big(s, m):
    f = telling(s, m, "proxy_v2")
    f.ask()
    pieces = Pieces(f, "inbound", UDP(), DATA[:2000], [1448])
    pieces.arrive(0, drop="too_big", answer=("too_big", 1444))
    pieces.arrive(1, drop="too_big")


@rows_for((FNAT4, FNAT6), "PROXY v2 for UDP: a datagram that would be longer than any may be")
def fragments_told_longest(s, m):
    f = telling(s, m, "proxy_v2")
    f.ask()
    most = 65_515 - 32 if m is FNAT4 else 65_535 - 56
    pieces = Pieces(f, "inbound", UDP(len=most + 1, chksum=0x1234), DATA[:1400], [800])
    pieces.arrive(0, 1, drop="fragment")


@rows_for(FNAT, "PROXY v2: a stream whose first data comes in fragments; no-operations among the "
          "options make the header a multiple of eight octets")
def fragments_told_stream(s, m):
    f = stream_in_fragments(telling(s, m, "proxy_v2", "tcp", 80))
    head = TCP(flags="PA", seq=f.client_seq, ack=f.real_seq)
    Pieces(f, "inbound", head, DATA[1000:2000], [24, 512]).all()
    f.client_seq += 1000
    f.close()


@rows_for(FNAT, "TOA: a stream whose first data comes in fragments; the option is padded to a "
          "multiple of eight octets")
def fragments_told_option(s, m):
    f = stream_in_fragments(telling(s, m, "toa", "tcp", 80))
    f.close()


def stream_in_fragments(f):
    """A handshake, the client's first data in fragments, out of order, and an answer in some."""
    f.syn()
    f.syn_ack(options=[("MSS", 1200)])
    f.ack()
    stamps = [("NOP", None), ("NOP", None), ("Timestamp", (1, 2))]
    head = TCP(flags="PA", seq=f.client_seq, ack=f.real_seq, options=stamps)
    pieces = Pieces(f, "inbound", head, DATA[:1000], [64, 512])
    pieces.arrive(1, leave=())
    pieces.arrive(0, leave=(0, 1))
    f.scene.wait(0.002)
    pieces.arrive(2)
    f.client_seq += 1000
    head = TCP(flags="PA", seq=f.real_seq, ack=f.client_seq)
    Pieces(f, "outbound", head, DATA[:900], [256]).all()
    f.real_seq += 900
    return f


@rows_for((FNAT4, FNAT64), "PROXY v1: the line's length cannot be padded, so a stream's first data "
          "waits until the line has arrived with the handshake")
def fragments_told_line(s, m):
    f = Told(s, m.service(s, "told", "tcp", 80, client_address="proxy_v1"), client=(m.client, 7777))
    assert len(f.header) % 4
    f.syn()
    f.syn_ack(options=[("MSS", 1200)])
    f.ack()
    entered = TCP(flags="PA", seq=f.client_seq, ack=f.real_seq)
    f.how = "toa"
    pieces = Pieces(f, "inbound", entered, DATA[:1000], [512])
    f.how = "proxy_v1"
    pieces.arrive(0, 1, drop="fragment")
    f.real_ack()
    Pieces(f, "inbound", entered, DATA[:1000], [512]).all()


@rows_for(NAT, "SCTP in fragments: its CRC32c covers the whole, so that a port can only stay")
def fragments_sctp(s, m):
    m.service(s, "same", "sctp", 2905)
    m.service(s, "other", "sctp", 2906, real_port=3868)
    for name, drop in (("same", None), ("other", "fragment")):
        f = s.flow(name)
        f.chunk(SCTPChunkInit(init_tag=5), tag=0)
        f.chunk(SCTPChunkData(tsn=1, data=b"whole"))
        chunk = bytes(SCTPChunkData(tsn=2, data=DATA[:1000]))
        Pieces(f, "inbound", SCTP(tag=7), chunk, [512]).arrive(0, 1, drop=drop)


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
