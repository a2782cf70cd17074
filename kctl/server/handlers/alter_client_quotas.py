"""AlterClientQuotas (key 49, versions 0-1): sets or removes quotas of users, client IDs and IP addresses.  KIP-546.

Any broker stores them below /config, as Kafka does, and announces the change.  Each entity has its own result; one that
is listed twice is changed twice and has one result.  As in Kafka 2.8, an IP address is a name that resolves, and IPv6
addresses are refused.  Requires ALTER_CONFIGS on the cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from kctl.errors import ApiError, ErrorCode
from kctl.protocol.apis.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    RequestEntryData,
    ResponseEntityData,
    ResponseEntryData,
)
from kctl.security.acls import Operation
from kctl.security.quotas import EntityType
from kctl.server.cluster.configs.quotas import Entity, QuotaChange, changed_quotas, checked_entity, entity_path
from kctl.server.cluster.topics.writer import TopicWriter
from kctl.server.loop.slices import sliced
from kctl.server.requests.context import RequestContext
from kctl.server.requests.outcomes import CLUSTER_DENIED, Outcome, outcome_of

Resolves = Callable[[str], Awaitable[bool]]
"""Returns True for an IPv4 address or a host name that resolves."""


class AlterClientQuotasHandler:
    """Serves AlterClientQuotas requests.  Owner: event loop."""

    def __init__(self, topics: TopicWriter, resolves: Resolves) -> None:
        self._topics = topics
        self._resolves = resolves
        self._lookup = asyncio.Lock()  # Slow lookups of all requests together use one thread.

    async def handle(self, request: AlterClientQuotasRequest, context: RequestContext) -> AlterClientQuotasResponse:
        """Serve one request and return the response."""
        is_allowed = context.allows_on_cluster(Operation.ALTER_CONFIGS)
        outcomes: dict[tuple[tuple[str, str | None], ...], Outcome] = {}
        async for entry in sliced(request.entries):
            named = tuple({part.entity_type: part.entity_name for part in entry.entity}.items())
            outcomes[named] = (
                await outcome_of(self._alter(entry, validate_only=request.validate_only))
                if is_allowed
                else CLUSTER_DENIED
            )
        return AlterClientQuotasResponse(
            entries=[
                ResponseEntryData(
                    error_code=outcome.code,
                    error_message=outcome.message,
                    entity=[ResponseEntityData(entity_type=kind, entity_name=name) for kind, name in named],
                )
                for named, outcome in outcomes.items()
            ]
        )

    async def _alter(self, entry: RequestEntryData, *, validate_only: bool) -> None:
        """Alter the quotas of an entity, or raise ApiError or ZooKeeperError."""
        entity = checked_entity((part.entity_type, part.entity_name) for part in entry.entity)
        await self._check_address(entity)
        changes = [QuotaChange(change.key, None if change.remove else change.value) for change in entry.ops]
        change = partial(changed_quotas, entity=entity, changes=changes)
        if validate_only:
            change({})
        else:
            await self._topics.update_config(entity_path(entity), change)

    async def _check_address(self, entity: Entity) -> None:
        address = entity.get(EntityType.IP)
        if address is None:
            return
        async with self._lookup:
            is_known = await self._resolves(address)
        if not is_known:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{address} is not an IPv4 address or the name of a host.")
