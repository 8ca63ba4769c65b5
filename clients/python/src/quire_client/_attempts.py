"""Sends until there is an answer or the time is over. Decides what may be sent again, and what a failure means."""

from collections.abc import AsyncIterator, Callable, Coroutine
from math import inf
from random import uniform
from time import monotonic
from typing import Any, NamedTuple, TypeVar

import grpc
from grpc import StatusCode as Code

from quire_client._connections import RECOVERY_SECONDS, Connections, Lane
from quire_client._faults import Fault, OutcomeUnknown, Refused, Unreachable
from quire_wire import bookstore_pb2 as wire

Request = TypeVar("Request")
Reply = TypeVar("Reply")
T = TypeVar("T")
PagedRequest = TypeVar("PagedRequest", wire.BookTopicRequest, wire.ListTopicsRequest, wire.ListRequest, wire.LogRequest)
PagedReply = TypeVar("PagedReply", wire.BookListReply, wire.ListTopicsReply, wire.ListReply, wire.LogReply)

GREETED = "quire client"
PAUSE_SECONDS = 0.1
PAUSE_SECONDS_MAX = 2.0
CONNECTING_SHARE = 0.8
RETRIES_MAX = 1_000_000

OPEN = {Code.UNAVAILABLE, Code.UNKNOWN, Code.DEADLINE_EXCEEDED, Code.CANCELLED}
"""Codes of a request that the server may have done all the same."""

BROKEN = ("Stream removed (", "Exception deserializing response!")
"""How gRPC begins what it says of a request that the server did not answer, with any code; a test holds it to that."""

TIME_IS_UP = (Code.DEADLINE_EXCEEDED, "Deadline Exceeded")
"""What gRPC says of a request that had no answer in time."""


class Kind(NamedTuple):
    """What may be sent again, and how long the whole call takes unless the caller says otherwise."""

    name: str
    seconds: float


READ = Kind("read", 5.0)
"""It changes nothing."""
PURCHASE = Kind("purchase", 30.0)
"""It has a key, so it is done once however often it is sent."""
WRITE = Kind("write", 5.0)
"""It may be done twice if it is sent twice."""


class Failure(NamedTuple):
    """An attempt without an answer of the store's."""

    is_sent: bool
    code: Code
    message: str
    did: str = "did not answer"
    """What the server did."""
    pushback: float | None = None
    """The pause that the server asks for in seconds; infinite if it wants no other attempt."""
    cause: BaseException | None = None


NOT_CONNECTED = Failure(is_sent=False, code=Code.UNAVAILABLE, message="no server can be reached")
NO_ANSWER = Failure(is_sent=True, code=Code.UNKNOWN, message="nothing that can be read", did="answered")


class Attempts:
    """Counts the attempts of one call."""

    def __init__(self, kind: Kind, retries: int, deadline: float, server: str) -> None:
        """Take the deadline of the whole call, and what messages name the server."""
        self.kind, self.retries, self.deadline, self.server = kind, retries, deadline, server
        self.tries = 0
        self.pause = PAUSE_SECONDS
        self.doubt: Failure | None = None

    def again(self, failure: Failure) -> float:
        """Give the pause before the next attempt in seconds, or raise what the call ends with."""
        self.tries += 1
        is_doubtful = failure.is_sent and failure.code in OPEN and self.kind is not READ
        if is_doubtful:
            self.doubt = failure
        if self.doubt:
            is_worth_it = self.kind is PURCHASE and self.retries > 0
        else:
            is_worth_it = self.tries <= self.retries and (
                not failure.is_sent
                or failure.code is Code.RESOURCE_EXHAUSTED
                or (self.kind is READ and failure.code in (Code.UNAVAILABLE, Code.UNKNOWN))
            )
        pause = failure.pushback
        if pause is None:
            pause = self.pause * uniform(0.8, 1.2)  # noqa: S311, no secret
        self.pause = min(self.pause * 2, PAUSE_SECONDS_MAX)
        if is_worth_it and monotonic() + pause < self.deadline:
            return pause
        raise self._fault(failure) from (self.doubt or failure).cause

    def _fault(self, failure: Failure) -> Fault:
        if failure.is_sent and failure.code not in OPEN and not self.doubt:
            return Refused(failure.code, failure.message)
        _, code, message, did, *_ = self.doubt or failure
        message = f"{self.server} {did}: {message}"
        return OutcomeUnknown(code, message) if self.doubt else Unreachable(code, message, sent=failure.is_sent)


