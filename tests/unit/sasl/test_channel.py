"""A SASL channel with encoded frames: responses, limits, delays, secrets, and frames of unauthenticated clients."""

from __future__ import annotations

import asyncio
import base64
import gc
import logging
import struct
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.errors import ErrorCode
from kctl.protocol import codec
from kctl.protocol.apis.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kctl.protocol.apis.metadata import MetadataRequest
from kctl.protocol.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kctl.protocol.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kctl.protocol.definition import definition_of
from kctl.protocol.headers import RequestHeader, decode_response_header, encode_request_header
from kctl.security.scram import Mechanism, ScramClient, ScramServer, credential_of_password, credential_text
from kctl.server.handlers.api_versions import ApiVersionsHandler
from kctl.server.network.connections.channel import ChannelEnded, Reply
from kctl.server.requests.context import Peer, RequestContext
from kctl.server.security.sasl.channel import SaslChannel, SaslListener
from kctl.server.security.sasl.exchanges import OpenExchange, PlainExchange, ScramExchange
from kctl.server.security.sasl.scram_credentials import ScramCredentials
from kctl.server.security.tokens.token import DelegationToken
from kctl.server.security.tokens.token_cache import TokenCache
from kctl.testing.sim_loop import SimLoop, simulate
from tests.property.examples import examples
from tests.rows import for_rows
from tests.unit.log_lines import written_lines
from tests.unit.server.quota_free import quota_free_dispatcher

FRAME_MAX, UNAUTHENTICATED_MAX, DELAY_MS = 1 << 20, 1 << 12, 100
PASSWORD = "correct-horse"
HOUR_MS = 3_600_000


class Server:
    """A listener with PLAIN and SCRAM, and one client."""

    def __init__(self, loop: SimLoop, *, max_reauth_ms: int = 0) -> None:
        self.loop = loop
        self.peers: list[Peer] = []
        self.expired_sessions = 0
        self.credentials = ScramCredentials()
        self.tokens = TokenCache("the secret key")
        dispatcher = quota_free_dispatcher()
        dispatcher.register(
            "api_versions", ApiVersionsHandler(lambda: [ApiVersion(api_key=18, min_version=0, max_version=3)]).handle
        )
        dispatcher.register("metadata", self._seen)
        names = ["PLAIN", *(mechanism.config_key for mechanism in Mechanism)]
        self.listener = SaslListener(
            name="SASL",
            security_protocol="SASL_PLAINTEXT",
            mechanisms={
                "PLAIN": lambda: PlainExchange({"alice": PASSWORD}),
                **{mechanism.config_key: self._scram(mechanism) for mechanism in Mechanism},
            },
            max_reauth_ms=dict.fromkeys(names, max_reauth_ms),
            unauthenticated_bytes_max=UNAUTHENTICATED_MAX,
            request_bytes_max=FRAME_MAX,
            failure_delay_ms=DELAY_MS,
            monotonic_ms=self.now_ms,
            session_expired=self._session_expired,
        )
        self.channel = SaslChannel(lambda: self.listener, dispatcher.handle, Peer("/10.0.0.1", "SASL"))

    def _session_expired(self) -> None:
        self.expired_sessions += 1

    def now_ms(self) -> int:
        return round(self.loop.time() * 1000)

    def _scram(self, mechanism: Mechanism) -> Callable[[], ScramExchange]:
        return lambda: ScramExchange(mechanism, credentials=self.credentials, tokens=self.tokens, now_ms=self.now_ms)

    def _seen(self, _request: MetadataRequest, context: RequestContext) -> None:
        self.peers.append(context.peer)

    async def send(self, request: Any, version: int) -> bytes | None:
        """The response to a request, without its length."""
        key = definition_of(type(request)).key
        assert key is not None
        header = encode_request_header(RequestHeader(key, version, 7, "client"))
        return await self.frame(header + b"".join(map(bytes, codec.encode(request, version))))

    async def frame(self, frame: bytes) -> bytes | None:
        reply = self.channel.handle(memoryview(frame))
        return _bytes(await reply if isinstance(reply, asyncio.Future) else reply)

    async def handshake(self, mechanism: str, version: int = 1) -> SaslHandshakeResponse:
        result = await self.send(SaslHandshakeRequest(mechanism=mechanism), version)
        response: SaslHandshakeResponse = _decoded(SaslHandshakeResponse, 17, version, result)
        return response

    async def authenticate(self, token: bytes, version: int = 2) -> SaslAuthenticateResponse:
        result = await self.send(SaslAuthenticateRequest(auth_bytes=token), version)
        response: SaslAuthenticateResponse = _decoded(SaslAuthenticateResponse, 36, version, result)
        return response

    async def refused(self, wait: Awaitable[object]) -> bytes | None:
        """The bytes that are sent before the connection is closed."""
        with pytest.raises(ChannelEnded) as ended:
            await wait
        return _bytes(ended.value.last)

    async def set_user(self, name: str, password: str) -> None:
        config = {
            mechanism.config_key: credential_text(
                credential_of_password(mechanism, password, salt=b"salt", iterations=4096)
            )
            for mechanism in Mechanism
        }
        await self.credentials.change(f"users/{name}", config)

    async def scram(self, user: str, password: str, *, is_token: bool = False) -> SaslAuthenticateResponse:
        client = ScramClient(
            Mechanism.SCRAM_SHA_256, user=user, password=password, nonce="client-nonce", is_token=is_token
        )
        await self.handshake("SCRAM-SHA-256")
        first = await self.authenticate(client.first())
        final = client.respond(first.auth_bytes)
        assert final is not None
        last = await self.authenticate(final)
        assert client.respond(last.auth_bytes) is None
        return last


