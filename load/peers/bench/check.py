"""Calls each server once by each load that it is able to do, and compares the answers. Needs grpcio and curl.

A peer cannot get quick by answering nothing, or by being left out of what it is able to do.
"""

import json
import pathlib
import subprocess

from .loads import GRPC, LOADS, Load
from .protobuf import frames
from .servers import Server

SECONDS_MAX = 10
MESSAGE_BYTES_MAX = 1 << 23


def by_grpc(server: Server, load: Load, certificate: str) -> list[bytes]:
    """The answers of a gRPC call, by gRPC's own client."""
    import grpc

    address = f"localhost:{server.port}" if load.tls else f"127.0.0.1:{server.port}"
    options = [("grpc.max_receive_message_length", MESSAGE_BYTES_MAX)]
    if load.tls:
        roots = grpc.ssl_channel_credentials(pathlib.Path(certificate).read_bytes())
        channel = grpc.secure_channel(address, roots, options)
    else:
        channel = grpc.insecure_channel(address, options)
    with channel:
        shape = ("stream" if len(load.call.asked) > 1 else "unary", "stream" if len(load.call.answered) > 1 else "unary")
        method = getattr(channel, "_".join(shape))(load.call.path)
        asked = iter(load.call.asked) if shape[0] == "stream" else load.call.asked[0]
        answer = method(asked, timeout=SECONDS_MAX)
        return list(answer) if shape[1] == "stream" else [answer]


def by_curl(server: Server, load: Load, folder: str) -> bytes:
    """The body that is answered to a load's body."""
    body = pathlib.Path(folder, "check.body")
    body.write_bytes(load.sent)
    command = ["curl", "-sS", "--fail", "--max-time", str(SECONDS_MAX), "--http2-prior-knowledge"]
    command += ["-H", f"content-type: {load.content_type}", "--data-binary", f"@{body}"]
    return subprocess.run([*command, f"http://127.0.0.1:{server.port}{load.call.path}"], check=True, capture_output=True).stdout


def wrong(server: Server, load: Load, folder: str, certificate: str) -> str | None:
    """What is wrong with a server's answer, if anything is."""
    if load.content_type == GRPC:
        found = by_grpc(server, load, certificate)
        wanted = list(load.call.answered)
    elif load.content_type.endswith("json"):
        found, wanted = json.loads(by_curl(server, load, folder)), json.loads(load.received)
    elif load.answer is not None:
        found, wanted = by_curl(server, load, folder), load.answer
    else:
        # gRPC-Web sends its trailers as one more message.
        found, wanted = frames(by_curl(server, load, folder))[:-1], frames(load.received)
    return None if found == wanted else f"answered {str(found)[:200]}, not {str(wanted)[:200]}"


def unable(server: Server, load: Load) -> str | None:
    """Why a declared inability is not one, if the server answers after all."""
    try:
        found = by_grpc(server, load, "")
    except Exception:
        return None
    return f"is not declared able, but answers {str(found)[:100]}" if found == list(load.call.answered) else None


def check(servers: list[Server], tables: list[str], folder: str, certificate: str) -> tuple[int, list[str]]:
    """How many answers were right, and what was wrong with the others."""
    right, wrongs = 0, []
    for load in LOADS:
        # The bookstore's answers have tests of their own.
        if load.table.startswith("lookup") or load.table not in tables:
            continue
        for server in servers:
            if server.tls != load.tls or "lookup" in server.peer.abilities:
                continue
            if load.needs in server.peer.abilities:
                try:
                    why = wrong(server, load, folder, certificate)
                except Exception as failure:
                    why = f"failed: {failure}"
            elif load.content_type == GRPC and not load.tls and load.needs != "fortunes":
                why = unable(server, load)
            else:
                continue
            right += why is None
            wrongs += [f"{server.name}: {load.table} {load.title} {why}"] if why else []
    return right, wrongs


