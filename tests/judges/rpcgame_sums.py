"""What a game over a file of lines comes to, by the xxHash library's Python binding.

    python rpcgame_sums.py FILE MESSAGES...

prints for each number of messages the client checksum and the server checksum.
"""

import itertools
import pathlib
import re
import sys

import xxhash

# The name up to the first comma, and the digits right behind it. Bytes, so that only 0 to 9 are digits.
PAIR = re.compile(rb"([^,]*),([0-9]+)", re.DOTALL)


def pairs(text):
    found = (PAIR.match(line) for line in text.split(b"\n"))
    read = [(pair[1], int(pair[2])) for pair in found if pair]
    return [(name, count) for name, count in read if count < 2**64]


def sums(text, messages):
    client, server = xxhash.xxh3_64(), xxhash.xxh3_64()
    for place, (name, count) in enumerate(itertools.islice(itertools.cycle(pairs(text)), messages)):
        client.update(name + count.to_bytes(8, "little"))
        server.update(((xxhash.xxh3_64_intdigest(name) + count + place) % 2**64).to_bytes(8, "little"))
    return client.hexdigest(), server.hexdigest()


if __name__ == "__main__":
    content = pathlib.Path(sys.argv[1]).read_bytes()
    print(len(pairs(content)), "pairs")
    for number in map(int, sys.argv[2:]):
        print(number, *sums(content, number))
