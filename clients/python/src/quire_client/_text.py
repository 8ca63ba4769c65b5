"""Text on a terminal, in tables and in JSON. The text of others is shown, never obeyed. Must not import gRPC."""

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Any

ACTING = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""Characters that do something to a terminal instead of being shown."""

BLANKS = "\t\n\v\f\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
"""White space as Unicode has it; `str.isspace` counts more."""
WORD = re.compile(rf"([\"'])(.*?)\1(?=[{BLANKS}]|$)|([\"'])|[^{BLANKS}]+", re.DOTALL)
"""A word in quotes, or a quote that is not closed, or a word without blanks."""

LINE_ENDS = {"\t": "\\t", "\r": "\\r", "\n": "\\n"}


def escaped(text: str) -> str:
    """Give the text in one line that any terminal shows."""
    return ACTING.sub(lambda found: LINE_ENDS.get(found[0]) or f"\\u{{{ord(found[0]):x}}}", text)


def as_json(value: dict[str, Any]) -> str:
    """Give an object in one line that any terminal shows."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return ACTING.sub(lambda found: json.dumps(found[0])[1:-1] if found[0] != "\x7f" else "\\u007f", text)


def quoted(words: Iterable[str]) -> str:
    """Give a command line for a shell."""
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    if ACTING.search(word):
        return escaped(word)
    if re.fullmatch("[A-Za-z0-9@%_+=:,./-]+", word):
        return word
    return "'" + word.replace("'", "'\"'\"'") + "'"


def split(line: str) -> list[str]:
    """Split a line at white space. A word in quotes goes on to the same quote; elsewhere a quote is a letter."""
    words = []
    at = 0
    while found := WORD.search(line, at):
        if found[3]:
            raise ValueError(f"the quote {found[3]} is not closed; close it, or leave it out")
        words.append(found[2] if found[1] else found[0])
        at = found.end()
    return words


def price(cents: int) -> str:
    """Give a price with two decimals."""
    return f"{'-' * (cents < 0)}{abs(cents) // 100}.{abs(cents) % 100:02}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: str = "") -> str:
    """Give aligned columns without the last line feed; `numbers` names the heads of those that stand to the right."""
    lines = [heads, *([escaped(cell) for cell in row] for row in rows)]
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    sides: list[Callable[[str, int], str]] = [_right if head in numbers.split() else _left for head in heads]
    columns = list(zip(sides, widths, strict=True))
    return "\n".join(
        "  ".join(side(cell, width) for cell, (side, width) in zip(line, columns, strict=True)).rstrip(" ")
        for line in lines
    )


def _left(cell: str, width: int) -> str:
    return cell + " " * (width - _width(cell))


def _right(cell: str, width: int) -> str:
    return " " * (width - _width(cell)) + cell


def _width(cell: str) -> int:
    return len(cell) if cell.isascii() else sum(map(_columns, cell))


def _columns(character: str) -> int:
    if character == "\u200d" or unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1
