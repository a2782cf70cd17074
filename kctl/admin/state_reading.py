"""Reads from a cluster what a document of `kctl plan` can contain."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from kctl.admin.acls import list_acls
from kctl.admin.desired_state import DesiredState, DesiredTopic, DesiredUser, UserKey
from kctl.admin.health import ongoing_if_supported
from kctl.admin.outcome import Outcome
from kctl.admin.quotas import describe_quotas
from kctl.admin.state_diff import PresentState, PresentTopic
from kctl.admin.topic_configs import topic_overrides
from kctl.admin.users import describe_users
from kctl.client.cluster import ClusterClient
from kctl.client.metadata import Topic
from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition

T = TypeVar("T")

NOT_AVAILABLE = frozenset({ErrorCode.SECURITY_DISABLED, ErrorCode.UNSUPPORTED_VERSION})
"""Errors of clusters without ACLs, quotas or users."""


async def read_state(client: ClusterClient, desired: DesiredState) -> PresentState:
    """Reads the present state of the cluster, limited to the sections of the document.  Raises ApiError."""
    managed = desired.managed
    topics = await _topics(client, desired) if desired.topics or managed.topics else {}
    acls = await list_acls(client) if desired.acls or managed.acls else []
    quotas = (await describe_quotas(client))[0] if desired.quotas or managed.quotas else []
    users = await _users(client) if desired.users or managed.users else {}
    return PresentState(topics, acls, {one.entity: one.quotas for one in quotas}, users)


async def export_state(client: ClusterClient) -> tuple[DesiredState, list[str]]:
    """The topics, ACLs, quotas and users of a cluster as a document, and notes about what is left out.

    Internal topics are left out.  Raises ApiError.
    """
    metadata = await client.metadata()
    names = [topic.name for topic in metadata.topics.values() if not topic.is_internal]
    found = await _present(client, [metadata.topics[name] for name in names], set(names))
    notes: list[str] = []
    mixed = [name for name, topic in found.items() if len(topic.replication_factors) > 1]
    notes += [f"topic '{name}' has partitions with different numbers of replicas; none is exported" for name in mixed]
    acls = await _if_available(list_acls(client), "ACLs", notes)
    quotas = await _if_available(describe_quotas(client), "quotas", notes)
    users = await _if_available(_users(client), "users", notes)
    state = DesiredState(
        topics={name: _desired(topic) for name, topic in found.items()},
        acls=acls or None,
        quotas={one.entity: one.quotas for one in quotas[0]} or None if quotas else None,
        users={key: DesiredUser(iterations, None) for key, iterations in (users or {}).items()} or None,
    )
    return state, notes


async def _if_available(reading: Awaitable[T], what: str, notes: list[str]) -> T | None:
    """None for a cluster that has none of these; raises other errors."""
    try:
        return await reading
    except ApiError as error:
        if error.code not in NOT_AVAILABLE:
            raise
        notes.append(f"{what} are not exported: {error}")
        return None


async def _topics(client: ClusterClient, desired: DesiredState) -> dict[str, PresentTopic]:
    """The topics that the document names or covers."""
    metadata = await client.metadata()
    chosen = [
        topic
        for topic in metadata.topics.values()
        if topic.name in desired.topics or desired.managed.has_topic(topic.name)
    ]
    with_configs = {name for name, topic in desired.topics.items() if topic.configs is not None}
    return await _present(client, chosen, with_configs)


async def _present(client: ClusterClient, topics: list[Topic], with_configs: set[str]) -> dict[str, PresentTopic]:
    for topic in topics:
        if topic.error is not ErrorCode.NONE:
            raise ApiError(topic.error, f"topic '{topic.name}' cannot be described: {topic.error.description}")
    described = [topic.name for topic in topics if topic.name in with_configs]
    overrides = await topic_overrides(client, described) if described else {}
    ongoing = await ongoing_if_supported(client) if topics else {}
    found = {}
    for topic in topics:
        configs = overrides.get(topic.name, {})
        if isinstance(configs, Outcome):
            raise ApiError(configs.error, f"topic '{topic.name}': {configs.message}")
        factors = set()
        for one in topic.partitions:
            moving = ongoing.get(TopicPartition(topic.name, one.partition))
            factors.add(len(one.replicas if moving is None else moving.target))
        found[topic.name] = PresentTopic(len(topic.partitions), frozenset(factors), configs, topic.is_internal)
    return found


async def _users(client: ClusterClient) -> dict[UserKey, int]:
    found = {}
    for user in await describe_users(client):
        if not user.outcome.is_done:
            raise ApiError(user.outcome.error, f"user '{user.outcome.name}': {user.outcome.message}")
        for mechanism, iterations in user.iterations.items():
            found[UserKey(user.outcome.name, mechanism)] = iterations
    return found


def _desired(topic: PresentTopic) -> DesiredTopic:
    factors = topic.replication_factors
    configs = {key: value for key, value in topic.configs.items() if value is not None}
    return DesiredTopic(topic.partitions, min(factors) if len(factors) == 1 else None, configs)