def _bytes(reply: Reply) -> bytes | None:
    return None if reply is None else b"".join(map(bytes, reply))  # type: ignore[arg-type]  # no file slices here


def _decoded(cls: type, key: int, version: int, result: bytes | None) -> Any:
    assert result is not None
    (size,) = struct.unpack_from(">i", result)
    assert size == len(result) - 4
    _, offset = decode_response_header(result[4:], key, version)
    return codec.decode(cls, memoryview(result)[4:], version, offset)[0]


def play(scene: Callable[[Server], Awaitable[None]], *, max_reauth_ms: int = 0) -> None:
    async def main(loop: SimLoop) -> None:
        await scene(Server(loop, max_reauth_ms=max_reauth_ms))

    simulate(main, seed=1)


METADATA = MetadataRequest(topics=None)


def test_a_client_authenticates_and_its_requests_carry_its_principal() -> None:
    async def scene(server: Server) -> None:
        versions = await server.send(ApiVersionsRequest(client_software_name="c", client_software_version="1"), 3)
        assert _decoded(ApiVersionsResponse, 18, 3, versions).error_code == ErrorCode.NONE
        assert server.channel.frame_bytes_max == UNAUTHENTICATED_MAX
        shaken = await server.handshake("PLAIN")
        assert (shaken.error_code, shaken.mechanisms) == (0, ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
        result = await server.authenticate(b"\0alice\0" + PASSWORD.encode())
        assert (result.error_code, result.auth_bytes, result.session_lifetime_ms) == (0, b"", 0)
        assert server.channel.frame_bytes_max == FRAME_MAX
        await server.send(METADATA, 1)
        peer = Peer("/10.0.0.1", "SASL", "User:alice", "SASL_PLAINTEXT")
        assert server.peers == [peer]

    play(scene)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_every_version_of_sasl_authenticate(version: int) -> None:
    async def scene(server: Server) -> None:
        await server.handshake("PLAIN")
        result = await server.authenticate(b"alice\0alice\0" + PASSWORD.encode(), version)
        assert result.session_lifetime_ms == (HOUR_MS if version else 0)

    play(scene, max_reauth_ms=HOUR_MS)


def test_after_handshake_version_0_tokens_are_frames() -> None:
    async def scene(server: Server) -> None:
        await server.handshake("PLAIN", 0)
        assert await server.frame(b"\0alice\0" + PASSWORD.encode()) == struct.pack(">i", 0)
        await server.send(METADATA, 1)
        assert [peer.principal for peer in server.peers] == ["User:alice"]

    play(scene)


def test_after_handshake_version_0_a_failure_closes_without_a_response() -> None:
    async def scene(server: Server) -> None:
        await server.handshake("PLAIN", 0)
        assert await server.refused(server.frame(b"\0alice\0wrong")) is None

    play(scene)


@for_rows(
    "token, message",
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0mallory\0" + PASSWORD.encode(), "Authentication failed: Invalid username or password"),
        (
            b"admin\0alice\0" + PASSWORD.encode(),
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
        (b"\0\0x", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0a\0b\0c", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0" * 1000, "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\xff\0\xff\0\xff", "Authentication failed: Invalid username or password"),
    ],
)
def test_a_failure_gets_kafkas_text_after_the_delay(token: bytes, message: str) -> None:
    """CVE-2017-12610: one user authenticated, and another one was authorized."""

    async def scene(server: Server) -> None:
        await server.handshake("PLAIN")
        start_ms = server.now_ms()
        result = await server.refused(server.authenticate(token))
        assert server.now_ms() - start_ms == DELAY_MS
        response = _decoded(SaslAuthenticateResponse, 36, 2, result)
        assert (response.error_code, response.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, message)
        assert server.peers == []

    play(scene)


def test_an_unsupported_mechanism_gets_those_of_the_listener() -> None:
    async def scene(server: Server) -> None:
        result = await server.refused(server.handshake("GSSAPI"))
        response = _decoded(SaslHandshakeResponse, 17, 1, result)
        assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert response.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]

    play(scene)


