"""The topics, brokers, groups and so on that a command applies to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kctl.admin.configs import (
    BROKER_DEFAULTS,
    ConfigResource,
    ResourceType,
    list_client_metrics,
    list_groups_with_configs,
)
from kctl.admin.groups import list_groups
from kctl.commands.timed_search import NamePattern
from kctl.errors import ApiError, UsageError
from kctl.integers import parse_integer

if TYPE_CHECKING:
    from kctl.client.cluster import ClusterClient

ResourceKind = Literal["topic", "broker", "logger", "group", "client-metrics", "user", "client", "ip"]
TYPES = {
    "topic": ResourceType.TOPIC,
    "broker": ResourceType.BROKER,
    "logger": ResourceType.BROKER_LOGGER,
    "group": ResourceType.GROUP,
    "client-metrics": ResourceType.CLIENT_METRICS,
}
"""Types of resources by their names on the command line; the other ones are entities of quotas."""
_NAMES = {type_: name for name, type_ in TYPES.items()}
DEFAULT_NAME = "default"
"""The name on the command line for the defaults of all brokers."""
Type = Annotated[
    ResourceKind,
    typer.Argument(help="Type of the resources.", metavar="topic|broker|logger|group|client-metrics|user|client|ip"),
]
ClientName = Annotated[
    str | None,
    typer.Option(
        "--client", metavar="ID", help="With user: quotas for this client id ('+*' for *), '<default>', or '*' for all."
    ),
]


def topic_pattern(type_: str, names: list[str] | None, topic_regex: str | None) -> NamePattern | None:
    """The pattern of --topic-regex.  Raises UsageError beside names or for another type than topic."""
    if topic_regex is None:
        return None
    if type_ != "topic" or names:
        raise UsageError("--topic-regex is for type topic, without names")
    return NamePattern("--topic-regex", topic_regex)


async def requested_resources(
    client: ClusterClient, type_: str, names: list[str] | None, pattern: NamePattern | None = None
) -> list[ConfigResource]:
    """The named resources, the topics that match, or all.

    Raises UsageError for an invalid broker id, and ApiError if unnamed client metrics cannot be listed.
    """
    kind = TYPES[type_]
    if pattern is not None:
        return [ConfigResource(kind, name) for name in sorted(pattern.select(await _all_names(client, kind)))]
    if kind in {ResourceType.BROKER, ResourceType.BROKER_LOGGER}:
        return await _brokers(client, kind, names)
    if not names:
        names = await _all_names(client, kind)
    return [ConfigResource(kind, name) for name in sorted(set(names))]


async def _all_names(client: ClusterClient, kind: ResourceType) -> list[str]:
    if kind is ResourceType.TOPIC:
        metadata = await client.metadata()
        return [topic.name for topic in metadata.topics.values() if not topic.is_internal]
    if kind is ResourceType.GROUP:
        groups, failed = await list_groups(client, (), ())
        if failed:
            raise ApiError(failed[0].error, f"broker {failed[0].name} cannot list its groups: {failed[0].message}")
        return [*(group.group_id for group in groups), *await list_groups_with_configs(client)]
    return await list_client_metrics(client)


async def _brokers(client: ClusterClient, kind: ResourceType, names: list[str] | None) -> list[ConfigResource]:
    if not names:
        names = [str(broker_id) for broker_id in (await client.metadata([])).brokers]
    has_defaults = kind is ResourceType.BROKER
    what = f"the id of a broker (or '{DEFAULT_NAME}' for all of them)" if has_defaults else "the id of a broker"
    ids = sorted({parse_integer(name, what) for name in names if not (has_defaults and name == DEFAULT_NAME)})
    defaults = [ConfigResource(kind, BROKER_DEFAULTS)] if has_defaults and DEFAULT_NAME in names else []
    return defaults + [ConfigResource(kind, str(broker_id)) for broker_id in ids]


def type_and_name(resource: ConfigResource) -> tuple[str, str]:
    """The first two columns of the rows about a resource."""
    is_default = resource.type is ResourceType.BROKER and resource.name == BROKER_DEFAULTS
    return _NAMES[resource.type], DEFAULT_NAME if is_default else resource.name
