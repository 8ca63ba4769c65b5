"""What a client may find at an address: Quire in a process of its own, a listener that says nothing, a port that refuses."""

import contextlib
import csv
import datetime
import hashlib
import io
import ipaddress
import json
import os
import pathlib
import signal
import socket
import subprocess
import threading
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

TOKEN = "operator-of-the-suite"
SHOPPER_TOKEN = "shopper-of-the-suite-1"
TOPIC_OF_THE_CROWD = "a crowd of books"
FIRST_OF_THE_CROWD = 100_000


class Quire:
    """A server with the sample catalogue and the rows of the scenario; its token for operators is `TOKEN`."""

    def __init__(self, program: pathlib.Path, folder: pathlib.Path, about: dict[str, Any]) -> None:
        self._program, self._folder = program, folder
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("QUIRE_")}
        self._settings = [f"admin.token={TOKEN}", "rpcgame.enabled=false", "records.enabled=false", "tasks.enabled=false",
                          *about.get("set", [])]
        folder.mkdir(parents=True, exist_ok=True)
        if about.get("tls"):
            files = {"certificate": "server.pem", "key": "server.key"}
            if about["tls"] == "mutual":
                files["client_ca"] = "authority.pem"
            self._settings += [f"tls.{name}={pem_folder(folder) / file}" for name, file in files.items()]
        if about.get("token_file"):
            credential = hashlib.sha256(SHOPPER_TOKEN.encode()).hexdigest()
            (folder / "tokens").write_text(f"shopper shop sha256:{credential}\n")
            self._settings.append(f"server.tokens={folder / 'tokens'}")
        rows = [*about.get("books", []), *crowd(about.get("crowd", 0))]
        if rows:
            text = io.StringIO()
            csv.writer(text).writerows([("id", "title", "topic", "stock", "price"), *rows])
            subprocess.run([program, "import", "-", "--data", "data"], cwd=folder, env=self._environment, check=True,
                           input=text.getvalue().encode(), capture_output=True, timeout=60)
        self.address = self._start("127.0.0.1:0")

    def _start(self, listen: str) -> str:
        flags = [word for setting in self._settings for word in ("--set", setting)]
        log = self._folder / "log"
        with log.open("ab") as errors:
            begin = errors.tell()
            # A pipe tells of the line `listening`, and the file keeps the rest: no one would read a pipe later.
            self._process = subprocess.Popen(
                [self._program, "serve", "--listen", listen, "--data", "data", "--log-format", "json", *flags],
                cwd=self._folder, env=self._environment, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)
        return self._listening(log, begin)

    def _listening(self, log: pathlib.Path, begin: int) -> str:
        ended = threading.Event()
        deadline = datetime.datetime.now() + datetime.timedelta(seconds=30)
        while datetime.datetime.now() < deadline:
            with log.open("rb") as lines:
                lines.seek(begin)
                for line in lines.read().decode().splitlines(keepends=True):
                    if line.endswith("\n") and line.startswith("{") and '"listening"' in line:
                        return str(json.loads(line)["fields"]["address"])
            if self._process.poll() is not None:
                break
            ended.wait(0.005)
        raise RuntimeError(f"the server did not start; see {log}")

    def restart(self) -> None:
        """Ends without a warning, and begins again on the same port and data."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._start(self.address)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


def crowd(count: int) -> list[tuple[int, str, str, int, str]]:
    """Books of one topic, so many that they are more than one message holds."""
    ids = range(FIRST_OF_THE_CROWD, FIRST_OF_THE_CROWD + count)
    return [(id, f"A Title of an Ordinary Length for Book {id}", TOPIC_OF_THE_CROWD, 3, "9.99") for id in ids]


def crowd_table(count: int) -> str:
    """As the command line prints it."""
    head = f"{'id':>6}  {'title':45}  {'topic':16}  stock  price\n"
    return head + "".join(f"{id}  {title}  {topic}  {stock:5}  {price:>5}\n" for id, title, topic, stock, price in crowd(count))


class Silent:
    """Accepts connections and says nothing."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def stop(self) -> None:
        self._listener.close()


class Refused:
    """A port where no one listens, kept so that no one else gets it."""

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"

    def stop(self) -> None:
        self._socket.close()


_making = threading.Lock()


def pem_folder(folder: pathlib.Path) -> pathlib.Path:
    """The folder of an authority's certificate and those that it has signed, for all scenarios of a run."""
    into = next(parent for parent in folder.parents if parent.name == "scenarios").parent / "pem"
    with _making:
        if not into.exists():
            into.mkdir()
            authority = _certificate(into, "authority")
            for name in ("server", "shopper"):
                _certificate(into, name, authority)
            _certificate(into, "stranger")
            (into / "empty.pem").write_text("there is no certificate here\n")
    return into


def _certificate(
    folder: pathlib.Path, name: str, issuer: tuple[x509.Name, ec.EllipticCurvePrivateKey] | None = None
) -> tuple[x509.Name, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    issued_by, signing = issuer or (subject, key)
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (x509.CertificateBuilder().subject_name(subject).issuer_name(issued_by).public_key(key.public_key())
            .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1)).add_extension(names, critical=False)
            .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
            .sign(signing, hashes.SHA256()))
    (folder / f"{name}.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / f"{name}.key").write_bytes(key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return subject, key


@contextlib.contextmanager
def stopping(server: Any) -> Any:
    try:
        yield server
    finally:
        server.stop()