def test_other_requests_are_not_even_decoded_before_authentication() -> None:
    async def scene(server: Server) -> None:
        assert await server.refused(server.frame(struct.pack(">hhi", 3, 9, 1) + b"\xff" * 100)) is None
        assert server.peers == []

    play(scene)


def test_a_second_handshake_gets_an_error() -> None:
    async def scene(server: Server) -> None:
        await server.handshake("PLAIN")
        result = await server.refused(server.handshake("PLAIN"))
        response = _decoded(SaslHandshakeResponse, 17, 1, result)
        assert (response.error_code, response.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])

    play(scene)


def test_scram_for_another_user_gets_kafkas_text() -> None:
    async def scene(server: Server) -> None:
        await server.handshake("SCRAM-SHA-256")
        result = await server.refused(server.authenticate(b"n,a=admin,n=alice,r=nonce"))
        response = _decoded(SaslAuthenticateResponse, 36, 2, result)
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert response.error_message == (
            "Authentication failed: Client requested an authorization id that is different from username"
        )

    play(scene)


def test_scram_with_a_user_and_without() -> None:
    async def scene(server: Server) -> None:
        await server.set_user("bob", "s")
        await server.scram("bob", "s")
        await server.send(METADATA, 1)
        assert server.peers[0].principal == "User:bob"
        assert not server.peers[0].is_token_authenticated

    play(scene)


def test_scram_does_not_distinguish_an_unknown_user_from_a_wrong_password() -> None:
    responses: list[bytes | None] = []

    async def scene(server: Server, user: str) -> None:
        await server.set_user("bob", "s")
        responses.append(await server.refused(server.scram(user, "wrong")))

    play(lambda server: scene(server, "bob"))
    play(lambda server: scene(server, "nobody"))
    assert responses[0] == responses[1]
    response = _decoded(SaslAuthenticateResponse, 36, 2, responses[0])
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_delegation_token_gives_the_principal_of_its_owner_until_it_expires() -> None:
    async def scene(server: Server) -> None:
        token = DelegationToken("id", "User:owner", (), 0, 10 * HOUR_MS, server.now_ms() + HOUR_MS)
        server.tokens.put(token)
        password = base64.b64encode(server.tokens.hmac("id")).decode()
        result = await server.scram("id", password, is_token=True)
        assert 0 < result.session_lifetime_ms <= HOUR_MS
        await server.send(METADATA, 1)
        assert (server.peers[0].principal, server.peers[0].is_token_authenticated) == ("User:owner", True)

    play(scene)


