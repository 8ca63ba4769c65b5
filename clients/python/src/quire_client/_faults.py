"""What can go wrong, as exceptions. What the store decides is no fault but a value."""

from grpc import StatusCode


class Fault(Exception):  # noqa: N818, a fault's name says what it is
    """A call without an answer of the store's."""

    def __init__(self, code: StatusCode, message: str) -> None:
        """Take gRPC's code, and the server's message or the reason of the failure."""
        self.code, self.message = code, message or code.name
        super().__init__(self.message)


class Refused(Fault):
    """The server understood the request and does not do it."""


class Unreachable(Fault):
    """No server did anything, or what was asked changes nothing. `sent` says if the request was sent."""

    def __init__(self, code: StatusCode, message: str, *, sent: bool) -> None:
        """Take what a fault has, and if the request was sent."""
        super().__init__(code, message)
        self.sent = sent


class OutcomeUnknown(Fault):
    """The server may have done what was asked, once."""
