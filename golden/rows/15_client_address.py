"""Full NAT that tells the real server its client: TOA option, PROXY protocol v1 and v2."""

from scapy.layers.inet import TCP, UDP

from checksums import shift
from frames import family, real_address
from modes import FNAT4, FNAT6, FNAT46, FNAT64
from rows import rows_for
from told import Told, toa

MODES = (FNAT4, FNAT6, FNAT46, FNAT64)
PLAIN = (FNAT4, FNAT6)
TCP_WAYS = ("toa", "proxy_v1", "proxy_v2")
PROXY = ("proxy_v1", "proxy_v2")
TITLES = {"toa": "TOA", "proxy_v1": "PROXY v1", "proxy_v2": "PROXY v2"}


def ways(modes, how, title):
    """A row for each way to tell and each mode."""

    def add(function):
        for way in how:

            def play(s, m, way=way):
                function(s, m, way)

            play.__module__ = function.__module__
            play.__name__ = f"{way}_{function.__name__}"
            rows_for(modes, f"{TITLES[way]}: {title}")(play)
        return function

    return add


def telling(s, m, way, port=80, **keys):
    """A TCP service that tells, and a flow to it with a SYN+ACK of a small MSS."""
    flow_keys = {key: keys.pop(key) for key in ("client", "real", "lport") if key in keys}
    if "web" not in s.services:
        m.service(s, "web", "tcp", port, client_address=way, **keys)
    return Told(s, s.services["web"], **flow_keys)


SMALL = [("MSS", 1200)]


def handshake(f):
    """A handshake with a small MSS, which nothing has to clamp."""
    f.syn()
    f.syn_ack(options=SMALL)
    f.ack()
    return f


@ways(MODES, TCP_WAYS, "handshake, request, answer, close")
def conversation(s, m, way):
    f = handshake(telling(s, m, way))
    f.send(b"GET / HTTP/1.0\r\n\r\n")
    f.real_ack()
    f.answer(b"HTTP/1.0 200 OK\r\n\r\nReal Server 01\n")
    f.ack()
    f.send(b"GET /2 HTTP/1.0\r\n\r\n")
    f.answer(b"and so on")
    f.close()


@ways(MODES, TCP_WAYS, "the real server speaks first")
def greeting(s, m, way):
    f = handshake(telling(s, m, way, 25))
    f.answer(b"220 ready\r\n")
    f.send(b"EHLO\r\n")
    f.answer(b"250 welcome\r\n")
    f.ack()


@ways(PLAIN, TCP_WAYS, "the segment that tells was lost: its repetition tells again")
def repeated(s, m, way):
    f = handshake(telling(s, m, way))
    begin = f.client_seq
    f.send(b"GET / HTTP/1.0\r\n\r\n")
    s.wait(1)
    f.from_client("PA", b"GET / HTTP/1.0\r\n\r\n", seq=begin)
    f.client_seq = begin + 18
    f.real_ack()
    f.answer(b"at last")


@ways(PLAIN, PROXY, "a real server that has not got the header yet acknowledges nothing of it")
def not_yet(s, m, way):
    f = handshake(telling(s, m, way))
    f.real_ack(before=True)
    f.send(b"request")
    f.real_ack(before=True)
    f.real_ack()
    f.answer(b"answer")


@ways(PLAIN, PROXY, "what comes behind the first segment is only renumbered")
def renumbered(s, m, way):
    f = handshake(telling(s, m, way))
    f.send(b"first")
    f.send(b"second")
    f.send(b"third", options=[("NOP", None), ("NOP", None), ("Timestamp", (5, 6))])
    f.real_ack()
    f.send(b"fourth")


@ways(PLAIN, PROXY, "SACK blocks are renumbered on the way back")
def sack(s, m, way):
    f = handshake(telling(s, m, way))
    f.send(b"a" * 100)
    lost = f.client_seq
    f.send(b"b" * 100)
    f.send(b"c" * 100)
    blocks = [("NOP", None), ("NOP", None), ("SAck", (lost + 100, lost + 200))]
    f.real_ack(ack=lost, options=blocks)
    two = (lost + 100, lost + 200, lost + 300, lost + 400)
    f.real_ack(ack=lost, options=[("SAck", two), ("NOP", None), ("NOP", None)])
    f.real_ack(ack=lost, options=[("NOP", None), ("SAck", two), ("NOP", None)])


@ways(PLAIN, TCP_WAYS, "sequence numbers wrap")
def wraps(s, m, way):
    f = telling(s, m, way)
    f.client_seq = (1 << 32) - 20
    f.syn()
    f.syn_ack(options=SMALL)
    f.ack()
    f.send(b"x" * 19)
    f.client_seq %= 1 << 32
    f.real_ack()
    f.send(b"y" * 19)
    f.answer(b"z")


