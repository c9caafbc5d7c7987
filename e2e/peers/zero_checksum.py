"""UDP without checksums, which needs a socket option that Rust's library does not offer.

`echo PORT` answers every datagram with itself; `probe ADDRESS PORT COUNT` sends COUNT datagrams,
a new socket for each, and says how many came back unchanged. RFC 768: a checksum of zero means
that the sender made none.
"""

import socket
import sys

SO_NO_CHECK = 11  # asm-generic/socket.h


def unchecked():
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
    return made


def echo(port):
    server = unchecked()
    server.bind(("0.0.0.0", port))
    print("listening", flush=True)
    while True:
        data, sender = server.recvfrom(65536)
        server.sendto(data, sender)


def probe(address, port, count):
    answered = 0
    for number in range(count):
        with unchecked() as client:
            client.settimeout(2)
            client.connect((address, port))
            data = bytes((number + at) % 256 for at in range(100 + number % 2))
            client.send(data)
            answered += client.recv(65536) == data
    print("answered", answered, flush=True)


if __name__ == "__main__":
    role, *words = sys.argv[1:]
    if role == "echo":
        echo(int(words[0]))
    else:
        probe(words[0], int(words[1]), int(words[2]))
