"""Client of Quire: a bookstore and a key-value store. `Client` blocks, `AsyncClient` is for asyncio."""

from quire_client import _values
from quire_client._address import WrongAddressError
from quire_client._client import AsyncClient, AsyncOperator, Client, Operator
from quire_client._connections import Tls
from quire_client._faults import Fault, OutcomeUnknown, Refused, Unreachable
from quire_client._values import *  # noqa: F403, they have a list of their own

__all__ = [
    "AsyncClient",
    "AsyncOperator",
    "Client",
    "Fault",
    "Operator",
    "OutcomeUnknown",
    "Refused",
    "Tls",
    "Unreachable",
]
__all__ += ["WrongAddressError"]
__all__ += _values.__all__
