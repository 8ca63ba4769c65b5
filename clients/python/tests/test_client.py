"""What needs no server."""

import asyncio
import contextlib
import inspect
import io
import socket
import struct
import threading
import unittest
from typing import Any
from unittest import mock

import grpc
from grpc import StatusCode as Code

import quire_client
from quire_client import AsyncClient, Client, Operator, OutcomeUnknown, Refused, Tls, Unreachable
from quire_client.__main__ import _report
from quire_client._address import WrongAddressError, parse_all
from quire_client._attempts import IN_DOUBT, PURCHASE, READ, WRITE, Caller, Kind, run
from quire_client._values import Book
from quire_wire import bookstore_pb2 as wire


class Values(unittest.TestCase):
    def test_a_fraction_is_rounded_once(self) -> None:
        for fraction, cents in [(0.29, 29), (19.999999, 2000), (float("nan"), 0), (float("inf"), 0)]:
            self.assertEqual(Book.from_wire(wire.Book(price=fraction)).price_cents, cents)
        self.assertEqual(Book.from_wire(wire.Book(price=1.0, price_cents=250)).price_cents, 250)


class Addresses(unittest.TestCase):
    def test_addresses(self) -> None:
        for text, target in [
            (":80", "127.0.0.1:80"),
            ("a", "a:10086"),
            ("https://[::1]/", "[::1]:10086"),
            ("a:080", "a:80"),
        ]:
            self.assertEqual(parse_all(text)[0].target, target)
        for text in [
            "",
            "::1",
            "[::1",
            "a:1,",
            "a/b",
            "ftp://a",
            "a:0",
            "a:65536",
            "8080",
            "a b",
            "http://a,https://b",
        ]:
            with self.assertRaises(WrongAddressError):
                parse_all(text)


class Failed(grpc.RpcError):
    def __init__(self, status: Code, message: str = "", pushback: str | None = None) -> None:
        super().__init__()
        self.status, self.message, self.pushback = status, message, pushback

    def code(self) -> Code:
        return self.status

    def details(self) -> str:
        return self.message

    def trailing_metadata(self) -> Any:
        return [("grpc-retry-pushback-ms", self.pushback)] if self.pushback else []


