"""A topic of 60,000 books, read by stock clients with the limit of 4 MiB a message that they have by default."""

import json
import subprocess

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message_factory import GetMessageClass
from grpc_tools import protoc

from conftest import ROOT, Server

FIRST, BOOKS, TOPIC = 100_000, 60_000, "a crowd of books"
ALL = list(range(FIRST, FIRST + BOOKS))


@pytest.fixture(scope="module")
def crowd(quire, tmp_path_factory):
    folder = tmp_path_factory.mktemp("crowd")
    rows = [f"{id},A Title of an Ordinary Length for Book {id},{TOPIC},3,9.99\n" for id in ALL]
    (folder / "books.csv").write_text("id,title,topic,stock,price\n" + "".join(rows))
    subprocess.run([quire, "import", "books.csv", "--data", "data"], cwd=folder, check=True)
    server = Server(quire, folder)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def message(tmp_path_factory):
    """Classes of the contract as it is, beside those of its oldest tables."""
    described = tmp_path_factory.mktemp("described") / "bookstore.bin"
    assert protoc.main(["protoc", f"-I{ROOT / 'proto'}", f"--descriptor_set_out={described}", "bookstore.proto"]) == 0
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(described.read_bytes()).file:
        pool.Add(file)
    return lambda name: GetMessageClass(pool.FindMessageTypeByName(f"bookstore.{name}"))


@pytest.fixture
def call(crowd, message):
    with grpc.insecure_channel(crowd.address) as channel:
        def call(kind, method, request, reply):
            make = getattr(channel, kind)
            return make(f"/bookstore.BookStore/{method}", request_serializer=message(request).SerializeToString,
                        response_deserializer=message(reply).FromString)
        yield call


def test_a_client_of_the_oldest_contract_is_told_what_to_do(crowd, contract):
    with grpc.insecure_channel(crowd.address) as channel:
        shop = contract[1].BookStoreStub(channel)
        with pytest.raises(grpc.RpcError) as refused:
            shop.Search(contract[0].BookTopicRequest(topic=TOPIC))
        assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "page_size" in refused.value.details() and "SearchStream" in refused.value.details()
        assert len(shop.Search(contract[0].BookTopicRequest(topic="college life")).books) == 2


def test_pages_hold_every_book_once(call, message):
    search = call("unary_unary", "Search", "BookTopicRequest", "BookListReply")
    found, token = [], ""
    while True:
        reply = search(message("BookTopicRequest")(topic=TOPIC, page_size=1000, page_token=token))
        assert 0 < len(reply.books) <= 1000
        found += [book.id for book in reply.books]
        token = reply.next_page_token
        if not token:
            break
    assert found == ALL


def test_a_stream_holds_every_book_once(call, message):
    search = call("unary_stream", "SearchStream", "BookTopicRequest", "BookListReply")
    replies = list(search(message("BookTopicRequest")(topic=TOPIC)))
    assert len(replies) >= 60 and all(reply.success for reply in replies)
    assert [book.id for reply in replies for book in reply.books] == ALL


def test_topics_are_counted(call, message):
    topics = call("unary_unary", "ListTopics", "ListTopicsRequest", "ListTopicsReply")
    listed = {topic.name: topic.books for topic in topics(message("ListTopicsRequest")()).topics}
    assert listed == {TOPIC: BOOKS, "college life": 2, "distributed systems": 2}
    near = topics(message("ListTopicsRequest")(near="A Crowd of Boks")).topics
    assert [topic.name for topic in near] == [TOPIC]


def test_grpcurl_pages_and_streams(grpcurl, crowd):
    def ask(method, **request):
        done = subprocess.run([grpcurl, "-plaintext", "-d", json.dumps(request), crowd.address,
                               f"bookstore.BookStore/{method}"], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        decoder, replies, text = json.JSONDecoder(), [], done.stdout.strip()
        while text:
            reply, end = decoder.raw_decode(text)
            replies.append(reply)
            text = text[end:].strip()
        return replies

    first, = ask("Search", topic=TOPIC, page_size=2)
    second, = ask("Search", topic=TOPIC, page_size=2, page_token=first["nextPageToken"])
    assert [book["id"] for reply in [first, second] for book in reply["books"]] == ALL[:4]
    streamed = ask("SearchStream", topic=TOPIC)
    assert [book["id"] for reply in streamed for book in reply["books"]] == ALL
