"""The structure that docs/ARCHITECTURE.md promises: no circles, no import that points up, and who may know what.

Everything is read from the sources: a module is a file, and an arrow is a path that names something of another file.
Code under `#[cfg(test)]` does not count, nor does what a macro makes.
"""

import json
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_]*"


def crates() -> dict[str, dict]:
    command = ["cargo", "metadata", "--format-version", "1", "--no-deps", "--offline"]
    return {package["name"]: package for package in json.loads(subprocess.check_output(command, cwd=ROOT))["packages"]}


TEXT = r"""b?r(#+)".*?"\1|b?"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\\n])'"""
COMMENT = r"//[^\n]*|/\*.*?\*/"


def without_tests_and_comments(source: str) -> str:
    def kept(match: re.Match) -> str:
        return "" if match[0].startswith("/") else match[0]

    return without_tests(re.sub(f"{TEXT}|{COMMENT}", kept, source, flags=re.S))


def without_noise(source: str) -> str:
    """The source without comments, text and tests, so that every path in it counts."""
    return without_tests(re.sub(COMMENT, "", re.sub(TEXT, '""', source, flags=re.S), flags=re.S))


def without_tests(source: str) -> str:
    while match := re.search(r"#\[cfg\((?:all\()?test\b[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*", source):
        end = match.end()
        brace, semicolon = source.find("{", end), source.find(";", end)
        if brace == -1 or -1 < semicolon < brace:
            source = source[: match.start()] + source[semicolon + 1 :]
            continue
        depth, place = 1, brace + 1
        while depth and place < len(source):
            depth += {"{": 1, "}": -1}.get(source[place], 0)
            place += 1
        source = source[: match.start()] + source[place:]
    return source


def leaves(tree: str) -> list[tuple[list[str], str]]:
    """The paths of a `use` tree, each with the name that it gets."""
    tree = tree.strip()
    if "{" not in tree:
        path, _, alias = tree.partition(" as ")
        parts = [part.strip().removeprefix("r#") for part in path.split("::")]
        if parts[-1] == "self" and len(parts) > 1:
            parts.pop()
        return [(parts, alias.strip() or parts[-1])]
    before, _, inside = tree.partition("{")
    inside = inside[: inside.rindex("}")]
    prefix = [part.strip() for part in before.split("::") if part.strip()]
    found, depth, start = [], 0, 0
    for place, letter in enumerate(inside + ","):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            if inside[start:place].strip():
                found += [(prefix + parts, name) for parts, name in leaves(inside[start:place])]
            start = place + 1
    return found


class Crate:
    """A crate's files as modules."""

    def __init__(self, source: pathlib.Path):
        self.texts: dict[tuple[str, ...], str] = {}
        for path in sorted(source.rglob("*.rs")):
            parts = path.relative_to(source).with_suffix("").parts
            if parts[0] == "bin" or (parts[0] == "main" and (source / "lib.rs").is_file()):
                continue
            module = () if parts[-1] in ("lib", "main") and len(parts) == 1 else parts
            module = module[:-1] if module and module[-1] == "mod" else module
            if module and (module[-1] == "tests" or module[-1].endswith("_tests")):
                continue
            self.texts[module] = without_noise(path.read_text())
        self.names = {module: self.imported(module) for module in self.texts}

    def imported(self, module: tuple[str, ...]) -> dict[str, list[str]]:
        uses = re.findall(r"\buse\s+([^;]+);", self.texts[module])
        return {name: parts for use in uses for parts, name in leaves(use)}

    def target(self, module: tuple[str, ...], parts: list[str], seen: frozenset = frozenset()) -> tuple[str, ...] | None:
        """The module that defines what a path names; None if it is of another crate."""
        if parts[0] == "crate":
            here, rest = (), parts[1:]
        elif parts[0] in ("self", "super"):
            here, rest = module, list(parts)
            while rest and rest[0] in ("self", "super"):
                here = here[:-1] if rest.pop(0) == "super" else here
        elif (*module, parts[0]) in self.texts:
            here, rest = module, parts
        else:
            return None
        while rest and (*here, rest[0]) in self.texts:
            here, rest = (*here, rest[0]), rest[1:]
        if here not in self.texts:
            return None
        again = (here, *rest)
        if rest and rest[0] in self.names[here] and again not in seen:
            # Shown here, defined elsewhere: the arrow goes to where it is defined.
            onward = self.names[here][rest[0]] + rest[1:]
            return self.target(here, onward, seen | {again}) or here
        return here

    def arrows(self) -> dict[tuple[str, ...], set[tuple[str, ...]]]:
        found = {}
        for module, text in self.texts.items():
            # What a module only shows on is not what it needs.
            shown = re.findall(r"\bpub(?:\([^)]*\))?\s+use\s+([^;]+);", text)
            passed_on = [parts for use in shown for parts, _ in leaves(use)]
            paths = [parts for parts in self.names[module].values() if parts not in passed_on]
            body = re.sub(r"\buse\s+[^;]+;", "", text)
            paths += [path.split("::") for path in re.findall(rf"\b{IDENTIFIER}(?:::{IDENTIFIER})+", body)]
            # A name that is shown on and used as well is an arrow all the same.
            paths += [parts for parts in passed_on if re.search(rf"\b{parts[-1]}\b", body)]
            targets = {self.target(module, parts) for parts in paths}
            found[module] = targets - {None, module}
        return found


