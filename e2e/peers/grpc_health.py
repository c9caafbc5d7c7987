#!/usr/bin/env python3
"""gRPC's health service, by grpcio: NOT_SERVING while a file is there.

grpc_health.py PORT FILE
"""
import os
import sys
from concurrent import futures

import grpc


def check(request: bytes, context) -> bytes:
    # HealthCheckRequest{service: 1}: nobody else is known.
    if request not in (b"", b"\x0a\x03web"):
        context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
    return b"\x08\x02" if os.path.exists(sys.argv[2]) else b"\x08\x01"


class Health(grpc.GenericRpcHandler):
    def service(self, details):
        if details.method == "/grpc.health.v1.Health/Check":
            return grpc.unary_unary_rpc_method_handler(check)
        return None


server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
server.add_generic_rpc_handlers((Health(),))
server.add_insecure_port(f"0.0.0.0:{sys.argv[1]}")
server.start()
print("listening", flush=True)
server.wait_for_termination()
