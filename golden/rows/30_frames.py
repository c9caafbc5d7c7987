"""Ethernet and IP around it: tags, padding, options, TTL, sizes."""

from scapy.layers.inet import IPOption_NOP, IPOption_RR

from frames import CLIENT, CLIENT_MAC, real_address, real_mac
from rows import row


@row("Clients on VLAN 10, real servers untagged: the tag goes, and comes back on the answer")
def vlan_front(s):
    s.hop(CLIENT, CLIENT_MAC, vlan=10)
    s.service()
    f = s.flow().handshake()
    f.send(b"tagged")
    f.answer(b"tagged")


@row("Real servers on VLAN 20, clients untagged")
def vlan_back(s):
    s.hop(real_address(1), real_mac(1), "back", 20)
    s.service()
    s.flow().handshake()


@row("Router on a stick: one port, clients on VLAN 10, real servers on VLAN 20")
def vlan_one_arm(s):
    s.one_arm()
    s.hop(CLIENT, CLIENT_MAC, "front", 10)
    s.hop(real_address(1), real_mac(1), "front", 20)
    s.service()
    f = s.flow().handshake()
    f.send(b"from 10 to 20")
    f.answer(b"from 20 to 10")


@row("The tag of a frame that leaves is its next hop's, whatever tag the other came in with")
def vlan_asymmetric(s):
    s.hop(CLIENT, CLIENT_MAC, vlan=10)
    s.service()
    f = s.flow()
    f.syn(tags=(99,))
    f.syn_ack()


@row("A priority tag (VLAN 0) is read over")
def vlan_0(s):
    s.service()
    f = s.flow()
    f.syn(tags=(0,))
    f.syn_ack(tags=(0,))


@row("Two tags (802.1ad outside) are read over; the answer leaves as its next hop says")
def vlan_stacked(s):
    s.service()
    f = s.flow()
    f.syn(tags=(100, 200))
    f.syn_ack(tags=(100, 200))


@row("Ethernet padding after a short IP packet stays, and is never part of the checksum")
def padding(s):
    s.service()
    f = s.flow()
    f.syn(options=[], pad=b"\0" * 6, pad_left=b"\0" * 6)
    f.syn_ack()
    f.ack(pad=b"\xa5" * 6, pad_left=b"\xa5" * 6)
    f.send(b"x", pad=b"\xa5" * 5, pad_left=b"\xa5" * 5)
    f.answer(b"y", pad=b"\x5a" * 5, pad_left=b"\x5a" * 5)


@row("Padding longer than the packet itself")
def padding_long(s):
    s.service("dns", "udp", 53)
    f = s.flow("dns")
    f.ask(b"q", pad=b"\xee" * 200, pad_left=b"\xee" * 200)
    f.reply(b"a", pad=b"\xee" * 200, pad_left=b"\xee" * 200)


@row("IP options pass unchanged, the TCP header is found behind them")
def ip_options(s):
    s.service()
    f = s.flow()
    options = [IPOption_NOP(), IPOption_RR(routers=["0.0.0.0"] * 2)]
    f.syn(ip={"options": options})
    f.syn_ack(ip={"options": options})


@row("An IP header of the greatest length, 60 bytes")
def ip_longest_header(s):
    s.service()
    f = s.flow()
    f.syn(ip={"options": [IPOption_NOP()] * 40})
    f.syn_ack(ip={"options": [IPOption_NOP()] * 40})
    f.ack(ip={"options": [IPOption_NOP()] * 37})


@row("DSCP, ECN, identification and DF pass unchanged")
def ip_fields(s):
    s.service()
    f = s.flow()
    f.syn(ip={"tos": 0xB8, "id": 0, "flags": "DF"})
    f.syn_ack(ip={"tos": 0x01, "id": 0xFFFF, "flags": "DF"})
    f.ack(ip={"tos": 0xFF, "id": 0x8000})


@row("The IP header checksum is right whatever it was before: 500 identifications")
def ip_checksums(s):
    s.service("dns", "udp", 53)
    f = s.flow("dns")
    for number in range(250):
        f.ask(b"", ip={"id": number * 263 % 65536, "tos": number})
        f.reply(b"", ip={"id": number * 509 % 65536, "ttl": 2 + number})


@row("TTL 2 becomes 1, TTL 255 becomes 254")
def ttl_passes(s):
    s.service()
    f = s.flow()
    f.syn(ip={"ttl": 2})
    f.syn_ack(ip={"ttl": 2})
    f.ack(ip={"ttl": 255})


@row("TTL 0 is as good as 1: dropped and answered")
def ttl_0(s):
    s.service()
    f = s.flow()
    f.syn(ip={"ttl": 0}, drop="ttl_expired", answer=("ttl", 0))
    f.syn()
    f.syn_ack(ip={"ttl": 0}, drop="ttl_expired", answer=("ttl", 0))


@row("Exactly the MTU passes; padding and tags do not count")
def mtu_exact(s):
    s.back.keys["mtu"] = 1400
    s.hop(real_address(1), real_mac(1), "back", 20)
    s.service()
    f = s.flow().handshake()
    f.send(b"x" * 1360, pad=b"\0" * 4, pad_left=b"\0" * 4)


@row("A jumbo MTU lets jumbo frames pass")
def mtu_jumbo(s):
    s.front.keys["mtu"] = 9000
    s.back.keys["mtu"] = 9000
    s.service()
    f = s.flow().handshake()
    f.send(b"x" * 8960)
    f.answer(b"y" * 8959)
