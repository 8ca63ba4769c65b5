"""The trace of a call, as W3C's Trace Context has it."""

import re

TRACESTATE_BYTES_MAX = 512
"""What every program has to pass on."""

_PARENT = re.compile(r"(?!ff|00.{53}.)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
_MEMBER = r"[a-z0-9][a-z0-9_*/@-]{0,255}=[ -+\--<>-~]{0,255}[!-+\--<>-~]"
_STATE = re.compile(rf"{_MEMBER}( *, *{_MEMBER}){{0,31}}")


def metadata(parent: str | None, state: str | None) -> tuple[tuple[str, str], ...]:
    """Give what goes with the call. An invalid or long state is left out, and one without a valid parent."""
    if not parent:
        return ()
    is_sent = state and len(state) <= TRACESTATE_BYTES_MAX and _STATE.fullmatch(state) and _PARENT.fullmatch(parent)
    return (("traceparent", parent), ("tracestate", state)) if state and is_sent else (("traceparent", parent),)
