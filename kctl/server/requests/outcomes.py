"""The result for one of several resources in a request: a value, so that one failure does not stop the others."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from kctl.errors import ApiError, ErrorCode, SessionLostError, ZooKeeperError, shortened
from kctl.protocol.apis.create_acls import AclCreation
from kctl.protocol.apis.delete_acls import DeleteAclsFilter
from kctl.protocol.apis.describe_acls import DescribeAclsRequest
from kctl.security.acls import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    AclBinding,
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from kctl.server.loop.slices import sliced
from kctl.server.requests.context import RequestContext

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """An error code and an optional message."""

    code: ErrorCode
    message: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", shortened(self.message))

    @property
    def is_success(self) -> bool:
        """True if there is no error."""
        return self.code is ErrorCode.NONE

    @classmethod
    def of(cls, error: ApiError) -> Outcome:
        """Return the outcome for an error that was raised."""
        return cls(error.code, error.message)


SUCCESS = Outcome(ErrorCode.NONE)
TIMED_OUT = Outcome(ErrorCode.REQUEST_TIMED_OUT)
TOPIC_DENIED = Outcome(ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED.description)
CLUSTER_DENIED = Outcome(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED.description)
NO_AUTHORIZER = Outcome(ErrorCode.SECURITY_DISABLED, "No authorizer is configured on the broker.")


async def outcome_of(work: Awaitable[object]) -> Outcome:
    """Await work on ZooKeeper and return its errors as an outcome.

    A lost session gives NOT_CONTROLLER, since its owner is no longer the controller and the client should find the next
    one; other errors of ZooKeeper give UNKNOWN_SERVER_ERROR.
    """
    try:
        await work
    except ApiError as error:
        return Outcome.of(error)
    except SessionLostError:
        return Outcome(ErrorCode.NOT_CONTROLLER, "The broker has lost its ZooKeeper session.")
    except ZooKeeperError as error:
        log.warning("ZooKeeper refused a change, the client gets UNKNOWN_SERVER_ERROR error=%s", error)
        return Outcome(ErrorCode.UNKNOWN_SERVER_ERROR, f"ZooKeeper: {error}")
    return SUCCESS


class NamedResource(Protocol):
    """A configuration resource in a request."""

    resource_type: int
    resource_name: str


R = TypeVar("R", bound=NamedResource)
_REPEATED = Outcome(ErrorCode.INVALID_REQUEST, "The resource is in the request more than once.")


async def outcomes_of_resources(
    resources: Sequence[R], alter: Callable[[R], Awaitable[None]]
) -> list[tuple[R, Outcome]]:
    """Alter each resource of AlterConfigs or IncrementalAlterConfigs; one that is listed more than once is refused.

    `alter` raises ApiError or ZooKeeperError.
    """
    by_name = {(resource.resource_type, resource.resource_name): resource for resource in resources}
    counts = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    return [
        (resource, _REPEATED if counts[name] > 1 else await outcome_of(alter(resource)))
        async for name, resource in sliced(by_name.items())
    ]


# Authorized operations in Metadata, DescribeCluster and DescribeGroups: bit n is operation n (KIP-430).


NOT_REQUESTED = -2_147_483_648


def authorized_operations(context: RequestContext, kind: ResourceType, name: str) -> int:
    """Return the operations that the client may perform on the resource."""
    return sum(
        1 << operation
        for operation in SUPPORTED_OPERATIONS[kind]
        if context.access.allows(context.peer, operation, kind, name, api=context.api_name, is_logged=False)
    )


def authorized_cluster_operations(context: RequestContext) -> int:
    """Return the operations that the client may perform on the cluster; none without DESCRIBE.

    Kafka: handleTopicMetadata.
    """
    if not context.allows_on_cluster(Operation.DESCRIBE):
        return 0
    return authorized_operations(context, ResourceType.CLUSTER, CLUSTER_NAME)


# ACLs and filters of requests as values.


def requested_binding(creation: AclCreation) -> AclBinding:
    """Return the ACL to create.  Raises ApiError(INVALID_REQUEST) for an unknown number."""
    try:
        pattern = ResourcePattern(
            ResourceType(creation.resource_type),
            creation.resource_name,
            PatternType(creation.resource_pattern_type),
        )
        entry = AclEntry(
            creation.principal, creation.host, Operation(creation.operation), Permission(creation.permission_type)
        )
    except ValueError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"The ACL has an unknown element: {error}.") from error
    return AclBinding(pattern, entry)


def requested_filter(requested: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """Return the filter.  Raises ApiError(INVALID_REQUEST) for an unknown number."""
    try:
        return AclFilter(
            ResourceType(requested.resource_type_filter),
            requested.resource_name_filter,
            PatternType(requested.pattern_type_filter),
            requested.principal_filter,
            requested.host_filter,
            Operation(requested.operation),
            Permission(requested.permission_type),
        )
    except ValueError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"The filter has an unknown element: {error}.") from error
