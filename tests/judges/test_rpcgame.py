"""The RPC game, judged by grpcio with the contract's own messages and by the xxHash library's Python binding."""

import random
import subprocess

import grpc
import pytest
import xxhash

import rpcgame_sums



@pytest.fixture(scope="session")
def game():
    return grpc.protos_and_services("rpcgame.proto")


class Player:
    """A client, and the answers that it must get."""

    def __init__(self, channel, game, seed):
        self.messages, stubs = game
        self.stub = stubs.RPCGameStub(channel)
        dice = random.Random(seed)
        words = ["harbour", "", "lantern", "été", "海", "x" * 5000]
        self.pairs = [(" ".join(dice.choices(words, k=dice.randrange(9))), dice.getrandbits(64)) for _ in range(300)]
        self.order = list(range(len(self.pairs)))
        dice.shuffle(self.order)

    def request(self, place):
        name, count = self.pairs[place]
        return self.messages.TryRequest(serial=str(place + 1), name=name, count=str(count))

    def start(self, places):
        return [(place, self.stub.Try.future(self.request(place), timeout=60)) for place in places]

    def expect(self, calls):
        for place, call in calls:
            name, count = self.pairs[place]
            value = (xxhash.xxh3_64_intdigest(name.encode()) + count + place) % 2**64
            assert call.result().value == str(value)

    def end(self):
        client, server = xxhash.xxh3_64(), xxhash.xxh3_64()
        for place, (name, count) in enumerate(self.pairs):
            client.update(name.encode() + count.to_bytes(8, "little"))
            value = (xxhash.xxh3_64_intdigest(name.encode()) + count + place) % 2**64
            server.update(value.to_bytes(8, "little"))
        reply = self.stub.Done(self.messages.DoneRequest(), timeout=60)
        assert reply.client_checksum.decode() == client.hexdigest()
        assert reply.server_checksum.decode() == server.hexdigest()


def own_channel(address, compression, name):
    """A connection of its own: grpcio shares them between channels with the same arguments."""
    return grpc.insecure_channel(address, compression=compression, options=[("quire.test", name)])


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip], ids=["plain", "gzip"])
def test_two_clients_at_once_play_their_own_games_in_shuffled_order(server, game, compression):
    with own_channel(server.address, compression, "a") as first, own_channel(server.address, compression, "b") as second:
        players = [Player(first, game, 11), Player(second, game, 12)]
        # Fewer than a connection has room for, so that the call which all others wait for finds a slot.
        for start in range(0, 300, 50):
            calls = [player.start([p for p in player.order if start <= p < start + 50]) for player in players]
            for player, of_player in zip(players, calls):
                player.expect(of_player)
        for player in players:
            player.end()


# What stands before the first comma, the digits behind it, and lines that are to be skipped.
LINES = [b"x,7,9", b"a,12abc", b"a,0x10", b",3", b"a, 12", b"a,b,5", b"a,-1", b"a,+1", b"a,,5", b"a,", b"no comma", b"",
         b"\r", b"cr,4\r", b"c\rr,5", b"nul\0,6\x007", b"nul,\x008", b" blanks ,9 ", b"zeros,00000000000000000000000010",
         b"most,18446744073709551615", b"more,18446744073709551616", "\ufeffmark,11".encode(), "no digit,\u0661".encode(),
         "\u00e9 \u6d77,12\u0664".encode()]
NO_TEXT = [b"\xff\xfe,13\xff", b"\xc3,14", b"\xa0,15"]


def played(server, folder, lines, transport, messages):
    (folder / "lines.txt").write_bytes(b"\n".join(lines))
    address = server.lean_address if transport == "lean" else server.game_address
    command = [server.program, "game", address, "--input", "lines.txt", "-n", str(messages), "--transport", transport,
               "--timeout", "120"]
    return subprocess.run(command, cwd=folder, env=server.environment, capture_output=True, text=True)


@pytest.mark.parametrize("transport", ["unary", "windowed", "stream", "lean"])
def test_the_driver_reads_lines_as_the_published_client_does(server, tmp_path, transport):
    lines = LINES + (NO_TEXT if transport in ("stream", "lean") else [])
    for messages in [0, 1, 5, 100, 3000]:
        game = played(server, tmp_path, lines, transport, messages)
        client, sums = rpcgame_sums.sums(b"\n".join(lines), messages)
        for side in ["client", "server"]:
            assert f"{side}'s checksums: client {client}, server {sums}\n" in game.stdout, (messages, game)
        assert "they match" in game.stdout and game.returncode == 0
