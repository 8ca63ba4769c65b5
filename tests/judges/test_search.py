"""A topic of 60,000 books, read by stock clients with the limit of 4 MiB a message that they have by default."""

import json
import subprocess

import grpc
import pytest

from conftest import Quire, Server

FIRST, BOOKS, TOPIC = 100_000, 60_000, "a crowd of books"
ALL = list(range(FIRST, FIRST + BOOKS))


@pytest.fixture(scope="module")
def crowd(quire, tmp_path_factory):
    folder = tmp_path_factory.mktemp("crowd")
    rows = [f"{id},A Title of an Ordinary Length for Book {id},{TOPIC},3,9.99\n" for id in ALL]
    Quire(quire, folder).import_books("id,title,topic,stock,price\n" + "".join(rows))
    server = Server(quire, folder)
    yield server
    server.stop()


def test_a_client_of_the_oldest_contract_gets_the_way_out(crowd, contract):
    with grpc.insecure_channel(crowd.address) as channel:
        shop = contract[1].BookStoreStub(channel)
        with pytest.raises(grpc.RpcError) as refused:
            shop.Search(contract[0].BookTopicRequest(topic=TOPIC))
        assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "page_size" in refused.value.details() and "SearchStream" in refused.value.details()
        assert len(shop.Search(contract[0].BookTopicRequest(topic="college life")).books) == 2


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