class Scripted:
    """Connections that answer as a test says; None is a server that is away."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.pauses: list[float] = []

    def pick(self) -> Any:
        return self.answers[0] is not None or self.answers.pop(0)

    async def ready(self, _: float, __: float) -> None:
        return None

    async def send(self, *_: object) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def cause(self) -> grpc.RpcError:
        return Failed(Code.UNAVAILABLE, "failed to connect to all addresses; last error: refused")

    def name(self) -> str:
        return "books:1"

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)


def ask(kind: Kind, *answers: Any, retries: int = 3) -> tuple[Any, list[float]]:
    scripted: Any = Scripted(*answers)
    request = wire.HelloRequest()
    return run(Caller(scripted, retries).ask(kind, lambda _: mock.Mock(), request, None)), scripted.pauses


class Retries(unittest.TestCase):
    def test_a_purchase_in_doubt_is_sent_until_the_store_answers(self) -> None:
        lost = [
            Failed(Code.UNAVAILABLE),
            Failed(Code.INVALID_ARGUMENT),
            None,
            Failed(Code.RESOURCE_EXHAUSTED),
            Failed(Code.UNKNOWN),
        ]
        found, pauses = ask(PURCHASE, *lost, "bought")
        self.assertEqual(found, "bought")
        for pause, wanted in zip(pauses, [0.1, 0.2, 0.4, 0.8, 1.6], strict=True):
            self.assertTrue(wanted * 0.8 <= pause <= wanted * 1.2)

    def test_doubt_is_never_a_refusal(self) -> None:
        for last in [None, Failed(Code.INVALID_ARGUMENT, pushback="-1"), Failed(Code.INTERNAL, pushback="soon")]:
            with self.assertRaises(OutcomeUnknown) as raised:
                ask(PURCHASE, Failed(Code.CANCELLED, "why"), last or Failed(Code.UNAVAILABLE, "why", "99999"))
            self.assertRegex(raised.exception.message, "^books:1 answered (CANCELLED|UNAVAILABLE): why$")

    def test_what_was_not_sent_is_unreachable(self) -> None:
        for kind in (READ, WRITE, PURCHASE):
            with self.assertRaises(Unreachable) as raised:
                ask(kind, None, None, None, None)
            self.assertFalse(raised.exception.sent)
            self.assertEqual(raised.exception.message, "books:1 cannot be reached: refused")
            self.assertIsInstance(raised.exception.__cause__, grpc.RpcError)
        with self.assertRaises(Refused):
            ask(PURCHASE, None, Failed(Code.INVALID_ARGUMENT))

    def test_a_write_is_sent_once(self) -> None:
        self.assertEqual(ask(WRITE, None, Failed(Code.RESOURCE_EXHAUSTED, pushback="7"), "done")[0], "done")
        with self.assertRaises(OutcomeUnknown):
            ask(WRITE, Failed(Code.UNAVAILABLE), "done")

    def test_a_broken_connection_is_doubt_with_any_code(self) -> None:
        for wording in ("Stream removed (RST_STREAM)", "Exception deserializing response!"):
            with self.assertRaises(OutcomeUnknown):
                ask(PURCHASE, Failed(Code.INTERNAL, wording), retries=0)

    def test_an_interruption_says_if_the_request_was_sent(self) -> None:
        with self.assertRaises(KeyboardInterrupt) as raised:
            ask(PURCHASE, KeyboardInterrupt())
        self.assertIn(IN_DOUBT, raised.exception.__notes__)

    def test_reads_are_sent_again_as_often_as_is_said(self) -> None:
        passing = [Failed(Code.UNAVAILABLE), Failed(Code.UNKNOWN), Failed(Code.RESOURCE_EXHAUSTED)]
        self.assertEqual(ask(READ, *passing, "answer")[0], "answer")
        with self.assertRaises(Unreachable) as raised:
            ask(READ, *passing[:2], "answer", retries=1)
        self.assertEqual(raised.exception.code, Code.UNKNOWN)
        self.assertEqual(raised.exception.message, "books:1 answered: UNKNOWN")

    def test_an_interruption_between_attempts_that_did_nothing_is_no_doubt(self) -> None:
        scripted: Any = Scripted(Failed(Code.RESOURCE_EXHAUSTED, "full"))
        scripted.pause = mock.Mock(side_effect=KeyboardInterrupt())
        with self.assertRaises(KeyboardInterrupt) as raised:
            run(Caller(scripted, 3).ask(PURCHASE, lambda _: mock.Mock(), wire.HelloRequest(), None))
        self.assertFalse(hasattr(raised.exception, "__notes__"))

    def test_a_fault_says_what_the_server_did(self) -> None:
        for failed, words in [
            (
                Failed(Code.UNAVAILABLE, "Stream removed (Socket closed)"),
                "did not answer: Stream removed (Socket closed)",
            ),
            (Failed(Code.DEADLINE_EXCEEDED, "Deadline Exceeded"), "did not answer: time is up"),
            (Failed(Code.UNAVAILABLE, "later"), "answered UNAVAILABLE: later"),
        ]:
            with self.assertRaises(Unreachable) as raised:
                ask(READ, failed, retries=0)
            self.assertEqual(raised.exception.message, f"books:1 {words}")


class Names(unittest.TestCase):
    def test_the_package_lists_what_it_has(self) -> None:
        for name in quire_client.__all__:
            self.assertIn(name, dir(quire_client))
            self.assertTrue(getattr(quire_client, name))
        self.assertFalse(hasattr(quire_client, "grpc"))


class Arguments_(unittest.TestCase):  # noqa: N801, a class of the library has the name
    def test_wrong_ones_are_named_before_anything_is_sent(self) -> None:
        with Client("127.0.0.1:1") as client:
            for wrong in [
                lambda: client.buy(0),
                lambda: client.buy(1, 0),
                lambda: client.buy(1, key=""),
                lambda: client.buy(1, key="k" * 65),
                lambda: client.lookup(2**31),
                lambda: client.put(b"", b"", ttl=0),
                lambda: client.ping(timeout=0),
            ]:
                self.assertRaises(ValueError, wrong)
            text: Any = "text"
            for named, mistyped in [
                ("key", lambda: client.put(text, b"")),
                ("value", lambda: client.put(b"", text)),
                ("prefix", lambda: next(client.scan(text))),
                ("topic", lambda: next(client.search(text.encode()))),
                ("key", lambda: client.buy(1, key=text.encode())),
                ("timeout", lambda: client.ping(timeout=text)),
                ("ttl", lambda: client.put(b"", b"", ttl=text)),
                ("keys_only", lambda: next(client.scan(keys_only=text))),
                ("token", lambda: Client("a", token=text.encode())),
                ("tls", lambda: Client("a", tls=text)),
                ("addresses", lambda: Client([text, text.encode()])),
            ]:
                self.assertRaisesRegex(TypeError, f"^{named} is .*; it must be of the type \\w+$", mistyped)

    def test_what_blocks_has_no_asynchronous_signature(self) -> None:
        for blocking in [Client, Operator]:
            for name, call in inspect.getmembers(blocking, inspect.isfunction):
                self.assertNotIn("Async", str(inspect.signature(call)), name)
        for make in [
            lambda: Client("::1"),
            lambda: Client("a", token="tökn"),
            lambda: Client("a", retries=-1),
            lambda: Client("http://a", tls=Tls(b"")),
            lambda: Tls(None, b"", None),
            lambda: Operator("a", ""),
        ]:
            self.assertRaises(ValueError, make)


def frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    return struct.pack(">I", len(body))[1:] + struct.pack(">BBI", kind, flags, stream) + body


class Peer:
    """Speaks HTTP/2 so far that a request comes, and then resets its stream or closes."""

    def __init__(self, reset: int | None) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.reset = reset
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self) -> None:
        connection, _ = self.listener.accept()
        with self.listener, connection, connection.makefile("rb") as source:
            connection.sendall(frame(4, 0, 0))
            source.read(24)
            while head := source.read(9):
                source.read(int.from_bytes(head[:3], "big"))
                if head[3] == 0 and self.reset is None:
                    return
                if head[3] == 0 and self.reset is not None:
                    connection.sendall(frame(3, 0, int.from_bytes(head[5:], "big"), struct.pack(">I", self.reset)))


class Threads(unittest.TestCase):
    def test_a_channel_that_was_closed_is_no_failure_of_its_watcher(self) -> None:
        for words, is_told in (("Cannot monitor channel state: Channel closed!", False), ("something else", True)):
            with contextlib.redirect_stderr(io.StringIO()) as told:
                _report(threading.ExceptHookArgs((ValueError, ValueError(words), None, None)))
            self.assertEqual("ValueError" in told.getvalue(), is_told, words)


class Broken(unittest.TestCase):
    def test_a_stream_that_ends_without_an_answer_leaves_a_write_in_doubt(self) -> None:
        for reset in (None, 1, 2, 7, 8, 11):
            peer = Peer(reset)
            with Client(peer.address, retries=0) as client:
                self.assertRaises(OutcomeUnknown, client.put, b"k", b"v")
            peer.thread.join(5)

    def test_the_same_with_asyncio(self) -> None:
        async def put(peer: Peer) -> None:
            async with AsyncClient(peer.address, retries=0) as client:
                with self.assertRaises(OutcomeUnknown):
                    await client.put(b"k", b"v")

        for reset in (None, 2, 11):
            peer = Peer(reset)
            asyncio.run(put(peer))
            peer.thread.join(5)


if __name__ == "__main__":
    unittest.main()
