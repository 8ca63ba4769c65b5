"""No client takes what the others need of the server: calls, connections, bytes, memory and CPU."""

import grabs
import pytest

# The figures are in docs/NOTEBOOK.md; here is room for a machine that does other things as well.
WAIT_MAX = 0.5
GROWTH_MAX = 256 << 20


@pytest.mark.parametrize("attack", grabs.GRABS)
def test_neighbour_is_not_refused(quire, tmp_path, attack):
    with grabs.Watched(quire, tmp_path, *grabs.FLAGS.get(attack, [])) as server:
        result = grabs.Result(server, attack, 2)
        assert result.refused == 0
        assert len(result.waited) > 40
        assert result.p99() < WAIT_MAX, result.waited[-10:]
        assert result.grown < GROWTH_MAX
        assert result.seconds_to_end is not None, result.left(server)
        _, limits = grabs.GRABS[attack]
        for limit in limits:
            line = next((line for line in server.warnings() if limit in str(line)), None)
            assert line, server.warnings()[:10]
            assert grabs.ATTACKER in str(line) or line.get("client") in grabs.CREDENTIALS, line
        if attack is grabs.values_without_end:
            # What frees memory is admitted.
            with grabs.start(server.address, grabs.NEIGHBOUR) as sock, sock.makefile("rb") as stream:
                freed = grabs.message(grabs.field(1, grabs.KEY))
                sock.sendall(grabs.call(1, grabs.DELETE, freed, grabs.bearer("attacker")))
                assert grabs.answer(sock, stream, 1) is not None
