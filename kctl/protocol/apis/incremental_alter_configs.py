"""IncrementalAlterConfigs (key 44, versions 0-1): changes single overrides of topics and brokers (KIP-339).

1: flexible.
"""

from __future__ import annotations

from kctl.protocol.message import array, boolean, int8, int16, int32, request, response, string, struct


@struct
class AlterableConfig:
    """A change of one property."""

    name: str = string()
    config_operation: int = int8()
    """0 set, 1 delete, 2 append to a list, 3 subtract from a list."""
    value: str | None = string(nullable="0+")
    """Null for a deletion only."""


@struct
class AlterConfigsResource:
    """The changes for one topic, broker or broker logger."""

    resource_type: int = int8()
    """2: topic; 4: broker; 8: the loggers of a broker; since Kafka 3.7 also 16 and 32 for client metrics and groups."""
    resource_name: str = string()
    """Topic name or broker id; an empty broker name means the default of all brokers."""
    configs: list[AlterableConfig] = array(AlterableConfig)


@request(key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest:
    """Changes overrides; resources succeed or fail independently."""

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


@response(key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsResponse:
    """One result per resource of the request."""

    throttle_time_ms: int = int32(default=0)
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
