"""Purchases a second over PostgreSQL, alone and with a quorum, through one to three servers, and where the CPU goes.

    measure.py --quire PROGRAM --bench PROGRAM

Loads come in turns, in an order that chance decides in each round, over one database; of its servers those run that the load
names. The last server commits each purchase by itself, through a pool: the usual way. Prints tables of medians."""

import argparse
import collections
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import grpc

from nodes import Cluster, Process, Server, running, wait_until
from shoppers import stubs

SERVERS = 3
WAITING = 1000
CONNECTIONS = 12
WARM_UP = 1
SECONDS = 3
BOOKS = 10_000
COPIES = 2_000_000_000
USUAL_POOL = 32
BATCH = 4096
LOOKS = 500
KEY = ',"idempotencyKey":"{{hex 16}}"'
BUYS = {
    "one book, keys": '{"id":1' + KEY + "}",
    "one book": '{"id":1}',
    "10,000 books, keys": '{"id":{{random 1 10000}}' + KEY + "}",
    "10,000 books": '{"id":{{random 1 10000}}}',
}
LOOKUP = '{"id":{{random 1 10000}}}'


class Load:
    """Calls of a method at one server or several, beside others that get none. The calls that wait are as many in all, however
    many servers there are."""

    def __init__(self, what: str, method: str, data: str, servers: list[Server], beside: list[Server] | None = None) -> None:
        self.what, self._method, self._data, self._servers = what, method, data, servers
        self._running = [*servers, *(beside or [])]

    def prepare(self, servers: list[Server]) -> None:
        """Of these, those run that the load names."""
        for server in servers:
            if server not in self._running:
                server.stop()
            elif not server.pids():
                server.begin()
        for server in self._running:
            wait_until(f"the server on {server.address} is healthy", server.is_healthy)

    def run(self, bench: pathlib.Path, seed: int) -> float:
        """Answers that say success, a second."""
        connections = CONNECTIONS // len(self._servers)
        in_flight = WAITING // CONNECTIONS
        running = [subprocess.Popen(
            [bench, "grpc", server.address, f"bookstore.BookStore/{self._method}", "--data", self._data, "-c", str(connections),
             "-m", str(in_flight), "--warm-up", f"{WARM_UP}s", "-d", f"{SECONDS}s", "--cores", "none", "--workers", "1",
             "--outcome", "success", "--seed", str(seed * 10 + number), "-q", "--json", "-"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for number, server in enumerate(self._servers)]
        rate = 0.0
        for each in running:
            told: dict[str, Any] = json.loads(each.communicate()[0])["runs"][0]
            # The usual way cannot serve so many in time, and the server says so to some.
            if not {"success=true"} <= set(told["endings"]) <= {"success=true", "RESOURCE_EXHAUSTED"}:
                raise RuntimeError(f"{self.what}: {told['endings']}")
            rate += told["endings"]["success=true"] / told["seconds"]
        return rate


def measure(about: str, cluster: Cluster, loads: list[Load], others: dict[str, list[Process]], bench: pathlib.Path,
            rounds: int) -> None:
    """Prints what each load reached, and what the programs needed for an answer."""
    primary = wait_until("there is a primary", cluster.primary)
    programs = {"servers": list(cluster.servers), "primary": [primary.process],
                "replicas": [node.process for node in cluster.nodes if node is not primary],
                "etcd": [member.process for member in cluster.etcd], **others}
    rates: dict[str, list[float]] = collections.defaultdict(list)
    costs: dict[str, list[dict[str, float]]] = collections.defaultdict(list)
    chance = random.Random(1)
    for number in range(rounds):
        for load in chance.sample(loads, len(loads)):
            load.prepare(cluster.servers)
            before = {name: sum(each.cpu_seconds() for each in these) for name, these in programs.items()}
            rate = load.run(bench, number)
            rates[load.what].append(rate)
            answers = rate * (WARM_UP + SECONDS)
            costs[load.what].append({name: (sum(each.cpu_seconds() for each in these) - before[name]) / answers * 1e6
                                     for name, these in programs.items()})
    names = [name for name, these in programs.items() if these]
    print(f"\n{about}\n\n| load | answers/s | {' | '.join(f'{name}, µs' for name in names)} |")
    print("|---|---|" + "---|" * len(names))
    for load in loads:
        medians = (statistics.median(cost[name] for cost in costs[load.what]) for name in names)
        cells = " | ".join(f"{cost:.1f}" for cost in medians)
        print(f"| {load.what} | {statistics.median(rates[load.what]):,.0f} | {cells} |", flush=True)


def shown_after(servers: list[Server], looks: int) -> None:
    """How long after a purchase at one server was answered another shows it."""
    messages, calls = stubs()
    here, there = (calls.BookStoreStub(grpc.insecure_channel(server.address)) for server in servers[:2])
    book, waits = messages.ItemNumberRequest(id=BOOKS), []
    for _ in range(looks):
        left = here.Buy(book).stock_left
        begun = time.perf_counter()
        while there.Lookup(book).book.stock != left:
            pass
        waits.append((time.perf_counter() - begun) * 1e3)
    waits.sort()
    print(f"\nshown by another server after, ms: median {waits[looks // 2]:.1f}, 99th percentile {waits[looks * 99 // 100]:.1f}, "
          f"most {waits[-1]:.1f}, of {looks}")


def measured(quire: pathlib.Path, bench: pathlib.Path, rounds: int, nodes: int) -> None:
    about = "PostgreSQL alone" if nodes == 1 else f"{nodes} nodes, quorum commit"
    group = f"ledger.batch_max={BATCH}"
    cluster = Cluster(quire, synchronous=nodes > 1, relays=False, nodes=nodes, servers=0,
                      parameters={"shared_buffers": "256MB", "max_wal_size": "4GB"})
    for number in range(1, SERVERS + 1):
        cluster.add_server(f"server{number}", group)
    usual = cluster.add_server("usual", "ledger.commit=each", f"ledger.pool={USUAL_POOL}")
    with tempfile.TemporaryDirectory() as folder, running(cluster):
        rows = "\n".join(["id,title,topic,stock,price", *(f"{id},Book {id},measured,{COPIES},9.99" for id in range(1, BOOKS + 1))])
        cluster.servers[0].import_books(rows)
        file = Server(pathlib.Path(folder), quire, None)
        file.import_books(rows)
        file.begin()
        try:
            for server in [*cluster.servers, file]:
                wait_until(f"the server on {server.address} is healthy", server.is_healthy)
            group_servers = cluster.servers[:SERVERS]
            loads = [Load(f"buy, {what}, {count} server{'s' * (count > 1)}", "Buy", data, group_servers[:count])
                     for what, data in BUYS.items() for count in range(1, SERVERS + 1)]
            loads += [Load(f"buy, {what}, 1 server, {SERVERS - 1} idle", "Buy", data, group_servers[:1], group_servers[1:])
                      for what, data in BUYS.items()]
            loads += [Load(f"buy, {what}, a transaction each", "Buy", data, [usual]) for what, data in BUYS.items()]
            loads += [Load(f"buy, {what}, SQLite", "Buy", data, [file]) for what, data in BUYS.items()]
            loads += [Load("lookup", "Lookup", LOOKUP, group_servers[:1]), Load("lookup, SQLite", "Lookup", LOOKUP, [file])]
            shown_after(group_servers, LOOKS)
            measure(about, cluster, loads, {"SQLite's server": [file]}, bench, rounds)
        finally:
            file.stop()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--quire", type=pathlib.Path, required=True)
    arguments.add_argument("--bench", type=pathlib.Path, required=True)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--nodes", type=int, nargs="*", default=[1, 3])
    given = arguments.parse_args()
    for nodes in given.nodes:
        measured(given.quire.resolve(), given.bench.resolve(), given.rounds, nodes)


if __name__ == "__main__":
    sys.exit(main())
