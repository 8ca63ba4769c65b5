"""Watches a key, changes it, and sees the change."""

import asyncio
import sys

from quire_client import AsyncClient, EventKind

address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:10086"


async def main() -> None:
    """Watch until the change has come."""
    async with AsyncClient(address) as client:
        async for event in client.watch(b"greeting"):
            if event.kind is EventKind.STARTED:
                print("watching")
                await client.put(b"greeting", b"hello")
            elif event.kind is EventKind.PUT and event.value is not None:
                print(f"put {event.key.decode()} = {event.value.decode()}")
                break


asyncio.run(main())
