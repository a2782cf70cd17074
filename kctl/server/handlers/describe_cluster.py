"""DescribeCluster (key 60, versions 0-2): the brokers of the cluster and its controller, without topics.  KIP-700.

Contains only endpoints of the listener that accepted the connection.  While this broker cannot change anything in
ZooKeeper, the reason is the error message, without an error code: other clients ignore it, and the rest is valid.

Version notes: 1 may ask for controllers, which only controllers of KRaft answer: here MISMATCHED_ENDPOINT_TYPE, as of
Kafka's brokers (KIP-919); 2 asks for fenced brokers, too: brokers on ZooKeeper are not fenced.
"""

from __future__ import annotations

from collections.abc import Callable

from kctl.errors import ErrorCode
from kctl.protocol.apis.describe_cluster import (
    ENDPOINT_BROKERS,
    ENDPOINT_CONTROLLERS,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from kctl.server.peers.metadata import MetadataCache
from kctl.server.requests.context import RequestContext
from kctl.server.requests.outcomes import NOT_REQUESTED, authorized_cluster_operations


class DescribeClusterHandler:
    """Serves DescribeCluster requests.  Owner: event loop."""

    def __init__(self, cluster_id: str, metadata: MetadataCache, problem: Callable[[], str] = lambda: "") -> None:
        """`problem` returns why this broker cannot change anything in ZooKeeper; empty if it can."""
        self._cluster_id = cluster_id
        self._problem = problem
        self._metadata = metadata

    def handle(self, request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
        """Serve one request and return the response."""
        if request.endpoint_type != ENDPOINT_BROKERS:
            return _refuse_endpoint_type(request.endpoint_type)
        is_requested = request.include_cluster_authorized_operations
        return DescribeClusterResponse(
            error_code=ErrorCode.NONE,
            error_message=self._problem() or None,
            cluster_id=self._cluster_id,
            controller_id=self._metadata.controller_id,
            brokers=[
                DescribeClusterBroker(broker_id=broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
                for broker_id, broker in sorted(self._metadata.brokers.items())
                if (endpoint := broker.endpoint(context.listener)) is not None
            ],
            cluster_authorized_operations=authorized_cluster_operations(context) if is_requested else NOT_REQUESTED,
        )


def _refuse_endpoint_type(endpoint_type: int) -> DescribeClusterResponse:
    """Kafka: AuthHelper.computeDescribeClusterResponse."""
    if endpoint_type == ENDPOINT_CONTROLLERS:
        code, message = (
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type BROKER, not CONTROLLER.",
        )
    else:
        code, message = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {endpoint_type}"
    return DescribeClusterResponse(error_code=code, error_message=message, cluster_id="", brokers=[])
