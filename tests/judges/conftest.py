"""A server in a process of its own, certificates, a browser, and the stubs that stock tools make of the contract."""

import datetime
import ipaddress
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import urllib.request

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from selenium import webdriver

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
# Where grpc.protos_and_services() looks for what existing clients know.
sys.path.append(str(HERE / "contract"))


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
def chromium(tmp_path_factory):
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
                # A pipe that no one reads would stop the server once it is full.
                self.log = threading.Thread(target=self.process.stderr.read, daemon=True)
                self.log.start()
                return
        raise AssertionError("the server ended at once")

    def metrics(self):
        """The families of /metrics by name, as Prometheus' own parser reads them."""
        with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=30) as page:
            assert page.headers["content-type"].startswith("application/openmetrics-text")
            return {family.name: family for family in text_string_to_metric_families(page.read().decode())}

    def stop(self):
        self.process.terminate()
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


def certificate(folder, name, issuer=None):
    """A certificate and its key as PEM files; the issuer signs it, or it signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.timezone.utc)
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


@pytest.fixture
def pem(tmp_path):
    authority = certificate(tmp_path, "authority")
    certificate(tmp_path, "server", authority)
    certificate(tmp_path, "shopper", authority)
    return lambda name: (tmp_path / name).read_bytes()
