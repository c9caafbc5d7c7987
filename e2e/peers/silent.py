"""Connections that say nothing until they are told to, by SIGUSR1.

silent.py serve PORT              accepts; echoes each line; when told, says `spoken` on each
silent.py hold ADDRESS PORT COUNT opens COUNT connections and says `open`; when told, says a line on
                                  every second one and waits for its echo, and on the others for
                                  the server's line; ends with 0 if all came

No keep-alive, no data before: the director sees the handshake and then nothing.
"""
import selectors
import signal
import socket
import sys

PATIENCE_S = 20


def serve(port):
    selector, connections = selectors.DefaultSelector(), []

    def speak(*_):
        for connection in connections:
            connection.sendall(b"spoken\n")

    signal.signal(signal.SIGUSR1, speak)
    listener = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
    selector.register(listener, selectors.EVENT_READ)
    print("listening", flush=True)
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                connection, _ = listener.accept()
                connections.append(connection)
                selector.register(connection, selectors.EVENT_READ)
                continue
            data = key.fileobj.recv(4096)
            if data:
                key.fileobj.sendall(data)
            else:
                selector.unregister(key.fileobj)
                connections.remove(key.fileobj)
                key.fileobj.close()


def hold(address, port, count):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    all_of_them = [socket.create_connection((address, port), timeout=5) for _ in range(count)]
    print("open", flush=True)
    signal.sigwait([signal.SIGUSR1])
    for connection in all_of_them:
        connection.settimeout(PATIENCE_S)
    for number, connection in enumerate(all_of_them):
        if number % 2 == 0:
            connection.sendall(b"there?\n")
    for number, connection in enumerate(all_of_them):
        lines = connection.makefile("rb")
        expected = {b"there?\n", b"spoken\n"} if number % 2 == 0 else {b"spoken\n"}
        while expected:
            line = lines.readline()
            if line not in expected:
                sys.exit(f"connection {number}: {line!r} is not of {expected}")
            expected.discard(line)
    print(f"all {count} spoke", flush=True)


if sys.argv[1] == "serve":
    serve(int(sys.argv[2]))
else:
    hold(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
