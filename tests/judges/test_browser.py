"""Web pages of another origin, in Chromium, with the clients that such pages use: connect-web and grpc-web."""

import base64
import functools
import http.server
import pathlib
import subprocess
import threading

import pytest
from grpc_tools import protoc

from conftest import ROOT, Server, judge

CONNECT = ["connect-json", "connect-proto", "connect-get", "connect-web-grpc-web"]
GRPC_WEB = ["grpc-web-text", "grpc-web-binary"]


@pytest.fixture(scope="module")
def contract(tmp_path_factory):
    """The bookstore's contract as an encoded set of descriptors, in base64."""
    path = tmp_path_factory.mktemp("contract") / "set"
    arguments = ["protoc", f"-I{ROOT / 'proto'}", f"--descriptor_set_out={path}", "--include_imports", "bookstore.proto"]
    assert protoc.main(arguments) == 0
    return base64.b64encode(path.read_bytes()).decode()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The URL of a page with all clients, at an origin of its own."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "clients.js").write_bytes(pathlib.Path(judge("../browser/bundle.js")).read_bytes())
    (folder / "index.html").write_text('<!doctype html><link rel="icon" href="data:,"><script src="clients.js"></script>')
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder)) as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{site.server_port}"
        site.shutdown()


@pytest.fixture(scope="module")
def server(quire, page, tmp_path_factory):
    server = Server(quire, tmp_path_factory.mktemp("server"), "--set", f"server.cors_origins=https://shop.example,{page}")
    yield server
    server.stop()


CALL = "const done = arguments[arguments.length - 1]; call(...[...arguments].slice(0, -1)).then(done)"


@pytest.fixture
def call(chromium, page, server, contract):
    def call(kind, method, address=server.address, **request):
        chromium.get(page)
        chromium.set_script_timeout(20)
        return chromium.execute_async_script(CALL, kind, f"http://{address}", contract, "bookstore.BookStore", method, request)

    return call


@pytest.mark.parametrize("kind", CONNECT + GRPC_WEB)
def test_a_page_of_another_origin_looks_a_book_up_and_buys_it(call, kind):
    before = call(kind, "Lookup", id=12365)["answer"]["book"]
    assert (before["title"], before["priceCents"]) == ("Surviving College", "2999")
    bought = call(kind, "Buy", id=12365, quantity=2)["answer"]
    assert (bought["success"], bought["outcome"]) == (True, "BUY_OUTCOME_BOUGHT")
    assert bought["stockLeft"] == before["stock"] - 2
    assert call(kind, "Lookup", id=12365)["answer"]["book"]["stock"] == before["stock"] - 2


# grpc-web streams in its text form only.
@pytest.mark.parametrize("kind", CONNECT + ["grpc-web-text"])
def test_a_page_reads_a_stream(call, kind):
    messages = call(kind, "SearchStream", topic="distributed systems", pageSize=1)["answer"]
    assert [book["id"] for message in messages for book in message["books"]] == [53477, 53573]
    assert len(messages) == 2


@pytest.mark.parametrize("kind", CONNECT + GRPC_WEB)
def test_a_page_learns_why_a_call_failed(call, kind):
    told = call(kind, "Buy", id=7, quantity=-1)["error"]
    assert told["code"] == "InvalidArgument" and "it must be a whole number from 1" in told["message"]


@pytest.mark.parametrize("kind", CONNECT + GRPC_WEB)
def test_a_page_of_an_origin_that_is_not_in_the_setting_gets_nothing(quire, call, tmp_path, kind):
    closed = Server(quire, tmp_path)
    answer = call(kind, "Lookup", address=closed.address, id=12365)
    assert "answer" not in answer and "Surviving" not in str(answer), answer
    closed.stop()


@pytest.mark.parametrize("path", ["/metrics", "/", "/search?headerKey=a&headerValue=b", "/openapi.json"])
def test_a_page_whose_name_leads_to_this_machine_reads_nothing(chromium, server, path):
    port = server.address.rsplit(":", 1)[1]
    chromium.get(f"http://rebound.example:{port}{path}")
    shown = chromium.find_element("tag name", "body").text
    assert shown == "the server does not go by this host; its operator can add the name", shown


@pytest.mark.parametrize("version", ["--http1.1", "--http2-prior-knowledge"])
def test_a_host_that_is_not_ours_is_misdirected_in_each_version_of_http(server, version):
    def status(host):
        command = ["curl", "--silent", version, "--output", "/dev/null", "--write-out", "%{http_code} %{http_version}",
                   "--header", f"Host: {host}", f"http://{server.address}/metrics"]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout

    number = {"--http1.1": "1.1", "--http2-prior-knowledge": "2"}[version]
    assert status("rebound.example") == f"421 {number}"
    assert status("localhost") == f"200 {number}"
