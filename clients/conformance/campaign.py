"""A thousand purchases of one driver through a proxy that does harm, and the books audited afterwards: the server's own log and
stock, read directly, must agree with what the client reported."""

import collections
import dataclasses
import pathlib
import random
import shutil
import sys
import threading
from collections.abc import Callable
from typing import Any

import grpc

from double import stubs
from matching import Mismatch
from servers import TOKEN, Quire
from subject import Driver

from kit.audit import PURCHASE, REFUSED, Entry  # noqa: E402  (on the path since `servers`)
from kit.audit import audit as contradictions  # noqa: E402
from kit.proxy import FAULTS, Proxy, plan  # noqa: E402
from kit.servers import stopping  # noqa: E402

SEED = 20
PURCHASES = 1000
IN_FLIGHT = 8
TIMEOUT_MS = 4000
# Each kind of fault must have happened so often, so that a campaign that has met none passes for nothing.
FAULTS_MIN = 3
DECIDED_MIN = 0.9
AGAIN = 50
# Some run out, so that refusals are among the outcomes.
BOOKS = {101: 100_000, 102: 100_000, 103: 900, 104: 120, 105: 7}
NO_SUCH_BOOK = 999


@dataclasses.dataclass
class Purchase:
    """An order, and what the client reported of it."""

    book: int
    quantity: int
    key: str
    answer: dict[str, Any]

    @property
    def outcome(self) -> str:
        return str(self.answer.get("outcome") or self.answer.get("error"))


def run(command: Callable[[str], list[str]], quire: pathlib.Path, folder: pathlib.Path, count: int = PURCHASES,
        seed: int = SEED) -> str:
    """Raises what was wrong; else tells what happened. `command` starts the driver for an address."""
    (folder / "server").mkdir(parents=True)
    rows = [(id, f"Book {id}", "campaign", stock, "1.00") for id, stock in BOOKS.items()]
    with stopping(Quire(quire, folder / "server", {"books": rows})) as server:
        with stopping(Proxy(server.address, plan(seed, 5 * count), server.restart)) as proxy:
            purchases = _buy(command(proxy.address), folder, count)
        reported = collections.Counter(purchase.outcome for purchase in purchases)
        replays = sum(bool(purchase.answer.get("replayed")) for purchase in purchases)
        unsettled = _settle(command(server.address), folder, purchases)
        log, stock = _books(server.address)
    wrong = [*audit(purchases, log, stock), *unsettled]
    wrong += [f"'{fault}' happened {proxy.happened[fault]} times, and must at least {FAULTS_MIN} times"
              for fault in FAULTS if count == PURCHASES and proxy.happened[fault] < FAULTS_MIN]
    if not replays:
        wrong.append("no purchase was answered by a replay: the client did not send again what was in doubt")
    if (undecided := reported["unknown"] + reported["unreachable"]) > count * (1 - DECIDED_MIN):
        wrong.append(f"{undecided} of {count} purchases were not decided in {TIMEOUT_MS} ms")
    if wrong:
        raise Mismatch("\n".join([*wrong[:20], f"reported: {dict(reported)}", f"faults: {dict(proxy.happened)}"]))
    shutil.rmtree(folder)
    return f"{dict(reported)}, {replays} by a replay, {proxy.happened.total()} faults"


def _buy(command: list[str], folder: pathlib.Path, count: int) -> list[Purchase]:
    chance = random.Random(SEED)
    ids = [*BOOKS, NO_SUCH_BOOK]
    wanted = [Purchase(chance.choices(ids, [40, 40, 10, 5, 4, 1])[0], chance.randint(1, 3), f"purchase-{at}", {})
              for at in range(count)]
    left, lock = iter(enumerate(wanted)), threading.Lock()
    driver = Driver(command, folder)
    faults: list[BaseException] = []

    def shopper() -> None:
        try:
            while True:
                with lock:
                    at, purchase = next(left, (0, None))
                if purchase is None or faults:
                    return
                # Of some the client chooses the key.
                key = {} if at % 10 == 0 else {"key": purchase.key}
                purchase.answer = driver.ask({"call": "buy", "id": purchase.book, "quantity": purchase.quantity,
                                              "timeout_ms": TIMEOUT_MS, **key})
                purchase.key = purchase.answer.get("key", purchase.key)
        except BaseException as fault:
            faults.append(fault)

    shoppers = [threading.Thread(target=shopper) for _ in range(IN_FLIGHT)]
    for each in shoppers:
        each.start()
    for each in shoppers:
        each.join()
    if faults:
        driver.kill()
        raise faults[0]
    driver.close()
    return wanted


