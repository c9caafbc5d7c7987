#!/usr/bin/env python3
"""Writes a capture of UDP datagrams of 64 bytes (with the frame check sequence), one a flow.

    testpmd-flows.py FILE FLOWS SOURCE_MAC DESTINATION_MAC VIP PORT

Flows differ in the client's address (203.0.113.1 to .250) and port (from 1024 on), in random order,
which is always the same: neighbours in the capture are no neighbours in the director's tables.
"""
import random
import socket
import struct
import sys

PAYLOAD = bytes(18)
CLIENTS = 250


def ones_sum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def frame(ethernet, client, port, vip, vport):
    length = 8 + len(PAYLOAD)
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + length, 0, 0x4000, 64, 17, 0, client, vip)
    check = ~ones_sum(header) & 0xFFFF
    header = header[:10] + struct.pack("!H", check) + header[12:]
    udp = struct.pack("!HHHH", port, vport, length, 0)
    pseudo = client + vip + struct.pack("!BBH", 0, 17, length)
    check = ~ones_sum(pseudo + udp + PAYLOAD) & 0xFFFF or 0xFFFF
    return ethernet + header + udp[:6] + struct.pack("!H", check) + PAYLOAD


def main():
    path, flows, source, destination, vip, vport = sys.argv[1:]
    mac = lambda text: bytes.fromhex(text.replace(":", ""))
    ethernet = mac(destination) + mac(source) + b"\x08\x00"
    vip, vport = socket.inet_aton(vip), int(vport)
    numbers = list(range(int(flows)))
    random.Random(1).shuffle(numbers)
    with open(path, "wb") as out:
        out.write(struct.pack("=IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for number in numbers:
            client = socket.inet_aton(f"203.0.113.{1 + number % CLIENTS}")
            data = frame(ethernet, client, 1024 + number // CLIENTS, vip, vport)
            out.write(struct.pack("=IIII", 0, 0, len(data), len(data)) + data)


main()
