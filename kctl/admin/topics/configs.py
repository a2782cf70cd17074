"""Describes and alters the properties of topics, brokers, groups and client metrics, and the levels of loggers.

Requests about one broker are sent to that broker, all others to any broker, and long ones to several.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, TypeVar

from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import Connection, ConnectionLost
from kctl.client.leaders import NO_RESULT
from kctl.client.outcome import Outcome, failure_of, outcome_of
from kctl.errors import ApiError, ErrorCode, MalformedRequest
from kctl.protocol.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsSynonym,
)
from kctl.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kctl.protocol.apis.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse

T = TypeVar("T")

SOURCES: Mapping[int, str] = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
"""Names of the sources in Kafka's tools, by protocol number (ConfigEntry.ConfigSource)."""

SOURCES_VERSION_MIN = 1
"""Older versions of DescribeConfigs only return whether a value is the default (KIP-226)."""

RESOURCES_PER_BROKER_MIN = 100
"""Fewer topics are not divided among several brokers."""

BROKER_DEFAULTS = ""
"""Resource name of the cluster-wide defaults."""


class ResourceType(IntEnum):
    """Type of a config resource."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    """Its properties are loggers, their values levels.  KIP-412, Kafka 2.4."""
    CLIENT_METRICS = 16
    """A subscription to metrics of clients.  KIP-714, Kafka 3.7."""
    GROUP = 32
    """A consumer group of the protocol of KIP-848.  Kafka 4.0."""


_OWN_SOURCES: Mapping[ResourceType, str] = {
    ResourceType.TOPIC: SOURCES[1],
    ResourceType.BROKER: SOURCES[2],
    ResourceType.BROKER_LOGGER: SOURCES[6],
    ResourceType.CLIENT_METRICS: SOURCES[7],
    ResourceType.GROUP: SOURCES[8],
}


class _Introduced(NamedTuple):
    """When Kafka introduced the resources of a type, and an API that came with them, by its key and version."""

    name: str
    kafka: str
    key: int
    version: int

    def missing_at(self, address: str) -> str:
        """Return the error text for a broker without them."""
        return f"the broker at {address} has no {self.name}, which need Kafka {self.kafka} or newer without ZooKeeper"


_INTRODUCED: Mapping[ResourceType, _Introduced] = {
    # ListClientMetricsResources, which brokers with ZooKeeper do not have.
    ResourceType.CLIENT_METRICS: _Introduced("subscriptions to metrics of clients", "3.7", 74, 0),
    # ConsumerGroupDescribe with KIP-1099.
    ResourceType.GROUP: _Introduced("properties of groups", "4.0", 69, 1),
}


_TYPED_LISTS = _Introduced("lists of resources by type", "4.1", 74, 1)
"""KIP-1142; version 0 is about subscriptions to metrics of clients alone."""


class ConfigResource(NamedTuple):
    """A topic, group or subscription by name, a broker or its loggers by id, or BROKER_DEFAULTS."""

    type: ResourceType
    name: str

    @property
    def broker_id(self) -> int | None:
        """The broker to send requests to, or None for any."""
        is_of_broker = self.type in {ResourceType.BROKER, ResourceType.BROKER_LOGGER}
        return int(self.name) if is_of_broker and self.name != BROKER_DEFAULTS else None

    @property
    def own_source(self) -> str:
        """The source of values set for this resource itself."""
        is_default = self.type is ResourceType.BROKER and self.name == BROKER_DEFAULTS
        return SOURCES[3] if is_default else _OWN_SOURCES[self.type]


class ConfigOperation(IntEnum):
    """Operations of IncrementalAlterConfigs (KIP-339); the last two are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """A change of one property; DELETE has no value."""

    name: str
    operation: ConfigOperation
    value: str | None = None


class ConfigSynonym(NamedTuple):
    """A value in one source, in force or not."""

    name: str
    value: str | None
    source: str


class ConfigEntry(NamedTuple):
    """One property with the value in force; None if it is sensitive."""

    name: str
    value: str | None
    source: str
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]


_DIGITS_MAX = 19
"""Of a 64-bit number."""
Described = dict[ConfigResource, list[ConfigEntry] | Outcome]
"""The properties of each resource by name, or the error."""


async def describe_configs(
    client: ClusterClient,
    resources: Collection[ConfigResource],
    *,
    names: Sequence[str] | None = None,
    synonyms: bool = True,
    own_only: bool = False,
    is_sorted: bool = True,
) -> Described:
    """Return the properties of the resources, all or only `names`, with sources and optionally synonyms.

    With `own_only` those with a value of their own; without `is_sorted` they are in the order of the response.
    """

    async def send_to(connection: Connection, some: list[ConfigResource]) -> Described:
        version = connection.versions.highest(DescribeConfigsRequest)
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=resource.type,
                    resource_name=resource.name,
                    configuration_keys=None if names is None else list(names),
                )
                for resource in some
            ],
            include_synonyms=synonyms and version >= SOURCES_VERSION_MIN,
        )
        response = await connection.send(request, DescribeConfigsResponse, version=version)
        described: Described = {}
        for result in response.results:
            resource = _resource_of(result.resource_type, result.resource_name)
            if result.error_code:
                described[resource] = _refusal(connection, resource, result.error_code, result.error_message)
            else:
                entries = [
                    _entry(config, resource, version)
                    for config in result.configs
                    if not own_only or _source(config, resource, version) == resource.own_source
                ]
                described[resource] = sorted(entries, key=lambda entry: entry.name) if is_sorted else entries
        return described

    return await _on_brokers_of(client, resources, send_to)


