"""Proxies of TCP with faults: one that passes frames of HTTP/2 and harms some requests, and doors that can be closed so that
what is sent through them waits. Each runs in a thread of its own. Must not know what passes."""

import asyncio
import collections
import contextlib
import random
import socket
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

CHUNK = 1 << 16
FAULTS = {
    "cut request": "the connection closes in the middle of the request",
    "cut answer": "the connection closes in the middle of the answer",
    "swallow answer": "the request is served, its answer dropped, and the connection closes",
    "hold answer": "the answer and all behind it come late",
    "garble request": "the head of the request's frame is noise that no one can take for a frame",
    "garble answer": "the same with the answer",
    "refuse": "all connections close, and for a while no one listens",
    "restart": "the server is killed once it has the request, and starts again",
}
# Those that end what they are put to; no campaign has them.
LAST = {
    "freeze": "the answer passes, and behind it nothing, though the connection stays",
    "stop": "all connections close, and no one listens any more",
}
ON_REQUEST = ("cut request", "garble request", "refuse", "restart", "stop")
HOLD_SECONDS = 1.3
REFUSE_SECONDS = 0.3
PREFACE = len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
DATA, HEADERS = 0, 1
REQUESTS_A_BLOCK = 100


def plan(seed: int, requests: int) -> dict[int, str]:
    """Which requests have which fault; the same for the same seed. Each block of requests has every kind, and the slow ones
    every other block."""
    chance = random.Random(seed)
    found: dict[int, str] = {}
    for block in range(requests // REQUESTS_A_BLOCK):
        slow = ["hold answer", "refuse"] if block % 2 else ["restart"]
        kinds = ["cut request", "cut answer", "garble request", "garble answer", "swallow answer", "swallow answer", *slow]
        first = 1 + block * REQUESTS_A_BLOCK
        found.update(zip(chance.sample(range(first, first + REQUESTS_A_BLOCK), len(kinds)), kinds, strict=True))
    return found


class _Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def stop(self) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _end(self) -> None:
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


class Proxy(_Loop):
    """Passes everything on, but for the faults of some requests, by their numbers."""

    def __init__(self, target: str, faults: Mapping[int, str], restart: Callable[[], None]) -> None:
        super().__init__()
        host, _, port = target.rpartition(":")
        self._target, self._restart, self._plan = (host, int(port)), restart, dict(faults)
        self.happened: collections.Counter[str] = collections.Counter()
        self._requests = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._chance = random.Random(0)
        self._port = 0
        self._run(self._listen())
        self.address = f"127.0.0.1:{self._port}"

    async def _end(self) -> None:
        self._server.close()
        await super()._end()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await self._connect(reader, writer)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, server_writer}
        marked: dict[int, str] = {}
        ways = [asyncio.create_task(self._requests_pass(reader, server_writer, marked)),
                asyncio.create_task(self._answers_pass(server_reader, writer, marked))]
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        for each in (writer, server_writer):
            self._writers.discard(each)
            # Half of the connections end in order, the others with a reset.
            each.close() if self._chance.random() < 0.5 else each.transport.abort()

    async def _requests_pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, marked: dict[int, str]) -> None:
        writer.write(await reader.readexactly(PREFACE))
        streams: set[int] = set()
        while True:
            kind, stream, frame = await _frame(reader)
            fault = None
            if kind == DATA and stream not in streams:
                streams.add(stream)
                self._requests += 1
                fault = self._plan.get(self._requests)
            if fault in ON_REQUEST:
                self.happened[fault] += 1
            elif fault:
                marked[stream] = fault
            match fault:
                case "cut request":
                    return await _send(writer, frame[:len(frame) // 2])
                case "garble request":
                    return await self._noise(writer, frame)
                case "refuse" | "stop":
                    return self._refuse(for_ever=fault == "stop")
                case "restart":
                    await _send(writer, frame)
                    await asyncio.get_running_loop().run_in_executor(None, self._restart)
                    return
            await _send(writer, frame)

    async def _answers_pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, marked: dict[int, str]) -> None:
        freezes = False
        while True:
            kind, stream, frame = await _frame(reader)
            fault = marked.pop(stream, None) if kind == HEADERS else None
            if fault:
                self.happened[fault] += 1
            match fault:
                case "cut answer":
                    return await _send(writer, frame[:len(frame) // 2])
                case "swallow answer":
                    return
                case "garble answer":
                    return await self._noise(writer, frame)
                case "hold answer":
                    await asyncio.sleep(HOLD_SECONDS)
            await _send(writer, frame)
            freezes |= fault == "freeze"
            if freezes and kind == DATA:
                await asyncio.Event().wait()

    async def _noise(self, writer: asyncio.StreamWriter, frame: bytes) -> None:
        """Without TLS no one could tell a garbled key from another key; a frame of 8 MiB or more is refused by everyone."""
        head = bytearray(self._chance.randbytes(9))
        head[0] |= 0x80
        await _send(writer, bytes(head) + frame[9:])
        # The other side is to end the connection itself, if it will.
        await asyncio.sleep(0.2)

    def _refuse(self, for_ever: bool) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()

        if for_ever:
            return

        async def again() -> None:
            await asyncio.sleep(REFUSE_SECONDS)
            await self._listen()

        self._again = self._loop.create_task(again())


async def _frame(reader: asyncio.StreamReader) -> tuple[int, int, bytes]:
    head = await reader.readexactly(9)
    return head[3], int.from_bytes(head[5:]) & 0x7FFFFFFF, head + await reader.readexactly(int.from_bytes(head[:3]))


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()


class Door:
    """A relay that can be closed: what is sent waits, as packets do that no one answers; it is not refused."""

    def __init__(self, loop: asyncio.AbstractEventLoop, to: int) -> None:
        self._loop, self._to = loop, to
        self._open = asyncio.Event()
        self._open.set()
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._socket.getsockname()[1]
        self._connections: set[asyncio.StreamWriter] = set()

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, sock=self._socket, limit=CHUNK)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._open.clear)

    def open(self) -> None:
        """Connections from before end, because their senders have long given up repeating what was lost."""
        def again() -> None:
            for writer in self._connections:
                writer.transport.abort()
            self._open.set()

        self._loop.call_soon_threadsafe(again)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            await self._open.wait()
            other_reader, other_writer = await asyncio.open_connection("127.0.0.1", self._to, limit=CHUNK)
        except OSError:
            self._connections.discard(writer)
            writer.transport.abort()
            return
        self._connections.add(other_writer)
        ways = [asyncio.create_task(self._pass(reader, other_writer)), asyncio.create_task(self._pass(other_reader, writer))]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        # No news of an end comes through either.
        await self._open.wait()
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        for each in (writer, other_writer):
            self._connections.discard(each)
            each.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._open.wait()
                writer.write(data)
                await writer.drain()


class Relays(_Loop):
    """All doors of a cluster."""

    def door(self, to: int) -> Door:
        """A new port that leads to another one of this machine."""
        door = Door(self._loop, to)
        self._run(door.listen())
        return door
