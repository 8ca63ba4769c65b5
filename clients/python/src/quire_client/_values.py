"""What the store says. Each is a value that can be matched on."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from grpc import StatusCode

from quire_wire import bookstore_pb2 as shop_wire
from quire_wire import kv_pb2 as kv_wire

__all__ = [
    "AnotherVersion",
    "Book",
    "Bought",
    "Deleted",
    "Entry",
    "Event",
    "EventKind",
    "Exists",
    "LogEntry",
    "LogEntryKind",
    "NoSuchBook",
    "NoSuchKey",
    "NotBought",
    "Outcome",
    "PriceChange",
    "Receipt",
    "Reservation",
    "ReservationOutcome",
    "SoldOut",
    "TooFew",
    "Topic",
    "Unknown",
    "Written",
]


class Book(NamedTuple):
    """A book, how many copies can be bought, and how many are held. A tuple, because a page has a thousand of them."""

    id: int
    title: str
    topic: str
    stock: int
    price_cents: int
    held: int = 0

    @classmethod
    def from_wire(cls, book: shop_wire.Book) -> "Book":
        """Take the fraction, rounded once, from a server that knows no cents."""
        cents = book.price_cents
        if not cents and math.isfinite(book.price):
            cents = round(book.price * 100)
        return cls(book.id, book.title, book.topic, book.stock, cents, book.held)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic and the number of its books."""

    name: str
    books: int


@dataclass(frozen=True, slots=True)
class _Answered:
    key: str
    replayed: bool
    """Whether this is the stored answer to an earlier purchase with the same key."""
    message: str
    stock_left: int | None


@dataclass(frozen=True, slots=True)
class Bought(_Answered):
    """The copies are sold, and the sale is on disk."""

    number: int


@dataclass(frozen=True, slots=True)
class NotBought(_Answered):
    """The store sold nothing. One of the classes below says why, if the server does; its message may as well."""


@dataclass(frozen=True, slots=True)
class SoldOut(NotBought):
    """No copy is left."""


@dataclass(frozen=True, slots=True)
class TooFew(NotBought):
    """Some copies are left, but fewer than were asked for."""


@dataclass(frozen=True, slots=True)
class NoSuchBook(NotBought):
    """The store has no book with this id."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """It is not known if the call was done. Call again with this key to learn it; nothing is done twice."""

    key: str
    code: StatusCode
    message: str


Outcome = Bought | NotBought | Unknown

_REFUSALS = {
    shop_wire.BUY_OUTCOME_SOLD_OUT: SoldOut,
    shop_wire.BUY_OUTCOME_TOO_FEW: TooFew,
    shop_wire.BUY_OUTCOME_NO_SUCH_BOOK: NoSuchBook,
}


def outcome(reply: shop_wire.BuyBookReply, key: str) -> Bought | NotBought:
    """Say what came of a purchase."""
    left = reply.stock_left if reply.HasField("stock_left") else None
    if reply.success:
        return Bought(key, reply.replayed, reply.message, left, reply.purchase_number)
    return _REFUSALS.get(reply.outcome, NotBought)(key, reply.replayed, reply.message, left)


@dataclass(frozen=True, slots=True)
class Receipt:
    """A proof that the shop's log has a purchase, and the log's public key as the server gives it."""

    text: str
    log_key: str


class ReservationOutcome(StrEnum):
    """The state of a reservation after a call, or why nothing is held."""

    UNSPECIFIED = "unspecified"
    HELD = "held"
    BOUGHT = "bought"
    RELEASED = "released"
    EXPIRED = "expired"
    SOLD_OUT = "sold_out"
    TOO_FEW = "too_few"
    NO_SUCH_BOOK = "no_such_book"
    NO_SUCH_RESERVATION = "no_such_reservation"


_RESERVATION_OUTCOMES = dict(enumerate(ReservationOutcome))


@dataclass(frozen=True, slots=True)
class Reservation:
    """Copies that are or were held, or why they are not. `number` is that of the log's entry, 0 if there is none."""

    outcome: ReservationOutcome
    success: bool
    """True if the copies are held (reserve), bought (confirm), or neither held nor bought (release)."""
    message: str
    key: str
    replayed: bool
    """True if an earlier call with the same key led to this state, or the end of the time."""
    id: int
    quantity: int
    number: int
    stock_left: int | None
    until_ms: int
    """When the copies are given back by themselves, in milliseconds since 1970; 0 if there is no reservation."""

    @classmethod
    def from_wire(cls, reply: shop_wire.ReservationReply, key: str) -> "Reservation":
        """Read a reply."""
        return cls(
            _RESERVATION_OUTCOMES.get(reply.outcome, ReservationOutcome.UNSPECIFIED),
            reply.success,
            reply.message,
            key,
            reply.replayed,
            reply.id,
            reply.quantity,
            reply.number,
            reply.stock_left if reply.HasField("stock_left") else None,
            reply.until_ms,
        )


