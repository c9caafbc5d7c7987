"""Packets without a session, and what is done when something is used up."""

from scapy.layers.inet import IP, TCP, UDP
from scapy.packet import Raw

from frames import CLIENT, CLIENT_MAC, LADDR, VIP, ethernet, real_address, real_mac
from rows import row

STRANGE = ("A", "PA", "FA", "SA", "R", "RA", "", "F", "FPU", "SF", "SR", "SFRPAUEC")


def of_no_session(flags, data=b"", **fields):
    """A TCP packet to the service that belongs to no session."""
    fields = {"seq": 5000, "ack": 9000, **fields}
    head = TCP(sport=41000, dport=80, flags=flags, **fields)
    return IP(src=CLIENT, dst=VIP, id=77) / head / Raw(data)


def reset(s, port, to, flags, seq, ack, tags=()):
    """A reset (RFC 9293 3.10.7.1) that answers what just entered `port`."""
    ip = IP(src=to.dst, dst=to.src, ttl=64, id=0, flags="DF")
    head = TCP(sport=to.dport, dport=to.sport, flags=flags, seq=seq, ack=ack, window=0)
    mac = CLIENT_MAC if port is s.front else real_mac(1)
    s.leaves(port, ethernet(port.mac, mac, tags) / ip / head)


@row("TCP without a session that is no SYN: all kinds of flags")
def no_session(s):
    s.service()
    for flags in STRANGE:
        s.drops(s.front, s.client_frame(of_no_session(flags)), "no_session")


@row("With no_session = \"reset\", a packet with ACK is answered with its ACK number as SEQ")
def reset_for_ack(s):
    s.tcp_policy["no_session"] = "reset"
    s.service()
    for flags in ("A", "PA", "FA", "SA"):
        packet = of_no_session(flags)
        s.drops(s.front, s.client_frame(packet), "no_session_reset")
        reset(s, s.front, packet, "R", 9000, 0)


@row("A packet without ACK is answered with SEQ 0 and an ACK of all its data, SYN and FIN")
def reset_for_no_ack(s):
    s.tcp_policy["no_session"] = "reset"
    s.service()
    kinds = (("P", b"abc", 3), ("F", b"", 1), ("F", b"abcd", 5), ("", b"", 0), ("SF", b"ab", 4))
    for flags, data, length in kinds:
        packet = of_no_session(flags, data)
        s.drops(s.front, s.client_frame(packet), "no_session_reset")
        reset(s, s.front, packet, "RA", 0, 5000 + length)


@row("The answer's numbers wrap like all of TCP's")
def reset_wraps(s):
    s.tcp_policy["no_session"] = "reset"
    s.service()
    packet = of_no_session("F", b"abc", seq=0xFFFF_FFFE)
    s.drops(s.front, s.client_frame(packet), "no_session_reset")
    reset(s, s.front, packet, "RA", 0, 2)
    packet = of_no_session("A", ack=0xFFFF_FFFF)
    s.drops(s.front, s.client_frame(packet), "no_session_reset")
    reset(s, s.front, packet, "R", 0xFFFF_FFFF, 0)


@row("A reset is never answered with a reset")
def reset_for_reset(s):
    s.tcp_policy["no_session"] = "reset"
    s.service()
    for flags in ("R", "RA", "SR"):
        s.drops(s.front, s.client_frame(of_no_session(flags)), "no_session")


@row("Ethernet padding is no data: the ACK number does not count it")
def reset_padding(s):
    s.tcp_policy["no_session"] = "reset"
    s.service()
    packet = of_no_session("F")
    s.drops(s.front, bytes(s.client_frame(packet)).ljust(60, b"\0"), "no_session_reset")
    reset(s, s.front, packet, "RA", 0, 5001)


@row("The answer goes back the way the packet came, tags and all")
def reset_tagged(s):
    s.tcp_policy["no_session"] = "reset"
    s.service()
    packet = of_no_session("A")
    s.drops(s.front, ethernet(CLIENT_MAC, s.front.mac, (10,)) / packet, "no_session_reset")
    reset(s, s.front, packet, "R", 9000, 0, tags=(10,))


@row("Nobody is answered at an address that no packet can come from (RFC 1122 3.2.1.3)")
def reset_martian(s):
    s.tcp_policy["no_session"] = "reset"
    s.service()
    for source in ("0.0.0.0", "127.0.0.1", "224.0.0.5", "255.255.255.255", VIP):
        packet = of_no_session("A")
        packet.src = source
        s.drops(s.front, s.client_frame(packet), "martian")
    packet = IP(src="127.0.0.1", dst=LADDR) / TCP(sport=80, dport=5000, flags="A")
    s.drops(s.back, s.real_frame(packet), "martian")


@row("A real server's packet of no session to a local port is answered too")
def reset_outbound(s):
    s.tcp_policy["no_session"] = "reset"
    s.service()
    packet = IP(src=real_address(1), dst=LADDR) / TCP(sport=80, dport=5000, flags="A", ack=123)
    s.drops(s.back, s.real_frame(packet), "no_session_reset")
    reset(s, s.back, packet, "R", 123, 0)


