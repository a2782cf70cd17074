"""DescribeConfigs (key 32, versions 0-4): properties of topics and brokers, and the sources of their values (KIP-133).

1: sources and synonyms (KIP-226) instead of `is_default`.  3: types and documentation (KIP-569).  4: flexible.
"""

from __future__ import annotations

from kctl.protocol.message import array, boolean, int8, int16, int32, request, response, string, struct


@struct
class DescribeConfigsResource:
    """A topic or a broker."""

    resource_type: int = int8()
    """2: topic; 4: broker; 8: the loggers of a broker; since Kafka 3.7 also 16 and 32 for client metrics and groups."""
    resource_name: str = string()
    """Topic name or broker id; an empty broker name means the dynamic default of all brokers."""
    configuration_keys: list[str] | None = array(string, nullable="0+")
    """Null for all properties."""


@request(key=32, versions="0-4", flexible="4+")
class DescribeConfigsRequest:
    """Broker resources must be requested from that broker; topics from any broker."""

    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean("1+", default=False)
    """Return the values that the effective one overrides."""
    include_documentation: bool = boolean("3+", default=False)


@struct
class DescribeConfigsSynonym:
    """A property that the value may come from, in order of precedence."""

    name: str = string()
    value: str | None = string(nullable="1+")
    source: int = int8()
    """Numbers as in `config_source`."""


@struct
class DescribeConfigsResourceResult:
    """A property and its value."""

    name: str = string()
    value: str | None = string(nullable="0+")
    """Null if the property is sensitive or unset."""
    read_only: bool = boolean()
    """True if the property cannot be changed at runtime."""
    is_default: bool = boolean("0", default=False)
    """True if the value is the default; `config_source` replaces it."""
    config_source: int = int8("1+", default=-1, ignorable=True)
    """1 topic, 2 dynamic broker, 3 dynamic broker default, 4 static broker, 5 default, 6 dynamic broker logger."""
    is_sensitive: bool = boolean()
    """True for secrets, whose value is null."""
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, "1+", default=[], ignorable=True)
    """The values by precedence, the effective one first."""
    config_type: int = int8("3+", default=0, ignorable=True)
    """0 unknown, 1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 password."""
    documentation: str | None = string("3+", nullable="3+", default=None, ignorable=True)


@struct
class DescribeConfigsResult:
    """The properties of one resource, or the error."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default="")
    resource_type: int = int8()
    """2: topic; 4: broker; 8: the loggers of a broker; since Kafka 3.7 also 16 and 32 for client metrics and groups."""
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


@response(key=32, versions="0-4", flexible="4+")
class DescribeConfigsResponse:
    """One result per resource of the request."""

    throttle_time_ms: int = int32(default=0)
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)
