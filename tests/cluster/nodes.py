"""Three nodes of PostgreSQL under Patroni, three of etcd that Patroni agrees through, and servers of Quire over them, all on
loopback. Every process is a child of this one and ends with it. Must not know what is bought."""

import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import yaml

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "kit/python"))

import kit.servers  # noqa: E402
from kit.postgres import as_other_user, programs  # noqa: E402
from kit.proxy import Door, Relays  # noqa: E402
from kit.servers import PATIENCE_SECONDS, free_port, wait_until  # noqa: E402

ETCD_MEMBERS = 3
DATABASE = OWNER = "quire"
SUPERUSER = "postgres"
# As short as Patroni allows: how long a primary that says nothing keeps its office.
TTL_SECONDS = 20
LOOP_SECONDS = 1
RETRY_SECONDS = 3
# Places in /proc/PID/stat behind the name.
TERMINAL, USER_TICKS, SYSTEM_TICKS = 4, 11, 12


def stat_of(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name, which may have blanks."""
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


class Process(kit.servers.Process):
    """A program in a folder of its own, and all that it starts: found by the folder that they work in, because PostgreSQL
    leaves the session of its parent. None has a terminal, and a shell in the folder is none of them."""

    def signal(self, which: signal.Signals) -> None:
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, which)

    def kill(self) -> None:
        """Until none is left: one may be started while others are killed."""
        while self.pids():
            self.signal(signal.SIGKILL)
            time.sleep(0.01)
        super().kill()

    def pids(self) -> list[int]:
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            # Processes may end while they are looked at.
            with contextlib.suppress(OSError, ValueError):
                pid = int(entry.name)
                is_here = pathlib.Path(os.readlink(entry / "cwd")).is_relative_to(self.folder)
                if is_here and int(stat_of(pid)[TERMINAL]) == 0:
                    found.append(pid)
        return found

    def cpu_seconds(self) -> float:
        total = 0
        for pid in self.pids():
            with contextlib.suppress(OSError):
                total += sum(map(int, stat_of(pid)[USER_TICKS:SYSTEM_TICKS + 1]))
        return total / os.sysconf("SC_CLK_TCK")


class Etcd:
    """One member; it counts for nothing by itself."""

    def __init__(self, folder: pathlib.Path, name: str) -> None:
        self.name, self.port, self._peer = name, free_port(), free_port()
        self.process = Process(folder)

    @property
    def member(self) -> str:
        return f"{self.name}=http://127.0.0.1:{self._peer}"

    def start(self, members: str) -> None:
        """Or starts again."""
        self._members = members
        self.process.start(
            "etcd", "--name", self.name, "--data-dir", self.process.folder / "data", "--log-level", "warn",
            "--listen-client-urls", f"http://127.0.0.1:{self.port}", "--advertise-client-urls", f"http://127.0.0.1:{self.port}",
            "--listen-peer-urls", f"http://127.0.0.1:{self._peer}",
            "--initial-advertise-peer-urls", f"http://127.0.0.1:{self._peer}",
            "--initial-cluster", members, "--initial-cluster-state", "new", "--initial-cluster-token", "quire")

    def restart(self) -> None:
        self.start(self._members)

    def leads(self) -> bool:
        answer = ask(self.port, "POST", "/v3/maintenance/status", b"{}")
        return bool(answer) and answer["header"]["member_id"] == answer.get("leader")


def ask(port: int, method: str, path: str, body: bytes | None = None) -> Any:
    """What a server answers in JSON, or nothing."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request(method, path, body)
        return json.loads(connection.getresponse().read())
    except (OSError, ValueError, http.client.HTTPException):
        return None
    finally:
        connection.close()


class Node:
    """PostgreSQL and the Patroni that starts and stops it. What others reach it by, and it reaches etcd by, are doors if there
    are relays."""

    def __init__(self, folder: pathlib.Path, name: str, etcd: list[Etcd], relays: Relays | None) -> None:
        self.name, self.port, self._rest = name, free_port(), free_port()
        self.doors: list[Door] = []
        # The servers' door: a cut between nodes may leave it open.
        self.front: Door | None = relays.door(self.port) if relays else None

        def way(port: int) -> int:
            if relays is None:
                return port
            self.doors.append(relays.door(port))
            return self.doors[-1].port

        self._others = {"port": way(self.port), "rest": way(self._rest), "etcd": [way(member.port) for member in etcd]}
        self.process = Process(folder)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.front.port if self.front else self.port}"

    def configure(self, synchronous: bool, parameters: dict[str, Any]) -> None:
        folder = self.process.folder
        everyone = {"username": SUPERUSER, "password": "by-trust"}
        settings = {
            "scope": "quire", "name": self.name,
            "restapi": {"listen": f"127.0.0.1:{self._rest}", "connect_address": f"127.0.0.1:{self._others['rest']}"},
            # As proxies they are used as they are named here, and not by the addresses that members tell.
            "etcd3": {"hosts": [f"127.0.0.1:{port}" for port in self._others["etcd"]], "use_proxies": True},
            "bootstrap": {"dcs": {
                "ttl": TTL_SECONDS, "loop_wait": LOOP_SECONDS, "retry_timeout": RETRY_SECONDS, "primary_start_timeout": 0,
                "synchronous_mode": "quorum" if synchronous else False, "synchronous_mode_strict": synchronous,
                # A replica that lags is what an asynchronous cluster takes over with.
                "maximum_lag_on_failover": 1 << 40,
                "postgresql": {"use_pg_rewind": True, "use_slots": True,
                               "parameters": {"max_connections": 100, "wal_keep_size": "512MB", "wal_log_hints": True,
                                              **parameters}},
            }, "initdb": [{"encoding": "UTF8"}, "no-locale", "data-checksums"]},
            "postgresql": {
                "listen": f"127.0.0.1:{self.port}", "connect_address": f"127.0.0.1:{self._others['port']}",
                "data_dir": str(folder / "data"), "bin_dir": str(programs()), "pgpass": str(folder / "pgpass"),
                "authentication": {"superuser": everyone, "replication": everyone, "rewind": everyone},
                "pg_hba": ["local all all trust", "host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"],
                "parameters": {"unix_socket_directories": str(folder)},
            },
            "watchdog": {"mode": "off"},
        }
        (folder / "patroni.yml").write_text(yaml.safe_dump(settings))

    def start(self) -> None:
        """Or starts again."""
        self.process.start(*as_other_user(self.process.folder), sys.executable, "-m", "patroni", "patroni.yml")

    def told(self) -> dict[str, Any]:
        """What its Patroni says of it."""
        return ask(self._rest, "GET", "/patroni") or {}

    def kill_database(self) -> None:
        """PostgreSQL alone, so that its Patroni sees it."""
        postmaster = int((self.process.folder / "data/postmaster.pid").read_text().split()[0])
        # Another fault may have ended it, and its number may be someone else's.
        if postmaster in self.process.pids():
            os.kill(postmaster, signal.SIGKILL)

    def cut_off(self, from_servers: bool) -> None:
        for door in self._all_doors(from_servers):
            door.close()

    def join_again(self) -> None:
        for door in self._all_doors(True):
            door.open()

    def _all_doors(self, with_front: bool) -> list[Door]:
        return [*self.doors, *([self.front] if with_front and self.front else [])]

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(host="127.0.0.1", port=self.port, user=OWNER, dbname=DATABASE, connect_timeout=5) as connection:
            return connection.execute(sql).fetchall()


