"""Thousands of ACLs, quotas, delegation tokens and notifications are read and described in slices."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kctl.limits import REQUEST_ELEMENTS_PER_SLICE_MAX
from kctl.protocol.apis.describe_acls import DescribeAclsRequest
from kctl.protocol.apis.describe_client_quotas import DescribeClientQuotasRequest
from kctl.protocol.apis.describe_delegation_token import DescribeDelegationTokenRequest
from kctl.security.acls import AclBinding, AclEntry, Operation, PatternType, Permission, ResourcePattern, ResourceType
from kctl.security.authorization import AclIndex
from kctl.server.handlers import describe_client_quotas
from kctl.server.handlers.describe_acls import DescribeAclsHandler
from kctl.server.handlers.describe_client_quotas import DescribeClientQuotasHandler
from kctl.server.handlers.describe_delegation_token import DescribeDelegationTokenHandler
from kctl.server.requests.context import Peer, RequestContext
from kctl.server.security.tokens.token import DelegationToken
from kctl.server.security.tokens.token_cache import TokenCache
from kctl.server.znodes.notifications import ChangeNotifications
from tests.hostile.test_amplification import turns_while
from tests.unit.handlers.world import World, context, play

SLICES = 4
COUNT = SLICES * REQUEST_ELEMENTS_PER_SLICE_MAX
ANY = 1
UNUSED: Any = None


class StoredAcls:
    """An authorizer without decisions."""

    def __init__(self) -> None:
        entry = AclEntry("User:a", "*", Operation.READ, Permission.ALLOW)
        patterns = [ResourcePattern(ResourceType.TOPIC, str(number), PatternType.LITERAL) for number in range(COUNT)]
        self.index = AclIndex(AclBinding(pattern, entry) for pattern in patterns)

    def acls(self) -> Any:
        return self.index.bindings()


def test_acls_are_described_in_slices() -> None:
    async def scene(_: World) -> int:
        stored: Any = StoredAcls()
        request = DescribeAclsRequest(
            resource_type_filter=ANY,
            resource_name_filter=None,
            pattern_type_filter=ANY,
            principal_filter=None,
            host_filter=None,
            operation=ANY,
            permission_type=ANY,
        )
        return await turns_while(DescribeAclsHandler(stored).handle(request, context(2)))

    assert play(scene) >= SLICES


def test_acls_may_change_while_they_are_read() -> None:
    stored = StoredAcls()
    bindings = stored.acls()
    first = next(bindings)
    for number in range(COUNT):
        stored.index.replace(ResourcePattern(ResourceType.TOPIC, str(number), PatternType.LITERAL), ())
    assert [first, *bindings] == list(StoredAcls().acls())


def test_quotas_are_described_in_slices() -> None:
    async def scene(world: World) -> int:
        for number in range(COUNT):
            await world.zookeeper.create(f"/config/clients/{number}", b'{"version":1,"config":{}}')
        request = DescribeClientQuotasRequest(components=[], strict=False)
        return await turns_while(DescribeClientQuotasHandler(world.topics).handle(request, context(1)))

    assert play(scene) >= 3 * SLICES


class CountedName(str):
    """The name of an entity that counts those that have been freed."""

    __slots__ = ()
    freed = 0

    def __del__(self) -> None:
        CountedName.freed += 1


def test_the_entities_of_described_quotas_are_freed_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """100,000 users took 27 ms at once."""
    monkeypatch.setattr(describe_client_quotas, "entity_name", CountedName)

    async def scene(world: World) -> None:
        for number in range(COUNT):
            await world.zookeeper.create(f"/config/clients/{number}", b'{"version":1,"config":{}}')
        request = DescribeClientQuotasRequest(components=[], strict=False)
        handler = DescribeClientQuotasHandler(world.topics)
        described = asyncio.ensure_future(handler.handle(request, context(1)))
        freed = CountedName.freed = 0
        while not described.done():
            await asyncio.sleep(0)
            before, freed = freed, CountedName.freed
            assert freed - before <= REQUEST_ELEMENTS_PER_SLICE_MAX + 1
        assert freed == COUNT
        assert described.result().entries == []

    play(scene)


def test_delegation_tokens_are_described_in_slices() -> None:
    class Tokens:
        """The tokens without their znodes."""

        def __init__(self) -> None:
            self.cache = TokenCache("secret")
            for number in range(COUNT):
                self.cache.put(DelegationToken(str(number), "User:a", (), 0, 1, 1))

        def require_enabled(self) -> None:
            pass

    async def scene(_: World) -> int:
        tokens: Any = Tokens()
        owner = RequestContext(2, 1, "client", Peer("/127.0.0.1", "SASL_SSL", "User:a", "SASL_SSL"))
        handler = DescribeDelegationTokenHandler(tokens)
        return await turns_while(handler.handle(DescribeDelegationTokenRequest(owners=None), owner))

    assert play(scene) >= SLICES


def test_notifications_are_looked_through_in_slices() -> None:
    async def scene(world: World) -> int:
        await world.zookeeper.create("/changes", None)
        for _ in range(COUNT):
            await world.zookeeper.create("/changes/change_", b"", sequence=True)
        notifications = ChangeNotifications(world.zookeeper, "/changes", UNUSED, world.clock)
        turns = await turns_while(notifications.watch())
        assert notifications._last_seen == COUNT - 1
        return turns

    assert play(scene) >= SLICES
