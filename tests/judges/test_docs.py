"""Every file, link, command, crate, setting, option and symbol that a page names is there."""

import functools
import json
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = sorted(subprocess.check_output(["git", "ls-files", "*.md"], cwd=ROOT, text=True).split())
# Examples that a reader would write himself.
EXAMPLE = re.compile(r"greeter|greetings|hello\.proto|LANGUAGE|/NAME/", re.I)
# Symbols of the standard library and of dependencies, by the first name of their path.
FOREIGN = {"clippy", "imbl", "std", "tokio", "tonic", "prost", "http", "rustls", "tower", "axum", "rusqlite", "google", "grpc", "serde", "prost_types",
           "csv", "rand", "hyper", "bytes"}

# What stands behind the dot in a file's name, where a setting has its key.
FILES = {"rs", "db", "md", "proto", "partial", "address", "snapshot"}


@functools.cache
def sources() -> str:
    files = subprocess.check_output(["git", "ls-files", "*.rs", "*.proto"], cwd=ROOT, text=True).split()
    return "\n".join((ROOT / file).read_text() for file in files if (ROOT / file).is_file())


@functools.cache
def modules() -> set[str]:
    files = subprocess.check_output(["git", "ls-files", "*.rs"], cwd=ROOT, text=True).split()
    return {part for file in files for part in pathlib.Path(file).with_suffix("").parts}


@functools.cache
def packages() -> list[dict]:
    command = ["cargo", "metadata", "--format-version", "1", "--no-deps", "--offline"]
    return json.loads(subprocess.check_output(command, cwd=ROOT))["packages"]


@functools.cache
def settings() -> set[str]:
    return set(re.findall(r"^\| `([a-z_]+\.[a-z_0-9]+)`", (ROOT / "docs/settings.md").read_text(), flags=re.M))


@functools.cache
def options() -> set[str]:
    """The options that our programs, scripts and tools declare, or the Makefile and code pass to those of others."""
    tracked = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).split()
    files = [file for file in tracked if re.search(r"\.(rs|py|go|java|cc|cpp|h|ts|js|mjs|sh|txt|toml|json)$|Makefile$", file)]
    text = "\n".join((ROOT / file).read_text(errors="replace") for file in files if (ROOT / file).is_file())
    named = set(re.findall(r"(?<![\w-])--([a-z][a-z0-9-]+)", text))
    # Of clap's derive: the fields of arguments, and names in quotes.
    fields = re.findall(r"#\[arg\([^\]]*long[^\]]*\)\]\s*(?:pub(?:\(\w+\))? )?(\w+):", text)
    return named | {field.replace("_", "-") for field in fields} | set(re.findall(r'long = "([a-z-]+)"', text))


# Programs of others whose options our files need not pass.
OTHERS = re.compile(r"--data-urlencode|\b(?:cargo|curl|git|grpcurl|ghz|h2load|journalctl|mypy|openssl|patronictl|pip|psql|pg_\w+|systemctl|docker|sqlite3|systemd-analyze|taskset|useradd|perf|valgrind|wrk)\b")


