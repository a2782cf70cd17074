"""DescribeClientQuotas (key 48, versions 0-1): the quotas of users, client IDs and IP addresses that match a filter.

Any broker reads them from ZooKeeper.  Requires DESCRIBE_CONFIGS on the cluster.  A strict filter matches entities of
exactly its types, any other filter also entities with more types; a filter without components matches all entities, or
none if strict.  KIP-546.
"""

from __future__ import annotations

from kctl.errors import ApiError
from kctl.limits import REQUEST_ELEMENTS_PER_SLICE_MAX
from kctl.protocol.apis.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from kctl.security.acls import Operation
from kctl.security.quotas import EntityType
from kctl.server.cluster.configs.quotas import (
    FOLDERS,
    Entity,
    Filter,
    checked_filter,
    entity_name,
    entity_path,
    matches,
    may_match,
    stored_quotas,
)
from kctl.server.cluster.topics.writer import TopicWriter
from kctl.server.loop.slices import gather_sliced, release, sliced, sliced_batches
from kctl.server.requests.context import RequestContext
from kctl.server.requests.outcomes import CLUSTER_DENIED, Outcome, outcome_of

_USER, _CLIENT_ID = EntityType.USER, EntityType.CLIENT_ID


class DescribeClientQuotasHandler:
    """Serves DescribeClientQuotas requests.  Owner: event loop."""

    def __init__(self, topics: TopicWriter) -> None:
        self._topics = topics

    async def handle(
        self, request: DescribeClientQuotasRequest, context: RequestContext
    ) -> DescribeClientQuotasResponse:
        """Serve one request and return the response."""
        if not context.allows_on_cluster(Operation.DESCRIBE_CONFIGS):
            return _refused(CLUSTER_DENIED)
        try:
            requested = checked_filter((part.entity_type, part.match_type, part.match) for part in request.components)
        except ApiError as error:
            return _refused(Outcome.of(error))
        entries: list[EntryData] = []
        outcome = await outcome_of(self._describe(requested, entries, is_strict=request.strict))
        if not outcome.is_success:
            return _refused(outcome)
        return DescribeClientQuotasResponse(error_code=outcome.code, entries=entries)

    async def _describe(self, requested: Filter, entries: list[EntryData], *, is_strict: bool) -> None:
        """Add the quotas of the entities to `entries`, or raise ApiError or ZooKeeperError."""
        entities = await self._entities(requested, is_strict=is_strict)
        async for batch in sliced_batches(entities, REQUEST_ELEMENTS_PER_SLICE_MAX):
            configs = await gather_sliced(self._topics.config(entity_path(entity)) for entity in batch)
            for entity, config in zip(batch, configs, strict=True):
                quotas = stored_quotas(config)
                if quotas:
                    entries.append(
                        EntryData(
                            entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
                            values=[ValueData(key=key, value=value) for key, value in quotas.items()],
                        )
                    )
        await release([entities])

    async def _entities(self, requested: Filter, *, is_strict: bool) -> list[Entity]:
        """Return all entities that match, with or without quotas."""
        found: list[Entity] = []
        for kind in EntityType:
            if may_match(requested, [kind], is_strict=is_strict):
                names = await self._names(requested, kind, FOLDERS[kind])
                found += [{kind: name} async for name in sliced(names)]
        if may_match(requested, [_USER, _CLIENT_ID], is_strict=is_strict):
            users = await self._names(requested, _USER, FOLDERS[_USER])
            async for batch in sliced_batches(users, REQUEST_ELEMENTS_PER_SLICE_MAX):
                folders = [f"{entity_path({_USER: user})}/{FOLDERS[_CLIENT_ID]}" for user in batch]
                clients = await gather_sliced(self._names(requested, _CLIENT_ID, folder) for folder in folders)
                pairs = ((user, client) for user, own in zip(batch, clients, strict=True) for client in own)
                found += [{_USER: user, _CLIENT_ID: client} async for user, client in sliced(pairs)]
        return found

    async def _names(self, requested: Filter, kind: EntityType, folder: str) -> list[str | None]:
        names = map(entity_name, await self._topics.config_entities(folder))
        return [name async for name in sliced(names) if matches(requested, kind, name)]


def _refused(outcome: Outcome) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=outcome.code, error_message=outcome.message, entries=None)