def test_an_expired_delegation_token_is_refused() -> None:
    async def scene(server: Server) -> None:
        await asyncio.sleep(10)
        server.tokens.put(DelegationToken("id", "User:owner", (), 0, HOUR_MS, 5_000))
        password = base64.b64encode(server.tokens.hmac("id")).decode()
        await server.refused(server.scram("id", password, is_token=True))

    play(scene)


@pytest.mark.parametrize("as_token", [False, True])
def test_a_token_id_is_no_user_name_and_a_user_no_token(as_token: bool) -> None:
    """With the right passwords: a token authenticates as a token only, and a user as a user only."""

    async def scene(server: Server) -> None:
        await server.set_user("bob", "s")
        server.tokens.put(DelegationToken("id", "User:owner", (), 0, 10 * HOUR_MS, HOUR_MS))
        password = base64.b64encode(server.tokens.hmac("id")).decode()
        name, password = ("bob", "s") if as_token else ("id", password)
        response = await server.refused(server.scram(name, password, is_token=as_token))
        decoded = _decoded(SaslAuthenticateResponse, 36, 2, response)
        assert decoded.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED

    play(scene)


def test_the_limit_of_a_frame_shrinks_while_the_client_authenticates_again() -> None:
    async def scene(server: Server) -> None:
        await server.handshake("PLAIN")
        await server.authenticate(b"\0alice\0" + PASSWORD.encode())
        await asyncio.sleep(10)
        await server.handshake("PLAIN")
        assert server.channel.frame_bytes_max == UNAUTHENTICATED_MAX
        result = await server.authenticate(b"\0alice\0" + PASSWORD.encode())
        assert (result.session_lifetime_ms, server.channel.frame_bytes_max) == (HOUR_MS, FRAME_MAX)
        await asyncio.sleep(HOUR_MS / 1000 + 1)
        assert await server.refused(server.send(METADATA, 1)) is None
        assert await server.refused(server.send(METADATA, 1)) is None
        assert server.expired_sessions == 1

    play(scene, max_reauth_ms=HOUR_MS)


@pytest.mark.parametrize(
    ("mechanisms", "code"),
    [
        ({"PLAIN": lambda: PlainExchange({"bob": PASSWORD})}, ErrorCode.SASL_AUTHENTICATION_FAILED),
        ({"OTHER": lambda: PlainExchange({"alice": PASSWORD})}, ErrorCode.UNSUPPORTED_SASL_MECHANISM),
    ],
    ids=["user", "mechanism"],
)
def test_what_was_removed_from_the_listener_does_not_authenticate_again(
    mechanisms: dict[str, OpenExchange], code: ErrorCode
) -> None:
    """KIP-368: otherwise a user would keep access for as long as its connection."""

    async def scene(server: Server) -> None:
        await server.handshake("PLAIN")
        await server.authenticate(b"\0alice\0" + PASSWORD.encode())
        server.listener = replace(server.listener, mechanisms=mechanisms)
        await asyncio.sleep(10)
        assert await server.send(METADATA, 1) is None
        if code is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            response = await server.refused(server.handshake("PLAIN"))
            assert _decoded(SaslHandshakeResponse, 17, 1, response).error_code == code
        else:
            await server.handshake("PLAIN")
            response = await server.refused(server.authenticate(b"\0alice\0" + PASSWORD.encode()))
            assert _decoded(SaslAuthenticateResponse, 36, 2, response).error_code == code

    play(scene, max_reauth_ms=HOUR_MS)


