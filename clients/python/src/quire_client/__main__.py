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
from math import inf
from pathlib import Path
from shlex import join
from time import gmtime, monotonic, perf_counter, strftime
from typing import Any

import click

# What gRPC tells of broken connections is no answer to a command.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

from grpc import StatusCode as Code

import quire_client as quire
from quire_client._attempts import IN_DOUBT

DONE, REFUSED, USAGE, UNREACHABLE, UNKNOWN = range(5)
"""Exit codes."""

ID = click.IntRange(1, 2**31 - 1)
FILE = click.Path(exists=True, dir_okay=False)
FAULTS: dict[type, int] = {quire.Refused: REFUSED, quire.Unreachable: UNREACHABLE, quire.Unknown: UNKNOWN}
REASONS = {quire.SoldOut: "SOLD_OUT", quire.TooFew: "TOO_FEW", quire.NoSuchBook: "NO_SUCH_BOOK", quire.Bought: "BOUGHT"}
Answer = tuple[dict[str, Any], str]
"""What the store says: an object for JSON, and its text."""


def seconds_of(text: str) -> float:
    """Read a time, as 500ms, 5s or 2min."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|min)?", text)
    seconds = float(found[1]) * {"ms": 0.001, "s": 1.0, "min": 60.0}[found[2] or "s"] if found else 0.0
    if not 0.001 <= seconds <= 86_400:  # noqa: PLR2004, the text names them
        raise click.BadParameter("it must be a time from 1ms to 24h, as 500ms, 5s or 2min")
    return seconds


def key_of(text: str) -> str:
    """Check the name of a purchase or a reservation."""
    # What is not UTF-8 comes with surrogates, which the protocol does not take.
    if any("\ud800" <= sign <= "\udfff" for sign in text) or len(text.encode()) not in range(1, 65):
        raise click.BadParameter("it must have 1 to 64 bytes of UTF-8")
    return text


@dataclass
class Shop:
    """The server that the commands ask, and how."""

    client: quire.Client
    address: str
    is_json: bool
    timeout: float | None
    key: str | None
    flags: list[str]
    """The flags that a command needs to ask again, and their values."""
    asked: tuple[str, ...] = ()
    name: str = ""
    """The command and its arguments, and the key of what it buys or reserves."""

    def show(self, found: Answer | quire.Fault | quire.Unknown) -> int:
        """Print an answer, or why there is none and how to ask for one that there may be; give the exit code."""
        if isinstance(found, tuple):
            answer, text = found
            code = DONE if answer["success"] else REFUSED
        else:
            code, outcome = FAULTS[type(found)], type(found).__name__.upper()
            answer = {"success": False, "message": found.message, "outcome": outcome, "status": found.code.name}
            answer |= {"key": self.name} if self.name else {}
            again = ""
            if isinstance(found, quire.Unknown):
                answer["message"] = f"it is not known whether '{' '.join(self.asked)}' was done: {found.message}"
                answer["command"] = self.again()
                again = f"\nthis asks, and does nothing twice:\n    {plain(answer['command'])}"
            text = plain(answer["message"]) + again
        line = json.dumps(answer, ensure_ascii=False) if self.is_json else text
        click.echo(line, err="status" in answer and not self.is_json)
        return code

    def again(self) -> str:
        """Give the command line that sends the command again."""
        command, *words = self.asked
        key = [] if command in ("confirm", "release") else ["--key", self.name]
        if self.name.startswith("-"):
            key, words = (["--key=" + self.name], words) if key else ([], ["--", *words])
        return join(["quire-client", *key, *["--json"] * self.is_json, *self.flags, self.address, command, *words])


def plain(text: str) -> str:
    """Give the text without what acts on a terminal."""
    return "".join("\N{REPLACEMENT CHARACTER}" if unicodedata.category(each)[0] == "C" else each for each in text)


@click.group(invoke_without_command=True, context_settings={"allow_interspersed_args": True, "max_content_width": 110})
@click.argument("words", nargs=-1, metavar="[ADDRESS]")
@click.option("--json", "is_json", is_flag=True, help="Print each answer as one line of JSON.")
@click.option("--timeout", type=seconds_of, metavar="TIME", help="Longest time for a command, as 500ms, 5s or 2min.")
@click.option("--retries", type=click.IntRange(0, 1_000_000), default=3, help="How often to send again; 3 if absent.")
@click.option("--key", type=key_of, metavar="TEXT", help="Makes a purchase or a reservation happen once; else random.")
@click.option("--token", envvar="QUIRE_TOKEN", help="Token for a server that requires one; better in QUIRE_TOKEN.")
@click.option("--ca", type=FILE, help="Certificates in PEM to trust, instead of the system's.")
@click.option("--certificate", type=FILE, help="Certificate in PEM to show to the server.")
@click.option("--key-file", type=FILE, help="Private key of --certificate.")
@click.version_option("0.1.0", prog_name="quire-client", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context, /, words: tuple[str, ...], **_: object) -> None:
    """Buy books of a Quire server, and ask what it has.

    ADDRESS is HOST:PORT, a host, :PORT, http://… or https://…, or several with commas between; 127.0.0.1:10086 if
    absent. Without a command: a prompt on a terminal, else commands from standard input, one a line.

    Exit codes: 0 done; 1 refused by the store; 2 usage; 3 unreachable, nothing was done; 4 the outcome of a purchase or
    a reservation is unknown. Commands from standard input end with the highest of theirs.
    """
    address, rest, given = "127.0.0.1:10086", list(words), context.params
    if rest and rest[0] not in cli.commands and (len(rest) > 1 or re.search(r"[:.]|^localhost$", rest[0])):
        address = rest.pop(0)
    files = {flag: given[flag.strip("-").replace("-", "_")] for flag in ("--ca", "--certificate", "--key-file")}
    try:
        tls = _tls(*files.values())
        is_tls, token = "https://" in address, given["token"] or None
        client = quire.Client(address, token=token, tls=tls if is_tls else None, retries=given["retries"])
    except ValueError as wrong:
        raise click.UsageError(plain(str(wrong))) from wrong
    flags = [word for flag, name in files.items() if name for word in (flag, name)]
    with client:
        context.obj = Shop(client, address, given["is_json"], given["timeout"], given["key"], flags)
        # The flags have been read.
        context.exit(_perform(context, rest[0], "--", *rest[1:]) if rest else _talk(context))


def _tls(ca: str | None, certificate: str | None, key_file: str | None) -> quire.Tls:
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
    return quire.Tls(*read)


def _perform(context: click.Context, name: str, *words: str) -> int:
    command = cli.get_command(context, name)
    if not command:
        raise click.UsageError(f"there is no command {plain(name)!r}; help lists them", context)
    shop: Shop = context.obj
    end = (*words, "--").index("--")
    shop.asked = (name, *words[:end], *words[end + 1 :])
    shop.client.calls.caller.deadline = monotonic() + (shop.timeout or inf)  # of all the pages that it reads
    with command.make_context(name, list(words), parent=context) as inner:
        is_named = name in ("buy", "reserve", "confirm", "release")
        shop.name = (inner.params.get("key") or shop.key or os.urandom(16).hex()) if is_named else ""
        try:
            found = command.invoke(inner)
        except quire.Fault as fault:
            found = fault
        except KeyboardInterrupt as interrupt:
            found = quire.Unreachable(Code.CANCELLED, "interrupted, and nothing was done", sent=True)
            if IN_DOUBT in getattr(interrupt, "__notes__", ()):
                found = quire.Unknown(shop.name, Code.CANCELLED, "interrupted")
    return shop.show(found) if found else DONE


def _talk(context: click.Context) -> int:
    """Perform commands until there are no more; the highest code is the end's, so that a script misses no failure."""
    worst = DONE
    for line in _typed() if sys.stdin.isatty() and sys.stdout.isatty() else sys.stdin:
        words = line.split()
        if words == ["exit"]:
            break
        try:
            worst = max(worst, _perform(context, *words) if words else DONE)
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
    history = FileHistory(folder / "client_history.python")
    session: PromptSession[str] = PromptSession(history=history, completer=WordCompleter(list(cli.commands)))
    with suppress(EOFError):
        while True:
            with suppress(KeyboardInterrupt):
                yield session.prompt("quire client> ")


