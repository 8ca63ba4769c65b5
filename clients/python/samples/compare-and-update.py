"""Updates an entry only if no one else has changed it since it was read."""

import sys

from quire_client import AnotherVersion, Client, Exists, NoSuchKey, Written

address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:10086"

with Client(address) as client:
    match client.create(b"counter", b"1"):
        case Written():
            print("created 1")
        case Exists():
            print("there is a counter already")

    entry = client.get(b"counter")
    if entry is None:
        sys.exit("the counter has gone")
    for value in (b"2", b"3"):
        match client.update(b"counter", value, expected_version=entry.version):
            case Written():
                print(f"updated {value.decode()}")
            case AnotherVersion():
                print("another version: read again")
            case NoSuchKey():
                print("the counter has gone")
