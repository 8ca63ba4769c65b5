"""Traces, received by the OpenTelemetry Collector's own receiver."""

import json
import pathlib
import re
import subprocess
import uuid
from concurrent import futures

import grpc
import pytest
from conftest import HERE, Server
from kit.servers import Process, free_port, wait_until

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-00"
LOOKUP = "bookstore.BookStore/Lookup"
ERROR, SERVER = 2, 2
# As ptrace's JSON has what a span has: a value has a name for its type.
VALUES = {"stringValue": str, "intValue": int}


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("collector") / "collector"
    subprocess.run(["go", "build", "-o", path, "."], cwd=HERE / "collector", check=True)
    return path


class Collector(Process):
    def __init__(self, program, folder):
        super().__init__(folder)
        self.program, self.port = program, free_port()

    def serve(self):
        self.start(self.program, f"127.0.0.1:{self.port}")
        self.line("listening")

    def batches(self):
        return [json.loads(line) for line in self.log().splitlines(keepends=True) if line.startswith("{") and line.endswith("\n")]

    def spans(self):
        return [span for batch in self.batches() for resource in batch["resourceSpans"] for scope in resource["scopeSpans"]
                for span in scope["spans"]]

    def wait(self, count):
        self.wait_for(f"{count} spans", lambda: len(self.spans()) >= count)
        return self.spans()


def values(attributes):
    return {one["key"]: VALUES[kind](value) for one in attributes for kind, value in one["value"].items()}


@pytest.fixture
def collector(program, tmp_path):
    collector = Collector(program, tmp_path / "collector")
    collector.serve()
    yield collector
    collector.kill()


@pytest.fixture
def serve(quire, tmp_path):
    servers = []

    def serve(port, *settings):
        flags = [word for setting in (f"trace.endpoint=http://127.0.0.1:{port}", *settings) for word in ("--set", setting)]
        servers.append(Server(quire, tmp_path / "server", *flags))
        return servers[-1]

    yield serve
    for server in servers:
        server.stop()


def call(server, method, body, kind, parent, *flags):
    """By curl, over HTTP/2 unless a flag has another version."""
    fields = ["te: trailers", f"content-type: {kind}", f"traceparent: {parent}", "tracestate: rojo=1,congo=2"]
    subprocess.run(["curl", "--silent", "--show-error", "--http2-prior-knowledge", *flags, "--max-time", "20", "--data-binary", "@-",
                    *(word for field in fields for word in ("-H", field)), f"http://{server.address}/{method}"],
                   input=body, capture_output=True, timeout=30, check=True)


GRPC_BODY = b"\0\0\0\0\4\x08\xe5\xa1\x03"


def test_a_span_of_every_protocol_has_its_parent_and_what_it_was(serve, collector):
    server = serve(collector.port, "trace.sample=0")
    protocols = [("application/grpc", "grpc", GRPC_BODY), ("application/grpc-web+proto", "grpc", GRPC_BODY),
                 ("application/json", "connect_rpc", b'{"id":53477}'), ("application/json", "connect_rpc", b'{"id":53477}')]
    for number, (kind, _, body) in enumerate(protocols):
        http = ["--http1.1"] if number == 3 else []
        # The last is no valid parent, and chance traces none.
        for parent in [UNSAMPLED, SAMPLED, SAMPLED.upper()]:
            call(server, LOOKUP, body, kind, parent, *http)
    spans = collector.wait(4)
    resource = values(collector.batches()[0]["resourceSpans"][0]["resource"]["attributes"])
    assert resource["service.name"] == "quire" and resource["service.version"][0].isdigit()
    assert uuid.UUID(resource["service.instance.id"]).version == 4
    assert len({span["spanId"] for span in spans} - {PARENT}) == 4
    for span, (_, system, _) in zip(spans, protocols, strict=True):
        assert (span["traceId"], span["parentSpanId"], span["traceState"]) == (TRACE, PARENT, "rojo=1,congo=2")
        assert (span["name"], span["kind"], span["status"].get("code", 0)) == (LOOKUP, SERVER, 0)
        assert span["flags"] == 0x301
        has = values(span["attributes"])
        assert (has["rpc.system"], has["rpc.service"], has["rpc.method"], has["client.address"]) == (
            system, "bookstore.BookStore", "Lookup", "127.0.0.1")
        assert has.get("rpc.grpc.status_code") == (0 if system == "grpc" else None)
        assert "rpc.connect_rpc.error_code" not in has and "error.type" not in has
        took = int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"])
        stages = [has[f"quire.{stage}_ns"] for stage in ("queue", "handler", "batch")]
        assert has["quire.handler_ns"] > 0 and sum(stages) <= took and has["quire.commit_ns"] == 0


