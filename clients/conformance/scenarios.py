"""Scenarios as data: what there is, what is typed or called, and what must come back. README.md in clients/ has the format."""

import contextlib
import dataclasses
import json
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import time
import tomllib
from collections.abc import Callable
from typing import Any

from double import Double
from matching import Mismatch, Values, built
from servers import SHOPPER_TOKEN, TOKEN, Quire, Refused, Silent, pem_folder
from subject import Driver, Ended, Subject

from kit import proxy  # noqa: E402  (on the path since `servers`)
from kit.servers import stopping, wait_until  # noqa: E402

FOLDER = pathlib.Path(__file__).parent / "scenarios"
KNOWN = {
    "name", "server", "second", "double", "proxy", "run", "stdin", "env", "out", "exit", "seconds", "step",
    "driver", "calls", "seen", "program", "seen_count", "slow", "json", "says", "interrupt",
}

ACTING = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\ufff9-\ufffb\U000e0000-\U000e007f]")


@dataclasses.dataclass(frozen=True)
class Scenario:
    group: str
    name: str
    about: dict[str, Any]


def load() -> list[Scenario]:
    found = []
    for file in sorted(FOLDER.glob("*.toml")):
        topic = tomllib.loads(file.read_text())
        for about in topic["scenario"]:
            for step in about.get("step", [about]):
                if unknown := step.keys() - KNOWN:
                    raise ValueError(f"{file.name}, {about['name']}: there is no {unknown}")
            found.append(Scenario(topic["title"], about["name"], about))
    names = [(scenario.group, scenario.name) for scenario in found]
    if len(set(names)) != len(names):
        raise ValueError(f"two scenarios of a topic have one name: {[name for name in names if names.count(name) > 1]}")
    return found


class Place(dict[str, str]):
    """The values of a scenario; a server starts when its address is first needed."""

    def __init__(self, scenario: Scenario, quire: pathlib.Path, folder: pathlib.Path, stack: contextlib.ExitStack) -> None:
        super().__init__(folder=str(folder), token=TOKEN, shopper_token=SHOPPER_TOKEN)
        self.about, self.quire, self.folder, self.stack = scenario.about, quire, folder, stack
        self.double: Double | None = None
        self.quires: list[Quire] = []

    def __missing__(self, name: str) -> str:
        self[name] = self._make(name)
        return self[name]

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in ("address", "direct", "second", "port", "silent", "refused",
                                                      "refused2", "pem", "quire")

    def _make(self, name: str) -> str:
        match name:
            case "address" if "proxy" in self.about:
                plan = {fault["request"]: fault["fault"] for fault in self.about["proxy"]}
                direct = self["direct"]
                return str(self._enter(proxy.Proxy(direct, plan, self.quires[0].restart)).address)
            case "address":
                return self["direct"]
            case "direct" if "double" in self.about:
                self.double = self._enter(Double(built(self.about["double"])))
                return str(self.double.address)
            case "direct":
                self.quires.append(self._enter(Quire(self.quire, self.folder / "server", self.about.get("server", {}))))
                return self.quires[0].address
            case "second":
                return str(self._enter(Quire(self.quire, self.folder / "second", self.about.get("second", {}))).address)
            case "port":
                return self["address"].rpartition(":")[2]
            case "silent":
                return str(self._enter(Silent()).address)
            case "refused" | "refused2":
                return str(self._enter(Refused()).address)
            case "quire":
                return str(self.quire)
            case "pem":
                return str(pem_folder(self.folder / "server"))
        raise KeyError(name)

    def was_asked(self, method: str) -> bool:
        return self.double is not None and any(call["method"] == method for call in self.double.seen)

    def _enter(self, server: Any) -> Any:
        return self.stack.enter_context(stopping(server))


class Lazy(Values):
    """Values that are made when they are first needed."""

    def __init__(self, place: Place) -> None:
        self.known = place


def run(scenario: Scenario, subject: Subject, quire: pathlib.Path, folder: pathlib.Path) -> None:
    """Raises what was wrong; leaves nothing behind if nothing was."""
    folder.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        place = Place(scenario, quire, folder, stack)
        values = Lazy(place)
        if "driver" in scenario.about:
            _drive(scenario.about, subject, values, folder, place.was_asked)
        else:
            wrong = [found for step in scenario.about.get("step", [scenario.about])
                     if (found := _command(step, subject, values, folder, place.was_asked))]
            if wrong:
                raise Mismatch("\n".join(wrong))
        if place.double and "seen" in scenario.about:
            _seen(scenario.about["seen"], place.double, values)
        if place.double and "seen_count" in scenario.about:
            _between("the calls at the server", len(place.double.seen), scenario.about["seen_count"], "")
    shutil.rmtree(folder)


def _words(line: str | list[str], values: Values) -> list[str]:
    return shlex.split(values.fill(line)) if isinstance(line, str) else [values.fill(word) for word in built(line)]


