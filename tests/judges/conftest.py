"""A server in a process of its own, and the stubs that stock tools make of the contract."""

import importlib
import json
import os
import pathlib
import subprocess
import sys

import grpc
import pytest
from grpc_tools import protoc

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent


def judge(name):
    """A judge by its name, from the folder that the Makefile installs them in."""
    path = pathlib.Path(os.environ.get("JUDGES_BIN", ROOT / "target/tools/bin"), name)
    if not path.exists():
        pytest.exit(f"{path} is not there; run `make test`, which installs it")
    return str(path)


@pytest.fixture(scope="session")
def quire():
    path = pathlib.Path(os.environ.get("JUDGED_BINARY", ROOT / "target/debug/quire")).absolute()
    if not path.exists():
        pytest.exit(f"{path} is not there; run `make test`, which builds it")
    return str(path)


@pytest.fixture(scope="session")
def grpcurl():
    return judge("grpcurl")


@pytest.fixture(scope="session")
def ghz():
    return judge("ghz")


@pytest.fixture(scope="session")
def contract(tmp_path_factory):
    """The messages and the stubs, generated from the contract's tables."""
    into = tmp_path_factory.mktemp("stubs")
    proto = HERE / "contract"
    arguments = ["protoc", f"-I{proto}", f"--python_out={into}", f"--grpc_python_out={into}", "bookstore.proto"]
    assert protoc.main(arguments) == 0
    sys.path.insert(0, str(into))
    return importlib.import_module("bookstore_pb2"), importlib.import_module("bookstore_pb2_grpc")


class Server:
    def __init__(self, quire, folder, *flags):
        self.quire, self.folder = quire, folder
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("QUIRE_")}
        self.process = subprocess.Popen(
            [quire, "serve", "--listen", "127.0.0.1:0", "--tasks-listen", "127.0.0.1:0", "--data", "data",
             "--log-format", "json",
             "--set", "rpcgame.listen=127.0.0.1:0", "--set", "rpcgame.lean_listen=127.0.0.1:0", *flags],
            cwd=folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            fields = json.loads(line)["fields"]
            if fields["message"] == "tasks are served":
                self.tasks_address = fields["address"]
            if fields["message"] == "the RPC game has ports of its own":
                self.game_address, self.lean_address = fields["grpc"], fields["lean"]
            if fields["message"] == "listening":
                self.address = fields["address"]
                return
        raise AssertionError("the server ended at once")

    def stop(self):
        self.process.terminate()
        self.process.stderr.read()
        assert self.process.wait(timeout=30) == 0


@pytest.fixture
def server(quire, tmp_path):
    """With the sample catalogue and a book that is scarce."""
    (tmp_path / "books.csv").write_text("id,title,topic,stock,price\n7,The Last Three,scarcity,3,9.99\n")
    subprocess.run([quire, "import", "books.csv", "--data", "data"], cwd=tmp_path, check=True)
    server = Server(quire, tmp_path)
    yield server
    server.stop()


@pytest.fixture
def channel(server):
    with grpc.insecure_channel(server.address) as channel:
        yield channel
