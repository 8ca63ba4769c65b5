"""The loads, as data: what is asked, how many at once, and what must be answered. Must not know any server."""

import dataclasses

from .protobuf import field, framed, message

GRPC = "application/grpc"
SERVICE = "/benchmark.BenchmarkService/"
BOOK = 53477
STREAMED = 5_000
LARGE_BYTES = 1 << 20
RECORDS = 50
BATCH_BYTES = 22_000
FORTUNES = {
    number: text
    for number, text in enumerate(
        [
            "A cache is a promise that someone else will forget on time.",
            "Any queue without a bound is a memory leak with good manners.",
            "Every timeout is an opinion about the network.",
            "First make it stop, then make it fast.",
            "Measure once and publish; measure twice and correct.",
            "It works on my machine; ship the machine.",
            "No plan survives contact with a full disk.",
            "One more retry will surely calm the server down.",
            "Premature abstraction is the root of all interfaces.",
            "Quick, cheap, durable: your disk lets you pick none.",
            "The log knew all along.",
            "You can have a second of silence, or p99 below a second.",
        ],
        1,
    )
}
ADDED = "Additional fortune added at request time."


def batch() -> tuple[bytes, bytes]:
    """A batch of log records of `BATCH_BYTES`, and the answer to it."""
    records, text_bytes, label_bytes, errors, lines, latest = [], 0, 0, 0, 0, 0
    for number in range(RECORDS):
        time_ns, severity, line = 1_790_000_000_000_000_000 + number * 1_234_567, 1 + number % 4, 100 + 7 * number
        texts = ["checkout-service", f"checkout-7d9f8c6b5-{number:05}", f"{number * 0x9E3779B97F4A7C15:032x}"[-32:]]
        texts += [texts[2][:16], f"crates/checkout/src/handlers/payment_{number % 8}.rs", "checkout::payment::authorize"]
        labels = {"region": "eu-central-1", "zone": f"eu-central-1{'abc'[number % 3]}", "version": "2026.11.3"}
        labels |= {"customer_tier": ["free", "team", "enterprise"][number % 3], "http.status_code": str(200 + number)}
        text = f"authorized payment {number} of order {number * 7919} after {number % 5} retries: "
        # All records together have the wanted length.
        wanted = BATCH_BYTES * (number + 1) // RECORDS - sum(len(field(1, record)) for record in records)
        while True:
            texts_now = [texts[0], texts[1], text, texts[2], texts[3]]
            source = message(texts[4], line, texts[5])
            pairs = b"".join(field(6, message(key, value)) for key, value in labels.items())
            head = message(time_ns, texts_now[0], texts_now[1], severity, text)
            record = head + pairs + field(7, texts[2]) + field(8, texts[3]) + field(9, source)
            missing = wanted - len(field(1, record))
            if missing <= 0:
                break
            text += ("the gateway answered in time; " * 9)[:missing]
        records.append(record)
        text_bytes += sum(len(one) for one in [*texts_now, texts[4], texts[5]])
        label_bytes += sum(len(key) + len(value) for key, value in labels.items())
        errors, lines, latest = errors + (severity == 4), lines + line, max(latest, time_ns)
    answer = message(RECORDS, text_bytes, label_bytes, errors, lines, latest)
    return b"".join(field(1, record) for record in records), answer


def fortunes() -> bytes:
    """The fortunes as they are answered."""
    in_order = sorted([*FORTUNES.items(), (0, ADDED)], key=lambda fortune: fortune[1])
    return b"".join(field(1, message(number, text)) for number, text in in_order)


@dataclasses.dataclass(frozen=True)
class Call:
    """What is asked and what must be answered: the messages of each, not framed."""

    path: str
    asked: tuple[bytes, ...]
    answered: tuple[bytes, ...]


SUM = Call(SERVICE + "GetSum", (message(13, 42),), (message(55),))
BLOB = message(bytes(range(64)))
ECHO = Call(SERVICE + "Echo", (BLOB,), (BLOB,))
LARGE_BLOB = message(bytes(LARGE_BYTES))
LARGE = Call(SERVICE + "Echo", (LARGE_BLOB,), (LARGE_BLOB,))
STREAM = Call(
    SERVICE + "StreamSum",
    (message(13, 42, STREAMED),),
    tuple(message(55 + at) for at in range(STREAMED)),
)
COUNT = Call(SERVICE + "Count", (message(13, 42),) * STREAMED, (message(STREAMED, 55 * STREAMED),))
BATCH, INGESTED = batch()
INGEST = Call(SERVICE + "Ingest", (BATCH,), (INGESTED,))
FORTUNE = Call(SERVICE + "Fortunes", (b"",), (fortunes(),))
LOOKUP = Call("/bookstore.BookStore/Lookup", (message(BOOK),), ())


