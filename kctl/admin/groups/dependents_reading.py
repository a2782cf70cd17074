"""Reads what depends on topics, each part within a time limit; what could not be read is named."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Sequence
from typing import NamedTuple, TypeVar

from kctl.admin.groups.dependents import Dependent, Readings, dependents_of
from kctl.admin.groups.groups import list_groups, look_up_groups
from kctl.admin.placement.reassignment import list_reassignments
from kctl.admin.security.acls import list_acls
from kctl.admin.topics.transactions import ActiveProducer, describe_producers
from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import ConnectionLost
from kctl.client.metadata import Topic
from kctl.errors import ApiError, ClusterUnreachable, ErrorCode
from kctl.lag.facts import GroupDescription
from kctl.limits import Subject, bound
from kctl.model import TopicPartition
from kctl.output.quantities import counted
from kctl.security.acls import AclBinding, AclFilter, PatternType, ResourceType

DEPENDENTS_TIME_MAX_S = bound(
    Subject.NAMED_FILES,
    "time in which `kctl topics delete` looks for each kind of what depends on the topics",
    10,
    "s",
    on_excess="the output names what was not checked",
)
DEPENDENTS_GROUPS_MAX = bound(
    Subject.NAMED_FILES,
    "groups in which `kctl topics delete` looks for the topics",
    5_000,
    "groups",
    on_excess="the output states how many were not checked",
)


T = TypeVar("T")
_GROUPS_AT_ONCE = 200
_NONE_THERE = frozenset({ErrorCode.SECURITY_DISABLED})


class Dependents(NamedTuple):
    """The dependents of each topic, by its name."""

    found: dict[str, list[Dependent]]
    unchecked: list[str]
    """The parts that could not be read, with the reason."""


async def find_dependents(client: ClusterClient, topics: Sequence[Topic]) -> Dependents:
    """Return the dependents of the topics.

    Needs an event loop.  Raises ClusterUnreachable if topics cannot be listed.
    """
    names = [topic.name for topic in topics]
    partitions = [TopicPartition(topic.name, partition.partition) for topic in topics for partition in topic.partitions]
    unchecked: list[str] = []

    async def limited(what: str, reading: Awaitable[T], default: T) -> T:
        try:
            async with asyncio.timeout(DEPENDENTS_TIME_MAX_S):
                return await reading
        except TimeoutError:
            unchecked.append(f"{what}: no response within {DEPENDENTS_TIME_MAX_S} s")
        except (ApiError, ConnectionLost, ClusterUnreachable) as error:
            if not (isinstance(error, ApiError) and error.code in _NONE_THERE):
                unchecked.append(f"{what}: {error}")
        return default

    everything = (await client.metadata()).topics
    no_groups: list[GroupDescription] = []
    no_acls: list[AclBinding] = []
    readings = Readings(
        topics=list(everything),
        internal=[name for name, topic in everything.items() if topic.is_internal],
        groups=await limited("groups", _groups(client, unchecked), no_groups),
        producers=await limited("transactions", _producers(client, partitions, unchecked), {}),
        moving=await limited("reassignments", list_reassignments(client, partitions), {}),
        acls=await limited("acls", list_acls(client, [_named(name) for name in names]), no_acls),
    )
    return Dependents({name: dependents_of(name, readings) for name in names}, unchecked)


async def _groups(client: ClusterClient, unchecked: list[str]) -> list[GroupDescription]:
    listed, failed = await list_groups(client)
    unchecked += [f"groups of broker {outcome.name}: {outcome.message}" for outcome in failed]
    ids = sorted(group.group_id for group in listed)
    if len(ids) > DEPENDENTS_GROUPS_MAX:
        unchecked.append(f"groups: only the first {DEPENDENTS_GROUPS_MAX} of {len(ids)} were checked")
    found: list[GroupDescription] = []
    for start in range(0, len(ids[:DEPENDENTS_GROUPS_MAX]), _GROUPS_AT_ONCE):
        found += await look_up_groups(client, ids[start : min(start + _GROUPS_AT_ONCE, DEPENDENTS_GROUPS_MAX)])
    for group in found:
        if not group.outcome.is_done and group.outcome.error is not ErrorCode.GROUP_ID_NOT_FOUND:
            unchecked.append(f"group '{group.outcome.name}': {group.outcome.message}")
    return found


async def _producers(
    client: ClusterClient, partitions: Collection[TopicPartition], unchecked: list[str]
) -> dict[TopicPartition, list[ActiveProducer]]:
    described = await describe_producers(client, partitions) if partitions else {}
    failed = {tp: producers for tp, producers in described.items() if isinstance(producers, ApiError)}
    if failed:
        tp, error = min(failed.items())
        unchecked.append(f"transactions of {counted(len(failed), 'partition')} ({tp}, ...): {error}")
    return {tp: producers for tp, producers in described.items() if not isinstance(producers, ApiError)}


def _named(topic: str) -> AclFilter:
    return AclFilter(resource_type=ResourceType.TOPIC, name=topic, pattern_type=PatternType.LITERAL)