def _command(step: dict[str, Any], subject: Subject, values: Values, folder: pathlib.Path,
             asked_for: Callable[[str], bool]) -> str | None:
    program = values.fill(step.get("program", "quire-client"))
    words = ["--json"] * ("json" in step) + _words(step["run"], values)
    more = {name: values.fill(value) for name, value in step.get("env", {}).items()}

    def meanwhile(process: subprocess.Popen[bytes]) -> None:
        if method := step.get("interrupt"):
            wait_until(f"the call of {method}", lambda: asked_for(method))
            process.send_signal(signal.SIGINT)

    begin = time.monotonic()
    ended = subject.run(program, words, folder, values.fill(step.get("stdin", "")).encode(), more, meanwhile)
    seconds = time.monotonic() - begin
    try:
        _answered(step, ended, values)
        if ended.code != step.get("exit", 0):
            raise Mismatch(f"the exit code is {ended.code} and must be {step.get('exit', 0)}")
        first, last = step.get("seconds", [0, 60])
        if not first <= seconds <= last:
            raise Mismatch(f"it took {seconds:.2f} s and must take {first} to {last} s")
    except Mismatch as wrong:
        shown = "".join(f"\n{name} was\n    {text[:2000]!r}" for name, text in
                        (("standard output", ended.out), ("standard error", ended.err)) if text)
        return f"{shlex.join([program, *words])[:500]}\n{wrong}{shown}"
    return None


def _answered(step: dict[str, Any], ended: Ended, values: Values) -> None:
    """With `json` standard output is that, an object a line; otherwise text that does not act on a terminal."""
    if "json" in step:
        expected = step["json"] if isinstance(step["json"], list) else [step["json"]]
        try:
            lines = [json.loads(line) for line in ended.out.splitlines()]
        except ValueError as wrong:
            raise Mismatch(f"a line of standard output is not JSON: {wrong}") from wrong
        values.match_json("standard output", expected, lines)
    elif acting := ACTING.search(ended.out + ended.err):
        raise Mismatch(f"{acting[0]!r} of the output acts on a terminal")
    if "out" in step:
        values.match("standard output", step["out"], ended.out)
    for said in step.get("says", []):
        if values.fill(said) not in ended.out + ended.err:
            raise Mismatch(f"the output must have {values.fill(said)!r}")


def _drive(about: dict[str, Any], subject: Subject, values: Values, folder: pathlib.Path,
           asked_for: Callable[[str], bool]) -> None:
    driver = Driver([subject.program("driver"), *_words(about["driver"], values)], folder)
    named: dict[str, int] = {}
    try:
        for call in about["calls"]:
            if call == "end":
                driver.end()
                continue
            asked, expected = call
            request = _filled(built(asked), values)
            name, method, times = request.pop("as", None), request.pop("until_asked", None), request.pop("times", 1)
            awaited = request.pop("awaited", False)
            deadline = time.monotonic() + 20
            while awaited and not _fits(expected, driver.ask(request), values) and time.monotonic() < deadline:
                pass
            while method and not asked_for(method) and time.monotonic() < deadline:
                driver.ask(request)
            for _ in range(times - 1):
                driver.ask(request)
            begin = time.monotonic()
            number = named[request["later"]] if "later" in request else driver.send(request)
            if name:
                named[name] = number
            if expected != "later":
                answer = driver.answer(number)
                values.match_json(f"the answer to {str(request)[:300]}", expected, answer)
            if (seconds := time.monotonic() - begin) > 40:
                raise Mismatch(f"{request} took {seconds:.0f} s")
        code = driver.close()
        if code != 0:
            raise Mismatch(f"the driver's exit code is {code} and must be 0 at the end of its input")
    except BaseException:
        driver.kill()
        raise


def _fits(expected: Any, answer: Any, values: Values) -> bool:
    try:
        values.match_json("", expected, answer)
    except Mismatch:
        return False
    return True


def _filled(value: Any, values: Values) -> Any:
    match value:
        case str() if value.startswith("${version"):
            return int(values.fill(value))
        case str():
            return values.fill(value)
        case dict():
            return {name: _filled(inner, values) for name, inner in value.items()}
        case list():
            return [_filled(inner, values) for inner in value]
    return value


def _seen(expected: list[dict[str, Any]], double: Double, values: Values) -> None:
    """The calls that the server was asked, in order, and of each what the scenario names."""
    if len(expected) != len(double.seen):
        raise Mismatch(f"the server was asked {[call['method'] for call in double.seen]}, "
                       f"and must be asked {[call['method'] for call in expected]}")
    before = 0.0
    for at, (want, call) in enumerate(zip(expected, double.seen, strict=True), 1):
        what = f"call {at} at the server"
        for name, value in want.items():
            match name:
                case "after_ms":
                    _between(f"the pause before {what}", (call["at"] - before) * 1000, value)
                case "deadline_ms" if value == "none":
                    values.match_json(f"the deadline of {what}", {"null": True}, call["deadline_ms"])
                case "deadline_ms":
                    # Some libraries round it up as they send it.
                    first, last = value
                    _between(f"the deadline of {what}", call["deadline_ms"] or float("inf"), [first, last * 1.02])
                case _:
                    values.match_json(f"{name} of {what}", value, call[name])
        before = call["at"]


def _between(what: str, actual: float, bounds: list[float], unit: str = " ms") -> None:
    if not bounds[0] <= actual <= bounds[1]:
        raise Mismatch(f"{what}: {actual:.0f}{unit}, and must be {bounds[0]} to {bounds[1]}{unit}")
