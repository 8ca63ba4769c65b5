"""Ten times the purchases that a slow disk takes, in an open loop over gRPC: what is still sold, how the rest is refused, and
how it is afterwards.

The disk takes 100 ms to sync and a batch holds 7 purchases, so that the disk alone bounds what can be done, and a slow or busy
processor changes nothing. With `pytest -s` it prints the figures; JUDGED_BINARY names the server, and the load generator is
beside it.
"""

import csv
import dataclasses
import pathlib
import subprocess
import time

from conftest import ROOT, Server

SYNC_MS = 100
BATCH = 7
TIMES = 10
SECONDS = 5
# More than the server needs to be as before.
PAUSE_SECONDS = 1


@dataclasses.dataclass
class Seen:
    """What came of the requests of a run."""

    done: int = 0
    # Milliseconds from sending to the refusal, in order of size.
    refused: list[float] = dataclasses.field(default_factory=list)
    others: int = 0

    def __str__(self):
        at = [f"{self.refused[int((len(self.refused) - 1) * share)]:.1f}" for share in (0.5, 0.99) if self.refused]
        return f"{self.done / SECONDS:.0f} purchases a second, {len(self.refused)} refused, ms, p50 and p99: {at}"


def run(quire, server, *more):
    """One run of the load generator."""
    rows = server.folder / "requests.csv"
    command = [pathlib.Path(quire).with_name("quire-bench"), "grpc", server.address, "bookstore.BookStore/Buy", "--data", '{"id":7}',
               "--deadline", "2s", "--outcome", "success", "--workers", "1", "--cores", "none", "--warm-up", "0s",
               "--duration", f"{SECONDS}s", "--timeout", "5s", "--quiet", "--csv", rows, *more]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    # 3 says that the client fell behind its own rate: what it did send counts all the same.
    assert ended.returncode in (0, 3), ended.stdout + ended.stderr
    seen = Seen()
    with rows.open() as lines:
        for row in csv.DictReader(lines):
            if row["status"] == "success=true":
                seen.done += 1
            elif row["status"] == "RESOURCE_EXHAUSTED":
                seen.refused.append((int(row["done_ns"]) - int(row["sent_ns"])) / 1e6)
            else:
                seen.others += 1
    seen.refused.sort()
    print(seen)
    return seen


def test_at_ten_times_its_capacity_a_server_sells_as_much_and_afterwards_refuses_no_one(quire, tmp_path, monkeypatch):
    shim = tmp_path / "slow_disk.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", shim, ROOT / "tests/shim/slow_disk.c", "-ldl"], check=True)
    (tmp_path / "books.csv").write_text("id,title,topic,stock,price\n7,Endless,many,2000000000,1.00\n")
    subprocess.run([quire, "import", "books.csv", "--data", "data"], cwd=tmp_path, check=True)
    with monkeypatch.context() as slow:
        slow.setenv("LD_PRELOAD", str(shim))
        slow.setenv("SLOW_DISK_MS", str(SYNC_MS))
        server = Server(quire, tmp_path, "--set", f"ledger.batch_max={BATCH}")
    waiting = ["--clients", "4", "--in-flight", "4"]
    before = run(quire, server, *waiting)
    during = run(quire, server, "--clients", "64", "--rate", str(TIMES * before.done // SECONDS))
    time.sleep(PAUSE_SECONDS)
    after = run(quire, server, *waiting)
    server.stop()
    assert before.done > 0 and not before.refused
    assert during.done > 0.8 * before.done
    # Next to no one is left to wait in vain.
    assert len(during.refused) > during.done > 20 * during.others
    assert not after.refused and not after.others
