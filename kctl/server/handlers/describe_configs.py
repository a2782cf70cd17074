"""DescribeConfigs (key 32, versions 0-4): the properties of topics and of this broker, and its log levels.

A broker describes only itself, by its id; the empty name means the dynamic defaults of all brokers.  Null keys, or
none, mean every property; unknown keys are left out.  Values of sensitive properties are null.

A topic's overrides are those in ZooKeeper, as by Kafka's ZkConfigRepository, so that a client reads its own changes
from any broker; for many topics, they are kept in memory until they change (`kctl.server.cluster.configs.resources`).
A broker's properties are those in effect; an altered property takes effect shortly after the change.

Version notes: 0 has only a flag for default values; 1 source and synonyms (KIP-226); 3 types and documentation
(KIP-569).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from kctl.config.described import (
    ConfigSource,
    DescribedConfig,
    describe_broker,
    describe_broker_defaults,
    describe_group,
    describe_topic,
)
from kctl.config.dynamic import ConfigView
from kctl.config.kinds import ConfigType
from kctl.config.subjects.groups import CONFIGURED_PROTOCOLS
from kctl.errors import ApiError, ErrorCode, ZooKeeperError
from kctl.limits import DESCRIBED_BYTES_MAX, Subject, bound
from kctl.model import topic_name_problem
from kctl.protocol.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from kctl.security.acls import Operation
from kctl.server.cluster.configs.alterations import ResourceType
from kctl.server.cluster.configs.loggers import logger_levels
from kctl.server.cluster.configs.resources import WatchedConfigs, check_access, check_this_broker
from kctl.server.loop.slices import sliced_batches
from kctl.server.peers.metadata import MetadataCache
from kctl.server.requests.context import RequestContext

DESCRIBED_AT_ONCE = bound(
    Subject.LONG_WORK,
    "resources of one DescribeConfigs request that are described at the same time, with reads from ZooKeeper",
    16,
    "resources",
    on_excess="the others are read afterwards; other connections are served in between",
)


log = logging.getLogger(__name__)


class DescribeConfigsHandler:
    """Serves DescribeConfigs requests.  Owner: event loop."""

    def __init__(
        self, broker_id: int, configs: ConfigView, metadata: MetadataCache, watched_configs: WatchedConfigs
    ) -> None:
        self._broker_id = broker_id
        self._configs = configs
        self._metadata = metadata
        self._watched_configs = watched_configs
        self._protocols = configs.current.group_coordinator_rebalance_protocols

    async def handle(self, request: DescribeConfigsRequest, context: RequestContext) -> DescribeConfigsResponse:
        """Serve one request and return the response."""
        requested: dict[tuple[int, str], DescribeConfigsResource] = {}
        for resource in request.resources:
            # One result however often it is listed: a result is thousands of times longer than a name.
            requested.setdefault((resource.resource_type, resource.resource_name), resource)
        # For few topics, it would be one read more.
        uses_kept = len(requested) > DESCRIBED_AT_ONCE and await self._are_kept_confirmed()
        results: list[DescribeConfigsResult] = []
        left = DESCRIBED_BYTES_MAX
        # A batch takes milliseconds; other connections are served before the next one.
        async for batch in sliced_batches(list(requested.values()), DESCRIBED_AT_ONCE):
            if left < 0:
                results += map(_left_out, batch)
                continue
            refusals = [self._refusal(resource, context) for resource in batch]
            topics = [
                resource.resource_name
                for resource, refusal in zip(batch, refusals, strict=True)
                if refusal is None and resource.resource_type == ResourceType.TOPIC
            ]
            overrides = await self._overrides(topics, uses_kept=uses_kept)
            without_overrides = describe_topic(self._configs, {})
            shared: dict[frozenset[str] | None, tuple[list[DescribeConfigsResourceResult], int]] = {}
            for resource, refusal in zip(batch, refusals, strict=True):
                if left < 0:
                    results.append(_left_out(resource))
                    continue
                found = refusal or self._described(resource, overrides, without_overrides)
                result = _result_without_configs(resource, found)
                results.append(result)
                if isinstance(found, ApiError):
                    continue
                keys = None if resource.configuration_keys is None else frozenset(resource.configuration_keys)
                if found is not without_overrides:
                    entries, size = _entries(found, keys, request, context.api_version)
                elif (same := shared.get(keys)) is not None:
                    entries, size = same
                else:  # Of most topics, and built once for these.
                    entries, size = shared[keys] = _entries(found, keys, request, context.api_version)
                result.configs = entries
                left -= size
        return DescribeConfigsResponse(results=results)

    def _refusal(self, resource: DescribeConfigsResource, context: RequestContext) -> ApiError | None:
        kind, name = resource.resource_type, resource.resource_name
        try:
            check_access(context, Operation.DESCRIBE_CONFIGS, kind, name)
            if kind == ResourceType.TOPIC:
                self._check_topic(name)
            elif kind == ResourceType.BROKER_LOGGER or (kind == ResourceType.BROKER and name):
                check_this_broker(name, self._broker_id)
            elif kind == ResourceType.GROUP and CONFIGURED_PROTOCOLS.intersection(self._protocols):
                pass
            elif kind != ResourceType.BROKER:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {kind}")
        except ApiError as error:
            return error
        return None

    def _check_topic(self, name: str) -> None:
        problem = topic_name_problem(name)
        if problem is not None:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if self._metadata.partitions(name) is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _described(
        self,
        resource: DescribeConfigsResource,
        overrides: Mapping[str, Mapping[str, str] | ApiError],
        without_overrides: list[DescribedConfig],
    ) -> list[DescribedConfig] | ApiError:
        name = resource.resource_name
        if resource.resource_type == ResourceType.TOPIC:
            own = overrides[name]
            if isinstance(own, ApiError):
                return own
            return describe_topic(self._configs, own) if own else without_overrides
        if resource.resource_type == ResourceType.GROUP:
            return describe_group(self._configs, name)
        if resource.resource_type == ResourceType.BROKER_LOGGER:
            return [_logger(logger, level) for logger, level in logger_levels().items()]
        return describe_broker(self._configs) if name else describe_broker_defaults(self._configs)

    async def _are_kept_confirmed(self) -> bool:
        """Return whether overrides in memory are those in ZooKeeper; it is False while ZooKeeper cannot be read."""
        try:
            await self._watched_configs.confirm()
        except ZooKeeperError:
            return False
        return True

    async def _overrides(self, topics: Sequence[str], *, uses_kept: bool) -> dict[str, Mapping[str, str] | ApiError]:
        """Return the stored overrides of each topic, or the error; those that are not in memory are read side by
        side.
        """
        kept = {topic: self._watched_configs.kept(topic) if uses_kept else None for topic in topics}
        missing = [topic for topic, overrides in kept.items() if overrides is None]
        read = await asyncio.gather(*map(self._read, missing)) if missing else []
        return {topic: overrides for topic, overrides in kept.items() if overrides is not None} | dict(
            zip(missing, read, strict=True)
        )

    async def _read(self, topic: str) -> Mapping[str, str] | ApiError:
        """Return the overrides in ZooKeeper; those in this broker's memory if ZooKeeper cannot be read."""
        try:
            return await self._watched_configs.read(topic)
        except ApiError as error:
            return error
        except ZooKeeperError as error:
            log.warning(
                "cannot read the configuration of a topic, describing it from memory topic=%s error=%s", topic, error
            )
            return self._configs.topic_overrides.get(topic, {})


