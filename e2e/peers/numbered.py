"""Numbered datagrams to an echo server: `numbered.py PORT TARGET TARGET_PORT SECONDS` sends from
PORT, at most 64 ahead of what came back, until SIGTERM or so many seconds are over. It says how
many it sent, how many came back, and how many of these came behind a later one."""

import json
import signal
import socket
import struct
import sys
import time

target, [port, target_port] = sys.argv[2], [int(sys.argv[at]) for at in (1, 3)]
seconds = float(sys.argv[4])
AHEAD, SIZE = 64, 200
family = socket.AF_INET6 if ":" in target else socket.AF_INET
link = socket.socket(family, socket.SOCK_DGRAM)
link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
link.bind(("::" if family == socket.AF_INET6 else "0.0.0.0", port))
link.connect((target, target_port))

# The first opens the session.
link.settimeout(0.5)
for _ in range(20):
    link.send(struct.pack("!I", 0) + bytes(SIZE))
    try:
        link.recv(2048)
        break
    except TimeoutError:
        pass
else:
    sys.exit("nobody answers")
progress, end = time.monotonic(), time.monotonic() + seconds


def stop(*_):
    global end
    end = 0


signal.signal(signal.SIGTERM, stop)
print("open", flush=True)

link.setblocking(False)
sent, came, behind, last = 0, 0, 0, 0
while True:
    now = time.monotonic()
    if now < end and sent - came < AHEAD:
        sent += 1
        try:
            link.send(struct.pack("!I", sent) + bytes(SIZE))
        except BlockingIOError:
            sent -= 1
    try:
        number = struct.unpack("!I", link.recv(2048)[:4])[0]
    except BlockingIOError:
        # What is lost would stop it for ever.
        if now - progress > 10:
            break
        continue
    if number == 0:
        continue
    came, progress = came + 1, now
    behind += number < last
    last = max(last, number)
    if now >= end and came == sent:
        break
print(json.dumps({"sent": sent, "came": came, "behind": behind}), flush=True)
