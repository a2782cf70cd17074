"""TLS connections over real sockets: handshakes, bytes both ways, limits, memory and misbehaving clients."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import random
import select
import socket
import ssl
import struct
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from kctl.config.dynamic import ConfigView
from kctl.errors import ApiError, ConfigError, ErrorCode, KctlError
from kctl.limits import LONE_FRAME_BYTES_MAX
from kctl.model import Endpoint
from kctl.server.network.acceptor import Acceptor
from kctl.server.network.connection_limits import ConnectionLimits, LimitSettings
from kctl.server.network.connections.channel import DirectChannel, Handle, Reply
from kctl.server.network.listen_settings import ListenSettings
from kctl.server.network.tls import handshakes
from kctl.server.network.tls.listeners import ListenerCertificates
from kctl.server.network.tls.stream import TLS_HANDSHAKE_BYTES_MAX, TLS_RECORDS_MAX, TLS_UNSENT_BYTES_MAX, TlsStream
from kctl.server.requests.context import Peer
from tests.peers.certificates import PASSWORD, CertificateAuthority

T = TypeVar("T")
ENDPOINT = Endpoint("SECURE", "127.0.0.1", 0, "SSL")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority.create(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def properties(authority: CertificateAuthority) -> dict[str, str]:
    return {
        "ssl.keystore.location": str(authority.issue("server").pkcs12),
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.location": str(authority.pem),
        "listener.name.secure.ssl.client.auth": "requested",
        "ssl.principal.mapping.rules": "RULE:^CN=(.*?),OU=kctl.*$/$1/",
    }


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def client_context(authority: CertificateAuthority, version: str = "TLSv1.3") -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.pem)
    context.minimum_version = context.maximum_version = getattr(ssl.TLSVersion, version.replace(".", "_"))
    return context


@contextlib.asynccontextmanager
async def listening(
    handle: Handle,
    properties: dict[str, str],
    *,
    limits: ConnectionLimits | None = None,
    request_bytes_max: int = -1,
    listener_certificates: type[ListenerCertificates] = ListenerCertificates,
) -> AsyncIterator[tuple[Acceptor, int]]:
    certificates = listener_certificates(ConfigView(properties))
    await certificates.load([ENDPOINT])
    acceptor = Acceptor(
        open_channel=partial(DirectChannel, handle, frame_bytes_max=8 << 20),
        settings=ListenSettings(
            tls=certificates, limits=limits or ConnectionLimits(), request_bytes_max=request_bytes_max
        ),
    )
    port = acceptor.bind(ENDPOINT).port
    acceptor.start()
    try:
        yield acceptor, port
    finally:
        acceptor.close()
        await certificates.close()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 - waits for another socket
            await asyncio.sleep(0.005)


async def ended(reader: asyncio.StreamReader) -> None:
    """Waits until the broker has closed the connection; with unread bytes that is a reset."""
    with contextlib.suppress(ConnectionResetError):
        await reader.read()


class Slice:
    """A range of a file, as storage returns it."""

    def __init__(self, fd: int, position: int, size: int) -> None:
        self._fd, self.position, self.size = fd, position, size

    def __len__(self) -> int:
        return self.size

    def fileno(self) -> int:
        return self._fd


@pytest.mark.long
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_large_requests_and_responses_pass_unchanged(
    authority: CertificateAuthority, properties: dict[str, str], tmp_path: Path, version: str
) -> None:
    content = os.urandom(3 << 20)
    path = tmp_path / "segment"
    path.write_bytes(content)
    requests = [os.urandom(size) for size in (1, 100, 16_384, 70_000, 5 << 20)]
    received: list[bytes] = []

    async def main() -> bytes:
        fd = os.open(path, os.O_RDONLY)

        def handle(frame: memoryview, _: Peer) -> Reply:
            received.append(bytes(frame))
            return [b"head", Slice(fd, 5, 1 << 20), b"", b"middle" * 9000, Slice(fd, 0, len(content)), b"tail"]

        async with listening(handle, properties) as (_, port):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=client_context(authority, version), limit=1 << 14
            )
            writer.write(b"".join(framed(request) for request in requests))
            response = await reader.readexactly(len(requests) * len(expected))
            writer.close()
        os.close(fd)
        return response

    expected = b"head" + content[5 : 5 + (1 << 20)] + b"middle" * 9000 + content + b"tail"
    assert asyncio.run(main()) == expected * len(requests)
    assert received == requests


class MemoryClient:
    """A client whose encrypted bytes the test sends itself."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="127.0.0.1")

    async def connect(self, port: int) -> None:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port)
        await self._until_done(self.tls.do_handshake)

    async def read(self, size: int) -> bytes:
        content = b""
        while missing := size - len(content):
            content += await self._until_done(partial(self.tls.read, missing))
        return content

    def encrypted(self, payload: bytes) -> bytes:
        self.tls.write(payload)
        return self.outgoing.read()

    async def _until_done(self, step: Callable[[], T]) -> T:
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                self.writer.write(self.outgoing.read())
                self.incoming.write(await self.reader.read(1 << 16))
            finally:
                self.writer.write(self.outgoing.read())


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_connections_that_receive_parts_of_records_by_turns_do_not_mix_their_bytes(
    authority: CertificateAuthority, properties: dict[str, str], version: str
) -> None:
    chance = random.Random(11)
    sizes = [1, 27, 1041, 16_384, 40_000, 3, 150_000, 500]
    requests = [[chance.randbytes(size) for size in chance.sample(sizes, len(sizes))] for _ in range(4)]

    async def main() -> None:
        async with listening(lambda frame, _: [b"<", bytes(frame), b">"], properties) as (_, port):
            clients = [MemoryClient(client_context(authority, version)) for _ in requests]
            for client in clients:
                await client.connect(port)
            unsent = [
                b"".join(client.encrypted(framed(request)) for request in own)
                for client, own in zip(clients, requests, strict=True)
            ]
            while any(unsent):
                turn = chance.choice([number for number, rest in enumerate(unsent) if rest])
                size = chance.choice([1, 4, 700, 5_000, 70_000])
                clients[turn].writer.write(unsent[turn][:size])
                unsent[turn] = unsent[turn][size:]
                await asyncio.sleep(0)
            for client, own in zip(clients, requests, strict=True):
                expected = b"".join(b"<" + request + b">" for request in own)
                assert await client.read(len(expected)) == expected
                client.writer.close()

    asyncio.run(main())


