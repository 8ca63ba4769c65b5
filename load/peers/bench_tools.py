#!/usr/bin/env python3
"""quire-bench beside h2load, wrk and ghz on the same server: what each says of the same load, and what it costs.

`tools`: the servers do nothing but answer (`quire-bench null`), on core 0; the tools run on core 1, in turns.
`stalls`: a constant rate put to a server that stops for 800 ms of every second, where the answer is known: a request
that is due in a stall waits for the rest of the stall, so a fifth waits for nothing and the others evenly from 0 to 800 ms.
`same`: a hundred short comparisons of `quire` with itself; how many find a difference?
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/kit/python"))

from kit.servers import Process  # noqa: E402

BENCH = ROOT / "target/dist/quire-bench"
QUIRE = ROOT / "target/dist/quire"
GHZ = ROOT / "target/tools/bin/ghz"
METHOD = "bookstore.BookStore/Lookup"
PROTO = ROOT / "proto/bookstore.proto"
STALL_MS, EVERY_MS, STALLED_RATE = 800, 1000, 500
THEORY_MS = {"p50": 300, "p99": 790}

LOADS = {
    "gRPC, 1 connection, 1 call": ("grpc", 1, 1),
    "gRPC, 10 connections, 10 calls each": ("grpc", 10, 10),
    "gRPC, 10 connections, 100 calls each": ("grpc", 10, 100),
    "HTTP/1.1, 10 connections": ("http", 10, 1),
    "HTTP/2, 10 connections, 100 requests each": ("http2", 10, 100),
    "TCP lines, 10 connections": ("tcp", 10, 1),
    "TCP lines, 10 connections, 100 lines each": ("tcp", 10, 100),
}


class Server(Process):
    """A server on core 0."""

    def __init__(self, *command: str):
        self.log_folder = tempfile.TemporaryDirectory()
        super().__init__(pathlib.Path(self.log_folder.name))
        self.start("taskset", "-c", "0", *command)
        self.address = self.listening()


def null(protocol: str, *more: str) -> Server:
    """A server that only answers."""
    return Server(str(BENCH), "null", protocol, "--listen", "127.0.0.1:0", *more)


def run(command: list[str]) -> tuple[str, float]:
    """Its output, and the CPU seconds it took."""
    process = subprocess.Popen(["taskset", "-c", "1", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = process.communicate()
    before = run.children
    run.children = (lambda times: times.children_user + times.children_system)(os.times())
    # A run of ours that found its client to be the bottleneck ends with 3 and has its figures all the same.
    if process.returncode not in (0, 3):
        raise SystemExit(f"{' '.join(command)}\nended with {process.returncode}: {err or out}")
    return out, run.children - before


run.children = 0.0


def quantile(sorted_values: list[float], share: float) -> float:
    return sorted_values[min(len(sorted_values) - 1, int(share * len(sorted_values)))]


def ours(protocol: str, address: str, connections: int, in_flight: int, seconds: float, rate: int | None) -> dict:
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [str(BENCH), *{
            "grpc": ["grpc", address, METHOD, "--proto", str(PROTO), "--data", '{"id": 53477}'],
            "http": ["http", f"http://{address}/"],
            "http2": ["http", f"http://{address}/", "--http2"],
            "tcp": ["tcp", address, "--line", "x", "--reply", "bytes:1"],
        }[protocol]]
        command += ["-c", str(connections), "--workers", "1", "--cores", "none", "--warm-up", "0s", "-d", f"{seconds}s", "--json", out.name, "-q"]
        command += ["-r", str(rate), "--arrivals", "constant"] if rate else ["-m", str(in_flight)]
        _, cpu = run(command)
        measured = json.loads(pathlib.Path(out.name).read_text())["runs"][0]
    times = measured["response"]
    return {"rate": measured["rate"], "p50": times["p50_us"], "p99": times["p99_us"], "cpu": cpu, "done": measured["completed"]}


def h2load(protocol: str, address: str, connections: int, in_flight: int, seconds: float, rate: int | None) -> dict:
    """Twice: it tells percentiles only through a log of every request, which costs it much of its rate."""
    with tempfile.TemporaryDirectory() as folder:
        log, payload = pathlib.Path(folder, "log"), pathlib.Path(folder, "lookup.bin")
        body = bytes([0x08, 0xE5, 0xA1, 0x03])  # ItemNumberRequest{id: 53477}
        payload.write_bytes(struct.pack(">BI", 0, len(body)) + body)
        command = ["h2load", "-c", str(connections), "-m", str(in_flight), "-D", f"{seconds * 1000:.0f}ms"]
        if rate:
            command += [f"--rps={rate / connections}", "-m", "1000"]
        if protocol == "grpc":
            command += ["-d", str(payload), "-H", "content-type: application/grpc", "-H", "te: trailers", f"http://{address}/{METHOD}"]
        else:
            command += [*(["--h1"] if protocol == "http" else []), f"http://{address}/"]
        out, cpu = run(command)
        run([*command, f"--log-file={log}"])
        took = sorted(int(line.split("\t")[2]) for line in log.read_text().splitlines())
    done = int(re.search(r"(\d+) succeeded", out).group(1))
    return {"rate": done / seconds, "p50": quantile(took, 0.5), "p99": quantile(took, 0.99), "cpu": cpu, "done": done}


def wrk(_: str, address: str, connections: int, __: int, seconds: float, ___: int | None) -> dict:
    out, cpu = run(["wrk", "-t1", f"-c{connections}", f"-d{seconds:.0f}s", "--latency", f"http://{address}/"])
    units = {"us": 1, "ms": 1e3, "s": 1e6}
    times = {share: float(number) * units[unit] for share, number, unit in re.findall(r"(\d+)%\s+([\d.]+)(us|ms|s)\b", out)}
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", out).group(1))
    return {"rate": rate, "p50": times["50"], "p99": times["99"], "cpu": cpu, "done": rate * seconds}


def ghz(_: str, address: str, connections: int, in_flight: int, seconds: float, rate: int | None) -> dict:
    command = [str(GHZ), "--insecure", "--proto", str(PROTO), "--call", METHOD, "-d", '{"id": 53477}', "-O", "json"]
    command += ["--connections", str(connections), "-c", str(in_flight * connections if not rate else 1000), "-z", f"{seconds}s"]
    command += ["--rps", str(rate), "--async"] if rate else []
    out, cpu = run([*command, address])
    measured = json.loads(out)
    times = {entry["percentage"]: entry["latency"] / 1e3 for entry in measured["latencyDistribution"]}
    return {"rate": measured["rps"], "p50": times[50], "p99": times[99], "cpu": cpu, "done": measured["count"]}


TOOLS = {"quire-bench": ours, "h2load": h2load, "ghz": ghz, "wrk": wrk}
SPEAKS = {
    "grpc": ["quire-bench", "h2load", "ghz"],
    "http": ["quire-bench", "h2load", "wrk"],
    "http2": ["quire-bench", "h2load"],
    "tcp": ["quire-bench"],
}


def median(rounds: list[dict], name: str) -> float:
    return statistics.median(one[name] for one in rounds)


def side_by_side(rounds: int, seconds: float) -> None:
    print("| load | tool | req/s | p50 µs | p99 µs | µs of tool's CPU a request |")
    print("|---|---|---|---|---|---|")
    for load, (protocol, connections, in_flight) in LOADS.items():
        server = null(protocol.removesuffix("2"))
        with contextlib.closing(contextlib.ExitStack()) as stack:
            stack.callback(server.stop)
            seen: dict[str, list[dict]] = {tool: [] for tool in SPEAKS[protocol]}
            for _ in range(rounds):
                for tool in SPEAKS[protocol]:
                    result = TOOLS[tool](protocol, server.address, connections, in_flight, seconds, None)
                    result["client"] = result["cpu"] * 1e6 / max(result["done"], 1)
                    seen[tool].append(result)
            for tool, results in seen.items():
                cells = [f"{median(results, 'rate'):,.0f}", f"{median(results, 'p50'):,.0f}", f"{median(results, 'p99'):,.0f}"]
                cells += [f"{median(results, 'client'):.2f}"]
                print("|", " | ".join([load, tool, *cells]), "|", flush=True)


def stalled(seconds: float) -> None:
    print(f"\n{STALLED_RATE} calls/s at a constant rate, the server stops for {STALL_MS} ms of every {EVERY_MS} ms:\n")
    print("| tool | loop | p50 ms | p99 ms |")
    print("|---|---|---|---|")
    print(f"| by theory | open | {THEORY_MS['p50']} | {THEORY_MS['p99']} |")
    server = null("grpc", "--stall", f"{STALL_MS}ms", "--every", f"{EVERY_MS}ms")
    with contextlib.closing(contextlib.ExitStack()) as stack:
        stack.callback(server.stop)
        # The first stall comes after the first period.
        time.sleep(EVERY_MS / 1000)
        for loop, rate in [("open", STALLED_RATE), ("closed", None)]:
            for tool in SPEAKS["grpc"]:
                seen = TOOLS[tool]("grpc", server.address, 1, 1, seconds, rate)
                print(f"| {tool} | {loop} | {seen['p50'] / 1e3:.2f} | {seen['p99'] / 1e3:.1f} |", flush=True)


def same(tries: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        others = [f"--set={name}.enabled=false" for name in ("kv", "rpcgame", "tasks")]
        server = Server(str(QUIRE), "serve", "--listen", "127.0.0.1:0", "--data", folder, *others)
        with contextlib.closing(contextlib.ExitStack()) as stack:
            stack.callback(server.stop)
            load = f"grpc {server.address} {METHOD} --proto {PROTO} --data '{{\"id\":53477}}' -c 2 -d 100ms --warm-up 20ms --workers 1 --cores 1"
            different = 0
            for seed in range(1, tries + 1):
                command = [str(BENCH), "ab", load, load, "--rounds", "5", "--seed", str(seed), "--json", "-q"]
                out, _ = run(command)
                different += any(effect["verdict"] != "no-difference-seen" for effect in json.loads(out)["effects"])
    print(f"\nA server compared with itself {tries} times: a difference in rate, p50 or p99 found {different} times")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--part", choices=["tools", "stalls", "same"], help="only this one")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--seconds", type=float, default=2)
    arguments.add_argument("--tries", type=int, default=100)
    arguments = arguments.parse_args()
    if len(os.sched_getaffinity(0)) < 2:
        raise SystemExit("this comparison needs two cores: one for the server, one for the tool")
    if arguments.part in (None, "tools"):
        side_by_side(arguments.rounds, arguments.seconds)
    if arguments.part in (None, "stalls"):
        stalled(10)
    if arguments.part in (None, "same"):
        same(arguments.tries)


if __name__ == "__main__":
    main()
