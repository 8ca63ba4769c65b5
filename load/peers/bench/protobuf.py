"""Protobuf and gRPC by hand, as far as the loads need them. Must not know any load."""

import struct


def varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def field(number: int, value: int | str | bytes) -> bytes:
    """One field; a number that is 0, and an empty text, are left out."""
    if not value:
        return b""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def message(*values: int | str | bytes) -> bytes:
    """The fields 1, 2, 3, … of a message."""
    return b"".join(field(number, value) for number, value in enumerate(values, 1))


def framed(body: bytes) -> bytes:
    """A message behind gRPC's five-byte prefix."""
    return struct.pack(">BI", 0, len(body)) + body


def frames(data: bytes) -> list[bytes]:
    """The messages of a body."""
    found = []
    while data:
        length = struct.unpack(">I", data[1:5])[0]
        found.append(data[5 : 5 + length])
        data = data[5 + length :]
    return found
