"""Interfaces to the rest of the broker for both coordinators and their handlers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import NamedTuple, Protocol
from uuid import UUID

from kctl.errors import ErrorCode
from kctl.records.salvage import Piece
from kctl.server.requests.quotas.accounts import RequestAccount

log = logging.getLogger(__name__)

ALL_IN_SYNC = -1
"""For required_acks: the append completes when all in-sync replicas have the batch."""


class AppendOutcome(NamedTuple):
    """The result of an append; `base_offset` is the offset of the batch, -1 if it was refused."""

    error: ErrorCode
    base_offset: int = -1


def outcome_of(append: asyncio.Future[AppendOutcome]) -> AppendOutcome:
    """Return the result of a completed append; NOT_LEADER_OR_FOLLOWER if it was cancelled."""
    if append.cancelled():
        return AppendOutcome(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    error = append.exception()
    if error is not None:
        log.error("cannot append to the coordinator's log, refusing the request error=%r", error, exc_info=error)
        return AppendOutcome(ErrorCode.UNKNOWN_SERVER_ERROR)
    return append.result()


class CoordinatorLog(Protocol):
    """A coordinator's internal topic on this broker."""

    def partition_count(self) -> int | None:
        """Return the number of partitions of the existing topic, regardless of the properties; None if it does not
        exist.
        """
        ...

    def batch_bytes_max(self, partition: int) -> int:
        """Return the size from which on `append` refuses a batch.

        Raises KctlError if the partition is not on this broker.
        """
        ...

    def append(
        self, partition: int, batch: bytes, *, required_acks: int, timeout_ms: int
    ) -> AppendOutcome | asyncio.Future[AppendOutcome]:
        """Append as leader, not as a client.

        With ALL_IN_SYNC the result is known when the high watermark has passed the batch, or REQUEST_TIMED_OUT.  Errors
        are those of Produce; nothing is raised.
        """
        ...

    def read_all(self, partition: int) -> AsyncIterator[Piece]:
        """Return all valid batches from the start of the log to its end, some MB at a time.  Raises KctlError."""
        ...

    async def until_replicated(self, partition: int) -> None:
        """Return when the high watermark has reached the current end of the log.  Raises KctlError."""
        ...


class PrunedLog(CoordinatorLog, Protocol):
    """The internal topic of a coordinator that deletes records which it does not need any more."""

    def cut(self, partition: int, offset: int) -> None:
        """Delete the records before the offset, as far as they are replicated."""
        ...


class CoordinatorNode(NamedTuple):
    """A broker and its address for the requesting client."""

    node_id: int
    host: str
    port: int


class InternalTopics(Protocol):
    """The state of `__consumer_offsets` and `__transaction_state` that FindCoordinator needs."""

    def partition_count(self, topic: str) -> int | None:
        """Return the number of partitions; None if the topic does not exist."""
        ...

    def leader_of(self, topic: str, partition: int, listener: str) -> CoordinatorNode | None:
        """Return the leader's endpoint on the client's listener; None without a live leader or such a listener."""
        ...

    def ensure_topic(self, topic: str, account: RequestAccount | None) -> None:
        """Start creating the topic without waiting; do nothing while the creation is pending.

        A new topic counts for the quota of the client of `account`.
        """
        ...


class TopicExistence(Protocol):
    """The topics in this broker's metadata."""

    def has_partition(self, topic: str, partition: int) -> bool:
        """Return whether the partition exists."""
        ...


class TopicNames(TopicExistence, Protocol):
    """The topics in this broker's metadata, with their ids."""

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with this id, or None."""
        ...

    def topic_id(self, topic: str) -> UUID:
        """Return the topic's id; the zero id if it has none."""
        ...
