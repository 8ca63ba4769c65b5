"""The command line. Imports what needs a server only when a server is asked."""

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from quire_client._arguments import COMMANDS, Arguments, Asked, Command, command, read
from quire_client._text import as_json, escaped, split, table

if TYPE_CHECKING:
    from quire_client._shop import Shop

VERSION = "0.1.0"
PROGRAM = "quire-client"
DONE, USAGE, INTERRUPTED = 0, 2, 130


def main() -> int:
    """Run one command, or those of standard input."""
    threading.excepthook = _report
    given = [os.fsencode(word).decode(errors="replace") for word in sys.argv[1:]]
    try:
        try:
            return _run(read(given))
        except Asked as asked:
            text = Path(__file__).with_name("help.txt").read_text("utf-8")
            sys.stdout.write(text if str(asked) == "--help" else f"{PROGRAM} {VERSION}\n")
            return DONE
        except ValueError as wrong:
            print(f"{PROGRAM}: {escaped(str(wrong))}", file=sys.stderr)
            return USAGE
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has gone and wants no more; Python would complain at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE


def _report(failed: threading.ExceptHookArgs) -> None:
    """Report why a thread failed, unless it is gRPC's that watches a channel and came to look after it was closed."""
    if not (failed.exc_type is ValueError and "Channel closed" in str(failed.exc_value)):
        threading.__excepthook__(failed)


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
    for line in _lines(shop):
        try:
            if isinstance(line, ValueError):
                raise line
            words = split(line)
            asked = command(words) if words else None
        except ValueError as wrong:
            print(escaped(str(wrong)), file=sys.stderr)
            worst = max(worst, USAGE)
            continue
        if asked and asked.name == "exit":
            break
        if asked:
            worst = max(worst, _help() if asked.name == "help" else _show(shop, asked))
    return worst


def _lines(shop: "Shop") -> Iterator[str | ValueError]:
    from quire_client import _prompt  # noqa: PLC0415, a single command needs no lines

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return _prompt.piped()

    def complete(name: str, typed: str) -> list[str]:
        known = {"": [f"{each} " for each in COMMANDS], "lookup": shop.seen.ids, "buy": shop.seen.ids}.get(name, ())
        if name in ("search", "topics"):
            known = shop.topics_for_completion()
        return sorted(each for each in known if each.startswith(typed))

    return _prompt.typed(complete)


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
