"""The RPC game, judged by grpcio with the contract's own messages and by the xxHash library's Python binding."""

import random
import subprocess

import grpc
import pytest
import xxhash
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

import rpcgame_sums

COMPRESSIONS = [grpc.Compression.NoCompression, grpc.Compression.Gzip]


@pytest.fixture(scope="session")
def game():
    return grpc.protos_and_services("rpcgame.proto")


class Player:
    """A client, and what it has to hear."""

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


@pytest.mark.parametrize("compression", COMPRESSIONS, ids=["plain", "gzip"])
def test_shuffled_serials_are_handled_in_order(server, game, compression):
    with own_channel(server.address, compression, "alone") as channel:
        for seed in range(3):
            player = Player(channel, game, seed)
            # Fewer than a connection has room for, so that the one everybody waits for finds a place.
            for start in range(0, len(player.pairs), 100):
                part = [place for place in player.order if start <= place < start + 100]
                player.expect(player.start(part))
            player.end()


@pytest.mark.parametrize("compression", COMPRESSIONS, ids=["plain", "gzip"])
def test_two_clients_at_once_play_each_their_own_game(server, game, compression):
    with own_channel(server.address, compression, "a") as first, own_channel(server.address, compression, "b") as second:
        players = [Player(first, game, 11), Player(second, game, 12)]
        for start in range(0, 300, 50):
            calls = [player.start([p for p in player.order if start <= p < start + 50]) for player in players]
            for player, of_player in zip(players, calls):
                player.expect(of_player)
        for player in players:
            player.end()


@pytest.mark.parametrize("compression", COMPRESSIONS, ids=["plain", "gzip"])
def test_bad_messages_are_refused_and_the_game_goes_on(server, game, compression):
    with own_channel(server.address, compression, "bad") as channel:
        player = Player(channel, game, 21)
        player.expect(player.start(range(150)))
        bad = [("1", "", "1"), ("-151", "", "1"), (" 151", "", "1"), ("151", "", "+1"), ("18446744073709551616", "", "1"),
               ("151", "", "18446744073709551616"), ("", "", "1"), ("151", "", "")]
        for serial, name, count in bad:
            with pytest.raises(grpc.RpcError) as refused:
                player.stub.Try(player.messages.TryRequest(serial=serial, name=name, count=count))
            assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT, (serial, count)
        raw = channel.unary_unary("/RPCGame/Try")
        with pytest.raises(grpc.RpcError) as refused:
            raw(b"\x0a\x03151\x12\x02\xff\xfe\x1a\x011")
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        player.expect(player.start(range(150, 300)))
        player.end()


def test_health_and_reflection_know_the_game(channel, game):
    health = health_pb2_grpc.HealthStub(channel)
    for service in ["RPCGame", "RPCGameStream"]:
        reply = health.Check(health_pb2.HealthCheckRequest(service=service))
        assert reply.status == health_pb2.HealthCheckResponse.SERVING
    pool = DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
    for name, message in game[0].DESCRIPTOR.message_types_by_name.items():
        served = pool.FindMessageTypeByName(name)
        for field in message.fields:
            ours = served.fields_by_name[field.name]
            assert (ours.number, ours.type, ours.is_repeated) == (field.number, field.type, field.is_repeated)


# What stands before the first comma, the digits behind it, and lines that are to be skipped.
LINES = [b"x,7,9", b"a,12abc", b"a,0x10", b",3", b"a, 12", b"a,b,5", b"a,-1", b"a,+1", b"a,,5", b"a,", b"no comma", b"",
         b"\r", b"cr,4\r", b"c\rr,5", b"nul\0,6\x007", b"nul,\x008", b" blanks ,9 ", b"zeros,00000000000000000000000010",
         b"most,18446744073709551615", b"more,18446744073709551616", "\ufeffmark,11".encode(), "no digit,\u0661".encode(),
         "\u00e9 \u6d77,12\u0664".encode()]
NO_TEXT = [b"\xff\xfe,13\xff", b"\xc3,14", b"\xa0,15"]


def played(server, folder, lines, transport, messages):
    (folder / "lines.txt").write_bytes(b"\n".join(lines))
    address = server.lean_address if transport == "lean" else server.game_address
    command = [server.quire, "game", address, "--input", "lines.txt", "-n", str(messages), "--transport", transport,
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


@pytest.mark.parametrize("transport", ["unary", "windowed"])
def test_names_that_are_no_text_are_refused_by_calls(server, tmp_path, transport):
    game = played(server, tmp_path, LINES[:2] + NO_TEXT, transport, 10)
    assert game.returncode == 1 and "the name of pair 3 is not UTF-8" in game.stderr, game
