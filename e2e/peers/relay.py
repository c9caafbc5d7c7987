"""Passes TCP connections to a port of 127.0.0.1 on to a Unix socket: what makes a director's API
reachable for a program that knows TCP only."""

import socket
import sys
import threading


def pump(source, sink):
    """Copies until the source ends, then tells the sink so."""
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def main():
    port, path = int(sys.argv[1]), sys.argv[2]
    listener = socket.create_server(("127.0.0.1", port))
    print("listening", flush=True)
    while True:
        client, _ = listener.accept()
        server = socket.socket(socket.AF_UNIX)
        server.connect(path)
        for pair in ((client, server), (server, client)):
            threading.Thread(target=pump, args=pair, daemon=True).start()


main()
