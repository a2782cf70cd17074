"""Clients that attack a TLS listener before and after the handshake; another client is served meanwhile."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import ssl
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from kctl.server.network.tls.handshakes import TLS_HANDSHAKES_MAX
from tests.hostile.raw_client import API_VERSIONS, framed, receive_frame, wait_until
from tests.peers import probe
from tests.peers.certificates import PASSWORD, CertificateAuthority
from tests.peers.kctl_broker import KctlBroker, kctl_broker

IDLE_BYTES_MAX = 20_000
SEED = 7
ALERT, HANDSHAKE = 21, 22
"""The first byte of a record of TLS."""


@dataclass(frozen=True)
class Target:
    broker: KctlBroker
    port: int
    context: ssl.SSLContext

    def connect(self) -> socket.socket:
        """A connection without TLS."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def handshake(self) -> ssl.SSLSocket:
        """A connection with TLS."""
        return self.context.wrap_socket(self.connect(), server_hostname="localhost")

    def is_responding(self) -> bool:
        """A valid client gets a response."""
        with self.handshake() as tls:
            tls.sendall(API_VERSIONS)
            return len(receive_frame(tls)) > 0

    @property
    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.broker.pid}/fd"))

    @property
    def resident_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.broker.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("tls-floods")
    authority = CertificateAuthority.create(folder)
    plain, secure = probe.free_port(), probe.free_port()
    properties = {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{secure}",
        "ssl.keystore.location": str(authority.issue("server").pkcs12),
        "ssl.keystore.password": PASSWORD,
    }
    context = ssl.create_default_context(cafile=authority.pem)
    with kctl_broker(folder / "data", properties=properties, port=plain) as broker:
        target = Target(broker, secure, context)
        assert target.is_responding()
        yield target


@pytest.fixture(autouse=True)
def _no_exception_in_the_log(target: Target) -> Iterator[None]:
    yield
    assert "Traceback" not in target.broker.log_text


def test_sockets_that_send_part_of_a_handshake_do_not_delay_others(target: Target) -> None:
    hello = ssl.MemoryBIO()
    client = target.context.wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    begun = hello.read()
    with contextlib.ExitStack() as stack:
        for number in range(TLS_HANDSHAKES_MAX + 300):
            sock = stack.enter_context(target.connect())
            with contextlib.suppress(OSError):
                sock.sendall(begun[: number % len(begun)])
            if number % 200 == 0:
                assert target.is_responding()
        assert target.is_responding()
        # Java's tools need 40 KB for each handshake; here the oldest ones are closed.
        assert target.descriptors <= TLS_HANDSHAKES_MAX + 200
    wait_until(lambda: target.descriptors < 200, "all sockets are closed")


def extension(kind: int, data: bytes) -> bytes:
    return struct.pack(">HH", kind, len(data)) + data


def hello_with_group(group: int, key: bytes) -> bytes:
    """A ClientHello of TLS 1.3 that offers one group for the key exchange, and its key."""
    share = struct.pack(">HH", group, len(key)) + key
    extensions = b"".join(
        (
            extension(43, b"\x02\x03\x04"),  # supported_versions: TLS 1.3
            extension(13, b"\x00\x02\x04\x03"),  # signature_algorithms: ECDSA on P-256 with SHA-256
            extension(10, struct.pack(">HH", 2, group)),
            extension(51, struct.pack(">H", len(share)) + share),
        )
    )
    ciphers = b"\x00\x02\x13\x01"  # TLS_AES_128_GCM_SHA256
    body = b"\x03\x03" + bytes(32) + b"\x00" + ciphers + b"\x01\x00" + struct.pack(">H", len(extensions)) + extensions
    message = b"\x01" + len(body).to_bytes(3, "big") + body
    return b"\x16\x03\x01" + struct.pack(">H", len(message)) + message


@pytest.mark.parametrize(
    ("group", "key", "response"),
    [
        pytest.param(0x0017, ec.generate_private_key(ec.SECP256R1()), HANDSHAKE, id="P-256"),
        pytest.param(0x0104, None, ALERT, id="ffdhe8192"),
    ],
)
def test_key_exchanges_that_cost_the_broker_much_are_refused(
    target: Target, group: int, key: ec.EllipticCurvePrivateKey | None, response: int
) -> None:
    """CVE-2002-20001: a client requests a key exchange in a large finite field, which takes the server 160 ms."""
    if key is None:
        public = b"\x7f" * 1024
    else:
        public = key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    with target.connect() as sock:
        sock.sendall(hello_with_group(group, public))
        assert sock.recv(1) == bytes([response])


def test_random_and_mutated_bytes_end_their_own_connection(target: Target) -> None:
    chance = random.Random(SEED)
    for number in range(200):
        with target.connect() as sock, contextlib.suppress(OSError):
            if number % 2:
                sock.sendall(chance.randbytes(chance.randint(1, 600)))
            else:
                sock.sendall(b"\x16\x03\x01" + chance.randbytes(chance.randint(1, 600)))
    assert target.is_responding()


def test_tls_connections_that_send_only_a_length_take_little_memory(target: Target) -> None:
    assert target.is_responding()
    before = target.resident_bytes
    count = 1_000
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(target.handshake()).sendall((100 << 20).to_bytes(4, "big") + b"x")
        wait_until(lambda: target.descriptors >= count, "all connections are accepted")
        assert target.is_responding()
        assert target.resident_bytes <= before + count * (IDLE_BYTES_MAX + 40_000)


def test_a_frame_above_the_limit_closes_a_tls_connection(target: Target) -> None:
    with target.handshake() as tls:
        tls.sendall(((100 << 20) + 1).to_bytes(4, "big"))
        assert tls.recv(1) == b""
    with target.handshake() as tls:
        tls.sendall(framed(b"\xff" * 50))
        assert tls.recv(1) == b""
    assert target.is_responding()


def test_requests_are_not_read_while_the_client_reads_no_responses(target: Target) -> None:
    with target.handshake() as tls:
        tls.settimeout(2)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < 64 << 20:
                tls.sendall(API_VERSIONS * 100)
                sent += len(API_VERSIONS) * 100
        assert sent < 64 << 20
        assert target.is_responding()
