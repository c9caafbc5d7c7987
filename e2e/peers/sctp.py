"""SCTP (RFC 9260) between two real stacks: the kernel's where it has one, otherwise FreeBSD's in
user space (usrsctp, over raw sockets, which a kernel without SCTP leaves alone).

`sctp.py echo ADDRESS PORT` says `listening` and by which stack, and answers each message with
itself. `sctp.py probe FROM ADDRESS PORT COUNT SIZE` opens an association, sends COUNT messages of
up to SIZE bytes, each when the one before has come back, and ends it in order.
Both bind to one address, so that associations have a single path: the one that is tested.
"""

import ctypes
import ipaddress
import signal
import socket
import struct
import sys
import threading
import time

IPPROTO_SCTP = 132
SCTP_NODELAY = {"kernel": 3, "usrsctp": 4}  # linux/sctp.h, usrsctp.h
ON = struct.pack("=I", 1)
PATIENCE_S = 20


def packed(address, port):
    """A `sockaddr_in` or `sockaddr_in6`."""
    ip = ipaddress.ip_address(address)
    port = struct.pack("!H", port)
    if ip.version == 4:
        return struct.pack("=H2s4s8x", socket.AF_INET, port, ip.packed)
    return struct.pack("=H2s4x16s4x", socket.AF_INET6, port, ip.packed)


class Kernel:
    """An endpoint or association of the kernel's."""

    name = "kernel"

    def __init__(self, address, port, made=None):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.end = made or socket.socket(family, socket.SOCK_STREAM, IPPROTO_SCTP)
        if not made:
            self.end.bind((address, port))

    @staticmethod
    def there():
        try:
            socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_SCTP).close()
        except OSError:
            return False
        return True

    def accept(self):
        self.end.listen(64)
        while True:
            yield Kernel("", 0, self.end.accept()[0])

    def at_once(self):
        self.end.setsockopt(IPPROTO_SCTP, SCTP_NODELAY[self.name], ON)

    def connect(self, address, port):
        self.end.connect((address, port))

    def send(self, message):
        self.end.sendall(message)

    def receive(self, size):
        return self.end.recv(size)

    def close(self):
        self.end.close()

    @staticmethod
    def finish():
        pass


class User:
    """An endpoint or association of usrsctp's."""

    name = "usrsctp"
    calls = None

    def __init__(self, address, port, made=None):
        if not User.calls:
            User.calls = User.load()
        if made:
            self.end = made
            return
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        make = self.calls.usrsctp_socket
        self.end = self.must(
            make(family, socket.SOCK_STREAM, IPPROTO_SCTP, None, None, 0, None), "socket"
        )
        own = packed(address, port)
        self.must(self.calls.usrsctp_bind(self.end, own, len(own)) == 0, "bind")

    @staticmethod
    def load():
        calls = ctypes.CDLL("libusrsctp.so.2", use_errno=True)
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        calls.usrsctp_init.argtypes = [ctypes.c_uint16, pointer, pointer]
        calls.usrsctp_socket.restype = pointer
        calls.usrsctp_socket.argtypes = [ctypes.c_int] * 3 + [pointer] * 2 + [
            ctypes.c_uint32,
            pointer,
        ]
        for name in ("bind", "connect"):
            function = getattr(calls, f"usrsctp_{name}")
            function.argtypes = [pointer, ctypes.c_char_p, ctypes.c_uint32]
        calls.usrsctp_setsockopt.argtypes = [pointer, ctypes.c_int, ctypes.c_int] + [
            ctypes.c_char_p,
            ctypes.c_uint32,
        ]
        calls.usrsctp_listen.argtypes = [pointer, ctypes.c_int]
        calls.usrsctp_accept.restype = pointer
        calls.usrsctp_accept.argtypes = [pointer] * 3
        calls.usrsctp_sendv.restype = ctypes.c_ssize_t
        calls.usrsctp_sendv.argtypes = (
            [pointer, ctypes.c_char_p, size, pointer, ctypes.c_int, pointer]
            + [ctypes.c_uint32, ctypes.c_uint, ctypes.c_int]
        )
        calls.usrsctp_recvv.restype = ctypes.c_ssize_t
        calls.usrsctp_recvv.argtypes = [pointer, ctypes.c_char_p, size] + [pointer] * 6
        calls.usrsctp_close.argtypes = [pointer]
        calls.usrsctp_init(0, None, None)
        return calls

    @staticmethod
    def must(done, what):
        if not done:
            raise OSError(ctypes.get_errno(), f"usrsctp_{what}")
        return done

    def accept(self):
        self.must(self.calls.usrsctp_listen(self.end, 64) == 0, "listen")
        while True:
            made = self.calls.usrsctp_accept(self.end, None, None)
            yield User("", 0, self.must(made, "accept"))

    def at_once(self):
        set_option, option = self.calls.usrsctp_setsockopt, SCTP_NODELAY[self.name]
        self.must(set_option(self.end, IPPROTO_SCTP, option, ON, len(ON)) == 0, "setsockopt")

    def connect(self, address, port):
        to = packed(address, port)
        self.must(self.calls.usrsctp_connect(self.end, to, len(to)) == 0, "connect")

    def send(self, message):
        sent = self.calls.usrsctp_sendv(self.end, message, len(message), None, 0, None, 0, 0, 0)
        self.must(sent == len(message), "sendv")

    def receive(self, size):
        buffer = ctypes.create_string_buffer(size)
        sender, info = ctypes.create_string_buffer(128), ctypes.create_string_buffer(128)
        lengths = [ctypes.c_uint32(128), ctypes.c_uint32(128)]
        kind, flags = ctypes.c_uint(0), ctypes.c_int(0)
        got = self.calls.usrsctp_recvv(
            self.end,
            buffer,
            size,
            sender,
            ctypes.addressof(lengths[0]),
            info,
            ctypes.addressof(lengths[1]),
            ctypes.addressof(kind),
            ctypes.addressof(flags),
        )
        self.must(got >= 0, "recvv")
        return buffer.raw[:got]

    def close(self):
        self.calls.usrsctp_close(self.end)

    def finish(self):
        # It refuses as long as an association still says goodbye.
        while self.calls.usrsctp_finish() != 0:
            time.sleep(0.01)


Stack = Kernel if Kernel.there() else User


def serve(association):
    association.at_once()
    while message := association.receive(65536):
        association.send(message)
    association.close()


def echo(address, port):
    end = Stack(address, port)
    associations = end.accept()
    print("listening", Stack.name, flush=True)
    for association in associations:
        threading.Thread(target=serve, args=[association], daemon=True).start()


def probe(own, address, port, count, size):
    signal.alarm(PATIENCE_S)
    end = Stack(own, 0)
    end.at_once()
    end.connect(address, port)
    for number in range(count):
        message = bytes((number + at * 31) % 251 for at in range(1 + number * 97 % size))
        end.send(message)
        back = b""
        while len(back) < len(message):
            part = end.receive(65536)
            assert part, f"message {number}: the association ended"
            back += part
        assert back == message, f"message {number} came back changed"
    end.close()
    end.finish()
    print("answered", count, flush=True)


role, *words = sys.argv[1:]
if role == "echo":
    echo(words[0], int(words[1]))
else:
    probe(words[0], words[1], *(int(word) for word in words[2:]))
