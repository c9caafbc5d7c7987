"""Sends packets of protocols without ports: `send_any.py FROM TO COUNT` sends COUNT of GRE (47) and
as many of ESP (50), by the kernel's own routing."""

import socket
import struct
import sys

source, target, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
family = socket.AF_INET6 if ":" in target else socket.AF_INET
GRE, ESP = 47, 50
for protocol in (GRE, ESP):
    with socket.socket(family, socket.SOCK_RAW, protocol) as raw:
        raw.bind((source, 0))
        for number in range(count):
            if protocol == GRE:  # RFC 2784: no checksum; what is inside nobody looks at here
                packet = struct.pack("!HH", 0, 0x88B5) + bytes(40)
            else:  # RFC 4303: SPI and sequence number
                packet = struct.pack("!II", 0x1234, number + 1) + bytes(40)
            raw.sendto(packet, (target, 0))