def ask(call: Callable[..., Answer | quire.Unknown]) -> click.Command:
    """Add a command that asks the store."""
    return cli.command(click.pass_obj(call))  # type: ignore[no-any-return]


@ask
def ping(shop: Shop) -> Answer:
    """Test the connection."""
    begin = perf_counter()
    message = shop.client.ping(timeout=shop.timeout)
    took = perf_counter() - begin
    answer = {"success": True, "message": message, "microseconds": round(took * 1e6)}
    return answer, f"{plain(message)} ({took * 1e3:.2f} ms)"


@ask
@click.argument("text", nargs=-1)
def topics(shop: Shop, text: tuple[str, ...]) -> Answer:
    """List the topics, or those near a text."""
    found = list(shop.client.topics(" ".join(text), timeout=shop.timeout))
    lines = [f"{topic.books:8}  {plain(topic.name)}" for topic in found] or ["there is no such topic"]
    return {"success": True, "topics": list(map(asdict, found))}, "\n".join(lines)


@ask
@click.argument("topic", nargs=-1, required=True)
def search(shop: Shop, topic: tuple[str, ...]) -> Answer:
    """List the books of a topic."""
    name = " ".join(topic)
    answer: dict[str, Any] = {"success": True, "message": "", "books": []}
    if books := list(shop.client.search(name, timeout=shop.timeout)):
        answer["books"] = [book._asdict() for book in books]
        return answer, "\n".join(map(_line, books))
    text = answer["message"] = f"no book has the topic '{name}'"
    # Some servers cannot say which topics are near.
    with suppress(quire.Fault):
        if near := [each.name for each in shop.client.topics(name, timeout=shop.timeout)]:
            answer["near"] = near
            text += f"; near it: {', '.join(near)}"
    return answer, plain(text)