@dataclass(frozen=True, slots=True)
class Written:
    """The entry is written and has this version."""

    version: int


@dataclass(frozen=True, slots=True)
class Exists:
    """Nothing was created: the key has an entry."""


@dataclass(frozen=True, slots=True)
class NoSuchKey:
    """Nothing was updated: the key has no entry."""


@dataclass(frozen=True, slots=True)
class AnotherVersion:
    """Nothing was done: the entry has another version than the expected one."""

    message: str


@dataclass(frozen=True, slots=True)
class Deleted:
    """The key has no entry now; `existed` says if it had one."""

    existed: bool


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry; `ttl` is the seconds left if it expires. No value: it was not asked for, or is too large for a page."""

    key: bytes
    value: bytes | None
    version: int
    ttl: float | None


class EventKind(StrEnum):
    """What a watch tells."""

    STARTED = "started"
    PUT = "put"
    DELETED = "deleted"
    EXPIRED = "expired"
    OTHER = "other"


_EVENT_KINDS = dict(enumerate([EventKind.STARTED, EventKind.PUT, EventKind.DELETED, EventKind.EXPIRED], 1))


@dataclass(frozen=True, slots=True)
class Event:
    """A change, or the beginning of the watch. Only a put has a value, and not if it is too large for an event."""

    kind: EventKind
    key: bytes
    value: bytes | None
    version: int

    @classmethod
    def from_wire(cls, event: kv_wire.WatchEvent) -> "Event":
        """Read an event."""
        kind = _EVENT_KINDS.get(event.kind, EventKind.OTHER)
        value = event.value if kind is EventKind.PUT and not event.value_left_out else None
        return cls(kind, event.key, value, event.version)


@dataclass(frozen=True, slots=True)
class PriceChange:
    """A price before and after, in cents."""

    before: int
    after: int


class LogEntryKind(StrEnum):
    """What an entry of the transaction log tells."""

    OTHER = "other"
    ADDED = "added"
    PURCHASE = "purchase"
    REFUSED = "refused"
    RESTOCK = "restock"
    PRICE = "price"
    ADJUSTED = "adjusted"
    REMOVED = "removed"
    EDITED = "edited"
    DELISTED = "delisted"
    LISTED = "listed"
    RESERVED = "reserved"
    RELEASED = "released"


_LOG_KINDS = dict(enumerate(LogEntryKind))


@dataclass(frozen=True, slots=True)
class LogEntry:
    """An entry of the transaction log. `before` and `after` are copies, or cents for a price."""

    number: int
    time_ms: int
    kind: LogEntryKind
    book_id: int
    quantity: int | None
    before: int | None
    after: int | None
    idempotency_key: bytes

    @property
    def time(self) -> datetime:
        """When it was written."""
        return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=self.time_ms)

    @classmethod
    def from_wire(cls, entry: shop_wire.LogEntry) -> "LogEntry":
        """Read an entry; a number that is absent is none."""
        return cls(
            entry.number,
            entry.time_ms,
            _LOG_KINDS.get(entry.kind, LogEntryKind.OTHER),
            entry.book_id,
            entry.quantity if entry.HasField("quantity") else None,
            entry.before if entry.HasField("before") else None,
            entry.after if entry.HasField("after") else None,
            entry.idempotency_key,
        )
