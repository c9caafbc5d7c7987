"""The far end of a tunnel, for kernels without one: IPv4 and IPv6 in IPv4 or IPv6 (RFC 2003, 4213,
2473), in GRE (RFC 2784, 2890) and in GUE (draft-ietf-intarea-gue), unpacked and given to the kernel
by a TUN device.

`unpack.py DEVICE` makes the device and says `listening`. It sees what the kernel's own tunnels
would see: raw sockets get packets after the outer header was checked and fragments were put
together, UDP sockets datagrams whose checksum is right. A GRE packet without the key or with a
wrong checksum is refused. What comes out goes in as it is; wrong inner packets are the kernel's to
refuse.
"""

import fcntl
import os
import selectors
import socket
import struct
import sys

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 1, 0x1000  # linux/if_tun.h
IPV4_INSIDE, IPV6_INSIDE, GRE = 4, 41, 47  # IANA's protocol numbers
GUE_PORT, GRE_KEY = 6081, 7  # as the tests configure them


def tunnel(name):
    device = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH14x", name.encode(), IFF_TUN | IFF_NO_PI))
    return device


def header_of_ipv4(packet):
    """A raw socket of IPv4 gives the outer header, too."""
    return packet[(packet[0] & 15) * 4 :]


def is_right(packet):
    """Whether the Internet checksum over a packet is (RFC 1071)."""
    words = struct.unpack(f"!{(len(packet) + 1) // 2}H", packet + bytes(len(packet) % 2))
    return sum(words) % 0xFFFF == 0


def in_gre(packet):
    flags, ethertype, _, _, key = struct.unpack_from("!HHHHI", packet)
    if flags != 0xA000 or ethertype not in (0x0800, 0x86DD) or key != GRE_KEY:
        raise ValueError("no checksum and key, or others")
    if not is_right(packet):
        raise ValueError("wrong GRE checksum")
    return packet[12:]


def in_gue(data):
    first, protocol, flags = struct.unpack_from("!BBH", data)
    if first or flags or protocol != {4: IPV4_INSIDE, 6: IPV6_INSIDE}.get(data[4] >> 4):
        raise ValueError("not variant 0 without options, or another packet than it says")
    return data[4:]


def ends():
    """Sockets, each with what takes the headers off that it gives."""
    for protocol, inside in ((IPV4_INSIDE, bytes), (IPV6_INSIDE, bytes), (GRE, in_gre)):
        four = socket.socket(socket.AF_INET, socket.SOCK_RAW, protocol)
        yield four, lambda packet, inside=inside: inside(header_of_ipv4(packet))
        yield socket.socket(socket.AF_INET6, socket.SOCK_RAW, protocol), inside
    for family, anywhere in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        end = socket.socket(family, socket.SOCK_DGRAM)
        if family == socket.AF_INET6:
            end.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        end.bind((anywhere, GUE_PORT))
        yield end, in_gue


def main():
    device = tunnel(sys.argv[1])
    waiting = selectors.DefaultSelector()
    for end, inside in ends():
        end.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE
        waiting.register(end, selectors.EVENT_READ, inside)
    print("listening", flush=True)
    while True:
        for key, _ in waiting.select():
            data = key.fileobj.recv(65536)
            try:
                os.write(device, key.data(data))
            except (OSError, ValueError, struct.error) as refused:
                print("refused", refused, data[:60].hex(), flush=True)


main()
