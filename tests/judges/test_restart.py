"""Restarts under load, while a service manager holds the listening sockets: no call fails, and what was sold is what was
acknowledged. With `pytest -s` it prints how long calls waited; JUDGED_BINARY names the server, and the load generator is
beside it.
"""

import contextlib
import csv
import fcntl
import os
import pathlib
import random
import select
import signal
import socket
import struct
import subprocess
import threading
from collections import Counter

import grpc

from conftest import Quire, Server
from kit.servers import stopping

RESTARTS = 5
STOCK = 2_000_000_000
# The last word of a method names a load: what is called, calls a second, and connections.
POST = ["--method", "POST", "--header", "content-type: application/json", "--data"]
LOADS = {
    "Lookup": (["grpc", "{}", "bookstore.BookStore/Lookup", "--data", '{"id":7}'], 20_000, 16),
    "Buy": (["grpc", "{}", "bookstore.BookStore/Buy", "--data", '{"id":7,"idempotency_key":"{{hex 16}}"}'], 500, 4),
    "Search": (["http", "http://{}/bookstore.BookStore/Search", *POST, '{"topic":"many"}'], 1000, 16),
    # Each on a connection of its own.
    "ListTopics": (["http", "http://{}/bookstore.BookStore/ListTopics", "--header", "connection: close", *POST, '{"page_size":1}'], 500, 8),
}
# Moves sockets to the places where a manager passes them.
PASS = 'exec 3<&"$1" 4<&"$2" 5<&"$3"; shift 3; export LISTEN_PID=$$ LISTEN_FDS=3; exec "$@"'


class Held(Server):
    """A server whose listening sockets outlive its process: the main port, the tasks' and the lean one."""

    def __init__(self, quire, folder):
        self.sockets = [socket.create_server(("127.0.0.1", 0), backlog=4096) for _ in range(3)]
        listen, tasks, lean = ("%s:%s" % one.getsockname() for one in self.sockets)
        super().__init__(quire, folder, listen=listen, tasks=tasks, lean=lean)

    def start(self, *command):
        # Beyond the places that the shell fills.
        passed = [fcntl.fcntl(one, fcntl.F_DUPFD, 10) for one in self.sockets]
        super().start("bash", "-c", PASS, "sh", *map(str, passed), *command, pass_fds=passed)
        for descriptor in passed:
            os.close(descriptor)

    def answered(self):
        """Calls of each method that this process has answered with OK."""
        samples = (sample for family in self.metrics().values() for sample in family.samples)
        return {one.labels["method"].rpartition("/")[2]: one.value for one in samples
                if one.name == "quire_grpc_calls_total" and one.labels["code"] == "Ok"}

    def is_busy(self):
        answered = self.answered()
        return all(answered.get(method, 0) > rate / 2 for method, (_, rate, _) in LOADS.items())


class Load:
    """An open loop of calls."""

    def __init__(self, quire, server, name):
        words, rate, connections = LOADS[name]
        self.rows = server.folder / f"{name}.csv"
        command = [pathlib.Path(quire).with_name("quire-bench"), *(word.replace("{}", server.address) for word in words),
                   "--rate", str(rate), "--clients", str(connections), "--workers", "1", "--cores", "none",
                   "--warm-up", "0s", "--duration", "10m", "--timeout", "10m", "--quiet", "--csv", self.rows]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def end(self):
        """Waits for the calls in flight; returns the number of calls with each status, and prints how long they waited."""
        self.process.send_signal(signal.SIGINT)
        said, _ = self.process.communicate(timeout=120)
        # "interrupted", or "incomplete" if the disk was too slow for every row.
        [written] = self.rows.parent.glob(f"{self.rows.stem}.*.csv")
        with written.open() as lines:
            # Without those that were still to be sent: none gives up before that.
            rows = [row for row in csv.DictReader(lines) if row["status"] != "not sent"]
        assert rows, said
        done = sorted(int(row["done_ns"]) for row in rows)
        gaps = sorted(zip(done, done[1:], strict=False), key=lambda gap: gap[0] - gap[1])[:RESTARTS]
        waits = sorted((int(row["done_ns"]) - due) / 1e6 for row in rows
                       if any(begin < (due := int(row["scheduled_ns"])) < end for begin, end in gaps))
        at = {name: round(waits[int((len(waits) - 1) * share)]) for name, share in {"p50": 0.5, "p99": 0.99, "max": 1}.items()}
        print(f"{self.rows.stem}: {len(rows)} calls, {len(waits)} of them due in the {RESTARTS} longest gaps between answers, "
              f"{[round((end - begin) / 1e6) for begin, end in gaps]} ms; ms that these waited: {at}")
        return Counter(row["status"] for row in rows)

    def stop(self):
        self.process.kill()