def circles(arrows: dict) -> list[list]:
    """Groups of modules that reach each other (Tarjan, 1972)."""
    order, low, stack, found = {}, {}, [], []

    def visit(node) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for after in arrows[node]:
            if after not in order:
                visit(after)
                low[node] = min(low[node], low[after])
            elif after in stack:
                low[node] = min(low[node], order[after])
        if low[node] == order[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1:
                found.append(sorted(group))

    for node in arrows:
        if node not in order:
            visit(node)
    return found


FOLDERS = sorted(str(pathlib.Path(package["manifest_path"]).parent.relative_to(ROOT)) for package in crates().values())


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_modules_of_a_crate_need_each_other(folder: str) -> None:
    arrows = Crate(ROOT / folder / "src").arrows()
    told = []
    for circle in circles(arrows):
        inside = [f"{'::'.join(a) or 'lib'} -> {'::'.join(b) or 'lib'}" for a in circle for b in sorted(arrows[a]) if b in circle]
        told.append("; ".join(inside))
    assert not told, "\n".join(told)


def layers() -> list[list[str]]:
    """The rows of the table of layers, the highest first."""
    page = (ROOT / "docs/ARCHITECTURE.md").read_text()
    rows = re.findall(r"^\| \d+ \| ([^|]+) \|", page, flags=re.M)
    return [re.findall(r"`([^`]+)`", row) for row in rows]


def test_every_crate_stands_in_one_layer_and_uses_only_lower_ones() -> None:
    rows = layers()
    place = {name: number for number, row in enumerate(rows) for name in row}
    packages = crates()
    assert sorted(name for row in rows for name in row) == sorted(packages), "docs/ARCHITECTURE.md lists every crate once"
    upward = [
        f"{name} (layer {place[name] + 1}) uses {dependency['name']} (layer {place[dependency['name']] + 1})"
        for name, package in packages.items()
        for dependency in package["dependencies"]
        if dependency["kind"] is None and dependency["name"] in place and place[dependency["name"]] <= place[name]
    ]
    assert not upward, upward


# What only some files may name: a promise, a pattern, where it is looked for, and which files or folders may have it.
SERVICES = r"\b(?:bookstore|kv|records|rpcgame|tasks)::"
BOUNDARIES = [
    ("only the store has SQL", r'"(?:BEGIN|COMMIT|DELETE|INSERT|PRAGMA|ROLLBACK|SELECT|UPDATE|VACUUM)\b', "server/bookstore/src", ["store"]),
    ("messages stay in the transport", r"\bwire::", "server/bookstore/src", ["grpc", "service"]),
    ("messages stay in the transport", r"\bwire::", "server/kv/src", ["grpc", "service"]),
    ("messages stay in the transport", r"\bwire::", "server/records/src", ["grpc", "service", "encode"]),
    ("messages stay in the transport", r"\bwire::", "server/rpcgame/src", ["grpc", "service", "driver"]),
    ("HTTP/2 has no sockets and no clock", r"\b(?:tokio|Instant|SystemTime)\b|\bstd::net\b", "engine/http2/src", []),
    ("group commit knows no store", r"\b(?:rusqlite|fjall|std::fs|std::path)\b", "server/commit/src", []),
    ("only one list names the services", SERVICES, "server/quire/src/transport", []),
    ("only one list names the services", SERVICES, "server/quire/src/config", []),
    ("only one list names the services", SERVICES, "server/quire/src/serve.rs", []),
    ("only one list names the services", SERVICES, "server/quire/src/http.rs", []),
    ("only one list names the services", SERVICES, "server/quire/src/contract.rs", []),
    ("the OpenAPI document knows no service", SERVICES, "server/openapi/src", []),
    ("a report knows no run", r"\bcrate::(?:cli|plan|recorder|run|schedule|workload)\b", "load/bench/src/report", []),
    ("the bench's clock and recorder know no protocol", r"(?i)\b(?:grpc|http|tcp)", "load/bench/src/recorder.rs", []),
    ("the bench's clock and recorder know no protocol", r"(?i)\b(?:grpc|http|tcp)", "load/bench/src/schedule.rs", []),
    ("counting a call takes no locked instruction", r"\bfetch_\w+|\bcompare_exchange", "server/quire/src/transport/counts.rs", []),
    ("the server binds the listeners", r"\bTcpListener::bind\b", "*/*/src", ["hosting", "bench", "laboratory", "postgres", "testing"]),
]


@pytest.mark.parametrize(("promise", "pattern", "files", "allowed"), BOUNDARIES)
def test_only_some_files_may_name_it(promise: str, pattern: str, files: str, allowed: list[str]) -> None:
    starts = list(ROOT.glob(files))
    assert starts, f"{files} is not there"
    found = []
    for start in starts:
        for path in [start] if start.is_file() else sorted(start.rglob("*.rs")):
            inside = set(path.relative_to(ROOT).with_suffix("").parts)
            if not inside & set(allowed) and re.search(pattern, without_tests_and_comments(path.read_text())):
                found.append(str(path.relative_to(ROOT)))
    assert not found, f"{promise}: {found}"
