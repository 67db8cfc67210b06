"""Connections by number still check the certificate of the name that was asked for."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import io
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from shardmill.beam_jobs.config import UrlsConfig
from shardmill.beam_jobs.sources.fetching.client import Client, FetchFault, Received

NAME = "images.test"


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate of one name, with its key, that vouches for itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    text = made.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (tmp_path / "certificate.pem").write_bytes(text)
    return tmp_path / "certificate.pem"


@contextlib.contextmanager
def secure_server(certificate: Path) -> Iterator[int]:
    """A server of this machine that answers every connection with four bytes; yields its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with contextlib.suppress(OSError), context.wrap_socket(connection, server_side=True) as tls:
                    tls.recv(4096)
                    tls.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nGIF8")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_a_certificate_must_be_of_the_name_that_was_asked_for(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    async def resolve(_host: str, _port: int) -> list[str]:
        return ["127.0.0.1"]

    async def ask(url: str) -> object:
        client = Client(UrlsConfig(allow_private_hosts=True, connect_seconds=5), 100, resolve)
        async with client.connected():
            return await client.ask(httpx.URL(url), None, io.BytesIO())

    with secure_server(certificate) as port:
        reply = asyncio.run(ask(f"https://{NAME}:{port}/a.gif"))
        assert isinstance(reply, Received)
        assert reply.size_bytes == 4
        with pytest.raises(FetchFault) as caught:
            asyncio.run(ask(f"https://other.test:{port}/a.gif"))
        assert caught.value.reason == "unreachable"
