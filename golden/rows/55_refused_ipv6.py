"""IPv6: packets without a session, what is used up, which real server and local port."""

from scapy.layers.inet import TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from frames import CLIENT6, CLIENT_MAC, LADDR, LADDR6, VIP6, ethernet, real_address, real_mac
from rows import row


def of_no_session(flags, data=b"", **fields):
    """A TCP packet to the service that belongs to no session."""
    fields = {"seq": 5000, "ack": 9000, **fields}
    head = TCP(sport=41000, dport=80, flags=flags, **fields)
    return IPv6(src=CLIENT6, dst=VIP6) / head / Raw(data)


def reset(s, port, to, flags, seq, ack, tags=()):
    """A reset (RFC 9293 3.10.7.1) that answers what just entered `port`."""
    ip = IPv6(src=to.dst, dst=to.src, hlim=64)
    head = TCP(sport=to.dport, dport=to.sport, flags=flags, seq=seq, ack=ack, window=0)
    mac = CLIENT_MAC if port is s.front else real_mac(1)
    s.leaves(port, ethernet(port.mac, mac, tags, 6) / ip / head)


def web(s, **keys):
    """A service of IPv6."""
    return s.service(version=6, **keys)


@row("IPv6: with no_session = \"reset\" a packet with ACK is answered with its ACK number as SEQ")
def ipv6_reset_for_ack(s):
    s.tcp_policy["no_session"] = "reset"
    web(s)
    for flags in ("A", "PA", "FA", "SA"):
        packet = of_no_session(flags)
        s.drops(s.front, s.client_frame(packet), "no_session_reset")
        reset(s, s.front, packet, "R", 9000, 0)


@row("IPv6: a packet without ACK is answered with SEQ 0 and an ACK of all its data, SYN and FIN")
def ipv6_reset_for_no_ack(s):
    s.tcp_policy["no_session"] = "reset"
    web(s)
    kinds = (("P", b"abc", 3), ("F", b"", 1), ("F", b"abcd", 5), ("", b"", 0), ("SF", b"ab", 4))
    for flags, data, length in kinds:
        packet = of_no_session(flags, data)
        s.drops(s.front, s.client_frame(packet), "no_session_reset")
        reset(s, s.front, packet, "RA", 0, 5000 + length)


@row("IPv6: a reset is never answered with a reset")
def ipv6_reset_for_reset(s):
    s.tcp_policy["no_session"] = "reset"
    web(s)
    for flags in ("R", "RA", "SR"):
        s.drops(s.front, s.client_frame(of_no_session(flags)), "no_session")


@row("IPv6: the reset goes back the way the packet came, tags and all")
def ipv6_reset_tagged(s):
    s.tcp_policy["no_session"] = "reset"
    web(s)
    packet = of_no_session("A")
    s.drops(s.front, ethernet(CLIENT_MAC, s.front.mac, (10,), 6) / packet, "no_session_reset")
    reset(s, s.front, packet, "R", 9000, 0, tags=(10,))


@row("IPv6: nobody is answered at an address that no packet can come from")
def ipv6_reset_martian(s):
    s.tcp_policy["no_session"] = "reset"
    web(s)
    for source in ("::", "::1", "ff02::1", VIP6):
        packet = of_no_session("A")
        packet.src = source
        frame = Ether(src=CLIENT_MAC, dst=s.front.mac, type=0x86DD) / packet
        s.drops(s.front, frame, "martian")


@row("IPv6: a real server's packet of no session to a local port is answered too")
def ipv6_reset_outbound(s):
    s.tcp_policy["no_session"] = "reset"
    web(s)
    packet = IPv6(src=real_address(1, 6), dst=LADDR6) / TCP(sport=80, dport=5000, flags="A", ack=9)
    s.drops(s.back, s.real_frame(packet), "no_session_reset")
    reset(s, s.back, packet, "R", 9, 0)


@row("IPv6: with accept_mid_stream any packet but a reset opens a session")
def ipv6_mid_stream(s):
    s.tcp_policy["accept_mid_stream"] = True
    web(s)
    f = s.flow()
    f.send(b"in the middle")
    f.answer(b"of something")
    s.drops(s.front, s.client_frame(of_no_session("R")), "no_session")


@row("IPv6: real servers' packets to local ports without a session")
def ipv6_no_session_outbound(s):
    web(s)
    s.service("dns", "udp", 53, version=6)
    back = {"src": real_address(1, 6), "dst": LADDR6}
    for flags in ("SA", "A", "FA", "R", "S"):
        packet = IPv6(**back) / TCP(sport=80, dport=1024, flags=flags)
        s.drops(s.back, s.real_frame(packet), "no_session")
    packet = IPv6(**back) / UDP(sport=53, dport=1024) / Raw(b"answer")
    s.drops(s.back, s.real_frame(packet), "no_session")


@row("IPv6: an answer from the wrong real server, from the wrong port, to the wrong local port")
def ipv6_wrong_answers(s):
    web(s)
    f = s.flow().handshake()
    for source, sport, dport in (
        (real_address(2, 6), 80, f.lport),
        (real_address(1, 6), 81, f.lport),
        (real_address(1, 6), 80, f.lport + 1),
        (CLIENT6, 80, f.lport),
    ):
        packet = IPv6(src=source, dst=LADDR6) / TCP(sport=sport, dport=dport, flags="A")
        s.drops(s.back, s.real_frame(packet), "no_session")
    f.answer(b"the right one")


