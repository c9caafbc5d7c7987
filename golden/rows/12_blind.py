"""What a sender can do who knows a connection's addresses and ports but not its numbers."""

from modes import ALL
from rows import rows_for

FAR, ELSEWHERE = 0x7000_0000, 0x3000_0000


def goes_on(f):
    """The connection is as it was."""
    f.send(b"more")
    f.real_ack()
    f.answer(b"of it")
    f.ack()


@rows_for(ALL, "resets whose numbers do not fit are forwarded and end nothing")
def blind_rst_keeps_session(s, m):
    m.service(s)
    f = s.flow().handshake()
    for flags, ack in (("R", 0), ("RA", ELSEWHERE)):
        f.from_client(flags, seq=FAR, ack=ack)
        f.from_real(flags, seq=FAR, ack=ack)
    # What fits one way tells nothing of the other.
    f.from_client("R", seq=f.real_seq, ack=0)
    goes_on(f)


@rows_for(ALL, "a FIN that does not fit and a SYN behind it do not move the connection")
def blind_fin_and_syn(s, m):
    m.service(s)
    f = s.flow().handshake()
    f.from_client("FA", seq=FAR, ack=ELSEWHERE)
    f.from_real("FA", seq=FAR, ack=ELSEWHERE)
    f.from_client("S", seq=ELSEWHERE, ack=0)
    f.real_ack()
    s.wait(6)
    f.from_client("S", seq=ELSEWHERE, ack=0)
    goes_on(f)


@rows_for(ALL, "data that does not fit does not move the window: a reset behind it ends nothing")
def blind_data(s, m):
    m.service(s)
    f = s.flow().handshake()
    f.from_client("A", seq=FAR, ack=ELSEWHERE)
    f.from_client("R", seq=FAR, ack=0)
    f.from_real("A", seq=FAR, ack=ELSEWHERE)
    f.from_real("R", seq=FAR, ack=0)
    goes_on(f)


@rows_for(ALL, "a client that has forgotten its connection resets it when its SYN is challenged")
def challenged_syn(s, m):
    m.service(s)
    f = s.flow().handshake()
    f.from_client("S", seq=ELSEWHERE, ack=0)
    f.real_ack()
    f.from_client("R", ack=0, ends=True)
    again = s.flow(real=2)
    again.client_seq = ELSEWHERE
    again.handshake()
    again.send(b"to real server 2")


@rows_for(ALL, "numbers wrap: the window follows, and a reset behind the wrap ends the session")
def window_wraps(s, m):
    m.service(s)
    f = s.flow()
    # What may be cut becomes no IPv6 of that size (RFC 7915 4.1).
    f.fields = {"flags": "DF"} if m.crosses else {}
    f.client_seq = 2**32 - 1400
    f.handshake()
    for _ in range(100):
        f.send(b"x" * 1300)
        f.client_seq %= 2**32
    f.real_ack()
    f.from_client("R", seq=2**32 - 100, ack=0)
    goes_on(f)
    f.from_client("R", ack=0, ends=True)
