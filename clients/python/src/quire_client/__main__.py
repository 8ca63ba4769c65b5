"""The command line: a command, or those of standard input, or a prompt."""

import json
import os
import re
import ssl
import sys
import threading
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from math import inf
from pathlib import Path
from shlex import join
from time import gmtime, monotonic, perf_counter, strftime
from typing import Any

import click

# What gRPC tells of broken connections is no answer to a command.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

from grpc import StatusCode as Code

from quire_client import (
    Book,
    Bought,
    Client,
    Fault,
    NoSuchBook,
    NotBought,
    Reservation,
    ReservationOutcome,
    SoldOut,
    Tls,
    TooFew,
    Unknown,
    Unreachable,
)
from quire_client._attempts import IN_DOUBT

DONE, REFUSED, USAGE, UNREACHABLE, UNKNOWN = range(5)
"""Exit codes."""

ID_MAX = 2**31 - 1
NUMBER_MAX = 2**63 - 1
RETRIES_MAX = 1_000_000
TIMEOUT_SECONDS_MIN, TIMEOUT_SECONDS_MAX = 0.001, 86_400.0
UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0}
KEY_BYTES_MAX = 64
ID = click.IntRange(1, ID_MAX)
FILE = click.Path(exists=True, dir_okay=False)
DOUBTS = {
    "buy": "book {} was bought",
    "reserve": "book {} was reserved",
    "confirm": "the reservation {} was confirmed",
    "release": "the reservation {} was released",
}
CAUSES = {Code.DEADLINE_EXCEEDED: "time is up", Code.CANCELLED: "interrupted", Code.UNKNOWN: "the server failed"}
OUTCOMES = {Bought: "BOUGHT", SoldOut: "SOLD_OUT", TooFew: "TOO_FEW", NoSuchBook: "NO_SUCH_BOOK"}


class Seconds(click.ParamType[float]):
    """A time, as 500ms, 5s or 2min."""

    name = "time"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Give its seconds."""
        found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|min)?", value)
        seconds = float(found[1]) * UNITS[found[2] or "s"] if found else 0.0
        if not TIMEOUT_SECONDS_MIN <= seconds <= TIMEOUT_SECONDS_MAX:
            self.fail("it must be a time from 1ms to 24h, as 500ms, 5s or 2min", param, ctx)
        return seconds


class Key(click.ParamType[str]):
    """The name of a purchase or a reservation."""

    name = "key"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check its length."""
        # What is not UTF-8 comes with surrogates, which the protocol does not take.
        if any("\ud800" <= sign <= "\udfff" for sign in value) or not 1 <= len(value.encode()) <= KEY_BYTES_MAX:
            self.fail(f"it must have 1 to {KEY_BYTES_MAX} bytes of UTF-8", param, ctx)
        return value


class Shell(click.Group):
    """Commands whose flags stand anywhere."""

    allow_interspersed_args = True


@dataclass
class Shop:
    """The server that the commands ask, and how."""

    client: Client
    address: str
    is_json: bool
    timeout: float | None
    key: str | None
    flags: list[str]
    """The flags that a command needs to ask again, and their values."""

    def show(self, answer: dict[str, Any], text: str, code: int = DONE, *, is_fault: bool = False) -> int:
        """Print an answer; give the exit code."""
        line = json.dumps(answer, ensure_ascii=False) if self.is_json else text
        click.echo(line, err=is_fault and not self.is_json)
        return code

    def fault(self, fault: Fault, **more: object) -> int:
        """Print why there is no answer of the store's."""
        code, outcome, text = REFUSED, "REFUSED", fault.message
        if isinstance(fault, Unreachable):
            code, outcome = UNREACHABLE, "UNREACHABLE"
            text = f"{self.address} did not answer: {cause(fault.code)}" if fault.connected else fault.message
        answer = {"success": False, "message": text, "outcome": outcome, "status": fault.code.name, **more}
        return self.show(answer, plain(text), code, is_fault=True)

    def once(self, words: list[str], key: str, call: Callable[[], object], show: Callable[[Any], int]) -> int:
        """Make a call that has a key; print its answer, or how to ask for it."""
        try:
            found = call()
        except Fault as fault:
            return self.fault(fault, key=key)
        except KeyboardInterrupt as interrupt:
            if IN_DOUBT in getattr(interrupt, "__notes__", ()):
                return self.unknown(Code.CANCELLED, key, words)
            raise
        return self.unknown(found.code, key, words) if isinstance(found, Unknown) else show(found)

    def unknown(self, code: Code, key: str, words: list[str]) -> int:
        """Print how to ask for the outcome of a command."""
        name = [] if words[-1] == key and words[0] in ("confirm", "release") else ["--key", key]
        command = join(["quire-client", *name, *["--json"] * self.is_json, *self.flags, self.address, *words])
        text = f"it is not known whether {DOUBTS[words[0]].format(plain(words[1]))}: {cause(code)}"
        answer = {"success": False, "message": text, "key": key, "command": command, "outcome": "UNKNOWN"}
        return self.show(
            answer | {"status": code.name},
            f"{text}\nthis asks, and does nothing twice:\n    {plain(command)}",
            UNKNOWN,
            is_fault=True,
        )