async def list_client_metrics(client: ClusterClient) -> list[str]:
    """Return the names of the subscriptions to metrics of clients.

    Raises ApiError, also for brokers that have none.
    """
    introduced = _INTRODUCED[ResourceType.CLIENT_METRICS]

    async def send_to(connection: Connection) -> list[str]:
        if not connection.versions.supports(ListConfigResourcesRequest):
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, introduced.missing_at(connection.address))
        return await _list_resources(connection, ResourceType.CLIENT_METRICS)

    return await client.on_any_broker(send_to)


async def list_groups_with_configs(client: ClusterClient) -> list[str]:
    """Return the names of groups with properties of their own, which need no members.  Empty before Kafka 4.1."""

    async def send_to(connection: Connection) -> list[str]:
        if not connection.versions.has(_TYPED_LISTS.key, _TYPED_LISTS.version):
            return []
        return await _list_resources(connection, ResourceType.GROUP)

    return await client.on_any_broker(send_to)


async def _list_resources(connection: Connection, kind: ResourceType) -> list[str]:
    version = connection.versions.highest(ListConfigResourcesRequest)
    request = ListConfigResourcesRequest(resource_types=[kind] if version >= _TYPED_LISTS.version else [])
    response = await connection.send(request, ListConfigResourcesResponse, version=version)
    if response.error_code:
        raise ApiError(ErrorCode.of(response.error_code))
    return sorted(resource.resource_name for resource in response.config_resources if resource.resource_type == kind)


async def alter_configs(
    client: ClusterClient,
    changes: Mapping[ConfigResource, Sequence[ConfigChange]],
    *,
    validate_only: bool = False,
) -> dict[ConfigResource, Outcome]:
    """Alter the named properties of each resource and no others.

    Brokers before 2.3 can only replace all properties, which loses concurrent changes and sensitive values; there the
    outcome is UNSUPPORTED_VERSION and nothing is changed.
    """

    async def send_to(connection: Connection, some: list[ConfigResource]) -> dict[ConfigResource, Outcome]:
        if not connection.versions.supports(IncrementalAlterConfigsRequest):
            text = (
                f"the broker at {connection.address} cannot alter single properties (before Kafka 2.3): use the "
                "kafka-configs of its version"
            )
            return {resource: Outcome(resource.name, ErrorCode.UNSUPPORTED_VERSION, text) for resource in some}
        await client.check_quorum(connection)
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=resource.type,
                    resource_name=resource.name,
                    configs=[
                        AlterableConfig(name=change.name, config_operation=change.operation, value=change.value)
                        for change in changes[resource]
                    ],
                )
                for resource in some
            ],
            validate_only=validate_only,
        )
        response = await connection.send(request, IncrementalAlterConfigsResponse)
        outcomes: dict[ConfigResource, Outcome] = {}
        for result in response.responses:
            resource = _resource_of(result.resource_type, result.resource_name)
            outcomes[resource] = _refusal(connection, resource, result.error_code, result.error_message)
        return outcomes

    return await _on_brokers_of(client, changes, send_to)


def value_after(change: ConfigChange, resource: ConfigResource, before: ConfigEntry | None) -> str | None:
    """Return the value after `change`, or None if it is unknown."""
    present = None if before is None else before.value
    match change.operation:
        case ConfigOperation.SET:
            return change.value
        case ConfigOperation.DELETE:
            others = (
                []
                if before is None
                else [synonym for synonym in before.synonyms if synonym.source != resource.own_source]
            )
            return others[0].value if others else None
        case ConfigOperation.APPEND:
            added = [item for item in _items(change.value) if item not in _items(present)]
            return ",".join(_items(present) + added)
        case ConfigOperation.SUBTRACT:
            return ",".join(item for item in _items(present) if item not in _items(change.value))


def entry_named(entries: Iterable[ConfigEntry], name: str) -> ConfigEntry | None:
    """Return the entry with this name, or None."""
    return next((entry for entry in entries if entry.name == name), None)


def number_in(value: str | None) -> int | None:
    """Return the value of a numeric property; None if there is none, or if the broker has returned something else."""
    digits = "" if value is None else value.removeprefix("-")
    return int(value or 0) if digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX else None


