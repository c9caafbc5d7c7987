"""TCP through Full NAT."""

from scapy.layers.inet import TCP

from checksums import payload_for, shift
from rows import row


@row("A SYN opens a session with the first real server; the handshake passes both ways")
def tcp_open(s):
    s.service()
    s.flow().handshake()


@row("Handshake, request, answer, four-way close, two arms")
def tcp_two_arms(s):
    s.service()
    f = s.flow().handshake()
    f.send(b"GET / HTTP/1.0\r\n\r\n")
    f.real_ack()
    f.answer(b"HTTP/1.0 200 OK\r\n\r\nReal Server 01\n")
    f.ack()
    f.close()


@row("The same with one arm: clients and real servers on one port")
def tcp_one_arm(s):
    s.one_arm()
    s.service()
    f = s.flow().handshake()
    f.send(b"GET / HTTP/1.0\r\n\r\n")
    f.answer(b"HTTP/1.0 200 OK\r\n\r\nReal Server 01\n")
    f.ack()
    f.close()


@row("A real server that listens on another port than the service")
def tcp_real_port(s):
    s.service(real_port=8080)
    f = s.flow().handshake()
    f.send(b"GET / HTTP/1.0\r\n\r\n")
    f.answer(b"HTTP/1.0 204 No Content\r\n\r\n")


@row("Payloads of odd and even length keep right checksums")
def tcp_odd_lengths(s):
    s.service()
    f = s.flow().handshake()
    for length in (1, 2, 3, 5, 8, 13, 21, 255):
        f.send(bytes(range(length)))
        f.answer(bytes(range(255, 255 - length, -1)))


@row("Full-sized segments, 1,460 bytes of data in each")
def tcp_full_size(s):
    s.service()
    f = s.flow().handshake()
    f.send(bytes(index * 7 % 251 for index in range(1460)))
    f.answer(bytes(index * 11 % 241 for index in range(1460)))


@row("TCP options (time stamps, SACK blocks) pass unchanged")
def tcp_options(s):
    s.service()
    f = s.flow()
    f.syn(options=[("MSS", 1400), ("SAckOK", b""), ("Timestamp", (1000, 0)), ("WScale", 9)])
    f.syn_ack()
    stamp = [("NOP", None), ("NOP", None), ("Timestamp", (1001, 5000))]
    f.ack(options=stamp)
    f.send(b"a", options=stamp)
    sack = [("NOP", None), ("NOP", None), ("SAck", (1_000_100, 1_000_200))]
    f.real_ack(options=sack)


@row("A TCP header of the greatest length, 60 bytes")
def tcp_longest_header(s):
    s.service()
    f = s.flow().handshake()
    f.send(b"data", options=[("NOP", None)] * 40)
    f.answer(b"data", options=[("NOP", None)] * 40)


@row("A TCP checksum that comes out as zero is zero, not 0xffff")
def tcp_checksum_zero(s):
    s.service()
    f = s.flow().handshake()
    f.send(payload_for(f, "inbound", "PA", 0))
    f.answer(payload_for(f, "outbound", "PA", 0))


@row("A TCP checksum of zero that arrives is a checksum like any other")
def tcp_checksum_was_zero(s):
    s.service()
    f = s.flow().handshake()
    f.send(payload_for(f, "inbound", "PA", 0, left=False))
    f.answer(payload_for(f, "outbound", "PA", 0, left=False))


@row("A wrong TCP checksum stays wrong by as much: the receiver sees the damage")
def tcp_wrong_checksum(s):
    s.service()
    f = s.flow().handshake()
    f.send(b"damaged on the way", edit=lambda packet: shift(packet, TCP, 0x1234))
    f.answer(b"damaged too", edit=lambda packet: shift(packet, TCP, 0xFF00))


@row("Urgent pointer, ECE, CWR and NS pass unchanged")
def tcp_odd_flags(s):
    s.service()
    f = s.flow()
    f.syn()
    f.syn_ack()
    f.ack()

    def urgent(packet):
        packet[TCP].urgptr = 3

    f.from_client("PAU", b"abc", edit=urgent)
    f.from_client("PAEC", b"abc")
    f.from_real("PAEN", b"abc")


