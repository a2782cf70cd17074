"""Overrides of topics' properties."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from kctl.admin.topics.configs import (
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ResourceType,
    alter_configs,
    describe_configs,
    value_after,
)
from kctl.client.cluster import ClusterClient
from kctl.client.connections.framing import first_result
from kctl.client.connections.transport import Connection
from kctl.client.outcome import Outcome, outcome_of
from kctl.errors import ErrorCode
from kctl.protocol.apis.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)


async def topic_overrides(client: ClusterClient, names: Collection[str]) -> dict[str, dict[str, str | None] | Outcome]:
    """Return the properties set for each topic itself, by name; sensitive values are None."""
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    described = await describe_configs(client, resources, synonyms=False, own_only=True)
    return {
        resource.name: entries if isinstance(entries, Outcome) else {entry.name: entry.value for entry in entries}
        for resource, entries in described.items()
    }


async def alter_topic_configs(
    client: ClusterClient,
    name: str,
    *,
    set_: Mapping[str, str],
    delete: Collection[str],
    validate_only: bool = False,
) -> Outcome:
    """Set and remove overrides of a topic, without changing others; see `alter_configs_of_any_broker`."""
    changes = [ConfigChange(key, ConfigOperation.SET, value) for key, value in set_.items()]
    changes += [ConfigChange(key, ConfigOperation.DELETE) for key in delete]
    topic = ConfigResource(ResourceType.TOPIC, name)
    return (await alter_configs_of_any_broker(client, {topic: sorted(changes)}, validate_only=validate_only))[topic]


async def alter_configs_of_any_broker(
    client: ClusterClient, changes: Mapping[ConfigResource, Sequence[ConfigChange]], *, validate_only: bool = False
) -> dict[ConfigResource, Outcome]:
    """`alter_configs`, and topics also of brokers before 2.3.

    Those can only replace all overrides of a topic; there a concurrent change by others is lost.
    """
    outcomes = await alter_configs(client, changes, validate_only=validate_only)
    for resource, outcome in outcomes.items():
        if resource.type is ResourceType.TOPIC and outcome.error is ErrorCode.UNSUPPORTED_VERSION:
            outcomes[resource] = await _replace_overrides(
                client, resource, changes[resource], validate_only=validate_only
            )
    return outcomes


async def _replace_overrides(
    client: ClusterClient, topic: ConfigResource, changes: Sequence[ConfigChange], *, validate_only: bool
) -> Outcome:
    described = (await describe_configs(client, [topic], synonyms=False))[topic]
    if isinstance(described, Outcome):
        return described
    present = {entry.name: entry for entry in described}
    requested = {entry.name: entry.value for entry in described if entry.source == topic.own_source}
    for change in changes:
        if change.operation is ConfigOperation.DELETE:
            requested.pop(change.name, None)
        else:
            requested[change.name] = value_after(change, topic, present.get(change.name))
    configs = [AlterableConfig(name=key, value=value) for key, value in sorted(requested.items())]
    resource = AlterConfigsResource(resource_type=topic.type, resource_name=topic.name, configs=configs)
    request = AlterConfigsRequest(resources=[resource], validate_only=validate_only)

    async def send_to(connection: Connection) -> Outcome:
        response = await connection.send(request, AlterConfigsResponse)
        result = first_result(response.responses)
        return outcome_of(topic.name, result.error_code, result.error_message)

    return await client.on_any_broker(send_to)


# Compares the properties of two resources. Pure.


class Difference(NamedTuple):
    """A property that differs.  A side that lacks it has None and a false `is_here` or `is_there`."""

    property: str
    here: str | None
    there: str | None
    is_here: bool
    is_there: bool


def config_differences(
    here: Mapping[str, str | None], there: Mapping[str, str | None], names: Iterable[str] | None = None
) -> list[Difference]:
    """Return the properties, all or only `names`, with different values, sorted.

    Two sensitive values count as equal, because neither is known.  Elements of a list are compared in their order.
    """
    chosen = here.keys() | there.keys() if names is None else set(names)
    return [
        Difference(name, here.get(name), there.get(name), name in here, name in there)
        for name in sorted(chosen)
        if (name in here) != (name in there) or here.get(name) != there.get(name)
    ]
