"""Calls the library for the suite: a request a line, an answer a line."""

import argparse
import asyncio
import base64
import json
import re
import secrets
import sys
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import grpc

from quire_client import AsyncClient, AsyncOperator, Fault, Tls, Unknown, Written
from quire_wire.bookstore_pb2 import ItemNumberRequest
from quire_wire.bookstore_pb2_grpc import BookStoreStub

AT_ONCE = 64
PARENT: ContextVar[str | None] = ContextVar("PARENT", default=None)
STATE: ContextVar[str | None] = ContextVar("STATE", default=None)
"""The trace of the request that a task answers, and its state."""
BOOK = 53477
SHOPPERS = ("buy", "receipt", "reserve", "confirm", "release")
"""Calls whose key is text."""
OPERATORS = ("list", "restock", "update_price", "log", "tail_log")
Fields = dict[str, Any]


def snake(found: object) -> str:
    """Give the name of a type as the suite writes it."""
    return re.sub("(?<!^)(?=[A-Z])", "_", type(found).__name__).lower()


def in_base64(value: bytes | None) -> str | None:
    """Give bytes as the suite has them."""
    return None if value is None else base64.b64encode(value).decode()


def bought(found: Any) -> Fields:  # noqa: ANN401, one of several outcomes
    """Give the fields of a purchase."""
    fields = {"outcome": snake(found), "key": found.key, "replayed": getattr(found, "replayed", False)}
    optional = {"number": getattr(found, "number", None), "stock_left": getattr(found, "stock_left", None)}
    return fields | {name: value for name, value in optional.items() if value is not None}


def reserved(found: Any) -> Fields:  # noqa: ANN401, a reservation or an unknown outcome
    """Give the fields of a reservation."""
    if isinstance(found, Unknown):
        return bought(found)
    optional = {name: getattr(found, name) for name in ("id", "quantity", "number", "until_ms")}
    fields = {"outcome": found.outcome, "key": found.key, "replayed": found.replayed}
    left = {} if found.stock_left is None else {"stock_left": found.stock_left}
    return fields | left | {name: value for name, value in optional.items() if value}


def entry(found: Any) -> Fields:  # noqa: ANN401, an entry or none
    """Give the fields of an entry."""
    if found is None:
        return {"outcome": "no_such_key"}
    left = {} if found.ttl is None else {"ttl_ms": round(found.ttl * 1000)}
    return {"value": in_base64(found.value), "version": found.version, **left}


def written(found: object) -> Fields:
    """Give the fields of a write."""
    return {"version": found.version} if isinstance(found, Written) else {"outcome": snake(found)}


def keys(found: list[Any]) -> Fields:
    """Give the keys of entries or events."""
    return {"keys": [in_base64(each.key) for each in found]}


SHOWN: dict[str, Callable[[Any], Fields]] = {
    "ping": lambda found: {"message": found},
    "search": lambda found: {"ids": [book.id for book in found]},
    "topics": lambda found: {"names": [topic.name for topic in found]},
    "lookup": lambda found: {"book": found and found._asdict()},
    "buy": bought,
    "receipt": lambda found: {"receipt": found and found.text, "log_key": found and found.log_key},
    "reserve": reserved,
    "confirm": reserved,
    "release": reserved,
    "create": written,
    "put": written,
    "update": written,
    "get": entry,
    "delete": lambda found: {"deleted": found.existed} if hasattr(found, "existed") else written(found),
    "scan": lambda found: keys(found) | {"values": [in_base64(each.value) for each in found]},
    "watch": lambda found: keys(found) | {"kinds": [event.kind for event in found]},
    "list": lambda found: {"ids": [book.id for book in found]},
    "restock": lambda found: {"raised": found},
    "update_price": lambda found: {"before": found and found.before, "after": found and found.after},
    "log": lambda found: {"numbers": [each.number for each in found]},
    "tail_log": lambda found: {"numbers": [each.number for each in found]},
}


def root(fault: BaseException) -> str:
    """Give the first cause; gRPC's own text has several lines."""
    if fault.__cause__:
        return root(fault.__cause__)
    return str(fault.details() if isinstance(fault, grpc.aio.AioRpcError) else fault)


def show(fields: Fields) -> None:
    """Write an object in one line."""
    print(json.dumps(fields, separators=(",", ":")), flush=True)


