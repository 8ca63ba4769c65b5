"""Doors between the nodes: relays of TCP that can be closed so that a node is cut off. What is sent through a closed door
waits, as packets do that no one answers; it is not refused. Must not know what passes."""

import asyncio
import contextlib
import socket
import threading

CHUNK = 1 << 16


class Relays:
    """All relays of a cluster, in a thread of their own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def door(self, to: int) -> "Door":
        """A new port that leads to another one of this machine."""
        door = Door(self._loop, to)
        asyncio.run_coroutine_threadsafe(door.listen(), self._loop).result(10)
        return door

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _end(self) -> None:
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


class Door:
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