def own_value(entries: Iterable[ConfigEntry], resource: ConfigResource, name: str) -> str | None:
    """Return the value set for this resource itself; None if it is inherited."""
    entry = own_entry(entries, resource, name)
    return None if entry is None else entry.value


def own_entry(entries: Iterable[ConfigEntry], resource: ConfigResource, name: str) -> ConfigEntry | None:
    """Return the entry of a property that is set for this resource itself; its value is None if it is sensitive."""
    entry = entry_named(entries, name)
    return entry if entry is not None and entry.source == resource.own_source else None


async def _on_brokers_of(
    client: ClusterClient,
    resources: Collection[ConfigResource],
    send_to: Callable[[Connection, list[ConfigResource]], Awaitable[dict[ConfigResource, T | Outcome]]],
) -> dict[ConfigResource, T | Outcome]:
    """Query each broker about itself and any broker about the rest; an unreachable broker fails only its own part."""
    by_broker: dict[int | None, list[ConfigResource]] = {}
    for resource in sorted(set(resources)):
        by_broker.setdefault(resource.broker_id, []).append(resource)

    async def send_one(broker_id: int | None, some: list[ConfigResource]) -> dict[ConfigResource, T | Outcome]:
        if broker_id is None:
            return await _on_any_brokers(client, some, send_to)
        try:
            return await send_to(await client.broker(broker_id), some)
        except (ApiError, ConnectionLost) as error:
            return {some[0]: failure_of(str(broker_id), error)}

    outcome_by_resource: dict[ConfigResource, T | Outcome] = {}
    for outcomes in await client.gather([send_one(broker_id, some) for broker_id, some in by_broker.items()]):
        outcome_by_resource.update(outcomes)
    return {
        resource: outcome_by_resource.get(resource, Outcome(resource.name, ErrorCode.UNKNOWN_SERVER_ERROR, NO_RESULT))
        for resource in sorted(set(resources))
    }


async def _on_any_brokers(
    client: ClusterClient,
    resources: list[ConfigResource],
    send_to: Callable[[Connection, list[ConfigResource]], Awaitable[dict[ConfigResource, T | Outcome]]],
) -> dict[ConfigResource, T | Outcome]:
    """Divide many resources among the brokers with a connection: a broker may read each from ZooKeeper."""
    connections = client.open_connections()[: len(resources) // RESOURCES_PER_BROKER_MIN]
    if len(connections) < 2:
        return await client.on_any_broker(lambda connection: send_to(connection, resources))

    async def send_one(connection: Connection, some: list[ConfigResource]) -> dict[ConfigResource, T | Outcome]:
        try:
            return await send_to(connection, some)
        except ConnectionLost:
            return await client.on_any_broker(lambda other: send_to(other, some))

    outcome_by_resource: dict[ConfigResource, T | Outcome] = {}
    shares = [resources[at :: len(connections)] for at in range(len(connections))]
    for outcomes in await client.gather(list(map(send_one, connections, shares))):
        outcome_by_resource.update(outcomes)
    return outcome_by_resource


def _refusal(connection: Connection, resource: ConfigResource, error_code: int, message: str | None) -> Outcome:
    """Return the outcome; UNSUPPORTED_VERSION if the broker has no resources of this type, for which it has many
    errors.
    """
    introduced = _INTRODUCED.get(resource.type)
    if (
        error_code == ErrorCode.INVALID_REQUEST
        and introduced is not None
        and not connection.versions.has(introduced.key, introduced.version)
    ):
        return Outcome(resource.name, ErrorCode.UNSUPPORTED_VERSION, introduced.missing_at(connection.address))
    return outcome_of(resource.name, error_code, message)


def _resource_of(resource_type: int, name: str) -> ConfigResource:
    """Return the resource of a response item.  Raises MalformedRequest for an unknown type."""
    try:
        return ConfigResource(ResourceType(resource_type), name)
    except ValueError:
        raise MalformedRequest(f"the response contains a resource of type {resource_type}") from None


def _entry(config: DescribeConfigsResourceResult, resource: ConfigResource, version: int) -> ConfigEntry:
    synonyms = tuple(map(_synonym, config.synonyms))
    source = _source(config, resource, version)
    return ConfigEntry(config.name, config.value, source, config.read_only, config.is_sensitive, synonyms)


def _source(config: DescribeConfigsResourceResult, resource: ConfigResource, version: int) -> str:
    if version >= SOURCES_VERSION_MIN:
        return SOURCES.get(config.config_source, "UNKNOWN")
    # Those brokers cannot alter broker properties by requests (KIP-226).
    own_source = resource.own_source if resource.type is ResourceType.TOPIC else SOURCES[4]
    return SOURCES[5] if config.is_default else own_source


def _synonym(synonym: DescribeConfigsSynonym) -> ConfigSynonym:
    return ConfigSynonym(synonym.name, synonym.value, SOURCES.get(synonym.source, "UNKNOWN"))


def _items(text: str | None) -> list[str]:
    return text.split(",") if text else []
