"""Calls the library for the suite: a request a line, an answer a line."""

import argparse
import asyncio
import base64
import json
import secrets
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc

from quire_client import (
    AnotherVersion,
    AsyncClient,
    AsyncOperator,
    Bought,
    Exists,
    Fault,
    NoSuchBook,
    NoSuchKey,
    OutcomeUnknown,
    Refused,
    SoldOut,
    Tls,
    TooFew,
    Unknown,
    Written,
)
from quire_client._shop import book_json
from quire_wire.bookstore_pb2 import ItemNumberRequest
from quire_wire.bookstore_pb2_grpc import BookStoreStub

AT_ONCE = 64
BOOK = 53477
NAMES = {
    Bought: "bought",
    SoldOut: "sold_out",
    TooFew: "too_few",
    NoSuchBook: "no_such_book",
    Unknown: "unknown",
    Exists: "exists",
    NoSuchKey: "no_such_key",
    AnotherVersion: "another_version",
}
BYTES = ("value", "prefix")
"""Arguments in base64; `key` as well, except that of a purchase."""

Fields = dict[str, Any]


class Driver:
    """Answers requests with one client and, if there is a token, one operator."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        """Connect with the first request."""
        tls = None
        if arguments.ca:
            files = (arguments.ca, arguments.certificate, arguments.key_file)
            tls = Tls(*(Path(file).read_bytes() if file else None for file in files))
        about: Fields = {"tls": tls, "retries": arguments.retries}
        self.client = AsyncClient(arguments.address, token=arguments.token, **about)
        self.operator = AsyncOperator(arguments.address, arguments.token, **about) if arguments.token else None
        self.places = asyncio.Semaphore(AT_ONCE)

    async def serve(self) -> None:
        """Read requests to the end of the input, then wait for the answers that are due."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            while line := await loop.run_in_executor(None, sys.stdin.buffer.readline):
                await self.places.acquire()
                group.create_task(self.answer(json.loads(line)))
        await self.client.close()
        if self.operator:
            await self.operator.close()

    async def answer(self, request: Fields) -> None:
        """Answer one request."""
        number, call = request.pop("n"), request.pop("call")
        try:
            fields = await self.fields(number, call, decoded(call, request))
        except Fault as fault:
            kind = "unreachable"
            if isinstance(fault, Refused | OutcomeUnknown):
                kind = "refused" if isinstance(fault, Refused) else "outcome_unknown"
            fields = {"error": kind, "code": fault.code.name, "message": fault.message}
        except (TypeError, ValueError) as error:
            fields = {"error": "argument", "message": str(error)}
        finally:
            self.places.release()
        write(number, fields)

    async def fields(self, number: int, call: str, about: Fields) -> Fields:
        """Give the fields of an answer."""
        match call:
            case "search" | "topics" | "scan" | "list" | "log" | "tail_log" | "watch":
                return await self.listed(number, call, about)
            case "restock" | "update_price":
                if not self.operator:
                    raise ValueError("an operator needs a token")
                if call == "restock":
                    return {"raised": await self.operator.restock(**about)}
                change = await self.operator.update_price(**about)
                return {"before": change and change.before, "after": change and change.after}
        found = await getattr(self.client, call)(**about)
        match call, found:
            case "ping", _:
                return {"message": found}
            case "lookup", _:
                return {"book": found and book_json(found)}
            case "buy", Unknown():
                return {"outcome": "unknown", "key": found.key, "replayed": False}
            case "buy", _:
                fields = {"outcome": NAMES[type(found)], "key": found.key, "replayed": found.replayed}
                optional = {"number": getattr(found, "number", None), "stock_left": found.stock_left}
                return fields | {name: value for name, value in optional.items() if value is not None}
            case "retrieve", None:
                return {"outcome": "no_such_key"}
            case "retrieve", _:
                left = {} if found.ttl is None else {"ttl_ms": round(found.ttl * 1000)}
                return {"value": text(found.value), "version": found.version, **left}
            case "delete", _ if not isinstance(found, AnotherVersion):
                return {"deleted": found.existed}
            case _, Written():
                return {"version": found.version}
        return {"outcome": NAMES[type(found)]}

    async def listed(self, number: int, call: str, about: Fields) -> Fields:
        """Give the fields of an answer of many."""
        most = next((about.pop(name) for name in ("limit", "events", "entries") if name in about), None)
        if call not in ("search", "topics", "scan", "watch") and not self.operator:
            raise ValueError("an operator needs a token")
        maker = self.operator if call in ("list", "log", "tail_log") else self.client
        items = getattr(maker, call)(**about)
        if call == "watch":
            await anext(items)
            write(number, {"started": True})
        found = await taken(items, most)
        match call:
            case "search" | "list":
                return {"ids": [book.id for book in found]}
            case "topics":
                return {"names": [topic.name for topic in found]}
            case "log" | "tail_log":
                return {"numbers": [entry.number for entry in found]}
            case "watch":
                return {"kinds": [event.kind for event in found], "keys": [text(event.key) for event in found]}
        values = {} if about.get("keys_only") else {"values": [text(entry.value) for entry in found]}
        return {"keys": [text(entry.key) for entry in found], **values}


