"""Delegation tokens: the rules of Kafka's DelegationTokenManager, two brokers on one ensemble, and permissions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from kctl.errors import ApiError, ErrorCode
from kctl.server.requests.context import Peer
from kctl.server.security.tokens.token import (
    DelegationToken,
    TokenLifetimes,
    expired,
    new_token,
    renewed,
    require_authenticated,
    token_hmac,
)
from kctl.server.security.tokens.token_cache import TokenCache
from kctl.server.security.tokens.token_manager import TokenManager
from kctl.zookeeper import paths
from kctl.zookeeper.security_znodes import TokenZnode, decode_token, encode_token
from tests.rows import for_rows
from tests.unit.handlers.world import World, play

HOUR = 3_600_000
LIFETIMES = TokenLifetimes(max_ms=7 * 24 * HOUR, expiry_ms=24 * HOUR)
TOKEN = DelegationToken("id", "User:alice", ("User:bob",), 0, max_ms=100 * HOUR, expiry_ms=24 * HOUR)


def test_the_hmac_is_that_of_kafka() -> None:
    """HmacSHA512 of the id, with a well-known example of HMAC."""
    assert token_hmac("key", "The quick brown fox jumps over the lazy dog").hex() == (
        "b42af09057bac1e2d41708e48a902e09b5ff7f12ab428a4fe86653c73dd248fb"
        "82f948a549f7b791a5b41915ee4d1ec3935357e4e2317250d0372afa2ebeeb3a"
    )


@pytest.mark.parametrize(
    ("requested_ms", "max_ms", "expiry_ms"),
    [(-1, 168, 24), (0, 168, 24), (HOUR, 1, 1), (48 * HOUR, 48, 24), (1000 * HOUR, 168, 24)],
)
def test_lifetimes_of_a_new_token(requested_ms: int, max_ms: int, expiry_ms: int) -> None:
    token = new_token("id", owner="User:a", renewers=(), max_lifetime_ms=requested_ms, lifetimes=LIFETIMES, now_ms=HOUR)
    assert (token.max_ms, token.expiry_ms) == ((max_ms + 1) * HOUR, (expiry_ms + 1) * HOUR)


@pytest.mark.parametrize(
    ("principal", "period_ms", "now_h", "expiry_h"),
    [
        ("User:alice", -1, 10, 34),
        ("User:bob", -1, 10, 34),
        ("User:alice", HOUR, 10, 11),
        ("User:alice", 1000 * HOUR, 10, 100),
        ("User:alice", 0, 10, 10),
    ],
)
def test_renewal_extends_the_expiry_within_the_maximum(
    principal: str, period_ms: int, now_h: int, expiry_h: int
) -> None:
    changed = renewed(TOKEN, principal, period_ms=period_ms, lifetimes=LIFETIMES, now_ms=now_h * HOUR)
    assert changed == replace(TOKEN, expiry_ms=expiry_h * HOUR)


def code_of(change: Callable[[], object]) -> ErrorCode:
    with pytest.raises(ApiError) as raised:
        change()
    return raised.value.code


def test_changes_by_others_and_of_expired_tokens_are_refused() -> None:
    late_ms = 24 * HOUR + 1
    mismatch = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    gone = ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert code_of(lambda: renewed(TOKEN, "User:eve", period_ms=1, lifetimes=LIFETIMES, now_ms=0)) is mismatch
    assert code_of(lambda: renewed(TOKEN, "User:eve", period_ms=1, lifetimes=LIFETIMES, now_ms=late_ms)) is mismatch
    assert code_of(lambda: renewed(TOKEN, "User:alice", period_ms=1, lifetimes=LIFETIMES, now_ms=late_ms)) is gone
    assert code_of(lambda: expired(TOKEN, "User:eve", period_ms=-1, now_ms=0)) is mismatch
    assert code_of(lambda: expired(TOKEN, "User:alice", period_ms=1, now_ms=late_ms)) is gone


def test_expire_removes_the_token_or_sets_its_expiry() -> None:
    assert expired(TOKEN, "User:bob", period_ms=-1, now_ms=50 * HOUR) is None
    assert expired(TOKEN, "User:bob", period_ms=HOUR, now_ms=HOUR) == replace(TOKEN, expiry_ms=2 * HOUR)


@for_rows(
    "protocol, principal, is_token, is_allowed",
    [
        ("PLAINTEXT", "User:ANONYMOUS", False, False),
        ("SSL", "User:ANONYMOUS", False, False),
        ("SSL", "User:CN=a", False, True),
        ("SASL_PLAINTEXT", "User:a", False, True),
        ("SASL_SSL", "User:a", False, True),
        ("SASL_SSL", "User:a", True, False),
    ],
)
def test_which_clients_may_use_tokens(protocol: str, principal: str, is_token: bool, is_allowed: bool) -> None:
    peer = Peer("/10.0.0.1", "L", principal, protocol, is_token)
    if is_allowed:
        require_authenticated(peer)
    else:
        assert code_of(lambda: require_authenticated(peer)) is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def test_the_znode_is_that_of_kafka() -> None:
    """Version 1, which is the only one that 2.8 reads; principals are sanitized."""
    znode = TokenZnode("id", "User:al ice*", ("User:b,b",), 1, 3, 2)
    assert json.loads(encode_token(znode)) == {
        "version": 1,
        "owner": "User%3Aal%20ice%2A",
        "renewers": ["User%3Ab%2Cb"],
        "issueTimestamp": 1,
        "maxTimestamp": 3,
        "expiryTimestamp": 2,
        "tokenId": "id",
    }
    assert decode_token(paths.delegation_token("id"), encode_token(znode)) == znode


def test_a_znode_of_kafka_3_is_read() -> None:
    data = (
        b'{"version":3,"owner":"User%3Aalice","tokenRequester":"User%3Aadmin","renewers":[],"issueTimestamp":1,'
        b'"maxTimestamp":3,"expiryTimestamp":2,"tokenId":"id"}'
    )
    assert decode_token(paths.delegation_token("id"), data).owner == "User:alice"


@for_rows(
    "data",
    [
        b"",
        b"x",
        b"[]",
        b"{}",
        b'{"version":9}',
        encode_token(TokenZnode("other", "User:a", (), 1, 1, 1)),
        encode_token(TokenZnode("id", "alice", (), 1, 1, 1)),
        encode_token(TokenZnode("id", "User:a", ("x",), 1, 1, 1)),
    ],
)
def test_malformed_znodes_are_refused_with_their_path(data: bytes) -> None:
    with pytest.raises(ValueError, match="/delegation_token/tokens/id"):
        decode_token(paths.delegation_token("id"), data)


def manager(world: World, secret: str | None = "secret") -> TokenManager:
    return TokenManager(
        TokenCache(secret), world.zookeeper, lifetimes=LIFETIMES, clock=world.clock, random=world.random
    )


async def settled(is_true: Callable[[], bool]) -> None:
    for _ in range(1000):
        if is_true():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the condition did not become true")


Scene = Callable[[World, TokenManager], Awaitable[None]]


def play_tokens(scene: Scene) -> None:
    async def main(world: World) -> None:
        tokens = manager(world)
        await tokens.load()
        await scene(world, tokens)
        await tokens.close()

    play(main)


def test_a_token_is_known_to_a_broker_that_starts_later() -> None:
    async def scene(world: World, tokens: TokenManager) -> None:
        created = await tokens.create("User:alice", ["User:bob", "User:bob"], max_lifetime_ms=-1)
        assert created.renewers == ("User:bob",)
        other = manager(world)
        await other.load()
        assert other.cache.get(created.token_id) == created
        assert other.cache.of_hmac(tokens.cache.hmac(created.token_id)) == created
        await other.close()

    play_tokens(scene)


def test_changes_of_another_broker_are_followed() -> None:
    async def scene(world: World, tokens: TokenManager) -> None:
        from kctl.zookeeper.operations import WatchEvent, WatchEventType  # noqa: PLC0415

        other = manager(world)
        await other.load()
        created = await tokens.create("User:alice", [], max_lifetime_ms=-1)
        other.on_watch(WatchEvent(WatchEventType.CHILD, paths.DELEGATION_TOKEN_CHANGES))
        await settled(lambda: other.cache.get(created.token_id) == created)
        await tokens.expire("User:alice", tokens.cache.hmac(created.token_id), period_ms=-1)
        other.on_watch(WatchEvent(WatchEventType.CHILD, paths.DELEGATION_TOKEN_CHANGES))
        await settled(lambda: len(other.cache) == 0)
        await other.close()

    play_tokens(scene)


def test_a_token_that_another_broker_has_removed_is_not_created_again() -> None:
    async def scene(world: World, tokens: TokenManager) -> None:
        created = await tokens.create("User:alice", [], max_lifetime_ms=-1)
        await world.zookeeper.delete(paths.delegation_token(created.token_id))
        with pytest.raises(ApiError) as raised:
            await tokens.renew("User:alice", tokens.cache.hmac(created.token_id), period_ms=-1)
        assert raised.value.code is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        assert await world.zookeeper.children(paths.DELEGATION_TOKENS) == []

    play_tokens(scene)


def test_expired_tokens_are_removed() -> None:
    async def scene(world: World, tokens: TokenManager) -> None:
        short = await tokens.create("User:alice", [], max_lifetime_ms=1000)
        long = await tokens.create("User:alice", [], max_lifetime_ms=HOUR)
        await asyncio.sleep(2)
        await tokens.remove_expired()
        assert await world.zookeeper.children(paths.DELEGATION_TOKENS) == [long.token_id]
        assert tokens.cache.get(short.token_id) is None

    play_tokens(scene)


def test_a_malformed_token_is_logged_once_and_the_others_are_read(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(world: World, tokens: TokenManager) -> None:
        created = await tokens.create("User:alice", [], max_lifetime_ms=-1)
        await world.zookeeper.create(paths.delegation_token("bad"), b"{")
        other = manager(world)
        for _ in range(3):
            await other.load()
            assert [token.token_id for token in other.cache.tokens()] == [created.token_id]
        await other.close()

    play_tokens(scene)
    assert caplog.text.count("it cannot be used token_id=bad") == 1


def test_a_token_that_becomes_malformed_is_not_accepted_any_more() -> None:
    async def scene(world: World, tokens: TokenManager) -> None:
        created = await tokens.create("User:alice", [], max_lifetime_ms=-1)
        assert tokens.cache.is_valid(created.token_id, world.clock.now_ms())
        await world.zookeeper.set(paths.delegation_token(created.token_id), b'{"version": 1}')
        await tokens.load()
        assert not tokens.cache.is_valid(created.token_id, world.clock.now_ms())

    play_tokens(scene)


def test_without_a_secret_key_tokens_are_disabled() -> None:
    async def main(world: World) -> None:
        tokens = manager(world, None)
        await tokens.load()
        for change in (
            tokens.create("User:a", [], max_lifetime_ms=-1),
            tokens.renew("User:a", b"x", period_ms=-1),
            tokens.expire("User:a", b"x", period_ms=-1),
        ):
            with pytest.raises(ApiError) as raised:
                await change
            assert raised.value.code is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        assert await world.zookeeper.exists("/delegation_token") is None

    play(main)


def test_many_tokens_are_read_again_without_comparing_each_with_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the loss of a session."""
    hashes = 0

    class Name(str):
        __slots__ = ()

        def __hash__(self) -> int:
            nonlocal hashes
            hashes += 1
            return super().__hash__()

    async def scene(world: World, tokens: TokenManager) -> None:
        created = [await tokens.create("User:alice", [], max_lifetime_ms=-1) for _ in range(50)]
        names = [Name(name) for name in await world.zookeeper.children(paths.DELEGATION_TOKENS)][:-1]

        async def children(path: str, *, watch: bool = False) -> list[Name]:
            return names if path == paths.DELEGATION_TOKENS else []

        monkeypatch.setattr(world.zookeeper, "children", children)
        await tokens.load()
        assert len(tokens.cache) == len(created) - 1
        assert hashes < 10 * len(created)

    play_tokens(scene)
