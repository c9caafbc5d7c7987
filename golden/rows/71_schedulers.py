"""Schedulers, weights, limits, persistence. Direct routing shows the choice in the MAC address."""

from frames import CLIENT, CLIENT_MAC
from modes import DR4, DR6, FNAT4, FNAT6, IPIP4, NAT4
from rows import row, rows_for

ALL = ("rr", "wrr", "lc", "wlc", "sed", "nq", "fo", "ovf", "lblc", "lblcr", "dh", "sh", "mh", "p2c")
FAMILIES = (DR4, DR6)
# Under `ovf` a weight is also a bound of sessions.
SEVERAL = {1: 10, 2: 10, 3: 10}


def opens(s, m, real, cport, service="web", **keys):
    """One client port's SYN to a real server."""
    f = s.flow(service, real=real, client=keys.pop("client", (m.client, cport)), **keys)
    f.syn()
    return f


@rows_for(FAMILIES, "rr takes turns whatever the weights, and skips weight 0")
def rr(s, m):
    m.service(s, scheduler="rr", reals=[1, 2, 3, 4], weights={1: 9, 3: 0})
    for number in range(9):
        opens(s, m, (1, 2, 4)[number % 3], 40000 + number)


@rows_for(FAMILIES, "wrr is exact over a cycle: 5, 3 and 2 of each ten")
def wrr(s, m):
    web = m.service(s, scheduler="wrr", weights={1: 5, 2: 3, 3: 2})
    for number in range(20):
        opens(s, m, None, 40000 + number)
    web.spread({1: 10, 2: 6, 3: 4})


@rows_for(FAMILIES, "wrr is exact within its shortest cycle: 4 and 2 make two of three")
def wrr_short(s, m):
    web = m.service(s, scheduler="wrr", reals=[1, 2], weights={1: 4, 2: 2})
    for number in range(3):
        opens(s, m, None, 40000 + number)
    web.spread({1: 2, 2: 1})


@rows_for(FAMILIES, "wrr with equal weights goes around")
def wrr_equal(s, m):
    m.service(s, scheduler="wrr", weights={1: 7, 2: 7, 3: 7})
    for number in range(9):
        opens(s, m, 1 + number % 3, 40000 + number)


@rows_for(FAMILIES, "wrr gives weight 0 nothing")
def wrr_zero(s, m):
    web = m.service(s, scheduler="wrr", weights={1: 3, 2: 0, 3: 1})
    for number in range(8):
        opens(s, m, None, 40000 + number)
    web.spread({1: 6, 2: 0, 3: 2})


@rows_for(FAMILIES, "lc fills up evenly, and fills up what became free first")
def lc(s, m):
    web = m.service(s, scheduler="lc")
    flows = [opens(s, m, None, 40000 + number) for number in range(6)]
    web.spread({1: 2, 2: 2, 3: 2})
    assert flows


@rows_for((FNAT4, FNAT6, NAT4), "lc: the next session goes where one ended")
def lc_freed(s, m):
    m.service(s, scheduler="lc", reals=[1, 2, 3])
    flows = [s.flow(real=n, client=(m.client, 40000 + n)).handshake() for n in (1, 2, 3)]
    flows[1].close()
    s.flow(real=2, lport=1025, client=(m.client, 41000)).handshake()
    flows[2].close()
    s.flow(real=3, lport=1025, client=(m.client, 41001)).handshake()


@rows_for(FAMILIES, "lc does not look at weights, but weight 0 gets nothing")
def lc_weights(s, m):
    web = m.service(s, scheduler="lc", weights={1: 100, 2: 1, 3: 0})
    for number in range(8):
        opens(s, m, None, 40000 + number)
    web.spread({1: 4, 2: 4, 3: 0})


@rows_for(FAMILIES, "wlc fills up by weight: 1, 2 and 3 of each six")
def wlc(s, m):
    web = m.service(s, scheduler="wlc", weights={1: 1, 2: 2, 3: 3})
    for number in range(24):
        opens(s, m, None, 40000 + number)
    web.spread({1: 4, 2: 8, 3: 12})