async def fields(client: Any, number: int, call: str, about: Fields) -> Fields:  # noqa: ANN401, a client or an operator
    """Call, and give the fields of the answer."""
    if client is None:
        raise ValueError("an operator needs a token")
    for name in about.keys() & ({"value", "prefix"} if call in SHOPPERS else {"key", "value", "prefix"}):
        about[name] = base64.b64decode(about[name])
    PARENT.set(about.pop("traceparent", None))
    STATE.set(about.pop("tracestate", None))
    for name, ours in (("timeout_ms", "timeout"), ("ttl_ms", "ttl")):
        if name in about:
            about[ours] = about.pop(name) / 1000
    most = next((about.pop(name) for name in ("limit", "events", "entries") if name in about), None)
    found = getattr(client, call)(**about)
    if not hasattr(found, "__anext__"):
        return SHOWN[call](await found)
    if call == "watch":
        await anext(found)
        show({"n": number, "started": True})
    items: list[Any] = []
    while most is None or len(items) < most:
        try:
            items.append(await anext(found))
        except StopAsyncIteration:
            break
    await found.aclose()
    shown = SHOWN[call](items)
    if about.get("keys_only"):
        del shown["values"]
    return shown


async def drive(arguments: argparse.Namespace) -> None:
    """Answer requests to the end of the input, then wait for the answers that are due."""
    files = [arguments.ca, arguments.certificate, arguments.key_file]
    tls = Tls(*(Path(file).read_bytes() if file else None for file in files)) if arguments.ca else None
    options: Fields = {"tls": tls, "retries": arguments.retries, "traceparent": PARENT.get, "tracestate": STATE.get}
    client = AsyncClient(arguments.address, token=arguments.token, **options)
    operator = AsyncOperator(arguments.address, arguments.token, **options) if arguments.token else None
    places = asyncio.Semaphore(AT_ONCE)

    async def answer(request: Fields) -> None:
        number, call = request.pop("n"), request.pop("call")
        wants_cause = request.pop("cause", False)
        try:
            about = await fields(operator if call in OPERATORS else client, number, call, request)
            show({"n": number} | about)
        except Fault as fault:
            cause = {"cause": root(fault)} if wants_cause else {}
            show({"n": number, "error": snake(fault), "code": fault.code.name, "message": fault.message} | cause)
        except (TypeError, ValueError) as error:
            show({"n": number, "error": "argument", "message": str(error)})
        finally:
            places.release()

    async with client, asyncio.TaskGroup() as group:
        while line := await asyncio.to_thread(sys.stdin.buffer.readline):
            await places.acquire()
            group.create_task(answer(json.loads(line)))
    if operator:
        await operator.close()


async def bench(arguments: argparse.Namespace) -> None:
    """Call for some seconds and tell what it cost."""
    async with AsyncClient(arguments.address) as client, grpc.aio.insecure_channel(arguments.address) as channel:
        stub = BookStoreStub(channel)
        calls: dict[tuple[str, bool], Callable[[], Awaitable[Any]]] = {
            ("lookup", False): lambda: client.lookup(BOOK),
            ("buy", False): lambda: client.buy(BOOK),
            ("lookup", True): lambda: stub.Lookup(ItemNumberRequest(id=BOOK)),
            ("buy", True): lambda: stub.Buy(ItemNumberRequest(id=BOOK, idempotency_key=secrets.token_bytes(16))),
        }
        call = calls[arguments.call, arguments.bare]
        await call()
        count = 0
        began, cpu = time.perf_counter(), time.process_time()
        end = began + arguments.seconds

        async def work() -> None:
            nonlocal count
            while time.perf_counter() < end:
                if isinstance(await call(), Unknown):
                    sys.exit("it is not known what came of a purchase")
                count += 1

        await asyncio.gather(*(work() for _ in range(arguments.in_flight)))
        took = {"cpu_seconds": time.process_time() - cpu, "seconds": time.perf_counter() - began}
        show({"calls": count, **took})


def main() -> None:
    """Drive, or bench."""
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    if sys.argv[1:2] == ["bench"]:
        parser.add_argument("--call", choices=["lookup", "buy"], required=True)
        parser.add_argument("--in-flight", type=int, required=True)
        parser.add_argument("--seconds", type=float, required=True)
        parser.add_argument("--bare", action="store_true")
        asyncio.run(bench(parser.parse_args(sys.argv[2:])))
        return
    for flag in ("--token", "--ca", "--certificate", "--key-file"):
        parser.add_argument(flag)
    parser.add_argument("--retries", type=int, default=3)
    asyncio.run(drive(parser.parse_args()))


if __name__ == "__main__":
    main()
