"""Tables of medians, and the goals beside what was measured. Must not know how anything was measured."""

import statistics

from .loads import LOADS, TABLES, Load
from .measure import Figures

Results = dict[tuple[str, Load], list[Figures]]
NAME_WIDTH, CELL_WIDTH = 42, 15
# Those that the goals are set to: methods of messages, and of bytes.
OURS, BYTES = "quire", "quire, bytes"
BUSY = [load for load in LOADS if load.table == "sum" and load.streams == 100]
STREAMS = [load for load in LOADS if load.table == "streams" and load.connections > 1]
MESSAGES_GOAL = 5_000_000


def cpu_us(results: Results, name: str, load: Load) -> float | None:
    """The median of the CPU a call, if that was measured."""
    measured = results.get((name, load))
    return statistics.median(one.cpu_us for one in measured) if measured else None


def rate(results: Results, name: str, load: Load) -> float | None:
    measured = results.get((name, load))
    return statistics.median(one.rate for one in measured) if measured else None


def row(title: str, cells: list[str]) -> str:
    return f"{title:{NAME_WIDTH}}" + "".join(f"{cell:>{CELL_WIDTH}}" for cell in cells)


def table(results: Results, name: str, names: list[str]) -> None:
    """One table: calls a second and CPU a call of each server that can do any of its loads."""
    loads = [load for load in LOADS if load.table == name]
    print(f"\n{TABLES[name]}\n" + row("", [load.title for load in loads]))
    streamed = loads[0].messages > 1
    values = [
        ("messages/s" if streamed else "calls/s", lambda one, load: rate(results, one, load), lambda load: load.messages, ",.0f"),
        ("µs CPU a call", lambda one, load: cpu_us(results, one, load), lambda load: 1, ",.2f"),
    ]
    if streamed:
        inverse = lambda one, load: (value := cpu_us(results, one, load)) and 1e6 / value
        values.append(("messages a CPU second", inverse, lambda load: load.messages, ",.0f"))
    for what, value, factor, form in values:
        for one in names:
            found = [value(one, load) for load in loads]
            if any(found):
                cells = [f"{it * factor(load):{form}}" if it else "-" for it, load in zip(found, loads)]
                print(row(f"{one}, {what}", cells))


def goal(title: str, found: float | None, wanted: float, unit: str) -> None:
    """A line for one goal, if it was measured; a bound below 0 is one from above."""
    if found is None:
        return
    is_met = found <= -wanted if wanted < 0 else found >= wanted
    print(row(title, [f"{found:,.2f}", f"{abs(wanted):,.2f} {unit}", "met" if is_met else "MISSED"]))


def ratios(results: Results, title: str, other: str, load: Load, wanted: float) -> None:
    """How many calls ours answers in the CPU time in which another answers one."""
    theirs = cpu_us(results, other, load)
    for name in (OURS, BYTES):
        ours = cpu_us(results, name, load)
        goal(f"{name}: {title}, {other}", theirs / ours if ours and theirs else None, wanted, "x")


def goals(results: Results, floor: list[float]) -> None:
    """What was wanted of the engine, beside what it did here."""
    print("\nGoals\n" + row("", ["measured", "wanted", ""]))
    for load in BUSY:
        for other, wanted in [("tonic", 12), ("connectrpc", 12), ("grpc-go", 12), ("pajamax", 1.3)]:
            ratios(results, f"GetSum {load.title}", other, load, wanted)
    for load in (load for load in LOADS if load.table == "ingest"):
        ratios(results, f"Ingest {load.title}", "connectrpc", load, 2)
    others = sorted({name for name, load in results if load in STREAMS} - {OURS, BYTES})
    for load in STREAMS:
        ours = cpu_us(results, OURS, load)
        each = ours and load.messages / ours
        goal(f"{OURS}: {load.title}, M messages a CPU s", each, MESSAGES_GOAL / 1e6, "M")
        for other in others:
            ratios(results, load.title, other, load, 5)
    one = next(load for load in LOADS if load.table == "sum")
    ours = cpu_us(results, OURS, one)
    goal("one call at a time, CPU, tcp-floor", ours / statistics.median(floor) if ours and floor else None, -1.15, "x at most")
