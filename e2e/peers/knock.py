#!/usr/bin/env python3
"""Opens one TCP connection after the other, asks for a page, and says how each went.

knock.py ADDRESS PORT SECONDS [PAUSE_MS [TIMEOUT_MS]]

Each line: when it began (seconds since 1970), `ok`, `refused` or `silent`, and the answer's body.
"""
import socket
import sys
import time

address, port, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
pause = float(sys.argv[4]) / 1000 if len(sys.argv) > 4 else 0.004
patience = float(sys.argv[5]) / 1000 if len(sys.argv) > 5 else 0.5
end = time.time() + seconds
print("listening", flush=True)
while time.time() < end:
    begun = time.time()
    outcome, body = "ok", ""
    try:
        with socket.create_connection((address, port), timeout=patience) as it:
            it.sendall(b"GET / HTTP/1.0\r\n\r\n")
            answer = b""
            while piece := it.recv(4096):
                answer += piece
            body = answer.split(b"\r\n\r\n", 1)[-1].decode().strip()
            if not answer:
                outcome = "refused"
    except (ConnectionRefusedError, ConnectionResetError):
        outcome = "refused"
    except OSError:
        outcome = "silent"
    print(f"{begun:.6f} {outcome} {body}", flush=True)
    time.sleep(pause)
