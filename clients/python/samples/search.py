"""Prints the books of a topic."""

import sys

from quire_client import Client

address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:10086"

with Client(address) as client:
    for book in client.search("distributed systems"):
        print(f"{book.id} {book.title}: {book.stock} at {book.price_cents // 100}.{book.price_cents % 100:02}")
