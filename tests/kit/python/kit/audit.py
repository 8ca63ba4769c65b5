"""Audit of a bookstore's log: every entry follows from those before it, and the last ones are the stock."""

import collections
import dataclasses
from collections.abc import Iterable, Mapping

# Of `LogEntryKind`.
PURCHASE, REFUSED, RESTOCK, PRICE = 2, 3, 4, 5


@dataclasses.dataclass(frozen=True)
class Entry:
    number: int
    book: int
    kind: int
    quantity: int | None
    before: int | None
    after: int | None
    key: str


def audit(entries: Iterable[Entry], stock: Mapping[int, int]) -> list[str]:
    """Contradictions in a log, oldest entry first, and between it and the stock of some books."""
    wrong, left, numbers = [], {}, collections.defaultdict(list)
    for entry in entries:
        if entry.key:
            numbers[entry.key].append(entry.number)
        if entry.kind == PRICE or entry.after is None:
            continue
        # From its first entry on, each entry of a book begins with what the one before it left.
        if entry.book in left and entry.before != left[entry.book]:
            wrong.append(f"{entry} does not begin with the {left[entry.book]} copies that the entry before it left")
        if entry.kind == PURCHASE and entry.before - entry.quantity != entry.after:
            wrong.append(f"{entry} did not sell what it says")
        if entry.kind == REFUSED and entry.before != entry.after or entry.after < 0:
            wrong.append(f"{entry} has an impossible stock")
        left[entry.book] = entry.after
    wrong += [f"book {book} has {copies} copies, and its log ends with {left.get(book)}"
              for book, copies in stock.items() if left.get(book) != copies]
    return wrong + [f"entries {these} have the key {key!r}" for key, these in numbers.items() if len(these) > 1]