@pytest.mark.parametrize("http", ["--http1.1", "--http2-prior-knowledge"])
def test_a_request_over_rest_has_a_span(serve, collector, http):
    server = serve(collector.port, "trace.sample=0")
    for path, parent in [("/healthz", UNSAMPLED), ("/healthz", SAMPLED), ("/nowhere", SAMPLED)]:
        subprocess.run(["curl", "--silent", http, "--max-time", "20", "-H", f"traceparent: {parent}", f"http://{server.address}{path}"],
                       check=True, capture_output=True)
    spans = collector.wait(2)
    assert [(span["name"], span["traceId"], span["parentSpanId"], span["kind"]) for span in spans] == [("GET", TRACE, PARENT, SERVER)] * 2
    shown = [values(span["attributes"]) for span in spans]
    assert [(has["url.scheme"], has["url.path"], has["http.request.method"], has["http.response.status_code"]) for has in shown] == [
        ("http", "/healthz", "GET", 200), ("http", "/nowhere", "GET", 404)]
    assert not any("error.type" in has for has in shown)


def test_purchases_have_their_wait_for_the_commit(serve, collector):
    server = serve(collector.port, "trace.sample=0")
    call(server, "bookstore.BookStore/Buy", GRPC_BODY, "application/grpc", SAMPLED)
    ask = ["curl", "--silent", "--max-time", "20", "-H", "accept: text/html"]
    page = subprocess.run([*ask, f"http://{server.address}/shop/book?id=53477"], check=True, capture_output=True, text=True).stdout
    form = "book=53477&key=" + re.search(r'name="key" value="([^"]+)"', page)[1]
    subprocess.run([*ask, "-H", f"traceparent: {SAMPLED}", "--data", form, f"http://{server.address}/shop/buy"], check=True, capture_output=True)
    for span, part in zip(collector.wait(2), ["quire.handler_ns", None], strict=True):
        has, took = values(span["attributes"]), int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"])
        assert 0 < has["quire.commit_ns"] <= has.get(part, took)


def test_texts_of_a_caller_are_bounded(serve, collector):
    server = serve(collector.port, "trace.sample=0")
    for flags in [(f"http://{server.address}/{'p' * 10_000}",), ("-X", "M" * 200, f"http://{server.address}/")]:
        subprocess.run(["curl", "--silent", "--http2-prior-knowledge", "--max-time", "20", "-H", f"traceparent: {SAMPLED}",
                        "-H", f"tracestate: a={'1' * 200},b={'2' * 200},c={'3' * 200}", *flags], check=True, capture_output=True)
    spans = collector.wait(2)
    shown = [values(span["attributes"]) for span in spans]
    assert [(span["name"], span.get("traceState", "")) for span in spans] == [("GET", ""), ("HTTP", "")]
    assert [(has["http.request.method"], len(has["url.path"])) for has in shown] == [("GET", 256), ("_OTHER", 1)]


def test_callers_begin_so_many_spans_a_second(serve, collector):
    server = serve(collector.port, "trace.callers_per_second=0")
    call(server, LOOKUP, GRPC_BODY, "application/grpc", SAMPLED)
    assert {sample.labels["outcome"]: int(sample.value) for sample in server.metrics()["quire_trace_spans"].samples}["over_limit"] == 1
    server.line("spans are dropped")


def test_a_failed_call_has_an_error_if_the_server_failed(serve, collector):
    server = serve(collector.port, "trace.sample=0")
    call(server, "bookstore.BookStore/Nothing", GRPC_BODY, "application/grpc", SAMPLED)
    call(server, "bookstore.BookStore/Buy", b'{"id":53477,"quantity":-1}', "application/json", SAMPLED)
    call(server, LOOKUP, GRPC_BODY, "application/grpc", SAMPLED, "-Hgrpc-timeout: 0n")
    spans = collector.wait(3)
    keys = "rpc.service", "rpc.grpc.status_code", "rpc.connect_rpc.error_code", "error.type"
    shown = [(span["name"], *map(values(span["attributes"]).get, keys), span["status"].get("code", 0)) for span in spans]
    store = "bookstore.BookStore"
    assert shown == [("unknown", None, 12, None, "UNIMPLEMENTED", ERROR), (f"{store}/Buy", store, None, "invalid_argument", None, 0),
                     (LOOKUP, store, 4, None, "DEADLINE_EXCEEDED", ERROR)]


