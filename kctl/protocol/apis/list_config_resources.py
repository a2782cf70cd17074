"""ListConfigResources (key 74, versions 0-1): the names of resources with properties.

New in Kafka 3.7 as ListClientMetricsResources (KIP-714), for clusters without ZooKeeper.  Flexible from the start.  1:
the types of the resources, Kafka 4.1 (KIP-1142); version 0 is about subscriptions to client metrics alone.
"""

from __future__ import annotations

from kctl.protocol.message import array, int8, int16, int32, request, response, string, struct


@request(key=74, versions="0-1", flexible="0+", served="0-1")
class ListConfigResourcesRequest:
    """Sent to any broker."""

    resource_types: list[int] = array(int8, "1+", default=[])
    """The types of DescribeConfigs; empty for all that the broker can list."""


@struct
class ConfigResource:
    """A resource that has properties of its own."""

    resource_name: str = string()
    resource_type: int = int8("1+", default=16, ignorable=True)


@response(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesResponse:
    """All resources of the requested types."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)
