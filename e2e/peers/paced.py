"""Numbered datagrams to an echo server at a steady pace: `paced.py PORT TARGET TARGET_PORT SECONDS
INTERVAL_MS [BYTES]`. Says `open` when the first came back; at the end how many were sent, how many
did not come back, the longest run of these, and the longest time that one took. Times of arrival
are the kernel's."""

import json
import socket
import struct
import sys
import threading
import time

target, [port, target_port] = sys.argv[2], [int(sys.argv[at]) for at in (1, 3)]
seconds, interval = float(sys.argv[4]), float(sys.argv[5]) / 1000
padding = bytes(int(sys.argv[6]) - 4 if len(sys.argv) > 6 else 60)
SO_TIMESTAMPNS = 35
family = socket.AF_INET6 if ":" in target else socket.AF_INET
link = socket.socket(family, socket.SOCK_DGRAM)
link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
link.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
link.bind(("::" if family == socket.AF_INET6 else "0.0.0.0", port))
link.connect((target, target_port))
link.settimeout(0.5)

sent, came = {}, {}


def hear():
    while True:
        try:
            data, ancillary, _, _ = link.recvmsg(16384, 256)
        except TimeoutError:
            if ended.is_set():
                return
            continue
        except ConnectionRefusedError:
            continue
        number = struct.unpack("!I", data[:4])[0]
        for level, kind, stamp in ancillary:
            if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS:
                whole, part = struct.unpack("ll", stamp[:16])
                came.setdefault(number, whole + part / 1e9)


def send(number):
    sent[number] = time.time()
    try:
        link.send(struct.pack("!I", number) + padding)
    except (ConnectionRefusedError, BlockingIOError):
        pass


ended = threading.Event()
listener = threading.Thread(target=hear)
listener.start()
# The first opens the session.
for _ in range(40):
    send(0)
    time.sleep(0.25)
    if 0 in came:
        break
else:
    ended.set()
    sys.exit("nobody answers")
print("open", flush=True)

began = time.monotonic()
number = 0
while (now := time.monotonic()) < began + seconds:
    number += 1
    send(number)
    time.sleep(max(0, began + number * interval - time.monotonic()))
time.sleep(1)
ended.set()
listener.join()

missing, run, longest = 0, 0, 0
for at in range(1, number + 1):
    run = 0 if at in came else run + 1
    missing, longest = missing + (at not in came), max(longest, run)
worst = max((came[at] - sent[at] for at in range(1, number + 1) if at in came), default=seconds)
print(json.dumps({
    "sent": number,
    "missing": missing,
    "longest_run": longest,
    "worst_ms": round(worst * 1000, 2),
}), flush=True)