async def taken(items: AsyncIterator[Any], most: int | None) -> list[Any]:
    """Give the first items, or all; do not wait for more than are wanted."""
    found: list[Any] = []
    while most is None or len(found) < most:
        try:
            found.append(await anext(items))
        except StopAsyncIteration:
            break
    await items.aclose()  # type: ignore[attr-defined]
    return found


def decoded(call: str, about: Fields) -> Fields:
    """Give the arguments as the library has them."""
    for name in about.keys() & {*BYTES, *(["key"] if call != "buy" else [])}:
        about[name] = base64.b64decode(about[name])
    for name, ours in (("timeout_ms", "timeout"), ("ttl_ms", "ttl")):
        if name in about:
            about[ours] = about.pop(name) / 1000
    return about


def text(value: bytes | None) -> str | None:
    """Give bytes in base64."""
    return None if value is None else base64.b64encode(value).decode()


def write(number: int, fields: Fields) -> None:
    """Write an answer."""
    show({"n": number, **fields})


def show(fields: Fields) -> None:
    """Write an object in one line."""
    print(json.dumps(fields, separators=(",", ":")), flush=True)


async def bench(arguments: argparse.Namespace) -> None:
    """Call for some seconds and tell what it cost."""
    async with AsyncClient(arguments.address) as client, grpc.aio.insecure_channel(arguments.address) as channel:
        stub = BookStoreStub(channel)
        calls: dict[tuple[str, bool], Callable[[], Awaitable[Any]]] = {
            ("lookup", False): lambda: client.lookup(BOOK),
            ("buy", False): lambda: client.buy(BOOK),
            ("lookup", True): lambda: stub.Lookup(ItemNumberRequest(id=BOOK)),
            ("buy", True): lambda: stub.Buy(ItemNumberRequest(id=BOOK, idempotency_key=secrets.token_hex(16).encode())),
        }
        call = calls[arguments.call, arguments.bare]
        await call()
        count = 0
        began, cpu = time.perf_counter(), time.process_time()
        end = began + arguments.seconds

        async def work() -> None:
            nonlocal count
            while time.perf_counter() < end:
                await call()
                count += 1

        await asyncio.gather(*(work() for _ in range(arguments.in_flight)))
        took = {"cpu_seconds": time.process_time() - cpu, "seconds": time.perf_counter() - began}
        show({"calls": count, **took})


def main() -> None:
    """Drive, or bench."""
    parser = argparse.ArgumentParser()
    is_bench = sys.argv[1:2] == ["bench"]
    parser.add_argument("address")
    if is_bench:
        parser.add_argument("--call", choices=["lookup", "buy"], required=True)
        parser.add_argument("--in-flight", type=int, required=True)
        parser.add_argument("--seconds", type=float, required=True)
        parser.add_argument("--bare", action="store_true")
        asyncio.run(bench(parser.parse_args(sys.argv[2:])))
        return
    for flag in ("--token", "--ca", "--certificate", "--key-file"):
        parser.add_argument(flag)
    parser.add_argument("--retries", type=int, default=3)
    arguments = parser.parse_args()

    async def drive() -> None:
        await Driver(arguments).serve()

    asyncio.run(drive())


if __name__ == "__main__":
    main()
