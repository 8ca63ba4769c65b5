"""h2spec asks the product itself for the rules of HTTP/2: at a gRPC method, at a path that is nowhere, at a page, and
over TLS."""

import subprocess
import xml.etree.ElementTree as xml

import pytest

from conftest import Server, judge

# Cases that a path may leave out, by h2spec's own numbers. Each of them is asked, and passes, at the other paths.
SKIPPED = {
    # The window is made smaller than what was sent of an answer; this one is `ok` and too short for that.
    "/healthz": {"http2/6.9.2/2"},
}
CASES = 145


@pytest.mark.parametrize("path", ["/bookstore.BookStore/Hello", "/nowhere", "/healthz"])
def test_h2spec_finds_no_fault(server, tmp_path, path):
    judged(server.address, tmp_path, path)


@pytest.mark.parametrize("path", ["/bookstore.BookStore/Hello", "/nowhere"])
def test_h2spec_finds_no_fault_over_tls(quire, pem, tmp_path, path):
    server = Server(quire, tmp_path, "--set", "tls.certificate=server.pem", "--set", "tls.key=server.key")
    judged(server.address, tmp_path, path, "-t", "-k")
    server.stop()


def judged(address, tmp_path, path, *flags):
    host, port = address.rsplit(":", 1)
    report = tmp_path / "report.xml"
    done = subprocess.run([judge("h2spec"), "-h", host, "-p", port, "-P", path, "-o", "5", "-j", report, *flags],
                          capture_output=True, text=True, timeout=600)
    found = {"passed": set(), "skipped": set(), "failed": set()}
    for suite in xml.parse(report).getroot().iter("testsuite"):
        for number, case in enumerate(suite.iter("testcase"), 1):
            name = f"{case.get('package')}/{number}"
            broken = case.find("failure") is not None or case.find("error") is not None
            left_out = case.find("skipped") is not None
            found["failed" if broken else "skipped" if left_out else "passed"].add(name)
    assert not found["failed"], done.stdout
    assert found["skipped"] <= SKIPPED.get(path, set()), done.stdout
    assert done.returncode == 0 and sum(map(len, found.values())) == CASES, done.stdout
