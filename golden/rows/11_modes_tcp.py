"""TCP in every mode and family."""

from scapy.layers.inet import TCP

from checksums import payload_for, shift
from modes import ALL, FNAT, IN_TUNNELS, NAT, NEW, ONE_WAY, TWO_WAY
from rows import rows_for


def room(mode):
    """TCP data of a segment that fills the MTU wherever it passes."""
    headers = 60 if 6 in (mode.version, mode.real_version) else 40
    tunnel = mode.overhead if mode in IN_TUNNELS else 0
    inner = (40 if mode.version == 4 else 60) if tunnel else headers
    return 1500 - tunnel - inner


@rows_for(NEW, "handshake, request, answer, four-way close")
def tcp(s, m):
    m.service(s)
    f = s.flow().handshake()
    f.send(b"GET / HTTP/1.0\r\n\r\n")
    f.real_ack()
    f.answer(b"HTTP/1.0 200 OK\r\n\r\nReal Server 01\n")
    f.ack()
    f.close()


@rows_for(NEW, "clients and real servers on one port")
def tcp_one_arm(s, m):
    m.service(s)
    s.one_arm()
    f = s.flow().handshake()
    f.send(b"GET / HTTP/1.0\r\n\r\n")
    f.answer(b"HTTP/1.0 200 OK\r\n\r\n")
    f.ack()


@rows_for(TWO_WAY, "the last acknowledgement is lost: the FIN comes once more, and is answered")
def tcp_last_ack_lost(s, m):
    m.service(s)
    f = s.flow().handshake()
    f.close()
    for _ in range(2):
        s.wait(0.4)
        f.from_real("FA", seq=f.real_seq - 1)
        f.ack(late=True)
    f.from_client("R", ack=0, late=True)
    f.from_real("FA", seq=f.real_seq - 1)
    s.wait(2)
    f.ack(drop="no_session")


@rows_for((*FNAT, *NAT), "a real server that listens on another port than the service")
def tcp_real_port(s, m):
    m.service(s, real_port=8080)
    f = s.flow().handshake()
    f.send(b"GET / HTTP/1.0\r\n\r\n")
    f.answer(b"HTTP/1.0 204 No Content\r\n\r\n")


@rows_for(NEW, "payloads of odd and even length keep right checksums")
def tcp_odd_lengths(s, m):
    m.service(s)
    f = s.flow().handshake()
    for length in (1, 2, 3, 5, 8, 13, 255):
        f.send(bytes(range(length)))
        f.answer(bytes(range(255, 255 - length, -1)))


@rows_for(NEW, "segments that just fill the MTU")
def tcp_full_size(s, m):
    m.service(s)
    f = s.flow().handshake()
    # What may be cut becomes no IPv6 of that size (RFC 7915 4.1).
    f.fields = {"flags": "DF"} if m.crosses else {}
    f.send(bytes(index * 7 % 251 for index in range(room(m))))
    f.answer(bytes(index * 11 % 241 for index in range(room(m))))


@rows_for(TWO_WAY, "a wrong TCP checksum stays wrong by as much")
def tcp_wrong_checksum(s, m):
    m.service(s)
    f = s.flow().handshake()
    f.send(b"damaged on the way", edit=lambda packet: shift(packet, TCP, 0x1234))
    f.answer(b"damaged too", edit=lambda packet: shift(packet, TCP, 0xFF00))


@rows_for(ONE_WAY, "a wrong TCP checksum is none of the director's business")
def tcp_any_checksum(s, m):
    m.service(s)
    f = s.flow().handshake()
    f.send(b"damaged on the way", edit=lambda packet: shift(packet, TCP, 0x1234))


@rows_for(TWO_WAY, "a TCP checksum that comes out as zero is zero, not 0xffff")
def tcp_checksum_zero(s, m):
    m.service(s)
    f = s.flow().handshake()
    f.send(payload_for(f, "inbound", "PA", 0))
    f.answer(payload_for(f, "outbound", "PA", 0))


@rows_for(NEW, "options and odd flags pass unchanged")
def tcp_options(s, m):
    m.service(s)
    f = s.flow()
    f.syn(options=[("MSS", 1300), ("SAckOK", b""), ("Timestamp", (1000, 0)), ("WScale", 9)])
    f.syn_ack(options=[("MSS", 1200)])
    stamp = [("NOP", None), ("NOP", None), ("Timestamp", (1001, 5000))]
    f.ack(options=stamp)
    f.from_client("PAU", b"abc", options=stamp, edit=lambda packet: packet[TCP].__setattr__(
        "urgptr", 3))
    f.from_client("PAEC", b"abc")
    f.real_ack(options=[("NOP", None), ("NOP", None), ("SAck", (1_000_100, 1_000_200))])
    f.from_real("PAEN", b"abc")


