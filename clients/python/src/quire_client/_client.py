"""The clients. The calls are coroutines, written once; blocking connections never suspend them."""

import functools
import inspect
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, get_args

import grpc
from grpc import StatusCode as Code

from quire_client._attempts import GREETED, PURCHASE, READ, WRITE, Caller, of_kind, run, whole
from quire_client._connections import AsyncConnections, BlockingConnections, Connections, Lane, Target, Tls
from quire_client._faults import OutcomeUnknown, Refused
from quire_client._values import (
    AnotherVersion,
    Book,
    Bought,
    Deleted,
    Entry,
    Event,
    Exists,
    LogEntry,
    NoSuchKey,
    NotBought,
    PriceChange,
    Receipt,
    Reservation,
    Topic,
    Unknown,
    Written,
    outcome,
)
from quire_wire import bookstore_pb2 as shop_wire
from quire_wire import kv_pb2 as kv_wire

TTL_SECONDS_MIN = 0.001
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
UINT64_MAX = 2**64 - 1
KEY_BYTES_MAX = 64
PAGE_SIZE = 1_000

P = ParamSpec("P")
T = TypeVar("T")
Other = TypeVar("Other")
Request = TypeVar("Request")
Reply = TypeVar("Reply")


class _Calls:
    """Has what every set of calls needs: someone who calls."""

    def __init__(self, connections: Connections, retries: int) -> None:
        self.caller = Caller(connections, retries)


