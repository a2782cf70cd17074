"""The result for one of several resources in a request: a value, so that one failure does not stop the others."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from kctl.errors import ApiError, ErrorCode, SessionLostError, ZooKeeperError, shortened
from kctl.server.requests.slices import paced

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
        """The outcome for an error that was raised."""
        return cls(error.code, error.message)


SUCCESS = Outcome(ErrorCode.NONE)
TIMED_OUT = Outcome(ErrorCode.REQUEST_TIMED_OUT)
TOPIC_DENIED = Outcome(ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED.description)
CLUSTER_DENIED = Outcome(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED.description)
NO_AUTHORIZER = Outcome(ErrorCode.SECURITY_DISABLED, "No authorizer is configured on the broker.")


async def outcome_of(work: Awaitable[object]) -> Outcome:
    """Awaits work on ZooKeeper and returns its errors as an outcome.

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
    """Alters each resource of AlterConfigs or IncrementalAlterConfigs; one that is listed more than once is refused.

    `alter` raises ApiError or ZooKeeperError.
    """
    by_name = {(each.resource_type, each.resource_name): each for each in resources}
    counts = Counter((each.resource_type, each.resource_name) for each in resources)
    return [
        (resource, _REPEATED if counts[name] > 1 else await outcome_of(alter(resource)))
        async for name, resource in paced(by_name.items())
    ]
