"""The task server, judged by plain sockets and by a second, independent definition of the tasks."""

import socket
import threading
import time

MASK = (1 << 64) - 1


def rotated(value, by, bits=64):
    return (value << by | value >> (bits - by)) & ((1 << bits) - 1)


class Xoshiro256StarStar:
    """Seeded by splitmix64; both after the C sources of Blackman and Vigna."""

    def __init__(self, seed):
        self.state = []
        for _ in range(4):
            seed = (seed + 0x9E3779B97F4A7C15) & MASK
            mixed = (seed ^ seed >> 30) * 0xBF58476D1CE4E5B9 & MASK
            mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & MASK
            self.state.append(mixed ^ mixed >> 31)

    def next(self):
        state = self.state
        drawn = rotated(state[1] * 5 & MASK, 7) * 9 & MASK
        shifted = state[1] << 17 & MASK
        state[2] ^= state[0]
        state[3] ^= state[1]
        state[1] ^= state[2]
        state[0] ^= state[3]
        state[2] ^= shifted
        state[3] = rotated(state[3], 45)
        return drawn


def cpu(seed):
    numbers = Xoshiro256StarStar(seed)
    rounds = ([1] * 12 + [4, 16, 64, 256])[numbers.next() % 16] * 4096
    data, dep = bytearray(1 << 20), 0
    for _ in range(rounds):
        index = (numbers.next() + dep) % len(data)
        data[index] = (data[index] + (numbers.next() >> 32)) & 255
        dep = (dep + data[index]) & 255
    return data[(numbers.next() + dep) % len(data)]


# Waits in milliseconds and results, by seed: worked out after RFC 8439 and the seeding of rand_core 0.6.
IO = {0: (48, 168), 1: (1238, 198), 2: (143, 172), 7: (46, 144), 42: (1028, 153), 255: (37, 188)}


def connect(server):
    host, port = server.tasks_address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=30)


def ask(server, request):
    """Everything that comes until the server closes, after a half-close."""
    with connect(server) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(4096), b""))


def test_cpu_tasks_are_what_their_definition_says(server):
    seeds = [0, 1, 2, 20, 41, 68, 255, 10**18, MASK]
    request = b"".join(b"0:%d\n" % seed for seed in seeds)
    assert list(ask(server, request)) == [cpu(seed) for seed in seeds]


def test_io_tasks_wait_beside_each_other_and_replies_keep_their_order(server):
    start = time.monotonic()
    replies = ask(server, b"".join(b"1:%d\n" % seed for seed in IO))
    took = time.monotonic() - start
    assert list(replies) == [result for _, result in IO.values()]
    assert took >= max(wait for wait, _ in IO.values()) / 1000


def test_what_existing_clients_send_is_understood(server):
    spaces = "\v\f\u0085\u00a0\u2003\u2028\u3000".encode()
    for request in [b"0:41\n", b"  0:41 \r\n", b"0:41", b"0:x:y:41\n", b"\t0::41\r", spaces + b"0:41" + spaces + b"\n",
                    b"0:" + b"0" * 200 + b"41\n"]:
        assert ask(server, request) == b"\x89", request


def test_bad_lines_end_the_connection_after_earlier_replies(server):
    for bad in [b"", b"2:1", b"x", b"0:", b"0:-1", b"0:1.5", b"0:18446744073709551616", b"\xff\xfe:1", b"9" * 5000,
                b"0:41\xa0", "\u200b0:41".encode(), b"0:" + b"0" * 300 + b"41"]:
        with connect(server) as connection:
            connection.sendall(b"1:7\n0:41\n" + bad + b"\n0:68\n")
            assert b"".join(iter(lambda: connection.recv(4096), b"")) == b"\x90\x89", bad


def test_text_mode_answers_every_line_and_stays_open(server):
    with connect(server) as connection, connection.makefile("rw", newline="\n") as lines:
        def said(request):
            lines.write(request + "\n")
            lines.flush()
            return lines.readline()

        lines.write("HELLO 2\n")
        assert said("0:41") == "OK 137\n"
        assert said("what").startswith("ERR the type is 'what'; it must be ")
        assert said("1:7") == "OK 144\n"
        assert said("9" * 5000).startswith("ERR the line is longer than ")
        assert said("0:41") == "OK 137\n"


def test_clients_that_never_read_disturb_no_one(server):
    deaf = [connect(server) for _ in range(20)]
    for connection in deaf:
        connection.sendall(b"HELLO 2\n")
        connection.setblocking(False)
        try:
            while True:
                connection.send(b"?\n" * 32768)
        except BlockingIOError:
            pass
    assert ask(server, b"0:41\n") == b"\x89"
    for connection in deaf:
        connection.close()


def test_a_hundred_clients_get_their_own_replies_in_their_own_order(server):
    wrong = []

    def client(number):
        seeds = [(number + step) % 3 for step in range(6)]
        replies = ask(server, b"".join(b"1:%d\n0:%d\n" % (seed, 41) for seed in seeds))
        if list(replies) != [reply for seed in seeds for reply in (IO[seed][1], 137)]:
            wrong.append((number, replies))

    threads = [threading.Thread(target=client, args=(number,)) for number in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
