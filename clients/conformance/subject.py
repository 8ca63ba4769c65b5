"""The programs of one client, as the suite starts them."""

import dataclasses
import itertools
import json
import os
import pathlib
import queue
import subprocess
import threading
from collections.abc import Callable
from typing import Any

ANSWER_SECONDS = 90


@dataclasses.dataclass(frozen=True)
class Ended:
    out: str
    err: str
    code: int


@dataclasses.dataclass(frozen=True)
class Subject:
    language: str
    folder: pathlib.Path

    def program(self, name: str) -> str:
        return str(self.folder / name)

    def run(self, name: str, words: list[str], folder: pathlib.Path, stdin: bytes, more: dict[str, str],
            meanwhile: Callable[[subprocess.Popen[bytes]], None]) -> Ended:
        with subprocess.Popen([self.program(name), *words], cwd=folder, env=environment(folder, more), stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            try:
                meanwhile(process)
                out, err = process.communicate(stdin, timeout=ANSWER_SECONDS)
            except BaseException:
                process.kill()
                raise
        return Ended(out.decode(errors="backslashreplace"), err.decode(errors="backslashreplace"), process.returncode)


def environment(folder: pathlib.Path, more: dict[str, str]) -> dict[str, str]:
    """Nothing of the caller's that a client reads; its files go into the folder."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME") if name in os.environ}
    return {**kept, "LANG": "C.UTF-8", "XDG_STATE_HOME": str(folder / "state"), **more}


class Driver:
    """A driver in a process of its own; any thread may call it."""

    def __init__(self, command: list[str], folder: pathlib.Path) -> None:
        self._errors = (folder / "driver-errors").open("wb")
        self._process = subprocess.Popen(command, cwd=folder, env=environment(folder, {}), stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, stderr=self._errors)
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._due: dict[int, queue.Queue[dict[str, Any] | None]] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            answer = json.loads(line)
            with self._lock:
                due = self._due.get(answer.pop("n", None))
            if due:
                due.put(answer)
        with self._lock:
            for due in self._due.values():
                due.put(None)

    def send(self, request: dict[str, Any]) -> int:
        number = next(self._numbers)
        with self._lock:
            self._due[number] = queue.Queue()
            assert self._process.stdin
            self._process.stdin.write(json.dumps({"n": number, **request}).encode() + b"\n")
            self._process.stdin.flush()
        return number

    def answer(self, number: int) -> dict[str, Any]:
        """The next answer to a request; a watch has two."""
        answer = self._due[number].get(timeout=ANSWER_SECONDS)
        if answer is None:
            raise RuntimeError("the driver ended without an answer")
        return answer

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        number = self.send(request)
        answer = self.answer(number)
        with self._lock:
            del self._due[number]
        return answer

    def end(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()

    def close(self) -> int:
        """The exit code, once the input has ended."""
        self.end()
        try:
            code = self._process.wait(timeout=ANSWER_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        self._reader.join()
        self._errors.close()
        return code

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._errors.close()
