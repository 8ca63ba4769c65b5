"""Where lines come from: a prompt on a terminal, a pipe elsewhere. Must not know commands."""

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from quire_client._text import ACTING

PROMPT = "quire client> "
LINE_BYTES_MAX = 65_536
HISTORY_LINES = 1_000
CANDIDATES_MAX = 100

Complete = Callable[[str, str], list[str]]


def piped() -> Iterator[str | ValueError]:
    """Give each line of standard input, or what is wrong with it."""
    source = sys.stdin.buffer
    while line := source.readline(LINE_BYTES_MAX + 1):
        if len(line) > LINE_BYTES_MAX and not line.endswith(b"\n"):
            while line and not line.endswith(b"\n"):
                line = source.readline(LINE_BYTES_MAX)
            yield ValueError(f"a line is longer than {LINE_BYTES_MAX} bytes; it must be one command")
            continue
        try:
            yield line.decode()
        except UnicodeDecodeError:
            yield ValueError("a line is not UTF-8; it must be one command")


def typed(complete: Complete) -> Iterator[str]:
    """Give each line of the prompt. `complete` gets a command, or nothing, and the text that follows it."""
    import readline  # noqa: PLC0415, it writes to standard output when it is no terminal

    file = _history()
    readline.set_history_length(HISTORY_LINES)
    with suppress(OSError):
        readline.read_history_file(file)
    found: list[str] = []

    def candidate(line: str, number: int) -> str | None:
        nonlocal found
        if number == 0:
            before, command, blanks, quote, text = re.fullmatch(r"((\S*)(\s*)([\"']?))(.*)", line, re.DOTALL).groups()  # type: ignore[union-attr]
            if not blanks:
                before, command, text = "", "", line
            plain = [each for each in complete(command, text) if not ACTING.search(each)]
            found = [f"{before}{each}{quote}" for each in plain[:CANDIDATES_MAX]]
        return found[number] if number < len(found) else None

    # What follows the command is one word, blanks included.
    readline.set_completer_delims("")
    readline.set_completer(candidate)
    readline.parse_and_bind("bind ^I rl_complete" if "libedit" in (readline.__doc__ or "") else "tab: complete")
    while True:
        try:
            line = input(PROMPT)
        except (EOFError, KeyboardInterrupt) as end:
            print()  # noqa: T201, what follows begins on a line of its own
            # A half-typed line is dropped; on an empty line the user wants to leave.
            if isinstance(end, KeyboardInterrupt) and readline.get_line_buffer():
                continue
            return
        with suppress(OSError):
            readline.append_history_file(1, file)
        yield line


def _history() -> Path:
    """Give the file of earlier lines, which only the owner can read."""
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    # The clients in other languages write other formats.
    file = (state if state.is_absolute() else Path.home() / ".local/state") / "quire/client_history.python"
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.touch(mode=0o600)
    except OSError:
        return Path(os.devnull)
    return file
