"""Overrides of topics' properties."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kctl.admin.configs import (
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ResourceType,
    alter_configs,
    describe_configs,
)
from kctl.admin.outcome import Outcome, outcome_of
from kctl.client.cluster import ClusterClient
from kctl.client.framing import first_result
from kctl.client.transport import Connection
from kctl.errors import ErrorCode
from kctl.protocol.apis.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)


async def topic_overrides(client: ClusterClient, names: Collection[str]) -> dict[str, dict[str, str | None] | Outcome]:
    """The properties set for each topic itself, by name; sensitive values are None."""
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    described = await describe_configs(client, resources, synonyms=False)
    return {
        resource.name: entries
        if isinstance(entries, Outcome)
        else {entry.name: entry.value for entry in entries if entry.source == resource.own_source}
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
    """Sets and removes overrides of a topic, without changing others.

    Brokers before 2.3 can only replace all overrides; there a concurrent change by others is lost.
    """
    changes = [ConfigChange(key, ConfigOperation.SET, value) for key, value in set_.items()]
    changes += [ConfigChange(key, ConfigOperation.DELETE) for key in delete]
    topic = ConfigResource(ResourceType.TOPIC, name)
    outcome = (await alter_configs(client, {topic: sorted(changes)}, validate_only=validate_only))[topic]
    if outcome.error is ErrorCode.UNSUPPORTED_VERSION:
        return await _replace_overrides(client, name, set_=set_, delete=delete, validate_only=validate_only)
    return outcome


async def _replace_overrides(
    client: ClusterClient, name: str, *, set_: Mapping[str, str], delete: Collection[str], validate_only: bool
) -> Outcome:
    present = (await topic_overrides(client, [name]))[name]
    if isinstance(present, Outcome):
        return present
    requested = {key: value for key, value in present.items() if key not in delete} | dict(set_)
    configs = [AlterableConfig(name=key, value=value) for key, value in sorted(requested.items())]
    resource = AlterConfigsResource(resource_type=ResourceType.TOPIC, resource_name=name, configs=configs)
    request = AlterConfigsRequest(resources=[resource], validate_only=validate_only)

    async def send_to(connection: Connection) -> Outcome:
        response = await connection.send(request, AlterConfigsResponse)
        result = first_result(response.responses)
        return outcome_of(name, result.error_code, result.error_message)

    return await client.on_any_broker(send_to)
