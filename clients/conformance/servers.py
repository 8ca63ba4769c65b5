"""Servers that a client may find at an address: Quire, a listener that never answers, a port that refuses."""

import csv
import hashlib
import io
import pathlib
import socket
import sys
import threading
from typing import Any

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tests/kit/python"))

import kit.servers  # noqa: E402
from kit.certificates import certificate  # noqa: E402

TOKEN = "operator-of-the-suite"
SHOPPER_TOKEN = "shopper-of-the-suite-1"
TOPIC_OF_THE_CROWD = "a crowd of books"
FIRST_OF_THE_CROWD = 100_000


class Quire(kit.servers.Quire):
    """A server with the sample catalogue and the rows of the scenario; its token for operators is `TOKEN`."""

    def __init__(self, program: pathlib.Path, folder: pathlib.Path, about: dict[str, Any]) -> None:
        settings = [f"admin.token={TOKEN}", "rpcgame.enabled=false", "records.enabled=false", "tasks.enabled=false", *about.get("set", [])]
        folder.mkdir(parents=True, exist_ok=True)
        if about.get("tls"):
            files = {"certificate": "server.pem", "key": "server.key"}
            if about["tls"] == "mutual":
                files["client_ca"] = "authority.pem"
            settings += [f"tls.{name}={pem_folder(folder) / file}" for name, file in files.items()]
        if about.get("token_file"):
            credential = hashlib.sha256(SHOPPER_TOKEN.encode()).hexdigest()
            (folder / "tokens").write_text(f"shopper shop sha256:{credential}\n")
            settings.append(f"server.tokens={folder / 'tokens'}")
        super().__init__(program, folder, settings=settings)
        rows = [*about.get("books", []), *crowd(about.get("crowd", 0))]
        if rows:
            text = io.StringIO()
            csv.writer(text).writerows([("id", "title", "topic", "stock", "price"), *rows])
            self.import_books(text.getvalue())
        self.serve()

    def stop(self) -> None:
        # Nothing of it is needed any more.
        self.kill()


def crowd(count: int) -> list[tuple[int, str, str, int, str]]:
    """Books of one topic, so many that they are more than one message holds."""
    ids = range(FIRST_OF_THE_CROWD, FIRST_OF_THE_CROWD + count)
    return [(id, f"A Title of an Ordinary Length for Book {id}", TOPIC_OF_THE_CROWD, 3, "9.99") for id in ids]


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
            authority = certificate(into, "authority")
            for name in ("server", "shopper"):
                certificate(into, name, authority)
            certificate(into, "stranger")
            (into / "empty.pem").write_text("there is no certificate here\n")
    return into
