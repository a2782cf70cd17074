"""The limits after which the records of topics are deleted."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kctl.admin.configs import ConfigResource, ResourceType, describe_configs
from kctl.admin.lag_facts import NO_LIMITS, Retention
from kctl.client.cluster import ClusterClient
from kctl.errors import ApiError

_RETENTION_MS, _RETENTION_BYTES, _POLICY = "retention.ms", "retention.bytes", "cleanup.policy"


async def read_retentions(client: ClusterClient, topics: Collection[str]) -> Mapping[str, Retention]:
    """The limits by topic; topics whose limits cannot be read are missing.  Raises ClusterUnreachable."""
    if not topics:
        return {}
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in sorted(topics)]
    names = [_RETENTION_MS, _RETENTION_BYTES, _POLICY]
    try:
        described = await describe_configs(client, resources, names=names, synonyms=False)
    except ApiError:
        return {}
    return {
        resource.name: _retention({entry.name: entry.value for entry in entries})
        for resource, entries in described.items()
        if isinstance(entries, list)
    }


def _retention(values: Mapping[str, str | None]) -> Retention:
    """The limits, if the topic's records are deleted by them."""
    if "delete" not in (values.get(_POLICY) or "delete"):
        return NO_LIMITS
    return Retention(_limit(values.get(_RETENTION_MS)), _limit(values.get(_RETENTION_BYTES)))


def _limit(text: str | None) -> int | None:
    try:
        value = int(text or -1)
    except ValueError:
        return None
    return value if value >= 0 else None