@row("With accept_mid_stream any packet but a reset opens a session")
def mid_stream(s):
    s.tcp_policy["accept_mid_stream"] = True
    s.service()
    f = s.flow()
    f.send(b"in the middle")
    f.answer(b"of something")
    s.drops(s.front, s.client_frame(of_no_session("R")), "no_session")


@row("Real servers' packets to local ports without a session: TCP and UDP")
def no_session_outbound(s):
    s.service()
    s.service("dns", "udp", 53)
    back = {"src": real_address(1), "dst": LADDR}
    for flags in ("SA", "A", "FA", "R"):
        packet = IP(**back) / TCP(sport=80, dport=1024, flags=flags)
        s.drops(s.back, s.real_frame(packet), "no_session")
    packet = IP(**back) / UDP(sport=53, dport=1024) / Raw(b"answer")
    s.drops(s.back, s.real_frame(packet), "no_session")


@row("A SYN to a local port opens nothing")
def syn_to_local_port(s):
    s.service()
    packet = IP(src=real_address(1), dst=LADDR) / TCP(sport=80, dport=1024, flags="S")
    s.drops(s.back, s.real_frame(packet), "no_session")


@row("An answer from the wrong real server, from the wrong port, to the wrong local port")
def wrong_answers(s):
    s.service()
    f = s.flow().handshake()
    for source, sport, dport in (
        (real_address(2), 80, f.lport),
        (real_address(1), 81, f.lport),
        (real_address(1), 80, f.lport + 1),
        (CLIENT, 80, f.lport),
    ):
        packet = IP(src=source, dst=LADDR) / TCP(sport=sport, dport=dport, flags="A")
        s.drops(s.back, s.real_frame(packet), "no_session")
    f.answer(b"the right one")


@row("The same client port from another address is another session")
def other_client(s):
    s.service()
    f = s.flow().handshake()
    packet = IP(src="198.51.100.49", dst=VIP) / TCP(sport=f.cport, dport=80, flags="A")
    s.drops(s.front, s.client_frame(packet), "no_session")
    f.send(b"the right one")


@row("A full session table refuses new sessions, keeps the live ones, and has room again")
def sessions_full(s):
    s.limits["sessions"] = 2
    s.service()
    one = s.flow().handshake()
    two = s.flow(real=2, client=(CLIENT, 40001)).handshake()
    s.flow(client=(CLIENT, 40002)).syn(drop="sessions_full")
    one.send(b"still there")
    two.close()
    # The refused one did not take real server 3's turn.
    s.flow(real=3, client=(CLIENT, 40003)).handshake()


@row("A full session table refuses UDP too")
def sessions_full_udp(s):
    s.limits["sessions"] = 1
    s.service("dns", "udp", 53)
    one = s.flow("dns")
    one.ask()
    one.reply()
    s.flow("dns", real=2, client=(CLIENT, 40001)).ask(drop="sessions_full")
    one.ask()
    one.reply()


@row("All local ports towards the real server in use: refused; free again after a close")
def pool_exhausted(s):
    s.pools["lan"]["ports"] = "2000-2001"
    s.service(reals=[1])
    one = s.flow(lport=2000).handshake()
    two = s.flow(lport=2001, client=(CLIENT, 40001)).handshake()
    for port in (40002, 40003):
        s.flow(client=(CLIENT, port)).syn(drop="local_ports_exhausted")
    two.send(b"still there")
    one.close()
    s.flow(lport=2000, client=(CLIENT, 40004)).handshake()


@row("Ports that are freed out of turn: the walk goes past those in use")
def pool_holes(s):
    s.pools["lan"]["ports"] = "2000-2003"
    s.service(reals=[1])
    flows = [s.flow(lport=2000 + n, client=(CLIENT, 40000 + n)).handshake() for n in range(4)]
    flows[2].close()
    flows[1].close()
    s.flow(lport=2001, client=(CLIENT, 41000)).handshake()
    s.flow(lport=2002, client=(CLIENT, 41001)).handshake()
    s.flow(client=(CLIENT, 41002)).syn(drop="local_ports_exhausted")
    flows[3].close()
    flows[0].close()
    s.flow(lport=2003, client=(CLIENT, 41003)).handshake()
    s.flow(lport=2000, client=(CLIENT, 41004)).handshake()


@row("One local port serves one session towards each real server: no 5-tuple is used twice")
def pool_per_real(s):
    s.pools["lan"]["ports"] = "2000-2000"
    s.service(reals=[1, 2, 3])
    flows = [s.flow(real=n, lport=2000, client=(CLIENT, 40000 + n)) for n in (1, 2, 3)]
    for flow in flows:
        flow.handshake()
    s.flow(client=(CLIENT, 41000)).syn(drop="local_ports_exhausted")
    for flow in flows:
        flow.answer(b"from %d" % flow.real)


@row("Every real server drained: no session is opened")
def no_real(s):
    s.service(weights={1: 0, 2: 0, 3: 0})
    s.flow().syn(drop="no_real", answer=("reset",))
