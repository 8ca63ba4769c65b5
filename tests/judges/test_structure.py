"""The structure that docs/ARCHITECTURE.md promises: layers of crates, no circles of files, and borders.

A file needs another if a path in it names something that the other defines; comments, text and tests do not count.
"""

import graphlib
import json
import pathlib
import re
import subprocess
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
METADATA = ["cargo", "metadata", "--format-version", "1", "--no-deps", "--offline"]
PACKAGES = {package["name"]: package for package in json.loads(subprocess.check_output(METADATA, cwd=ROOT))["packages"]}
FOLDERS = sorted(str(pathlib.Path(package["manifest_path"]).parent.relative_to(ROOT)) for package in PACKAGES.values())

TEXT_OR_COMMENT = r"""b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\\n])'|//[^\n]*|/\*.*?\*/"""
# An item as rustfmt lays it out: to the brace that closes it at its own depth, or to its semicolon.
TEST = r"^( *)#\[cfg\((?:all\()?test\b.*\n(?:\1#\[.*\n)*\1(?:[^\n{]*;\n|(?:.*\n)*?\1\}\n?)"


def code(path: pathlib.Path, with_text: bool = False) -> str:
    """A file without comments and tests, and without text unless it is wanted."""
    kept = lambda match: "" if match[0].startswith("/") else match[0] if with_text else '""'  # noqa: E731
    return re.sub(TEST, "", re.sub(TEXT_OR_COMMENT, kept, path.read_text(), flags=re.S), flags=re.M)


def imports(text: str, visibility: str = "") -> Iterator[tuple[list[str], str]]:
    """The paths that `use` names, each with the name it gets here."""
    for tree in re.findall(rf"{visibility}\buse\s+([^;]+);", text):
        while group := re.search(r"([\w:]*)\{([^{}]*)\}", tree):
            tree = tree.replace(group[0], ",".join(group[1] + leaf.strip() for leaf in group[2].split(",") if leaf.strip()))
        for leaf in tree.split(","):
            path, _, alias = leaf.strip().replace("::self", "").partition(" as ")
            yield path.split("::"), alias.strip() or path.split("::")[-1]


class Crate:
    """A crate's files, each a module."""

    def __init__(self, source: pathlib.Path):
        self.texts = {}
        for path in sorted(source.rglob("*.rs")):
            parts = path.relative_to(source).with_suffix("").parts
            if parts[0] == "bin" or (parts[0] == "main" and (source / "lib.rs").is_file()) or re.search(r"\b(\w+_)?tests$", parts[-1]):
                continue
            self.texts[() if parts in (("lib",), ("main",)) else parts[:-1] if parts[-1] == "mod" else parts] = code(path)
        self.names = {module: {name: path for path, name in imports(text)} for module, text in self.texts.items()}

    def defining(self, module: tuple[str, ...], path: list[str], seen: tuple = ()) -> tuple[str, ...] | None:
        """The module that defines what a path names; None if it is of another crate."""
        here, rest = module, list(path)
        if rest[0] not in ("crate", "self", "super") and (*module, rest[0]) not in self.texts:
            return None
        while rest and rest[0] in ("crate", "self", "super"):
            here = {"crate": (), "self": here, "super": here[:-1]}[rest.pop(0)]
        while rest and (*here, rest[0]) in self.texts:
            here = (*here, rest.pop(0))
        if here in self.texts and rest and rest[0] in self.names[here] and (here, rest[0]) not in seen:
            # Shown here, defined elsewhere.
            return self.defining(here, self.names[here][rest[0]] + rest[1:], (*seen, (here, rest[0]))) or here
        return here if here in self.texts else None

    def needs(self, module: tuple[str, ...]) -> set[tuple[str, ...]]:
        body = re.sub(r"\buse\s+[^;]+;", "", self.texts[module])
        # A module does not need what it only shows on.
        shown = [path for path, _ in imports(self.texts[module], r"\bpub(?:\([^)]*\))?\s+") if not re.search(rf"\b{path[-1]}\b", body)]
        paths = [path for path, _ in imports(self.texts[module]) if path not in shown]
        paths += [path.split("::") for path in re.findall(r"\b[A-Za-z_]\w*(?:::[A-Za-z_]\w*)+", body)]
        return {self.defining(module, path) for path in paths} - {None, module}


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_files_of_a_crate_need_each_other(folder: str) -> None:
    crate = Crate(ROOT / folder / "src")
    try:
        graphlib.TopologicalSorter({module: crate.needs(module) for module in crate.texts}).prepare()
    except graphlib.CycleError as circle:
        pytest.fail(" needs ".join("::".join(module) or "lib" for module in reversed(circle.args[1])), pytrace=False)


