"""DescribeCluster (key 60, versions 0-2): brokers or controllers, the controller and the cluster id, without topics.

KIP-700.  Flexible from the start.  1: `endpoint_type`, also for controllers (KIP-919).  2: fenced brokers (KIP-1073).
"""

from __future__ import annotations

from kctl.protocol.message import array, boolean, int8, int16, int32, request, response, string, struct

ENDPOINT_BROKERS = 1
ENDPOINT_CONTROLLERS = 2


@request(key=60, versions="0-2", flexible="0+")
class DescribeClusterRequest:
    """May be sent to any broker, and to any controller for the controllers."""

    include_cluster_authorized_operations: bool = boolean(default=False)
    endpoint_type: int = int8("1+", default=ENDPOINT_BROKERS)
    """1 for brokers, 2 for controllers."""
    include_fenced_brokers: bool = boolean("2+", default=False)


@struct
class DescribeClusterBroker:
    """A broker with its endpoint for the listener of the request, or a controller."""

    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)
    """Null if the broker has no `broker.rack`."""
    is_fenced: bool = boolean("2+", default=False, ignorable=True)
    """Whether the controller has fenced it: it neither leads nor is it in sync."""


@response(key=60, versions="0-2", flexible="0+")
class DescribeClusterResponse:
    """The live brokers, and the fenced ones if requested; or the controllers."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    endpoint_type: int = int8("1+", default=ENDPOINT_BROKERS, ignorable=True)
    cluster_id: str = string(is_cluster_id=True)
    controller_id: int = int32(default=-1)
    """-1 if there is no active controller.  Brokers of a KRaft cluster name any broker, its controllers the leader."""
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-2147483648)
    """A bit for each operation that the client may perform, by its code; the least int32 if not requested."""
