"""What a well-behaved client waits while others attack the thread that serves it."""

import attacks
import pytest

from conftest import Server

# Without turns the neighbour of an attack waits for seconds. The figures are in docs/operating.md; here is room for a
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
