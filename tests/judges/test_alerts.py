"""deploy/alerts.yml and deploy/grafana.json, judged by Prometheus: the rules alone, and while it scrapes a server with a fault."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from conftest import Server
from kit.certificates import certificate
from kit.postgres import Postgres
from kit.servers import PATIENCE_SECONDS, Process, Quire, free_port, stopping, wait_until

ROOT = pathlib.Path(__file__).parents[2]
RULES = ROOT / "deploy/alerts.yml"
DASHBOARD = json.loads((ROOT / "deploy/grafana.json").read_text())
NAMES = re.findall(r"- alert: (\w+)", RULES.read_text())
VARIABLES = [variable["query"] for variable in DASHBOARD["templating"]["list"] if variable["type"] == "query"]
QUERIES = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]

# What a healthy server has, and what makes each alert fire, a minute a value.
HEALTHY = {
    "up": "1x90", "quire_store_healthy": "1x90", "quire_kv_healthy": "1x90", "quire_disk_bytes": "100000000000x90",
    "quire_disk_free_bytes": "50000000000x90", "quire_purchases_acknowledged_total": "100+100x90",
    'quire_purchases_total{outcome="bought"}': "110+100x90", 'quire_purchases_total{outcome="sold_out"}': "0x90",
    "quire_log_signed_number": "10+100x90", 'quire_log_cosigned_number{witness="a"}': "5+100x90", 'quire_log_contradicted{witness="a"}': "0x90",
    "quire_memory_bytes": "80x90", "quire_memory_bytes_max": "100x90", 'quire_refused_total{limit="limits.calls_in_flight"}': "0+59x90",
    'quire_refused_total{limit="limits.memory_bytes"}': "0+600x90", "quire_tls_certificate_expires_seconds": "1300000-60x90",
    "quire_backup_age_seconds": "86400+60x90", "quire_store_replicas": "2x40 3 2x48",
}
FAULTS = {
    "QuireDown": {"up": "0x90"},
    "QuireStoreFailed": {"quire_store_healthy": "0x90"},
    "QuireDiskFull": {"quire_disk_free_bytes": "1000000x90", "quire_store_healthy": "0x90"},
    "QuireDiskFilling": {"quire_disk_free_bytes": "9000000000x90"},
    "QuirePurchasesLost": {'quire_purchases_total{outcome="bought"}': "50+100x90"},
    "QuireLogContradicted": {'quire_log_contradicted{witness="a"}': "1x90"},
    "QuireLogUnsigned": {'quire_log_cosigned_number{witness="a"}': "5x90"},
    "QuireMemoryHigh": {"quire_memory_bytes": "91x90"},
    "QuireRefusing": {'quire_refused_total{limit="limits.calls_in_flight"}': "0+61x90"},
    "QuireCertificateExpires": {"quire_tls_certificate_expires_seconds": "1200000-60x90"},
    "QuireBackupOld": {"quire_backup_age_seconds": "180000+60x90"},
    "QuireReplicaLost": {"quire_store_replicas": "2x30 1x60"},
}


@pytest.fixture(scope="session")
def tools():
    """The folder of Prometheus and promtool."""
    folder = pathlib.Path(os.environ.get("PROMETHEUS_BIN", ROOT / "target/tools/prometheus/usr/bin"))
    if not (folder / "prometheus").exists():
        pytest.exit(f"{folder}/prometheus is not there; run `make judges`, which installs it")
    return folder


def promtool(tools, *arguments, page=None):
    command = [tools / "promtool", *arguments]
    done = subprocess.run(command, input=page, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr


def series(name, values):
    labels = 'job="quire", instance="a"'
    return {"series": f"{name[:-1]}, {labels}}}" if name.endswith("}") else f"{name}{{{labels}}}", "values": values}


def rules_test(folder, values, at, firing):
    """A file for promtool: with these series, exactly these alerts fire at this time."""
    firing = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in firing]
    test = {"interval": "1m", "input_series": [series(*pair) for pair in values.items()], "promql_expr_test": [
        {"expr": 'count by (alertname) (ALERTS{alertstate="firing"})', "eval_time": at, "exp_samples": firing}]}
    path = folder / "test.yml"
    # JSON is YAML.
    path.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}))
    return path


def test_the_rules_have_a_fault_and_a_section_each(tools):
    promtool(tools, "check", "rules", RULES)
    assert NAMES == list(FAULTS)
    page = (ROOT / "docs/operate/alerts.md").read_text()
    assert re.findall(r"^## (\w+)$", page, re.M) == NAMES
    anchors = re.findall(r"runbook: docs/operate/alerts.md#(\w+)", RULES.read_text())
    assert anchors == [name.lower() for name in NAMES]


@pytest.mark.parametrize("name", [None, *FAULTS])
def test_a_fault_fires_its_alert_and_no_other(tools, tmp_path, name):
    values = HEALTHY | FAULTS.get(name, {})
    promtool(tools, "test", "rules", rules_test(tmp_path, values, "90m", [name] if name else []))
    # Nothing fires at once.
    promtool(tools, "test", "rules", rules_test(tmp_path, values, "0m", []))


def test_promtool_finds_nothing_to_mend_on_the_page(tools, server, contract, channel):
    contract[1].BookStoreStub(channel).Buy(contract[0].ItemNumberRequest(id=7), timeout=10)
    with pytest.raises(grpc.RpcError):
        channel.unary_unary("/bookstore.BookStore/Nothing")(b"", timeout=10)
    with urllib.request.urlopen(f"http://{server.address}/metrics", timeout=30) as page:
        promtool(tools, "check", "metrics", page=page.read().decode())


class Prometheus(Process):
    """Prometheus with the rules, whose alerts do not wait, scraping one server each second. `history`: gauges that had
    one value for the last three hours."""

    def __init__(self, tools, folder, server, scheme="http", history=None):
        super().__init__(folder)
        self._port, self._data = free_port(), server.folder
        (folder / "alerts.yml").write_text(re.sub(r"for: \w+", "for: 0s", RULES.read_text()))
        (folder / "prometheus.yml").write_text(json.dumps({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": ["alerts.yml"],
            "scrape_configs": [{"job_name": "quire", "scheme": scheme, "tls_config": {"insecure_skip_verify": True},
                                "static_configs": [{"targets": [server.address]}]}]}))
        if history:
            now, labels = int(time.time()), f'{{job="quire",instance="{server.address}"}}'
            minutes = range(now - 3 * 3600, now, 60)
            lines = [f"{name}{labels} {value} {at}\n" for name, value in history.items() for at in minutes]
            (folder / "history").write_text("".join(lines) + "# EOF\n")
            promtool(tools, "tsdb", "create-blocks-from", "openmetrics", folder / "history", folder / "prometheus")
        self.start(tools / "prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=prometheus",
                   f"--web.listen-address=127.0.0.1:{self._port}")
        self.line("Server is ready to receive web requests")

    def get(self, path, **parameters):
        url = f"http://127.0.0.1:{self._port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=30) as page:
            answer = json.load(page)
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, text):
        return self.get("query", query=text)["result"]

    def firing(self):
        """The alerts that fire, but for QuireDiskFilling if the disk is the machine's and near its limit of a tenth."""
        firing = {alert["labels"]["alertname"] for alert in self.get("alerts")["alerts"] if alert["state"] == "firing"}
        disk = os.statvfs(self._data)
        is_near = not self._data.is_mount() and disk.f_bavail / disk.f_blocks < 0.12
        return firing - {"QuireDiskFilling"} if is_near else firing

    def scraped_at(self):
        return max(float(series["value"][1]) for series in self.query("timestamp(up)"))

    def wait_until_firing(self, *names):
        """Waits until these fire and no other, two scrapes later or after: the first is evaluated by then."""
        for _ in range(2):
            before = self.scraped_at()
            wait_until("another scrape", lambda: self.scraped_at() > before)
        try:
            wait_until("these alerts", lambda: self.firing() == set(names))
        except TimeoutError:
            assert self.firing() == set(names)
            raise


