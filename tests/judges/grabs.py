"""Attacks on what all clients share (calls, connections, bytes, memory, CPU), beside a neighbour with a credential of its own.

`python grabs.py QUIRE` prints a table: the neighbour's refused calls and waits, what the server's memory grew by, and
how long after the attack all was given back.
"""

import contextlib
import hashlib
import json
import multiprocessing
import pathlib
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from attacks import (ACK, BOOK, DATA, END_HEADERS, END_STREAM, HEADERS, KEY, LOOKUP, PING, PREFACE, SETTINGS, VALUE_BYTES,
                     WINDOW_UPDATE, batches, call_head, drain, field, fields, frame, get_head, large_rows, message, percentile,
                     read_frame, resident_bytes, spin)

# Two clients: one attacks, the other has an address of its own.
ATTACKER, NEIGHBOUR = "127.0.0.2", "127.0.0.1"
# Each credential's scopes; its token is its name, repeated.
CREDENTIALS = {"till": "shop", "attacker": "kv,records,shop", "viewer": "records"}
RETRIEVE, PUT = b"/io.grpc.KeyValueService/Retrieve", b"/io.grpc.KeyRangeService/Put"
DELETE = b"/io.grpc.KeyValueService/Delete"
PART_BYTES = 16_000
# A field that no contract has, of almost 4 MiB of zeros, as `brotli -q 11` packs it.
BROTLI_BOMB = message(bytes.fromhex("9bfdff3ff88f94abfdc25c0788e2ff2b0083b82d10187bffe31e"), True)


def token(name):
    return (name * 24)[:24]


def bearer(name):
    return (b"authorization", b"Bearer " + token(name).encode())


def start(address, source=ATTACKER, window=1 << 24):
    """A connection from `source`, over HTTP/2 with this window for each stream; with `None` nothing is sent."""
    host, port = address.rsplit(":", 1)
    sock = socket.create_connection((host, int(port)), source_address=(source, 0), timeout=10)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if window is not None:
        sock.sendall(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, window)) + frame(SETTINGS, ACK, 0)
                     + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 30)))
    return sock


def call(stream, path, body, *more):
    """The frames of a call that has one message, already framed."""
    parts = range(0, len(body), PART_BYTES)
    return frame(HEADERS, END_HEADERS, stream, call_head(path, *more)) + b"".join(
        frame(DATA, END_STREAM * (at + PART_BYTES >= len(body)), stream, body[at:at + PART_BYTES]) for at in parts)


def put(key):
    return message(field(1, key) + field(2, b"v" * VALUE_BYTES))


class Sockets:
    """An attack's open connections; the server may end any of them at any time."""

    def __init__(self, server, until):
        self.server, self.until, self.open = server, until, []

    def start(self, *, window=1 << 24, port=None, is_read=True):
        sock = start(port or self.server.address, window=window)
        sock.settimeout(0.2)
        self.open.append(sock)
        if is_read:
            threading.Thread(target=drain, args=[sock], daemon=True).start()
        return sock

    def goes_on(self):
        return time.monotonic() < self.until

    def wait(self):
        time.sleep(max(0, self.until - time.monotonic()))

    def close(self, sockets=None):
        for sock in sockets or self.open:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()


def open_calls(sockets, path, body, *more):
    """80 connections with 250 calls each, and silence."""
    for _ in range(80):
        with contextlib.suppress(OSError):
            sock = sockets.start()
            sock.sendall(b"".join(
                frame(HEADERS, END_HEADERS, stream, call_head(path, *more)) + (frame(DATA, END_STREAM, stream, body) if body else b"")
                for stream in range(1, 501, 2)))
    sockets.wait()


def watches(sockets):
    """Health/Watch, without a credential."""
    open_calls(sockets, b"/grpc.health.v1.Health/Watch", message(b""))


def reflections(sockets):
    """Reflection streams, with a credential of any scope."""
    open_calls(sockets, b"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", b"", bearer("viewer"))


def ask_again_and_again(sockets, requests):
    """16 new connections each half a second, with answers that no one reads."""
    last = []
    while sockets.goes_on():
        new = []
        for _ in range(16):
            with contextlib.suppress(OSError):
                new.append(sockets.start(window=0, is_read=False))
                new[-1].sendall(requests)
        sockets.close(last)
        last = new
        time.sleep(0.5)


def unread_values(sockets):
    """Six untaken answers of a megabyte for each connection, all of one value."""
    ask_again_and_again(sockets, b"".join(call(n, RETRIEVE, message(field(1, KEY)), bearer("attacker")) for n in range(1, 13, 2)))


def unread_pages(sockets):
    """Six untaken pages of megabytes for each connection, each made anew."""
    head = get_head(b"/search?headerKey=kind&headerValue=large") + fields(bearer("attacker"))
    ask_again_and_again(sockets, b"".join(frame(HEADERS, END_HEADERS | END_STREAM, n, head) for n in range(1, 13, 2)))


