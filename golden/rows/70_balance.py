"""Which real server, which local address and port."""

from frames import CLIENT, CLIENT_MAC, real_address
from rows import row


def opens(s, reals, count, service="web"):
    """`count` clients' sessions, which round robin gives to `reals` in turn."""
    for number in range(count):
        real, lport = reals[number % len(reals)], 1024 + number // len(reals)
        s.flow(service, real=real, lport=lport, client=(CLIENT, 40000 + number)).handshake()


@row("Round robin over one real server")
def rr_1(s):
    s.service(reals=[1])
    opens(s, [1], 4)


@row("Round robin over two")
def rr_2(s):
    s.service(reals=[1, 2])
    opens(s, [1, 2], 6)


@row("Round robin over three: 01 02 03 01 02 03")
def rr_3(s):
    s.service(reals=[1, 2, 3])
    opens(s, [1, 2, 3], 6)


@row("Round robin over seven")
def rr_7(s):
    s.service(reals=range(1, 8))
    opens(s, list(range(1, 8)), 21)


@row("Round robin goes by the configuration's order")
def rr_order(s):
    s.service(reals=[3, 1, 2])
    opens(s, [3, 1, 2], 6)


@row("Weight 0 takes a real server out of the turn")
def rr_drained(s):
    s.service(reals=[1, 2, 3], weights={2: 0})
    opens(s, [1, 3], 6)


@row("One service's turn does not move another's")
def rr_per_service(s):
    s.service(reals=[1, 2, 3])
    s.service("dns", "udp", 53, reals=[1, 2])
    for number, (web, dns) in enumerate(((1, 1), (2, 2), (3, 1), (1, 2))):
        lport = 1024 + number // 3
        s.flow(real=web, lport=lport, client=(CLIENT, 40000 + number)).syn()
        lport = 1024 + number // 2
        s.flow("dns", real=dns, lport=lport, client=(CLIENT, 40000 + number)).ask()


@row("A packet that is refused takes no turn")
def rr_refused(s):
    s.service()
    s.flow().syn()
    stray = s.flow(client=(CLIENT, 41000))
    stray.ack(drop="no_session")
    stray.syn(ip={"ttl": 1}, drop="ttl_expired", answer=("ttl", 0))
    s.flow(real=2, client=(CLIENT, 40001)).syn()


@row("TCP and UDP services on the same address and port, the same client port")
def tcp_and_udp(s):
    s.service("web", "tcp", 443)
    s.service("quic", "udp", 443)
    tcp = s.flow("web").handshake()
    udp = s.flow("quic")
    udp.ask(b"h3")
    tcp.answer(b"h2")
    udp.reply(b"h3")


@row("Two services on one address, the same client port to both")
def two_ports(s):
    s.service("http", "tcp", 80)
    s.service("https", "tcp", 443)
    one = s.flow("http").handshake()
    two = s.flow("https").handshake()
    two.send(b"tls")
    one.send(b"plain")
    two.answer(b"tls")
    one.answer(b"plain")


@row("Two addresses, the same port and the same real servers: local ports tell them apart")
def two_addresses(s):
    s.service("red", reals=[1])
    s.service("blue", reals=[1], vip="198.51.100.201")
    red = s.flow("red").handshake()
    blue = s.flow("blue", lport=1025).handshake()
    red.answer(b"red")
    blue.answer(b"blue")


@row("Local addresses take turns, then ports count up, for each real server by itself")
def pool_order(s):
    s.pools["lan"]["addresses"] = ["192.0.2.100-192.0.2.101", "192.0.2.104/31"]
    s.service(reals=[1, 2])
    addresses = ["192.0.2.100", "192.0.2.101", "192.0.2.104", "192.0.2.105"]
    for number in range(20):
        combination = number // 2
        laddr, lport = addresses[combination % 4], 1024 + combination // 4
        client = CLIENT, 40000 + number
        s.flow(real=1 + number % 2, lport=lport, laddr=laddr, client=client).handshake()


@row("Each service takes local addresses from its own pool")
def two_pools(s):
    s.pools["other"] = {"addresses": ["192.0.2.20"], "ports": "5000-5999"}
    s.service("http", "tcp", 80)
    s.service("https", "tcp", 443, pool="other")
    s.flow("http").handshake()
    s.flow("https", laddr="192.0.2.20", lport=5000).handshake()


@row("Many clients: each session is found again among 300, both ways")
def many_clients(s):
    s.service()
    flows = []
    for number in range(300):
        address = f"198.51.100.{50 + number % 100}"
        s.hop(address, f"02:00:00:00:03:{number % 100:02x}")
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


@row("Clients that differ in one bit of address or port are told apart")
def similar_clients(s):
    s.service(reals=[1])
    flows = []
    for number in range(7):
        for client in ((f"198.51.100.{128 ^ 1 << number}", 40000), (CLIENT, 40000 ^ 1 << number)):
            s.hop(client[0], CLIENT_MAC)
            flows.append(s.flow(lport=1024 + len(flows), client=client))
            flows[-1].syn()
    for flow in flows:
        flow.syn_ack()


@row("A client among the real servers' addresses, one arm")
def client_beside_reals(s):
    s.one_arm()
    s.service()
    f = s.flow(real=1, client=(real_address(5), 40000))
    f.handshake()
    f.send(b"hairpin")
    f.answer(b"hairpin")
