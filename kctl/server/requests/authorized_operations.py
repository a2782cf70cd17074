"""Authorized operations in Metadata, DescribeCluster and DescribeGroups: bit n is operation n (KIP-430)."""

from __future__ import annotations

from kctl.security.acls import CLUSTER_NAME, SUPPORTED_OPERATIONS, Operation, ResourceType
from kctl.server.requests.context import RequestContext

NOT_REQUESTED = -2_147_483_648


def authorized_operations(context: RequestContext, kind: ResourceType, name: str) -> int:
    """The operations that the client may perform on the resource."""
    return sum(
        1 << operation
        for operation in SUPPORTED_OPERATIONS[kind]
        if context.access.allows(context.peer, operation, kind, name, api=context.api_name, is_logged=False)
    )


def authorized_cluster_operations(context: RequestContext) -> int:
    """The operations that the client may perform on the cluster; none without DESCRIBE.  Kafka: handleTopicMetadata."""
    if not context.allows_on_cluster(Operation.DESCRIBE):
        return 0
    return authorized_operations(context, ResourceType.CLUSTER, CLUSTER_NAME)