class Server(Process, kit.servers.Quire):
    """`quire serve` over a database, or a file if there is no URL; it starts again on the same port."""

    def __init__(self, folder: pathlib.Path, quire: pathlib.Path, url: str | None, *settings: str) -> None:
        settings = ("tasks.enabled=false", "rpcgame.enabled=false", "records.enabled=false", *settings)
        kit.servers.Quire.__init__(self, quire, folder, settings=settings, listen=f"127.0.0.1:{free_port()}",
                                   environment={"QUIRE_LEDGER_URL": url} if url else None)


class Cluster:
    def __init__(self, quire: pathlib.Path, synchronous: bool = True, relays: bool = True, nodes: int = 3, servers: int = 3,
                 parameters: dict[str, Any] | None = None, settings: tuple[str, ...] = ()) -> None:
        self._quire = quire
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="quire-cluster-"))
        self.folder.chmod(0o755)
        self._relays = Relays() if relays else None
        self.etcd = [Etcd(self.folder / f"etcd{number}", f"etcd{number}") for number in range(1, ETCD_MEMBERS + 1)]
        self.nodes = [Node(self.folder / f"node{number}", f"node{number}", self.etcd, self._relays)
                      for number in range(1, nodes + 1)]
        hosts = ",".join(node.address for node in self.nodes)
        self.url = f"postgres://{OWNER}@{hosts}/{DATABASE}?target_session_attrs=read-write"
        self.servers: list[Server] = []
        for number in range(1, servers + 1):
            self.add_server(f"server{number}", *settings)
        self._synchronous, self._parameters = synchronous, parameters or {}

    def add_server(self, name: str, *settings: str) -> Server:
        """Starts with the others."""
        self.servers.append(Server(self.folder / name, self._quire, self.url, *settings))
        return self.servers[-1]

    def start(self) -> None:
        members = ",".join(member.member for member in self.etcd)
        for member in self.etcd:
            member.start(members)
        wait_until("etcd has a leader", self.etcd_leader)
        for node in self.nodes:
            node.configure(self._synchronous, self._parameters)
            node.start()
        wait_until("the nodes are a cluster", self.is_whole)
        primary = wait_until("there is a primary", self.primary)
        with psycopg.connect(host="127.0.0.1", port=primary.port, user=SUPERUSER, dbname="postgres",
                             autocommit=True) as connection:
            connection.execute(f"CREATE ROLE {OWNER} LOGIN")
            connection.execute(f"CREATE DATABASE {DATABASE} OWNER {OWNER}")
        for server in self.servers:
            server.begin()
        for server in self.servers:
            wait_until(f"the server on {server.address} is healthy", server.is_healthy)

    def etcd_leader(self) -> Etcd | None:
        return next((member for member in self.etcd if member.leads()), None)

    def primary(self) -> Node | None:
        """The node that holds the office, if one does and takes writes."""
        found = [node for node in self.nodes if node.told().get("role") == "primary"]
        return found[0] if len(found) == 1 else None

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """What the primary answers. If it loses its office meanwhile, the next one is asked."""
        def ask_primary() -> list[list[tuple[Any, ...]]]:
            primary = self.primary()
            with contextlib.suppress(psycopg.OperationalError):
                return [primary.query(sql)] if primary else []
            return []

        return list(wait_until("the primary answers", ask_primary)[0])

    def is_whole(self) -> bool:
        """All nodes run, the others follow the primary, and it waits for a quorum of them if it is to."""
        told = [node.told() for node in self.nodes]
        if sorted(each.get("role", "") for each in told) != ["primary", *["replica"] * (len(self.nodes) - 1)]:
            return False
        replication = next(each for each in told if each["role"] == "primary").get("replication", [])
        kinds = [each["sync_state"] for each in replication if each["state"] == "streaming"]
        return kinds == ["quorum" if self._synchronous else "async"] * (len(self.nodes) - 1)

    def stop(self) -> None:
        for server in self.servers:
            server.stop()
        for process in (each.process for each in [*self.nodes, *self.etcd]):
            process.signal(signal.SIGCONT)
            process.kill()
        if self._relays:
            self._relays.stop()

    def remove(self) -> None:
        shutil.rmtree(self.folder)


@contextlib.contextmanager
def running(cluster: Cluster) -> Iterator[Cluster]:
    """Ends it however the work ends; its folder, with all logs, stays if that failed."""
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
    cluster.remove()
