"""The task server, judged by plain sockets and by a second, independent definition of the tasks."""

import socket
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


def test_io_tasks_wait_beside_each_other_and_are_what_their_definition_says(server):
    start = time.monotonic()
    replies = ask(server, b"".join(b"1:%d\n" % seed for seed in IO))
    took = time.monotonic() - start
    assert list(replies) == [result for _, result in IO.values()]
    assert took >= max(wait for wait, _ in IO.values()) / 1000