class Caller:
    """Calls a server on some connections."""

    def __init__(self, connections: Connections, retries: int) -> None:
        """Check `retries`: how often a call is sent again."""
        self.connections = connections
        self.retries = whole("retries", retries, 0, RETRIES_MAX)
        self.deadline = inf
        """When every call ends, however much of its timeout is left."""

    async def ask(
        self,
        kind: Kind,
        select: "Callable[[Lane], grpc.UnaryUnaryMultiCallable[Request, Reply]]",
        request: Request,
        timeout: float | None,
    ) -> Reply:
        """Send a request until there is an answer. `select` names the call."""
        begin = monotonic()
        seconds = kind.seconds if timeout is None else _checked(timeout)
        seconds = max(min(seconds, self.deadline - begin), 0.001)
        # A quarter or more, however many retries are allowed.
        left = share = seconds / (min(self.retries, 3) + 1) if kind is PURCHASE else seconds
        connections = self.connections
        attempts: Attempts | None = None
        is_sent = False
        try:
            while True:
                lane = connections.pick()
                if lane is None:
                    waited = monotonic()
                    lane = await connections.ready(left * CONNECTING_SHARE, 0 if attempts else RECOVERY_SECONDS)
                    left -= monotonic() - waited
                failure = NOT_CONNECTED
                if lane is not None:
                    is_sent, failure = True, NO_ANSWER
                    try:
                        reply = await connections.send(select(lane), request, left)
                    except grpc.RpcError as error:
                        failure = _failure(error)
                    else:
                        # gRPC gives none for an answer that it cannot read.
                        if reply is not None:
                            return reply
                if attempts is None:
                    attempts = Attempts(kind, self.retries, begin + seconds, connections.name())
                pause = await self._again(attempts, failure)
                is_sent = attempts.doubt is not None
                await connections.pause(pause)
                # What was slept too long must not end an attempt that has not begun.
                left = max(min(share, attempts.deadline - monotonic()), 0.001)
        except Fault:
            raise
        except BaseException as interruption:
            if is_sent and kind is not READ:
                interruption.add_note(IN_DOUBT)
            raise

    async def _again(self, attempts: Attempts, failure: Failure) -> float:
        """Give the pause before the next attempt, or raise what the call ends with, and why no server was reached."""
        try:
            return attempts.again(failure)
        except Unreachable as fault:
            if fault.sent:
                raise
            cause = await self.connections.cause()
            message = f"{attempts.server} cannot be reached: {_words(cause)}"
            raise Unreachable(fault.code, message, sent=False) from cause

    async def pages(
        self,
        select: "Callable[[Lane], grpc.UnaryUnaryMultiCallable[PagedRequest, PagedReply]]",
        request: PagedRequest,
        timeout: float | None,
    ) -> AsyncIterator[PagedReply]:
        """Read page after page, each with the timeout."""
        while True:
            page = await self.ask(READ, select, request, timeout)
            yield page
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def follow(
        self,
        select: "Callable[[Lane], grpc.UnaryStreamMultiCallable[Request, Reply]]",
        request: Request,
        timeout: float | None,
    ) -> AsyncIterator[Reply]:
        """Send a request and give its answers; send it again until the first one has come."""
        seconds = PURCHASE.seconds if timeout is None else _checked(timeout)
        attempts = Attempts(READ, self.retries, monotonic() + seconds, self.connections.name())
        has_begun = False
        while True:
            wait = min(attempts.deadline - monotonic(), READ.seconds) * CONNECTING_SHARE
            lane = self.connections.pick() or await self.connections.ready(
                wait, 0 if attempts.tries else RECOVERY_SECONDS
            )
            failure = NOT_CONNECTED
            if lane is not None:
                left = None if timeout is None else attempts.deadline - monotonic()
                replies = self.connections.receive(select(lane), request, left)
                try:
                    async for reply in replies:
                        has_begun = True
                        yield reply
                except grpc.RpcError as error:
                    failure = _failure(error)
                else:
                    return
                finally:
                    await replies.aclose()  # type: ignore[attr-defined]
            if has_begun:
                # A second stream would begin anew.
                attempts.tries = self.retries
                failure = failure._replace(did="ended the stream")
            await self.connections.pause(await self._again(attempts, failure))


IN_DOUBT = "the request was sent; the server may have done it"


def run(call: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends."""
    try:
        call.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise RuntimeError("a call on blocking connections was suspended")


def _failure(error: grpc.RpcError) -> Failure:
    """Read what gRPC raises, which is a call as well."""
    call: Any = error
    code, message = call.code(), call.details() or ""
    if message.startswith(BROKEN):
        return Failure(is_sent=True, code=code if code in OPEN else Code.UNAVAILABLE, message=message, cause=error)
    if (code, message) == TIME_IS_UP:
        return Failure(is_sent=True, code=code, message="time is up", cause=error)
    wanted = dict(call.trailing_metadata() or ()).get("grpc-retry-pushback-ms")
    pushback = None
    if wanted is not None:
        pushback = int(wanted) / 1e3 if wanted.isascii() and wanted.isdigit() and len(wanted) < 16 else inf  # noqa: PLR2004
    did = f"answered {code.name}" if message else "answered"
    return Failure(True, code, message or code.name, did, pushback, error)  # noqa: FBT003, the class has the names


def _words(cause: grpc.RpcError | None) -> str:
    """Name why no connection could be made, in gRPC's words."""
    said: Any = cause
    details = said.details() or "" if cause else ""
    words = details.rpartition("last error: ")[2] or "no server answered in time"
    is_untrusted = "CERTIFICATE_VERIFY_FAILED" in details or "certificate verify failed" in details
    return f"the server's certificate is not trusted: {words}" if is_untrusted else words


def of_kind(name: str, value: T, kind: type[T]) -> T:
    """Give the value, or raise an error that names it."""
    if not isinstance(value, (int, float) if kind is float else kind):
        raise TypeError(f"{name} is {value!r}; it must be of the type {kind.__name__}")
    return value


def _checked(timeout: float) -> float:
    if not 0 < of_kind("timeout", timeout, float) < inf:
        raise ValueError(f"timeout is {timeout}; it must be a time in seconds above 0, or None")
    return timeout


def whole(name: str, value: int, least: int, most: int) -> int:
    """Give the number, or raise an error that names it."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is {value!r}; it must be a whole number from {least} to {most}")
    if not least <= value <= most:
        raise ValueError(f"{name} is {value}; it must be a whole number from {least} to {most}")
    return value
