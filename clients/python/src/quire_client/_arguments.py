"""The words of a command line. Must not import gRPC, so that a mistyped one is answered at once."""

import os
import re
from dataclasses import dataclass
from typing import NamedTuple

from quire_client._address import PORT, Address, parse_all

COMMANDS = {
    "ping": ("", "tests the connection"),
    "topics": ("[text]", "the topics, or those near a text"),
    "search": ("<topic>", "books of a topic"),
    "lookup": ("<id>", "one book"),
    "buy": ("<id> [quantity]", "buys one copy, or as many as you say"),
    "help": ("", "this list; ? as well"),
    "exit": ("", "leaves; quit as well"),
}
SWITCHES = ("--json", "--help", "--version")
FILES = ("--ca", "--certificate", "--key-file")
FLAGS = ("--timeout", "--retries", "--key", "--token", *FILES)
OTHER_NAMES = {"?": "help", "quit": "exit"}
WORDS = {"ping": (1, 1), "lookup": (2, 2), "buy": (2, 3), "help": (1, 1), "exit": (1, 1), "search": (2, None)}
"""The least and the most words of a command."""

ID_MAX = 2**31 - 1
RETRIES_MAX = 1_000_000
KEY_BYTES_MAX = 64
UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0}
TIMEOUT_SECONDS_MIN, TIMEOUT_SECONDS_MAX = 0.001, 86_400.0


class UsageError(ValueError):
    """The words are not understood; the text says what would be right."""


class Asked(Exception):  # noqa: N818, no error
    """`--help` or `--version`; ends the reading."""


class Command(NamedTuple):
    """A command that was understood: its name, and the rest of its words."""

    name: str
    text: str = ""
    id: int = 0
    quantity: int = 1


@dataclass
class Arguments:
    """Flags and words; `files` by flag, in the order in which a command line shows them."""

    is_json: bool
    seconds: float | None
    retries: int
    key: str | None
    token: str
    files: dict[str, str]
    address: str
    addresses: list[Address]
    words: list[str]


def read(given: list[str]) -> Arguments:
    """Read the flags, then the address; leave the words of the command."""
    flags, words = _flags(given)
    key, token = flags.get("--key"), flags.get("--token", os.environ.get("QUIRE_TOKEN", ""))
    if key is not None and not 1 <= len(key.encode()) <= KEY_BYTES_MAX:
        raise UsageError(f"the idempotency key has {len(key.encode())} bytes; it must have 1 to {KEY_BYTES_MAX}")
    if not (token.isascii() and token.isprintable()):
        raise UsageError("--token has characters that no token has")
    seconds = _seconds(flags["--timeout"]) if "--timeout" in flags else None
    retries = number(flags.get("--retries", "3"), 0, RETRIES_MAX)
    if retries is None:
        raise UsageError(f"--retries is '{flags['--retries']}'; it must be a whole number from 0 to {RETRIES_MAX}")
    if ("--certificate" in flags) != ("--key-file" in flags):
        raise UsageError("--certificate and --key-file belong together; give both or neither")
    address = words.pop(0) if _has_address(words) else f"127.0.0.1:{PORT}"
    addresses = parse_all(address)
    files = {flag: flags[flag] for flag in FILES if flag in flags}
    return Arguments("--json" in flags, seconds, retries, key, token, files, address, addresses, words)


def _flags(given: list[str]) -> tuple[dict[str, str], list[str]]:
    flags: dict[str, str] = {}
    words: list[str] = []
    left = iter(given)
    for word in left:
        name, equals, value = word.partition("=")
        if word == "--":
            words.extend(left)
        elif not re.match("-[^0-9]", word):
            words.append(word)
        elif name in SWITCHES:
            if equals:
                raise UsageError(f"{name} takes no value")
            if name != "--json":
                raise Asked(name)
            flags[name] = ""
        elif name not in FLAGS:
            raise UsageError(f"there is no flag '{name}'; --help lists them")
        else:
            given_value = value if equals else next(left, None)
            if given_value is None:
                raise UsageError(f"{name} wants a value")
            flags[name] = given_value
    return flags, words


def _has_address(words: list[str]) -> bool:
    """Whether the first word is an address. No command looks like one; another word is one if a command follows."""
    if not words or _is_command(words[0]):
        return False
    return words[0] == "localhost" or bool(re.search(r"[:.\[]", words[0])) or any(map(_is_command, words[1:2]))


def _is_command(word: str) -> bool:
    return word in COMMANDS or word in OTHER_NAMES


def command(words: list[str]) -> Command:
    """Read a command."""
    name = OTHER_NAMES.get(words[0], words[0])
    if name not in COMMANDS:
        raise UsageError(f"there is no command '{words[0]}'; help lists them")
    least, most = WORDS.get(name, (1, None))
    if len(words) < least or (most and len(words) > most):
        raise UsageError(f"usage: {name} {COMMANDS[name][0]}".rstrip())
    if name not in ("lookup", "buy"):
        return Command(name, text=" ".join(words[1:]))
    found = number(words[1], 1, ID_MAX)
    if found is None:
        raise UsageError(f"id is '{words[1]}'; it must be a whole number from 1 to {ID_MAX}")
    quantity = number(words[2], 1, ID_MAX) if len(words) > 2 else 1  # noqa: PLR2004, the third word
    if quantity is None:
        raise UsageError(f"quantity is '{words[2]}'; it must be a whole number from 1")
    return Command(name, id=found, quantity=quantity)


def number(text: str, least: int, most: int) -> int | None:
    """Read an optional `+` and ASCII digits; none if they are no number in the range."""
    found = re.fullmatch("[+]?0*([0-9]{1,10})", text)
    return int(found[1]) if found and least <= int(found[1]) <= most else None


def _seconds(text: str) -> float:
    found = re.fullmatch(r"([0-9]{1,20}(?:\.[0-9]{0,20})?|\.[0-9]{1,20})(ms|s|min)?", text)
    seconds = float(found[1]) * UNITS[found[2] or "s"] if found else 0.0
    if not TIMEOUT_SECONDS_MIN <= seconds <= TIMEOUT_SECONDS_MAX:
        raise UsageError(f"--timeout is '{text}'; it must be a time from 1ms to 24h, as 500ms, 5s or 2min")
    return seconds