@row("Data in the SYN (TCP Fast Open) goes with it")
def tcp_data_in_syn(s):
    s.service()
    f = s.flow()
    f.from_client("S", b"early data", ack=0)
    f.from_real("SA", ack=f.client_seq + 1)


@row("A retransmitted SYN belongs to the session that the first one opened")
def tcp_syn_again(s):
    s.service()
    f = s.flow()
    f.syn()
    s.wait(1)
    f.syn()
    s.wait(2)
    f.syn()
    f.syn_ack()
    f.ack()


@row("A retransmitted SYN+ACK and a late second handshake ACK pass")
def tcp_syn_ack_again(s):
    s.service()
    f = s.flow()
    f.syn()
    f.syn_ack()
    f.from_real("SA", seq=f.real_seq - 1)
    f.ack()
    f.ack()


@row("The client closes first; the session is gone with the last acknowledgement")
def tcp_close_client_first(s):
    s.service()
    f = s.flow().handshake()
    f.fin()
    f.real_ack()
    f.real_fin()
    f.ack(ends=True)
    f.ack(late=True)
    s.wait(2)
    f.ack(drop="no_session")


@row("The real server closes first")
def tcp_close_real_first(s):
    s.service()
    f = s.flow().handshake()
    f.real_fin()
    f.ack()
    f.fin()
    f.real_ack(ends=True)
    f.ack(late=True)
    s.wait(2)
    f.ack(drop="no_session")


@row("Both close at once, their FINs cross")
def tcp_close_simultaneous(s):
    s.service()
    f = s.flow().handshake()
    before = f.client_seq
    f.fin()
    f.from_real("FA", ack=before)
    f.real_seq += 1
    f.ack()
    f.real_ack(ends=True)


@row("Three-packet close: the second FIN acknowledges the first")
def tcp_close_three(s):
    s.service()
    f = s.flow().handshake()
    f.fin()
    f.real_fin()
    f.ack(ends=True)


@row("After the client's FIN the real server may go on sending, and be acknowledged")
def tcp_half_closed(s):
    s.service()
    f = s.flow().handshake()
    f.fin()
    f.real_ack()
    for _ in range(3):
        f.answer(b"more to come")
        f.ack()
    f.real_fin()
    f.ack(ends=True)


@row("A FIN with data, and the acknowledgement that covers both")
def tcp_fin_with_data(s):
    s.service()
    f = s.flow().handshake()
    f.from_client("FPA", b"last words")
    f.client_seq += 1
    f.from_real("FPA", b"goodbye")
    f.real_seq += 1
    f.ack(ends=True)


@row("A retransmitted FIN does not end the session before its time")
def tcp_fin_again(s):
    s.service()
    f = s.flow().handshake()
    f.fin()
    f.from_client("FA", seq=f.client_seq - 1)
    f.real_ack()
    f.real_fin()
    f.from_real("FA", seq=f.real_seq - 1)
    f.ack(ends=True)


@row("An old acknowledgement after both FINs does not end the session; the right one does")
def tcp_old_ack(s):
    s.service()
    f = s.flow().handshake()
    f.fin()
    f.real_fin()
    f.ack(ack=f.real_seq - 1)
    f.ack(ends=True)


@row("A reset by the client ends the session")
def tcp_reset_by_client(s):
    s.service()
    f = s.flow().handshake()
    f.from_client("R", ack=0, ends=True)
    f.answer(b"too late", drop="no_session")


@row("A reset by the real server ends the session")
def tcp_reset_by_real(s):
    s.service()
    f = s.flow().handshake()
    f.from_real("R", ack=0, ends=True)
    f.send(b"too late", drop="no_session")


@row("A real server refuses the connection: RST+ACK to the SYN ends the session")
def tcp_refused(s):
    s.service()
    f = s.flow()
    f.syn()
    f.from_real("RA", seq=0, ack=f.client_seq + 1, ends=True)
    f.real_ack(drop="no_session")