def test_chance_decides_without_a_parent(serve, collector):
    server = serve(collector.port, "trace.sample=1")
    with grpc.insecure_channel(server.address) as channel:
        for _ in range(20):
            channel.unary_unary(f"/{LOOKUP}")(GRPC_BODY[5:])
    spans = collector.wait(20)
    assert len({span["traceId"] for span in spans}) == 20
    assert all(not span.get("parentSpanId") and span["flags"] == 0x101 for span in spans)


def test_spans_that_wait_are_exported_at_a_drain(serve, collector):
    server = serve(collector.port, "trace.sample=0")
    call(server, LOOKUP, GRPC_BODY, "application/grpc", SAMPLED)
    server.process.terminate()
    assert server.process.wait(60) == 0
    assert len(collector.spans()) == 1


def test_the_slowest_traces_of_a_load_are_found(serve, collector, quire):
    server = serve(collector.port, "trace.sample=0")
    bench = pathlib.Path(quire).with_name("quire-bench")
    load = [bench, "grpc", server.address, LOOKUP, "--data", '{"id": 53477}', "-n", "1000", "--trace", "0.1", "--quiet"]
    slowest = re.findall(r"trace ([0-9a-f]{32})", subprocess.run(load, capture_output=True, text=True, timeout=60).stderr)
    server.process.terminate()
    assert server.process.wait(60) == 0
    found = {span["traceId"] for span in collector.spans()}
    assert 95 <= len(found) <= 105
    assert len(slowest) == 5 and found.issuperset(slowest)


class Throttling(grpc.GenericRpcHandler):
    """A collector that asks for a pause before each batch and has a warning behind it."""

    def __init__(self):
        self.calls = 0

    def service(self, details):
        def export(_, context):
            self.calls += 1
            if self.calls % 2:
                # A google.rpc.Status with a RetryInfo of a second.
                detail = b"\x0a\x28type.googleapis.com/google.rpc.RetryInfo\x12\x04\x0a\x02\x08\x01"
                context.set_trailing_metadata([("grpc-status-details-bin", b"\x08\x08\x1a" + bytes([len(detail)]) + detail)])
                context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many")
            return b"\x0a\x08\x12\x06sloppy"

        return grpc.unary_unary_rpc_method_handler(export)


def test_a_collector_that_asks_for_a_pause_gets_the_spans_later_and_its_warning_is_logged(serve):
    collector, throttling = grpc.server(futures.ThreadPoolExecutor(1)), Throttling()
    collector.add_generic_rpc_handlers([throttling])
    port = collector.add_insecure_port("127.0.0.1:0")
    collector.start()
    server = serve(port, "trace.sample=0")
    call(server, LOOKUP, GRPC_BODY, "application/grpc", SAMPLED)
    server.line("sloppy")
    counts = {sample.labels["outcome"]: int(sample.value) for sample in server.metrics()["quire_trace_spans"].samples}
    assert (counts["exported"], counts["failed"], throttling.calls) == (1, 0, 2)
    collector.stop(None)


def test_a_collector_that_is_away_costs_spans_and_no_call(serve, program, tmp_path):
    collector = Collector(program, tmp_path / "collector")
    server = serve(collector.port, "trace.sample=1")

    def counts():
        return {sample.labels["outcome"]: int(sample.value) for sample in server.metrics()["quire_trace_spans"].samples}

    with grpc.insecure_channel(server.address) as channel:
        lookup = channel.unary_unary(f"/{LOOKUP}")

        def dropped():
            assert all(answer.result() for answer in [lookup.future(GRPC_BODY[5:]) for _ in range(1000)])
            return counts()["queue_full"]

        wait_until("spans are dropped", dropped)
        wait_until("spans have failed", lambda: counts()["failed"])
        server.line("spans were not exported")
        assert counts()["exported"] == 0
        collector.serve()
        try:
            wait_until("the rest is exported", lambda: counts()["exported"])
            assert lookup(GRPC_BODY[5:])
        finally:
            collector.kill()
