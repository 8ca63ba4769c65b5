"""The commands that a server answers, as text and as JSON. Must not know how lines are typed or shown."""

import os
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any

import grpc
from grpc import StatusCode as Code

from quire_client._arguments import Arguments, Command, UsageError
from quire_client._attempts import GREETED, IN_DOUBT, PURCHASE, READ, Caller, run
from quire_client._connections import BlockingConnections, Lane, Target, Tls
from quire_client._faults import Fault, OutcomeUnknown, Refused, Unreachable
from quire_client._text import escaped, price, quoted, table
from quire_client._values import Book
from quire_wire import bookstore_pb2 as wire

DONE, REFUSED, USAGE, UNREACHABLE, UNKNOWN = range(5)
"""Exit codes."""

PROGRAM = "quire-client"
SEEN_MAX = 10_000
LEARNING_SECONDS = 1.0
CAUSES = {Code.DEADLINE_EXCEEDED: "time is up", Code.CANCELLED: "interrupted", Code.UNKNOWN: "the server failed"}


@dataclass
class Answer:
    """What came of a command."""

    exit: int
    text: str
    json: dict[str, Any]
    is_fault: bool = False


@dataclass
class Seen:
    """Ids and topics that answers have shown, for completion; a bounded number of them."""

    ids: set[str] = field(default_factory=set)
    topics: set[str] = field(default_factory=set)

    def add(self, books: list[Book], topics: list[str]) -> None:
        """Keep what there is room for."""
        self.ids.update(str(book.id) for book in books[: SEEN_MAX - len(self.ids)])
        self.topics.update(topics[: SEEN_MAX - len(self.topics)])


