"""Shoppers who buy with keys at all servers, repeat what was not decided until it is, and keep what they were told. Must not
know what happens to the cluster."""

import collections
import dataclasses
import functools
import pathlib
import random
import sys
import threading
import time
from typing import Any

import grpc

PROTO = pathlib.Path(__file__).resolve().parents[2] / "proto"
TOKEN = "operator-of-the-campaign"
SHOPPERS = 8
TIMEOUT_SECONDS = 4
# How long the last purchases may take to be decided.
DECIDED_SECONDS_MAX = 120
# So that histories of an hour can be judged.
PAUSE_SECONDS = 0.03
RESTOCK_TO = 60
RESTOCK_SECONDS = 2
# Some run out and are restocked; of the first, nearly every copy counts.
BOOKS = {101: 1_000_000, 102: 1_000_000, 103: 5_000, 104: 60, 105: 60}
WEIGHTS = [50, 20, 10, 10, 10]
CHANNEL = [("grpc.max_reconnect_backoff_ms", 500), ("grpc.initial_reconnect_backoff_ms", 100)]


@functools.cache
def stubs() -> tuple[Any, Any]:
    """The contract's messages and stubs."""
    sys.path.append(str(PROTO))
    messages, calls = grpc.protos_and_services("bookstore.proto")
    return messages, calls


@dataclasses.dataclass
class Purchase:
    """What was asked for and, once it is decided, what was told. Times are those of the monotonic clock."""

    client: int
    book: int
    quantity: int
    key: str
    call: int
    end: int = 0
    outcome: int | None = None
    number: int = 0
    left: int = 0


class Shoppers:
    def __init__(self, addresses: list[str], seed: int) -> None:
        messages, calls = stubs()
        self._messages = messages
        channels = [grpc.insecure_channel(address, options=CHANNEL) for address in addresses]
        self._shops = [calls.BookStoreStub(channel) for channel in channels]
        self._operators = [calls.AdminStub(channel) for channel in channels]
        self._seed, self._stop, self._gives_up = seed, threading.Event(), threading.Event()
        self.purchases: list[Purchase] = []
        # Books that were raised by restocks that were answered.
        self.raised = 0
        self.shown: list[tuple[int, int]] = []
        self.wrong: list[str] = []
        self.tries: collections.Counter[str] = collections.Counter()
        self._threads = [threading.Thread(target=self._shop, args=(number,)) for number in range(SHOPPERS)]
        self._threads.append(threading.Thread(target=self._restock))
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Once all that was begun is decided, if it ever is."""
        self._stop.set()
        deadline = time.monotonic() + DECIDED_SECONDS_MAX
        for thread in self._threads:
            thread.join(max(0, deadline - time.monotonic()))
        self._gives_up.set()
        for thread in self._threads:
            thread.join()

    def acknowledged(self) -> list[int]:
        """When, in order."""
        return sorted(each.end for each in self.purchases if each.outcome is not None)

    def _shop(self, client: int) -> None:
        chance = random.Random(self._seed * 1000 + client)
        mine: list[Purchase] = []
        try:
            while not self._stop.wait(PAUSE_SECONDS):
                purchase = Purchase(client, chance.choices(list(BOOKS), WEIGHTS)[0], chance.randint(1, 3),
                                    f"{self._seed}-{client}-{len(mine)}", time.monotonic_ns())
                mine.append(purchase)
                self.purchases.append(purchase)
                reply = self._ask(purchase, chance)
                purchase.end = time.monotonic_ns()
                purchase.number, purchase.left, purchase.outcome = reply.purchase_number, reply.stock_left, reply.outcome
                if chance.random() < 0.05:
                    self._ask_again(chance.choice(mine), chance)
                if chance.random() < 0.2:
                    self._look(chance)
        except BaseException as fault:
            self.wrong.append(f"shopper {client} ended: {fault!r}")

    def _ask(self, purchase: Purchase, chance: random.Random) -> Any:
        """At one server after another, with the key, until one has decided it."""
        at = chance.randrange(len(self._shops))
        while not self._gives_up.is_set():
            try:
                request = self._messages.ItemNumberRequest(id=purchase.book, quantity=purchase.quantity,
                                                           idempotency_key=purchase.key.encode())
                reply = self._shops[at % len(self._shops)].Buy(request, timeout=TIMEOUT_SECONDS)
                self.tries["acknowledged"] += 1
                return reply
            except grpc.RpcError as error:
                undone = "nothing was done" in (error.details() or "")
                self.tries["refused" if undone else "unknown"] += 1
                if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNKNOWN,
                                        grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED):
                    self.wrong.append(f"{purchase}: {error.code()}: {error.details()}")
            at += 1
            time.sleep(0.1 * chance.random())
        raise TimeoutError(f"{purchase} was not decided")

    def _ask_again(self, purchase: Purchase, chance: random.Random) -> None:
        again = self._ask(purchase, chance)
        told = (again.replayed, again.outcome, again.purchase_number, again.stock_left)
        if told != (True, purchase.outcome, purchase.number, purchase.left):
            self.wrong.append(f"{purchase}, and its key, sent again, was answered {told}")

    def _look(self, chance: random.Random) -> None:
        book = chance.choice(list(BOOKS))
        try:
            request = self._messages.ItemNumberRequest(id=book)
            self.shown.append((book, chance.choice(self._shops).Lookup(request, timeout=TIMEOUT_SECONDS).book.stock))
        except grpc.RpcError:
            self.tries["look without answer"] += 1

    def _restock(self) -> None:
        chance = random.Random(self._seed)
        while not self._stop.wait(RESTOCK_SECONDS):
            try:
                reply = chance.choice(self._operators).Restock(self._messages.RestockRequest(amount=RESTOCK_TO),
                                                               timeout=TIMEOUT_SECONDS,
                                                               metadata=[("authorization", f"Bearer {TOKEN}")])
                self.raised += reply.books_raised
            except grpc.RpcError:
                self.tries["restock without answer"] += 1
