"""A server that says what a scenario tells it to, and remembers what it was asked."""

import concurrent.futures
import functools
import pathlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict, ParseDict

PROTO = pathlib.Path(__file__).resolve().parents[2] / "proto"


@functools.cache
def stubs() -> dict[str, Any]:
    """The modules of messages and of stubs, made from the contract: `bookstore_pb2`, `bookstore_pb2_grpc`, `kv_pb2`, …"""
    sys.path.append(str(PROTO))
    modules = [module for file in ("bookstore.proto", "kv.proto") for module in grpc.protos_and_services(file)]
    return {module.__name__: module for module in modules}


def _methods() -> dict[str, tuple[str, Any, Any, bool]]:
    """Path, request, reply, and whether a stream answers, by the name of the method."""
    found = {}
    for module in ("bookstore_pb2", "kv_pb2"):
        file = stubs()[module].DESCRIPTOR
        for service in file.services_by_name.values():
            for method in service.methods:
                found[method.name] = (f"/{service.full_name}/{method.name}", getattr(stubs()[module], method.input_type.name),
                                      getattr(stubs()[module], method.output_type.name), method.server_streaming)
    return found


class Double(grpc.GenericRpcHandler):
    """The n-th call of a method gets the n-th of its answers, and later ones the last. A method without answers is unknown."""

    def __init__(self, answers: dict[str, list[dict[str, Any]]]) -> None:
        self._answers = {name: list(these) for name, these in answers.items()}
        self._by_path = {about[0]: (name, *about[1:]) for name, about in _methods().items()}
        self._lock, self._over = threading.Lock(), threading.Event()
        self.seen: list[dict[str, Any]] = []
        self._server = grpc.server(concurrent.futures.ThreadPoolExecutor(32), handlers=[self])
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def stop(self) -> None:
        self._server.stop(0)
        self._over.set()

    def service(self, details: Any) -> Any:
        if details.method not in self._by_path:
            return None
        name, request, reply, streams = self._by_path[details.method]
        make = grpc.unary_stream_rpc_method_handler if streams else grpc.unary_unary_rpc_method_handler
        answer = functools.partial(self._stream if streams else self._one, name, reply)
        return make(answer, request_deserializer=request.FromString, response_serializer=reply.SerializeToString)

    def _begin(self, name: str, request: Any, context: grpc.ServicerContext) -> dict[str, Any]:
        def every(field: str) -> str:
            return ",".join(value for name, value in context.invocation_metadata() if name == field)

        metadata = dict(context.invocation_metadata())
        left = context.time_remaining()
        call: dict[str, Any] = {"method": name, "request": MessageToDict(request, preserving_proto_field_name=True),
                                "authorization": metadata.get("authorization", ""),
                                "user_agent": metadata.get("user-agent", ""), "at": time.monotonic(),
                                "traceparent": every("traceparent"),
                                "tracestate": every("tracestate"),
                                "deadline_ms": None if left is None or left > 10**6 else left * 1000}
        if hasattr(request, "idempotency_key"):
            call["key"] = request.idempotency_key.decode()
        with self._lock:
            self.seen.append(call)
            answers = self._answers.get(name)
            if answers is None:
                context.abort(grpc.StatusCode.UNIMPLEMENTED, "this server has no such method")
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if answer.get("hang"):
            self._over.wait(60)
        time.sleep(answer.get("delay_ms", 0) / 1000)
        return answer

    def _end(self, answer: dict[str, Any], context: grpc.ServicerContext) -> None:
        if "pushback" in answer:
            context.set_trailing_metadata((("grpc-retry-pushback-ms", answer["pushback"]),))
        if "code" in answer:
            context.abort(grpc.StatusCode[answer["code"]], answer.get("message", ""))

    def _one(self, name: str, reply: Any, request: Any, context: grpc.ServicerContext) -> Any:
        answer = self._begin(name, request, context)
        self._end(answer, context)
        return ParseDict(answer["reply"], reply())

    def _stream(self, name: str, reply: Any, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        answer = self._begin(name, request, context)
        for part in answer.get("replies", []):
            yield ParseDict(part, reply())
        self._end(answer, context)
