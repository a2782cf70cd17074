"""DescribeCluster (key 60, version 0): brokers, controller and cluster id, without topics (KIP-700).

Flexible from the start.
"""

from __future__ import annotations

from kctl.protocol.message import array, boolean, int16, int32, request, response, string, struct


@request(key=60, versions="0", flexible="0+")
class DescribeClusterRequest:
    include_cluster_authorized_operations: bool = boolean()


@struct
class DescribeClusterBroker:
    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)


@response(key=60, versions="0", flexible="0+")
class DescribeClusterResponse:
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-2147483648)