@ways(PLAIN, TCP_WAYS, "the MSS in the SYN+ACK leaves room for it")
def mss(s, m, way):
    f = telling(s, m, way)
    headers = 40 if m.version == 4 else 60
    added = len(f.header) or (8 if m.version == 4 else 20)
    f.clamped = 1500 - headers - added
    f.syn()
    f.syn_ack(options=[("MSS", 1460), ("NOP", None), ("NOP", None), ("SAckOK", b"")])
    f.ack()
    f.send(b"x" * f.clamped)


@ways(PLAIN, TCP_WAYS, "a smaller MSS stays")
def mss_small(s, m, way):
    f = telling(s, m, way)
    f.syn()
    f.syn_ack(options=[("MSS", 536)])
    f.ack()


@ways(PLAIN, TCP_WAYS, "the MSS is found behind other options, at an odd place too")
def mss_odd(s, m, way):
    f = telling(s, m, way)
    headers = 40 if m.version == 4 else 60
    f.clamped = 1500 - headers - (len(f.header) or (8 if m.version == 4 else 20))
    f.syn()
    f.syn_ack(options=[("SAckOK", b""), ("NOP", None), ("MSS", 1460), ("WScale", 7)])
    f.ack()


@ways(PLAIN, TCP_WAYS, "payloads of odd and even length keep right checksums")
def lengths(s, m, way):
    for number, length in enumerate((0, 1, 2, 3, 8, 101)):
        # Ports of four and five digits make lines of odd and even length.
        client = m.client, 9990 + number * 5
        f = telling(s, m, way, reals=[1], client=client, lport=1024 + number)
        f.syn()
        f.syn_ack(options=SMALL)
        f.send(b"d" * length)
        f.send(b"e" * length)
        f.answer(b"f" * length)


@ways(PLAIN, TCP_WAYS, "a wrong checksum stays wrong by as much")
def wrong_checksum(s, m, way):
    f = handshake(telling(s, m, way))
    f.send(b"damaged", edit=lambda packet: shift(packet, TCP, 0x1234))
    f.real_ack()
    f.send(b"damaged too", edit=lambda packet: shift(packet, TCP, 0x4321))


@ways(PLAIN, TCP_WAYS, "a reset instead of data tells nothing")
def reset(s, m, way):
    f = telling(s, m, way)
    f.syn()
    f.syn_ack(options=SMALL)
    f.from_client("R", seq=f.client_seq, ack=0, ends=True)


@ways(PLAIN, TCP_WAYS, "a real server on another port; the virtual one is told")
def real_port(s, m, way):
    f = handshake(telling(s, m, way, real_port=8080))
    f.send(b"request")
    f.answer(b"answer")


@ways(PLAIN, TCP_WAYS, "with VLANs on both sides")
def vlan(s, m, way):
    f = telling(s, m, way)
    s.vlan(m.client, 10)
    s.vlan(real_address(1, m.real_version), 20)
    handshake(f)
    f.send(b"request")
    f.answer(b"answer")


@ways(PLAIN, ("toa",), "time stamps stay behind the option")
def stamped(s, m, way):
    f = telling(s, m, way)
    f.syn()
    f.syn_ack(options=SMALL)
    stamp = [("NOP", None), ("NOP", None), ("Timestamp", (7, 8))]
    f.ack(options=stamp)
    f.send(b"request", options=stamp)


@ways(PLAIN, ("toa",), "no room in the TCP header: the segment passes without")
def no_room(s, m, way):
    f = telling(s, m, way)
    f.syn()
    f.syn_ack(options=SMALL)
    f.ack(options=[("NOP", None)] * 40)
    f.send(b"now there is room")


COOKIE = 34, b"8 octets"
OLD_COOKIE = 254, b"\xf9\x89cookie"


@ways(MODES, PROXY, "TCP Fast Open: a SYN goes without its cookie and its data, which come again")
def fast_open(s, m, way):
    f = telling(s, m, way)
    f.first = f.client_seq + 1
    early = f.client_seq
    f.from_client("S", b"GET / HTTP/1.0\r\n\r\n", ack=0, options=[("MSS", 1460), COOKIE])
    f.client_seq = early
    f.syn_ack(options=SMALL)
    f.ack()
    f.send(b"GET / HTTP/1.0\r\n\r\n")
    f.real_ack()
    f.answer(b"HTTP/1.0 200 OK\r\n\r\nReal Server 01\n")
    f.close()


