"""Ethernet and IP around it, in every mode and family."""

from scapy.layers.inet import TCP, UDP
from scapy.layers.inet6 import (
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    PadN,
    RouterAlert,
)
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw

from frames import GATEWAY_MAC, ip_header, real_address
from modes import ALL, DR, DR6, FNAT, FNAT6, IN_TUNNELS, IPIP6, NAT, NAT6, NEW, ONE_WAY, TWO_WAY
from rows import rows_for

SIX = (FNAT6, NAT6, DR6, IPIP6)


@rows_for(NEW, "clients on VLAN 10, real servers untagged")
def vlan_front(s, m):
    m.service(s)
    s.vlan(m.client, 10)
    f = s.flow().handshake()
    f.send(b"tagged")
    f.answer(b"tagged")


@rows_for(NEW, "real servers on VLAN 20, clients untagged")
def vlan_back(s, m):
    m.service(s)
    s.vlan(real_address(1, m.real_version), 20)
    f = s.flow().handshake()
    f.send(b"to VLAN 20")
    f.answer(b"from VLAN 20")


@rows_for(NEW, "one port, clients on VLAN 10, real servers on VLAN 20 and 30")
def vlan_both(s, m):
    m.service(s)
    s.one_arm()
    s.vlan(m.client, 10)
    for real, vlan in ((1, 20), (2, 30)):
        s.vlan(real_address(real, m.real_version), vlan)
    for real in (1, 2):
        f = s.flow(real=real, client=(m.client, 40000 + real)).handshake()
        f.send(b"from 10 to %d0" % (1 + real))
        f.answer(b"from %d0 to 10" % (1 + real))


@rows_for(NEW, "priority tags and stacked tags are read over")
def vlan_odd(s, m):
    m.service(s)
    f = s.flow()
    f.syn(tags=(0,))
    f.syn_ack(tags=(0,))
    f.ack(tags=(100, 200))
    f.answer(b"x" * 8, tags=(100, 200))


OTHER_MAC = "02:00:00:00:00:77"


def to_another(frame, tags=()):
    """A frame as it is to another receiver of the link."""
    frame = frame.copy()
    frame.dst = OTHER_MAC
    if not tags:
        return frame
    return Ether(src=frame.src, dst=frame.dst) / Dot1Q(vlan=tags[0]) / frame.payload


@rows_for(ALL, "frames to another's link-layer address are dropped, alone and among others")
def other_mac(s, m):
    m.service(s)
    header = ip_header(m.client, m.vip, {})
    syn = s.client_frame(header / TCP(sport=40000, dport=80, flags="S", seq=1))
    s.drops(s.front, to_another(syn), "other_mac")
    s.drops(s.front, to_another(syn, (10,)), "other_mac")
    f = s.flow().handshake()
    head = TCP(sport=40000, dport=80, flags="PA", seq=f.client_seq, ack=f.real_seq)
    theirs = to_another(s.client_frame(header / head / Raw(b"not for us")))
    for _ in range(12):
        s.drops(s.front, theirs, "other_mac")
        f.send(b"for us")
    reset = s.client_frame(header / TCP(sport=40000, dport=80, flags="R", seq=f.client_seq))
    s.drops(s.front, to_another(reset), "other_mac")
    f.answer(b"still there")


@rows_for(ALL, "what comes from an address of one link only is not forwarded to another")
def link_local(s, m):
    m.service(s)
    m.service(s, "dns", "udp", 53)
    for number in (1, 0xffff):
        by_version = f"169.254.{number >> 8}.{number & 255}", f"fe80::{number:x}"
        header = ip_header(by_version[m.version == 6], m.vip, {})
        for upper in (TCP(sport=40000, dport=80, flags="S"), UDP(sport=40000, dport=53)):
            s.drops(s.front, bytes(s.client_frame(header / upper)), "link_local")


@rows_for((*FNAT, *NAT, *DR), "Ethernet padding is no part of the packet")
def padding(s, m):
    m.service(s, "dns", "udp", 53)
    f = s.flow("dns")
    padded = b"\xa5" * 10
    left = b"" if m.crosses else padded
    f.ask(b"", pad=padded, pad_left=left)
    f.reply(b"y", pad=padded, pad_left=left)


@rows_for(IN_TUNNELS, "Ethernet padding is no part of what is tunnelled, and stays behind it")
def padding_tunnel(s, m):
    m.service(s, "dns", "udp", 53)
    f = s.flow("dns")
    f.ask(b"", pad=b"\xa5" * 18, pad_left=b"\xa5" * 18)
    f.ask(b"x", pad=b"\xa5" * 17, pad_left=b"\xa5" * 17)


@rows_for(NEW, "TTL or hop limit 2 becomes 1, 255 becomes 254")
def ttl(s, m):
    m.service(s)
    f = s.flow()
    f.syn(ip={"ttl": 2})
    f.syn_ack(ip={"ttl": 2})
    f.ack(ip={"ttl": 255})
    f.answer(b"x", ip={"ttl": 255})


@rows_for(NEW, "DSCP and ECN pass, all 256 values")
def dscp_ecn(s, m):
    m.service(s, "dns", "udp", 53)
    f = s.flow("dns")
    for tos in range(0, 256, 4 if m.one_way else 5):
        f.ask(b"", ip={"tos": tos ^ tos >> 3 & 3})
        f.reply(b"", ip={"tos": tos})