LONE = LONE_FRAME_BYTES_MAX - 4
"""The largest request that is received alone into the buffer that connections share."""


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_what_follows_a_request_that_came_alone_is_handled(
    authority: CertificateAuthority, properties: dict[str, str], version: str
) -> None:
    chance = random.Random(13)
    sizes = [
        [5],
        [5],
        [5, 6],
        [5],
        [LONE - 1],
        [LONE],
        [LONE + 1],
        [5],
        [5],
        [5, 40_000],
        [5],
        [5],
        [LONE, LONE, 5],
        [5],
    ]
    arrivals = [[chance.randbytes(size) for size in of_client] for of_client in sizes]

    async def main() -> None:
        async with listening(lambda frame, _: [b"<", bytes(frame), b">"], properties) as (_, port):
            client = MemoryClient(client_context(authority, version))
            await client.connect(port)
            async with asyncio.timeout(20):
                for requests in arrivals:
                    client.writer.write(b"".join(client.encrypted(framed(request)) for request in requests))
                    expected = b"".join(b"<" + request + b">" for request in requests)
                    assert await client.read(len(expected)) == expected
                last = client.encrypted(framed(b"last"))
                with contextlib.suppress(ssl.SSLWantReadError):
                    client.tls.unwrap()
                client.writer.write(last + client.outgoing.read())  # The end of TLS, and not that of the socket.
                assert await client.read(6) == b"<last>"
                await ended(client.reader)
            client.writer.close()

    asyncio.run(main())


