"""Stands in for the program that a director starts to hand over to: `successor.py WHAT ...`, with
the channel as its standard input. It takes the offer and says that it is ready, as
bin/sluiced/src/handover.rs has it, and fails at the place that WHAT names."""

import json
import socket
import struct
import sys
import time

what = sys.argv[1]
channel = socket.socket(fileno=0)


def send(message):
    text = json.dumps(message).encode()
    channel.sendall(struct.pack("=QQ", len(text), 0) + text)


def exactly(count):
    data = b""
    while len(data) < count:
        part = channel.recv(count - len(data))
        if not part:
            sys.exit("the channel has ended")
        data += part
    return data


def receive():
    length, count = struct.unpack("=QQ", exactly(16))
    fds = []
    while len(fds) < count:
        fds += socket.recv_fds(channel, 1, 128)[1]
    return json.loads(exactly(length)), fds


if what == "ends":
    sys.exit(7)
if what == "silent":
    time.sleep(3600)
offer, held = receive()
if what == "nonsense":
    channel.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    time.sleep(3600)
send({"Ready": {"wants": list(range(len(offer["Offer"]["ports"])))}})
released, _ = receive()
assert "Released" in released, released
if what == "fails-late":
    send({"Failed": {"why": "it was told to fail"}})
if what in ("fails-late", "hangs-late"):
    time.sleep(3600)
# What is left, "dies-late": it ends.
