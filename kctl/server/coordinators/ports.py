"""What both coordinators and their handlers need of the rest of the broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import NamedTuple, Protocol

from kctl.errors import ErrorCode
from kctl.records.salvage import Piece

log = logging.getLogger(__name__)

ALL_IN_SYNC = -1
"""As required_acks: the outcome of an append is known when all in-sync replicas have it."""


class AppendOutcome(NamedTuple):
    """How an append ended; `base_offset` is where the batch lies, -1 when it does not."""

    error: ErrorCode
    base_offset: int = -1


def outcome_of(append: asyncio.Future[AppendOutcome]) -> AppendOutcome:
    """How an append that had to wait ended; one that was cancelled is as good as one to somebody else's partition."""
    if append.cancelled():
        return AppendOutcome(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    error = append.exception()
    if error is not None:
        log.error("event=append_failed", exc_info=error)
        return AppendOutcome(ErrorCode.UNKNOWN_SERVER_ERROR)
    return append.result()


class CoordinatorLog(Protocol):
    """A coordinator's internal topic on this broker."""

    def partition_count(self) -> int | None:
        """Of the topic as it exists, whatever the properties say; None while it does not."""
        ...

    def append(
        self, partition: int, batch: bytes, *, required_acks: int, timeout_ms: int
    ) -> AppendOutcome | asyncio.Future[AppendOutcome]:
        """Appends as leader, not as a client.  With ALL_IN_SYNC the outcome is known when the high watermark passed
        the batch, or REQUEST_TIMED_OUT.  Errors are those of Produce; nothing is raised.
        """
        ...

    def read_all(self, partition: int) -> AsyncIterator[Piece]:
        """All batches from the log's start to its end that can be believed, some MB at a time.  Raises KctlError."""
        ...


class CoordinatorNode(NamedTuple):
    """A broker as the asking client reaches it."""

    node_id: int
    host: str
    port: int


class InternalTopics(Protocol):
    """What FindCoordinator must know of `__consumer_offsets` and `__transaction_state`."""

    def partition_count(self, topic: str) -> int | None:
        """None while the topic does not exist."""
        ...

    def leader_of(self, topic: str, partition: int, listener: str) -> CoordinatorNode | None:
        """The leader's endpoint on the client's listener; None without a live leader or such a listener."""
        ...

    def ensure_topic(self, topic: str) -> None:
        """Starts creating the topic; does not wait, and does nothing while that is going on."""
        ...


class TopicExistence(Protocol):
    """What this broker knows of the cluster's topics."""

    def has_partition(self, topic: str, partition: int) -> bool: ...