@rows_for(NEW, "a reset by the client ends the session")
def tcp_reset_by_client(s, m):
    m.service(s)
    f = s.flow().handshake()
    f.from_client("R", ack=0, ends=True)
    f.send(b"too late", drop="no_session")


@rows_for(TWO_WAY, "a reset by the real server ends the session")
def tcp_reset_by_real(s, m):
    m.service(s)
    f = s.flow().handshake()
    f.from_real("R", ack=0, ends=True)
    f.send(b"too late", drop="no_session")


@rows_for(NEW, "a retransmitted SYN belongs to the session that the first one opened")
def tcp_syn_again(s, m):
    m.service(s)
    f = s.flow()
    f.syn()
    s.wait(1)
    f.syn()
    f.syn_ack()
    f.ack()


@rows_for(NEW, "three clients to three real servers, interleaved")
def tcp_three(s, m):
    m.service(s)
    flows = [s.flow(real=n, client=(m.client, 40000 + n)) for n in (1, 2, 3)]
    for flow in flows:
        flow.syn()
    for flow in reversed(flows):
        flow.syn_ack()
    for flow in flows:
        flow.ack()
    for flow in reversed(flows):
        flow.send(b"to real server %d" % flow.real)
        flow.answer(b"from real server %d" % flow.real)


@rows_for(NEW, "TCP without a session that is no SYN opens none")
def tcp_no_session(s, m):
    m.service(s)
    for flags in ("A", "PA", "FA", "SA", "R", "", "SF"):
        s.flow().from_client(flags, drop="no_session")
    s.flow().syn()


@rows_for(TWO_WAY, "after the client's FIN the real server may go on sending")
def tcp_half_closed(s, m):
    m.service(s)
    f = s.flow().handshake()
    f.fin()
    f.real_ack()
    f.answer(b"more to come")
    f.ack()
    f.real_fin()
    f.ack(ends=True)


@rows_for(NEW, "an established session lives 900 seconds from its last packet")
def tcp_expiry(s, m):
    m.service(s)
    f = s.flow().handshake()
    s.wait(898)
    f.send(b"still there")
    s.wait(898)
    f.answer(b"still here")
    f.send(b"and here")
    s.wait(902)
    f.expire()
    f.send(b"too late", drop="no_session")


@rows_for(ALL, "a SYN on a session in TIME_WAIT opens a new one at once")
def tcp_reopened_time_wait(s, m):
    if m.one_way:
        s.timeouts["tcp_fin_wait_s"] = 120
    s.timeouts["tcp_time_wait_s"] = 30
    m.service(s)
    f = s.flow().handshake()
    f.fin()
    f.real_fin()
    f.ack()
    # Where only the client's side is seen, the real server may still be sending.
    s.wait(2 if m.one_way else 0)
    again = s.flow(real=2)
    again.client_seq = f.client_seq + 100_000
    again.syn(replaces=f)
    again.syn_ack()
    again.ack()
    again.send(b"to real server 2")
    again.answer(b"from real server 2")


@rows_for(ALL, "a SYN in FIN_WAIT opens a new session after a second of silence, not before")
def tcp_reopened_fin_wait(s, m):
    m.service(s)
    f = s.flow().handshake()
    f.fin()
    f.real_ack()
    s.wait(0.5)
    f.from_client("S", seq=f.client_seq + 100_000_000, ack=0)
    f.real_ack()
    f.answer(b"what the client waits for")
    f.ack()
    s.wait(2)
    again = s.flow(real=2)
    again.client_seq = f.client_seq + 100_000
    again.syn(replaces=f)
    again.syn_ack()
    again.ack()
    again.answer(b"from real server 2")


@rows_for(ONE_WAY, "the client's next number after its FIN opens a new session at once")
def tcp_reopened_next(s, m):
    m.service(s)
    f = s.flow().handshake()
    f.send(b"to real server 1")
    f.ack()
    f.fin()
    s.wait(0.05)
    again = s.flow(real=2)
    again.client_seq = f.client_seq + 1_500_000
    again.syn(replaces=f)
    again.syn_ack()
    again.ack()
    again.send(b"to real server 2")
