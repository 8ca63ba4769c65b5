"""The command line. Imports what needs a server only when a server is asked."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from quire_client._address import WrongAddressError
from quire_client._arguments import COMMANDS, Arguments, Asked, Command, UsageError, command
from quire_client._text import as_json, escaped, table

if TYPE_CHECKING:
    from quire_client._shop import Shop

VERSION = "0.1.0"
PROGRAM = "quire-client"
DONE, USAGE = 0, 2


def main() -> int:
    """Run one command, or those of standard input."""
    given = [os.fsencode(word).decode(errors="replace") for word in sys.argv[1:]]
    try:
        try:
            return _run(Arguments.read(given))
        except Asked as asked:
            text = Path(__file__).with_name("help.txt").read_text("utf-8")
            sys.stdout.write(text if str(asked) == "--help" else f"{PROGRAM} {VERSION}\n")
            return DONE
        except (UsageError, WrongAddressError) as wrong:
            print(f"{PROGRAM}: {escaped(str(wrong))}", file=sys.stderr)
            return USAGE
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader has gone and wants no more; Python would complain at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE


def _run(arguments: Arguments) -> int:
    asked = command(arguments.words) if arguments.words else None
    if asked and asked.name in ("help", "exit"):
        return _help() if asked.name == "help" else DONE

    # What gRPC tells of broken connections is no answer to a command.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from quire_client._shop import Shop  # noqa: PLC0415, gRPC takes a tenth of a second to import

    shop = Shop(arguments)
    try:
        return _show(shop, asked) if asked else _talk(shop)
    finally:
        shop.close()


def _talk(shop: "Shop") -> int:
    """Run commands until there are no more; the highest code is the end's, so that a script misses no failure."""
    worst = DONE
    for words in _lines(shop):
        if isinstance(words, UsageError):
            worst = max(worst, _complain(words))
            continue
        if not words:
            continue
        try:
            asked = command(words)
        except UsageError as wrong:
            worst = max(worst, _complain(wrong))
            continue
        if asked.name == "exit":
            break
        worst = max(worst, _help() if asked.name == "help" else _show(shop, asked))
    return worst


def _lines(shop: "Shop") -> Iterator[list[str] | UsageError]:
    from quire_client import _prompt  # noqa: PLC0415, a single command needs no lines

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return _prompt.piped()

    def complete(name: str, typed: str) -> list[str]:
        if not name:
            return [f"{each} " for each in COMMANDS if each.startswith(typed)]
        known: set[str] = set()
        if name in ("search", "topics"):
            known = shop.topics_for_completion()
        elif name in ("lookup", "buy"):
            known = shop.seen.ids
        return sorted(each for each in known if each.startswith(typed))

    return _prompt.typed(complete)


def _complain(wrong: UsageError) -> int:
    sys.stdout.flush()
    print(escaped(str(wrong)), file=sys.stderr)
    return USAGE


def _help() -> int:
    rows = [(f"{name} {words}".rstrip(), does) for name, (words, does) in COMMANDS.items()]
    print(table(("command", "does"), rows), flush=True)
    return DONE


def _show(shop: "Shop", asked: Command) -> int:
    answer = shop.answer(asked)
    is_error = answer.is_fault and not shop.arguments.is_json
    print(
        as_json(answer.json) if shop.arguments.is_json else answer.text,
        file=sys.stderr if is_error else sys.stdout,
        flush=True,
    )
    return answer.exit


if __name__ == "__main__":
    sys.exit(main())
