"""One measurement: h2load on its core puts a load to a server on its own. Must not know what is compared."""

import pathlib
import re
import subprocess

from .loads import Load
from .servers import CLIENT_CORE, Server

# With very many connections h2load does not end by the clock, and of long calls it cuts off many; then it is told a number.
CONNECTIONS_BY_CLOCK_MAX = 100
# How long a load may last in which no call ends.
SECONDS_MAX = 10
# An answer may be cut off by the end of the time.
ANSWERED_MIN = 0.8


class Figures:
    """What one load did to one server."""

    def __init__(self, rate: float, cpu_us: float):
        self.rate, self.cpu_us = rate, cpu_us


def is_by_number(load: Load) -> bool:
    return load.connections > CONNECTIONS_BY_CLOCK_MAX or load.messages > 1 or load.needs == "large"


def measure(server: Server, load: Load, seconds: float, folder: str, rate: float = 0) -> Figures:
    """Calls a second and the server's CPU a call; `rate` is what the server did before, if it was measured."""
    body = pathlib.Path(folder, f"{hash(load)}.body")
    if not body.exists():
        body.write_bytes(load.sent)
    command = ["taskset", "-c", CLIENT_CORE, "h2load", "-c", str(load.connections), "-m", str(load.streams)]
    by_clock = ["-D", f"{seconds * 1000:.0f}ms"]
    by_number = ["-n", f"{max(seconds * rate, load.connections * load.streams):.0f}"]
    command += by_number if is_by_number(load) else by_clock
    command += ["-d", str(body), "-H", f"content-type: {load.content_type}", "-H", "te: trailers"]
    url = f"{'https' if load.tls else 'http'}://127.0.0.1:{server.port}{load.call.path}"
    before = server.cpu_ns()
    out = subprocess.run([*command, url], capture_output=True, text=True, check=True).stdout
    cpu = server.cpu_ns() - before
    rate = float(re.search(r"finished in [\d.]+\w+, ([\d.]+) req/s", out).group(1))
    counts = re.search(r"(\d+) total, (\d+) started, (\d+) done, (\d+) succeeded, (\d+) failed", out)
    done, failed = int(counts.group(3)), int(counts.group(5))
    if not done and not failed and not is_by_number(load) and seconds < SECONDS_MAX:
        # No call ended in time.
        return measure(server, load, seconds * 4, folder)
    if failed or not done:
        raise SystemExit(f"{server.name}: {failed} of {done} calls of {load.table} {load.title} failed\n{out}{server.log()[-2000:]}")
    data = int(re.search(r"\((\d+)\) data", out).group(1))
    if data < ANSWERED_MIN * done * len(load.received):
        raise SystemExit(f"{server.name}: {load.table} {load.title} brought {data} bytes in {done} answers\n{out}")
    return Figures(rate, cpu / done / 1000)