class ShopperCalls(_Calls):
    """The bookstore's calls and the key-value store's. `timeout` is seconds for the whole call, retries included."""

    async def ping(self, *, timeout: float | None = None) -> str:
        """Test the connection; the answer is the server's greeting."""
        request = shop_wire.HelloRequest(name=GREETED)
        reply = await self.caller.ask(READ, lambda lane: lane.shop.Hello, request, timeout)
        return reply.hello_message

    async def search(
        self, topic: str, page_size: int = PAGE_SIZE, *, timeout: float | None = None
    ) -> AsyncIterator[Book]:
        """Give the books of a topic in the order of their ids. Each page has the timeout."""
        request = shop_wire.BookTopicRequest(
            topic=of_kind("topic", topic, str), page_size=whole("page_size", page_size, 1, INT32_MAX)
        )
        async for page in self.caller.pages(lambda lane: lane.shop.Search, request, timeout):
            for book in page.books:
                yield Book.from_wire(book)

    async def topics(self, near: str = "", *, timeout: float | None = None) -> AsyncIterator[Topic]:
        """Give the topics, or those near a text, the nearest first. Each page has the timeout."""
        request = shop_wire.ListTopicsRequest(near=of_kind("near", near, str))
        async for page in self.caller.pages(lambda lane: lane.shop.ListTopics, request, timeout):
            for topic in page.topics:
                yield Topic(topic.name, topic.books)

    async def lookup(self, id: int, *, timeout: float | None = None) -> Book | None:
        """Give the book with an id, if there is one."""
        request = shop_wire.ItemNumberRequest(id=whole("id", id, 1, INT32_MAX))
        reply = await self.caller.ask(READ, lambda lane: lane.shop.Lookup, request, timeout)
        return Book.from_wire(reply.book) if reply.HasField("book") else None

    async def buy(
        self, id: int, quantity: int = 1, *, key: str | None = None, timeout: float | None = None
    ) -> Bought | NotBought | Unknown:
        """Buy copies of a book, once, however often the purchase is sent.

        The key names the purchase: 1 to 64 bytes, random ones if it is none. To buy again with the key of an earlier
        purchase gives that purchase's outcome and buys nothing.
        """
        key = os.urandom(16).hex() if key is None else key
        request = shop_wire.ItemNumberRequest(
            id=whole("id", id, 1, INT32_MAX),
            quantity=whole("quantity", quantity, 1, INT32_MAX),
            idempotency_key=_key(key),
        )
        return await self._once(outcome, key, lambda lane: lane.shop.Buy, request, timeout)

    async def receipt(self, number: int, key: str, *, timeout: float | None = None) -> Receipt | None:
        """Give the receipt of a purchase that was made with the key; none if there is no such purchase."""
        request = shop_wire.ReceiptRequest(number=whole("number", number, 1, INT64_MAX), idempotency_key=_key(key))
        reply = await self.caller.ask(READ, lambda lane: lane.shop.Receipt, request, timeout)
        return Receipt(reply.receipt, reply.log_key) if reply.success else None

    async def reserve(
        self,
        id: int,
        quantity: int = 1,
        *,
        seconds: int | None = None,
        key: str | None = None,
        timeout: float | None = None,
    ) -> Reservation | Unknown:
        """Hold copies of a book for some seconds, 900 if it is none; then confirm or release them by the key.

        The key names the reservation as that of `buy` names a purchase.
        """
        key = os.urandom(16).hex() if key is None else key
        request = shop_wire.ReserveRequest(
            id=whole("id", id, 1, INT32_MAX),
            quantity=whole("quantity", quantity, 1, INT32_MAX),
            idempotency_key=_key(key),
            seconds=None if seconds is None else whole("seconds", seconds, 1, INT32_MAX),
        )
        return await self._once(Reservation.from_wire, key, lambda lane: lane.shop.Reserve, request, timeout)

    async def confirm(self, key: str, *, timeout: float | None = None) -> Reservation | Unknown:
        """Buy what a reservation holds, once, at the price of now."""
        request = shop_wire.ReservationRequest(idempotency_key=_key(key))
        return await self._once(Reservation.from_wire, key, lambda lane: lane.shop.Confirm, request, timeout)

    async def release(self, key: str, *, timeout: float | None = None) -> Reservation | Unknown:
        """Give back what a reservation holds."""
        request = shop_wire.ReservationRequest(idempotency_key=_key(key))
        return await self._once(Reservation.from_wire, key, lambda lane: lane.shop.Release, request, timeout)

    async def _once(
        self,
        read: Callable[[Reply, str], T],
        key: str,
        select: "Callable[[Lane], grpc.UnaryUnaryMultiCallable[Request, Reply]]",
        request: Request,
        timeout: float | None,
    ) -> T | Unknown:
        """Send what has a key, and read the answer."""
        try:
            return read(await self.caller.ask(PURCHASE, select, request, timeout), key)
        except OutcomeUnknown as fault:
            return Unknown(key, fault.code, fault.message)

    async def create(
        self, key: bytes, value: bytes, *, ttl: float | None = None, timeout: float | None = None
    ) -> Written | Exists:
        """Create an entry, which expires after `ttl` seconds."""
        request = kv_wire.CreateRequest(**_entry(key, value), time_to_live_ms=_ttl_ms(ttl), want_details=True)
        call = self.caller.ask(WRITE, lambda lane: lane.entries.Create, request, timeout)
        reply = await _unless(call, {Code.ALREADY_EXISTS: lambda _: Exists()})
        return reply if isinstance(reply, Exists) else Written(reply.version)

    async def put(self, key: bytes, value: bytes, *, ttl: float | None = None, timeout: float | None = None) -> Written:
        """Create an entry or replace its value. Without `ttl` it does not expire."""
        request = kv_wire.PutRequest(**_entry(key, value), time_to_live_ms=_ttl_ms(ttl))
        reply = await self.caller.ask(WRITE, lambda lane: lane.ranges.Put, request, timeout)
        return Written(reply.version)

    async def get(self, key: bytes, *, timeout: float | None = None) -> Entry | None:
        """Give the entry of a key, if there is one."""
        request = kv_wire.RetrieveRequest(key=of_kind("key", key, bytes), want_details=True)
        call = self.caller.ask(READ, lambda lane: lane.entries.Retrieve, request, timeout)
        reply = await _unless(call, {Code.NOT_FOUND: lambda _: None})
        return reply and Entry(key, reply.value, reply.version, _ttl(reply))

    retrieve = get

    async def update(
        self,
        key: bytes,
        value: bytes,
        *,
        expected_version: int | None = None,
        ttl: float | None = None,
        timeout: float | None = None,
    ) -> Written | NoSuchKey | AnotherVersion:
        """Replace the value of an entry, if it has the expected version. Without `ttl` it does not expire."""
        request = kv_wire.UpdateRequest(
            **_entry(key, value),
            expected_version=_version(expected_version),
            time_to_live_ms=_ttl_ms(ttl),
            want_details=True,
        )
        call = self.caller.ask(WRITE, lambda lane: lane.entries.Update, request, timeout)
        outcomes: dict[Code, Callable[[str], NoSuchKey | AnotherVersion]]
        outcomes = {Code.NOT_FOUND: lambda _: NoSuchKey(), Code.ABORTED: AnotherVersion}
        reply = await _unless(call, outcomes)
        return reply if isinstance(reply, NoSuchKey | AnotherVersion) else Written(reply.version)

    async def delete(
        self, key: bytes, *, expected_version: int | None = None, timeout: float | None = None
    ) -> Deleted | AnotherVersion:
        """Remove an entry, if it has the expected version."""
        request = kv_wire.DeleteRequest(
            key=of_kind("key", key, bytes), expected_version=_version(expected_version), want_details=True
        )
        call = self.caller.ask(WRITE, lambda lane: lane.entries.Delete, request, timeout)
        reply = await _unless(call, {Code.ABORTED: AnotherVersion})
        return reply if isinstance(reply, AnotherVersion) else Deleted(reply.deleted)

    async def scan(
        self, prefix: bytes = b"", *, keys_only: bool = False, timeout: float | None = None
    ) -> AsyncIterator[Entry]:
        """Give the entries with a prefix in the order of their keys. Each page has the timeout."""
        of_kind("keys_only", keys_only, bool)
        request = kv_wire.ScanRequest(prefix=of_kind("prefix", prefix, bytes), keys_only=keys_only)
        while True:
            page = await self.caller.ask(READ, lambda lane: lane.ranges.Scan, request, timeout)
            for entry in page.entries:
                value = None if keys_only or entry.value_left_out else entry.value
                yield Entry(entry.key, value, entry.version, _ttl(entry))
            if not page.HasField("next_start_after"):
                return
            request = kv_wire.ScanRequest(prefix=prefix, keys_only=keys_only, start_after=page.next_start_after)

    async def watch(self, prefix: bytes = b"", *, timeout: float | None = None) -> AsyncIterator[Event]:
        """Give every change to keys with a prefix. The first event says that the watch has begun."""
        request = kv_wire.WatchRequest(prefix=of_kind("prefix", prefix, bytes))
        async for event in self.caller.follow(lambda lane: lane.ranges.Watch, request, timeout):
            yield Event.from_wire(event)