@ways(PLAIN, PROXY, "TCP Fast Open by the experimental option; data of odd length, a request alone")
def fast_open_old(s, m, way):
    for number, data in enumerate((b"", b"o", b"odd", b"even", b"x" * 1001)):
        client = m.client, 9990 + number * 5
        f = telling(s, m, way, reals=[1], client=client, lport=1024 + number)
        f.first, early = f.client_seq + 1, f.client_seq
        options = [("NOP", None), OLD_COOKIE, ("MSS", 1460), (34, b""), ("NOP", None)]
        f.from_client("S", data, ack=0, options=options)
        f.client_seq = early
        f.syn_ack(options=SMALL)
        f.send(data or b"later")


@ways(PLAIN, PROXY, "the urgent pointer moves along with what the header is put in front of")
def urgent(s, m, way):
    f = handshake(telling(s, m, way))
    f.inbound(TCP(flags="PAU", seq=f.client_seq, ack=f.real_seq, urgptr=1), b"!data")
    f.client_seq += 5
    f.real_ack()
    f.inbound(TCP(flags="PAU", seq=f.client_seq, ack=f.real_seq, urgptr=1), b"!data")


@ways(PLAIN, PROXY, "a keep-alive before any data stays before the stream, its octet too")
def keep_alive(s, m, way):
    f = handshake(telling(s, m, way))
    begin = f.client_seq
    for garbage in (b"", b"\0", b"\0GET"):
        f.from_client("A", garbage, seq=begin - 1)
        f.client_seq = begin
    f.real_ack()
    f.from_client("A", b"\0", seq=begin - 1)
    f.client_seq = begin
    f.send(b"GET / HTTP/1.0\r\n\r\n")
    f.from_client("A", b"\0", seq=f.client_seq - 1)


def forged(client):
    """A TOA option of a client that says it is somebody else."""
    return toa(("192.0.2.77", 7777)) if family(client) == 4 else toa(("2001:db8::77", 7777))


@ways(MODES, ("toa",), "a client's own option of that kind is overwritten, from the SYN on")
def forged_option(s, m, way):
    f = telling(s, m, way)
    lie = forged(m.client)
    f.syn(options=[("MSS", 1460), lie])
    f.syn_ack(options=SMALL)
    f.ack(options=[lie])
    f.send(b"request", options=[("NOP", None), lie, ("NOP", None), ("NOP", None), ("NOP", None)])
    f.answer(b"answer")
    f.send(b"and later", options=[lie])
    f.fin(options=[lie])


@ways(PLAIN, ("toa",), "a client's own option is overwritten where there is no room for ours")
def forged_without_room(s, m, way):
    f = telling(s, m, way)
    lie = forged(m.client)
    f.syn()
    f.syn_ack(options=SMALL)
    f.ack(options=[*[("NOP", None)] * (40 - 2 - len(lie[1])), lie])
    f.ack(options=[lie, *[("NOP", None)] * (40 - 2 - len(lie[1]))])


@ways(PLAIN, ("toa",), "several of a client's own options, of other lengths and odd places too")
def forged_often(s, m, way):
    f = telling(s, m, way)
    other = 254, b"\xf9\x89cookie!!"
    f.syn(options=[("NOP", None), other, ("MSS", 1460), other])
    f.syn_ack(options=SMALL)
    f.ack(options=[("NOP", None), other, (254, b""), ("NOP", None)])


def dns(s, m, **keys):
    """A UDP service that tells, and a flow to it."""
    m.service(s, "dns", "udp", 53, client_address="proxy_v2", **keys)
    return Told(s, s.services["dns"])


@ways(MODES, ("proxy_v2",), "UDP: each datagram begins with the header, answers do not")
def udp(s, m, _):
    f = dns(s, m)
    for number in range(3):
        f.ask(b"question %d" % number)
        f.reply(b"answer %d" % number)
    f.ask(b"")


@ways(PLAIN, ("proxy_v2",), "UDP: odd lengths, wrong checksums")
def udp_checksums(s, m, _):
    f = dns(s, m)
    for length in (1, 2, 3, 100):
        f.ask(b"x" * length)
    f.ask(b"damaged", edit=lambda packet: shift(packet, UDP, 0x4321))


@ways((FNAT4,), ("proxy_v2",), "UDP: no checksum stays none")
def udp_zero_checksum(s, m, _):
    f = dns(s, m)
    f.ask(chksum=0)


@ways(PLAIN, ("proxy_v2",), "UDP: too large with the header: the client is told what fits")
def udp_too_big(s, m, _):
    f = dns(s, m)
    added, headers = len(f.header), 28 if m.version == 4 else 48
    fits = 1500 - added - headers
    f.ask(b"x" * fits, ip={"flags": "DF"})
    f.ask(b"x" * (fits + 1), ip={"flags": "DF"}, drop="too_big", answer=("too_big", 1500 - added))
