"""Addresses as people write them."""

import re
from socket import AF_INET6, inet_pton
from typing import NamedTuple

PORT = 10086
PORT_MAX = 65_535


class WrongAddressError(ValueError):
    """What is written is no address; `want` is what would be right."""

    def __init__(self, text: str, want: str) -> None:
        """Name both."""
        super().__init__(f"'{text}' is no address; it must be {want}")
        self.text, self.want = text, want


class Address(NamedTuple):
    """Where a server is; the scheme is `http`, `https`, or nothing."""

    scheme: str
    host: str
    port: int

    @property
    def target(self) -> str:
        """`HOST:PORT`."""
        return f"{self.host}:{self.port}"


def parse_all(text: str) -> list[Address]:
    """Read addresses with commas between; all of them speak TLS, or none."""
    addresses = [_parse(part) for part in text.split(",")]
    if len({address.scheme == "https" for address in addresses}) > 1:
        raise WrongAddressError(text, "https://… for each address or for none")
    return addresses


def _parse(text: str) -> Address:
    """Read `HOST:PORT`, a host, or `:PORT`, with `http://` or `https://` before it if need be."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, rest = "", text
    elif scheme not in ("http", "https"):
        raise WrongAddressError(text, f"http://{rest} or https://{rest}")
    else:
        rest = rest.removesuffix("/")
    if "/" in rest:
        raise WrongAddressError(text, f"without a path: {scheme}{separator}{rest.partition('/')[0]}")
    host, colon, digits = rest.rpartition(":")
    if _is_host(rest) and rest and not rest.isdigit():
        host, digits = rest, str(PORT)
    elif not colon or not _is_host(host):
        raise WrongAddressError(text, f"HOST:PORT, as 127.0.0.1:{PORT} or [::1]:{PORT}")
    port = int(digits) if re.fullmatch("0*[0-9]{1,5}", digits) else PORT_MAX + 1
    if port > PORT_MAX:
        raise WrongAddressError(text, f"HOST:PORT with a port up to {PORT_MAX}, as {host}:{PORT}")
    if port == 0:
        raise WrongAddressError(text, f"HOST:PORT with a port from 1 to {PORT_MAX}, as {host}:{PORT}")
    return Address(scheme, host or "127.0.0.1", port)


def _is_host(text: str) -> bool:
    """Whether it is a name, an IPv4 address, an IPv6 address in brackets, or nothing."""
    if not (text.startswith("[") and text.endswith("]")):
        return re.fullmatch("[A-Za-z0-9._-]*", text) is not None
    try:
        return bool(inet_pton(AF_INET6, text[1:-1]))
    except (OSError, ValueError):
        return False
