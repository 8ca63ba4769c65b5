"""A server in a process of its own, certificates, a browser, and the stubs that stock tools make of the contract."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import urllib.request

import grpc
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from selenium import webdriver

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
# Where grpc.protos_and_services() looks for what existing clients know.
sys.path.append(str(HERE / "contract"))
sys.path.append(str(ROOT / "tests/kit/python"))

from kit.certificates import certificate  # noqa: E402
from kit.servers import Quire  # noqa: E402


def judge(name):
    """A judge by its name, from the folder that the Makefile installs them in."""
    path = pathlib.Path(os.environ.get("JUDGES_BIN", ROOT / "target/tools/bin"), name)
    if not path.exists():
        pytest.exit(f"{path} is not there; run `make judges`, which installs it")
    return str(path)


@pytest.fixture(scope="session")
def quire():
    path = pathlib.Path(os.environ.get("JUDGED_BINARY", ROOT / "target/debug/quire")).absolute()
    if not path.exists():
        pytest.exit(f"{path} is not there; run `make judges`, which builds it")
    return str(path)


@pytest.fixture(scope="session")
def has_postgres(quire):
    """The program has PostgreSQL, as the released one has, or the test is left out."""
    if b"this build has no PostgreSQL" in pathlib.Path(quire).read_bytes():
        pytest.skip("this build has no PostgreSQL")


@pytest.fixture(scope="session")
def grpcurl():
    return judge("grpcurl")


@pytest.fixture(scope="session")
def ghz():
    return judge("ghz")


@pytest.fixture(scope="session")
def judged_history(tmp_path_factory):
    """Whether porcupine finds an order for what a service answered."""
    path = tmp_path_factory.mktemp("porcupine") / "porcupine"
    subprocess.run(["go", "build", "-o", path, "."], cwd=HERE / "porcupine", check=True)

    def judge(service, history):
        lines = "\n".join(json.dumps(entry) for entry in history)
        done = subprocess.run([path, service], input=lines, capture_output=True, text=True, timeout=120)
        assert done.returncode in (0, 1), done.stderr
        return done.returncode == 0
    return judge


@pytest.fixture(scope="session")
def contract():
    """The messages and the stubs, made of the contract's tables."""
    return grpc.protos_and_services("bookstore.proto")


@pytest.fixture(scope="session")
def started_chromium(tmp_path_factory):
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not browser or not driver:
        pytest.exit("chromium and chromedriver are not there; run `make judges`, which installs them")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    for flag in ["headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking",
                 "disable-component-update", "disable-sync", "hide-scrollbars", "disable-dev-shm-usage",
                 # A name of someone else's that leads to this machine.
                 "host-resolver-rules=MAP rebound.example 127.0.0.1",
                 f"user-data-dir={tmp_path_factory.mktemp('profile')}"]:
        options.add_argument(f"--{flag}")
    chromium = webdriver.Chrome(options, webdriver.ChromeService(driver))
    chromium.set_page_load_timeout(60)
    yield chromium
    chromium.quit()


@pytest.fixture
def chromium(started_chromium):
    """Chromium, without a page and without a log."""
    yield started_chromium
    # A page that stays would write to the next test's log that its server is gone.
    started_chromium.get("data:,")
    for log in ["performance", "browser"]:
        started_chromium.get_log(log)


class Server(Quire):
    """`quire serve` with every service, each on a port of its own."""

    def __init__(self, quire, folder, *flags, tasks="127.0.0.1:0", lean="127.0.0.1:0", **more):
        ports = [f"tasks.listen={tasks}", "rpcgame.listen=127.0.0.1:0", f"rpcgame.lean_listen={lean}"]
        super().__init__(quire, folder, *flags, settings=ports, **more)
        self.serve()

    @property
    def tasks_address(self):
        return self.fields("tasks are served")["address"]

    @property
    def game_address(self):
        return self.fields("the RPC game has ports of its own")["grpc"]

    @property
    def lean_address(self):
        return self.fields("the RPC game has ports of its own")["lean"]

    def metrics(self):
        """The families of /metrics by name, as Prometheus' own parser reads them."""
        accepted = {"Accept": "application/openmetrics-text"}
        request = urllib.request.Request(f"http://{self.address}/metrics", headers=accepted)
        with urllib.request.urlopen(request, timeout=30) as page:
            assert page.headers["content-type"].startswith("application/openmetrics-text")
            return {family.name: family for family in text_string_to_metric_families(page.read().decode())}

    def stop(self):
        assert super().stop() == 0


@pytest.fixture
def server(quire, tmp_path):
    """With the sample catalogue and a book that is scarce."""
    Quire(quire, tmp_path).import_books("id,title,topic,stock,price\n7,The Last Three,scarcity,3,9.99\n")
    server = Server(quire, tmp_path)
    yield server
    server.stop()


@pytest.fixture
def channel(server):
    with grpc.insecure_channel(server.address) as channel:
        yield channel


@pytest.fixture
def pem(tmp_path):
    authority = certificate(tmp_path, "authority")
    certificate(tmp_path, "server", authority)
    certificate(tmp_path, "shopper", authority)
    return lambda name: (tmp_path / name).read_bytes()
