"""Replays a partition of an internal topic: passes every batch in order to a playback that builds the state.

The playback implements the rule that the last record of a key counts.  Common to all playbacks: a record that cannot be
read, or a corrupt batch, is noted and skipped, and the rest is replayed.

Storage may corrupt data, and a load is often the first read of a record since it was written: only batches with a valid
checksum are replayed (Kafka's coordinators do not verify it), by the rules of kctl.records.salvage.

Pure: bytes in.  Kafka: CoordinatorLoaderImpl, GroupMetadataManager.doLoadGroupsAndOffsets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from kctl.errors import ErrorCode, MalformedRequest
from kctl.records.batch import iterate_records
from kctl.records.compression import Buffer
from kctl.records.header import BatchHeader, CorruptBatch, Record
from kctl.records.internal.topics import UnknownKey
from kctl.records.salvage import Piece


@dataclass(frozen=True, slots=True)
class Skipped:
    """A record that could not be read, or a range of offsets."""

    offset: int
    last_offset: int
    keys: tuple[bytes | None, ...]
    """The keys, as far as they could be read; of many, the first ones."""
    reason: str


RECORDS_PER_STEP = 100
"""The records of a batch that are replayed without a pause: Kafka's coordinators write 10,000 commits as one batch."""
_BYTES_PER_RECORD = 512
"""A longer value counts as several records: a transaction of 10,000 partitions has 100,000 bytes and more."""


class Playback(Protocol):
    """Builds state from the records of one internal topic.  Kafka: CoordinatorPlayback."""

    def record(self, record: Record, header: BatchHeader) -> None:
        """Apply a record of the batch.  Raises MalformedRequest."""
        ...

    def marker(self, record: Record, header: BatchHeader) -> None:
        """Apply the end of a producer's transaction in this partition."""
        ...


class PartitionReplay:
    """Replays the partition's pieces in order; `skipped` lists what was left out."""

    def __init__(self, playback: Playback) -> None:
        self.skipped: list[Skipped] = []
        self._playback = playback

    def steps(self, piece: Piece) -> Iterator[int]:
        """Replay the batches of the piece, long ones in steps; yield the number of usual records of each step."""
        for lost in piece.damage:
            reason = f"{lost.reason}, skipped {lost.size} bytes"
            self.skipped.append(Skipped(lost.offset, lost.last_offset, lost.keys, reason))
        for header in piece.batches:
            yield from self._batch(piece.data, header)

    def _batch(self, data: Buffer, header: BatchHeader) -> Iterator[int]:
        count = 0
        play = self._playback.marker if header.is_control else self._playback.record
        following = header.base_offset
        try:
            for record in iterate_records(data, header):
                following = record.offset + 1
                if count >= RECORDS_PER_STEP:
                    yield count
                    count = 0
                count += 1 + len(record.value or b"") // _BYTES_PER_RECORD
                try:
                    play(record, header)
                except MalformedRequest as error:
                    self.skipped.append(Skipped(record.offset, record.offset, (record.key,), str(error)))
        except CorruptBatch as error:
            self.skipped.append(Skipped(following, header.last_offset, (), error.reason))
        yield count


def pass_over(key: UnknownKey) -> None:
    """Accept key types of newer versions, which are not an error (KIP-915); versions below 0 do not exist.

    Raises MalformedRequest.
    """
    if key.version < 0:
        raise MalformedRequest(f"invalid key version {key.version}")


# Maps errors of appends to the coordinator's log to errors that clients of the coordinator understand.


_LOG_UNAVAILABLE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE)

_COMMIT = _LOG_UNAVAILABLE | dict.fromkeys(_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
_GROUP = (
    _LOG_UNAVAILABLE
    | dict.fromkeys(_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR)
    | {ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS}
)
_HEARTBEAT = (
    _LOG_UNAVAILABLE
    | dict.fromkeys(_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR)
    | {ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE}
)
_TRANSACTION = _LOG_UNAVAILABLE | {
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def commit_error(error: ErrorCode) -> ErrorCode:
    """Return the error for OffsetCommit."""
    return _COMMIT.get(error, error)


def group_error(error: ErrorCode) -> ErrorCode:
    """Return the error for SyncGroup and JoinGroup; a timeout makes the member join again."""
    return _GROUP.get(error, error)


def heartbeat_error(error: ErrorCode) -> ErrorCode:
    """Return the error for ConsumerGroupHeartbeat; a timeout makes the member look for its coordinator."""
    return _HEARTBEAT.get(error, error)


def transaction_error(error: ErrorCode) -> ErrorCode:
    """Return the error for every request to a transaction coordinator."""
    return _TRANSACTION.get(error, error)
