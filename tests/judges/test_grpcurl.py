"""grpcurl, which learns everything by reflection."""

import json
import subprocess

import pytest


@pytest.fixture
def ask(grpcurl, server):
    def ask(*arguments, message=None, fails=False):
        data = [] if message is None else ["-d", json.dumps(message)]
        done = subprocess.run([grpcurl, "-plaintext", *data, server.address, *arguments],
                              capture_output=True, text=True, timeout=60)
        assert (done.returncode != 0) == fails, done
        return done.stderr if fails else done.stdout
    return ask


def test_list_names_the_services(ask):
    assert {"bookstore.Admin", "bookstore.BookStore", "grpc.health.v1.Health"} <= set(ask("list").split())


def test_describe_shows_the_contract(ask):
    shown = ask("describe", "bookstore.BookStore")
    for rpc, request, reply in [
        ("Hello", "HelloRequest", "HelloReply"),
        ("Search", "BookTopicRequest", "BookListReply"),
        ("Lookup", "ItemNumberRequest", "BookInfoReply"),
        ("Buy", "ItemNumberRequest", "BuyBookReply"),
    ]:
        end = ";" if rpc == "Buy" else " {\n    option idempotency_level = NO_SIDE_EFFECTS;\n  }"
        assert f"rpc {rpc} ( .bookstore.{request} ) returns ( .bookstore.{reply} ){end}" in shown
    assert "double price = 5;" in ask("describe", "bookstore.Book")


def test_every_call_of_a_shopper_is_answered(ask):
    assert json.loads(ask("bookstore.BookStore/Hello", message={"name": "reader"}))["helloMessage"] == "Hello reader!"
    found = json.loads(ask("bookstore.BookStore/Search", message={"topic": "college life"}))
    assert [book["id"] for book in found["books"]] == [12365, 12498]
    book = json.loads(ask("bookstore.BookStore/Lookup", message={"id": 53477}))["book"]
    assert (book["stock"], book["topic"]) == (1000, "distributed systems")
    assert json.loads(ask("bookstore.BookStore/Buy", message={"id": 53477}))["success"]
    assert json.loads(ask("bookstore.BookStore/Lookup", message={"id": 53477}))["book"]["stock"] == 999


def test_a_scarce_book_sells_out(ask):
    buy = lambda: json.loads(ask("bookstore.BookStore/Buy", message={"id": 7}))
    assert [buy().get("success", False) for _ in range(5)] == [True, True, True, False, False]


def test_a_fault_is_shown_with_its_code_and_its_advice(ask):
    said = ask("bookstore.BookStore/Buy", message={"id": 7, "quantity": -1}, fails=True)
    assert "InvalidArgument" in said and "it must be a whole number from 1" in said


def test_an_operator_acts_without_a_stub(ask):
    assert json.loads(ask("bookstore.Admin/Restock", message={"amount": 5}))["booksRaised"] == "1"
    page = json.loads(ask("bookstore.Admin/Log", message={"page_size": 1}))
    assert page["entries"][0]["kind"] == "LOG_ENTRY_KIND_RESTOCK"
    assert page["nextPageToken"]
