"""Ten times the purchases that a slow disk takes, in an open loop over gRPC: what is still sold, how the rest is refused, and
how it is afterwards.

The disk takes 20 ms to sync and a batch holds 7 purchases, so that some hundred a second can be done and the load generator
has the processor that it needs. `python3 tests/judges/test_overload.py BINARY` prints the figures.
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
SECONDS = 5
DEADLINE = "1s"
# More than the server needs to be as before.
PAUSE_SECONDS = 1


@dataclasses.dataclass
class Seen:
    """What came of the requests of a run."""

    done: int
    # Milliseconds from sending to the refusal, in order of size.
    refused: list[float]
    others: int

    def refused_ms(self, share):
        return self.refused[int((len(self.refused) - 1) * share)] if self.refused else float("nan")


class Server:
    """`quire serve` on a slow disk."""

    def __init__(self, binary, folder):
        shim = folder / "slow_disk.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", shim, SHIM, "-ldl"], check=True)
        books = "id,title,topic,stock,price\n53477,Endless,many,2000000000,1.00\n"
        subprocess.run([binary, "import", "-", "--no-sample", "--data", "data"], cwd=folder, check=True, input=books, text=True,
                       stdout=subprocess.DEVNULL)
        settings = [f"ledger.batch_max={BATCH}", "rpcgame.enabled=false", "tasks.enabled=false"]
        command = [binary, "serve", "--listen", "127.0.0.1:0", "--data", "data", "--log-format", "json",
                   *(part for setting in settings for part in ("--set", setting))]
        environment = {**os.environ, "LD_PRELOAD": str(shim), "SLOW_DISK_MS": str(SYNC_MS)}
        self.process = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            fields = json.loads(line)["fields"]
            if fields["message"] == "listening":
                self.address = fields["address"]
                return
        raise RuntimeError("the server ended at once")

    def stop(self):
        self.process.terminate()
        self.process.stderr.read()
        self.process.wait(60)


def run(bench, server, folder, *more):
    """One run of the load generator."""
    rows = folder / "requests.csv"
    command = [bench, "grpc", server.address, "bookstore.BookStore/Buy", "--data", '{"id":53477}', "--deadline", DEADLINE,
               "--outcome", "success", "--workers", "1", "--cores", "none", "--warm-up", "0s", "--duration", f"{SECONDS}s",
               "--timeout", "5s", "--quiet", "--csv", rows, *more]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    # 3 says that the client fell behind its own rate: what it did send counts all the same.
    assert ended.returncode in (0, 3), ended.stdout + ended.stderr
    seen = Seen(0, [], 0)
    with rows.open() as lines:
        for row in csv.DictReader(lines):
            if row["status"] == "success=true":
                seen.done += 1
            elif row["status"] == "RESOURCE_EXHAUSTED":
                seen.refused.append((int(row["done_ns"]) - int(row["sent_ns"])) / 1e6)
            else:
                seen.others += 1
    seen.refused.sort()
    return seen


def overload(binary, folder):
    """Before, during and after it."""
    bench, server = binary.with_name("quire-bench"), Server(binary, folder)
    try:
        waiting = ["--clients", "4", "--in-flight", "16"]
        before = run(bench, server, folder, *waiting)
        during = run(bench, server, folder, "--clients", "64", "--rate", str(TIMES * before.done // SECONDS))
        time.sleep(PAUSE_SECONDS)
        return before, during, run(bench, server, folder, *waiting)
    finally:
        server.stop()


def test_at_ten_times_its_capacity_a_server_sells_as_much_and_afterwards_refuses_no_one(quire, tmp_path):
    before, during, after = overload(pathlib.Path(quire), tmp_path)
    assert before.done > 0 and not before.refused
    assert during.done > 0.9 * before.done, (before.done, during.done)
    assert len(during.refused) > during.done and during.others == 0
    assert not after.refused and not after.others


def main(binary):
    with tempfile.TemporaryDirectory() as folder:
        for name, seen in zip(("before", "during", "after"), overload(binary, pathlib.Path(folder)), strict=True):
            print(f"{name}: {seen.done / SECONDS:.0f} purchases a second, {len(seen.refused)} refused in {seen.refused_ms(0.5):.1f} ms, "
                  f"99% in {seen.refused_ms(0.99):.1f} ms, {seen.others} others")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]).absolute())