@ask
@click.argument("id", type=ID)
def lookup(shop: Shop, id: int) -> Answer:
    """Show one book."""
    book = shop.client.lookup(id, timeout=shop.timeout)
    message = "" if book else f"there is no book {id}"
    answer = {"success": book is not None, "message": message, "book": book and book._asdict()}
    return answer, _line(book) if book else message


@ask
@click.argument("number", type=click.IntRange(1, 2**63 - 1))
@click.argument("key", type=key_of)
def receipt(shop: Shop, number: int, key: str) -> Answer:
    """Print the receipt of a purchase that was made with a key."""
    found = shop.client.receipt(number, key, timeout=shop.timeout)
    if found:
        answer = {"success": True, "message": "", "receipt": found.text, "log_key": found.log_key}
        return answer, "\n".join(map(plain, found.text.removesuffix("\n").split("\n")))
    message = f"there is no purchase {number} with this key"
    return {"success": False, "message": message, "receipt": None, "log_key": None}, message


@ask
@click.argument("id", type=ID)
@click.argument("quantity", type=ID, default=1)
def buy(shop: Shop, id: int, quantity: int) -> Answer | quire.Unknown:
    """Buy one copy, or as many as you say."""
    found = shop.client.buy(id, quantity, key=shop.name, timeout=shop.timeout)
    if isinstance(found, quire.Unknown):
        return found
    answer = asdict(found) | {"success": isinstance(found, quire.Bought)}
    answer["outcome"] = f"BUY_OUTCOME_{REASONS.get(type(found), 'UNSPECIFIED')}"
    number = answer["purchase_number"] = answer.pop("number", 0)
    text = plain(found.message) + f" (purchase {number})" * bool(number)
    return answer, text + "; the answer to an earlier call" * found.replayed


@ask
@click.argument("id", type=ID)
@click.argument("quantity", type=ID, default=1)
@click.argument("seconds", type=ID, required=False)
def reserve(shop: Shop, id: int, quantity: int, seconds: int | None) -> Answer | quire.Unknown:
    """Hold copies for some seconds, 900 if you name none."""
    return _reserved(shop.client.reserve(id, quantity, seconds=seconds, key=shop.name, timeout=shop.timeout))


@ask
@click.argument("key", type=key_of)
def confirm(shop: Shop, key: str) -> Answer | quire.Unknown:
    """Buy what is held under a key."""
    return _reserved(shop.client.confirm(key, timeout=shop.timeout))


@ask
@click.argument("key", type=key_of)
def release(shop: Shop, key: str) -> Answer | quire.Unknown:
    """Give back what is held under a key."""
    return _reserved(shop.client.release(key, timeout=shop.timeout))


def _reserved(found: quire.Reservation | quire.Unknown) -> Answer | quire.Unknown:
    if isinstance(found, quire.Unknown):
        return found
    by_earlier_call = found.replayed and found.outcome is not quire.ReservationOutcome.EXPIRED
    text = plain(found.message) + "; the answer to an earlier call" * by_earlier_call
    if found.outcome is quire.ReservationOutcome.HELD:
        until = strftime("%Y-%m-%d %H:%M:%S UTC", gmtime(found.until_ms // 1000))
        text += f"\nheld until {until} under the key {plain(found.key)}"
    elif found.outcome is quire.ReservationOutcome.BOUGHT:
        text += f" (purchase {found.number})"
    return asdict(found) | {"outcome": f"RESERVATION_OUTCOME_{found.outcome.name}"}, text


show_help = click.pass_context(lambda context: click.echo(context.find_root().get_help()))
cli.add_command(click.Command("help", callback=show_help, help="List the commands."))
cli.add_command(click.Command("exit", callback=lambda: None, help="Leave."))


def _line(book: quire.Book) -> str:
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
