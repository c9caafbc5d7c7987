"""Half-open sessions, and services above their share, are evicted when something runs short."""

from frames import CLIENT
from modes import ALL, DR4, FNAT4, FNAT6, NAT4
from rows import row, rows_for


def client(m, number):
    return (m.client, 40000 + number)


@rows_for(ALL, "at max_sessions the oldest half-open session is evicted once it has had a second")
def old_gives_way(s, m):
    m.service(s, max_sessions=3, reals=[1])
    first, second = (s.flow(client=client(m, n), lport=1024 + n) for n in (0, 1))
    first.handshake()
    second.syn()
    s.flow(client=client(m, 2), lport=1026).handshake()
    s.flow(client=client(m, 3)).syn(drop="service_full", answer=("reset",))
    s.wait(1)
    second.evict()
    s.flow(client=client(m, 3), lport=1027).handshake()
    first.send(b"still there")
    s.flow(client=client(m, 4)).syn(drop="service_full", answer=("reset",))


@rows_for((FNAT4, FNAT6, NAT4, DR4), "where most are half-open, a SYN that comes again ends one")
def repeated_syn(s, m):
    m.service(s, max_sessions=2, reals=[1])
    first, second = (s.flow(client=client(m, n), lport=1024 + n) for n in (0, 1))
    first.syn()
    second.syn()
    third = s.flow(client=client(m, 2), lport=1026)
    third.syn(drop="repeat_awaited")
    s.flow(client=client(m, 3)).syn(drop="repeat_awaited")
    s.wait(0.9)
    first.evict()
    third.syn()
    third.syn_ack()
    third.ack()
    second.syn_ack()
    second.ack()


@rows_for((FNAT4, FNAT6, NAT4, DR4), "a datagram that nobody has answered is evicted for the next")
def single_datagrams(s, m):
    m.service(s, "dns", "udp", 53, max_sessions=3, reals=[1])
    good = s.flow("dns", client=client(m, 0))
    good.ask()
    good.ask()
    good.reply()
    flows = []
    for number in range(1, 6):
        if number > 2:
            flows[number - 3].evict()
        flows.append(s.flow("dns", client=client(m, number), lport=1024 + number))
        flows[-1].ask()
    good.ask()
    good.reply()


@row("Half-open sessions hold half of the table at most")
def half_of_the_table(s):
    s.limits["sessions"] = 8
    s.service("dns", "udp", 53, reals=[1])
    flows = []
    for number in range(10):
        if number >= 4:
            flows[number - 4].evict()
        f = s.flow("dns", lport=1024 + number, client=(CLIENT, 40000 + number))
        f.ask()
        flows.append(f)


@row("The last local port of a half-open session is the next one's once it has had a second")
def port_given_up(s):
    s.pools["lan"]["ports"] = "2000-2001"
    s.service(reals=[1])
    first = s.flow(lport=2000)
    first.syn()
    s.flow(lport=2001, client=(CLIENT, 40001)).handshake()
    s.flow(client=(CLIENT, 40002)).syn(drop="repeat_awaited")
    s.wait(1.1)
    first.evict()
    s.flow(lport=2000, client=(CLIENT, 40003)).handshake()
    s.flow(client=(CLIENT, 40004)).syn(drop="local_ports_exhausted")


@row("A service may borrow what others leave, and gives it back to one below its share")
def share_of_the_table(s):
    s.limits["sessions"] = 8
    s.service(reals=[1])
    s.service("other", "tcp", 81, reals=[2])
    first = s.flow("other", real=2).handshake()
    flows = []
    for number in range(7):
        s.wait(0.01)
        client = (CLIENT, 41000 + number)
        flows.append(s.flow(lport=1024 + number, client=client).handshake())
    s.flow(client=(CLIENT, 42000)).syn(drop="service_share")
    for number in range(3):
        flows[number].evict()
        s.flow("other", real=2, lport=1025 + number, client=(CLIENT, 43000 + number)).handshake()
    s.flow("other", real=2, client=(CLIENT, 43009)).syn(drop="service_share")
    first.send(b"still there")
    flows[6].send(b"still there")
