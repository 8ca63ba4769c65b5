"""ghz, a load generator on grpc-go: every call of a load is answered well."""

import json
import subprocess

import pytest


@pytest.mark.parametrize("method, message", [
    ("Lookup", {"id": 53477}),
    ("Search", {"topic": "college life"}),
    ("Buy", {"id": 12365}),
])
def test_a_load_is_answered_without_an_error(ghz, server, method, message):
    load = ["-n", "900", "-c", "50", "--connections", "10", "-d", json.dumps(message)]
    call = ["--insecure", "--call", f"bookstore.BookStore.{method}", "-O", "json", *load, server.address]
    done = subprocess.run([ghz, *call], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["statusCodeDistribution"] == {"OK": 900}