class OperatorCalls(_Calls):
    """The operator's calls. `timeout` is seconds for the whole call, retries included."""

    async def list(self, *, timeout: float | None = None) -> AsyncIterator[Book]:
        """Give every book in the order of ids. Each page has the timeout."""
        async for page in self.caller.pages(lambda lane: lane.admin.List, shop_wire.ListRequest(), timeout):
            for book in page.books:
                yield Book.from_wire(book)

    async def restock(self, amount: int | None = None, *, timeout: float | None = None) -> int:
        """Raise every book that has fewer copies to `amount`, 20 if it is none; give the number of books raised."""
        request = shop_wire.RestockRequest(amount=None if amount is None else whole("amount", amount, 0, INT32_MAX))
        reply = await self.caller.ask(WRITE, lambda lane: lane.admin.Restock, request, timeout)
        return reply.books_raised

    async def update_price(self, id: int, cents: int, *, timeout: float | None = None) -> PriceChange | None:
        """Set the price of a book; none if there is no such book."""
        request = shop_wire.UpdatePriceRequest(
            id=whole("id", id, 1, INT32_MAX), price_cents=whole("cents", cents, 0, INT64_MAX)
        )
        reply = await self.caller.ask(WRITE, lambda lane: lane.admin.UpdatePrice, request, timeout)
        return PriceChange(reply.price_cents_before, reply.price_cents_after) if reply.success else None

    async def log(self, page_size: int = PAGE_SIZE, *, timeout: float | None = None) -> AsyncIterator[LogEntry]:
        """Give the transaction log, newest first. Each page has the timeout."""
        request = shop_wire.LogRequest(page_size=whole("page_size", page_size, 1, INT32_MAX))
        async for page in self.caller.pages(lambda lane: lane.admin.Log, request, timeout):
            for entry in page.entries:
                yield LogEntry.from_wire(entry)

    async def tail_log(self, after: int | None = None, *, timeout: float | None = None) -> AsyncIterator[LogEntry]:
        """Give the entries behind a number, or those written from now on, as they come."""
        request = shop_wire.TailLogRequest(after_number=None if after is None else whole("after", after, 0, INT64_MAX))
        async for entry in self.caller.follow(lambda lane: lane.admin.TailLog, request, timeout):
            yield LogEntry.from_wire(entry)


