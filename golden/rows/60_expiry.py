"""Sessions end when nothing was seen for long enough; the clock is the captures'."""

from frames import CLIENT
from rows import row


def opened(s, to, **timeouts):
    """A session in the state `to`."""
    s.timeouts.update(timeouts)
    s.service()
    f = s.flow()
    f.syn()
    if to == "syn_recv":
        return f
    f.syn_ack()
    f.ack()
    if to in ("fin_wait", "last_ack", "time_wait"):
        f.fin()
    if to in ("close_wait", "last_ack", "time_wait"):
        f.real_fin(**({} if to != "last_ack" else {"ack": f.client_seq}))
    if to == "time_wait":
        f.ack()
    if to == "close":
        f.from_client("R", ack=0)
    return f


def lives_and_dies(s, f, seconds):
    """Within the timeout a packet finds the session (and starts it anew); after it, none does."""
    for _ in range(2):
        s.wait(seconds - 2)
        f.from_client("A", ack=f.real_seq - 1)
    s.wait(seconds + 2)
    f.expire()
    f.from_client("A", ack=f.real_seq - 1, drop="no_session")


@row("SYN_RECV: 60 seconds")
def expiry_syn_recv(s):
    f = opened(s, "syn_recv")
    for _ in range(2):
        s.wait(58)
        f.syn()
    s.wait(62)
    f.expire()
    f.syn_ack(drop="no_session")


@row("ESTABLISHED: 900 seconds")
def expiry_established(s):
    lives_and_dies(s, opened(s, "established"), 900)


@row("FIN_WAIT, the client has closed: 120 seconds")
def expiry_fin_wait(s):
    lives_and_dies(s, opened(s, "fin_wait"), 120)


@row("CLOSE_WAIT, the real server has closed: 60 seconds")
def expiry_close_wait(s):
    lives_and_dies(s, opened(s, "close_wait"), 60)


@row("LAST_ACK, both have closed, an acknowledgement is missing: 30 seconds")
def expiry_last_ack(s):
    lives_and_dies(s, opened(s, "last_ack"), 30)


@row("TIME_WAIT, when configured")
def expiry_time_wait(s):
    lives_and_dies(s, opened(s, "time_wait", tcp_time_wait_s=20), 20)


@row("CLOSE, after a reset, when configured")
def expiry_close(s):
    f = opened(s, "close", tcp_close_s=10)
    s.wait(8)
    f.answer(b"was under way")
    f.from_client("R", ack=0)
    s.wait(12)
    f.expire()
    f.answer(b"too late", drop="no_session")


@row("UDP: 300 seconds; the next datagram opens a new session")
def expiry_udp(s):
    s.service("dns", "udp", 53)
    f = s.flow("dns")
    f.ask()
    s.wait(298)
    f.reply()
    s.wait(298)
    f.ask()
    s.wait(302)
    f.expire()
    f.reply(drop="no_session")
    s.flow("dns", real=2).ask()


@row("Every timeout can be configured")
def expiry_configured(s):
    lives_and_dies(s, opened(s, "established", tcp_established_s=5), 5)


@row("A packet of either direction keeps the session alive")
def expiry_refreshed(s):
    s.timeouts["tcp_established_s"] = 10
    s.service()
    f = s.flow().handshake()
    for _ in range(5):
        s.wait(8)
        f.send(b"client")
        s.wait(8)
        f.answer(b"real server")


@row("What is dropped does not keep it alive")
def expiry_not_refreshed(s):
    s.timeouts["tcp_established_s"] = 10
    s.service()
    f = s.flow().handshake()
    s.wait(6)
    f.send(b"x", ip={"ttl": 1}, drop="ttl_expired", answer=("ttl", 0))
    s.wait(6)
    f.expire()
    f.send(b"x", drop="no_session")


@row("After expiry the same client port opens a new session, with the next real server")
def expiry_reopened(s):
    s.service()
    f = s.flow().handshake()
    s.wait(902)
    f.expire()
    s.flow(real=2).handshake()


@row("Expired sessions give their local port back")
def expiry_frees_port(s):
    s.pools["lan"]["ports"] = "2000-2000"
    s.service(reals=[1])
    f = s.flow(lport=2000).handshake()
    s.wait(890)
    s.flow(client=(CLIENT, 40001)).syn(drop="local_ports_exhausted")
    s.wait(12)
    f.expire()
    s.flow(lport=2000, client=(CLIENT, 40002)).handshake()


@row("Expired sessions make room in a full table")
def expiry_makes_room(s):
    s.limits["sessions"] = 1
    s.timeouts["udp_s"] = 20
    s.service("dns", "udp", 53)
    f = s.flow("dns")
    f.ask()
    f.reply()
    s.wait(10)
    s.flow("dns", real=2, client=(CLIENT, 40001)).ask(drop="sessions_full")
    s.wait(12)
    f.expire()
    s.flow("dns", real=2, client=(CLIENT, 40002)).ask()


@row("Half-open sessions go, established ones beside them stay")
def expiry_half_open(s):
    s.service()
    f = s.flow().handshake()
    half = s.flow(real=2, client=(CLIENT, 40001))
    half.syn()
    s.wait(62)
    half.expire()
    f.send(b"still there")
    half.syn_ack(drop="no_session")


@row("A session whose time is over is never met, whether it was cleared away yet or not")
def expiry_unswept(s):
    s.timeouts["udp_s"] = 1
    s.service("dns", "udp", 53)
    f = s.flow("dns")
    f.ask()
    s.wait(1)
    other = s.flow("dns", real=2, client=(CLIENT, 40001))
    other.ask()
    s.wait(0.05)
    f.expire()
    f.reply(drop="no_session")
    s.flow("dns", real=3).ask()


@row("Its local port is free too for a walk that comes by")
def expiry_unswept_port(s):
    s.timeouts["tcp_syn_recv_s"] = 1
    s.pools["lan"]["ports"] = "2000-2002"
    s.service(reals=[1])
    half = s.flow(lport=2000)
    half.syn()
    s.flow(lport=2001, client=(CLIENT, 40001)).handshake()
    third = s.flow(lport=2002, client=(CLIENT, 40002)).handshake()
    s.wait(1)
    third.close()
    s.wait(0.05)
    half.expire()
    s.flow(lport=2000, client=(CLIENT, 40003)).handshake()
