"""The signed log and receipts, judged by Go's sumdb and by the libraries of transparency-dev, which others wrote for such logs."""

import base64
import json
import pathlib
import shutil
import subprocess
import urllib.request

import pytest
from kit.servers import Quire

HERE = pathlib.Path(__file__).parent


@pytest.fixture(scope="session")
def tlog(tmp_path_factory):
    """The judge: its exit code, and what it prints."""
    path = tmp_path_factory.mktemp("tlog") / "tlog"
    subprocess.run(["go", "build", "-o", path, "."], cwd=HERE / "tlog", check=True)

    def judge(shop, key, *receipts):
        done = subprocess.run([path, f"http://{shop.address}/log", key, *receipts], capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout + done.stderr
    return judge


def call(shop, method, message):
    request = urllib.request.Request(f"http://{shop.address}/bookstore.BookStore/{method}", json.dumps(message).encode(),
                                     {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def buy(shop, name):
    """Buys a book, and returns number and key of the purchase."""
    key = base64.b64encode(name.encode()).decode()
    bought = call(shop, "Buy", {"id": 53477, "idempotencyKey": key})
    assert bought["success"], bought
    return {"number": bought["purchaseNumber"], "idempotencyKey": key}


def receipt(shop, purchase, file):
    """Writes the receipt of a purchase to a file, and returns the file and the log's key."""
    reply = call(shop, "Receipt", purchase)
    assert reply["success"], reply
    file.write_text(reply["receipt"])
    return file, reply["logKey"]


@pytest.fixture
def shop(quire, tmp_path):
    shop = Quire(quire, tmp_path, settings=["tasks.enabled=false", "rpcgame.enabled=false"])
    shop.serve()
    yield shop
    shop.kill()


def test_receipts_of_every_age_are_proven_as_the_log_grows(shop, tlog, tmp_path):
    first = buy(shop, "first")
    early, key = receipt(shop, first, tmp_path / "early")
    assert tlog(shop, key, early)[0] == 0
    for number in range(700):
        buy(shop, str(number))
    again, _ = receipt(shop, first, tmp_path / "again")
    late, _ = receipt(shop, buy(shop, "last"), tmp_path / "late")
    assert tlog(shop, key, early, again, late) == (0, "706 entries, 3 receipts\n")
    shop.kill()
    shop.serve()
    buy(shop, "after the kill")
    assert tlog(shop, key, early, again, late)[0] == 0


def test_what_was_changed_is_refused(shop, tlog, tmp_path):
    file, key = receipt(shop, buy(shop, "a"), tmp_path / "receipt")
    text = file.read_text()
    name, _, public = key.split("+", 2)
    assert tlog(shop, f"{name}+00000000+{public}", file)[0] == 1
    for part in ["extra ", "\nindex ", "\n\n", " "]:
        at = text.index(part) + len(part)
        file.write_text(text[:at] + ("8" if text[at] != "8" else "9") + text[at + 1:])
        assert tlog(shop, key, file)[0] == 1, part


def test_a_server_that_was_rolled_back_is_exposed_by_a_newer_receipt(shop, tlog, tmp_path):
    old, key = receipt(shop, buy(shop, "before"), tmp_path / "old")
    shop.stop()
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    shop.serve()
    new, _ = receipt(shop, buy(shop, "after"), tmp_path / "new")
    assert tlog(shop, key, old, new)[0] == 0
    shop.stop()
    shutil.rmtree(tmp_path / "data")
    shutil.copytree(tmp_path / "copy", tmp_path / "data")
    shop.serve()
    assert tlog(shop, key, old)[0] == 0
    code, shown = tlog(shop, key, old, new)
    assert (code, "entries are gone" in shown) == (1, True), shown
    # Nor do other purchases in the place of those that are gone hide it.
    for number in range(3):
        buy(shop, f"another {number}")
    assert tlog(shop, key, old)[0] == 0
    code, shown = tlog(shop, key, old, new)
    assert (code, "does not begin with that of the receipt" in shown) == (1, True), shown