def cause(code: Code) -> str:
    """Name why there was no answer."""
    return CAUSES.get(code, "the connection broke, or the server is not available")


def plain(text: str) -> str:
    """Give the text without what acts on a terminal."""
    return "".join("\N{REPLACEMENT CHARACTER}" if unicodedata.category(each)[0] == "C" else each for each in text)


@click.group(cls=Shell, invoke_without_command=True, context_settings={"max_content_width": 110})
@click.argument("words", nargs=-1, metavar="[ADDRESS]")
@click.option("--json", "is_json", is_flag=True, help="Print each answer as one line of JSON.")
@click.option("--timeout", type=Seconds(), help="Longest time for a command, as 500ms, 5s or 2min.")
@click.option(
    "--retries", type=click.IntRange(0, RETRIES_MAX), default=3, show_default=True, help="How often to send again."
)
@click.option(
    "--key",
    type=Key(),
    help="Key that makes a purchase or a reservation happen once, of 1 to 64 bytes; random if absent.",
)
@click.option("--token", envvar="QUIRE_TOKEN", help="Token for a server that requires one; better in QUIRE_TOKEN.")
@click.option("--ca", type=FILE, help="Certificates in PEM to trust, instead of the system's.")
@click.option("--certificate", type=FILE, help="Certificate in PEM to show to the server.")
@click.option("--key-file", type=FILE, help="Private key of --certificate.")
@click.version_option("0.1.0", prog_name="quire-client", message="%(prog)s %(version)s")
@click.pass_context
def cli(  # noqa: PLR0913, one for each flag
    context: click.Context,
    words: tuple[str, ...],
    *,
    is_json: bool,
    timeout: float | None,
    retries: int,
    key: str | None,
    token: str | None,
    ca: str | None,
    certificate: str | None,
    key_file: str | None,
) -> None:
    """Buy books of a Quire server, and ask what it has.

    ADDRESS is HOST:PORT, a host, :PORT, http://… or https://…, or several with commas between; 127.0.0.1:10086 if
    absent. Without a command: a prompt on a terminal, else commands from standard input, one a line.

    Exit codes: 0 done; 1 refused by the store; 2 usage; 3 unreachable, nothing was done; 4 the outcome of a purchase or
    a reservation is unknown. Commands from standard input end with the highest of theirs.
    """
    address, rest = "127.0.0.1:10086", list(words)
    if rest and rest[0] not in cli.commands and (len(rest) > 1 or re.search(r"[:.]|^localhost$", rest[0])):
        address = rest.pop(0)
    try:
        tls = _tls(ca, certificate, key_file)
        client = Client(address, token=token or None, tls=tls if "https://" in address else None, retries=retries)
    except ValueError as wrong:
        raise click.UsageError(plain(str(wrong))) from wrong
    files = {"--ca": ca, "--certificate": certificate, "--key-file": key_file}
    flags = [word for flag, name in files.items() if name for word in (flag, name)]
    with client:
        context.obj = Shop(client, address, is_json, timeout, key, flags)
        context.exit(_perform(context, rest) if rest else _talk(context))


def _tls(ca: str | None, certificate: str | None, key_file: str | None) -> Tls:
    """Read the files. The library of the system says if they hold what they must."""
    read = [Path(name).read_bytes() if name else None for name in (ca, certificate, key_file)]
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        for name in filter(None, (ca, certificate)):
            context.load_verify_locations(name)
        if certificate and key_file:
            context.load_cert_chain(certificate, key_file, lambda: b"")
    except OSError as wrong:
        raise ValueError(f"a certificate or key cannot be read: {wrong}") from wrong
    return Tls(*read)


