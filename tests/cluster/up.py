"""A cluster to try out: `up.py start PROGRAM` starts one in the background and prints where it is, `up.py stop` ends it."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

from nodes import PATIENCE_SECONDS, Cluster, running, wait_until

STATE = pathlib.Path(__file__).resolve().parents[2] / "target/cluster.json"


def keep(quire: pathlib.Path) -> None:
    """Until it is told to end."""
    over = threading.Event()
    for which in (signal.SIGTERM, signal.SIGINT):
        signal.signal(which, lambda *_: over.set())
    with running(Cluster(quire, relays=False)) as cluster:
        about = {"pid": os.getpid(), "folder": str(cluster.folder), "ledger.url": cluster.url,
                 "servers": [server.address for server in cluster.servers],
                 "databases": {node.name: f"{node.address}, {node.told().get('role')}" for node in cluster.nodes},
                 "etcd": [f"127.0.0.1:{member.port}" for member in cluster.etcd]}
        written = STATE.with_suffix(".new")
        written.write_text(json.dumps(about, indent=2))
        written.rename(STATE)
        over.wait()
    STATE.unlink()


def start(quire: str) -> None:
    if STATE.exists():
        sys.exit(f"{STATE} is there: a cluster runs already, or was not ended by `make cluster-down`")
    log = STATE.with_suffix(".log")
    with log.open("wb") as output:
        keeper = subprocess.Popen([sys.executable, __file__, "keep", pathlib.Path(quire).resolve()], stdin=subprocess.DEVNULL,
                                  stdout=output, stderr=output, start_new_session=True)
    try:
        while not STATE.exists():
            if keeper.poll() is not None:
                sys.exit(f"the cluster did not start:\n{log.read_text()}")
            time.sleep(0.1)
    except KeyboardInterrupt:
        print("the cluster is being ended", file=sys.stderr)
        keeper.terminate()
        keeper.wait()
        raise
    about = json.loads(STATE.read_text())
    print("\n".join([*(f"server    {address}" for address in about["servers"]),
                     *(f"database  {address} ({name})" for name, address in about["databases"].items()),
                     *(f"etcd      {address}" for address in about["etcd"]),
                     f"folder    {about['folder']} (data, logs)",
                     f"QUIRE_LEDGER_URL='{about['ledger.url']}' quire serve   adds a server", "make cluster-down   ends it"]))


def stop() -> None:
    if not STATE.exists():
        sys.exit("no cluster runs")
    keeper = int(json.loads(STATE.read_text())["pid"])
    command = pathlib.Path(f"/proc/{keeper}/cmdline")
    # Another process may have its number now.
    if not command.exists() or pathlib.Path(__file__).name.encode() not in command.read_bytes():
        STATE.unlink()
        sys.exit("the cluster's keeper had ended; what it had started may still run")
    os.kill(keeper, signal.SIGTERM)
    wait_until("the cluster has ended", lambda: not STATE.exists(), 2 * PATIENCE_SECONDS)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["start", program]:
            start(program)
        case ["keep", program]:
            keep(pathlib.Path(program))
        case ["stop"]:
            stop()
        case _:
            sys.exit(__doc__)