class _Opened:
    """Has the connections that the arguments name."""

    def __init__(  # noqa: PLR0913, options have names
        self,
        addresses: str | Iterable[str] = "127.0.0.1",
        *,
        token: str | None = None,
        tls: Tls | None = None,
        retries: int = 3,
        traceparent: Callable[[], str | None] | None = None,
        tracestate: Callable[[], str | None] | None = None,
    ) -> None:
        """Connect with the first call, to one address or to several in turn.

        `traceparent` and `tracestate` give the trace that a call belongs to, in the form of W3C's Trace Context. Either
        is left out unless it is 1 to 512 bytes of printable ASCII without blanks around it, and a state alone.
        """
        if not isinstance(addresses, str):
            addresses = [of_kind("addresses", each, str) for each in addresses]
        if token is not None:
            of_kind("token", token, str)
        if tls is not None:
            of_kind("tls", tls, Tls)
        self._open(Target.of(addresses, token, tls, traceparent, tracestate), retries)

    def _open(self, target: Target, retries: int) -> None:
        raise NotImplementedError


class _OpenedByToken(_Opened):
    """The same for operators."""

    def __init__(  # noqa: PLR0913, options have names
        self,
        addresses: str | Iterable[str],
        token: str,
        *,
        tls: Tls | None = None,
        retries: int = 3,
        traceparent: Callable[[], str | None] | None = None,
        tracestate: Callable[[], str | None] | None = None,
    ) -> None:
        """Connect with the first call, to one address or to several in turn."""
        super().__init__(
            addresses, token=token, tls=tls, retries=retries, traceparent=traceparent, tracestate=tracestate
        )


class _Async(_Opened):
    """Ends with its connections."""

    caller: Caller

    def _open(self, target: Target, retries: int) -> None:
        self.caller = Caller(AsyncConnections(target), retries)

    async def close(self) -> None:
        """End the connections and every call on them."""
        await self.caller.connections.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncClient(_Async, ShopperCalls):
    """The bookstore and the key-value store, for the tasks of one event loop."""


class AsyncOperator(_OpenedByToken, _Async, OperatorCalls):
    """The operator's calls, for the tasks of one event loop."""


