"""Sends the same purchase twice, with one key. The second answer is that of the first; nothing is bought twice."""

import sys
import uuid

from quire_client import Bought, Client

address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:10086"

with Client(address) as client:
    key = str(uuid.uuid4())
    for _ in range(2):
        match client.buy(12365, key=key):
            case Bought(number=number, replayed=replayed):
                print(f"purchase {number}, {'replayed' if replayed else 'new'}")
            case other:
                print(other)
