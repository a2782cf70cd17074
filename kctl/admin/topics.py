"""Lists and describes topics."""

from __future__ import annotations

from collections.abc import Collection

from kctl.client.cluster import ClusterClient
from kctl.client.metadata import Topic


async def list_topics(client: ClusterClient) -> list[Topic]:
    """All topics that the user is authorized to describe, by name."""
    metadata = await client.metadata()
    return list(metadata.topics.values())


async def describe_topics(client: ClusterClient, names: Collection[str]) -> list[Topic]:
    """The named topics, by name; those that do not exist have an error."""
    metadata = await client.metadata(names)
    return list(metadata.topics.values())
