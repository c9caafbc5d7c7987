#!/usr/bin/python3
"""What a large configuration costs: time to load, to reload, to change, and memory.

A director with SERVICES virtual services of REALS real servers each, in a network namespace of its
own, without traffic. Measured from outside: `sluiced` is started, and the control socket is asked
until it answers; then the file is read again with one weight changed; then clients change weights
by the API, then states (down, up again), each change synced to the disk before it is answered; then
the director is stopped and started from its journal. Run it as root, after `make build`:

    bench/scale.py [--services 10000] [--reals 10] [--clients 1,8,64] [--seconds 5] [--json]

Every step must succeed, or it ends with an error and exit code 1.
"""

import argparse
import ctypes
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

PATIENCE_S = 120
CLONE_NEWNET = 0x40000000


def real(index):
    """The address of the real server with this number: 10.0.0.0/8 has room for 16 million."""
    return f"10.{index >> 16 & 255}.{index >> 8 & 255}.{index & 255}"


def configuration(place, services, reals):
    yield f'[director]\ncontrol_socket = "{place}/s.sock"\nstate_dir = "{place}/state"\n'
    yield '[limits]\nsessions = 100000\n[[port]]\nname = "front"\ndevice = "tap:front0"\n'
    yield '[[pool]]\nname = "lan"\naddresses = ["192.0.2.10"]\n'
    for service in range(services):
        vip = f"198.18.{service // 250 % 250}.{service % 250 + 1}"
        yield f'[[service]]\nname = "s{service}"\nprotocol = "tcp"\nvip = "{vip}"\n'
        yield f'port = {80 + service // 62500}\npool = "lan"\n'
        for own in range(reals):
            yield f'[[service.real]]\naddress = "{real(service * reals + own)}"\nport = 8080\n'


class Connection(http.client.HTTPConnection):
    """HTTP over the control socket."""

    def __init__(self, path):
        super().__init__("director", timeout=PATIENCE_S)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)

    def ask(self, method, target, body=None):
        kind = {"Content-Type": "application/json"} if body else {}
        self.request(method, target, body, kind)
        answer = self.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise SystemExit(f"scale: {method} {target}: {answer.status} {text.decode()}")
        return json.loads(text)


class Director:
    """A running `sluiced`."""

    started = []

    def __init__(self, place):
        self.socket = f"{place}/s.sock"
        self.log = open(f"{place}/log", "ab")
        programs = os.environ.get("SLUICE_BIN_DIR", "target/release")
        begun = time.monotonic()
        command = [f"{programs}/sluiced", "--config", f"{place}/sluice.toml"]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        self.started.append(self.process)
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() - begun > PATIENCE_S:
                raise SystemExit(f"scale: no director:\n{open(f'{place}/log').read()[-2000:]}")
            time.sleep(0.005)
        self.took_s = time.monotonic() - begun

    def answers(self):
        try:
            Connection(self.socket).ask("GET", "/v1/status")
            return True
        except OSError:
            return False

    def resident_mb(self):
        for line in open(f"/proc/{self.process.pid}/status"):
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        return None

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE_S)


def weight(client, turn):
    """Put in force as it is."""
    return {"weight": 1 + (client + turn) % 60000}


def state(_, turn):
    """Compiled: a real server that is down is not probed."""
    return {"state": "up" if turn % 2 else "down"}


def changes(path, what, clients, seconds, services, reals):
    """By so many clients at once: changes a second, and quantiles of an answer's time."""
    until, took, failed = time.monotonic() + seconds, [], []

    def work(client):
        connection, turn = Connection(path), 0
        while time.monotonic() < until and not failed:
            service = (client * 131 + turn // 2 * 7) % services
            target = f"/v1/config/services/s{service}/reals/{real(service * reals)}:8080"
            begun = time.monotonic()
            try:
                connection.ask("PATCH", target, json.dumps(what(client, turn)))
            except SystemExit as error:
                failed.append(str(error))
            took.append(time.monotonic() - begun)
            turn += 1

    threads = [threading.Thread(target=work, args=(client,)) for client in range(clients)]
    begun = time.monotonic()
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    if failed:
        raise SystemExit(failed[0])
    took.sort()
    at = lambda share: took[min(len(took) - 1, int(len(took) * share))] * 1e3
    return {
        "what": what.__name__,
        "clients": clients,
        "changes_per_s": len(took) / (time.monotonic() - begun),
        "median_ms": at(0.5),
        "p99_ms": at(0.99),
    }


def measure(place, asked):
    services, reals = asked.services, asked.reals
    text = "".join(configuration(place, services, reals))
    with open(f"{place}/sluice.toml", "w") as file:
        file.write(text)
    director = Director(place)
    found = {"services": services, "reals": reals, "start_s": director.took_s}
    found["resident_mb"] = director.resident_mb()
    with open(f"{place}/sluice.toml", "w") as file:
        file.write(text.replace("port = 8080\n", "port = 8080\nweight = 3\n", 1))
    connection, begun = Connection(director.socket), time.monotonic()
    connection.ask("POST", "/v1/config/reload")
    found["reload_s"] = time.monotonic() - begun
    found["changes"] = [
        changes(director.socket, what, clients, asked.seconds, services, reals)
        for what in (weight, state)
        for clients in asked.clients
    ]
    director.stop()
    director = Director(place)
    found["start_again_s"] = director.took_s
    director.stop()
    return found


def show(found):
    print(f"{found['services']:,} services x {found['reals']} real servers")
    print(f"  start to the first answer   {found['start_s']:6.2f} s")
    print(f"  start from the journal      {found['start_again_s']:6.2f} s")
    print(f"  reload of a changed file    {found['reload_s']:6.2f} s")
    print(f"  memory                      {found['resident_mb']:6.0f} MB")
    for line in found["changes"]:
        print(
            f"  {line['what']:6} by {line['clients']:3} clients       "
            f"{line['changes_per_s']:6.0f} a second, an answer takes "
            f"{line['median_ms']:.1f} ms (p99 {line['p99_ms']:.1f} ms)"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--services", type=int, default=10_000)
    parser.add_argument("--reals", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=5, help="for each number of clients")
    numbers = lambda text: [int(part) for part in text.split(",")]
    parser.add_argument("--clients", type=numbers, default=[1, 8, 64])
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("scale: run it as root: it makes a network namespace")
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
        raise SystemExit(f"scale: no network namespace: {os.strerror(ctypes.get_errno())}")
    place = tempfile.mkdtemp(prefix="sl-scale-")
    try:
        found = measure(place, asked)
    finally:
        for process in Director.started:
            process.kill()
        shutil.rmtree(place)
    if asked.json:
        json.dump(found, sys.stdout)
        print()
    else:
        show(found)


if __name__ == "__main__":
    main()