def ask_for_a_task(connection):
    connection.sendall(b"0:41\n")
    assert connection.recv(16) == bytes([137])


def play(connection):
    """A game of one message by the lean protocol, whose sums nothing compares here."""
    message = struct.pack("<BBBB4sQ", 1, 1, 0, 4, b"reef", 5)
    for kind, body, answer in [(2, message, 0x82), (3, struct.pack("<BQQ", 1, 0, 0), 0x83)]:
        send_frame(connection, kind, body)
        assert receive_frame(connection) == answer


def send_frame(connection, kind, body):
    connection.sendall(struct.pack("<IB", len(body), kind) + body)


def receive_frame(connection):
    """Returns its kind."""
    with connection.makefile("rb", buffering=0) as stream:
        head = stream.read(5)
        length, kind = struct.unpack("<IB", head)
        assert len(stream.read(length)) == length
        return kind


class Talks:
    """Callers of a port: some on a connection for each call, others on one that they keep, with pauses before each call."""

    def __init__(self, address, call, begin=lambda connection: None):
        host, port = address.rsplit(":", 1)
        self.place, self.call, self.begin = (host, int(port)), call, begin
        self.is_over, self.counts = threading.Event(), Counter()
        self.threads = [threading.Thread(target=self.run, args=(keeps,)) for keeps in [False, True] * 4]
        for thread in self.threads:
            thread.start()

    def run(self, keeps):
        while not self.is_over.is_set():
            try:
                with socket.create_connection(self.place, timeout=30) as connection:
                    self.begin(connection)
                    while not self.is_over.wait(random.uniform(0.01, 0.1)):
                        if select.select([connection], [], [], 0)[0]:
                            # The server has closed it, as any client would see.
                            break
                        self.call(connection)
                        self.counts["answered"] += 1
                        if not keeps:
                            break
            except (AssertionError, OSError, struct.error) as error:
                self.counts[repr(error)] += 1

    def stop(self):
        self.is_over.set()
        for thread in self.threads:
            thread.join()


def greet(connection):
    send_frame(connection, 1, b"quire-lean" + bytes([1, 1, 16, 0, 0]))
    assert receive_frame(connection) == 0x81


def test_no_call_fails_while_one_server_follows_another(quire, tmp_path, contract):
    Quire(quire, tmp_path).import_books(f"id,title,topic,stock,price\n7,Endless,many,{STOCK},1.00\n")
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(stopping(Held(quire, tmp_path)))
        loads = {name: stack.enter_context(stopping(Load(quire, server, name))) for name in LOADS}
        talks = [stack.enter_context(stopping(Talks(server.tasks_address, ask_for_a_task))),
                 stack.enter_context(stopping(Talks(server.lean_address, play, greet)))]

        def wait_for_calls():
            before = [talk.counts["answered"] for talk in talks]
            server.wait_for("every load is served", lambda: server.is_busy() and all(
                talk.counts["answered"] > answered + 20 for talk, answered in zip(talks, before, strict=True)))

        for _ in range(RESTARTS):
            wait_for_calls()
            server.stop()
            server.serve()
        wait_for_calls()
        for talk in talks:
            talk.stop()
        print(*(talk.counts for talk in talks), sep="\n")
        assert all(set(talk.counts) == {"answered"} for talk in talks)
        ended = {name: load.end() for name, load in loads.items()}
        assert all(set(statuses) <= {"OK", "200"} for statuses in ended.values()), ended
        messages, services = contract
        with grpc.insecure_channel(server.address) as channel:
            left = services.BookStoreStub(channel).Lookup(messages.ItemNumberRequest(id=7)).book.stock
    assert STOCK - left == ended["Buy"]["OK"]
