"""Overrides of topics' properties."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import IntEnum

from kctl.admin.outcome import Outcome, outcome_of
from kctl.client.cluster import ClusterClient
from kctl.client.transport import Connection
from kctl.protocol.apis import alter_configs, incremental_alter_configs
from kctl.protocol.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)

TOPIC_RESOURCE = 2
DYNAMIC_TOPIC_SOURCE = 1
SOURCES_VERSION_MIN = 1
"""Before this version DescribeConfigs tells only whether a value is the default."""


class ConfigOperation(IntEnum):
    """What IncrementalAlterConfigs does with one property (KIP-339)."""

    SET = 0
    DELETE = 1


async def topic_overrides(client: ClusterClient, names: Collection[str]) -> dict[str, dict[str, str | None] | Outcome]:
    """The properties that were set for each topic itself, by name; sensitive values are None."""
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None)
            for name in sorted(names)
        ]
    )

    async def ask(connection: Connection) -> dict[str, dict[str, str | None] | Outcome]:
        version = connection.versions.highest(DescribeConfigsRequest)
        response = await connection.send(request, DescribeConfigsResponse, version=version)
        found: dict[str, dict[str, str | None] | Outcome] = {}
        for result in response.results:
            if result.error_code:
                found[result.resource_name] = outcome_of(result.resource_name, result.error_code, result.error_message)
            else:
                overrides = [config for config in result.configs if _is_override(config, version)]
                found[result.resource_name] = {config.name: config.value for config in sorted(overrides, key=_name)}
        return found

    return await client.on_any_broker(ask)


async def alter_topic_configs(
    client: ClusterClient,
    name: str,
    *,
    set_: Mapping[str, str],
    delete: Collection[str],
    validate_only: bool = False,
) -> Outcome:
    """Set some overrides of a topic and take others away, leaving the rest as they are.

    Brokers before 2.3 can only replace all overrides at once; there a change made at the same time by others is lost.
    """
    set_configs = [
        incremental_alter_configs.AlterableConfig(name=key, config_operation=ConfigOperation.SET, value=value)
        for key, value in set_.items()
    ]
    delete_configs = [
        incremental_alter_configs.AlterableConfig(name=key, config_operation=ConfigOperation.DELETE, value=None)
        for key in delete
    ]
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=TOPIC_RESOURCE,
        resource_name=name,
        configs=sorted(set_configs + delete_configs, key=lambda config: config.name),
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[resource], validate_only=validate_only
    )

    async def ask(connection: Connection) -> Outcome | None:
        if not connection.versions.knows(incremental_alter_configs.IncrementalAlterConfigsRequest):
            return None
        response = await connection.send(request, incremental_alter_configs.IncrementalAlterConfigsResponse)
        result = response.responses[0]
        return outcome_of(name, result.error_code, result.error_message)

    outcome = await client.on_any_broker(ask)
    return outcome or await _replace_overrides(client, name, set_=set_, delete=delete, validate_only=validate_only)


async def _replace_overrides(
    client: ClusterClient, name: str, *, set_: Mapping[str, str], delete: Collection[str], validate_only: bool
) -> Outcome:
    present = (await topic_overrides(client, [name]))[name]
    if isinstance(present, Outcome):
        return present
    wanted = {key: value for key, value in present.items() if key not in delete} | dict(set_)
    configs = [alter_configs.AlterableConfig(name=key, value=value) for key, value in sorted(wanted.items())]
    resource = alter_configs.AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configs=configs)
    request = alter_configs.AlterConfigsRequest(resources=[resource], validate_only=validate_only)

    async def ask(connection: Connection) -> Outcome:
        response = await connection.send(request, alter_configs.AlterConfigsResponse)
        result = response.responses[0]
        return outcome_of(name, result.error_code, result.error_message)

    return await client.on_any_broker(ask)


def _is_override(config: DescribeConfigsResourceResult, version: int) -> bool:
    if version < SOURCES_VERSION_MIN:
        return not config.is_default
    return config.config_source == DYNAMIC_TOPIC_SOURCE


def _name(config: DescribeConfigsResourceResult) -> str:
    return config.name
