"""AlterConfigs (key 33, versions 0-2): replaces all overrides of topics and brokers (KIP-133).

Overrides that are not listed are removed, so clients use IncrementalAlterConfigs instead (KIP-339).  2: flexible.
"""

from __future__ import annotations

from kctl.protocol.message import array, boolean, int8, int16, int32, request, response, string, struct


@struct
class AlterableConfig:
    """A property and its new value."""

    name: str = string()
    value: str | None = string(nullable="0+")
    """Null is invalid; a property is removed by leaving it out."""


@struct
class AlterConfigsResource:
    """A topic or a broker with all of its overrides."""

    resource_type: int = int8()
    """2: topic; 4: broker; 8: the loggers of a broker; since Kafka 3.7 also 16 and 32 for client metrics and groups."""
    resource_name: str = string()
    """Topic name or broker id; an empty broker name means the default of all brokers."""
    configs: list[AlterableConfig] = array(AlterableConfig)


@request(key=33, versions="0-2", flexible="2+")
class AlterConfigsRequest:
    """Replaces the overrides of each resource; resources succeed or fail independently."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()
    """Check the request, and change nothing."""


@struct
class AlterConfigsResourceResponse:
    """The result for one resource."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    resource_type: int = int8()
    """2: topic; 4: broker; 8: the loggers of a broker; since Kafka 3.7 also 16 and 32 for client metrics and groups."""
    resource_name: str = string()


@response(key=33, versions="0-2", flexible="2+")
class AlterConfigsResponse:
    """One result per resource of the request."""

    throttle_time_ms: int = int32(default=0)
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
