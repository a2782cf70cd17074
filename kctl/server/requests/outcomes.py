"""How one of many things asked for in a request ended: a value, so that one that fails does not stop the others."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from dataclasses import dataclass

from kctl.errors import ApiError, ErrorCode, SessionLostError, ZooKeeperError, shortened

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """An error code and, for people, what was wrong in this case."""

    code: ErrorCode
    message: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", shortened(self.message))

    @property
    def is_success(self) -> bool:
        return self.code is ErrorCode.NONE

    @classmethod
    def of(cls, error: ApiError) -> Outcome:
        return cls(error.code, error.message)


SUCCESS = Outcome(ErrorCode.NONE)
TIMED_OUT = Outcome(ErrorCode.REQUEST_TIMED_OUT)
NO_AUTHORIZER = Outcome(ErrorCode.SECURITY_DISABLED, "No authorizer is configured on the broker.")


async def outcome_of(work: Awaitable[object]) -> Outcome:
    """Awaits work on ZooKeeper; what it raises becomes the outcome.

    A lost session answers NOT_CONTROLLER, since its owner is no controller any more and the client should look for the
    next one; whatever else ZooKeeper refuses is UNKNOWN_SERVER_ERROR.
    """
    try:
        await work
    except ApiError as error:
        return Outcome.of(error)
    except SessionLostError:
        return Outcome(ErrorCode.NOT_CONTROLLER, "The broker has lost its ZooKeeper session.")
    except ZooKeeperError as error:
        log.warning("a request failed in ZooKeeper: %s", error)
        return Outcome(ErrorCode.UNKNOWN_SERVER_ERROR, f"ZooKeeper: {error}")
    return SUCCESS
