#!/usr/bin/env python3
"""gRPC's health service, by grpcio. USR1 makes it say NOT_SERVING, USR2 SERVING again."""
import signal
import sys
from concurrent import futures

import grpc

serving = True


def check(request: bytes, _context) -> bytes:
    # HealthCheckRequest{service: 1}: nobody else is known.
    if request not in (b"", b"\x0a\x03web"):
        _context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
    return b"\x08\x01" if serving else b"\x08\x02"


def become(state):
    def act(*_):
        global serving
        serving = state

    return act


signal.signal(signal.SIGUSR1, become(False))
signal.signal(signal.SIGUSR2, become(True))
handler = grpc.unary_unary_rpc_method_handler(check)
service = grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": handler})
server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
server.add_generic_rpc_handlers((service,))
server.add_insecure_port(f"0.0.0.0:{sys.argv[1]}")
server.start()
print("listening", flush=True)
while True:
    signal.pause()
