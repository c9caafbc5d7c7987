"""UDP in every mode and family."""

from scapy.layers.inet import UDP

from checksums import payload_for, shift
from modes import DR4, FNAT46, FNAT64, IPIP4, IPIP46, NAT4, NEW, TWO_WAY
from rows import rows_for


def dns(s, m, **keys):
    """A UDP service on port 53 and a flow to it."""
    m.service(s, "dns", "udp", 53, **keys)
    return s.flow("dns")


@rows_for(NEW, "questions and answers; the flow stays with its real server")
def udp(s, m):
    f = dns(s, m)
    for number in range(3):
        f.ask(b"question %d" % number)
        f.reply(b"answer %d" % number)


@rows_for(TWO_WAY, "a real server that listens on another port")
def udp_real_port(s, m):
    f = dns(s, m, real_port=5353)
    f.ask()
    f.reply()


@rows_for(NEW, "datagrams of odd and even length, and an empty one")
def udp_lengths(s, m):
    f = dns(s, m)
    for length in (0, 1, 2, 3, 17, 101, 512):
        f.ask(bytes(range(length % 256)) * 2)
        f.reply(b"\xff" * length)


@rows_for(TWO_WAY, "a checksum that comes out as zero is sent as 0xffff")
def udp_checksum_becomes_zero(s, m):
    f = dns(s, m)
    f.ask(payload_for(f, "inbound", "", 0))
    f.reply(payload_for(f, "outbound", "", 0))


@rows_for(TWO_WAY, "a checksum that arrives as 0xffff is a checksum like any other")
def udp_checksum_was_ffff(s, m):
    f = dns(s, m)
    f.ask(payload_for(f, "inbound", "", 0, left=False))
    f.reply(payload_for(f, "outbound", "", 0, left=False))


@rows_for(TWO_WAY, "a wrong checksum stays wrong by as much")
def udp_wrong_checksum(s, m):
    f = dns(s, m)
    f.ask(b"damaged", edit=lambda packet: shift(packet, UDP, 0x4321))
    f.reply(b"damaged", edit=lambda packet: shift(packet, UDP, 0x0001))


@rows_for((NAT4, DR4, IPIP4, IPIP46), "no checksum (zero) stays none")
def udp_zero_checksum(s, m):
    f = dns(s, m)
    f.ask(chksum=0)
    f.reply(chksum=0)


@rows_for((FNAT46,), "a datagram without checksum gets one, which IPv6 demands (RFC 8200 8.1)")
def udp_checksum_added(s, m):
    f = dns(s, m)
    f.ask(chksum=0)
    f.ask(b"odd", chksum=0)
    f.reply()


@rows_for((FNAT64,), "a datagram without checksum is dropped, and not made a valid one of IPv4")
def udp_checksum_missing(s, m):
    f = dns(s, m)
    f.ask(chksum=0, drop="no_udp_checksum", opens=True)
    f.ask()
    f.ask(chksum=0, drop="no_udp_checksum")
    f.reply()


@rows_for((FNAT46,), "an answer without checksum is dropped, and not made a valid one of IPv4")
def udp_answer_checksum_missing(s, m):
    f = dns(s, m)
    f.ask()
    f.reply(chksum=0, drop="no_udp_checksum")
    f.reply()


@rows_for(NEW, "two ports of one client are two sessions")
def udp_two_ports(s, m):
    one = dns(s, m)
    two = s.flow("dns", real=2, client=(m.client, 40001))
    one.ask(b"one")
    two.ask(b"two")
    two.reply(b"two")
    one.reply(b"one")
    one.ask(b"one again")


@rows_for(NEW, "300 seconds without a packet end the session")
def udp_expiry(s, m):
    f = dns(s, m)
    f.ask()
    s.wait(298)
    f.ask()
    s.wait(302)
    f.expire()
    s.flow("dns", real=2).ask()
