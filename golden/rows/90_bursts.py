"""What depends on packets that arrive together: bursts change nothing."""

from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import ARP, Ether

from frames import CLIENT, CLIENT_MAC, VIP
from rows import row


@row("The first packets of one flow in one burst: one session")
def burst_one_flow(s):
    s.service("dns", "udp", 53)
    f = s.flow("dns")
    for number in range(64):
        f.ask(b"datagram %d" % number)


@row("A SYN and its retransmission in one burst: one session")
def burst_syn_twice(s):
    s.service()
    f = s.flow()
    f.syn()
    f.syn()
    f.client_seq += 1
    f.ack()
    f.send(b"data")


@row("A reset, and data behind it in the same burst: the data finds no session")
def burst_reset_then_data(s):
    s.service()
    f = s.flow().handshake()
    s.wait(1)
    f.send(b"before")
    f.from_client("R", ack=0, ends=True)
    f.send(b"behind", drop="no_session")


@row("A reset and a new SYN of the same flow in one burst: a new session")
def burst_reset_then_syn(s):
    s.service()
    f = s.flow().handshake()
    s.wait(1)
    f.from_client("R", ack=0, ends=True)
    again = s.flow(real=2)
    again.syn()
    again.client_seq += 1
    again.ack()


@row("A reset, a packet of no session, a SYN, a reset, a SYN of one flow in one burst")
def burst_up_and_down(s):
    s.service()
    f = s.flow().handshake()
    s.wait(1)
    f.from_client("R", ack=0, ends=True)
    f.ack(drop="no_session")
    second = s.flow(real=2)
    second.syn()
    second.from_client("R", ack=0, ends=True)
    s.flow(real=3).syn()


@row("The last acknowledgement of a close and the next SYN in one burst")
def burst_close_then_syn(s):
    s.service()
    f = s.flow().handshake()
    f.fin()
    f.real_fin()
    f.ack(ends=True)
    s.flow(real=2).syn()


@row("64 clients open in one burst, then all send in one burst")
def burst_64_clients(s):
    s.service()
    flows = [
        s.flow(real=1 + n % 3, lport=1024 + n // 3, client=(CLIENT, 20_000 + n)) for n in range(64)
    ]
    for flow in flows:
        flow.syn()
    s.wait(1)
    for flow in flows:
        flow.syn_ack()
    s.wait(1)
    for flow in reversed(flows):
        flow.ack()


@row("Two flows that take turns within a burst; neither overtakes")
def burst_two_flows(s):
    s.service("dns", "udp", 53)
    one = s.flow("dns")
    two = s.flow("dns", real=2, client=(CLIENT, 40001))
    for number in range(32):
        one.ask(b"one %d" % number)
        two.ask(b"two %d" % number)


@row("Old flows, new ones, packets of no session, broken ones and the kernel's in one burst")
def burst_mixed(s):
    s.service()
    old = s.flow().handshake()
    s.wait(1)
    for number in range(8):
        old.send(b"old %d" % number)
        new = s.flow(
            real=1 + (number + 1) % 3,
            lport=1024 + (number + 1) // 3,
            client=(CLIENT, 50_000 + number),
        )
        new.syn()
        syn = IP(src=CLIENT, dst=VIP) / TCP(sport=60_000 + number, dport=80, flags="A")
        s.drops(s.front, s.client_frame(syn), "no_session")
        s.drops(s.front, bytes(s.client_frame(syn))[:30], "truncated")
        arp = Ether(src=CLIENT_MAC, dst="ff:ff:ff:ff:ff:ff") / ARP(psrc=CLIENT, pdst=VIP)
        s.kernel(s.front, arp, "not_ip")


@row("A pool and a table that run out in the middle of a burst")
def burst_runs_out(s):
    s.pools["lan"]["ports"] = "3000-3009"
    s.limits["sessions"] = 20
    s.service(reals=[1])
    s.service("next", "tcp", 81, reals=[2], mode="nat")
    for number in range(12):
        f = s.flow(lport=3000 + number, client=(CLIENT, 20_000 + number))
        f.syn(drop=None if number < 10 else "local_ports_exhausted")
        if number < 10:
            f.syn_ack()
            f.ack()
    for number in range(12):
        f = s.flow("next", real=2, client=(CLIENT, 20_000 + number))
        f.syn(drop=None if number < 10 else "service_share")
        if number < 10:
            f.syn_ack()
            f.ack()


@row("A timeout in the middle of a capture's burst: the clock decides, not the burst")
def burst_expiry(s):
    s.timeouts["udp_s"] = 1
    s.service("dns", "udp", 53)
    f = s.flow("dns")
    f.ask()
    f.ask()
    s.wait(1.1)
    f.expire()
    second = s.flow("dns", real=2)
    second.ask()
    second.ask()