def _settle(command: list[str], folder: pathlib.Path, purchases: list[Purchase]) -> list[str]:
    """Sends the keys in doubt again, and some of those that are settled, over a connection without faults. Returns what
    was not answered as it must be."""
    driver = Driver(command, folder)
    wrong = []
    bought = [purchase for purchase in purchases if purchase.outcome == "bought"]
    for purchase in [each for each in purchases if each.outcome == "unknown"] + bought[-AGAIN:]:
        again = driver.ask({"call": "buy", "id": purchase.book, "quantity": purchase.quantity, "key": purchase.key})
        if purchase.outcome == "bought" and (again.get("replayed"), again.get("number")) != (True, purchase.answer["number"]):
            wrong.append(f"{purchase} was bought, and its key, sent again, gets {again}")
        if purchase.outcome == "unknown":
            purchase.answer = again
    driver.close()
    return wrong


def _books(address: str) -> tuple[list[Entry], dict[int, int]]:
    """The log, oldest entry first, and the stock, asked for by a stub of others."""
    messages, calls = stubs()["bookstore_pb2"], stubs()["bookstore_pb2_grpc"]
    with grpc.insecure_channel(address) as channel:
        operator, shop, found, token = calls.AdminStub(channel), calls.BookStoreStub(channel), [], ""
        while True:
            page = operator.Log(messages.LogRequest(page_token=token), timeout=10,
                                metadata=[("authorization", f"Bearer {TOKEN}")])
            for entry in page.entries:
                before, after = (getattr(entry, name) if entry.HasField(name) else None for name in ("before", "after"))
                found.append(Entry(entry.number, entry.book_id, entry.kind, entry.quantity, before, after,
                                   entry.idempotency_key.decode()))
            token = page.next_page_token
            if not token:
                break
        stock = {id: shop.Lookup(messages.ItemNumberRequest(id=id), timeout=10).book.stock for id in BOOKS}
    return found[::-1], stock


def audit(purchases: list[Purchase], log: list[Entry], stock: dict[int, int]) -> list[str]:
    """Contradictions between the client's reports and the server's log, and within the log."""
    wrong = contradictions(log, stock)
    made = {purchase.key: purchase for purchase in purchases}
    by_key = {entry.key: entry for entry in log if entry.kind in (PURCHASE, REFUSED)}
    for entry in by_key.values():
        purchase = made.get(entry.key)
        if entry.kind == PURCHASE and (purchase is None or purchase.outcome != "bought"):
            wrong.append(f"the server sold {entry}, and the client reported {purchase and purchase.answer}")
    for purchase in purchases:
        entry = by_key.get(purchase.key)
        match purchase.outcome:
            case "bought":
                bought = (purchase.answer["number"], purchase.book, PURCHASE, purchase.quantity)
                if entry is None or (entry.number, entry.book, entry.kind, entry.quantity) != bought:
                    wrong.append(f"the client reported {purchase}, and the log has {entry}")
            case "sold_out" | "too_few" | "no_such_book" | "unreachable":
                pass  # A sale would have been found above.
            case _:
                wrong.append(f"{purchase} has no outcome")
    return wrong


def controls(quire: pathlib.Path, folder: pathlib.Path) -> list[str]:
    """Drivers that are wrong on purpose must not pass; returns the faults of the audit itself."""
    broken_driver = [sys.executable, str(pathlib.Path(__file__).with_name("broken_driver.py"))]
    failed = []
    for fault in ("none", "new-key", "gives-up"):
        def command(address: str, fault: str = fault) -> list[str]:
            return [*broken_driver, address, fault]

        try:
            run(command, quire, folder / fault, PURCHASES // 4)
            found = ""
        except Mismatch as mismatch:
            found = str(mismatch)
        if ("the server sold" in found) != (fault != "none") or (found and fault == "none"):
            failed.append(f"of a client with the fault '{fault}' the audit found: {found or 'nothing'}")
    return failed