@rows_for((FNAT4, FNAT6, NAT4), "wlc: the next session goes where there are least for the weight")
def wlc_freed(s, m):
    m.service(s, scheduler="wlc", reals=[1, 2], weights={1: 1, 2: 1})
    flows = [s.flow(real=1 + n % 2, lport=1024 + n // 2, client=(m.client, 40000 + n)) for n in
             range(4)]
    for flow in flows:
        flow.handshake()
    flows[0].close()
    flows[2].close()
    for number in range(2):
        s.flow(real=1, lport=1026 + number, client=(m.client, 41000 + number)).handshake()


@rows_for((DR4, DR6), "sh: a client's sessions all go to one real server, clients are spread")
def sh(s, m):
    hashed(s, m, "sh")


@rows_for((DR4, DR6), "mh: a client's sessions all go to one real server, clients are spread")
def mh(s, m):
    hashed(s, m, "mh")


def hashed(s, m, scheduler, **keys):
    """Clients with sessions from several ports each."""
    web = m.service(s, scheduler=scheduler, loose=True, **keys)
    for number in range(24):
        client = m.client_at(50 + number)
        s.hop(client, CLIENT_MAC)
        for port in range(4):
            flow = s.flow(real=None, client=(client, 40000 + port), same=f"client {client}")
            flow.spread = "clients"
            flow.syn()
    return web


@rows_for((DR4, DR6), "sh with hash = \"client_port\": one client's sessions are spread")
def sh_port(s, m):
    ports(s, m, "sh")


@rows_for((DR4, DR6), "mh with hash = \"client_port\": one client's sessions are spread")
def mh_port(s, m):
    ports(s, m, "mh")


def ports(s, m, scheduler):
    """One client's sessions from many ports; a port that comes again goes where it went."""
    m.service(s, scheduler=scheduler, loose=True, hash="client_port")
    for _ in range(2):
        for port in range(24):
            flow = s.flow(real=None, client=(m.client, 40000 + port), same=f"port {port}")
            flow.spread = "ports"
            flow.syn()
            flow.from_client("R", ends=True)


@rows_for((DR4, DR6), "sh gives weight 0 nothing")
def sh_zero(s, m):
    only_second(s, m, "sh")


@rows_for((DR4, DR6), "mh gives weight 0 nothing")
def mh_zero(s, m):
    only_second(s, m, "mh")


def only_second(s, m, scheduler):
    """All but real server 2 have weight 0."""
    m.service(s, scheduler=scheduler, weights={1: 0, 3: 0})
    for number in range(12):
        client = m.client_at(50 + number)
        s.hop(client, CLIENT_MAC)
        opens(s, m, 2, 0, client=(client, 40000 + number))


@rows_for((DR4, DR6), "p2c sends every session to one of the real servers")
def p2c(s, m):
    m.service(s, scheduler="p2c", loose=True)
    for number in range(30):
        flow = s.flow(real=None, client=(m.client, 40000 + number))
        flow.spread = "sessions"
        flow.syn()


def all_schedulers(title, modes=(DR4,)):
    """A row for each scheduler and mode."""

    def add(function):
        for scheduler in ALL:

            def play(s, m, scheduler=scheduler):
                function(s, m, scheduler)

            play.__module__ = function.__module__
            play.__name__ = f"{function.__name__}_{scheduler}"
            rows_for(modes, f"{scheduler}: {title}")(play)
        return function

    return add


@all_schedulers("a real server that is down gets no session")
def down(s, m, scheduler):
    keys = {1: {"down": True}, 3: {"down": True}}
    m.service(s, scheduler=scheduler, weights=SEVERAL, real_keys=keys)
    for number in range(6):
        client = m.client_at(50 + number)
        s.hop(client, CLIENT_MAC)
        opens(s, m, 2, 0, client=(client, 40000 + number))


@all_schedulers("all real servers down or without weight: no session", (DR4, DR6))
def none_left(s, m, scheduler):
    m.service(s, scheduler=scheduler, reals=[1, 2], weights={1: 0}, real_keys={2: {"down": True}})
    for number in range(3):
        s.flow(client=(m.client, 40000 + number)).syn(drop="no_real", answer=("reset",))


@all_schedulers("a real server at its upper limit gets no more")
def upper(s, m, scheduler):
    keys = {1: {"upper_sessions": 2}}
    m.service(s, scheduler=scheduler, reals=[1], weights=SEVERAL, real_keys=keys)
    for number in range(2):
        s.flow(real=1, client=(m.client, 40000 + number)).handshake()
    for number in range(2):
        s.flow(client=(m.client, 41000 + number)).syn(drop="reals_full", answer=("reset",))


@all_schedulers("one real server takes all")
def one(s, m, scheduler):
    m.service(s, scheduler=scheduler, reals=[3], weights={3: 10})
    for number in range(5):
        client = m.client_at(60 + number)
        s.hop(client, CLIENT_MAC)
        opens(s, m, 3, 0, client=(client, 40000))


@all_schedulers("a flow stays where its first packet went")
def stays(s, m, scheduler):
    m.service(s, "dns", "udp", 53, scheduler=scheduler, loose=True, weights=SEVERAL)
    clients = [(m.client, 40000 + number) for number in range(4)]
    flows = [s.flow("dns", real=None, client=c, same=f"port {c[1]}") for c in clients]
    for _ in range(3):
        for flow in flows:
            flow.ask()


@row("Upper limit, and lower limit: a real server that was full comes back below it")
def upper_lower(s):
    keys = {1: {"upper_sessions": 3, "lower_sessions": 2}}
    s.service(mode="nat", scheduler="rr", reals=[1, 2], real_keys=keys)
    port = iter(range(40000, 50000))

    def next_to(real):
        return s.flow(real=real, client=(CLIENT, next(port))).handshake()

    first = [next_to(real) for real in (1, 2, 1, 2, 1)]
    for real in (2, 2, 2):
        next_to(real)
    first[0].close()
    next_to(2)
    first[2].close()
    next_to(1)


@row("Without a lower limit a real server comes back below three quarters of its upper one")
def upper_default(s):
    s.service(mode="nat", scheduler="rr", reals=[1, 2], real_keys={1: {"upper_sessions": 4}})
    port = iter(range(40000, 50000))

    def next_to(real):
        return s.flow(real=real, client=(CLIENT, next(port))).handshake()

    first = [next_to(real) for real in (1, 2, 1, 2, 1, 2, 1, 2)]
    next_to(2)
    first[0].close()
    next_to(2)
    first[2].close()
    next_to(1)


def persistent(s, m, **keys):
    """A persistent service over three real servers."""
    m.service(s, persistence_s=60, **keys)
    for number in (49, 50, 70):
        s.hop(m.client_at(number), CLIENT_MAC)


@rows_for((DR4, DR6, IPIP4, NAT4), "persistence: a client's new sessions go where its first went")
def persistence(s, m):
    persistent(s, m)
    other = m.client_at(49)
    opens(s, m, 1, 40000)
    opens(s, m, 2, 0, client=(other, 40000))
    opens(s, m, 1, 40001)
    opens(s, m, 1, 40002)
    opens(s, m, 2, 0, client=(other, 40001))
    opens(s, m, 3, 0, client=(m.client_at(50), 40000))
    opens(s, m, 1, 40003)


@rows_for((FNAT4, FNAT6), "persistence in Full NAT")
def persistence_fnat(s, m):
    persistent(s, m)
    other = m.client_at(49)
    for client, real, lport in ((m.client, 1, 1024), (other, 2, 1024), (m.client, 1, 1025)):
        s.flow(real=real, lport=lport, client=(client, 40000 + lport)).handshake()


@rows_for((DR4,), "persistence by /28: neighbours share a real server")
def persistence_prefix(s, m):
    persistent(s, m, persistence_prefix=28)
    opens(s, m, 1, 40000)
    opens(s, m, 1, 0, client=(m.client_at(49), 40000))
    opens(s, m, 2, 0, client=(m.client_at(70), 40000))
    opens(s, m, 1, 0, client=(m.client_at(50), 40000))


@rows_for((DR6,), "persistence by /64: all of a network share a real server")
def persistence_prefix64(s, m):
    persistent(s, m, persistence_prefix=64)
    opens(s, m, 1, 40000)
    opens(s, m, 1, 0, client=(m.client_at(49), 40000))
    opens(s, m, 1, 0, client=(m.client_at(70), 40000))


@rows_for((DR4, DR6), "persistence ends when no new session came for its time")
def persistence_timeout(s, m):
    s.timeouts["tcp_syn_recv_s"] = 5
    persistent(s, m)
    first = opens(s, m, 1, 40000)
    s.wait(50)
    first.expire()
    second = opens(s, m, 1, 40001)
    s.wait(50)
    second.expire()
    third = opens(s, m, 1, 40002)
    s.wait(70)
    third.expire()
    opens(s, m, 2, 40003)


@rows_for((DR4, DR6), "persistence does not hold a client to a real server that is full")
def persistence_full(s, m):
    persistent(s, m, real_keys={1: {"upper_sessions": 1}})
    opens(s, m, 1, 40000)
    opens(s, m, 2, 40001)
    opens(s, m, 2, 40002)


@rows_for((DR4, DR6, FNAT4, NAT4), "max_sessions: more are refused, until one ends")
def max_sessions(s, m):
    m.service(s, max_sessions=2)
    one = s.flow(client=(m.client, 40000)).handshake()
    s.flow(real=2, client=(m.client, 40001)).handshake()
    s.flow(client=(m.client, 40002)).syn(drop="service_full", answer=("reset",))
    one.send(b"still there")
    one.from_client("R", ack=0, ends=True)
    s.flow(real=3, client=(m.client, 40003)).handshake()


@rows_for((DR4, DR6, FNAT4, NAT4), "max_new_per_s: more in a second are refused")
def max_new(s, m):
    m.service(s, max_new_per_s=2)
    for number in range(2):
        s.flow(real=1 + number, client=(m.client, 40000 + number)).handshake()
    for number in range(3):
        s.flow(client=(m.client, 41000 + number)).syn(drop="service_rate")
    s.wait(2)
    s.flow(real=3, client=(m.client, 42000)).handshake()


@rows_for((DR4, DR6, FNAT4, FNAT6, NAT4), "one_packet: each datagram is scheduled by itself")
def one_packet(s, m):
    m.service(s, "dns", "udp", 53, one_packet=True)
    count = 3 if m.forward == "nat" else 6
    flows = [s.flow("dns", real=1 + n % 3, lport=1024 + n // 3) for n in range(count)]
    for flow in flows:
        flow.ask()
    for flow in reversed(flows):
        flow.reply()


@rows_for((FNAT4, FNAT6, NAT4), "one_packet: an answer is waited for 10 seconds")
def one_packet_expiry(s, m):
    m.service(s, "dns", "udp", 53, one_packet=True)
    f = s.flow("dns")
    f.ask()
    s.wait(8)
    f.reply()
    s.wait(12)
    f.expire()
    late = {"drop": "no_session"} if m.forward == "fnat" else {"kernel": "not_ours"}
    f.reply(**late)
    s.flow("dns", real=2).ask()


@row("Two services with the same real servers: lc counts each service by itself")
def lc_services(s):
    s.service("red", mode="dr", scheduler="lc", reals=[1, 2])
    s.service("blue", port=81, mode="dr", scheduler="lc", reals=[1, 2])
    for number, (service, real) in enumerate((("red", 1), ("blue", 1), ("red", 2), ("blue", 2))):
        s.flow(service, real=real, client=(CLIENT, 40000 + number)).syn()


@row("Schedulers of several services do not disturb each other")
def schedulers_apart(s):
    for number, scheduler in enumerate(("rr", "wrr", "lc", "wlc")):
        s.service(scheduler, port=80 + number, mode="dr", scheduler=scheduler, reals=[1, 2])
    for turn in range(4):
        for number, scheduler in enumerate(("rr", "wrr", "lc", "wlc")):
            client = CLIENT, 40000 + turn * 10 + number
            s.flow(scheduler, real=1 + turn % 2, client=client).syn()