@rows_for(SIX, "the flow label passes unchanged")
def flow_label(s, m):
    m.service(s, "dns", "udp", 53)
    f = s.flow("dns")
    for label in (1, 0x12345, 0xFFFFF):
        f.ask(ip={"fl": label})
        f.reply(ip={"fl": label ^ 0xFFFFF})


@rows_for(SIX, "extension headers are walked to the transport header, and stay")
def extensions(s, m):
    m.service(s)
    f = s.flow()
    hop = IPv6ExtHdrHopByHop(options=[RouterAlert(value=0)])
    options = IPv6ExtHdrDestOpt(options=[PadN(optdata=b"\0" * 12)])
    f.syn(ip={"ext": [hop]})
    f.syn_ack(ip={"ext": [options]})
    f.ack(ip={"ext": [hop, options]})
    f.send(b"data", ip={"ext": [options]})


def options_of(length):
    """A header of destination options of so many octets."""
    return IPv6ExtHdrDestOpt(options=[PadN(optdata=b"\0" * (length - 4))])


@rows_for(SIX, "extension headers of up to 256 octets pass, and no more")
def extensions_long(s, m):
    m.service(s)
    f = s.flow()
    f.syn(ip={"ext": [options_of(256)]})
    f.syn_ack(ip={"ext": [options_of(256)]} if m.real_version == 6 else {})
    for length in (200, 208, 248, 256):
        f.ack(ip={"ext": [options_of(length)]})
    f.send(b"data", ip={"ext": [options_of(8), options_of(248)]})
    f.ack(ip={"ext": [options_of(8), options_of(256)]}, drop="extension_headers")
    f.send(b"and the session is well")


@rows_for(SIX, "the same in VLANs")
def extensions_long_vlan(s, m):
    m.service(s)
    f = s.flow()
    s.vlan(m.client, 10)
    s.vlan(f.real_address, 20)
    f.syn(ip={"ext": [options_of(256)]})
    f.syn_ack(ip={"ext": [options_of(256)]} if m.real_version == 6 else {})


@rows_for(SIX, "a Fragment header that says the packet is whole (RFC 6946) is read over")
def atomic_fragment(s, m):
    m.service(s)
    f = s.flow()
    f.syn(ip={"ext": [IPv6ExtHdrFragment(id=7)]})
    f.syn_ack(ip={"ext": [IPv6ExtHdrFragment(id=8)]})
    f.ack()


@rows_for(TWO_WAY, "a client behind a gateway: the answer goes to the gateway's MAC")
def gateway(s, m):
    m.service(s)
    far = "203.0.113.77" if m.version == 4 else "2001:db8:ffff::77"
    s.routes.append(("0.0.0.0/0" if m.version == 4 else "::/0", m.gateway, "front"))
    s.hop(m.gateway, GATEWAY_MAC)
    f = s.flow(client=(far, 40000), via=m.gateway).handshake()
    f.send(b"from afar")
    f.answer(b"to afar")


@rows_for((*TWO_WAY, *IN_TUNNELS), "real servers behind a router of their own")
def routed_reals(s, m):
    m.service(s)
    router, link = ("10.0.0.1", "10.0.0.0/24") if m.real_version == 4 else (
        "2001:db8:3::1", "2001:db8:3::/64")
    at = 1 if m.real_version == 4 else 3
    s.routes[at] = (s.routes[at][0], router, "back")
    s.routes.append((link, None, "back"))
    s.hop(router, "02:00:00:00:01:fe", "back")
    f = s.flow(real_via=router).handshake()
    f.send(b"through the router")
    f.answer(b"through the router")


@rows_for(NEW, "the real server's MAC is unknown: the packet waits, and is given up at the end")
def real_unresolved(s, m):
    m.service(s)
    s.forget(real_address(1, m.real_version))
    s.flow().syn(drop="unresolved")


@rows_for(NEW, "no route to the real server: no session is opened")
def no_route_to_real(s, m):
    m.service(s)
    del s.routes[1 if m.real_version == 4 else 3]
    s.flow().syn(drop="no_route")


@rows_for(TWO_WAY, "no route back to the client: no session is opened")
def no_route_to_client(s, m):
    m.service(s)
    far = "203.0.113.77" if m.version == 4 else "2001:db8:ffff::77"
    s.hop(m.gateway, GATEWAY_MAC)
    s.flow(client=(far, 40000), via=m.gateway).syn(drop="no_route")
    s.flow(real=1).syn()


@rows_for(ONE_WAY, "no route back to the client is none of the director's business")
def no_way_back(s, m):
    m.service(s)
    far = "203.0.113.77" if m.version == 4 else "2001:db8:ffff::77"
    s.hop(m.gateway, GATEWAY_MAC)
    s.flow(client=(far, 40000), via=m.gateway).syn()


@rows_for(ONE_WAY, "what real servers send to clients is not the director's")
def answers_are_kernels(s, m):
    m.service(s)
    f = s.flow().handshake()
    f.from_real("A", anyway=True, kernel="not_ours")
