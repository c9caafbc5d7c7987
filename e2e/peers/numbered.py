"""Numbered datagrams to an echo server: `numbered.py PORT TARGET TARGET_PORT SECONDS [A_SECOND]`
sends from PORT, at most 64 ahead of what came back and so many a second (otherwise as many as go),
until SIGTERM or so many seconds are over. It says how many it sent, how many came back, and how
many of these came behind a later one."""

import json
import select
import signal
import socket
import struct
import sys
import time

target, [port, target_port] = sys.argv[2], [int(sys.argv[at]) for at in (1, 3)]
seconds = float(sys.argv[4])
a_second = float(sys.argv[5]) if len(sys.argv) > 5 else None
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
begun = progress = time.monotonic()
end = begun + seconds


def stop(*_):
    global end
    end = 0


signal.signal(signal.SIGTERM, stop)
print("open", flush=True)

link.setblocking(False)
sent, came, behind, last = 0, 0, 0, 0
while True:
    now = time.monotonic()
    due = a_second is None or sent < (now - begun) * a_second
    if a_second is not None and not due:
        # It leaves the processor to others until an answer comes or the next is due.
        select.select([link], [], [], 1 / a_second)
    if now < end and due and sent - came < AHEAD:
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