@dataclasses.dataclass(frozen=True)
class Load:
    """A column of a table: a call, and how many of them over how many connections."""

    # The table it belongs to, which `--only` selects.
    table: str
    call: Call
    connections: int
    streams: int
    # What a server must be able to do.
    needs: str
    column: str = ""
    content_type: str = GRPC
    # The request's and the answer's bodies, if they are not gRPC's.
    body: bytes | None = None
    answer: bytes | None = None
    tls: bool = False
    # Messages a call, where those are counted.
    messages: int = 1

    @property
    def title(self) -> str:
        return self.column or f"{self.connections:,}x{self.streams}"

    @property
    def sent(self) -> bytes:
        return b"".join(map(framed, self.call.asked)) if self.body is None else self.body

    @property
    def received(self) -> bytes:
        return b"".join(map(framed, self.call.answered)) if self.answer is None else self.answer


def lookup(column: str, kind: str, is_framed: bool, needs: str, tls: bool = False) -> Load:
    """Lookup in another protocol."""
    body = f'{{"id":{BOOK}}}'.encode() if kind.endswith("json") else LOOKUP.asked[0]
    body = framed(body) if is_framed else body
    return Load("lookup-protocols", LOOKUP, 10, 100, needs, column, kind, body=body, tls=tls)


def protocol(column: str, kind: str, body: bytes | None, answer: bytes | None, needs: str, tls: bool = False) -> Load:
    """GetSum in another protocol."""
    return Load("protocols", SUM, 10, 100, needs, column, kind, body, answer, tls)


# Title and order of the tables.
TABLES = {
    "lookup": "Lookup of the bookstore: connections x calls in flight",
    "lookup-protocols": "Lookup by each protocol, 10x100",
    "sum": "GetSum: connections x calls in flight",
    "echo": "Echo of 64 bytes, 8 connections: calls in flight",
    "large": "Echo of 1 MiB: connections x calls in flight",
    "ingest": "Ingest of 50 log records, 22 KB: connections x calls in flight",
    "fortunes": "Fortunes from Redis: connections x calls in flight",
    "streams": "Streams of 5,000 small messages a call: connections x calls in flight",
    "protocols": "GetSum by each protocol, 10x100",
}

LOADS = [
    *(Load("lookup", LOOKUP, c, m, "lookup") for c, m in [(1, 1), (1, 10), (1, 100), (10, 100), (100, 1), (256, 100), (1024, 100)]),
    lookup("gRPC", GRPC, True, "lookup"),
    lookup("gRPC-Web", "application/grpc-web+proto", True, "lookup-protocols"),
    lookup("Connect", "application/proto", False, "lookup-protocols"),
    lookup("Connect, JSON", "application/json", False, "lookup-protocols"),
    lookup("gRPC, JSON", "application/grpc+json", True, "lookup-protocols"),
    lookup("gRPC, TLS", GRPC, True, "lookup-protocols", tls=True),
    *(Load("sum", SUM, c, m, "sum") for c, m in [(1, 1), (10, 100), (256, 100), (1024, 100)]),
    *(Load("echo", ECHO, 8, flight // 8, "echo", f"{flight}") for flight in (16, 64, 256)),
    *(Load("large", LARGE, c, m, "large") for c, m in [(1, 1), (8, 4)]),
    *(Load("ingest", INGEST, c, m, "ingest") for c, m in [(1, 1), (8, 2), (8, 8), (8, 32)]),
    Load("fortunes", FORTUNE, 8, 32, "fortunes"),
    *(Load("streams", STREAM, c, m, "streams", f"answers {c}x{m}", messages=STREAMED) for c, m in [(1, 1), (4, 4)]),
    *(Load("streams", COUNT, c, m, "streams", f"requests {c}x{m}", messages=STREAMED) for c, m in [(1, 1), (4, 4)]),
    protocol("gRPC", GRPC, None, None, "sum"),
    protocol("gRPC-Web", "application/grpc-web+proto", None, None, "protocols"),
    protocol("Connect", "application/proto", SUM.asked[0], SUM.answered[0], "protocols"),
    protocol("Connect, JSON", "application/json", b'{"a":13,"b":42}', b'{"result":55}', "protocols"),
    protocol("gRPC, TLS", GRPC, None, None, "tls", tls=True),
]
