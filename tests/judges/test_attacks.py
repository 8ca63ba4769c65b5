"""What a well-behaved client waits while others attack the thread that serves it."""

import attacks
import pytest

from conftest import Server

# Without turns the neighbour of an attack waits for seconds. The figures are in docs/NOTEBOOK.md; here is room for a
# machine that does other things as well.
WAIT_MAX = 0.5


@pytest.fixture(scope="module")
def server(quire, tmp_path_factory):
    server = Server(quire, tmp_path_factory.mktemp("server"), "--set", "server.threads=1")
    yield server
    server.stop()


@pytest.mark.parametrize("attacker", attacks.ATTACKS)
def test_neighbour_is_served(server, attacker):
    waited, connections = attacks.measure(server.address, attacker, 2)
    assert attacks.percentile(waited, 0.99) < WAIT_MAX, waited[-10:]
    assert len(waited) > 40
    if attacker in attacks.FLOODS:
        assert connections > 4, "a flood ends with its connection"


# What clients may make the server hold, beyond what it holds when it is idle.
GROWTH_MAX = 256 << 20


@pytest.mark.parametrize("hoarder", attacks.HOARDS)
def test_memory_is_bounded(quire, tmp_path, hoarder):
    (tmp_path / "rows.csv").write_text(attacks.large_rows())
    server = Server(quire, tmp_path, "--set", "records.csv=rows.csv")
    attacks.put_value(server.address)
    idle = attacks.resident_bytes(server.process)
    sockets = attacks.hoard(server.address, hoarder)
    waited = attacks.neighbour(server.address, 2)
    assert attacks.resident_bytes(server.process) - idle < GROWTH_MAX
    assert waited, "a neighbour is served meanwhile"
    resident = attacks.resident_bytes(server.process)
    told = server.metrics()["quire_memory_bytes"].samples[0].value
    assert resident * 2 / 3 < told < resident * 4 / 3
    for sock in sockets:
        sock.close()
    server.stop()
