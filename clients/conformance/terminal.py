"""A client at a terminal: what a person types, and what the screen shows."""

import fcntl
import os
import pathlib
import pty
import re
import select
import signal
import stat
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from typing import Any

from matching import Mismatch, Values
from subject import environment

WAIT_SECONDS = 15
ESCAPE = re.compile(rb"\x1b\[[0-9;?>=!]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()][A-Za-z0-9]|\x1b[=>78cDEHM]")
POSITION_ASKED = b"\x1b[6n"
KEYS = {"TAB": b"\t", "ENTER": b"\r", "CTRL-C": b"\x03", "CTRL-D": b"\x04", "UP": b"\x1b[A"}


class Screen:
    """What a program has written to its terminal, without escape sequences."""

    def __init__(self, master: int) -> None:
        self._master, self._raw, self._asked = master, b"", 0
        self.ended = False

    def text(self) -> str:
        return ESCAPE.sub(b"", self._raw).replace(b"\r", b"").decode(errors="replace")

    def read(self, seconds: float) -> bool:
        """Whether something came, if only an escape sequence, or the end."""
        if not select.select([self._master], [], [], seconds)[0]:
            return False
        try:
            more = os.read(self._master, 65536)
        except OSError:
            more = b""
        self.ended = not more
        self._raw += more
        asked = self._raw.count(POSITION_ASKED)
        for _ in range(asked - self._asked):
            os.write(self._master, b"\x1b[1;1R")
        self._asked = asked
        return True

    def wait(self, pattern: re.Pattern[str], begin: int) -> int:
        """Waits for a text behind a place, and returns the place behind it."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not (found := pattern.search(self.text(), begin)):
            left = deadline - time.monotonic()
            if left <= 0 or self.ended:
                raise Mismatch(f"the terminal shows {self.text()[begin:][-1500:]!r} and must show {pattern.pattern!r}")
            self.read(left)
        return found.end()


def _as_in_a_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    # A program in the background of a shell ignores Ctrl-C, and so do those that it starts.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def talk(program: str, about: dict[str, Any], values: Values, folder: pathlib.Path, asked: Callable[[str], bool]) -> None:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    more = {name: values.fill(value) for name, value in about.get("env", {}).items()}
    words = [values.fill(word) for word in about["run"].split()]
    process = subprocess.Popen([program, *words], cwd=folder, env=environment(folder, more), stdin=slave, stdout=slave,
                               stderr=slave, start_new_session=True, preexec_fn=_as_in_a_terminal)
    os.close(slave)
    screen = Screen(master)
    at = 0
    try:
        for kind, text in about["dialog"]:
            if kind == "type":
                os.write(master, values.fill(text).encode())
            elif kind == "asked":
                deadline = time.monotonic() + WAIT_SECONDS
                while not asked(text):
                    if time.monotonic() > deadline:
                        raise Mismatch(f"the server was not asked {text}")
                    screen.read(0.02)
            elif kind == "press":
                os.write(master, KEYS[text])
            else:
                at = screen.wait(_pattern(text, values), at)
        while not screen.ended:
            if not screen.read(WAIT_SECONDS):
                raise Mismatch(f"the program does not end; the terminal shows {screen.text()[-500:]!r}")
        code = process.wait(timeout=WAIT_SECONDS)
        if code != about.get("exit", 0):
            raise Mismatch(f"the exit code is {code} and must be {about.get('exit', 0)}")
    finally:
        process.kill()
        process.wait()
        os.close(master)
    for line in about.get("history", []):
        _kept(folder / about.get("kept_in", "state/quire"), line)


def _pattern(text: str, values: Values) -> re.Pattern[str]:
    return re.compile(re.escape(values.fill(text)).replace("NUMBER", "[0-9.]+"))


def _kept(folder: pathlib.Path, line: str) -> None:
    files = [file for file in folder.glob("*") if file.is_file()] if folder.exists() else []
    if not any(line in file.read_text(errors="replace") for file in files):
        raise Mismatch(f"no file in {folder} keeps the line {line!r}; there are {[file.name for file in files]}")
    for file in files:
        mode = stat.S_IMODE(file.stat().st_mode)
        if mode & 0o077:
            raise Mismatch(f"{file} has the mode {mode:o}; only its owner may read it")
