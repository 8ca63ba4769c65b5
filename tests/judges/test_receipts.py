"""The signed log and receipts, judged by Go's sumdb and by the libraries of transparency-dev, which others wrote for such logs."""

import base64
import json
import os
import pathlib
import random
import shutil
import socket
import subprocess
import urllib.error
import urllib.request

import pytest
from kit.servers import Process, Quire, stopping, wait_until

HERE = pathlib.Path(__file__).parent


@pytest.fixture(scope="session")
def tlog(tmp_path_factory):
    """The judge: its exit code, and what it prints."""
    path = tmp_path_factory.mktemp("tlog") / "tlog"
    subprocess.run(["go", "build", "-o", path, "."], cwd=HERE / "tlog", check=True)

    def judge(shop, key, *receipts, witness=""):
        command = [path, "-witness", witness, f"http://{shop.address}/log", key, *receipts]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
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


@pytest.mark.parametrize("seed", range(int(os.environ.get("ROLLBACKS", "3"))))
def test_a_server_that_was_rolled_back_is_exposed_by_a_newer_receipt(shop, tlog, tmp_path, seed):
    chance = random.Random(seed)

    def purchases(time):
        bought = [buy(shop, f"{time} {number}") for number in range(chance.randint(1, 20))]
        return receipt(shop, chance.choice(bought), tmp_path / time)

    old, key = purchases("before")
    shop.stop()
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    shop.serve()
    new, _ = purchases("after")
    assert tlog(shop, key, old, new)[0] == 0
    shop.stop()
    shutil.rmtree(tmp_path / "data")
    shutil.copytree(tmp_path / "copy", tmp_path / "data")
    shop.serve()
    assert tlog(shop, key, old)[0] == 0
    code, shown = tlog(shop, key, old, new)
    assert (code, "entries are gone" in shown) == (1, True), shown
    # Nor do other purchases in the place of those that are gone hide it.
    for number in range(20):
        buy(shop, f"another {number}")
    assert tlog(shop, key, old)[0] == 0
    code, shown = tlog(shop, key, old, new)
    assert (code, "does not begin with the log that was signed" in shown) == (1, True), shown


def page(shop, path):
    with urllib.request.urlopen(f"http://{shop.address}{path}", timeout=30) as answer:
        return answer.read().decode()


def figure(shop, name):
    """The value of a metric of the witness; None without one."""
    lines = [line for line in page(shop, "/metrics").splitlines() if line.startswith(f'quire_{name}{{witness="witness.example/judge"}}')]
    return int(lines[0].split()[1]) if lines else None


@pytest.fixture(scope="session")
def witness_program(tmp_path_factory):
    path = tmp_path_factory.mktemp("witness") / "witness"
    subprocess.run(["go", "build", "-o", path, "./witness"], cwd=HERE / "tlog", check=True)
    return path


@pytest.fixture
def witness(shop, witness_program, tmp_path):
    """Starts the shop with a witness, and gives the witness's public key."""
    key = page(shop, "/log/key").strip()
    shop.stop()
    with stopping(Process(tmp_path / "witness")) as process:
        process.start(witness_program, "127.0.0.1:0", key)
        address, public = process.line("+").split()
        shop.environment |= {"QUIRE_LEDGER_WITNESSES": f"http://{address} {public}", "QUIRE_LEDGER_WITNESS_SECONDS": "0.05"}
        shop.serve()
        yield public


def size(checkpoint):
    return int(checkpoint.splitlines()[1])


def signed(shop):
    """Waits until the witness has signed the whole log; gives its size."""
    def newest():
        whole = size(page(shop, "/log/checkpoint"))
        return whole if figure(shop, "log_cosigned_number") == whole else None

    return wait_until("the witness has signed the whole log", newest)


def test_without_a_witness_no_checkpoint_is_signed_by_one(shop):
    with pytest.raises(urllib.error.HTTPError) as refused:
        page(shop, "/log/witnessed")
    assert refused.value.code == 404


def test_a_witness_signs_the_log_as_it_grows(shop, witness, tlog, quire, tmp_path):
    key = page(shop, "/log/key").strip()
    signed(shop)
    for number in range(300):
        last = buy(shop, str(number))
    assert size(page(shop, "/log/witnessed")) <= signed(shop) == size(page(shop, "/log/witnessed"))
    file, _ = receipt(shop, last, tmp_path / "receipt")
    assert tlog(shop, key, file, witness=witness)[0] == 0
    without, _ = receipt(shop, last, tmp_path / "without")
    lines = without.read_text().splitlines(keepends=True)
    without.write_text("".join(lines[:-1]))
    refused = subprocess.run([quire, "receipt", without, "--key", key, "--witness", witness], capture_output=True, text=True)
    assert (refused.returncode, "a witness has not signed" in refused.stderr) == (1, True), refused.stderr
    check = [quire, "receipt", file, "--key", key, "--witness"]
    assert subprocess.run([*check, witness], stdout=subprocess.DEVNULL).returncode == 0
    name, _, public = witness.split("+", 2)
    other = subprocess.run([*check, f"{name}+00000000+{public}"], capture_output=True, text=True)
    assert (other.returncode, "ID" in other.stderr) == (2, True), other.stderr
    log_key = subprocess.run([*check, key], capture_output=True, text=True)
    assert (log_key.returncode, "cosignatures of a witness" in log_key.stderr) == (2, True), log_key.stderr
    # After a kill, the server learns from the witness what that has signed.
    shop.restart()
    buy(shop, "after the kill")
    signed(shop)
    assert tlog(shop, key, file, witness=witness)[0] == 0
    assert figure(shop, "log_contradicted") == 0


def test_a_witness_that_does_not_answer_holds_up_neither_another_nor_a_stop(shop, witness):
    shop.stop()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        other = "other.example/w1+810021f0+BP0XJDhaoMdbZPt4zWAvodmR/ev3axPFjtcC6sg16fYY"
        shop.environment["QUIRE_LEDGER_WITNESSES"] += ", http://%s:%s " % silent.getsockname() + other
        shop.serve()
        connection, _ = silent.accept()
        with connection:
            for number in range(3):
                buy(shop, str(number))
                signed(shop)
            assert shop.stop() == 0


def test_a_witness_exposes_a_rollback_without_a_buyer(shop, witness, tmp_path):
    signed(shop)
    shop.stop()
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    shop.serve()
    for number in range(5):
        buy(shop, f"gone {number}")
    before = signed(shop)
    shop.stop()
    shutil.rmtree(tmp_path / "data")
    shutil.copytree(tmp_path / "copy", tmp_path / "data")
    shop.serve()
    said = shop.fields("the log contradicts what a witness has signed")["reason"]
    assert f"it has signed {before} entries of this log, which has fewer" in said
    # Nor does a log that grows beyond what the witness has signed hide it.
    for number in range(20):
        buy(shop, f"another {number}")
    shop.line(f"the {before} entries of this log that it has signed differ")
    assert figure(shop, "log_contradicted") == 1


def test_a_witness_that_does_not_know_the_log_is_named(shop, witness):
    shop.stop()
    shop.environment["QUIRE_LEDGER_ORIGIN"] = "another.example/log"
    shop.serve()
    assert "404" in shop.fields("a witness does not sign the log")["reason"]
