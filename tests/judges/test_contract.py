"""A client that knows the contract's tables and nothing else, built by grpcio-tools."""

import concurrent.futures
import contextlib
import sqlite3

import grpc
import pytest

PLAIN, GZIP = grpc.Compression.NoCompression, grpc.Compression.Gzip


@pytest.fixture(params=[PLAIN, GZIP], ids=["plain", "gzip"])
def shop(request, server, contract):
    with grpc.insecure_channel(server.address, compression=request.param) as channel:
        yield contract[1].BookStoreStub(channel)


def test_hello_is_answered_with_the_name(shop, contract):
    reply = shop.Hello(contract[0].HelloRequest(name="reader"))
    assert reply.hello_message == "Hello reader!"
    assert shop.Hello(contract[0].HelloRequest()).hello_message == "Hello !"


def test_search_finds_the_books_of_exactly_that_topic(shop, contract):
    reply = shop.Search(contract[0].BookTopicRequest(topic="distributed systems"))
    assert reply.success
    books = [(book.id, book.title, book.topic, book.stock) for book in reply.books]
    assert books == [
        (53477, "Achieving Less Bugs with More Hugs in CSCI 339", "distributed systems", 1000),
        (53573, "Distributed Systems for Dummies", "distributed systems", 1000),
    ]
    assert all(book.price > 0 for book in reply.books)
    for topic in ["distributed", "Distributed Systems", "", "knitting"]:
        reply = shop.Search(contract[0].BookTopicRequest(topic=topic))
        assert (reply.success, len(reply.books)) == (True, 0), topic


def test_lookup_finds_a_book_or_says_that_there_is_none(shop, contract):
    for book, title in [(12365, "Surviving College"), (12498, "Cooking for the Impatient Undergraduate")]:
        reply = shop.Lookup(contract[0].ItemNumberRequest(id=book))
        assert (reply.success, reply.book.title, reply.book.topic) == (True, title, "college life")
    for absent in [1, 0, -1]:
        reply = shop.Lookup(contract[0].ItemNumberRequest(id=absent))
        assert (reply.success, reply.HasField("book"), reply.message) == (False, False, f"there is no book {absent}")


def test_buy_sells_to_the_last_copy_and_then_says_sold_out(shop, contract):
    request = contract[0].ItemNumberRequest(id=7)
    for left in [2, 1, 0]:
        assert shop.Buy(request).success
        assert shop.Lookup(request).book.stock == left
    refused = shop.Buy(request)
    assert (refused.success, "sold out" in refused.message) == (False, True)
    for absent in [1, 0, -1]:
        assert not shop.Buy(contract[0].ItemNumberRequest(id=absent)).success


def test_many_buyers_at_once_get_each_copy_once(server, contract):
    messages, stubs = contract
    with grpc.insecure_channel(server.address) as channel, concurrent.futures.ThreadPoolExecutor(16) as pool:
        buy = stubs.BookStoreStub(channel).Buy
        replies = list(pool.map(lambda _: buy(messages.ItemNumberRequest(id=7)), range(200)))
    assert sum(reply.success for reply in replies) == 3


def test_a_topic_that_is_too_long_is_refused(shop, contract):
    with pytest.raises(grpc.RpcError) as refused:
        shop.Search(contract[0].BookTopicRequest(topic="t" * (10 << 20)))
    # Compressed, ten million letters are a small message that holds a topic which is too long.
    assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_deadline_that_is_over_is_told_and_sells_nothing_later(server, contract):
    messages, stubs = contract
    request = messages.ItemNumberRequest(id=7)
    other = sqlite3.connect(server.folder / "data" / "bookstore.db", isolation_level=None)
    with contextlib.closing(other), grpc.insecure_channel(server.address) as channel:
        shop = stubs.BookStoreStub(channel)
        # No other call can write meanwhile: the first purchase's work has begun, the second one's has not.
        other.execute("BEGIN IMMEDIATE")
        for _ in range(2):
            with pytest.raises(grpc.RpcError) as late:
                shop.Buy(request, timeout=0.3)
            assert late.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        other.execute("COMMIT")
        assert shop.Buy(request).success
        assert shop.Lookup(request).book.stock >= 1


def test_a_method_that_does_not_exist_is_unimplemented(channel):
    call = channel.unary_unary("/bookstore.BookStore/Steal")
    with pytest.raises(grpc.RpcError) as refused:
        call(b"")
    assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED
