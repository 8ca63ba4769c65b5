"""curl, which knows no protocol of ours: calls in JSON by POST and GET, errors, and a stream."""

import gzip
import json
import struct
import subprocess
import urllib.parse

import pytest

LOOKUP = "/bookstore.BookStore/Lookup"
JSON = ["-H", "content-type: application/json"]


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        assert self.headers["content-type"] == "application/json", self.headers
        return json.loads(self.body)


@pytest.fixture(params=["--http1.1", "--http2-prior-knowledge"])
def curl(server, tmp_path, request):
    def curl(path, *arguments, body=None):
        head = tmp_path / "head"
        data = [] if body is None else ["--data-binary", "@-"]
        done = subprocess.run(
            ["curl", "--silent", "--show-error", request.param, "--max-time", "20", "--dump-header", head, *data, *arguments,
             f"http://{server.address}{path}"], input=body, capture_output=True, timeout=30, check=True)
        status, *lines = head.read_text().strip().splitlines()
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        return Answer(int(status.split()[1]), headers, done.stdout)

    return curl


def message(request):
    return urllib.parse.urlencode({"connect": "v1", "encoding": "json", "message": json.dumps(request)})


def test_a_call_is_a_post_of_json(curl):
    book = curl(LOOKUP, *JSON, body=b'{"id":53477}')
    assert book.status == 200
    assert book.json() == {"success": True, "book": {
        "id": 53477, "title": "Achieving Less Bugs with More Hugs in CSCI 339", "topic": "distributed systems",
        "stock": 1000, "price": 59.95, "priceCents": "5995"}}
    key = curl("/bookstore.BookStore/Buy", *JSON, body=b'{"id":53477,"idempotency_key":"a2V5","unknown":[1]}').json()
    assert (key["outcome"], key["stockLeft"]) == ("BUY_OUTCOME_BOUGHT", 999)
    again = curl("/bookstore.BookStore/Buy", *JSON, body=b'{"id":53477,"idempotencyKey":"a2V5"}').json()
    assert (again["replayed"], again["purchaseNumber"]) == (True, key["purchaseNumber"])


def test_a_method_that_changes_nothing_is_a_get_and_another_is_not(curl):
    assert curl(f"{LOOKUP}?{message({'id': 12365})}").json()["book"]["title"] == "Surviving College"
    refused = curl(f"/bookstore.BookStore/Buy?{message({'id': 12365})}")
    assert (refused.status, refused.headers["allow"]) == (405, "POST")


def test_a_request_may_be_compressed(curl):
    packed = gzip.compress(b'{"id":12365}')
    assert curl(LOOKUP, *JSON, "-H", "content-encoding: gzip", body=packed).json()["book"]["id"] == 12365


@pytest.mark.parametrize("path, body, status, code, said", [
    ("/bookstore.BookStore/Buy", b'{"id":7,"quantity":-1}', 400, "invalid_argument", "it must be a whole number from 1"),
    ("/bookstore.BookStore/Buy", b'{"id":"many"}', 400, "invalid_argument", "id"),
    ("/bookstore.BookStore/Buy", b'{"id":', 400, "invalid_argument", ""),
    ("/io.grpc.KeyValueService/Retrieve", b'{"key":"bm9uZQ=="}', 404, "not_found", ""),
    ("/bookstore.BookStore/Search", b'{"topic":"%s"}' % (b"x" * 300), 429, "resource_exhausted", "topic_bytes"),
])
def test_a_failure_is_a_json_object_with_a_code_and_its_http_status(curl, path, body, status, code, said):
    answer = curl(path, *JSON, body=body)
    assert (answer.status, answer.json()["code"]) == (status, code), answer.body
    assert said in answer.json().get("message", "")


def test_a_deadline_that_is_over_is_told(curl):
    waits = b'{"serial":"9","name":"x","count":"1"}'
    late = curl("/RPCGame/Try", *JSON, "-H", "connect-timeout-ms: 50", body=waits)
    assert (late.status, late.json()["code"]) == (504, "deadline_exceeded")


def test_what_is_no_call_has_an_http_status_alone(curl):
    assert curl(LOOKUP, "-H", "content-type: text/plain", body=b"hello").status == 415
    assert curl("/bookstore.BookStore/SearchStream", *JSON, body=b"{}").status == 415
    assert curl("/bookstore.BookStore/Nothing", *JSON, body=b"{}").status == 404
    refused = curl(LOOKUP, "-X", "DELETE")
    assert (refused.status, refused.headers["allow"]) == (405, "GET, POST")


def envelopes(body):
    while body:
        flags, length = struct.unpack(">BI", body[:5])
        yield flags, json.loads(body[5:5 + length])
        body = body[5 + length:]


def test_a_stream_is_messages_in_envelopes_and_a_last_one_that_tells_the_end(curl):
    def ask(request):
        text = json.dumps(request).encode()
        kind = ["-H", "content-type: application/connect+json"]
        answer = curl("/bookstore.BookStore/SearchStream", *kind, body=struct.pack(">BI", 0, len(text)) + text)
        assert (answer.status, answer.headers["content-type"]) == (200, "application/connect+json")
        return list(envelopes(answer.body))

    *messages, end = ask({"topic": "college life", "pageSize": 1})
    assert [book["id"] for _, found in messages for book in found["books"]] == [12365, 12498]
    assert [flags for flags, _ in messages] == [0, 0] and end == (2, {})
    (flags, end), = ask({"topic": "college life", "pageSize": -1})
    assert (flags, end["error"]["code"]) == (2, "invalid_argument")
