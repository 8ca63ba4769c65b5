"""What the server refuses reaches the caller as a status, and not as a fault of the transport, whatever it still sends."""

import json
import subprocess

import grpc
import pytest

METHOD = "/bookstore.BookStore/Hello"
GRPC = "application/grpc"
# More than any window, message or socket holds, and less than is taken of a refused request.
LARGE = 20_000_000


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A body that begins a message larger than the server takes."""
    path = tmp_path_factory.mktemp("bodies") / "large"
    path.write_bytes(b"\0" + (LARGE - 5).to_bytes(4, "big") + bytes(LARGE - 5))
    return path


@pytest.fixture
def curl(server, tmp_path):
    """Asks over HTTP/2, and returns the status and the fields of the answer."""
    def curl(path, *arguments):
        head = tmp_path / "head"
        done = subprocess.run(
            ["curl", "--silent", "--show-error", "--http2-prior-knowledge", "--max-time", "30", "--dump-header", head,
             "--output", tmp_path / "body", "--header", "expect:", *arguments, f"http://{server.address}{path}"],
            capture_output=True, text=True)
        assert done.returncode == 0, (path, arguments, done.stderr)
        first, *fields = head.read_text().split("\n")
        fields = dict(field.strip().split(": ", 1) for field in fields if field.strip())
        return int(first.split()[1]), fields
    return curl


@pytest.mark.parametrize("path, kind, status, code", [
    (METHOD, GRPC, 200, grpc.StatusCode.RESOURCE_EXHAUSTED),
    ("/bookstore.BookStore/Nothing", GRPC, 200, grpc.StatusCode.UNIMPLEMENTED),
    ("/nowhere.Nothing/Hello", GRPC, 200, grpc.StatusCode.UNIMPLEMENTED),
    ("/bookstore.BookStore", GRPC, 200, grpc.StatusCode.UNIMPLEMENTED),
    ("/", GRPC, 200, grpc.StatusCode.UNIMPLEMENTED),
    (METHOD, "application/grpc+thrift", 415, None),
    (METHOD, "text/plain", 415, None),
    ("/nowhere", "text/plain", 404, None),
    ("/healthz", "text/plain", 405, None),
])
@pytest.mark.parametrize("how", ["--data-binary", "--upload-file"])
def test_curl_reads_the_refusal_of_a_request_that_it_still_sends(curl, large, path, kind, status, code, how):
    body = f"@{large}" if how == "--data-binary" else large
    told, fields = curl(path, "--request", "POST", how, body, "--header", f"content-type: {kind}")
    assert told == status
    assert fields.get("grpc-status") == (str(code.value[0]) if code else None), fields


def test_curl_reads_the_refusal_of_an_encoding(curl, large):
    for encoding in ["lzma", "compress"]:
        status, fields = curl(METHOD, "--data-binary", f"@{large}", "--header", f"content-type: {GRPC}",
                              "--header", f"grpc-encoding: {encoding}")
        assert (status, fields["grpc-status"]) == (200, str(grpc.StatusCode.UNIMPLEMENTED.value[0]))
        assert fields["grpc-accept-encoding"] == "identity,gzip,zstd,br,deflate,snappy"


def test_curl_reads_an_answer_that_needs_nothing_of_the_body(curl, large):
    status, fields = curl("/healthz", "--request", "GET", "--data-binary", f"@{large}")
    assert status == 200, fields


def refusal(call, *arguments, **named):
    with pytest.raises(grpc.RpcError) as caught:
        call(*arguments, timeout=30, **named)
    return caught.value.code(), caught.value.details()


def test_grpcio_reads_each_refusal(channel, contract):
    messages, stubs = contract
    shop = stubs.BookStoreStub(channel)
    hello = messages.HelloRequest(name="x" * LARGE)
    exhausted = (grpc.StatusCode.RESOURCE_EXHAUSTED,
                 "the server's limit limits.message_bytes is 4194304: send a smaller message")
    assert refusal(shop.Hello, hello) == exhausted
    for compression in [grpc.Compression.Gzip, grpc.Compression.Deflate]:
        assert shop.Hello(messages.HelloRequest(name="x"), compression=compression).hello_message
    for path, words in [("/bookstore.BookStore/Nothing", "the service has no method /bookstore.BookStore/Nothing"),
                        ("/nowhere.Nothing/Hello", "no service nowhere.Nothing here")]:
        assert refusal(channel.unary_unary(path), bytes(LARGE)) == (grpc.StatusCode.UNIMPLEMENTED, words)

        def endless():
            while True:
                yield bytes(10_000)
        assert refusal(channel.stream_unary(path), endless()) == (grpc.StatusCode.UNIMPLEMENTED, words)
    assert shop.Hello(messages.HelloRequest(name="reader")).hello_message, "the channel goes on"


def test_grpc_go_reads_each_refusal(grpcurl, server, tmp_path):
    (tmp_path / "other.proto").write_text("""
        syntax = "proto3";
        package bookstore;
        message Name { string name = 1; }
        service BookStore { rpc Hello(Name) returns (Name); rpc Nothing(Name) returns (Name); }
        service Nowhere { rpc Hello(stream Name) returns (stream Name); }
    """)
    message = json.dumps({"name": "x" * LARGE})
    for method, code in [("BookStore/Hello", "ResourceExhausted"), ("BookStore/Nothing", "Unimplemented"),
                         ("Nowhere/Hello", "Unimplemented")]:
        done = subprocess.run([grpcurl, "-plaintext", "-import-path", tmp_path, "-proto", "other.proto", "-d", "@",
                               server.address, f"bookstore.{method}"],
                              input=message, capture_output=True, text=True, timeout=60)
        assert f"Code: {code}" in done.stderr, (method, done.stderr)