@contextlib.contextmanager
def scraped(tools, folder, server, scheme="http", history=None):
    """Prometheus, scraping a server that sells 20 times a second."""
    load = Process(folder / "load")
    with stopping(server), stopping(load), stopping(Prometheus(tools, folder / "prometheus", server, scheme, history)) as prometheus:
        bench, tls = pathlib.Path(server.program).with_name("quire-bench"), ["--insecure"] if scheme == "https" else []
        load.start(bench, "grpc", f"{scheme}://{server.address}", "bookstore.BookStore/Buy", "--data", '{"id": 53477}',
                   "--rate", "20", "--duration", f"{2 * PATIENCE_SECONDS}s", "--warm-up", "0s", "--workers", "1",
                   "--cores", "none", "--quiet", *tls)
        wait_until("a scrape", lambda: prometheus.query("up == 1"))
        yield prometheus


def test_each_query_finds_series_and_a_short_certificate_is_reported(quire, tools, contract, tmp_path):
    certificate(tmp_path, "server")
    Quire(quire, tmp_path).import_books("id,title,topic,stock,price\n7,The Last Three,scarcity,3,9.99\n")
    backup = [quire, "backup", "data/first.backup", "--data", "data"]
    subprocess.run(backup, cwd=tmp_path, check=True, capture_output=True, timeout=PATIENCE_SECONDS)
    witness = "ledger.witnesses=http://127.0.0.1:1 witness.example/w1+24b5d9fe+BP0XJDhaoMdbZPt4zWAvodmR/ev3axPFjtcC6sg16fYY"
    files = ["--set", "tls.certificate=server.pem", "--set", "tls.key=server.key"]
    server = Server(quire, tmp_path, *files, "--set", witness)
    with scraped(tools, tmp_path, server, scheme="https") as prometheus:
        trust = grpc.ssl_channel_credentials((tmp_path / "server.pem").read_bytes())
        with grpc.secure_channel(server.address, trust) as channel:
            shop = contract[1].BookStoreStub(channel)
            shop.Buy(contract[0].ItemNumberRequest(id=7), timeout=10)
            with pytest.raises(grpc.RpcError):
                channel.unary_unary("/bookstore.BookStore/Nothing")(b"", timeout=10)
        wait_until("the load", lambda: prometheus.query('quire_grpc_calls_total{method="/bookstore.BookStore/Buy"} > 20'))
        # Nothing listens at the witness's port.
        prometheus.wait_until_firing("QuireCertificateExpires", "QuireLogUnsigned")
        known = set(prometheus.get("label/__name__/values"))
        used = re.findall(r"\b(?:quire|process)_\w+", "".join(QUERIES) + RULES.read_text())
        assert set(used) - known == {"quire_store_replicas"}, "only PostgreSQL has replicas"
        for query in QUERIES:
            query = query.replace("$instance", ".*").replace("$__rate_interval", "1m")
            wait_until(f"series for {query}", lambda: prometheus.query(query))


