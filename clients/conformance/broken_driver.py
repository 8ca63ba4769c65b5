"""A driver that is wrong on purpose, to see that the campaign finds it: `broken_driver.py ADDRESS FAULT`, with one of the faults
`new-key`, a new key for each attempt, and `gives-up`, a purchase in doubt is told as not made. With `none` it is right."""

import concurrent.futures
import json
import sys
import threading
import time
import uuid
from typing import Any

import grpc

from double import stubs

DOUBTFUL = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED,
            grpc.StatusCode.INTERNAL}
NAMES = ["", "bought", "sold_out", "too_few", "no_such_book"]


def buy(shop: Any, messages: Any, fault: str, request: dict[str, Any]) -> dict[str, Any]:
    key = request.get("key") or uuid.uuid4().hex
    time_ms = request.get("timeout_ms", 30_000)
    deadline = time.monotonic() + time_ms / 1000
    while time.monotonic() < deadline:
        if fault == "new-key":
            key = uuid.uuid4().hex
        wish = messages.ItemNumberRequest(id=request["id"], quantity=request["quantity"], idempotency_key=key.encode())
        try:
            reply = shop.Buy(wish, timeout=time_ms / 4000, wait_for_ready=True)
        except grpc.RpcError as error:
            if error.code() not in DOUBTFUL:
                return {"error": "refused", "code": error.code().name, "message": error.details()}
            if fault == "gives-up":
                return {"error": "unreachable", "code": error.code().name, "message": error.details()}
            time.sleep(0.1)
            continue
        bought = {"number": reply.purchase_number} if reply.success else {}
        return {"outcome": NAMES[reply.outcome], "key": key, "replayed": reply.replayed, **bought}
    return {"outcome": "unknown", "key": key, "replayed": False}


def main() -> None:
    address, fault = sys.argv[1:3]
    messages, calls = stubs()["bookstore_pb2"], stubs()["bookstore_pb2_grpc"]
    options = [("grpc.max_reconnect_backoff_ms", 200), ("grpc.initial_reconnect_backoff_ms", 100), ("grpc.enable_retries", 0)]
    lock = threading.Lock()
    with grpc.insecure_channel(address, options) as channel, concurrent.futures.ThreadPoolExecutor(64) as pool:
        shop = calls.BookStoreStub(channel)

        def answer(request: dict[str, Any]) -> None:
            line = json.dumps({"n": request["n"], **buy(shop, messages, fault, request)})
            with lock:
                print(line, flush=True)

        for line in sys.stdin:
            pool.submit(answer, json.loads(line))


if __name__ == "__main__":
    main()
