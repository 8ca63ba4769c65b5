"""Ten times what a service can do, in an open loop: what it still does, how fast it refuses the rest, and how it is afterwards.

The disk takes 20 ms to sync, and a batch holds 7 writes, so that some hundred a second can be done and the load generator has the
processor that it needs. Server and load have a core each.
"""

import csv
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

SHIM = pathlib.Path(__file__).parent.parent / "shim/slow_disk.c"
SYNC_MS = 20
BATCH = 7
TIMES = 10
# No request waits longer; the protocol of tasks has no deadlines, and there the server's own 2 seconds hold.
DEADLINE = "1s"


@dataclasses.dataclass
class Load:
    """What is asked, as arguments of the load generator, with `{address}` for where."""

    name: str
    arguments: list[str]
    # Requests at once that find out what the service can do.
    clients: int
    in_flight: int
    port: str = "listening"


LOADS = [
    Load("purchases", ["grpc", "{address}", "bookstore.BookStore/Buy", "--data", '{"id":53477}'], 4, 16),
    Load("key-value writes", ["grpc", "{address}", "io.grpc.KeyRangeService/Put", "--data", '{"key":"{{hex 16}}","value":"dmFsdWU="}'], 4, 16),
    Load("record queries", ["grpc", "{address}", "ReaderService/GetRecord", "--data", '{"key":"locations1","value":"{{hex 8}}"}'], 4, 4),
    Load("CPU tasks", ["tcp", "{address}", "--line", "HELLO 2\n0:{{random 1 1000000000}}", "--reply", "line"], 16, 1, "tasks are served"),
]


@dataclasses.dataclass
class Seen:
    """What came of the requests of a run."""

    seconds: float
    # Milliseconds from sending to the answer, in order of size.
    done: list[float]
    refused: list[float]
    others: int

    @property
    def rate(self):
        return len(self.done) / self.seconds


def percentile(values, share):
    return values[min(len(values) - 1, int(len(values) * share))] if values else float("nan")


class Server:
    """`quire serve` on the first core and a slow disk."""

    def __init__(self, binary, folder):
        shim = folder / "slow_disk.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", shim, SHIM, "-ldl"], check=True)
        subprocess.run([binary, "generate", "records", "--rows", "200000", "--out", "rows.csv"], cwd=folder, check=True)
        books = "id,title,topic,stock,price\n53477,Endless,many,2000000000,1.00\n"
        settings = [f"ledger.batch_max={BATCH}", "kv.durability=log", "records.csv=rows.csv", "rpcgame.enabled=false"]
        subprocess.run([binary, "import", "-", "--no-sample", "--data", "data"], cwd=folder, check=True, input=books, text=True, stdout=subprocess.DEVNULL)
        command = ["taskset", "-c", "0", binary, "serve", "--listen", "127.0.0.1:0", "--tasks-listen", "127.0.0.1:0", "--data", "data",
                   "--log-format", "json", *(part for setting in settings for part in ("--set", setting))]
        with (folder / "log").open("w") as log:
            environment = {**os.environ, "LD_PRELOAD": str(shim), "SLOW_DISK_MS": str(SYNC_MS)}
            self.process = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log)
        self.log = folder / "log"

    def address(self, message):
        """The address that the log names with this message."""
        while self.process.poll() is None:
            for line in self.log.read_text().splitlines():
                fields = json.loads(line)["fields"]
                if fields["message"] == message:
                    return fields["address"]
            time.sleep(0.01)
        raise RuntimeError(self.log.read_text())

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


def run(bench, load, server, seconds, *more):
    """One run of the load generator, on the second core."""
    rows = server.log.parent / "requests.csv"
    arguments = [part.replace("{address}", server.address(load.port)) for part in load.arguments]
    deadline = ["--deadline", DEADLINE] if load.arguments[0] == "grpc" else []
    command = [bench, *arguments, *deadline, "--cores", "1", "--workers", "1", "--warm-up", "0s", "--duration", f"{seconds}s",
               "--timeout", "5s", "--quiet", "--csv", rows, *more]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    # 3 says that the client fell behind its own rate: what it did send counts all the same.
    if ended.returncode not in (0, 3):
        raise RuntimeError(ended.stdout + ended.stderr)
    seen = Seen(seconds, [], [], 0)
    with rows.open() as lines:
        for row in csv.DictReader(lines):
            took = (int(row["done_ns"] or 0) - int(row["sent_ns"] or 0)) / 1e6
            if row["status"] in ("OK", "true", "reply"):
                seen.done.append(took)
            elif row["status"] == "RESOURCE_EXHAUSTED":
                seen.refused.append(took)
            else:
                seen.others += 1
    seen.done.sort()
    seen.refused.sort()
    return seen


def measure(bench, load, server, seconds):
    """Before, during and after an overload."""
    before = run(bench, load, server, seconds, "--clients", str(load.clients), "--in-flight", str(load.in_flight))
    during = run(bench, load, server, seconds, "--clients", "64" if load.port == "listening" else "1000", "--rate", str(int(TIMES * before.rate)),
                 *([] if load.port == "listening" else ["--in-flight", "1"]))
    time.sleep(1)
    after = run(bench, load, server, seconds, "--clients", str(load.clients), "--in-flight", str(load.in_flight))
    return before, during, after


def main(binary):
    """Prints a table."""
    bench = binary.parent / "quire-bench"
    print("| service | done a second before | at ten times that | refused, p50 and p99 | others | afterwards |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        server = Server(binary, pathlib.Path(folder))
        try:
            for load in LOADS:
                before, during, after = measure(bench, load, server, 5)
                refused = ", ".join(f"{percentile(during.refused, share):.1f} ms" for share in (0.5, 0.99))
                print(f"| {load.name} | {before.rate:.0f} | {during.rate:.0f} ({during.rate / before.rate:.0%}) | {len(during.refused)}: {refused} "
                      f"| {during.others} | {after.rate:.0f}, {len(after.refused)} refused |", flush=True)
        finally:
            server.stop()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]).absolute())