@row("IPv6: a full session table refuses new sessions, and has room again")
def ipv6_sessions_full(s):
    s.limits["sessions"] = 2
    web(s)
    one = s.flow().handshake()
    two = s.flow(real=2, client=(CLIENT6, 40001)).handshake()
    s.flow(client=(CLIENT6, 40002)).syn(drop="sessions_full")
    one.send(b"still there")
    two.close()
    s.flow(real=3, client=(CLIENT6, 40003)).handshake()


@row("Both families share one session table's limit")
def sessions_full_both(s):
    s.limits["sessions"] = 2
    s.service("web4", reals=[1])
    s.service("web6", reals=[1], version=6, mode="dr")
    s.flow("web4").handshake()
    s.wait(0.01)
    s.flow("web6").handshake()
    s.wait(0.01)
    s.flow("web4", client=("198.51.100.48", 40001)).syn(drop="service_share")
    s.flow("web6", client=(CLIENT6, 40001)).syn(drop="service_share")


@row("IPv6: all local ports towards the real server in use; free again after a close")
def ipv6_pool_exhausted(s):
    s.pools["lan"] = {"addresses": [LADDR6], "ports": "2000-2001"}
    web(s, reals=[1])
    one = s.flow(lport=2000).handshake()
    two = s.flow(lport=2001, client=(CLIENT6, 40001)).handshake()
    for port in (40002, 40003):
        s.flow(client=(CLIENT6, port)).syn(drop="local_ports_exhausted")
    two.send(b"still there")
    one.close()
    s.flow(lport=2000, client=(CLIENT6, 40004)).handshake()


@row("IPv6: local addresses take turns, then ports count up")
def ipv6_pool_order(s):
    addresses = ["2001:db8:2::100", "2001:db8:2::101", "2001:db8:2::102"]
    s.pools["lan"] = {"addresses": addresses}
    web(s, reals=[1])
    for number in range(9):
        client = CLIENT6, 40000 + number
        f = s.flow(laddr=addresses[number % 3], lport=1024 + number // 3, client=client)
        f.handshake()


@row("IPv6: clients that differ in one bit of address or port are told apart")
def ipv6_similar_clients(s):
    web(s, reals=[1])
    flows = []
    for number in range(16):
        for client in (
            (f"2001:db8:1::{0x8000 ^ 1 << number:x}", 40000),
            (CLIENT6, 40000 ^ 1 << number),
        ):
            s.hop(client[0], CLIENT_MAC)
            flows.append(s.flow(lport=1024 + len(flows), client=client))
            flows[-1].syn()
    for flow in flows:
        flow.syn_ack()


@row("IPv6: many clients, each found again, both ways")
def ipv6_many_clients(s):
    web(s)
    flows = []
    for number in range(150):
        address = f"2001:db8:1::{1000 + number % 50:x}"
        s.hop(address, f"02:00:00:00:03:{number % 50:02x}")
        client = address, 10_000 + number * 7
        flow = s.flow(real=1 + number % 3, lport=1024 + number // 3, client=client)
        flow.syn()
        flows.append(flow)
    for flow in flows:
        flow.syn_ack()
    for flow in reversed(flows):
        flow.ack()
    for flow in flows[::3]:
        flow.answer(b"to %d" % flow.cport)
        flow.close()


@row("IPv6: the first packets of one flow in one burst open one session")
def ipv6_burst_one_flow(s):
    s.service("dns", "udp", 53, version=6)
    f = s.flow("dns")
    for number in range(64):
        f.ask(b"datagram %d" % number)


@row("IPv6: a reset, a packet of no session, a SYN, a reset, a SYN of one flow in one burst")
def ipv6_burst_up_and_down(s):
    web(s)
    f = s.flow().handshake()
    s.wait(1)
    f.from_client("R", ack=0, ends=True)
    f.ack(drop="no_session")
    second = s.flow(real=2)
    second.syn()
    second.from_client("R", ack=0, ends=True)
    s.flow(real=3).syn()


@row("Both families, packets of no session and the kernel's in one burst, as they arrive")
def burst_both_families(s):
    s.pools["lan6"] = {"addresses": [LADDR6]}
    s.service("dns4", "udp", 53)
    s.service("dns6", "udp", 53, version=6, pool="lan6")
    s.pools["lan"] = {"addresses": [LADDR]}
    four, six = s.flow("dns4"), s.flow("dns6")
    four.ask()
    six.ask()
    s.wait(1)
    for number in range(16):
        four.ask(b"four %d" % number)
        six.ask(b"six %d" % number)
        stray6 = IPv6(src=CLIENT6, dst=VIP6) / TCP(sport=9, dport=9, flags="S")
        s.kernel(s.front, s.client_frame(stray6), "not_ours")


@row("Both directions of a flow across families in one burst, one arm")
def burst_across(s):
    s.service("dns", "udp", 53, real_version=6)
    s.one_arm()
    f = s.flow("dns")
    for number in range(20):
        f.ask(b"question %d" % number)
        f.reply(b"answer %d" % number)


@row("NAT: one client port to one real server by two services cannot be told apart: refused")
def nat_conflict(s):
    s.service("red", mode="nat", reals=[1])
    s.service("blue", mode="nat", reals=[1], vip="198.51.100.201")
    s.flow("red").handshake()
    s.flow("blue").syn(drop="nat_conflict")
    s.flow("blue", client=("198.51.100.48", 40001)).handshake()


@row("NAT: the same real servers by two services, told apart by their ports")
def nat_two_services(s):
    s.service("http", mode="nat", reals=[1])
    s.service("https", port=443, mode="nat", reals=[1])
    one, two = s.flow("http").handshake(), s.flow("https").handshake()
    two.answer(b"tls")
    one.answer(b"plain")
