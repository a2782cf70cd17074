"""DescribeConfigs (key 32, versions 0-4): the properties of topics and of this broker, and its log levels.

A broker describes only itself, by its id; the empty name means the dynamic defaults of all brokers.  Null keys, or
none, mean every property; unknown keys are left out.  Values of sensitive properties are null.

A topic's overrides are read from ZooKeeper, as by Kafka's ZkConfigRepository, so that a client reads its own changes
from any broker.  A broker's properties are those in effect; an altered property takes effect shortly after the change.

Version notes: 0 has only a flag for default values; 1 source and synonyms (KIP-226); 3 types and documentation
(KIP-569).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from kctl.config.described import (
    ConfigSource,
    DescribedConfig,
    describe_broker,
    describe_broker_defaults,
    describe_topic,
)
from kctl.config.dynamic import ConfigView
from kctl.config.kinds import ConfigType
from kctl.errors import ApiError, ErrorCode, ZooKeeperError
from kctl.limits import DESCRIBED_AT_ONCE, DESCRIBED_BYTES_MAX
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
from kctl.server.broker_loggers import logger_levels
from kctl.server.config_alterations import ResourceType
from kctl.server.config_resources import ConfigResources, check_access, check_this_broker
from kctl.server.metadata_cache import MetadataCache
from kctl.server.requests.context import RequestContext
from kctl.server.requests.slices import pause, pieces

log = logging.getLogger(__name__)


class DescribeConfigsHandler:
    """Serves DescribeConfigs requests.  Owner: event loop."""

    def __init__(
        self, broker_id: int, configs: ConfigView, metadata: MetadataCache, resources: ConfigResources
    ) -> None:
        self._broker_id = broker_id
        self._configs = configs
        self._metadata = metadata
        self._resources = resources

    async def handle(self, request: DescribeConfigsRequest, context: RequestContext) -> DescribeConfigsResponse:
        """Serves one request and returns the response."""
        requested: dict[tuple[int, str], DescribeConfigsResource] = {}
        for resource in request.resources:
            # One result however often it is listed: a result is thousands of times longer than a name.
            requested.setdefault((resource.resource_type, resource.resource_name), resource)
        results: list[DescribeConfigsResult] = []
        left = DESCRIBED_BYTES_MAX
        for some in pieces(list(requested.values()), DESCRIBED_AT_ONCE):
            if left < 0:
                results += map(_left_out, some)
                continue
            without_overrides = describe_topic(self._configs, {})
            described = [self._described_or_error(resource, context, without_overrides) for resource in some]
            shared: dict[frozenset[str] | None, tuple[list[DescribeConfigsResourceResult], int]] = {}
            for resource, found in zip(some, await asyncio.gather(*described), strict=True):
                if left < 0:
                    results.append(_left_out(resource))
                    continue
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
            await pause()  # They may take milliseconds; other connections are served in between.
        return DescribeConfigsResponse(results=results)

    async def _described_or_error(
        self, resource: DescribeConfigsResource, context: RequestContext, without_overrides: list[DescribedConfig]
    ) -> list[DescribedConfig] | ApiError:
        try:
            check_access(context, Operation.DESCRIBE_CONFIGS, resource.resource_type, resource.resource_name)
            return await self._described(resource, without_overrides)
        except ApiError as error:
            return error

    async def _described(
        self, resource: DescribeConfigsResource, without_overrides: list[DescribedConfig]
    ) -> list[DescribedConfig]:
        """Raises ApiError."""
        name = resource.resource_name
        match resource.resource_type:
            case ResourceType.TOPIC:
                overrides = await self._topic_overrides(name)
                return describe_topic(self._configs, overrides) if overrides else without_overrides
            case ResourceType.BROKER if not name:
                return describe_broker_defaults(self._configs)
            case ResourceType.BROKER:
                check_this_broker(name, self._broker_id)
                return describe_broker(self._configs)
            case ResourceType.BROKER_LOGGER:
                check_this_broker(name, self._broker_id)
                return [_logger(each, level) for each, level in logger_levels().items()]
            case _:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource.resource_type}")

    async def _topic_overrides(self, name: str) -> Mapping[str, str]:
        """The stored overrides; those in this broker's memory if ZooKeeper cannot be read.  Raises ApiError."""
        problem = topic_name_problem(name)
        if problem is not None:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if self._metadata.partitions(name) is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        try:
            return await self._resources.current(f"topics/{name}")
        except ZooKeeperError as error:
            log.warning(
                "cannot read the configuration of a topic, describing it from memory topic=%s error=%s", name, error
            )
            return self._configs.topic_overrides.get(name, {})


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
    """The properties with these names, all without names, and their approximate size in bytes."""
    entries = [_entry(each, request, version) for each in described if not keys or each.name in keys]
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
    return own + sum(len(each.name) + len(each.value or "") for each in entry.synonyms)


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
