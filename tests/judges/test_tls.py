"""TLS, judged by Python's gRPC and TLS: certificates on one side, and on both."""

import datetime
import ssl
import urllib.request

import grpc
import pytest
from cryptography import x509

from conftest import Server


def serve(quire, folder, *more):
    return Server(quire, folder, "--set", "tls.certificate=server.pem", "--set", "tls.key=server.key", *more)


def hello(contract, address, credentials):
    messages, stubs = contract
    with grpc.secure_channel(address, credentials) as channel:
        stub = stubs.BookStoreStub(channel)
        return stub.Hello(messages.HelloRequest(name="reader"), timeout=10).hello_message


def test_clients_that_trust_the_authority_are_served_over_tls(quire, contract, pem, tmp_path):
    server = serve(quire, tmp_path)
    assert "reader" in hello(contract, server.address, grpc.ssl_channel_credentials(pem("authority.pem")))
    with pytest.raises(grpc.RpcError):
        hello(contract, server.address, grpc.ssl_channel_credentials(pem("shopper.pem")))
    # As a monitor would see it.
    ends = x509.load_pem_x509_certificate(pem("server.pem")).not_valid_after_utc
    trusting = ssl.create_default_context(cafile=tmp_path / "authority.pem")
    with urllib.request.urlopen(f"https://{server.address}/metrics", context=trusting, timeout=10) as page:
        lines = page.read().decode().splitlines()
    shown = next(float(line.split()[1]) for line in lines if line.startswith("quire_tls_certificate_expires_seconds "))
    left = (ends - datetime.datetime.now(datetime.timezone.utc)).total_seconds()
    assert abs(shown - left) < 60, (shown, left)
    server.stop()


def test_a_server_that_asks_for_certificates_serves_only_their_owners(quire, contract, pem, tmp_path):
    server = serve(quire, tmp_path, "--set", "tls.client_ca=authority.pem")
    own = grpc.ssl_channel_credentials(pem("authority.pem"), pem("shopper.key"), pem("shopper.pem"))
    assert "reader" in hello(contract, server.address, own)
    with pytest.raises(grpc.RpcError):
        hello(contract, server.address, grpc.ssl_channel_credentials(pem("authority.pem")))
    server.stop()


def test_a_certificate_admits_its_owner_to_what_the_file_says(quire, contract, pem, tmp_path):
    (tmp_path / "tokens").write_text("till shop san:localhost\nguest kv san:guest.example\n")
    server = serve(quire, tmp_path, "--set", "tls.client_ca=authority.pem", "--set", "server.tokens=tokens")
    messages, stubs = contract
    own = grpc.ssl_channel_credentials(pem("authority.pem"), pem("shopper.key"), pem("shopper.pem"))
    with grpc.secure_channel(server.address, own) as channel:
        shop = stubs.BookStoreStub(channel)
        assert shop.Buy(messages.ItemNumberRequest(id=12365), timeout=10).success
        with pytest.raises(grpc.RpcError) as denied:
            channel.unary_unary("/io.grpc.KeyValueService/Delete")(b"", timeout=10)
        assert denied.value.code() == grpc.StatusCode.PERMISSION_DENIED, denied.value
    server.stop()
