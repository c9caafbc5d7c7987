"""The far end of a tunnel, for kernels without one: IPv4 and IPv6 in IPv4 or IPv6 (RFC 2003, 4213,
2473), unpacked and given to the kernel by a TUN device.

`unpack.py DEVICE` makes the device and says `listening`. It sees what the kernel's own tunnels
would see: raw sockets get packets after the outer header was checked and fragments were put
together. What comes out goes in as it is; wrong inner packets are the kernel's to refuse.
"""

import fcntl
import os
import selectors
import socket
import struct
import sys

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 1, 0x1000  # linux/if_tun.h
IPV4_INSIDE, IPV6_INSIDE = 4, 41  # IANA's protocol numbers


def tunnel(name):
    device = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH14x", name.encode(), IFF_TUN | IFF_NO_PI))
    return device


def ends():
    """Raw sockets, and how many bytes of outer header what they give begins with."""
    for protocol in (IPV4_INSIDE, IPV6_INSIDE):
        yield socket.socket(socket.AF_INET, socket.SOCK_RAW, protocol), True
        yield socket.socket(socket.AF_INET6, socket.SOCK_RAW, protocol), False


def main():
    device = tunnel(sys.argv[1])
    waiting = selectors.DefaultSelector()
    for end, header in ends():
        end.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE
        waiting.register(end, selectors.EVENT_READ, header)
    print("listening", flush=True)
    while True:
        for key, _ in waiting.select():
            data = key.fileobj.recv(65536)
            inner = data[(data[0] & 15) * 4 :] if key.data else data
            try:
                os.write(device, inner)
            except OSError as refused:
                print("refused", refused, inner[:40].hex(), flush=True)


main()
