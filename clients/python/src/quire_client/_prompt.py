"""Where lines come from: a prompt on a terminal, a pipe elsewhere. Must not know commands."""

import os
import readline
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from quire_client._arguments import UsageError
from quire_client._text import ACTING, split

PROMPT = "quire client> "
LINE_BYTES_MAX = 65_536
HISTORY_LINES = 1_000
HISTORY_BYTES_MAX = 4 << 20
CANDIDATES_MAX = 100

Complete = Callable[[str, str], list[str]]


def piped() -> Iterator[list[str] | UsageError]:
    """Give the words of each line of standard input, or what is wrong with it."""
    source = sys.stdin.buffer
    while line := source.readline(LINE_BYTES_MAX + 1):
        if len(line) > LINE_BYTES_MAX and not line.endswith(b"\n"):
            while line and not line.endswith(b"\n"):
                line = source.readline(LINE_BYTES_MAX)
            yield UsageError(f"a line is longer than {LINE_BYTES_MAX} bytes; it must be one command")
            continue
        try:
            yield words(line.decode())
        except UnicodeDecodeError:
            yield UsageError("a line is not UTF-8; it must be one command")
        except UsageError as wrong:
            yield wrong


def typed(complete: Complete) -> Iterator[list[str] | UsageError]:
    """Give the words of each line at the prompt. `complete` gets the command and what follows."""
    history = _history()
    # What follows the command is one word, blanks included.
    readline.set_completer_delims("")
    readline.set_completer(_Completer(complete).candidate)
    readline.parse_and_bind("bind ^I rl_complete" if "libedit" in (readline.__doc__ or "") else "tab: complete")
    while True:
        try:
            line = input(PROMPT)
        except EOFError:
            print()  # noqa: T201, the shell's prompt begins on a line of its own
            return
        except KeyboardInterrupt:
            print()  # noqa: T201
            # A half-typed line is dropped; on an empty line the user wants to leave.
            if readline.get_line_buffer():
                continue
            return
        if history and line.strip():
            _keep(history)
        try:
            yield words(line)
        except UsageError as wrong:
            yield wrong


def words(line: str) -> list[str]:
    """Split a line."""
    try:
        return split(line)
    except ValueError as wrong:
        raise UsageError(str(wrong)) from wrong


class _Completer:
    def __init__(self, complete: Complete) -> None:
        self._complete = complete
        self._found: list[str] = []

    def candidate(self, text: str, number: int) -> str | None:
        """Give one candidate after the other, as readline wants it."""
        if number == 0:
            command, blank, rest = text.partition(" ")
            start, quote = len(text) - len(rest.lstrip()), ""
            if blank and rest.lstrip()[:1] in ('"', "'"):
                quote = rest.lstrip()[0]
            wanted = rest.lstrip().removeprefix(quote)
            found = self._complete(command, wanted) if blank else self._complete("", text)
            before = text[:start] if blank else ""
            plain = [each for each in found if not ACTING.search(each)]
            self._found = [f"{before}{quote}{each}{quote}" for each in plain[:CANDIDATES_MAX]]
        return self._found[number] if number < len(self._found) else None


def _history() -> Path | None:
    """Read the lines of earlier sessions; none if the file cannot be used, and then lines are kept for this one."""
    readline.set_history_length(HISTORY_LINES)
    state = os.environ.get("XDG_STATE_HOME", "")
    folder = (Path(state) if Path(state).is_absolute() else Path.home() / ".local/state") / "quire"
    # The clients in other languages write other formats.
    file = folder / "client_history.python"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.touch(mode=0o600)
        if not file.is_file() or file.stat().st_size > HISTORY_BYTES_MAX:
            return None
        readline.read_history_file(file)
    except (OSError, RuntimeError):
        return None
    return file


def _keep(file: Path) -> None:
    try:
        readline.append_history_file(1, file)
    except OSError:
        # The line is in this session's history all the same.
        return
