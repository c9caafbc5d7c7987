"""UDP through Full NAT."""

from scapy.layers.inet import UDP

from checksums import payload_for, shift
from frames import CLIENT
from rows import row


def dns(s, **keys):
    """A UDP service on port 53."""
    return s.service("dns", "udp", 53, **keys)


@row("A datagram opens a session with the first real server; its answer returns")
def udp_two_arms(s):
    dns(s)
    f = s.flow("dns")
    f.ask()
    f.reply()


@row("The same with one arm")
def udp_one_arm(s):
    s.one_arm()
    dns(s)
    f = s.flow("dns")
    f.ask()
    f.reply()


@row("Later datagrams of the flow stay with its real server")
def udp_session(s):
    dns(s)
    f = s.flow("dns")
    for number in range(5):
        f.ask(b"question %d" % number)
        f.reply(b"answer %d" % number)


@row("A real server that listens on another port")
def udp_real_port(s):
    dns(s, real_port=5353)
    f = s.flow("dns")
    f.ask()
    f.reply()


@row("A zero checksum (RFC 768: none) stays zero, both ways")
def udp_zero_checksum(s):
    dns(s)
    f = s.flow("dns")
    f.ask(chksum=0)
    f.reply(chksum=0)
    f.ask(b"odd", chksum=0)


@row("A checksum that comes out as zero is sent as 0xffff (RFC 768)")
def udp_checksum_becomes_zero(s):
    dns(s)
    f = s.flow("dns")
    f.ask(payload_for(f, "inbound", "", 0))
    f.reply(payload_for(f, "outbound", "", 0))


@row("A checksum that arrives as 0xffff is a checksum like any other")
def udp_checksum_was_ffff(s):
    dns(s)
    f = s.flow("dns")
    f.ask(payload_for(f, "inbound", "", 0, left=False))
    f.reply(payload_for(f, "outbound", "", 0, left=False))


@row("A wrong checksum stays wrong by as much")
def udp_wrong_checksum(s):
    dns(s)
    f = s.flow("dns")
    f.ask(b"damaged", edit=lambda packet: shift(packet, UDP, 0x4321))
    f.reply(b"damaged", edit=lambda packet: shift(packet, UDP, 0x0001))


@row("Payloads of odd and even length keep right checksums")
def udp_odd_lengths(s):
    dns(s)
    f = s.flow("dns")
    for length in (1, 2, 3, 17, 64, 101, 512):
        f.ask(bytes(range(length % 256)) * 2)
        f.reply(b"\xff" * length)


@row("An empty datagram")
def udp_empty(s):
    dns(s)
    f = s.flow("dns")
    f.ask(b"")
    f.reply(b"")


@row("A datagram that fills the MTU: 1,472 bytes")
def udp_full_size(s):
    dns(s)
    f = s.flow("dns")
    f.ask(b"q" * 1472)
    f.reply(b"a" * 1472)


@row("Source port 0 (RFC 768: unused) opens a session too")
def udp_source_port_0(s):
    dns(s)
    f = s.flow("dns", client=(CLIENT, 0))
    f.ask()
    f.reply()


@row("Two ports of one client are two sessions")
def udp_two_ports(s):
    dns(s)
    one = s.flow("dns")
    two = s.flow("dns", real=2, client=(CLIENT, 40001))
    one.ask(b"one")
    two.ask(b"two")
    two.reply(b"two")
    one.reply(b"one")


@row("The answers may come before the next question, and alone")
def udp_many_answers(s):
    dns(s)
    f = s.flow("dns")
    f.ask()
    for number in range(6):
        f.reply(b"part %d" % number)


@row("A UDP length smaller than the IP payload is legal; what follows the datagram stays with it")
def udp_shorter_than_ip(s):
    dns(s)
    f = s.flow("dns")

    def shorter(packet):
        packet[UDP].len = 8 + 4
        packet[UDP].chksum = 0

    f.ask(b"fourmore", edit=shorter)
