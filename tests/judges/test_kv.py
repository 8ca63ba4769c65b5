"""The key-value service, judged by a client that knows the contract's tables and nothing else, and by porcupine, which
looks for an order of what really happened that a map would have answered the same way."""

import functools
import pathlib
import random
import subprocess
import threading
import time

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from conftest import ROOT, Server

HERE = pathlib.Path(__file__).parent
CODE = grpc.StatusCode


@pytest.fixture(scope="session")
def wire():
    return grpc.protos_and_services("kv.proto")


def refusal(call, request):
    with pytest.raises(grpc.RpcError) as refused:
        call(request)
    return refused.value.code(), refused.value.details()


@pytest.mark.parametrize("settings", [[], ["--set", "kv.durability=log"], ["--set", "kv.write_delay_ms=1"]],
                         ids=["memory", "log", "slow"])
@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip], ids=["plain", "gzip"])
def test_the_four_calls_answer_nothing_beyond_the_contract(quire, wire, tmp_path, settings, compression):
    # A strict client compares a reply with the expected message, and fields that it does not know count.
    messages, stubs = wire
    server = Server(quire, tmp_path, *settings)
    with grpc.insecure_channel(server.address, compression=compression) as channel:
        kv = stubs.KeyValueServiceStub(channel)
        for key, value in [(b"\x00key\xff", b"x"), (b"", b""), (b"k", random.Random(1).randbytes(50_000) + bytes(50_000))]:
            assert refusal(kv.Retrieve, messages.RetrieveRequest(key=key)) == (CODE.NOT_FOUND, "")
            assert refusal(kv.Update, messages.UpdateRequest(key=key, value=value)) == (CODE.NOT_FOUND, "")
            assert kv.Create(messages.CreateRequest(key=key, value=b"first")) == messages.CreateResponse()
            assert refusal(kv.Create, messages.CreateRequest(key=key, value=value)) == (CODE.ALREADY_EXISTS, "")
            assert kv.Update(messages.UpdateRequest(key=key, value=value)) == messages.UpdateResponse()
            assert kv.Retrieve(messages.RetrieveRequest(key=key)) == messages.RetrieveResponse(value=value)
            for _ in range(2):
                assert kv.Delete(messages.DeleteRequest(key=key)) == messages.DeleteResponse()
    server.stop()


@pytest.mark.parametrize("key", [b"", b"k", bytes(1000), bytes(16384)], ids=len)
def test_the_largest_value_that_can_be_written_can_be_retrieved_by_a_stock_client(server, wire, key):
    messages, stubs = wire
    # Without options: it takes messages of 4 MiB.
    with grpc.insecure_channel(server.address) as channel:
        kv = stubs.KeyValueServiceStub(channel)
        # What the message of the request leaves.
        size = (4 << 20) - messages.CreateRequest(key=key, value=bytes(4 << 20)).ByteSize() + (4 << 20)
        value = random.Random(size).randbytes(size)
        assert messages.CreateRequest(key=key, value=value).ByteSize() == 4 << 20
        assert kv.Create(messages.CreateRequest(key=key, value=value)) == messages.CreateResponse()
        assert kv.Retrieve(messages.RetrieveRequest(key=key)).value == value
        value = value[::-1]
        assert kv.Update(messages.UpdateRequest(key=key, value=value)) == messages.UpdateResponse()
        assert kv.Retrieve(messages.RetrieveRequest(key=key)).value == value
        code, _ = refusal(kv.Update, messages.UpdateRequest(key=key, value=value + b"x"))
        assert code == CODE.RESOURCE_EXHAUSTED


def test_a_server_that_takes_larger_messages_still_takes_no_value_that_a_stock_client_could_not_retrieve(
        quire, wire, tmp_path):
    messages, stubs = wire
    server = Server(quire, tmp_path, "--set", "limits.message_bytes=8388608")
    with grpc.insecure_channel(server.address) as channel:
        kv = stubs.KeyValueServiceStub(channel)
        most = (4 << 20) - 5
        code, said = refusal(kv.Create, messages.CreateRequest(key=b"", value=bytes(most + 1)))
        assert code == CODE.RESOURCE_EXHAUSTED and f"kv.value_bytes is {most}" in said
        for key in [b"", bytes(16384)]:
            kv.Create(messages.CreateRequest(key=key, value=bytes(most)))
            assert len(kv.Retrieve(messages.RetrieveRequest(key=key)).value) == most
    server.stop()


def test_a_strict_client_in_java_accepts_every_reply(server):
    built = ROOT / "target/tools/java"
    subprocess.run(["mvn", "-q", "-B", "-f", HERE / "java/pom.xml", f"-Dbuilt={built}", "package"], check=True)
    classes = f"{built}/classes:{built}/lib/*"
    done = subprocess.run(["java", "-cp", classes, "StrictClient", server.address, "100"], capture_output=True, text=True)
    assert done.returncode == 0 and "every reply" in done.stdout, done.stdout + done.stderr