def test_each_variable_of_the_dashboard_finds_a_server_without_a_bookstore(quire, tools, tmp_path):
    server = Server(quire, tmp_path, "--set", "bookstore.enabled=false")
    assert VARIABLES
    with scraped(tools, tmp_path, server) as prometheus:
        for variable in VARIABLES:
            series, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable).groups()
            wait_until(variable, lambda: prometheus.query(f'{series}{{{label}!=""}}'))


def test_an_old_backup_and_a_stopped_server_are_reported(quire, tools, tmp_path):
    server = Server(quire, tmp_path)
    with scraped(tools, tmp_path, server) as prometheus:
        backup = [quire, "backup", "first.backup", "--data", "data"]
        subprocess.run(backup, cwd=tmp_path, check=True, capture_output=True, timeout=PATIENCE_SECONDS)
        prometheus.wait_until_firing()
        before = time.time() - 3 * 86400
        os.utime(tmp_path / "data/last-backup", (before, before))
        prometheus.wait_until_firing("QuireBackupOld")
        server.stop()
        prometheus.wait_until_firing("QuireDown")


def test_a_moved_store_is_reported_until_it_is_back(quire, tools, contract, tmp_path):
    server = Server(quire, tmp_path)
    with scraped(tools, tmp_path, server) as prometheus:
        (tmp_path / "data").rename(tmp_path / "elsewhere")
        with grpc.insecure_channel(server.address) as channel, pytest.raises(grpc.RpcError):
            contract[1].BookStoreStub(channel).Buy(contract[0].ItemNumberRequest(id=53477), timeout=10)
        prometheus.wait_until_firing("QuireStoreFailed")
        (tmp_path / "elsewhere").rename(tmp_path / "data")
        prometheus.wait_until_firing()