def test_closing_the_connection_cancels_the_delay() -> None:
    async def scene(server: Server) -> None:
        await server.handshake("PLAIN")
        waiting = asyncio.ensure_future(server.authenticate(b"\0alice\0wrong"))
        await asyncio.sleep(DELAY_MS / 2000)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    play(scene)


def test_failures_are_logged_without_secrets_and_folded(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(server: Server) -> None:
        listener, dispatch = server.listener, server.channel._dispatch
        for _ in range(50):
            server.channel = SaslChannel(lambda: listener, dispatch, Peer("/10.0.0.1", "SASL"))
            await server.handshake("PLAIN")
            await server.refused(server.authenticate(b"\0alice\0hunter2"))

    with caplog.at_level(logging.DEBUG):
        play(scene)
    failures = [record for record in caplog.records if "authentication failed" in record.getMessage()]
    assert len(failures) == 50
    lines = written_lines(failures)
    assert len(lines) == 2
    assert lines[1].endswith("repeated=49")
    assert all("hunter2" not in line and "alice" not in line for line in lines)


def _header(key: int, version: int) -> bytes:
    return struct.pack(">hhih", key, version, 1, -1)


FRAMES = st.one_of(
    st.binary(max_size=60),
    st.builds(
        lambda key, version, body: _header(key, version) + body,
        st.sampled_from([17, 18, 36, 0, 3, -1]),
        st.integers(-1, 4),
        st.binary(max_size=40),
    ),
    st.just(_header(17, 1) + b"\x00\x05PLAIN"),
    st.just(_header(17, 0) + b"\x00\x05PLAIN"),
    st.just(_header(17, 1) + b"\x00\x0dSCRAM-SHA-256"),
    st.builds(lambda token: _header(36, 1) + struct.pack(">i", len(token)) + token, st.binary(max_size=40)),
)


@examples(300)
@given(st.lists(FRAMES, min_size=1, max_size=6))
def test_unauthenticated_frames_get_a_response_or_end_the_connection(frames: list[bytes]) -> None:
    """No other exception, and no request of unauthenticated clients reaches a handler."""

    async def scene(server: Server) -> None:
        try:
            for frame in frames:
                await server.frame(frame)
        except ChannelEnded:
            pass
        assert server.peers == []

    play(scene)


async def _nothing(_: Server) -> None:
    pass


async def _handshake(server: Server) -> None:
    await server.handshake("PLAIN")


async def _first_message_of_scram(server: Server) -> None:
    await server.handshake("SCRAM-SHA-256")
    await server.authenticate(b"n,,n=bob,r=nonce")


async def _scram(server: Server) -> None:
    await server.scram("bob", "secret")


async def _plain(server: Server) -> None:
    await server.handshake("PLAIN")
    await server.authenticate(b"\0alice\0" + PASSWORD.encode())


@pytest.mark.long
@for_rows("begin", [_nothing, _handshake, _first_message_of_scram, _scram, _plain])
@for_rows("max_reauth_ms", [0, HOUR_MS])
def test_a_connection_that_has_ended_leaves_no_reference_cycle(
    begin: Callable[[Server], Awaitable[None]], max_reauth_ms: int
) -> None:
    """Old objects in cycles are collected every few hours: strangers filled the memory with connections."""

    async def scene(server: Server) -> None:
        await server.set_user("bob", "secret")
        await begin(server)
        del server.channel
        kinds = SaslChannel | ScramExchange | PlainExchange | ScramServer
        assert [object_ for object_ in gc.get_objects() if isinstance(object_, kinds)] == []

    gc.collect()
    gc.freeze()  # only what the scene creates is examined
    gc.disable()
    try:
        play(scene, max_reauth_ms=max_reauth_ms)
    finally:
        gc.enable()
