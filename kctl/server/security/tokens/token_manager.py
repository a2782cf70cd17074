"""Creates, renews, expires and removes delegation tokens in ZooKeeper, and follows changes by other brokers.

Every change writes the token's znode and then a notification, which all brokers of the cluster watch, including those
of Apache Kafka.  Any broker serves requests; expired tokens are removed by the controller.

Kafka: DelegationTokenManager, KafkaController.onControllerFailover (2.8).

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from uuid import UUID

from kctl.errors import ApiError, ErrorCode, NodeExistsError, NoNodeError
from kctl.limits import Subject, bound
from kctl.model import uuid_text
from kctl.server.loop.slices import sliced
from kctl.server.loop.tasks import run_every
from kctl.server.security.tokens.token import DelegationToken, TokenLifetimes, expired, new_token, renewed
from kctl.server.security.tokens.token_cache import TokenCache
from kctl.server.znodes.notifications import ChangeNotifications
from kctl.server.znodes.problem_log import ProblemLog
from kctl.system.environment import Clock, Random
from kctl.zookeeper import paths
from kctl.zookeeper.operations import WatchEvent, ZooKeeper
from kctl.zookeeper.security_znodes import TokenZnode, decode_token, encode_token

DELEGATION_TOKENS_MAX = bound(
    Subject.AUTHENTICATION,
    "delegation tokens of a cluster",
    100_000,
    "tokens",
    on_excess="no further tokens are created, with POLICY_VIOLATION",
)


log = logging.getLogger(__name__)

_READS_AT_ONCE = 100


class TokenManager:
    """Call `load` before use and after each new session, `start` and `close`.  Disabled without a secret key."""

    def __init__(
        self, cache: TokenCache, zookeeper: ZooKeeper, *, lifetimes: TokenLifetimes, clock: Clock, random: Random
    ) -> None:
        self.cache = cache
        self._zookeeper = zookeeper
        self._lifetimes = lifetimes
        self._clock = clock
        self._random = random
        self._changes = ChangeNotifications(zookeeper, paths.DELEGATION_TOKEN_CHANGES, self._changed, clock)
        self._problems = ProblemLog(log, "ignoring invalid delegation token, it cannot be used token_id=%s error=%s")
        self._expiry: asyncio.Task[None] | None = None

    async def load(self) -> None:
        """Read all tokens and watch for changes."""
        if not self.cache.is_enabled:
            return
        for path in (paths.DELEGATION_TOKENS, paths.DELEGATION_TOKEN_CHANGES):
            with suppress(NodeExistsError):
                await self._zookeeper.create(path, None, make_parents=True)
        await self._changes.watch()
        token_ids = await self._zookeeper.children(paths.DELEGATION_TOKENS)
        present = frozenset(token_ids)
        async for token in sliced(self.cache.tokens()):
            if token.token_id not in present:
                self.cache.remove(token.token_id)
        for start in range(0, len(token_ids), _READS_AT_ONCE):
            await asyncio.gather(*(self._read(token_id) for token_id in token_ids[start : start + _READS_AT_ONCE]))

    def start(self, *, check_interval_ms: int, is_controller: Callable[[], bool]) -> None:
        """Start removing expired tokens while this broker is the controller."""
        if self.cache.is_enabled:

            async def check() -> None:
                if is_controller():
                    await self.remove_expired()

            self._expiry = asyncio.get_running_loop().create_task(
                run_every(check_interval_ms, check), name="expired-tokens"
            )

    async def close(self) -> None:
        """Stop the removal of tokens and pending reads."""
        await self._changes.close()
        if self._expiry is not None:
            self._expiry.cancel()
            await asyncio.gather(self._expiry, return_exceptions=True)

    def on_watch(self, event: WatchEvent) -> None:
        """Handle a watch event of the session; other paths are ignored."""
        self._changes.on_watch(event)

    async def create(self, owner: str, renewers: Sequence[str], *, max_lifetime_ms: int) -> DelegationToken:
        """Create a token.  Raises ApiError: DELEGATION_TOKEN_AUTH_DISABLED, POLICY_VIOLATION for too many tokens."""
        self.require_enabled()
        if len(self.cache) >= DELEGATION_TOKENS_MAX:
            raise ApiError(ErrorCode.POLICY_VIOLATION, "The cluster has too many delegation tokens.")
        token = new_token(
            uuid_text(UUID(int=self._random.getrandbits(128), version=4)),
            owner=owner,
            renewers=tuple(dict.fromkeys(renewers)),
            max_lifetime_ms=max_lifetime_ms,
            lifetimes=self._lifetimes,
            now_ms=self._clock.now_ms(),
        )
        await self._zookeeper.create(paths.delegation_token(token.token_id), encode_token(_znode(token)))
        self.cache.put(token)
        await self._announce(token.token_id)
        return token

    async def renew(self, principal: str, hmac: bytes, *, period_ms: int) -> int:
        """Extend a token; return its expiry time.  Raises ApiError, see `token.renewed`, and as `expire`."""
        token = self._find(hmac)
        changed = renewed(token, principal, period_ms=period_ms, lifetimes=self._lifetimes, now_ms=self._clock.now_ms())
        return await self._write(changed)

    async def expire(self, principal: str, hmac: bytes, *, period_ms: int) -> int:
        """Shorten or remove a token; return its expiry time.

        Raises ApiError: DELEGATION_TOKEN_AUTH_DISABLED, DELEGATION_TOKEN_NOT_FOUND, and see `token.expired`.
        """
        token, now_ms = self._find(hmac), self._clock.now_ms()
        changed = expired(token, principal, period_ms=period_ms, now_ms=now_ms)
        if changed is not None:
            return await self._write(changed)
        await self._remove(token)
        return now_ms

    async def remove_expired(self) -> None:
        """Remove expired tokens."""
        now_ms = self._clock.now_ms()
        async for token in sliced(self.cache.tokens()):
            if token.is_expired(now_ms):
                log.info("removing expired delegation token token_id=%s owner=%s", token.token_id, token.owner)
                await self._remove(token)

    def require_enabled(self) -> None:
        """Raise ApiError(DELEGATION_TOKEN_AUTH_DISABLED) unless tokens are enabled."""
        if not self.cache.is_enabled:
            raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)

    def _find(self, hmac: bytes) -> DelegationToken:
        self.require_enabled()
        token = self.cache.of_hmac(hmac)
        if token is None:
            raise ApiError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        return token

    async def _write(self, token: DelegationToken) -> int:
        """Replace a token; unlike Kafka, do not recreate a token that another broker has removed."""
        try:
            await self._zookeeper.set(paths.delegation_token(token.token_id), encode_token(_znode(token)))
        except NoNodeError:
            self.cache.remove(token.token_id)
            raise ApiError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND) from None
        self.cache.put(token)
        await self._announce(token.token_id)
        return token.expiry_ms

    async def _remove(self, token: DelegationToken) -> None:
        with suppress(NoNodeError):
            await self._zookeeper.delete(paths.delegation_token(token.token_id))
        self.cache.remove(token.token_id)
        await self._announce(token.token_id)

    async def _announce(self, token_id: str) -> None:
        await self._zookeeper.create(paths.DELEGATION_TOKEN_CHANGE_PREFIX, token_id.encode(), sequence=True)

    async def _changed(self, path: str, data: bytes) -> None:
        token_id = data.decode()
        if not token_id or "/" in token_id:
            raise ValueError(f"znode {path} names no token")
        await self._read(token_id)

    async def _read(self, token_id: str) -> None:
        path = paths.delegation_token(token_id)
        try:
            data, _ = await self._zookeeper.get(path)
            znode = decode_token(path, data)
        except NoNodeError:
            self._problems.report(token_id)
            self.cache.remove(token_id)
        except ValueError as error:
            self._problems.report(token_id, str(error))
            self.cache.remove(token_id)
        else:
            self._problems.report(token_id)
            self.cache.put(
                DelegationToken(token_id, znode.owner, znode.renewers, znode.issue_ms, znode.max_ms, znode.expiry_ms)
            )


def _znode(token: DelegationToken) -> TokenZnode:
    return TokenZnode(token.token_id, token.owner, token.renewers, token.issue_ms, token.max_ms, token.expiry_ms)