class Shop:
    """A server, and the commands that it answers."""

    def __init__(self, arguments: Arguments) -> None:
        """Read the files; connect with the first command."""
        self.arguments = arguments
        is_encrypted = arguments.addresses[0].scheme == "https"
        target = Target.of(arguments.address, arguments.token or None, _tls(arguments.files) if is_encrypted else None)
        self.caller = Caller(BlockingConnections(target), arguments.retries)
        self.seen = Seen()
        self.deadline = 0.0
        self._has_learned = False

    def close(self) -> None:
        """End the connections."""
        run(self.caller.connections.close())

    def answer(self, command: Command) -> Answer:
        """Ask the server."""
        self.deadline = monotonic() + (self.arguments.seconds or READ.seconds)
        if command.name == "buy":
            return self._buy(command)
        ask = {"ping": self._ping, "topics": self._topics, "search": self._search, "lookup": self._lookup}
        try:
            return ask[command.name](command)
        except Fault as fault:
            return self._fault(fault)
        except KeyboardInterrupt:
            return self._fault(_interrupted())

    def topics_for_completion(self) -> set[str]:
        """Ask for the topics once, if they come soon."""
        if not self._has_learned:
            self._has_learned = True
            try:
                request = wire.ListTopicsRequest()
                page = run(self.caller.ask(READ, lambda lane: lane.shop.ListTopics, request, LEARNING_SECONDS))
                self.seen.add([], [topic.name for topic in page.topics])
            except Fault:
                pass
        return self.seen.topics

    def _left(self) -> float:
        """Seconds of the command's time, which its calls share."""
        return max(self.deadline - monotonic(), 0.001)

    def _ping(self, _: Command) -> Answer:
        began = 0.0

        def select(lane: Lane) -> "grpc.UnaryUnaryMultiCallable[wire.HelloRequest, wire.HelloReply]":
            nonlocal began
            began = perf_counter()
            return lane.shop.Hello

        reply = run(self.caller.ask(READ, select, wire.HelloRequest(name=GREETED), self._left()))
        took = perf_counter() - began
        answer = {"success": True, "message": reply.hello_message, "microseconds": round(took * 1e6)}
        return Answer(DONE, f"{escaped(reply.hello_message)} ({took * 1e3:.2f} ms)", answer)

    def _topics(self, command: Command) -> Answer:
        topics = run(self._all_topics(wire.ListTopicsRequest(near=command.text)))
        self.seen.add([], [topic.name for topic in topics])
        text = f"no topic is near '{escaped(command.text)}'" if command.text else "there are no topics"
        if topics:
            text = table(("topic", "books"), [(topic.name, str(topic.books)) for topic in topics], "books")
        listed = [{"name": topic.name, "books": topic.books} for topic in topics]
        return Answer(DONE, text, {"success": True, "topics": listed})

    def _search(self, command: Command) -> Answer:
        request = wire.BookTopicRequest(topic=command.text)
        try:
            parts = run(self._streamed(request))
        except Refused as refused:
            if refused.code is not Code.UNIMPLEMENTED:
                raise
            # The server knows no streams.
            parts = [run(self.caller.ask(READ, lambda lane: lane.shop.Search, request, self._left()))]
        books = [Book.from_wire(book) for part in parts for book in part.books]
        success, message = (parts[-1].success, parts[-1].message) if parts else (True, "")
        self.seen.add(books, [book.topic for book in books[:1]])
        answer = {"success": success, "message": message, "books": [book_json(book) for book in books]}
        text = _book_table(books) if books else escaped(message)
        near = [] if books else self._near(command.text)
        if near:
            text += "; near it: " + ", ".join(f"'{escaped(name)}'" for name in near)
            answer["near"] = near
        return Answer(DONE if success else REFUSED, text, answer)

    async def _all_topics(self, request: wire.ListTopicsRequest) -> list[wire.Topic]:
        pages = self.caller.pages(lambda lane: lane.shop.ListTopics, request, self._left())
        return [topic async for page in pages for topic in page.topics]

    async def _streamed(self, request: wire.BookTopicRequest) -> list[wire.BookListReply]:
        parts = self.caller.follow(lambda lane: lane.shop.SearchStream, request, self._left())
        return [part async for part in parts]

    def _near(self, topic: str) -> list[str]:
        """Give the topics near one that has no books; none from a server that cannot say."""
        try:
            return [topic.name for topic in run(self._all_topics(wire.ListTopicsRequest(near=topic)))]
        except Fault:
            return []

    def _lookup(self, command: Command) -> Answer:
        request = wire.ItemNumberRequest(id=command.id)
        reply = run(self.caller.ask(READ, lambda lane: lane.shop.Lookup, request, self._left()))
        books = [Book.from_wire(reply.book)] if reply.HasField("book") else []
        self.seen.add(books, [book.topic for book in books])
        text = _book_table(books) if books else escaped(reply.message)
        found = {"success": reply.success, "message": reply.message, "book": book_json(books[0]) if books else None}
        return Answer(DONE if reply.success else REFUSED, text, found)

    def _buy(self, command: Command) -> Answer:
        key = self.arguments.key or os.urandom(16).hex()
        request = wire.ItemNumberRequest(id=command.id, quantity=command.quantity, idempotency_key=key.encode())
        try:
            reply = run(self.caller.ask(PURCHASE, lambda lane: lane.shop.Buy, request, self.arguments.seconds))
        except Fault as fault:
            return self._not_bought(fault, key, command)
        except KeyboardInterrupt as interrupt:
            is_sent = IN_DOUBT in getattr(interrupt, "__notes__", ())
            return self._not_bought(OutcomeUnknown(Code.CANCELLED, "") if is_sent else _interrupted(), key, command)
        text = escaped(reply.message)
        if reply.success:
            text += f" (purchase {reply.purchase_number})"
        if reply.replayed:
            text += "; this key was sent before, nothing was bought again"
        is_known = reply.outcome in wire.BuyOutcome.values()
        answer = {
            "key": key,
            "message": reply.message,
            "outcome": wire.BuyOutcome.Name(reply.outcome if is_known else wire.BUY_OUTCOME_UNSPECIFIED),
            "purchase_number": reply.purchase_number,
            "replayed": reply.replayed,
            "stock_left": reply.stock_left if reply.HasField("stock_left") else None,
            "success": reply.success,
        }
        return Answer(DONE if reply.success else REFUSED, text, answer)

    def _not_bought(self, fault: Fault, key: str, command: Command) -> Answer:
        answer = self._fault(fault)
        answer.json["key"] = key
        if isinstance(fault, OutcomeUnknown):
            flags = [word for flag in self.arguments.files.items() for word in flag]
            again = [PROGRAM, "--key", key, *["--json"] * self.arguments.is_json, *flags, self.arguments.address, "buy"]
            again += [str(command.id), *[str(command.quantity)] * (command.quantity != 1)]
            line = quoted(again)
            answer.text = (
                f"it is not known whether book {command.id} was bought: {_cause(fault)}\n"
                f"the purchase has the key {escaped(key)}; "
                f"this asks for its outcome and buys nothing twice:\n    {line}"
            )
            answer.json |= {"message": answer.text, "command": line}
        return answer

    def _fault(self, fault: Fault) -> Answer:
        address = escaped(self.arguments.address)
        code, outcome, text = UNKNOWN, "UNKNOWN", ""
        if isinstance(fault, Refused):
            code, outcome, text = REFUSED, "REFUSED", fault.message
        elif isinstance(fault, Unreachable):
            code, outcome, text = UNREACHABLE, "UNREACHABLE", f"{address} did not answer: {_cause(fault)}"
            if not fault.connected:
                text = f"{address} cannot be reached; is a server running there?"
        answer = {"success": False, "outcome": outcome, "status": fault.code.name, "message": text}
        return Answer(code, escaped(text), answer, is_fault=True)


def book_json(book: Book) -> dict[str, Any]:
    """Give a book as the command line and the driver show it."""
    return {name: getattr(book, name) for name in ("id", "price_cents", "stock", "title", "topic")}


def _book_table(books: list[Book]) -> str:
    heads = ("id", "title", "topic", "stock", "price")
    rows = [(str(book.id), book.title, book.topic, str(book.stock), price(book.price_cents)) for book in books]
    return table(heads, rows, "id stock price")


def _cause(fault: Fault) -> str:
    return CAUSES.get(fault.code, "the connection broke, or the server is not available")


def _interrupted() -> Unreachable:
    return Unreachable(Code.CANCELLED, "", connected=True)


def _tls(files: dict[str, str]) -> Tls:
    """Read the files. The library of the system says if they hold what they must."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    contents: dict[str, bytes] = {}
    for flag, name in files.items():
        try:
            contents[flag] = Path(name).read_bytes()
            if flag == "--ca":
                context.load_verify_locations(name)
            elif flag == "--certificate":
                # Its key is checked with it; this finds a file without a certificate.
                ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(name)
            else:
                context.load_cert_chain(files["--certificate"], name, lambda: b"")
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot read {name}") from error
    return Tls(contents.get("--ca"), contents.get("--certificate"), contents.get("--key-file"))
