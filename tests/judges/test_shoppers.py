"""10,000 shoppers after 5,000 copies, each with a form of its own, while an operator's page is open."""

import asyncio
import re
import time
import urllib.parse

from conftest import Server
from kit.servers import Quire

SHOPPERS = 10_000
COPIES = 5_000
CONNECTIONS = 100


async def answer(reader):
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = re.search(r"(?im)^content-length: (\d+)", head)
    body = await reader.readexactly(int(length[1]) if length else 0)
    return int(head.split(" ", 2)[1]), body.decode()


async def ask(connection, request, body=""):
    reader, writer = connection
    writer.write(f"{request}\r\nHost: localhost\r\nAccept: text/html\r\n{body}".encode())
    return await answer(reader)


async def shop_once(connection, times):
    """Reads the book's page and sends its form twice, as a double click does; returns the status of each answer."""
    began = time.perf_counter()
    _, page = await ask(connection, "GET /shop/book?id=7 HTTP/1.1", "\r\n")
    key = re.search(r'name="key" value="([^"]+)"', page)
    if not key:
        return "closed"
    form = urllib.parse.urlencode({"book": 7, "key": key[1]})
    post = f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(form)}\r\n\r\n{form}"
    answers = [await ask(connection, "POST /shop/buy HTTP/1.1", post) for _ in range(2)]
    times.append(time.perf_counter() - began)
    return tuple(status for status, _ in answers)


async def visit(address, rounds, times):
    host, port = address.split(":")
    connection = await asyncio.open_connection(host, int(port))
    found = [await shop_once(connection, times) for _ in range(rounds)]
    connection[1].close()
    return found


async def watch(address, seen):
    """Reads the event stream of an operator's page until it has every purchase."""
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /admin/live?parts=lost HTTP/1.1\r\nHost: localhost\r\n\r\n")
    while line := await reader.readline():
        if line.startswith(b"data:"):
            seen.append(time.perf_counter())
            if f"{COPIES:,}".encode() in line:
                return writer.close()


async def rush(address):
    seen, times = [], []
    watcher = asyncio.create_task(watch(address, seen))
    rounds = SHOPPERS // CONNECTIONS
    began = time.perf_counter()
    visits = await asyncio.gather(*(visit(address, rounds, times) for _ in range(CONNECTIONS)))
    seconds = time.perf_counter() - began
    await asyncio.wait_for(watcher, 30)
    return [found for visit in visits for found in visit], sorted(times), seen, seconds


def test_ten_thousand_shoppers_buy_five_thousand_copies(quire, tmp_path):
    Quire(quire, tmp_path).import_books(f"id,title,topic,stock,price\n7,The Rush,scarcity,{COPIES},9.99\n")
    server = Server(quire, tmp_path)
    found, times, seen, seconds = asyncio.run(rush(server.address))
    # A page that was read after the last copy went has no form that can be sent.
    bought = [each for each in found if each == (303, 303)]
    assert len(bought) == COPIES
    assert {each for each in found if each not in bought} <= {(409, 409), "closed"}, set(found)
    purchases = {sample.labels["outcome"]: sample.value for sample in server.metrics()["quire_purchases"].samples}
    assert purchases["bought"] == COPIES
    print(f"{len(found)} shoppers in {seconds:.1f} s, three requests each: p50 {times[len(times) // 2] * 1000:.0f} ms, "
          f"p99 {times[len(times) * 99 // 100] * 1000:.0f} ms; {len(seen)} updates of the operator's page")
    server.stop()
