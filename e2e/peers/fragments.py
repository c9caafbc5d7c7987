"""Sends a datagram to an echo in fragments, in an order of its own, and has the kernel receive the
answer: `fragments.py DEVICE MAC FROM TO PORT ORDER` with ORDER `reversed`, `mixed` or `twice` (the
last one first, the others in order and each of them twice). Says `whole` when what comes back is
what was sent.
"""

import logging
import socket
import sys

logging.getLogger("scapy.runtime").setLevel(logging.ERROR)
from scapy.all import (  # noqa: E402
    IP,
    UDP,
    Ether,
    IPv6,
    IPv6ExtHdrFragment,
    conf,
    fragment,
    fragment6,
    sendp,
)

conf.verb = 0
device, mac, source, target, port, order = sys.argv[1:]
six = ":" in target
payload = bytes(at * 7 % 251 for at in range(5000))

own = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM)
own.settimeout(4)
own.bind((source, 0))
sport = own.getsockname()[1]
datagram = UDP(sport=sport, dport=int(port)) / payload
number = sport * 3 % 65521
if six:
    whole = IPv6(src=source, dst=target) / IPv6ExtHdrFragment(id=number) / datagram
    pieces = fragment6(whole, 1400)
else:
    pieces = fragment(IP(src=source, dst=target, id=number) / datagram, 1400)
assert len(pieces) >= 4, pieces
if order == "reversed":
    pieces = pieces[::-1]
elif order == "mixed":
    pieces = pieces[2:] + pieces[:2][::-1]
else:
    pieces = pieces[-1:] + [piece for piece in pieces[:-1] for _ in range(2)]
sendp([Ether(dst=mac) / piece for piece in pieces], iface=device)
got = own.recv(65536)
print("whole" if got == payload else f"{len(got)} bytes that differ")