def test_a_request_before_a_damaged_record_is_handled(
    authority: CertificateAuthority, properties: dict[str, str]
) -> None:
    handled: list[bytes] = []

    def handle(frame: memoryview, _: Peer) -> Reply:
        handled.append(bytes(frame))
        return None

    async def main() -> None:
        async with listening(handle, properties) as (acceptor, port):
            client = MemoryClient(client_context(authority))
            await client.connect(port)
            good, damaged = client.encrypted(framed(b"valid")), bytearray(client.encrypted(framed(b"damaged")))
            damaged[-1] ^= 1
            client.writer.write(good + damaged)
            with pytest.raises(ssl.SSLError, match="BAD_RECORD_MAC"):
                await client.read(1)
            await until(lambda: acceptor.connection_count == 0)
            client.writer.close()

    asyncio.run(main())
    assert handled == [b"valid"]


@contextlib.contextmanager
def open_pair(
    authority: CertificateAuthority, version: ssl.TLSVersion
) -> Iterator[tuple[TlsStream, socket.socket, Callable[[bytes], bytes]]]:
    """A stream after its handshake, the socket of its client, and a function that encrypts in one record."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(authority.issue("server").pem)
    context = client_context(authority)
    context.minimum_version = context.maximum_version = version
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(received, sent, server_hostname="127.0.0.1")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        stream = TlsStream(ours, server)
        for _ in range(4):
            with contextlib.suppress(ssl.SSLWantReadError):
                client.do_handshake()
            theirs.sendall(sent.read())
            with contextlib.suppress(ssl.SSLWantReadError):
                stream.handshake()
            with contextlib.suppress(BlockingIOError):
                received.write(theirs.recv(1 << 16))

        def encrypted(data: bytes) -> bytes:
            client.write(data)
            return sent.read()

        yield stream, theirs, encrypted


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_records_of_any_size_arrive_in_pieces_of_any_size(
    authority: CertificateAuthority, version: ssl.TLSVersion
) -> None:
    chance = random.Random(version)
    plain = [chance.randbytes(chance.choice([1, 2, 5, 100, 1 << 14])) for _ in range(600)]
    with open_pair(authority, version) as (stream, theirs, encrypted):
        wire = b"".join(map(encrypted, plain))
        decrypted = bytearray()
        while len(decrypted) < sum(map(len, plain)):
            with contextlib.suppress(BlockingIOError):
                wire = wire[theirs.send(wire[: chance.choice([1, 3, 7, 100, 50_000])]) :]
            buffer = memoryview(bytearray(chance.choice([10, 1_000, 1 << 18])))
            with contextlib.suppress(BlockingIOError):
                while True:
                    decrypted += buffer[: stream.recv_into(buffer)]
        assert decrypted == b"".join(plain)


def test_few_records_are_decrypted_in_a_row(authority: CertificateAuthority) -> None:
    """A client that changed its keys with each record held the event loop for 270 ms with each 256 KB."""
    count = 3 * TLS_RECORDS_MAX
    with open_pair(authority, ssl.TLSVersion.TLSv1_3) as (stream, theirs, encrypted):
        theirs.sendall(b"".join(encrypted(b"x") for _ in range(count)))
        buffer = memoryview(bytearray(1 << 18))
        sizes = [stream.recv_into(buffer)]
        while stream.has_pending:
            sizes.append(stream.recv_into(buffer))
        assert sizes == [TLS_RECORDS_MAX] * 3


def test_what_a_client_does_not_read_is_bounded(authority: CertificateAuthority) -> None:
    ours, theirs = socket.socketpair()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("server").pem)
    with ours, theirs:
        ours.setblocking(False)
        stream = TlsStream(ours, context)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            connected = pool.submit(client_context(authority).wrap_socket, theirs, server_hostname="127.0.0.1")
            while True:
                try:
                    stream.handshake()
                    break
                except ssl.SSLWantReadError:
                    select.select([ours], [], [], 60)
        piece = memoryview(bytes(TLS_UNSENT_BYTES_MAX // 2))
        while stream.send(piece):
            pass
        assert 0 < stream.unsent_bytes <= len(piece) + 8 * 22  # A record of 16 KiB has 22 more bytes.
        stream.send(piece)
        with pytest.raises(ConnectionAbortedError):
            stream.send(piece)
        connected.result().close()


def test_the_principal_is_the_mapped_name_of_the_client_certificate(
    authority: CertificateAuthority, properties: dict[str, str]
) -> None:
    peers: list[Peer] = []

    def handle(_: memoryview, peer: Peer) -> Reply:
        peers.append(peer)
        return [b"ok"]

    async def main() -> None:
        alice = client_context(authority)
        alice.load_cert_chain(authority.issue("alice").pem)
        async with listening(handle, properties) as (acceptor, port):
            for context in (alice, client_context(authority)):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
                writer.write(framed(b"who"))
                assert await reader.readexactly(2) == b"ok"
                writer.close()
            await until(lambda: acceptor.connection_count == 0)

    asyncio.run(main())
    assert [(peer.principal, peer.security_protocol, peer.listener) for peer in peers] == [
        ("User:alice", "SSL", "SECURE"),
        ("User:ANONYMOUS", "SSL", "SECURE"),
    ]


class _FailingCertificates(ListenerCertificates):
    def principal(self, listener: str, certificate: bytes | None) -> str:
        raise RuntimeError("a bug")


def test_an_unexpected_failure_closes_its_own_connection(
    authority: CertificateAuthority, properties: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with listening(lambda *_: [b"ok"], properties, listener_certificates=_FailingCertificates) as (_, port):
            for _ in range(2):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_context(authority))
                await ended(reader)
                writer.close()

    asyncio.run(main())
    unexpected = [record for record in caplog.records if "failed unexpectedly" in record.getMessage()]
    assert [record.exc_info is not None for record in unexpected] == [True, True]


def test_a_client_with_a_long_chain_of_certificates_is_refused_before_they_are_read(
    authority: CertificateAuthority, properties: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """OpenSSL takes 0.1 ms to read each one, before it knows whether the client is trusted."""
    client = authority.issue("client")
    long = tmp_path / "long.pem"
    long.write_text(client.key_text + client.certificate_text * 40)

    async def main() -> None:
        context = client_context(authority)
        context.load_cert_chain(long)
        async with listening(lambda *_: [b"ok"], properties) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            await ended(reader)
            writer.close()

    assert len(client.certificate_text) * 40 * 3 / 4 > TLS_HANDSHAKE_BYTES_MAX
    with caplog.at_level("INFO"):
        asyncio.run(main())
    assert f"reason=more than {TLS_HANDSHAKE_BYTES_MAX} bytes in the handshake" in caplog.text


def test_handshakes_end_when_each_iteration_has_time_for_one_step(
    authority: CertificateAuthority, properties: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "TLS_HANDSHAKES_MS_MAX", 0)

    async def main() -> None:
        async with listening(lambda *_: [b"ok"], properties) as (_, port):
            context = client_context(authority)
            opening = (asyncio.open_connection("127.0.0.1", port, ssl=context) for _ in range(20))
            for reader, writer in await asyncio.gather(*opening):
                writer.write(framed(b"who"))
                assert await reader.readexactly(2) == b"ok"
                writer.close()

    asyncio.run(main())


def test_a_certificate_without_a_mapping_rule_is_refused(
    authority: CertificateAuthority, properties: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        context = client_context(authority)
        context.load_cert_chain(authority.issue("mallory").pem)
        rules = {**properties, "ssl.principal.mapping.rules": "RULE:^CN=alice,.*$/alice/"}
        async with listening(lambda *_: [b"ok"], rules) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            assert await reader.read() == b""
            writer.close()

    with caplog.at_level("INFO"):
        asyncio.run(main())
    assert "no rule of ssl.principal.mapping.rules applies to CN=mallory,OU=kctl,O=Tests" in caplog.text


def test_plaintext_and_old_versions_on_a_tls_listener_are_refused(
    authority: CertificateAuthority, properties: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with listening(lambda *_: [b"ok"], properties) as (acceptor, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(framed(b"a request without TLS"))
            await ended(reader)
            writer.close()
            old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
            old.set_ciphers("ALL:@SECLEVEL=0")
            old.options &= ~(ssl.OP_NO_TLSv1 | ssl.OP_NO_TLSv1_1)
            with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
                old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await asyncio.open_connection("127.0.0.1", port, ssl=old)
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_context(authority))
            writer.write(framed(b"x"))
            assert await reader.readexactly(2) == b"ok"
            assert acceptor.connection_count == 1
            writer.close()

    with caplog.at_level("INFO"):
        asyncio.run(main())
    assert (
        "TLS handshake failed, closing connection listener=SECURE peer=/127.0.0.1 reason=unsupported protocol"
        in caplog.text
    )


@pytest.mark.long
def test_a_client_of_tls_1_3_with_a_refused_certificate_always_reads_the_alert(
    authority: CertificateAuthority, properties: dict[str, str], tmp_path: Path
) -> None:
    unauthenticated = CertificateAuthority.create(tmp_path).issue("mallory")
    context = client_context(authority)
    context.load_cert_chain(unauthenticated.pem)
    required = {**properties, "listener.name.secure.ssl.client.auth": "required"}
    limits = ConnectionLimits()

    def reason(port: int) -> str:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as raw:
            try:
                with context.wrap_socket(raw, server_hostname="127.0.0.1") as client:
                    client.sendall(bytes(16_000))
                    client.sendall(bytes(16_000))
                    return f"received {client.recv(1)!r}"
            except ssl.SSLError as error:
                return str(error.reason)
            except OSError as error:
                return repr(error)

    async def main() -> None:
        async with listening(lambda *_: [b"ok"], required, limits=limits) as (_, port):
            reasons = [await asyncio.to_thread(reason, port) for _ in range(100)]
            assert set(reasons) == {"TLSV1_ALERT_UNKNOWN_CA"}
            await until(lambda: limits.count == 0)

    asyncio.run(main())


def test_a_refused_client_that_keeps_sending_or_stays_open_is_closed(
    authority: CertificateAuthority, properties: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "TLS_REFUSED_MS_MAX", 200)
    required = {**properties, "listener.name.secure.ssl.client.auth": "required"}
    limits = ConnectionLimits()

    async def main() -> None:
        async with listening(lambda *_: [b"ok"], required, limits=limits) as (_, port):
            _, silent = await asyncio.open_connection("127.0.0.1", port)
            _, sending = await asyncio.open_connection("127.0.0.1", port)
            silent.write(b"x" * 100)
            sending.write(b"x" * (1 << 20))
            await until(lambda: limits.count == 0)
            for writer in (silent, sending):
                writer.close()

    asyncio.run(main())


@pytest.mark.long
def test_the_oldest_handshake_makes_room_and_all_end_at_the_deadline(
    authority: CertificateAuthority, properties: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "TLS_HANDSHAKES_MAX", 3)
    monkeypatch.setattr(handshakes, "TLS_HANDSHAKE_TIMEOUT_MS", 1500)
    limits = ConnectionLimits()

    async def main() -> None:
        async with listening(lambda *_: [b"ok"], properties, limits=limits) as (_, port):
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
            for _, writer in silent[1:]:
                writer.write(b"\x16\x03\x01")
            await ended(silent[0][0])
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_context(authority))
            writer.write(framed(b"x"))
            assert await reader.readexactly(2) == b"ok"
            for late, _ in silent[1:]:
                await ended(late)
            await until(lambda: limits.count == 1)
            for _, opened in (*silent, (reader, writer)):
                opened.close()
            await until(lambda: limits.count == 0)

    asyncio.run(main())


def test_certificates_are_replaced_while_connections_are_open(
    authority: CertificateAuthority, properties: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = tmp_path / "server.pem"
    first, second = authority.issue("first"), authority.issue("second")
    store.write_bytes(first.pem.read_bytes())
    given = {
        **{name: text for name, text in properties.items() if "keystore" not in name},
        "ssl.keystore.location": str(store),
    }

    async def subject(port: int) -> str:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_context(authority))
        certificate = writer.get_extra_info("peercert")
        writer.close()
        return str(dict(entry[0] for entry in certificate["subject"])["commonName"])

    async def main() -> None:
        view = ConfigView(given)
        certificates = ListenerCertificates(view)
        await certificates.load([ENDPOINT])
        acceptor = Acceptor(
            open_channel=partial(DirectChannel, lambda *_: [b"ok"], frame_bytes_max=100),
            settings=ListenSettings(tls=certificates),
        )
        port = acceptor.bind(ENDPOINT).port
        acceptor.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_context(authority))
        assert await subject(port) == "first"
        context = certificates.context("SECURE")
        store.write_bytes(b"not a key store")
        certificates.check_files()
        await until(lambda: "cannot load certificates" in caplog.text)
        assert certificates.context("SECURE") is context
        store.write_bytes(second.pem.read_bytes())
        certificates.check_files()
        await until(lambda: certificates.context("SECURE") is not context)
        assert await subject(port) == "second"
        view.set_dynamic_broker({"listener.name.secure.ssl.keystore.location": str(first.pem)})
        context = certificates.context("SECURE")
        await until(lambda: certificates.context("SECURE") is not context)
        assert await subject(port) == "first"
        writer.write(framed(b"x"))
        assert await reader.readexactly(2) == b"ok"
        writer.close()
        acceptor.close()
        await certificates.close()

    asyncio.run(main())


KEY_STORE = "listener.name.secure.ssl.keystore.location"


@pytest.mark.parametrize("store", ["/none/store", "/none\0/store", "/none\ud800"])
def test_a_broker_starts_with_its_static_certificate_when_the_stored_one_cannot_be_used(
    properties: dict[str, str], store: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        view = ConfigView(properties)
        view.set_dynamic_broker({KEY_STORE: store})
        certificates = ListenerCertificates(view)
        await certificates.load([ENDPOINT])
        context = certificates.context("SECURE")
        for threads in range(1, 4):
            view.set_dynamic_broker({KEY_STORE: store, "log.cleaner.threads": f"{threads}"})
            certificates.check_files()
            await until(lambda: certificates._reloading is None)
        assert certificates.context("SECURE") is context
        with pytest.raises(ApiError, match=r"ssl.keystore.location=/none") as caught:
            await view.validate({KEY_STORE: f"{store}-other"}, per_broker=True)
        assert caught.value.code is ErrorCode.INVALID_REQUEST
        await view.validate({KEY_STORE: store, "log.cleaner.threads": "2"}, per_broker=True)
        await certificates.close()

    asyncio.run(main())
    assert caplog.text.count("cannot load certificates, the old ones stay in use") == 1


def test_a_listener_without_a_usable_certificate_refuses_connections_until_it_has_one(
    authority: CertificateAuthority, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        view = ConfigView({})
        view.set_dynamic_broker({KEY_STORE: "/none/store"})
        certificates = ListenerCertificates(view)
        await certificates.load([ENDPOINT])
        acceptor = Acceptor(
            open_channel=partial(DirectChannel, lambda *_: [b"ok"], frame_bytes_max=100),
            settings=ListenSettings(tls=certificates),
        )
        port = acceptor.bind(ENDPOINT).port
        acceptor.start()
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", port, ssl=client_context(authority))
        view.set_dynamic_broker({KEY_STORE: str(authority.issue("server").pem)})
        await until(lambda: "loaded certificates" in caplog.text)
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_context(authority))
        writer.close()
        acceptor.close()
        await certificates.close()

    with caplog.at_level("INFO"):
        asyncio.run(main())
    assert caplog.text.count("refusing all connections") == 1


def test_an_unusable_static_certificate_stops_the_start() -> None:
    async def main() -> None:
        view = ConfigView({"ssl.keystore.location": "/none/store"})
        view.set_dynamic_broker({"log.cleaner.threads": "2"})
        with pytest.raises(ConfigError, match="/none/store"):
            await ListenerCertificates(view).load([ENDPOINT])

    asyncio.run(main())


def test_a_certificate_without_a_name_is_refused(
    authority: CertificateAuthority, properties: dict[str, str], tmp_path: Path
) -> None:
    nameless = authority.issue("nameless", subject=x509.Name([])).certificate.public_bytes(Encoding.DER)
    mapped_to_nothing = authority.issue("alice").certificate.public_bytes(Encoding.DER)

    async def main() -> None:
        for rules, certificate in (("DEFAULT", nameless), ("RULE:^CN=.*$//", mapped_to_nothing)):
            certificates = ListenerCertificates(ConfigView({**properties, "ssl.principal.mapping.rules": rules}))
            await certificates.load([ENDPOINT])
            with pytest.raises(KctlError, match="is empty"):
                certificates.principal("SECURE", certificate)
            await certificates.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("name", "is_required"), [("ssl.client.auth", False), ("listener.name.x.ssl.client.auth", True)]
)
def test_a_sasl_listener_requires_certificates_only_by_a_property_of_its_own(
    properties: dict[str, str], name: str, *, is_required: bool
) -> None:
    async def main() -> ssl.VerifyMode:
        certificates = ListenerCertificates(ConfigView({**properties, name: "required"}))
        await certificates.load([Endpoint("X", "127.0.0.1", 0, "SASL_SSL")])
        mode = certificates.context("X").verify_mode
        await certificates.close()
        return mode

    assert asyncio.run(main()) == (ssl.CERT_REQUIRED if is_required else ssl.CERT_NONE)


def test_an_address_above_its_limit_is_refused_before_tls(
    authority: CertificateAuthority, properties: dict[str, str]
) -> None:
    limits = ConnectionLimits(LimitSettings(connections_per_address=1))

    async def main() -> None:
        async with listening(lambda *_: [b"ok"], properties, limits=limits) as (_, port):
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_context(authority))
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await asyncio.open_connection("127.0.0.1", port, ssl=client_context(authority))
            writer.close()
            await until(lambda: limits.count == 0)
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_context(authority))
            writer.close()

    asyncio.run(main())


def test_reading_stops_at_the_budget_of_request_bytes_and_goes_on_later(
    authority: CertificateAuthority, properties: dict[str, str]
) -> None:
    large = framed(os.urandom(1 << 20))

    async def main() -> None:
        handled: list[int] = []

        def handle(frame: memoryview, _: Peer) -> Reply:
            handled.append(len(frame))
            return [b"ok"]

        async with listening(handle, properties, request_bytes_max=200_000) as (acceptor, port):
            slow_reader, slow = await asyncio.open_connection("127.0.0.1", port, ssl=client_context(authority))
            slow.write(large[:300_000])
            await slow.drain()
            other_reader, other = await asyncio.open_connection("127.0.0.1", port, ssl=client_context(authority))
            await until(lambda: acceptor._buffers.reserved_bytes > 0)
            other.write(framed(b"small"))
            await until(lambda: len(acceptor._buffers._waiting) == 1)
            assert handled == []
            slow.write(large[300_000:])
            assert await slow_reader.readexactly(2) == b"ok"
            assert await other_reader.readexactly(2) == b"ok"
            assert handled == [1 << 20, 5]
            slow.close()
            other.close()

    asyncio.run(main())


def test_a_peer_that_disappears_after_the_handshake_costs_nothing(
    authority: CertificateAuthority, properties: dict[str, str]
) -> None:
    async def main() -> None:
        limits = ConnectionLimits()
        async with listening(lambda *_: [b"x" * (4 << 20)], properties, limits=limits) as (acceptor, port):
            loop = asyncio.get_running_loop()

            def request_and_disconnect() -> None:
                with socket.create_connection(("127.0.0.1", port)) as sock:
                    tls = client_context(authority).wrap_socket(sock, server_hostname="127.0.0.1")
                    tls.sendall(framed(b"give"))
                    tls.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    tls.close()

            await loop.run_in_executor(None, request_and_disconnect)
            await until(lambda: limits.count == 0)
            assert acceptor.connection_count == 0

    asyncio.run(main())