def test_a_disk_is_reported_that_fills_and_then_that_is_full_and_not_as_a_failed_store(quire, tools, contract, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("this machine does not let the test mount a file system")
    try:
        server = Server(quire, disk)
        with scraped(tools, tmp_path, server) as prometheus, grpc.insecure_channel(server.address) as channel:
            # A tenth are 25.6 MiB.
            with (disk / "filler").open("wb", buffering=0) as filler:
                os.posix_fallocate(filler.fileno(), 0, shutil.disk_usage(disk).free - (21 << 20))
            prometheus.wait_until_firing("QuireDiskFilling")
            with contextlib.suppress(OSError), (disk / "filler").open("ab", buffering=0) as filler:
                while filler.write(bytes(4096)):
                    pass
            shop = contract[1].BookStoreStub(channel)

            def is_refused():
                try:
                    shop.Buy(contract[0].ItemNumberRequest(id=53477), timeout=10)
                except grpc.RpcError as error:
                    return error
                return None

            wait_until("a refused purchase", is_refused, every=0)
            prometheus.wait_until_firing("QuireDiskFull")
            (disk / "filler").unlink()
            prometheus.wait_until_firing()
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_refusals_by_a_limit_are_reported(quire, tools, tmp_path):
    server = Server(quire, tmp_path, "--set", "limits.health_watches=1")
    with scraped(tools, tmp_path, server) as prometheus, grpc.insecure_channel(server.address) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch
        held = watch(health_pb2.HealthCheckRequest())
        next(held)

        def refusals():
            for _ in range(100):
                with pytest.raises(grpc.RpcError) as refused:
                    next(watch(health_pb2.HealthCheckRequest()))
                assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            return prometheus.firing()

        wait_until("an alert", refusals)
        prometheus.wait_until_firing("QuireRefusing")
        held.cancel()


def test_memory_near_its_limit_is_reported(quire, tools, tmp_path):
    before = Server(quire, tmp_path / "before")
    used = next(int(sample.value) for sample in before.metrics()["quire_memory_bytes"].samples)
    before.stop()
    # Another server uses as much, give or take a few percent. Beyond the limit /metrics is served, too.
    server = Server(quire, tmp_path, "--set", f"limits.memory_bytes={used}")
    with scraped(tools, tmp_path, server) as prometheus:
        prometheus.wait_until_firing("QuireMemoryHigh")


def test_a_replica_that_is_lost_is_reported_until_it_is_back(quire, has_postgres, tools, tmp_path):
    with stopping(Postgres(tmp_path / "primary")) as primary, stopping(Postgres(tmp_path / "standby", primary)) as standby:
        server = Server(quire, tmp_path, environment={"QUIRE_LEDGER_URL": primary.database("quire")})
        # The rule compares with ten minutes of the week before.
        with scraped(tools, tmp_path, server, history={"quire_store_replicas": 1}) as prometheus:
            wait_until("the replica", lambda: prometheus.query("quire_store_replicas == 1"))
            prometheus.wait_until_firing()
            standby.stop()
            wait_until("the loss", lambda: prometheus.query("quire_store_replicas == 0"))
            prometheus.wait_until_firing("QuireReplicaLost")
            standby.begin()
            prometheus.wait_until_firing()
