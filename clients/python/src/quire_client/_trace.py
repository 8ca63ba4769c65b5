"""The trace of a call, as W3C's Trace Context has it."""

import re

_SENDABLE = re.compile("[!-~]([ -~]{0,510}[!-~])?")
"""Other fields of metadata end a call."""


def metadata(parent: str | None, state: str | None) -> tuple[tuple[str, str], ...]:
    """Give the fields of a trace that go with a call: those that can be sent, and no state alone."""
    if not parent or not _SENDABLE.fullmatch(parent):
        return ()
    fields = (("traceparent", parent),)
    return (*fields, ("tracestate", state)) if state and _SENDABLE.fullmatch(state) else fields
