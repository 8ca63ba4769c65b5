"""Rounds of faults against a cluster in which shoppers buy, and an audit at the end. A cluster whose replicas are not waited
for must lose something, or the audit proves nothing.

    campaign.py --quire PROGRAM --rounds 200 --clusters 4

Prints what was told and how long service was away, and ends with 1 if anything that was acknowledged is not so."""

import argparse
import collections
import contextlib
import itertools
import json
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from audit import audit, judge
from nodes import Cluster, Node, running, wait_until
from shoppers import BOOKS, TOKEN, Shoppers

HERE = pathlib.Path(__file__).resolve().parent
FREEZE_SECONDS = 20
# A fault is over when purchases are answered again; two at once may need that it is mended first.
AWAY_SECONDS_MAX = 45
# What is killed stays away for so long at the least.
KILLED_SECONDS = 2
SHOWN_MAX = 20

# A fault does its harm, to the primary as it was before the round or to others, and returns how it is mended.
Fault = Callable[[Cluster, Node, random.Random], Callable[[], None]]


def primary_killed(_: Cluster, primary: Node, __: random.Random) -> Callable[[], None]:
    """PostgreSQL alone: its Patroni sees it and gives the office up."""
    primary.kill_database()
    return lambda: None


def primary_lost(_: Cluster, primary: Node, __: random.Random) -> Callable[[], None]:
    primary.process.kill()
    return primary.start


def replica_lost(cluster: Cluster, primary: Node, chance: random.Random) -> Callable[[], None]:
    node = chance.choice([node for node in cluster.nodes if node is not primary])
    node.process.kill()
    return node.start


def primary_frozen(_: Cluster, primary: Node, __: random.Random) -> Callable[[], None]:
    primary.process.signal(signal.SIGSTOP)
    thaw_at = time.monotonic() + FREEZE_SECONDS

    def thaw() -> None:
        time.sleep(max(0, thaw_at - time.monotonic()))
        primary.process.signal(signal.SIGCONT)

    return thaw


def primary_cut_off(cluster: Cluster, primary: Node, _: random.Random) -> Callable[[], None]:
    """From the other nodes and etcd; servers still reach it."""
    return cut_off(cluster, primary, from_servers=False)


def primary_cut_off_from_all(cluster: Cluster, primary: Node, _: random.Random) -> Callable[[], None]:
    return cut_off(cluster, primary, from_servers=True)


def cut_off(cluster: Cluster, node: Node, from_servers: bool) -> Callable[[], None]:
    node.cut_off(from_servers)

    def join_again() -> None:
        # With another fault at once there may be no other.
        with contextlib.suppress(TimeoutError):
            wait_until("there is another primary", lambda: cluster.primary() not in (None, node), AWAY_SECONDS_MAX)
        node.join_again()

    return join_again


def server_killed(cluster: Cluster, _: Node, chance: random.Random) -> Callable[[], None]:
    server = chance.choice(cluster.servers)
    server.kill()
    return server.begin


def etcd_leader_killed(cluster: Cluster, _: Node, __: random.Random) -> Callable[[], None]:
    member = wait_until("etcd has a leader", cluster.etcd_leader)
    member.process.kill()
    return member.restart


FAULTS: dict[str, Fault] = {
    "primary killed": primary_killed, "primary lost": primary_lost, "replica lost": replica_lost,
    "primary frozen": primary_frozen, "primary cut off": primary_cut_off,
    "primary cut off from all": primary_cut_off_from_all, "server killed": server_killed,
    "etcd's leader killed": etcd_leader_killed,
}


def plan(seed: int, rounds: int) -> list[list[str]]:
    """Each kind comes as often as any other, in an order of the seed's, and every ninth round has two at once."""
    chance = random.Random(seed)
    found: list[list[str]] = []
    while len(found) < rounds:
        block = [[name] for name in FAULTS]
        block.append(chance.sample([name for name in FAULTS if name != "primary frozen"], 2))
        chance.shuffle(block)
        found += block
    return found[:rounds]


class Campaign:
    def __init__(self, cluster: Cluster, shoppers: Shoppers, seed: int) -> None:
        self._cluster, self._shoppers, self._chance = cluster, shoppers, random.Random(seed)
        # Seconds in which no purchase was acknowledged, by what had happened.
        self.gaps: dict[str, list[float]] = collections.defaultdict(list)

    def round(self, names: list[str]) -> None:
        primary = wait_until("there is a primary", self._cluster.primary)
        begun = time.monotonic_ns()
        mends = [FAULTS[name](self._cluster, primary, self._chance) for name in names]
        time.sleep(KILLED_SECONDS)
        # How long it took, the gap tells.
        with contextlib.suppress(TimeoutError):
            wait_until("purchases are acknowledged", lambda: self._served_since(begun + KILLED_SECONDS * 10**9), AWAY_SECONDS_MAX)
        for mend in mends:
            mend()
        wait_until("the cluster is whole", self._cluster.is_whole)
        for server in self._cluster.servers:
            wait_until(f"the server on {server.address} is healthy", server.is_healthy)
        wait_until("purchases are acknowledged again", lambda: self._served_since(time.monotonic_ns() - 10**9))
        times = [at for at in self._shoppers.acknowledged() if at > begun - 10**9]
        self.gaps[" and ".join(names)].append(max(b - a for a, b in zip(times, times[1:])) / 1e9)

    def _served_since(self, moment: int) -> bool:
        return any(each.outcome is not None and each.call > moment for each in self._shoppers.purchases[-1000:])


