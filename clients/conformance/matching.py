"""Expectations: text and JSON with placeholders for what varies.

`${name}` in an expectation is a value that the suite knows (the address of the server), or one that the client chooses (a
key). A chosen value has the form below, and is the same value wherever its name stands again in the scenario; but those of
`FREE` may differ each time. Digits behind a name tell several apart: `${version1}`, `${version2}`.
"""

import base64
import json
import re
from typing import Any

# A cause is the library's, and not the client's own "cannot be reached".
NOT_OURS = r"(?![\s\S]*cannot be reached)"
FORMS = {
    "key": r"[0-9a-f]{32}",
    "bool": r"true|false",
    "calls": r"[1-9][0-9]*",
    "number": r"[0-9]+(\.[0-9]+)?([eE]-?[0-9]+)?",
    "us": r"[0-9]+",
    "version": r"[1-9][0-9]*",
    "ttl": r"[1-9][0-9]*",
    "count": r"[0-9]+",
    "until": r"[1-9][0-9]{12}",
    "receipt": r"c2sp\.org/tlog-proof@v1\n[\s\S]+",
    "command": r"[^\n]+",
    "log_key": r"[^\s+]+\+[0-9a-f]{8}\+[A-Za-z0-9+/=]+",
    # Words of the library's own, those of a port that refuses, of TLS, of the resolution of a name, and anything at all.
    "reason": r"[^\n]+",
    "refusal": NOT_OURS + r"[^\n]*(?i:refused)[^\n]*",
    "untrusted": NOT_OURS + r"[\s\S]*(?i:certif)[\s\S]*",
    "unresolved": NOT_OURS + r"[^\n]*(?i:not known|no such host|not found|ENOTFOUND|UnknownHost|DNS)[^\n]*",
    "agent": r"quire-client-[a-z]+/\d+\.\d+\.\d+( .*)?",
    "any": r"[\s\S]*",
}
FREE = {"us", "calls", "number", "bool", "count", "receipt", "reason", "refusal", "untrusted", "unresolved", "any"}
SHOWN_LINES = 12
PLACE = re.compile(r"\$\{(\w+)\}")


class Mismatch(Exception):
    """What came is not what must come; the text says both."""


class Values:
    """What the suite knows, and what the client has chosen so far."""

    def __init__(self, known: dict[str, str]) -> None:
        self.known = dict(known)

    def fill(self, text: str) -> str:
        """Text for the client, with every value in place."""
        if missing := [place for place in PLACE.findall(text) if place not in self.known]:
            raise Mismatch(f"{missing} is not known, because an earlier answer was not as it must be")
        return PLACE.sub(lambda place: self.known[place[1]], text)

    def match(self, what: str, expected: str, actual: str) -> None:
        expected = PLACE.sub(lambda place: self.known[place[1]] if place[1] in self.known else place[0], expected)
        if expected == actual:
            return
        pattern, names = "", []
        for at, piece in enumerate(PLACE.split(expected)):
            if at % 2 == 0:
                pattern += re.escape(piece)
            elif piece in names:
                pattern += f"(?P={piece})"
            elif piece in FREE:
                pattern += f"(?:{FORMS[piece]})"
            else:
                pattern += f"(?P<{piece}>{FORMS[piece.rstrip('0123456789')]})"
                names.append(piece)
        found = re.fullmatch(pattern, actual) if PLACE.search(expected) else None
        if found is None:
            raise Mismatch(f"{what} is\n{_differing(actual, expected)}\n  and must be\n{_differing(expected, actual)}")
        self.known.update(found.groupdict())

    def match_json(self, what: str, expected: Any, actual: Any) -> None:
        """Objects have exactly the expected names; a placeholder stands for any value but null."""
        expected = built(expected)
        if isinstance(expected, dict) and isinstance(actual, dict) and expected.keys() == actual.keys():
            for name, value in expected.items():
                self.match_json(f"{what}, {name}", value, actual[name])
        elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
            for at, (left, right) in enumerate(zip(expected, actual, strict=True)):
                self.match_json(f"{what}, {at}", left, right)
        elif isinstance(expected, str) and isinstance(actual, str):
            self.match(what, expected, actual)
        elif isinstance(expected, str) and PLACE.fullmatch(expected) and actual is not None:
            self.match(what, expected, json.dumps(actual))
        elif type(expected) is not type(actual) or expected != actual:
            shown = [json.dumps(value, ensure_ascii=False, sort_keys=True)[:500] for value in (actual, expected)]
            raise Mismatch(f"{what} is\n    {shown[0]}\n  and must be\n    {shown[1]}")


def built(value: Any) -> Any:
    """A value of a scenario, made from the tables that stand for long or binary ones."""
    match value:
        case {"base64": text, **rest} if not rest:
            return base64.b64encode(built(text).encode()).decode()
        case {"repeat": text, "times": times}:
            return text * times
        case {"join": pieces}:
            return "".join(built(piece) for piece in pieces)
        case {"join_lists": lists}:
            return [each for inner in lists for each in built(inner)]
        case {"range": bounds}:
            return list(range(*bounds))
        case {"null": True}:
            return None
        case dict():
            return {name: built(inner) for name, inner in value.items()}
        case list():
            return [built(inner) for inner in value]
    return value


def _differing(text: str, other: str) -> str:
    """Some lines of a text, from the first that the other does not have."""
    lines, others = text.split("\n"), other.split("\n")
    same = next((at for at, (line, its) in enumerate(zip(lines, others, strict=False)) if line != its), len(others))
    first = max(0, same - 3) if len(lines) > SHOWN_LINES else 0
    shown = [f"    {json.dumps(line[:1500], ensure_ascii=False)}" for line in lines[first:first + SHOWN_LINES]]
    return "\n".join([f"    from line {first + 1} of {len(lines)}:"] * (first > 0) + shown)