@row("The client's port again after the close: a new session, with the next real server")
def tcp_again_after_close(s):
    s.service()
    f = s.flow().handshake()
    f.close()
    s.flow(real=2).handshake().close()


@row("Two sessions of one client, interleaved")
def tcp_two_at_once(s):
    s.service()
    one = s.flow()
    two = s.flow(real=2, client=(one.client, 40001))
    one.syn()
    two.syn()
    two.syn_ack()
    one.syn_ack()
    one.ack()
    two.ack()
    two.send(b"two")
    one.send(b"one")
    one.answer(b"one")
    two.answer(b"two")
    one.close()
    two.close()


@row("An ended session is evicted for its client's next connection, and for others with its port")
def tcp_ended_gives_way(s):
    s.pools["lan"]["ports"] = "1024-1025"
    s.service(reals=[1])
    f = s.flow().handshake()
    f.close()
    again = s.flow(lport=1025)
    again.client_seq = f.client_seq + 100_000
    again.handshake()
    f.real_ack(drop="no_session")
    other = s.flow(client=(f.client, f.cport + 1)).handshake()
    other.close()
    for number in range(2, 10):
        other = s.flow(client=(f.client, f.cport + number)).handshake()
        other.close()
    again.send(b"this one goes on")


@row("With tcp_time_wait_s the session outlives the close for retransmissions")
def tcp_time_wait(s):
    s.timeouts["tcp_time_wait_s"] = 30
    s.service()
    f = s.flow().handshake()
    f.fin()
    f.real_fin()
    f.ack()
    f.from_real("FA", seq=f.real_seq - 1)
    f.ack()


@row("With tcp_close_s the session outlives a reset, for what still is under way")
def tcp_close_lingers(s):
    s.timeouts["tcp_close_s"] = 10
    s.service()
    f = s.flow().handshake()
    f.from_client("R", ack=0)
    f.answer(b"was under way")


@row("A SYN during TIME_WAIT opens a new session at once: next real server, next local port")
def tcp_reopened(s):
    s.timeouts["tcp_time_wait_s"] = 30
    s.service(reals=[1])
    f = s.flow().handshake()
    f.fin()
    f.real_fin()
    f.ack()
    again = s.flow(lport=1025)
    again.client_seq = f.client_seq + 100_000
    again.syn(replaces=f)
    f.real_ack(drop="no_session")
    again.syn_ack()
    again.ack()
    s.wait(100)
    again.send(b"established, not TIME_WAIT")


@row("A SYN after a reset opens a new session at once, where tcp_close_s keeps the old one")
def tcp_reopened_after_reset(s):
    s.timeouts["tcp_close_s"] = 30
    s.service()
    f = s.flow().handshake()
    f.from_real("R", ack=0)
    again = s.flow(real=2)
    again.syn(replaces=f)
    again.syn_ack()
    again.ack()


@row("A SYN on a session in LAST_ACK opens a new session at once")
def tcp_reopened_last_ack(s):
    s.service()
    f = s.flow().handshake()
    f.real_fin()
    f.ack()
    f.fin()
    again = s.flow(real=2)
    again.client_seq = f.client_seq + 100_000
    again.syn(replaces=f)
    again.syn_ack()
    again.ack()


@row("Ten connections of one client port in a row, each opened on the one in TIME_WAIT before")
def tcp_reopened_often(s):
    s.timeouts["tcp_time_wait_s"] = 60
    s.service(reals=[1, 2])
    f = None
    for number in range(10):
        last, f = f, s.flow(real=1 + number % 2, lport=1024 + number // 2)
        f.client_seq = 1_000_000 + number * 100_000
        f.syn(**({"replaces": last} if last else {}))
        f.syn_ack()
        f.ack()
        f.answer(b"connection %d" % number)
        f.real_fin()
        f.fin()
        f.real_ack()


@row("A SYN in the middle of a live session changes nothing: the real server decides")
def tcp_syn_in_session(s):
    s.service()
    f = s.flow().handshake()
    f.from_client("S", seq=77, ack=0)
    f.real_ack()
    s.wait(800)
    f.send(b"still established")
