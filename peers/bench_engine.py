#!/usr/bin/env python3
"""Quire's engine beside tonic's, and its protocols beside each other: the same Lookup of the same store, the server on
core 0, h2load on core 1.

Rounds are interleaved, so that a machine that slows down slows both; medians are printed. CPU per call is the
server's own (all its threads, from /proc/PID/task/*/schedstat), over the calls that h2load counted. The floor is
a server that waits, reads and writes and does nothing else, asked one message at a time in the same rounds.
"""

import argparse
import collections
import contextlib
import os
import pathlib
import re
import socket
import statistics
import struct
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
LOADS = [(1, 1), (1, 10), (1, 100), (10, 100), (100, 1), (256, 100), (1024, 100)]
# Calls in place of a second, where the clock cannot be used.
MANY_CALLS = 300_000
BOOK = 53477
FLOOR = str(ROOT / "peers/target/release/tcp-floor")
# The other services stay out, with the ports they would take.
ALONE = ["--set", "kv.enabled=false", "--set", "rpcgame.enabled=false", "--set", "tasks.enabled=false"]
PATH = "/bookstore.BookStore/Lookup"
GRPC = "application/grpc"
# The load of the protocols, and the ways of asking: name, content type, whether a prefix stands before the message.
PROTOCOLS_LOAD = (10, 100)
PROTOCOLS = [
    ("gRPC-Web", "application/grpc-web+proto", True),
    ("Connect", "application/proto", False),
    ("Connect, JSON", "application/json", False),
    ("gRPC, JSON", "application/grpc+json", True),
]


def varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def message(kind: str, prefixed: bool) -> bytes:
    """ItemNumberRequest{id: BOOK}, behind gRPC's five-byte prefix if that is asked for."""
    body = f'{{"id":{BOOK}}}'.encode() if kind.endswith("json") else b"\x08" + varint(BOOK)
    return struct.pack(">BI", 0, len(body)) + body if prefixed else body


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Server:
    def __init__(self, name: str, command: list[str], port: int):
        self.name, self.port = name, port
        self.process = subprocess.Popen(
            ["taskset", "-c", "0", *command], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.results: dict[object, list[tuple[float, float]]] = collections.defaultdict(list)

    def wait(self) -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise SystemExit(f"{self.name} ended by itself with code {self.process.returncode}")
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
        raise SystemExit(f"{self.name} does not listen on port {self.port}")

    def cpu_ns(self) -> int:
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks)

    def measure(
        self, load: tuple[int, int], seconds: float, payload: str, kind: str = GRPC, key: object = None, scheme: str = "http"
    ) -> None:
        connections, streams = load
        before = self.cpu_ns()
        command = ["taskset", "-c", "1", "h2load", "-c", str(connections), "-m", str(streams)]
        # With very many connections h2load does not end by the clock.
        command += ["-n", f"{seconds * MANY_CALLS:.0f}"] if connections > 100 else ["-D", f"{seconds * 1000:.0f}ms"]
        command += ["-d", payload, "-H", f"content-type: {kind}", "-H", "te: trailers"]
        out = subprocess.run(
            [*command, f"{scheme}://127.0.0.1:{self.port}{PATH}"], capture_output=True, text=True, check=True
        ).stdout
        cpu = self.cpu_ns() - before
        rate = float(re.search(r"finished in [\d.]+m?s, ([\d.]+) req/s", out).group(1))
        counts = re.search(r"(\d+) total, (\d+) started, (\d+) done, (\d+) succeeded, (\d+) failed", out)
        done, failed = int(counts.group(3)), int(counts.group(5))
        if failed or not done:
            raise SystemExit(f"{self.name}: {failed} of {done} calls failed\n{out}")
        self.results[key or load].append((rate, cpu / done / 1000))

    def measure_floor(self, seconds: float) -> None:
        before = self.cpu_ns()
        command = ["taskset", "-c", "1", FLOOR, "ask", f"127.0.0.1:{self.port}", str(seconds)]
        done = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        self.results[LOADS[0]].append((done / seconds, (self.cpu_ns() - before) / done / 1000))

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--seconds", type=float, default=2)
    arguments = arguments.parse_args()
    if len(os.sched_getaffinity(0)) < 2:
        raise SystemExit("this comparison needs two cores: one for the server, one for h2load")
    with tempfile.TemporaryDirectory() as folder:
        payload = pathlib.Path(folder, "lookup.bin")
        payload.write_bytes(message(GRPC, True))
        for name, kind, prefixed in PROTOCOLS:
            pathlib.Path(folder, name).write_bytes(message(kind, prefixed))
        certificate = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
        certificate += ["-keyout", f"{folder}/key.pem", "-out", f"{folder}/cert.pem"]
        subprocess.run(["openssl", "req", "-x509", *certificate], check=True, capture_output=True)
        ports = [free_port() for _ in range(4)]
        quire = [ROOT / "target/release/quire", "serve", *ALONE, "--data", f"{folder}/quire"]
        quire += ["--listen", f"127.0.0.1:{ports[0]}", "--log-level", "error"]
        tonic = [ROOT / "peers/target/release/tonic-bookstore", f"127.0.0.1:{ports[1]}", f"{folder}/tonic.db"]
        servers = [Server("quire", [str(word) for word in quire], ports[0])]
        servers.append(Server("tonic", [str(word) for word in tonic], ports[1]))
        tls = ["--listen", f"127.0.0.1:{ports[3]}", "--data", f"{folder}/tls", "--set", f"tls.certificate={folder}/cert.pem"]
        tls = [*quire[:2], *ALONE, *tls, "--set", f"tls.key={folder}/key.pem", "--log-level", "error"]
        sealed = Server("quire over TLS", [str(word) for word in tls], ports[3])
        floor = Server("floor", [FLOOR, "serve", f"127.0.0.1:{ports[2]}"], ports[2])
        try:
            floor.wait()
            sealed.wait()
            for server in servers:
                server.wait()
                server.measure(LOADS[0], 0.5, str(payload))
                server.results[LOADS[0]].clear()
            for _ in range(arguments.rounds):
                floor.measure_floor(arguments.seconds)
                for load in LOADS:
                    for server in servers:
                        server.measure(load, arguments.seconds, str(payload))
                    if load == PROTOCOLS_LOAD:
                        for name, kind, _ in PROTOCOLS:
                            servers[0].measure(load, arguments.seconds, f"{folder}/{name}", kind, name)
                        sealed.measure(load, arguments.seconds, str(payload), key="gRPC over TLS", scheme="https")
        finally:
            for server in [*servers, sealed, floor]:
                server.stop()
    print(f"{'connections x calls in flight':32}" + "".join(f"{f'{c}x{m}':>12}" for c, m in LOADS))
    rows = {}
    for server in servers:
        for place, what in enumerate(["req/s", "µs CPU a call"]):
            rows[server.name, place] = [statistics.median(r[place] for r in server.results[load]) for load in LOADS]
            cells = (f"{value:>12,.0f}" if place == 0 else f"{value:>12.2f}" for value in rows[server.name, place])
            print(f"{f'{server.name}, {what}':32}" + "".join(cells))
    for place, what in enumerate(["quire/tonic, req/s", "tonic/quire, CPU a call"]):
        over, under = ("quire", "tonic") if place == 0 else ("tonic", "quire")
        ratios = (a / b for a, b in zip(rows[over, place], rows[under, place]))
        print(f"{what:32}" + "".join(f"{ratio:>12.2f}" for ratio in ratios))

    plain = rows["quire", 1][LOADS.index(PROTOCOLS_LOAD)]
    print(f"\nquire at {PROTOCOLS_LOAD[0]}x{PROTOCOLS_LOAD[1]}: µs CPU a call, times gRPC's {plain:.2f}")
    results = {name: servers[0].results[name] for name, _, _ in PROTOCOLS} | sealed.results
    for name, measured in results.items():
        cpu = statistics.median(r[1] for r in measured)
        print(f"{name:32}{cpu:>12.2f}{cpu / plain:>12.2f}")

    rate, cpu = (statistics.median(r[place] for r in floor.results[LOADS[0]]) for place in (0, 1))
    print(f"floor, one message at a time: {rate:,.0f} exchanges/s, {cpu:.2f} µs CPU an exchange")


if __name__ == "__main__":
    main()