def _perform(context: click.Context, words: list[str]) -> int:
    command = cli.get_command(context, words[0])
    if not command:
        raise click.UsageError(f"there is no command {plain(words[0])!r}; help lists them", context)
    shop: Shop = context.obj
    # Of all the pages that the command reads.
    shop.client.calls.caller.deadline = monotonic() + (shop.timeout or inf)
    with command.make_context(words[0], words[1:], parent=context) as inner:
        try:
            return int(command.invoke(inner))
        except Fault as fault:
            return shop.fault(fault)
        except KeyboardInterrupt:
            return shop.fault(Unreachable(Code.CANCELLED, "", connected=True))


def _talk(context: click.Context) -> int:
    """Perform commands until there are no more; the highest code is the end's, so that a script misses no failure."""
    worst = DONE
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    for line in _typed() if is_terminal else sys.stdin:
        words = line.split()
        if words == ["exit"]:
            break
        try:
            worst = max(worst, _perform(context, words) if words else DONE)
        except click.exceptions.Exit:
            continue
        except click.ClickException as wrong:
            wrong.show()
            worst = max(worst, USAGE)
    return worst


def _typed() -> Iterator[str]:
    from prompt_toolkit import PromptSession  # noqa: PLC0415, a single command needs no prompt
    from prompt_toolkit.completion import WordCompleter  # noqa: PLC0415
    from prompt_toolkit.history import FileHistory  # noqa: PLC0415

    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "quire"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    session: PromptSession[str] = PromptSession(
        history=FileHistory(folder / "client_history.python"), completer=WordCompleter(list(cli.commands))
    )
    while True:
        try:
            yield session.prompt("quire client> ")
        except KeyboardInterrupt:
            continue
        except EOFError:
            return


@cli.command
@click.pass_obj
def ping(shop: Shop) -> int:
    """Test the connection."""
    begin = perf_counter()
    message = shop.client.ping(timeout=shop.timeout)
    took = perf_counter() - begin
    answer = {"success": True, "message": message, "microseconds": round(took * 1e6)}
    return shop.show(answer, f"{plain(message)} ({took * 1e3:.2f} ms)")


@cli.command
@click.argument("text", nargs=-1)
@click.pass_obj
def topics(shop: Shop, text: tuple[str, ...]) -> int:
    """List the topics, or those near a text."""
    found = list(shop.client.topics(" ".join(text), timeout=shop.timeout))
    lines = [f"{topic.books:8}  {plain(topic.name)}" for topic in found] or ["there is no such topic"]
    answer = {"success": True, "topics": [{"name": topic.name, "books": topic.books} for topic in found]}
    return shop.show(answer, "\n".join(lines))


@cli.command
@click.argument("topic", nargs=-1, required=True)
@click.pass_obj
def search(shop: Shop, topic: tuple[str, ...]) -> int:
    """List the books of a topic."""
    name = " ".join(topic)
    books = list(shop.client.search(name, timeout=shop.timeout))
    near: list[str] = []
    # Some servers cannot say which topics are near.
    with suppress(Fault):
        near = [] if books else [each.name for each in shop.client.topics(name, timeout=shop.timeout)]
    message = "" if books else f"no book has the topic '{name}'"
    answer = {"success": True, "message": message, "books": [book._asdict() for book in books]}
    text = "; near it: ".join([message, ", ".join(near)] if near else [message])
    return shop.show(answer | ({"near": near} if near else {}), "\n".join(map(_line, books)) or plain(text))


@cli.command
@click.argument("id", type=ID)
@click.pass_obj
def lookup(shop: Shop, id: int) -> int:
    """Show one book."""
    book = shop.client.lookup(id, timeout=shop.timeout)
    if book:
        return shop.show({"success": True, "message": "", "book": book._asdict()}, _line(book))
    message = f"there is no book {id}"
    return shop.show({"success": False, "message": message, "book": None}, message, REFUSED)


@cli.command
@click.argument("id", type=ID)
@click.argument("quantity", type=ID, default=1)
@click.pass_obj
def buy(shop: Shop, id: int, quantity: int) -> int:
    """Buy one copy, or as many as you say."""
    key = shop.key or os.urandom(16).hex()
    call = partial(shop.client.buy, id, quantity, key=key, timeout=shop.timeout)
    words = ["buy", str(id), *[str(quantity)] * (quantity != 1)]
    return shop.once(words, key, call, partial(_bought, shop))


