"""The commands of the operator's pages work: each page is typed line by line, in a folder with a server. STUBS has those that
cannot run here."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess

import pytest

from conftest import ROOT, judge
from kit.postgres import Postgres
from kit.servers import PATIENCE_SECONDS, Process, stopping

PAGES = sorted((ROOT / "docs/operate").glob("*.md"))
# Programs that do nothing in these tests, and the reason.
STUBS = {
    "apt-get": "changes the machine; deploy/test_package.sh installs the package by dpkg",
    "cargo": "compiles for minutes; test_docs.py looks for what is built",
    "docker": "no engine is there",
    "dpkg-deb": "no package is built here",
    "install": "changes the machine",
    "journalctl": "no systemd runs",
    "make": "compiles for minutes; test_docs.py looks for the target",
    "systemctl": "no systemd runs",
    "systemd-analyze": "no systemd is there",
    "useradd": "changes the machine; the package's scripts run it in deploy/test_package.sh",
}
# Those that run.
PROGRAMS = set("cp curl df du grep grpcurl kill openssl psql quire quire-bench runuser sed sort tail umask".split())
# Lines that would not end or last for ten seconds, and what they become.
ENDLESS = {
    "quire top": "{} --once",
    "Operator/Watch": "{{ {} || true; }} | grep -m 1 .",
    "quire-bench": "{} --warm-up 0s --duration 1s",
}
# What a reader of a line with https:// has.
CERTIFICATE = "openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 30 -subj /CN=localhost"
# Stands for a database, which is there for the pages that name it.
DATABASE = "postgres://quire@db1,db2,db3/quire"
# Exit codes of lines that name what is not there.
UNSUCCESSFUL = {"cut 4711": 1}


def commands(page):
    """Number and text of each line of the blocks that are no files, with lines joined that end in a backslash."""
    lines, file, begun = page.read_text().split("\n"), False, ""
    assert "```" not in lines, "a block is indented, or it is not typed"
    for number, (before, line) in enumerate(zip(["", *lines], lines), 1):
        if line.startswith("    "):
            file = file if before.startswith("    ") else bool(re.fullmatch(r" +# \S+\.\w+", line))
            begun += line.strip()
            if not begun.endswith("\\") and not file:
                yield number, begun
            begun = begun[:-1] if begun.endswith("\\") else ""


def programs(line):
    """Names of the programs that a line runs."""
    bare = re.sub(r"""\s+# .*|"[^"]*"|'[^']*'|^\w+=\S* """, "", line)
    return {pathlib.PurePath(word).name for word in re.findall(r"(?:^|[|;&]\s*)([\w./-]+)", bare)}


class Operator(Process):
    """An operator with a shell in a folder, where the newest `quire serve` runs."""

    def __init__(self, quire, folder):
        super().__init__(folder, {f"QUIRE_{name}": "127.0.0.1:0" for name in
                                  ("SERVER_LISTEN", "TASKS_LISTEN", "RPCGAME_LISTEN", "RPCGAME_LEAN_LISTEN")})
        bench = pathlib.Path(quire).with_name("quire-bench")
        assert bench.exists(), f"{bench} is not there; run `make judges`, which builds it"
        self.environment["PATH"] = f"{folder}/bin:{os.environ['PATH']}:{pathlib.Path(judge('grpcurl')).parent}"
        for place in ["bin", "new", "new/usr/bin"]:
            (folder / place).mkdir(parents=True, exist_ok=True)
            (folder / place / "quire").symlink_to(quire)
        (folder / "deploy").symlink_to(ROOT / "deploy")
        (folder / "bin/quire-bench").symlink_to(bench)
        for name in STUBS:
            if name == "systemd-analyze" and shutil.which(name):
                continue
            (folder / "bin" / name).symlink_to("/bin/true")
        self.database = DATABASE
        self.type("quire config template >quire.toml")
        self.type("quire serve")
        self.type("quire backup before-all.backup")

    def type(self, line):
        """Runs a line; returns its exit code and output."""
        line = re.sub(r"\s+# .*", "", line).removesuffix("&")
        here = {"runuser -u quire -- ": "", "/var/lib/quire": f"{self.folder}/quire-data",
                "/etc/quire": str(self.folder), DATABASE: self.database}
        if self.process:
            here |= {"PID": str(self.process.pid), "%1": str(self.process.pid)}
        for written, meant in here.items():
            line = line.replace(written, meant)
        line = re.sub(r"(?<=[ /])(?:127\.0\.0\.1)?:10086\b", address := self.environment["QUIRE_SERVER_LISTEN"], line)
        line = re.sub(r"\bquire (admin|health)\b(?! 127)", rf"quire \1 {address}", line)
        if "quire serve" in line:
            self.stop()
            self.start("bash", "-c", f"exec env {line}")
            self.environment["QUIRE_SERVER_LISTEN"] = self.listening()
            return 0, ""
        line = next((instead.format(line) for words, instead in ENDLESS.items() if words in line), line)
        if "https:" not in line:
            ended = self.run(line)
            if re.match(r"kill \d", line):
                self.process.wait(PATIENCE_SECONDS)
            return ended
        self.run(CERTIFICATE)
        self.type("quire serve --set tls.certificate=cert.pem --set tls.key=key.pem")
        ended = self.run(line)
        self.type("quire serve")
        return ended

    def run(self, line):
        shell = subprocess.Popen(["bash", "-o", "pipefail", "-c", line], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        try:
            output, _ = shell.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(shell.pid, signal.SIGKILL)
            raise
        return shell.returncode, output


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_work(quire, tmp_path, page, request):
    with contextlib.ExitStack() as databases, stopping(Operator(quire, tmp_path)) as operator:
        shared = [line for _, line in commands(page) if DATABASE in line]
        if shared:
            request.getfixturevalue("has_postgres")
            operator.database = databases.enter_context(stopping(Postgres(tmp_path / "postgres"))).database("quire")
        for number, line in commands(page):
            others = programs(line) - PROGRAMS - set(STUBS)
            assert not others, f"{page.relative_to(ROOT)}:{number}: may these run? {others}"
            wanted = next((code for words, code in UNSUCCESSFUL.items() if words in line), 0)
            try:
                code, output = operator.type(line)
            except (RuntimeError, TimeoutError, subprocess.TimeoutExpired) as error:
                code, output = None, error
            assert code == wanted, f"{page.relative_to(ROOT)}:{number}: {line}\n{output}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_in_a_page_s_sentences_have_their_options(quire, page):
    def is_there(words):
        """The help of the longest command that the words begin with has the options among them."""
        names = [word for word in words if re.fullmatch("[a-z]+", word)][:2]
        for count in (2, 1, 0):
            shown = subprocess.run([quire, *names[:count], "--help"], capture_output=True, text=True)
            if not shown.returncode:
                return set(re.findall(r"--[a-z-]+", " ".join(words))) <= set(re.findall(r"--[a-z-]+", shown.stdout)) and (count or not names)
        return False

    for number, line in enumerate(page.read_text().split("\n"), 1):
        for command in re.findall(r"`quire ([^`]+)`", line):
            assert is_there(command.split()), f"{page.relative_to(ROOT)}:{number}: quire {command}"