class Calls:
    """Calls with the fields beyond the contract, made from what reflection tells."""

    def __init__(self, channel):
        pool = DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
        self.calls = {}
        for method in pool.FindServiceByName("io.grpc.KeyValueService").methods:
            request, reply = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
            call = channel.unary_unary(f"/io.grpc.KeyValueService/{method.name}",
                                       request_serializer=request.SerializeToString, response_deserializer=reply.FromString)
            self.calls[method.name.lower()] = (request, call)

    def __call__(self, op, **fields):
        request, call = self.calls[op]
        return call(request(**fields), timeout=30)


RESULTS = {CODE.ALREADY_EXISTS: "exists", CODE.NOT_FOUND: "missing", CODE.ABORTED: "conflict"}


def record(address, history, seed, operations, stop=None):
    """What one client did and was told, with the times; ends when the server is gone."""
    rng, seen = random.Random(seed), {}
    with grpc.insecure_channel(address) as channel:
        calls = Calls(channel)
        for number in range(operations):
            if stop and stop.is_set():
                return
            key, value = f"key {rng.randrange(3)}", f"{seed}.{number}"
            op = rng.choice(["create", "retrieve", "retrieve", "update", "update", "delete"])
            entry = {"client": seed, "op": op, "key": key, "value": value, "result": "ok"}
            fields = {"key": key.encode()}
            if op in ("create", "update"):
                fields["value"] = value.encode()
            if op == "update" and key in seen and rng.random() < 0.5:
                fields["expected_version"] = entry["expected"] = seen[key]
            if op != "delete":
                fields["want_details"] = True
            entry["call"] = time.monotonic_ns()
            try:
                reply = calls(op, **fields)
                entry["version"] = getattr(reply, "version", 0)
                if op == "retrieve":
                    entry["value"] = reply.value.decode()
                if op != "delete":
                    seen[key] = reply.version
            except grpc.RpcError as refused:
                entry["result"] = RESULTS.get(refused.code(), "unknown")
            entry["return"] = time.monotonic_ns()
            history.append(entry)
            if entry["result"] == "unknown":
                return


def run(address, history, first_seed, operations, clients=8):
    threads = [threading.Thread(target=record, args=(address, history, first_seed + number, operations))
               for number in range(clients)]
    for thread in threads:
        thread.start()
    return threads


@pytest.fixture
def porcupine(judged_history):
    return functools.partial(judged_history, "keys")


@pytest.mark.parametrize("settings", [
    ["kv.store=concurrent"], ["kv.store=mutex"], ["kv.durability=log"],
    ["kv.read_delay_ms=1", "kv.write_delay_ms=2"],
], ids=lambda settings: settings[0])
def test_what_happened_could_have_happened_in_an_order(quire, porcupine, tmp_path, settings):
    server = Server(quire, tmp_path, *(word for setting in settings for word in ("--set", setting)))
    history = []
    for thread in run(server.address, history, 0, 250):
        thread.join()
    server.stop()
    assert len(history) == 2000 and all(entry["result"] != "unknown" for entry in history)
    assert {"ok", "exists", "missing", "conflict"} <= {entry["result"] for entry in history}
    assert porcupine(history)


def test_what_happened_around_two_kills_could_have_happened_in_an_order(quire, porcupine, tmp_path):
    history = []
    for life in range(3):
        server = Server(quire, tmp_path, "--set", "kv.durability=log")
        before = len(history)
        threads = run(server.address, history, life * 100, 150 if life == 2 else 100_000)
        while life < 2 and len(history) < before + 500:
            time.sleep(0.01)
        if life < 2:
            server.kill()
        for thread in threads:
            thread.join()
    server.stop()
    assert any(entry["result"] == "unknown" for entry in history)
    assert porcupine(history)


def broken_by_a_stale_read(history):
    puts = [entry for entry in history if entry["op"] in ("create", "update") and entry["result"] == "ok"]
    for read in reversed(history):
        older = [put for put in puts if put["key"] == read["key"]]
        if read["op"] == "retrieve" and read["result"] == "ok" and len(older) > 2:
            return [dict(entry, value=older[0]["value"], version=older[0]["version"]) if entry is read else entry
                    for entry in history]


def broken_by_a_lost_write(history):
    # Its readers were mistaken, and its writer was told that it was done.
    read = next(entry for entry in history if entry["op"] == "retrieve" and entry["result"] == "ok")
    return [entry for entry in history
            if entry["version"] != read["version"] or entry["op"] == "retrieve"] if read.get("version") else None


def broken_by_two_winners(history):
    # A single false winner may fit between a deletion and a creation by others that ran meanwhile; all together do not.
    def won(place, entry):
        is_loser = entry["op"] == "create" and entry["result"] == "exists"
        return dict(entry, result="ok", version=10**9 + place) if is_loser else entry

    return [won(place, entry) for place, entry in enumerate(history)]


@pytest.mark.parametrize("breaking", [broken_by_a_stale_read, broken_by_a_lost_write, broken_by_two_winners])
def test_the_judge_sees_a_history_that_was_broken_on_purpose(server, porcupine, breaking):
    history = []
    for thread in run(server.address, history, 0, 150, clients=4):
        thread.join()
    for entry in history:
        entry.setdefault("version", 0)
    assert porcupine(history)
    assert not porcupine(breaking(history))