def _bought(shop: Shop, bought: Bought | NotBought) -> int:
    number = bought.number if isinstance(bought, Bought) else 0
    answer = {
        "success": isinstance(bought, Bought),
        "message": bought.message,
        "key": bought.key,
        "outcome": f"BUY_OUTCOME_{OUTCOMES.get(type(bought), 'UNSPECIFIED')}",
        "purchase_number": number,
        "replayed": bought.replayed,
        "stock_left": bought.stock_left,
    }
    text = plain(bought.message) + f" (purchase {number})" * bool(number)
    text += "; this key was sent before, nothing was bought again" * bought.replayed
    return shop.show(answer, text, DONE if isinstance(bought, Bought) else REFUSED)


@cli.command
@click.argument("number", type=click.IntRange(1, NUMBER_MAX))
@click.argument("key", type=Key())
@click.pass_obj
def receipt(shop: Shop, number: int, key: str) -> int:
    """Print the receipt of a purchase that was made with a key."""
    found = shop.client.receipt(number, key, timeout=shop.timeout)
    if found:
        answer = {"success": True, "message": "", "receipt": found.text, "log_key": found.log_key}
        return shop.show(answer, "\n".join(map(plain, found.text.removesuffix("\n").split("\n"))))
    message = f"there is no purchase {number} with this key"
    return shop.show({"success": False, "message": message, "receipt": None, "log_key": None}, message, REFUSED)


@cli.command
@click.argument("id", type=ID)
@click.argument("quantity", type=ID, default=1)
@click.argument("seconds", type=ID, required=False)
@click.pass_obj
def reserve(shop: Shop, id: int, quantity: int, seconds: int | None) -> int:
    """Hold copies for some seconds, 900 if you name none."""
    key = shop.key or os.urandom(16).hex()
    call = partial(shop.client.reserve, id, quantity, seconds=seconds, key=key, timeout=shop.timeout)
    words = ["reserve", str(id), *[str(quantity)] * (quantity != 1 or seconds is not None)]
    return shop.once(words + [str(seconds)] * (seconds is not None), key, call, partial(_reserved, shop))


@cli.command
@click.argument("key", type=Key())
@click.pass_obj
def confirm(shop: Shop, key: str) -> int:
    """Buy what is held under a key."""
    call = partial(shop.client.confirm, key, timeout=shop.timeout)
    return shop.once(["confirm", key], key, call, partial(_reserved, shop))


@cli.command
@click.argument("key", type=Key())
@click.pass_obj
def release(shop: Shop, key: str) -> int:
    """Give back what is held under a key."""
    call = partial(shop.client.release, key, timeout=shop.timeout)
    return shop.once(["release", key], key, call, partial(_reserved, shop))


def _reserved(shop: Shop, found: Reservation) -> int:
    answer = asdict(found) | {"outcome": f"RESERVATION_OUTCOME_{found.outcome.name}"}
    by_earlier_call = found.replayed and found.outcome is not ReservationOutcome.EXPIRED
    text = plain(found.message) + "; an earlier call did it" * by_earlier_call
    if found.outcome is ReservationOutcome.HELD:
        until = strftime("%Y-%m-%d %H:%M:%S UTC", gmtime(found.until_ms // 1000))
        text += f"\nheld until {until} under the key {plain(found.key)}"
    elif found.outcome is ReservationOutcome.BOUGHT:
        text += f" (purchase {found.number})"
    return shop.show(answer, text, DONE if found.success else REFUSED)


@cli.command("help")
@click.pass_context
def help_(context: click.Context) -> int:
    """List the commands."""
    click.echo(context.find_root().get_help())
    return DONE


@cli.command("exit")
def exit_() -> int:
    """Leave."""
    return DONE


def _line(book: Book) -> str:
    price = f"{book.price_cents // 100}.{book.price_cents % 100:02}"
    return f"{book.id:10}  {price:>9}  {book.stock:6} left  {plain(book.title)} ({plain(book.topic)})"


def _report(failed: threading.ExceptHookArgs) -> None:
    """Report why a thread failed, unless it is gRPC's that watches a channel and came to look after it was closed."""
    if not (failed.exc_type is ValueError and "Channel closed" in str(failed.exc_value)):
        threading.__excepthook__(failed)


def main() -> None:
    """Run the command line."""
    threading.excepthook = _report
    cli(prog_name="quire-client")


if __name__ == "__main__":
    main()