def patient_readers(sockets):
    """Connections that hold 20 values each and read an eighth of them a second."""
    streams = range(1, 41, 2)
    for _ in range(16):
        with contextlib.suppress(OSError):
            sockets.start(window=0).sendall(b"".join(call(n, RETRIEVE, message(field(1, KEY)), bearer("attacker")) for n in streams))
    updates = b"".join(frame(WINDOW_UPDATE, 0, n, struct.pack(">I", VALUE_BYTES // 8)) for n in streams)
    while sockets.goes_on():
        for sock in sockets.open:
            with contextlib.suppress(OSError):
                sock.sendall(updates)
        time.sleep(1)


def bodies_of_strangers(sockets):
    """Without a credential: 16 MB of messages for each connection, the last byte of each missing."""
    part = b"x" * PART_BYTES
    head = (b"POST /bookstore.BookStore/Buy HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/proto\r\n"
            b"content-length: 4000000\r\n\r\n")
    while sockets.goes_on():
        for _ in range(14):
            with contextlib.suppress(OSError):
                sock = sockets.start()
                for n in range(1, 9, 2):
                    sock.sendall(frame(HEADERS, END_HEADERS, n, call_head(b"/bookstore.BookStore/Buy"))
                                 + frame(DATA, 0, n, struct.pack(">BI", 0, 4_000_000)) + frame(DATA, 0, n, part) * 249)
            with contextlib.suppress(OSError):
                sockets.start(window=None).sendall(head + part * 249)
        time.sleep(0.2)


def idle_connections(sockets, port=None):
    """More connections than there are, and silence."""
    for _ in range(700):
        with contextlib.suppress(OSError):
            sockets.start(window=None, port=port, is_read=False)
    sockets.wait()


def idle_task_connections(sockets):
    idle_connections(sockets, sockets.server.tasks)


def idle_lean_connections(sockets):
    idle_connections(sockets, sockets.server.lean)


def heads_without_end(sockets):
    """Heads of 60 kB over HTTP/1.1 that no blank line ends."""
    for _ in range(3500):
        with contextlib.suppress(OSError):
            sock = sockets.start(window=None, is_read=False)
            sock.setblocking(False)
            sock.send(b"GET / HTTP/1.1\r\nhost: localhost\r\nx-y: " + b"y" * 60_000)
    sockets.wait()


def values_without_end(sockets):
    """Values of a megabyte under ever new keys."""
    number = 0
    while sockets.goes_on():
        with contextlib.suppress(OSError):
            sock = sockets.start()
            for stream in range(1, 1 << 20, 2):
                number += 1
                sock.sendall(call(stream, PUT, put(b"filler %d" % number), bearer("attacker")))
                if not sockets.goes_on():
                    break


def flood(sockets, parts):
    while sockets.goes_on():
        with contextlib.suppress(OSError):
            sock = sockets.start()
            sock.settimeout(max(0.01, sockets.until - time.monotonic()))
            for part in parts():
                sock.sendall(part)
                if not sockets.goes_on():
                    break


def brotli_bombs(sockets):
    """Messages of 26 bytes that hold 4 MiB each."""
    flood(sockets, lambda: batches(lambda n: call(n, LOOKUP, BROTLI_BOMB, (b"grpc-encoding", b"br"), bearer("attacker"))))


def brotli_bombs_in_a_stream(sockets):
    def parts():
        head = call_head(b"/RPCGameStream/Play", (b"grpc-encoding", b"br"), bearer("attacker"))
        yield from batches(lambda n: frame(HEADERS, END_HEADERS, n, head) + frame(DATA, END_STREAM, n, BROTLI_BOMB * 50))
    flood(sockets, parts)


# Each attack with its processes, and the limits that a warning names; an attack that is refused nothing warns of nothing.
GRABS = {
    watches: (1, ["limits.health_watches"]),
    reflections: (1, ["limits.reflection_streams"]),
    unread_values: (1, []),
    unread_pages: (1, []),
    patient_readers: (1, []),
    bodies_of_strangers: (1, ["token"]),
    idle_connections: (2, ["limits.connections"]),
    idle_task_connections: (2, ["tasks.connections"]),
    idle_lean_connections: (2, ["rpcgame.lean_connections"]),
    heads_without_end: (1, ["limits.buffer_bytes"]),
    values_without_end: (1, ["kv.total_bytes"]),
    brotli_bombs: (4, ["compressed messages"]),
    brotli_bombs_in_a_stream: (4, ["compressed messages"]),
}
# Small enough for an attack to reach them at once.
FLAGS = {
    idle_connections: ["--set", "limits.connections=400"],
    idle_task_connections: ["--set", "tasks.connections=1000"],
    values_without_end: ["--set", "kv.total_bytes=64MiB"],
}


def grab(server, attack, until):
    sockets = Sockets(server, until)
    attack(sockets)
    sockets.close()


class Watched:
    """`quire serve` with credentials, and what it holds."""

    def __init__(self, quire, folder, *flags):
        folder = pathlib.Path(folder)
        (folder / "tokens").write_text("".join(
            f"{name} {scopes} sha256:{hashlib.sha256(token(name).encode()).hexdigest()}\n" for name, scopes in CREDENTIALS.items()))
        (folder / "rows.csv").write_text(large_rows())
        self.log = folder / "log"
        command = [quire, "serve", "--listen", "127.0.0.1:0", "--tasks-listen", "127.0.0.1:0", "--data", "data",
                   "--log-format", "json"]
        for setting in ["server.tokens=tokens", "records.csv=rows.csv", "rpcgame.listen=127.0.0.1:0",
                        "rpcgame.lean_listen=127.0.0.1:0", "metrics.open=true", "rpcgame.open=true"]:
            command += ["--set", setting]
        with open(self.log, "w") as log:
            self.process = subprocess.Popen([*command, *flags], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                            stderr=log)
        self.address = self.tasks = self.lean = None
        while not self.address:
            assert self.process.poll() is None, self.log.read_text()
            for line in self.lines():
                said = line["fields"]
                self.tasks = said["address"] if said["message"] == "tasks are served" else self.tasks
                self.lean = said.get("lean", self.lean)
                self.address = said["address"] if said["message"] == "listening" else self.address
        with start(self.address, NEIGHBOUR) as sock, sock.makefile("rb") as stream:
            sock.sendall(call(1, PUT, put(KEY), bearer("attacker")))
            assert answer(sock, stream, 1) is not None

    def lines(self):
        lines = self.log.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def warnings(self):
        return [line["fields"] for line in self.lines() if line["level"] == "WARN"]

    def held(self):
        """What clients hold of the server, by the names of its metrics."""
        names = ["quire_calls_in_flight", "quire_connections", "quire_buffer_bytes"]
        text = urllib.request.urlopen(f"http://{self.address}/metrics", timeout=30).read().decode()
        values = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
        return {name: float(values[name]) for name in names}

    def __enter__(self):
        return self

    def __exit__(self, failure, *_):
        if failure:
            self.process.kill()
            return
        self.process.terminate()
        assert self.process.wait(30) == 0


def answer(sock, stream, number):
    """The first message of a call's answer; `None` if it has none."""
    data = None
    while True:
        kind, flags, of, payload = read_frame(stream)
        if kind == PING and not flags & ACK:
            sock.sendall(frame(PING, ACK, 0, payload))
        if of == number and kind == DATA:
            data = payload
        if of == number and flags & END_STREAM:
            return data


def neighbour(address, seconds):
    """Looks a book up every few milliseconds, over a new connection now and then. Returns the seconds that each call took, in
    order of size, and the number of calls that were refused."""
    waited, refused, sock, number = [], 0, None, 1
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        asked = time.monotonic()
        try:
            if sock is None or number > 400:
                sock, number = start(address, NEIGHBOUR), 1
                stream = sock.makefile("rb")
            sock.sendall(call(number, LOOKUP, BOOK, bearer("till")))
            refused += answer(sock, stream, number) is None
            number += 2
        except OSError:
            refused, sock = refused + 1, None
        waited.append(time.monotonic() - asked)
        time.sleep(0.005)
    return sorted(waited), refused


class Result:
    def __init__(self, server, attack, seconds):
        """Runs an attack for some seconds beside a neighbour; `None` only keeps two cores busy."""
        idle = resident_bytes(server.process)
        until = time.monotonic() + seconds + 1
        processes, _ = GRABS.get(attack, (2, []))
        work = {"target": grab, "args": [server, attack, until]} if attack else {"target": spin, "args": [until]}
        running = [multiprocessing.Process(**work) for _ in range(processes)]
        for process in running:
            process.start()
        time.sleep(1)
        self.waited, self.refused = neighbour(server.address, seconds)
        self.grown = resident_bytes(server.process) - idle
        for process in running:
            process.join(15)
            process.kill()
        ended = time.monotonic()
        while (left := self.left(server)) and time.monotonic() < ended + 10:
            time.sleep(0.1)
        # What clients held is given back after so many seconds; none if it is not.
        self.seconds_to_end = None if left else time.monotonic() - ended

    def left(self, server):
        """What the server still holds, beside the connection that asks."""
        return {name: value for name, value in server.held().items() if value != (name == "quire_connections")}

    def p99(self):
        return percentile(self.waited, 0.99)


def main(binary):
    print("| attack | calls refused | p50 | p99 | longest | memory | all given back after | warnings name |\n" + "|---" * 8 + "|")
    for attack in [None, *GRABS]:
        with tempfile.TemporaryDirectory() as folder:
            with Watched(binary, folder, *FLAGS.get(attack, [])) as server:
                result, warnings = Result(server, attack, 4), server.warnings()
            waits = [f"{1000 * wait:.1f} ms" for wait in
                     [percentile(result.waited, 0.5), result.p99(), result.waited[-1]]]
            named = sorted({line.get("limit", line.get("reason", line["message"])) for line in warnings})
            name = attack.__name__.replace("_", " ") if attack else "none, beside two busy loops"
            print(f"| {name} | {result.refused} of {len(result.waited)} | {' | '.join(waits)} | {result.grown >> 20} MiB "
                  f"| {result.seconds_to_end:.1f} s | {', '.join(named)} |", flush=True)


if __name__ == "__main__":
    main(str(pathlib.Path(sys.argv[1]).absolute()))