class _Blocking(_Opened):
    """Has the same calls for threads: a wrapper for each, with the signature and the text of the coroutine."""

    _calls: type[_Calls]

    def _open(self, target: Target, retries: int) -> None:
        self.calls = self._calls(BlockingConnections(target), retries)

    def close(self) -> None:
        """End the connections and every call on them."""
        run(self.calls.caller.connections.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _blocking(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[_Blocking, P], T]:
    @functools.wraps(method)
    def call(self: _Blocking, /, *args: P.args, **named: P.kwargs) -> T:
        return run(method(self.calls, *args, **named))

    return call


def _iterating(
    method: Callable[Concatenate[Any, P], AsyncIterator[T]],
) -> Callable[Concatenate[_Blocking, P], Iterator[T]]:
    @functools.wraps(method)
    def call(self: _Blocking, /, *args: P.args, **named: P.kwargs) -> Iterator[T]:
        items: Any = method(self.calls, *args, **named)
        try:
            while True:
                try:
                    yield run(anext(items))
                except StopAsyncIteration:
                    return
        finally:
            run(items.aclose())

    # `help` shows what this returns, not what the coroutine's generator does.
    signature = inspect.signature(method)
    items: Any = get_args(signature.return_annotation)
    returned = Iterator[items]
    call.__annotations__ = {**method.__annotations__, "return": returned}
    call.__signature__ = signature.replace(return_annotation=returned)  # type: ignore[attr-defined]
    return call


class Client(_Blocking):
    """The bookstore and the key-value store, for any number of threads."""

    _calls = ShopperCalls

    ping = _blocking(ShopperCalls.ping)
    search = _iterating(ShopperCalls.search)
    topics = _iterating(ShopperCalls.topics)
    lookup = _blocking(ShopperCalls.lookup)
    buy = _blocking(ShopperCalls.buy)
    receipt = _blocking(ShopperCalls.receipt)
    reserve = _blocking(ShopperCalls.reserve)
    confirm = _blocking(ShopperCalls.confirm)
    release = _blocking(ShopperCalls.release)
    create = _blocking(ShopperCalls.create)
    put = _blocking(ShopperCalls.put)
    get = _blocking(ShopperCalls.get)
    retrieve = get
    update = _blocking(ShopperCalls.update)
    delete = _blocking(ShopperCalls.delete)
    scan = _iterating(ShopperCalls.scan)
    watch = _iterating(ShopperCalls.watch)


class Operator(_OpenedByToken, _Blocking):
    """The operator's calls, for any number of threads."""

    _calls = OperatorCalls

    list = _iterating(OperatorCalls.list)
    restock = _blocking(OperatorCalls.restock)
    update_price = _blocking(OperatorCalls.update_price)
    log = _iterating(OperatorCalls.log)
    tail_log = _iterating(OperatorCalls.tail_log)


async def _unless(call: Coroutine[Any, Any, T], outcomes: Mapping[Code, Callable[[str], Other]]) -> T | Other:
    """Give the answer, or the outcome that a refusal is."""
    try:
        return await call
    except Refused as refused:
        if refused.code not in outcomes:
            raise
        return outcomes[refused.code](refused.message)


def _key(key: str) -> bytes:
    name = of_kind("key", key, str).encode()
    if not 1 <= len(name) <= KEY_BYTES_MAX:
        raise ValueError(f"the idempotency key has {len(name)} bytes; it must have 1 to {KEY_BYTES_MAX}")
    return name


def _entry(key: bytes, value: bytes) -> dict[str, bytes]:
    return {"key": of_kind("key", key, bytes), "value": of_kind("value", value, bytes)}


def _ttl_ms(ttl: float | None) -> int:
    """0 means that the entry does not expire."""
    if ttl is None:
        return 0
    if not TTL_SECONDS_MIN <= of_kind("ttl", ttl, float) <= UINT64_MAX / 1e3:
        raise ValueError(f"ttl is {ttl}; it must be a time in seconds from {TTL_SECONDS_MIN}, or None")
    return min(round(ttl * 1e3), UINT64_MAX)


def _ttl(entry: kv_wire.RetrieveResponse | kv_wire.Entry) -> float | None:
    return entry.time_to_live_ms / 1e3 if entry.HasField("time_to_live_ms") else None


def _version(version: int | None) -> int | None:
    return None if version is None else whole("expected_version", version, 0, UINT64_MAX)
