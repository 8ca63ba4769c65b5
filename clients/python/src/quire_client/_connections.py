"""Connections to one server or several, over blocking sockets or with asyncio. Must not know any one call.

Both kinds have the same coroutines. Those of the blocking kind never suspend, so `_attempts` is written once.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import count
from threading import Condition
from time import monotonic, sleep
from typing import Any, TypeVar

import grpc
from grpc import ChannelConnectivity as State

from quire_client._address import Address, parse_all
from quire_client._trace import metadata as trace
from quire_wire.bookstore_pb2_grpc import AdminStub, BookStoreStub
from quire_wire.kv_pb2_grpc import KeyRangeServiceStub, KeyValueServiceStub

Request = TypeVar("Request")
Reply = TypeVar("Reply")

RECONNECT_MS_MAX = 1_000
"""The longest pause between attempts to connect to a server that is away."""
RECOVERY_SECONDS = 1.25
"""How long a call waits for a server that was away when the call began: a reconnect, and its random part."""

HELLO = "/bookstore.BookStore/Hello"
CAUSE_SECONDS = 0.05
"""How long to ask a connection that has failed; gRPC answers by itself, unless the server has come back."""

OPTIONS = [
    ("grpc.primary_user_agent", "quire-client-python/0.1.0"),
    # This library sends again by itself: it knows what may be sent twice.
    ("grpc.enable_retries", 0),
    ("grpc.service_config_disable_resolution", 1),
    # All addresses of a name are used, and a broken connection is replaced without a call that asks for it.
    ("grpc.service_config", '{"loadBalancingConfig":[{"round_robin":{}}]}'),
    ("grpc.client_idle_timeout_ms", 2**31 - 1),
    # The connections belong to one client, and so do the pauses before the next attempt to connect.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", RECONNECT_MS_MAX),
    # A server that accepts and says nothing: the next attempt has a new connection.
    ("grpc.min_reconnect_backoff_ms", 5_000),
    # A connection that has died without a word is given up, however long the call may take.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    # Any other ping on its way stands for that of the keepalive.
    ("grpc.http2.ping_timeout_ms", 10_000),
    # A value of 1 GiB, the largest that a server can be set to keep, with what is around it.
    ("grpc.max_receive_message_length", (1 << 30) + (1 << 20)),
    ("grpc.max_send_message_length", -1),
]


@dataclass(frozen=True, slots=True)
class Tls:
    """Certificates in PEM: those to trust (None: the system's), and the client's own with its private key."""

    ca: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = None

    def __post_init__(self) -> None:
        """Refuse half a client certificate."""
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key belong together; give both or neither")

    def credentials(self) -> grpc.ChannelCredentials:
        """Give them to gRPC, whose own default is not the system's certificates."""
        ca = self.ca
        if ca is None:
            import ssl  # noqa: PLC0415, few need it

            found = ssl.create_default_context().get_ca_certs(binary_form=True)
            ca = "".join(map(ssl.DER_cert_to_PEM_cert, found)).encode()
        return grpc.ssl_channel_credentials(ca, self.key, self.certificate)


@dataclass(frozen=True, slots=True)
class Target:
    """Where to connect and how."""

    addresses: list[Address]
    credentials: grpc.ChannelCredentials | None
    metadata: tuple[tuple[str, str], ...]
    traceparent: Callable[[], str | None]
    tracestate: Callable[[], str | None]

    @classmethod
    def of(
        cls,
        addresses: str | Iterable[str],
        token: str | None,
        tls: Tls | None,
        traceparent: Callable[[], str | None] | None,
        tracestate: Callable[[], str | None] | None,
    ) -> "Target":
        """Check what the caller gives."""
        parsed = parse_all(addresses if isinstance(addresses, str) else ",".join(addresses))
        if tls and any(address.scheme == "http" for address in parsed):
            raise ValueError("an address with http:// speaks no TLS; leave out tls, or write https://")
        if token is not None and not (token and token.isascii() and token.isprintable()):
            raise ValueError("token has characters that no token has")
        is_encrypted = tls is not None or parsed[0].scheme == "https"
        credentials = (tls or Tls()).credentials() if is_encrypted else None
        metadata = (("authorization", f"Bearer {token}"),) if token else ()
        return cls(parsed, credentials, metadata, traceparent or (lambda: None), tracestate or (lambda: None))


class Lane:
    """A channel of either kind to one server. Its stubs have the types of blocking calls."""

    def __init__(self, channel: Any) -> None:  # noqa: ANN401, the two kinds have no type in common
        """Make the stubs; nothing connects yet."""
        self.channel = channel
        self.state: State | None = None
        self.tell: Callable[[State], None] | None = None
        self.shop: BookStoreStub = BookStoreStub(channel)
        self.admin: AdminStub = AdminStub(channel)
        self.entries: KeyValueServiceStub = KeyValueServiceStub(channel)
        self.ranges: KeyRangeServiceStub = KeyRangeServiceStub(channel)


class _Lanes:
    """The lanes of a client, opened with its first call."""

    def __init__(self, target: Target) -> None:
        """Connect with the first call."""
        self.target = target
        self.lanes: list[Lane] = []
        self.is_closed = False
        self.turns = count()

    def open(self, kind: Any) -> list[Lane]:  # noqa: ANN401, `grpc` or `grpc.aio`
        """Give the lanes, made with the channels of one kind."""
        if self.is_closed:
            raise ValueError("the client is closed")
        for address in [] if self.lanes else self.target.addresses:
            if self.target.credentials:
                channel = kind.secure_channel(address.target, self.target.credentials, OPTIONS)
            else:
                channel = kind.insecure_channel(address.target, OPTIONS)
            self.lanes.append(Lane(channel))
        return self.lanes

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Give what goes with a call: the token, and the caller's trace."""
        return self.target.metadata + trace(self.target.traceparent(), self.target.tracestate())

    def name(self) -> str:
        """Give the addresses as one text."""
        return ",".join(address.target for address in self.target.addresses)

    def pick(self) -> Lane | None:
        """Give a lane whose server has spoken, if there is one, a different one each time."""
        lanes = self.lanes
        for _ in lanes:
            lane = lanes[next(self.turns) % len(lanes)]
            if self._state(lane) is State.READY:
                return lane
        return None

    def _state(self, lane: Lane) -> State | None:
        return lane.state

    def send(self, call: Callable[..., Reply], request: object, seconds: float) -> Awaitable[Reply]:
        """Send a request and wait for its answer."""
        raise NotImplementedError

    async def cause(self) -> grpc.RpcError | None:
        """Ask an address that is away why it is."""
        away = [lane for lane in self.lanes if self._state(lane) is State.TRANSIENT_FAILURE]
        try:
            if away:
                await self.send(away[0].channel.unary_unary(HELLO), b"", CAUSE_SECONDS)
        except grpc.RpcError as error:
            return error if error.code() is grpc.StatusCode.UNAVAILABLE else None
        return None

    def close_lanes(self) -> list[Lane]:
        """Give the lanes that are to be closed; there are no others from now on."""
        self.is_closed = True
        lanes, self.lanes = self.lanes, []
        return lanes


class BlockingConnections(_Lanes):
    """For threads. A thread of gRPC's tells when a connection is ready or lost."""

    def __init__(self, target: Target) -> None:
        """Connect with the first call."""
        super().__init__(target)
        self._changed = Condition()

    async def ready(self, seconds: float, recovery: float) -> Lane | None:
        """Wait for such a lane; none if every server is away, after `recovery` seconds if it was so before."""
        with self._changed:
            for lane in self.open(grpc):
                if not lane.tell:
                    lane.tell = partial(self._tell, lane)
                    lane.channel.subscribe(lane.tell, try_to_connect=True)
            was_away = _are_away(lane.state for lane in self.lanes)

            def is_over() -> bool:
                states = [lane.state for lane in self.lanes]
                return State.READY in states or (_are_away(states) and not was_away)

            self._changed.wait_for(is_over, min(seconds, recovery) if was_away else seconds)
            return self.pick()

    def _tell(self, lane: Lane, state: State) -> None:
        with self._changed:
            lane.state = state
            self._changed.notify_all()

    async def send(self, call: Callable[..., Reply], request: object, seconds: float) -> Reply:
        """Send a request and wait for its answer."""
        return call(request, timeout=seconds, metadata=self.metadata())

    async def receive(self, call: Callable[..., Any], request: object, seconds: float | None) -> AsyncIterator[Any]:
        """Send a request and receive its answers. To close the iterator cancels the call."""
        replies = call(request, timeout=seconds, metadata=self.metadata())
        try:
            for reply in replies:
                yield reply
        finally:
            replies.cancel()

    async def pause(self, seconds: float) -> None:
        """Let time pass."""
        sleep(seconds)  # noqa: ASYNC251, this kind blocks

    async def close(self) -> None:
        """End the connections and every call on them."""
        with self._changed:
            lanes = self.close_lanes()
        for lane in lanes:
            # The thread that watches a channel does not know that it closes.
            lane.channel.unsubscribe(lane.tell)
            lane.channel.close()


class AsyncConnections(_Lanes):
    """For the tasks of one event loop."""

    def _state(self, lane: Lane) -> State | None:
        state: State = lane.channel.get_state(try_to_connect=True)
        return state

    async def ready(self, seconds: float, recovery: float) -> Lane | None:
        """Wait for such a lane; none if every server is away, after `recovery` seconds if it was so before."""
        lanes = self.open(grpc.aio)
        states = [lane.channel.get_state(try_to_connect=True) for lane in lanes]
        was_away = _are_away(states)
        end = monotonic() + (min(seconds, recovery) if was_away else seconds)
        while not (lane := self.pick()):
            if _are_away(states) and not was_away:
                return None
            changes = [
                asyncio.ensure_future(lane.channel.wait_for_state_change(state))
                for lane, state in zip(lanes, states, strict=True)
            ]
            wait = max(0.0, end - monotonic())
            try:
                done, _ = await asyncio.wait(changes, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for change in changes:
                    change.cancel()
            if not done:
                return None
            if self.is_closed:
                raise ValueError("the client is closed")
            states = [lane.channel.get_state() for lane in lanes]
        return lane

    def send(self, call: Callable[..., Reply], request: object, seconds: float) -> Awaitable[Reply]:
        """Send a request and wait for its answer."""
        sent: Any = call(request, timeout=seconds, metadata=self.metadata())
        return sent  # type: ignore[no-any-return]

    async def receive(self, call: Callable[..., Any], request: object, seconds: float | None) -> AsyncIterator[Any]:
        """Send a request and receive its answers. To close the iterator cancels the call."""
        replies = call(request, timeout=seconds, metadata=self.metadata())
        try:
            async for reply in replies:
                yield reply
        finally:
            replies.cancel()

    async def pause(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """End the connections and every call on them."""
        for lane in self.close_lanes():
            await lane.channel.close()


Connections = BlockingConnections | AsyncConnections


def _are_away(states: Iterable[State | None]) -> bool:
    return all(state is State.TRANSIENT_FAILURE for state in states)
