"""The servers, as data, and how one is started, timed and stopped. Must not know any load's content."""

import dataclasses
import pathlib
import socket
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "tests/kit/python"))

from kit.servers import Process, free_port  # noqa: E402

BUILT = ROOT / "load/peers/target"
CORE, CLIENT_CORE = "0", "1"
# The other services stay out, with the ports they would take.
ALONE = [word for name in ("kv", "rpcgame", "tasks") for word in ("--set", f"{name}.enabled=false")]
# What a whole engine can do; `protocols` are gRPC-Web and Connect.
ENGINE = ["sum", "echo", "large", "ingest", "streams"]


@dataclasses.dataclass(frozen=True)
class Peer:
    """A row of a table. Words in braces of a command are put in when it is started."""

    name: str
    command: tuple[str, ...]
    # What it can do; it is left out of all else, which its row shows as `-`.
    abilities: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    # What makes it speak TLS.
    tls: tuple[str, ...] = ()
    redis: tuple[str, ...] = ()
    # How long it is called by each method before that is measured.
    warm_seconds: float = 0.2


def rust(name: str, crate: str, abilities: list[str], *more: str) -> Peer:
    store = ("--redis", "{redis}") if "fortunes" in abilities else ()
    tls = ("--tls", "{certificate}", "{key}") if "tls" in abilities else ()
    return Peer(name, (f"{{rust}}/{crate}", "127.0.0.1:{port}", *more), tuple(abilities), tls=tls, redis=store)


QUIRE_SERVE = ("{quire}", "serve", *ALONE, "--data", "{folder}/quire-{port}", "--listen", "127.0.0.1:{port}", "--log-level", "error")
JAVA = ("java", "-cp", f"{BUILT}/arena-java/classes:{BUILT}/arena-java/lib/*", "Arena", "127.0.0.1:{port}")

PEERS = [
    Peer(
        "quire serve",
        QUIRE_SERVE,
        ("lookup", "lookup-protocols"),
        tls=("--set", "tls.certificate={certificate}", "--set", "tls.key={key}"),
    ),
    Peer("tonic-bookstore", ("{rust}/tonic-bookstore", "127.0.0.1:{port}", "{folder}/tonic-{port}.db"), ("lookup",)),
    rust("quire", "arena-quire", [*ENGINE, "fortunes", "protocols", "tls"]),
    rust("quire, bytes", "arena-quire", [*ENGINE, "protocols", "tls"], "--bytes"),
    rust("tonic", "arena-tonic", [*ENGINE, "fortunes", "tls"]),
    rust("connectrpc", "arena-connectrpc", [*ENGINE, "fortunes", "protocols", "tls"]),
    # No streams, and each request in one DATA frame, which are 16 KiB at most.
    rust("pajamax", "arena-pajamax", ["sum", "echo"]),
    rust("hyper", "arena-hyper", ["sum", "echo", "large", "ingest"]),
    Peer("grpc-go", (f"{BUILT}/arena-go/arena-go", "127.0.0.1:{port}"), tuple(ENGINE), (("GOMAXPROCS", "1"),)),
    Peer("gRPC C++", (f"{BUILT}/arena-cpp/arena-cpp", "127.0.0.1:{port}"), tuple(ENGINE)),
    Peer("grpc-java", JAVA, tuple(ENGINE), warm_seconds=5),
]


class Server(Process):
    """A peer that runs, on a core of its own."""

    def __init__(self, peer: Peer, place: dict[str, object], tls: bool):
        self.peer, self.tls, self.port = peer, tls, free_port()
        self.name = f"{peer.name}, TLS" if tls else peer.name
        words = [*peer.command, *(peer.redis if place.get("redis") else ()), *(peer.tls if tls else ())]
        command = [word.format(port=self.port, **place) for word in words]
        super().__init__(pathlib.Path(str(place["folder"])), dict(peer.environment), f"{self.port}.log")
        self.start("taskset", "-c", CORE, *command)

    def wait(self) -> None:
        self.wait_for_port(self.port)

    def cpu_ns(self) -> int:
        """CPU time of all threads, those that have ended too: the clock of clock_getcpuclockid(3)."""
        return time.clock_gettime_ns(~self.process.pid << 3 | 2)


def certificate(folder: str) -> dict[str, str]:
    """A certificate for localhost that is good for a day."""
    made = {"certificate": f"{folder}/cert.pem", "key": f"{folder}/key.pem"}
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1"]
    command = ["openssl", "req", "-x509", *curve, *names, "-keyout", made["key"], "-out", made["certificate"]]
    subprocess.run(command, check=True, capture_output=True)
    return made


class Redis(Process):
    """A Redis that nothing else uses, on the client's core, with `hash` under the key `fortunes`."""

    def __init__(self, folder: str, hash: dict[int, str]):
        super().__init__(pathlib.Path(folder), log="redis.log")
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        settings = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", folder]
        self.start("taskset", "-c", CLIENT_CORE, "redis-server", *settings)
        self.wait_for_port(port)
        words = ["HSET", "fortunes", *(str(word) for pair in hash.items() for word in pair)]
        request = f"*{len(words)}\r\n" + "".join(f"${len(word.encode())}\r\n{word}\r\n" for word in words)
        with socket.create_connection(("127.0.0.1", port), 10) as sock:
            sock.sendall(request.encode())
            if sock.recv(64) != f":{len(hash)}\r\n".encode():
                raise SystemExit("redis-server does not answer")
