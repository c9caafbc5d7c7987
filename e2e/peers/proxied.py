"""A UDP server that wants the PROXY protocol's version 2 at the front of each datagram.

`proxied.py PORT` takes the header off as the protocol's text says (2.2) and answers each datagram
with what it was told: `client vip length`. A datagram without a right header is answered with
`wrong` and the reason.
"""

import ipaddress
import socket
import struct
import sys

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
DATAGRAMS = {0x12: (4, 12), 0x22: (16, 36)}  # family and transport: address's length, all


def endpoint(address, port):
    address = ipaddress.ip_address(address)
    return f"{address}:{port}" if address.version == 4 else f"[{address}]:{port}"


def read(data):
    if data[:12] != SIGNATURE:
        return f"wrong signature {data[:12].hex()}"
    command, family, length = struct.unpack("!BBH", data[12:16])
    if command != 0x21 or family not in DATAGRAMS:
        return f"wrong command {command:x} or family {family:x}"
    size, whole = DATAGRAMS[family]
    if length < whole or len(data) < 16 + length:
        return f"wrong length {length}"
    source, target = data[16 : 16 + size], data[16 + size : 16 + 2 * size]
    ports = struct.unpack("!HH", data[16 + 2 * size : 16 + whole])
    return f"{endpoint(source, ports[0])} {endpoint(target, ports[1])} {len(data) - 16 - length}"


server = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
server.bind(("::", int(sys.argv[1])))
print("listening", flush=True)
while True:
    data, sender = server.recvfrom(65536)
    server.sendto(read(data).encode(), sender)
