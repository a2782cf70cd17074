"""DescribeCluster (key 60, version 0): brokers, controller and cluster id, without topics (KIP-700).

Flexible from the start.
"""

from __future__ import annotations

from kctl.protocol.message import array, boolean, int16, int32, request, response, string, struct


@request(key=60, versions="0", flexible="0+")
class DescribeClusterRequest:
    """May be sent to any broker."""

    include_cluster_authorized_operations: bool = boolean()


@struct
class DescribeClusterBroker:
    """A broker with its endpoint for the listener of the request."""

    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)
    """Null if the broker has no `broker.rack`."""


@response(key=60, versions="0", flexible="0+")
class DescribeClusterResponse:
    """The live brokers."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    cluster_id: str = string(is_cluster_id=True)
    controller_id: int = int32(default=-1)
    """-1 if there is no active controller."""
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-2147483648)
    """A bit for each operation that the client may perform, by its code; the least int32 if not requested."""