def run(quire: pathlib.Path, porcupine: pathlib.Path, seed: int, rounds: list[list[str]], synchronous: bool) -> dict[str, object]:
    cluster = Cluster(quire, synchronous=synchronous, settings=(f"admin.token={TOKEN}",))
    with running(cluster):
        rows = [f"{id},Book {id},campaign,{stock},1.00" for id, stock in BOOKS.items()]
        cluster.servers[0].import_books("\n".join(["id,title,topic,stock,price", *rows]))
        shoppers = Shoppers([server.address for server in cluster.servers], seed)
        try:
            campaign = Campaign(cluster, shoppers, seed)
            wait_until("purchases are acknowledged", lambda: len(shoppers.acknowledged()) > 50)
            for number, names in enumerate(rounds, 1):
                campaign.round(names)
                print(f"seed {seed}, round {number}: {' and '.join(names)}", file=sys.stderr, flush=True)
        finally:
            shoppers.stop()
        wrong = audit(shoppers, cluster)
        # What was lost cannot be put in order either, and looking for that takes long.
        if not wrong and (said := judge(shoppers, cluster, porcupine)):
            wrong.append(said)
    return {"rounds": len(rounds), "tries": dict(shoppers.tries), "gaps": campaign.gaps, "purchases": len(shoppers.purchases),
            "books raised": shoppers.raised, "stock shown": len(shoppers.shown), "wrong": wrong}


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--quire", type=pathlib.Path, required=True)
    arguments.add_argument("--rounds", type=int, default=200)
    arguments.add_argument("--clusters", type=int, default=4, help="at once, each with its part of the rounds")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--porcupine", type=pathlib.Path, help=argparse.SUPPRESS)
    arguments.add_argument("--part", type=json.loads, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    # As with SIGINT, so that clusters end with what runs them.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if given.part:
        part = given.part
        print(json.dumps(run(given.quire, given.porcupine, part["seed"], part["rounds"], part["synchronous"])))
        return 0
    porcupine = HERE.parents[1] / "target/tools/porcupine"
    subprocess.run(["go", "build", "-o", porcupine, "."], cwd=HERE.parent / "judges/porcupine", check=True)
    rounds = plan(given.seed, given.rounds)
    ends = [number * given.rounds // given.clusters for number in range(given.clusters + 1)]
    parts = [{"seed": given.seed + number, "rounds": rounds[begin:end], "synchronous": True}
             for number, (begin, end) in enumerate(itertools.pairwise(ends))]
    parts.append({"seed": given.seed + given.clusters, "rounds": [["primary cut off"]], "synchronous": False})
    command = [sys.executable, __file__, "--quire", given.quire.resolve(), "--porcupine", porcupine]
    # Ctrl-C reaches this process alone, which then ends the others once.
    processes = [subprocess.Popen([*command, "--part", json.dumps(part)], stdout=subprocess.PIPE, text=True,
                                  start_new_session=True) for part in parts]
    try:
        results = [process.communicate()[0] for process in processes]
    finally:
        for process in processes:
            process.terminate()
            process.wait()
    if not all(results):
        print("a part of the campaign broke off: see above", file=sys.stderr)
        return 1
    *found, control = map(json.loads, results)
    return report(found, control)


def report(found: list[dict[str, object]], control: dict[str, object]) -> int:
    tries: collections.Counter[str] = collections.Counter()
    gaps = collections.defaultdict(list)
    for part in found:
        tries.update(part["tries"])
        for name, seconds in part["gaps"].items():
            gaps[name if " and " not in name else "two at once"] += seconds
    totals = {name: sum(part[name] for part in found) for name in ("rounds", "purchases", "books raised", "stock shown")}
    print(f"{totals}, answers: {dict(tries)}")
    for name, seconds in sorted(gaps.items()):
        print(f"no purchase for, s: {name:24} {len(seconds):3} rounds, median {statistics.median(seconds):5.1f}, "
              f"most {max(seconds):5.1f}")
    wrong = [line for part in found for line in part["wrong"]]
    print("\n".join(wrong[:SHOWN_MAX]), end="\n" if wrong else "")
    lost = [line for line in control["wrong"] if line.startswith("lost")]
    print(f"{len(wrong)} wrong; without waiting for replicas, {len(lost)} of {control['purchases']} purchases were lost")
    is_good = bool(lost) and not wrong
    print(f"rounds: {totals['rounds']} passed" if is_good else "the campaign: 1 failed")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
