"""The parts of docs/clients.md that the suite makes: the matrix of topics by language, and the list of samples."""

import itertools
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/clients.md"
NAMES = {"cpp": "C++", "go": "Go", "java": "Java", "python": "Python", "rust": "Rust", "typescript": "TypeScript"}
SUFFIXES = {"cpp": [".cc", ".cpp"], "go": [".go"], "java": [".java"], "python": [".py"], "rust": [".rs"], "typescript": [".ts"]}
SAMPLES = {
    "search": "the books of a topic",
    "buy": "buy one copy",
    "buy-again": "send a purchase again",
    "sold-out": "every outcome of a purchase",
    "reserve": "hold a copy, and buy it in time or too late",
    "receipt": "keep a receipt that anyone can verify",
    "watch": "watch a key",
    "compare-and-update": "update what no one else has changed",
}


def matrix(results: dict[str, dict[str, str]]) -> str:
    """One sentence if all languages have the same results; otherwise a row for each topic and a column for each language."""
    first = results[next(iter(NAMES))]
    if all(results[language] == first for language in NAMES):
        *topics, (campaign, outcome) = first.items()
        good, count = (sum(int(passed.split()[at]) for _, passed in topics) for at in (0, 2))
        return f"In each language {good} of {count} scenarios passed; {campaign}: {outcome}."
    rows = [["", *NAMES.values()], ["---", *("---:" for _ in NAMES)]]
    rows += [[topic, *(results[language][topic] for language in NAMES)] for topic in first]
    return "\n".join("| " + " | ".join(row).lstrip() + " |" for row in rows)


def samples() -> str:
    """A line for each sample, which every language must have."""
    for name, language in itertools.product(SAMPLES, NAMES):
        _require(language, name)
    return "\n".join(f"- `{name}`: {about}" for name, about in SAMPLES.items())


def _require(language: str, name: str) -> None:
    """Fails unless the sample is there, named as in its language: buy-again.ts, buy_again.py, BuyAgain.java, buy-again/main.go."""
    folder = ROOT / "clients" / language / "samples"
    fitting = [file for file in folder.rglob("*") if file.suffix in SUFFIXES[language] and _bare(file) == name.replace("-", "")]
    if len(fitting) != 1:
        raise FileNotFoundError(f"the sample {name} must be one file in {folder}; found {fitting}")


def _bare(file: pathlib.Path) -> str:
    stem = file.parent.name if file.stem in ("main", "Main") else file.stem
    return re.sub("[-_]", "", stem).lower().removesuffix("sample")


def made(text: str, parts: dict[str, str]) -> str:
    """The page with its parts as they must be."""
    for name, part in parts.items():
        begin, end = f"<!-- {name}: made by the suite -->", f"<!-- {name}: end -->"
        before, opened, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not opened or not closed:
            raise ValueError(f"{PAGE} lacks the lines {begin} and {end}")
        text = f"{before}{begin}\n\n{part}\n\n{end}{after}"
    return text
