#!/usr/bin/env python3
"""Engines beside each other: the same calls to each, the server on core 0, h2load on core 1.

`quire serve` and `tonic-bookstore` answer Lookup from the same store; the others answer the contract of
`arena/benchmark.proto`. Rounds are interleaved, so that a machine that slows down slows all; medians are printed. CPU a
call is the server's own, over the calls that h2load counted. The floor is a server that waits, reads and writes and does
nothing else, asked one message at a time in the same rounds. `bench/servers.py` says who takes part and what each is able
to do, `bench/loads.py` what is asked.
"""

import argparse
import contextlib
import os
import subprocess
import tempfile

from bench import check, report
from bench.loads import FORTUNES, LOADS, TABLES, Load
from bench.measure import Figures, measure
from bench.servers import BUILT, CLIENT_CORE, PEERS, ROOT, Peer, Redis, Server, certificate

QUICK_SECONDS = 0.2


class Floor(Server):
    """The server that does nothing."""

    def __init__(self, rust: str, place: dict[str, object]):
        self.program = f"{rust}/tcp-floor"
        super().__init__(Peer("floor", (self.program, "serve", "127.0.0.1:{port}"), ()), place, False)

    def measure(self, seconds: float) -> Figures:
        command = ["taskset", "-c", CLIENT_CORE, self.program, "ask", f"127.0.0.1:{self.port}", str(seconds)]
        before = self.cpu_ns()
        done = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        return Figures(done / seconds, (self.cpu_ns() - before) / done / 1000)


def arguments() -> argparse.Namespace:
    names = [peer.name for peer in PEERS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2, help="how long a load lasts in a round")
    parser.add_argument("--quick", action="store_true", help="one round of short loads: whether all works, not how well")
    parser.add_argument("--only", nargs="+", choices=list(TABLES), default=list(TABLES), metavar="TABLE", help=", ".join(TABLES))
    parser.add_argument("--peers", nargs="+", choices=names, default=names, metavar="PEER", help="; ".join(names))
    parser.add_argument("--check", action="store_true", help="compare the answers to each load; needs grpcio and curl")
    parser.add_argument("--profile", choices=["release", "debug"], default="release", help="which build of the Rust peers")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.rounds, chosen.seconds = 1, QUICK_SECONDS
    return chosen


def start(chosen: argparse.Namespace, running: contextlib.ExitStack, folder: str) -> tuple[list[Server], Floor]:
    """All servers that the chosen tables need, and those that speak TLS a second time."""
    loads = [load for load in LOADS if load.table in chosen.only]
    rust = f"{BUILT}/{chosen.profile}"
    quire = ROOT / ("target/dist/quire" if chosen.profile == "release" else "target/release/quire")
    place: dict[str, object] = {"rust": rust, "quire": quire, "folder": folder, "redis": None}
    place |= certificate(folder)
    if any(load.needs == "fortunes" for load in loads):
        redis = Redis(folder, FORTUNES)
        running.callback(redis.stop)
        place["redis"] = redis.address
    servers = []
    for tls in (False, True):
        needed = {load.needs for load in loads if load.tls == tls}
        for peer in PEERS:
            if peer.name in chosen.peers and needed & set(peer.abilities) and not (chosen.check and "lookup" in peer.abilities):
                server = Server(peer, place, tls)
                running.callback(server.stop)
                servers.append(server)
    floor = Floor(rust, place)
    running.callback(floor.stop)
    for server in [*servers, floor]:
        server.wait()
    return servers, floor


def able(server: Server, load: Load) -> bool:
    return load.needs in server.peer.abilities and load.tls == server.tls


def run(chosen: argparse.Namespace, servers: list[Server], floor: Floor, folder: str) -> tuple[report.Results, list[Figures]]:
    """All rounds."""
    loads = [load for load in LOADS if load.table in chosen.only]
    results: report.Results = {}
    floors = []
    rates: dict[tuple[str, str, str], float] = {}
    for _ in range(chosen.rounds):
        floors.append(floor.measure(chosen.seconds))
        for load in loads:
            for server in servers:
                if not able(server, load):
                    continue
                key = (server.name, load.table, load.call.path)
                if key not in rates:
                    warm_seconds = min(server.peer.warm_seconds, chosen.seconds * 2)
                    rates[key] = measure(server, load, warm_seconds, folder).rate
                figures = measure(server, load, chosen.seconds, folder, rates[key])
                rates[key] = figures.rate
                results.setdefault((server.peer.name, load), []).append(figures)
    return results, floors


def main() -> None:
    chosen = arguments()
    if len(os.sched_getaffinity(0)) < 2:
        raise SystemExit("this comparison needs two cores: one for the server, one for h2load")
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as running:
        servers, floor = start(chosen, running, folder)
        if chosen.check:
            right, wrongs = check.check(servers, chosen.only, folder, f"{folder}/cert.pem")
            print("\n".join(wrongs))
            print(f"{right} passed, {len(wrongs)} failed")
            raise SystemExit(bool(wrongs))
        results, floors = run(chosen, servers, floor, folder)
    for name in chosen.only:
        report.table(results, name, [peer.name for peer in PEERS])
    rate, cpu = (sorted(getattr(one, what) for one in floors)[len(floors) // 2] for what in ("rate", "cpu_us"))
    print(f"\nfloor, one message at a time: {rate:,.0f} exchanges/s, {cpu:.2f} µs CPU an exchange")
    report.goals(results, [one.cpu_us for one in floors])


if __name__ == "__main__":
    main()
