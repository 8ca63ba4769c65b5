"""PostgreSQL without Patroni: Debian's programs with a folder of their own, as primary or as standby. Needs the standard
library alone."""

import contextlib
import os
import pathlib
import pwd
import signal
import subprocess

from kit.servers import PATIENCE_SECONDS, Process, free_port

# Owner of every database, by trust.
OWNER = "quire"


def programs() -> pathlib.Path:
    """The folder of the newest version's programs."""
    return max(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))


def as_other_user(folder: pathlib.Path) -> list[str]:
    """Prefix of a command, for PostgreSQL refuses to run as root: if this process is root, the command runs as the user
    `postgres`, who becomes owner of the folder and of what is directly in it. Folders above may be root's alone."""
    folder.chmod(0o700)
    if os.getuid():
        return []
    owner = pwd.getpwnam("postgres")
    for path in [folder, *folder.iterdir()]:
        os.chown(path, owner.pw_uid, owner.pw_gid)
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--inh-caps=+dac_read_search",
            "--ambient-caps=+dac_read_search"]


class Postgres(Process):
    """A primary, or the standby of another, in a new folder; it starts again on the same port."""

    def __init__(self, folder: pathlib.Path, primary: "Postgres | None" = None) -> None:
        super().__init__(folder)
        self.port = free_port()
        self._as_other = as_other_user(folder)
        if primary is None:
            self._run("initdb", "--auth=trust", "--no-sync", "--no-locale", "-E", "UTF8", "-U", OWNER, "-D", "data")
        else:
            source = ("-d", primary.url("replication"))
            self._run("pg_basebackup", "--no-sync", "--checkpoint=fast", "--write-recovery-conf", "-D", "data", *source)
        try:
            self.begin()
        except BaseException:
            self.stop()
            raise

    def begin(self) -> None:
        """Starts it, and waits until it answers."""
        # Tests kill processes, not machines, so nothing has to reach the disk.
        settings = {"fsync": "off", "listen_addresses": "127.0.0.1", "port": self.port, "unix_socket_directories": "."}
        flags = (word for name, value in settings.items() for word in ("-c", f"{name}={value}"))
        self.start(*self._as_other, programs() / "postgres", "-D", "data", *flags)
        self.line("ready to accept")

    def database(self, name: str) -> str:
        """Makes an empty database; returns its URL."""
        self._run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", OWNER, name)
        return self.url(name)

    def url(self, database: str) -> str:
        return f"postgres://{OWNER}@127.0.0.1:{self.port}/{database}"

    def stop(self) -> int | None:
        """Ends it without waiting for its clients."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(PATIENCE_SECONDS)
        return super().stop()

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._as_other, programs() / program, *arguments]
        done = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True,
                              timeout=PATIENCE_SECONDS)
        assert done.returncode == 0, done.stdout + done.stderr