def test_every_crate_stands_in_one_layer_and_uses_only_lower_ones() -> None:
    rows = re.findall(r"^\| \d+ \| ([^|]+) \|", (ROOT / "docs/ARCHITECTURE.md").read_text(), flags=re.M)
    layer = {name: number for number, row in enumerate(rows, 1) for name in re.findall(r"`([^`]+)`", row)}
    assert sorted(layer) == sorted(PACKAGES), "docs/ARCHITECTURE.md lists every crate once"
    uses = [(name, each["name"]) for name, package in PACKAGES.items() for each in package["dependencies"] if each["kind"] is None]
    upward = [f"{a} (layer {layer[a]}) uses {b} (layer {layer[b]})" for a, b in uses if layer.get(b, len(rows) + 1) <= layer[a]]
    assert not upward, upward


# A promise, what breaks it, where it is looked for, and the files or folders that may have it.
SERVICES = r"\b(?:bookstore|kv|records|rpcgame|tasks)::"
BORDERS = [
    ("only the store has SQL", r'"(?:BEGIN|COMMIT|DELETE|INSERT|PRAGMA|ROLLBACK|SELECT|UPDATE|VACUUM)\b', "server/bookstore/src", "store"),
    ("messages stay in the transport", r"\bwire::", "server/bookstore/src server/kv/src", "grpc service"),
    ("messages stay in the transport", r"\bwire::", "server/records/src server/rpcgame/src", "grpc service encode driver"),
    ("HTTP/2 has no sockets and no clock", r"\b(?:tokio|Instant|SystemTime)\b|\bstd::net\b", "engine/http2/src", ""),
    ("group commit knows no store", r"\b(?:rusqlite|fjall|std::fs|std::path)\b", "server/commit/src", ""),
    ("only one list names the services", SERVICES, "server/quire/src/transport server/quire/src/config server/openapi/src", ""),
    ("only one list names the services", SERVICES, "server/quire/src/serve.rs server/quire/src/pages.rs", ""),
    ("the storefront knows the bookstore's handle alone", r"\b(?:kv|records|rpcgame|tasks|operate)::", "server/web/src", "room service"),
    ("pages know no transport of a service", r"\b(?:grpc|wire)::", "server/web/src", ""),
    ("a report knows no run", r"\bcrate::(?:cli|plan|recorder|run|schedule|workload)\b", "load/bench/src/report", ""),
    ("the bench's clock and recorder know no protocol", r"(?i)\b(?:grpc|http|tcp)", "load/bench/src/recorder.rs load/bench/src/schedule.rs", ""),
    ("counting a call takes no locked instruction", r"\bfetch_\w+|\bcompare_exchange", "server/quire/src/transport/counts.rs", ""),
    ("the server binds the listeners", r"\bTcpListener::bind\b", "*/*/src", "hosting bench laboratory postgres kit testing"),
]


@pytest.mark.parametrize(("promise", "pattern", "places", "allowed"), BORDERS)
def test_only_some_files_may_name_it(promise: str, pattern: str, places: str, allowed: str) -> None:
    found = []
    for start in places.split():
        files = [path for root in ROOT.glob(start) for path in (root.rglob("*.rs") if root.is_dir() else [root])]
        assert files, f"{start} is not there"
        files = [path.relative_to(ROOT) for path in files if re.search(pattern, code(path, with_text=True))]
        found += [str(path) for path in files if not {*path.with_suffix("").parts} & {*allowed.split()}]
    assert not found, f"{promise}: {sorted(found)}"
