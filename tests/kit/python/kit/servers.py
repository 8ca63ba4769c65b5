"""Programs in processes of their own, and `quire serve` as one of them. Needs the standard library alone."""

import contextlib
import itertools
import json
import os
import pathlib
import re
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from typing import Any

# Far longer than a start or an end takes; only a failing test waits for it.
PATIENCE_SECONDS = 90
# Below those of outgoing connections; a process begins with its own part of them.
FIRST_PORT, LAST_PORT = 15_000, 32_000
PORTS_A_PROCESS = 64
ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+:\d+")

_ports = itertools.cycle(range(FIRST_PORT, LAST_PORT))
for _ in range(os.getpid() * PORTS_A_PROCESS % (LAST_PORT - FIRST_PORT)):
    next(_ports)


def wait_until(what: str, condition: Callable[[], Any], seconds: float = PATIENCE_SECONDS, every: float = 0.05) -> Any:
    """Waits until the condition is true, and returns its value."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {seconds} s, not: {what}")
        time.sleep(every)
    return found


def free_port() -> int:
    """A free port outside the range of outgoing connections, so that a program can bind it again after a restart."""
    for port in itertools.islice(_ports, LAST_PORT - FIRST_PORT):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise RuntimeError("no port is free")


class Process:
    """A program that works in a folder and writes into a log there, which is read from where the last start began."""

    def __init__(self, folder: pathlib.Path, environment: Mapping[str, str] | None = None, log: str = "log") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._log, self._begin = folder, folder / log, 0
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(("QUIRE_", "PG"))}
        self.environment.update(environment or {})
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *command: str | pathlib.Path, pass_fds: tuple[int, ...] = ()) -> None:
        with self._log.open("ab") as log:
            self._begin = log.tell()
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
                                            env=self.environment, pass_fds=pass_fds, start_new_session=True)

    def log(self) -> str:
        with self._log.open("rb") as log:
            log.seek(self._begin)
            return log.read().decode(errors="replace")

    def wait_for(self, what: str, condition: Callable[[], Any]) -> Any:
        """Waits while the program runs."""
        def found() -> Any:
            if value := condition():
                return value
            if self.process is None or self.process.poll() is not None:
                raise RuntimeError(f"the program ended before {what}; see {self._log}: {self.log()[-2000:]}")
            return None

        return wait_until(f"{what}; see {self._log}", found, every=0.005)

    def line(self, words: str) -> str:
        """The first complete line of the log that has the words, and a time."""
        def lines() -> list[str]:
            return [line for line in self.log().splitlines(keepends=True) if words in line and line.endswith("\n")]

        return str(self.wait_for(f"a line with '{words}'", lines)[0])

    def listening(self) -> str:
        """The address in the line that says so."""
        return ADDRESS.search(self.line("listening"))[0]

    def wait_for_port(self, port: int) -> None:
        def connects() -> bool:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return True
            return False

        self.wait_for(f"it listens on port {port}", connects)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> int | None:
        """Ends it in order, or else by force; returns the exit code, if it was started."""
        if self.process is None:
            return None
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(PATIENCE_SECONDS)
        self.kill()
        return self.process.returncode


class Quire(Process):
    """`quire serve` with its data in the folder; it starts again on the same port."""

    def __init__(self, program: str | pathlib.Path, folder: pathlib.Path, *flags: str, settings: tuple[str, ...] | list[str] = (),
                 listen: str = "127.0.0.1:0", environment: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, environment)
        self.program, self.address = program, listen
        self._flags = [*(word for setting in settings for word in ("--set", setting)), *flags]

    def begin(self) -> None:
        """Starts it without waiting."""
        self.start(self.program, "serve", "--listen", self.address, "--data", "data", "--log-format", "json", *self._flags)

    def serve(self) -> None:
        """Starts it and waits until it listens."""
        self.begin()
        self.address = self.listening()

    def restart(self) -> None:
        """Kills it and starts it again on the same port."""
        self.kill()
        self.serve()

    def fields(self, message: str) -> dict[str, Any]:
        """The fields of the first line of the log with this message."""
        return dict(json.loads(self.line(f'"{message}"'))["fields"])

    def import_books(self, rows: str) -> None:
        """From CSV, past the server."""
        subprocess.run([self.program, "import", "-", "--data", "data"], input=rows.encode(), cwd=self.folder,
                       env=self.environment, check=True, capture_output=True, timeout=PATIENCE_SECONDS)

    def is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.address}/healthz", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@contextlib.contextmanager
def stopping(server: Any) -> Iterator[Any]:
    try:
        yield server
    finally:
        server.stop()
