"""The share session of a member with one broker: what the next request has, and what a response means.  Pure.

A session has an epoch, which every request increases, so that only one request is open at a time.  It lists the
partitions to fetch; requests have what is added and removed.  Acknowledgements go to the broker that has handed the
records out, together with a fetch or alone.  A session that the broker has lost begins again with epoch 0, and what was
to be acknowledged in it has failed.  Source: Kafka's ShareSessionHandler and ShareConsumeRequestManager.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from kctl.errors import ApiError, ErrorCode
from kctl.protocol.apis.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from kctl.protocol.apis.share_fetch import (
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
    ShareFetchResponse,
)

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = (1 << 31) - 1


class AcknowledgeType(IntEnum):
    """What a member has done with a record."""

    ACCEPT = 1
    """It was processed."""
    RELEASE = 2
    """It was not processed; it is handed out again, up to the delivery limit of the group."""
    REJECT = 3
    """It cannot be processed, and is not handed out again."""
    RENEW = 4
    """It is still being processed: its acquisition lock starts again (KIP-1222, Kafka 4.2)."""


GAP = 0
"""The type for offsets without a record."""


class TopicIdPartition(NamedTuple):
    """A partition as share sessions name it."""

    topic_id: UUID
    partition: int


class OffsetRange(NamedTuple):
    """Offsets from first to last, inclusive, and what is to be acknowledged."""

    first: int
    last: int
    type: int


@dataclass(slots=True)
class Acknowledgements:
    """Of one partition: types by offset, and ranges that are no records of the application."""

    records: dict[int, AcknowledgeType] = field(default_factory=dict)
    ranges: list[OffsetRange] = field(default_factory=list)

    @property
    def has_renewal(self) -> bool:
        """Whether a lock is renewed."""
        return AcknowledgeType.RENEW in self.records.values()

    def batches(self) -> list[AcknowledgementBatch]:
        """Ascending, with consecutive offsets of one type together."""
        batches: list[AcknowledgementBatch] = []
        singles = (OffsetRange(offset, offset, kind) for offset, kind in self.records.items())
        for first, last, kind in sorted((*singles, *self.ranges)):
            if batches and batches[-1].last_offset == first - 1 and batches[-1].acknowledge_types == [kind]:
                batches[-1].last_offset = last
            else:
                batches.append(
                    AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[int(kind)])
                )
        return batches


Pending = dict[TopicIdPartition, Acknowledgements]


class SessionRequest(NamedTuple):
    """One request of a session."""

    epoch: int
    fetches: bool
    """ShareFetch; else ShareAcknowledge."""
    added: tuple[TopicIdPartition, ...]
    forgotten: tuple[TopicIdPartition, ...]
    acknowledgements: Pending


class ShareSession:
    """The session with one broker.  Owner: event loop."""

    def __init__(self) -> None:
        self.epoch = INITIAL_EPOCH
        self.partitions: frozenset[TopicIdPartition] = frozenset()
        """What the broker has in the session."""
        self.pending: Pending = {}
        """What is to be acknowledged, and was not sent yet."""
        self.open_request: SessionRequest | None = None

    def acknowledge(self, partition: TopicIdPartition, offset: int, kind: AcknowledgeType) -> None:
        """Acknowledge this record with the next request."""
        self.pending.setdefault(partition, Acknowledgements()).records[offset] = kind

    def acknowledge_ranges(self, partition: TopicIdPartition, ranges: Iterable[OffsetRange]) -> None:
        """Acknowledge these offsets with the next request."""
        if ranges := list(ranges):
            self.pending.setdefault(partition, Acknowledgements()).ranges += ranges

    def next_request(self, wanted: Collection[TopicIdPartition], *, fetches: bool) -> SessionRequest | None:
        """Return the request to send now; None if one is open or there is nothing to send.

        Acknowledgements are sent without a fetch first if they renew locks, for which the broker would not fetch, or
        are of partitions that are not fetched any more.
        """
        if self.open_request is not None:
            return None
        if self.epoch == INITIAL_EPOCH:
            if not (fetches and wanted):
                return None
            return self._open(SessionRequest(self.epoch, True, tuple(sorted(wanted)), (), {}))
        is_apart = any(
            partition not in wanted or acknowledgements.has_renewal
            for partition, acknowledgements in self.pending.items()
        )
        if self.pending and (is_apart or not fetches):
            return self._open(SessionRequest(self.epoch, False, (), (), self._take()))
        if not fetches or not (wanted or self.partitions):
            return None
        added = tuple(sorted(set(wanted) - self.partitions))
        forgotten = tuple(sorted(self.partitions.difference(wanted)))
        return self._open(SessionRequest(self.epoch, True, added, forgotten, self._take()))

    def last_request(self) -> SessionRequest | None:
        """Return the request that closes the session, with all acknowledgements; the broker releases the other
        records.
        """
        if self.epoch == INITIAL_EPOCH or self.open_request is not None:
            return None
        return self._open(SessionRequest(FINAL_EPOCH, False, (), (), self._take()))

    def completed(self, error: ErrorCode) -> None:
        """Take the response to the open request, with this error for the whole session."""
        request = self.open_request
        self.open_request = None
        if request is None:
            return
        if error is not ErrorCode.NONE or request.epoch == FINAL_EPOCH:
            self._begin_again()
            return
        self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1
        if request.fetches:
            self.partitions = (self.partitions | set(request.added)) - set(request.forgotten)

    def lost(self) -> Pending:
        """Handle the loss of the connection; return what was to be acknowledged, and has failed."""
        failed = self.open_request.acknowledgements if self.open_request is not None else {}
        self.open_request = None
        waiting = self._take()
        self._begin_again()
        for partition, acknowledgements in waiting.items():
            both = failed.setdefault(partition, Acknowledgements())
            both.records.update(acknowledgements.records)
            both.ranges += acknowledgements.ranges
        return failed

    def _begin_again(self) -> None:
        self.epoch = INITIAL_EPOCH
        self.partitions = frozenset()

    def _open(self, request: SessionRequest) -> SessionRequest:
        self.open_request = request
        return request

    def _take(self) -> Pending:
        taken, self.pending = self.pending, {}
        return taken


# The messages of a session.


class ShareLimits(NamedTuple):
    """Limits of ShareFetch requests, with Kafka's names and meanings."""

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 50 << 20
    max_records: int = 500
    is_record_limit: bool = False
    """share.acquire.mode=record_limit: at most `max_records`, instead of whole batches (KIP-1206)."""


