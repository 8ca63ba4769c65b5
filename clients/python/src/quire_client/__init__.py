"""Client of Quire: a bookstore and a key-value store. `Client` blocks, `AsyncClient` is for asyncio."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quire_client._address import WrongAddressError as WrongAddressError
    from quire_client._client import AsyncClient as AsyncClient
    from quire_client._client import AsyncOperator as AsyncOperator
    from quire_client._client import Client as Client
    from quire_client._client import Operator as Operator
    from quire_client._connections import Tls as Tls
    from quire_client._faults import Fault as Fault
    from quire_client._faults import OutcomeUnknown as OutcomeUnknown
    from quire_client._faults import Refused as Refused
    from quire_client._faults import Unreachable as Unreachable
    from quire_client._values import AnotherVersion as AnotherVersion
    from quire_client._values import Book as Book
    from quire_client._values import Bought as Bought
    from quire_client._values import Deleted as Deleted
    from quire_client._values import Entry as Entry
    from quire_client._values import Event as Event
    from quire_client._values import EventKind as EventKind
    from quire_client._values import Exists as Exists
    from quire_client._values import LogEntry as LogEntry
    from quire_client._values import LogEntryKind as LogEntryKind
    from quire_client._values import NoSuchBook as NoSuchBook
    from quire_client._values import NoSuchKey as NoSuchKey
    from quire_client._values import NotBought as NotBought
    from quire_client._values import Outcome as Outcome
    from quire_client._values import PriceChange as PriceChange
    from quire_client._values import Receipt as Receipt
    from quire_client._values import Reservation as Reservation
    from quire_client._values import ReservationOutcome as ReservationOutcome
    from quire_client._values import SoldOut as SoldOut
    from quire_client._values import TooFew as TooFew
    from quire_client._values import Topic as Topic
    from quire_client._values import Unknown as Unknown
    from quire_client._values import Written as Written

__all__ = [
    "AnotherVersion",
    "AsyncClient",
    "AsyncOperator",
    "Book",
    "Bought",
    "Client",
    "Deleted",
    "Entry",
    "Event",
    "EventKind",
    "Exists",
    "Fault",
    "LogEntry",
    "LogEntryKind",
    "NoSuchBook",
    "NoSuchKey",
    "NotBought",
    "Operator",
    "Outcome",
    "OutcomeUnknown",
    "PriceChange",
    "Receipt",
    "Refused",
    "Reservation",
    "ReservationOutcome",
    "SoldOut",
    "Tls",
    "TooFew",
    "Topic",
    "Unknown",
    "Unreachable",
    "Written",
    "WrongAddressError",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> object:
    """Import a name when it is first used: the command line answers a mistyped word without gRPC."""
    if name not in __all__:
        raise AttributeError(f"module 'quire_client' has no attribute '{name}'")
    for part in ("_client", "_values", "_faults", "_connections", "_address"):
        if found := getattr(import_module(f"quire_client.{part}"), name, None):
            return found
    raise AssertionError(f"no module has '{name}'")