def anchors(page: pathlib.Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def code(text: str) -> list[str]:
    """What stands between backticks, and the lines of code blocks."""
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```", text, flags=re.S | re.M)
    rest = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    lines = [line for block in blocks for line in block.split("\n")] + re.findall(r"^ {4,}(.+)$", rest, flags=re.M)
    return lines + re.findall(r"`([^`\n]+)`", rest)


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_names_is_there(page: str) -> None:
    path = ROOT / page
    text = path.read_text()
    missing = []
    for target in re.findall(r"\]\((?!https?:|mailto:|\w+::)([^)\s]+)\)", text):
        file, _, anchor = target.partition("#")
        found = (path.parent / file).resolve() if file else path
        if not found.exists():
            missing.append(f"link {target}")
        elif anchor and found.suffix == ".md" and anchor not in anchors(found):
            missing.append(f"heading {target}")
    makefiles = [ROOT / "Makefile", path.parent / "Makefile"]
    makefiles += (ROOT / "clients").glob("*/Makefile") if page.startswith("clients/") else []
    makefile = "\n".join(file.read_text() for file in makefiles if file.is_file())
    names = {target["name"] for package in packages() for target in [package, *package["targets"]]}
    for piece in code(text):
        if EXAMPLE.search(piece):
            continue
        for found in re.findall(r"(?<![\w/.~-])((?:engine|server|load|clients|tests|docs|proto)/[\w./*-]*\w)", piece):
            if not list(ROOT.glob(found)) and "target" not in found:
                missing.append(f"path {found}")
        for target in re.findall(r"^\s*make (?!-)([a-z][a-z-]*)", piece):
            if not re.search(rf"^(?:[\w-]+ )*{target}(?: [\w-]+)*:", makefile, flags=re.M):
                missing.append(f"make {target}")
        sections = "|".join(sorted({name.split(".")[0] for name in settings()}))
        for setting in re.findall(rf"(?<![\w./:-])((?:{sections})\.[a-z_0-9]+)(?![\w./(-])", piece):
            if setting not in settings() and setting.split(".")[1] not in FILES:
                missing.append(f"setting {setting}")
        for command in re.findall(r"^(?:QUIRE_\w+=\S+ )?quire ([a-z]+)\b", piece):
            if not re.search(rf"\b{command.title()}\b", (ROOT / "server/quire/src/cli.rs").read_text()):
                missing.append(f"command quire {command}")
        if re.search(r"\bcargo (?:run|test|build|bench)\b", piece) and "peers" not in piece:
            for option, name in re.findall(r"(-p|--package|--bin|--example|--test|--bench) ([\w-]+)", piece):
                if name not in names:
                    missing.append(f"{option} {name}")
        if not OTHERS.search(piece) and page != "docs/migration.md":
            missing += [f"option --{name}" for name in re.findall(r"(?<![\w-])--([a-z][a-z0-9-]+)", piece) if name not in options()]
        for symbol in re.findall(r"(?<![\w:/])([a-z_]\w*(?:::\w+)+)", piece if "{" not in piece and ";" not in piece else ""):
            first, *_, last = symbol.split("::")
            if first in FOREIGN or page == "docs/migration.md":
                continue
            if last.isupper():
                # The path of a method, which is generated.
                last = last.title().replace("_", "")
            known = re.search(rf"\b(?:fn|struct|enum|trait|mod|type|const|static|union|macro_rules!|rpc|service|message) {last}\b", sources())
            known = known or re.search(rf"^\s*(?:pub use .*)?\b{last}\b\s*(?:[,({{=;]|$)", sources(), flags=re.M) or last in modules()
            if not known:
                missing.append(f"symbol {symbol}")
    assert not missing, sorted(set(missing))


def test_the_code_map_names_what_its_folders_have() -> None:
    text = (ROOT / "docs/ARCHITECTURE.md").read_text()
    section = text[text.index("## Code map") : text.index("## A purchase")]
    rows = re.findall(r"^\| `([\w/]+)` \| (.+) \|$", section, flags=re.M)
    missing = [f"{folder}/{name}" for folder, row in rows for name in re.findall(r"`([\w/]+(?:/|\.rs))`", row) if not (ROOT / folder / name).exists()]
    assert rows and not missing, missing


# A client's sources, and how they define the call NAME.
LANGUAGES = {
    "cpp": ("cpp/include/quire/*.h", r"^(?:  .*)?\bNAME\(|^class NAME\b"),
    "go": ("go/*.go", r"^func (?:\(\w+ \*\w+\) )?NAME\("),
    "java": ("java/library/src/main/java/quire/client/*.java", r"^  public .*\bNAME\("),
    "python": ("python/src/quire_client/*.py", r"^    (?:async )?def NAME\(|^class NAME\b|^    NAME = "),
    "rust": ("rust/src/*.rs", r"^    pub (?:async )?fn NAME\b"),
    "typescript": ("typescript/src/*.ts", r"^  (?:async )?\*?NAME\(|^export function NAME\("),
}
# Types of the languages and of their standard libraries.
OTHERS_TYPES = {"Seq2", "Iterator", "AsyncGenerator", "context", "Context", "outgoing", "metadata", "undefined", "or"}


def wrong_calls(text: str) -> list[str]:
    """Names in the table of the clients' calls that their libraries do not have."""
    section = text[text.index("## The calls") : text.index("## What they promise")]
    rows = [line.strip("|").split("|") for line in section.split("\n") if line.startswith("|") and "---" not in line]
    wrong = [call for call in contract_calls() if sum(f"`{call}`" in row[0] for row in rows) != 2]
    columns: list[str] = []
    for row in rows:
        if row[0] == "call":
            columns = [re.findall(r"clients/(\w+)\)", cell)[0] for cell in row[1:]]
            continue
        for language, cell in zip(columns, row[1:], strict=True):
            files, form = LANGUAGES[language]
            source = "\n".join(file.read_text() for file in sorted((ROOT / "clients").glob(files)))
            for piece in re.findall(r"`([^`]+)`", cell):
                name = re.match(r"(?:\w+(?:\.|::))?(\w+)\(", piece)
                if name and not re.search(form.replace("NAME", name[1]), source, flags=re.M):
                    wrong.append(f"{language}: {name[1]}")
                words = set(re.findall(r"[A-Za-z_]\w*", piece)) - OTHERS_TYPES - ({"client"} if "client." in piece else set())
                wrong += [f"{language}: {word} of {piece}" for word in words if not re.search(rf"\b{word}\b", source)]
    return wrong


def contract_calls() -> set[str]:
    """The calls that every driver has."""
    text = (ROOT / "clients/CONTRACT.md").read_text()
    rows = re.findall(r"^\| (`.+) \|.*\|$", text[text.index("## The driver") :], flags=re.M)
    first = [re.findall(r"`(\w+)`", part)[0] for row in rows if "`call`" not in row for part in row.split(";")]
    return {*first, "put", "update"}


def test_the_table_of_the_clients_calls_names_what_their_libraries_have() -> None:
    text = (ROOT / "docs/clients.md").read_text()
    assert wrong_calls(text) == []
    assert {"confirm", "create", "put", "tail_log"} <= contract_calls()
    for right, name in [("remove(", "delete_("), ("|`Buy(", "|`Purchase("), ("Paged<Topic>", "Pages<Topic>"), ("page_size: int", "size: int")]:
        assert wrong_calls(text.replace(right, name)), f"{name} in place of {right} is not found"
    assert wrong_calls(re.sub(r"^\|`receipt`.*\n", "", text, flags=re.M)) == ["receipt"]