def fetch_request(request: SessionRequest, group_id: str, member_id: str, limits: ShareLimits) -> ShareFetchRequest:
    """Return the message of a request that fetches."""
    topics: dict[UUID, FetchTopic] = {}
    for partition in sorted({*request.added, *request.acknowledgements}):
        topic = topics.setdefault(partition.topic_id, FetchTopic(topic_id=partition.topic_id, partitions=[]))
        acknowledgements = request.acknowledgements.get(partition, Acknowledgements())
        topic.partitions.append(
            FetchPartition(partition_index=partition.partition, acknowledgement_batches=acknowledgements.batches())
        )
    forgotten: dict[UUID, ForgottenTopic] = {}
    for partition in request.forgotten:
        gone = forgotten.setdefault(partition.topic_id, ForgottenTopic(topic_id=partition.topic_id, partitions=[]))
        gone.partitions.append(partition.partition)
    return ShareFetchRequest(
        group_id=group_id,
        member_id=member_id,
        share_session_epoch=request.epoch,
        max_wait_ms=limits.max_wait_ms,
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        max_records=limits.max_records,
        batch_size=limits.max_records,
        share_acquire_mode=int(limits.is_record_limit),
        topics=list(topics.values()),
        forgotten_topics_data=list(forgotten.values()),
    )


def acknowledge_request(request: SessionRequest, group_id: str, member_id: str) -> ShareAcknowledgeRequest:
    """Return the message of a request that only acknowledges."""
    topics: dict[UUID, AcknowledgeTopic] = {}
    for partition, acknowledgements in sorted(request.acknowledgements.items(), key=lambda item: item[0]):
        topic = topics.setdefault(partition.topic_id, AcknowledgeTopic(topic_id=partition.topic_id, partitions=[]))
        topic.partitions.append(
            AcknowledgePartition(
                partition_index=partition.partition, acknowledgement_batches=acknowledgements.batches()
            )
        )
    return ShareAcknowledgeRequest(
        group_id=group_id,
        member_id=member_id,
        share_session_epoch=request.epoch,
        is_renew_ack=any(acknowledgements.has_renewal for acknowledgements in request.acknowledgements.values()),
        topics=list(topics.values()),
    )


def acknowledged(
    request: SessionRequest, response: ShareFetchResponse | ShareAcknowledgeResponse
) -> dict[TopicIdPartition, ApiError | None]:
    """Return the outcome of the acknowledgements of each partition."""
    error = ErrorCode.of(response.error_code)
    if error is not ErrorCode.NONE:
        return dict.fromkeys(request.acknowledgements, ApiError(error, response.error_message or error.description))
    codes: Mapping[TopicIdPartition, tuple[int, str | None]]
    if isinstance(response, ShareFetchResponse):
        codes = {
            TopicIdPartition(topic.topic_id, partition.partition_index): (
                partition.acknowledge_error_code,
                partition.acknowledge_error_message,
            )
            for topic in response.responses
            for partition in topic.partitions
        }
    else:
        codes = {
            TopicIdPartition(topic.topic_id, partition.partition_index): (
                partition.error_code,
                partition.error_message,
            )
            for topic in response.responses
            for partition in topic.partitions
        }
    return {partition: _outcome(*codes.get(partition, (0, None))) for partition in request.acknowledgements}


def _outcome(error_code: int, message: str | None) -> ApiError | None:
    code = ErrorCode.of(error_code)
    return None if code is ErrorCode.NONE else ApiError(code, message or code.description)
