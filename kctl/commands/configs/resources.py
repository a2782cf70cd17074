"""The topics and brokers that a command applies to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kctl.admin.configs import BROKER_DEFAULTS, ConfigResource, ResourceType
from kctl.integers import parse_integer

if TYPE_CHECKING:
    from kctl.client.cluster import ClusterClient

ResourceKind = Literal["topic", "broker", "user", "client", "ip"]
DEFAULT_NAME = "default"
"""The name on the command line for the defaults of all brokers."""
Type = Annotated[ResourceKind, typer.Argument(help="Type of the resources.", metavar="topic|broker|user|client|ip")]
ClientName = Annotated[
    str | None,
    typer.Option("--client", metavar="ID", help="With user: quotas for this client id, '<default>', or '*' for all."),
]


async def requested_resources(client: ClusterClient, type_: str, names: list[str] | None) -> list[ConfigResource]:
    """The named resources, or all.  Raises UsageError for an invalid broker id."""
    if type_ == "topic":
        if not names:
            metadata = await client.metadata()
            names = [topic.name for topic in metadata.topics.values() if not topic.is_internal]
        return [ConfigResource(ResourceType.TOPIC, name) for name in sorted(set(names))]
    if not names:
        names = [str(broker_id) for broker_id in (await client.metadata([])).brokers]
    what = f"the id of a broker (or '{DEFAULT_NAME}' for all of them)"
    ids = sorted({parse_integer(name, what) for name in names if name != DEFAULT_NAME})
    defaults = [ConfigResource(ResourceType.BROKER, BROKER_DEFAULTS)] if DEFAULT_NAME in names else []
    return defaults + [ConfigResource(ResourceType.BROKER, str(broker_id)) for broker_id in ids]


def type_and_name(resource: ConfigResource) -> tuple[str, str]:
    """The first two columns of the rows about a topic or broker."""
    return resource.type.name.lower(), resource.name or DEFAULT_NAME