def _result_without_configs(
    resource: DescribeConfigsResource, described: list[DescribedConfig] | ApiError
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        error_code=ErrorCode.NONE,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )
    if isinstance(described, ApiError):
        result.error_code, result.error_message = described.code, described.message or ""
    return result


def _entries(
    described: list[DescribedConfig], keys: frozenset[str] | None, request: DescribeConfigsRequest, version: int
) -> tuple[list[DescribeConfigsResourceResult], int]:
    """Return the properties with these names, all without names, and their approximate size in bytes."""
    entries = [_entry(config, request, version) for config in described if not keys or config.name in keys]
    return entries, sum(map(_size_of, entries))


def _entry(described: DescribedConfig, request: DescribeConfigsRequest, version: int) -> DescribeConfigsResourceResult:
    entry = DescribeConfigsResourceResult(
        name=described.name,
        value=described.value,
        read_only=described.read_only,
        config_source=described.source,
        is_sensitive=described.sensitive,
        config_type=described.type,
    )
    if version == 0:
        entry.is_default = described.source is ConfigSource.DEFAULT_CONFIG
    if request.include_synonyms:
        entry.synonyms = [
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in described.synonyms
        ]
    if request.include_documentation or described.source is ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG:
        # Kafka always sends an empty documentation for loggers, which have none.
        entry.documentation = described.documentation
    return entry


def _left_out(resource: DescribeConfigsResource) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=ErrorCode.INVALID_REQUEST,
        error_message="the response would be too long: request fewer resources at a time",
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )


def _size_of(entry: DescribeConfigsResourceResult) -> int:
    own = len(entry.name) + len(entry.value or "") + len(entry.documentation or "")
    return own + sum(len(synonym.name) + len(synonym.value or "") for synonym in entry.synonyms)


def _logger(name: str, level: str) -> DescribedConfig:
    return DescribedConfig(
        name=name,
        value=level,
        type=ConfigType.UNKNOWN,
        source=ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
        read_only=False,
        sensitive=False,
        documentation="",
        synonyms=(),
    )
