"""Positions with leader epochs, and whether the log still has the history before them (KIP-320).

An offset alone does not say which records were read: after an unclean election, a restored broker or a re-created
topic the same offsets can have other records.  A position therefore has the leader epoch of the last record before it,
and the leader of the partition is asked where that epoch ends in its log (OffsetForLeaderEpoch).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import Connection
from kctl.client.consuming.fetching.batches import FetchLimits, fetch_batches
from kctl.client.consuming.list_offsets import EARLIEST, LATEST, list_offsets_at
from kctl.client.leaders import Outcomes, on_leaders
from kctl.client.metadata import ClusterMetadata
from kctl.errors import ApiError, ErrorCode, PositionLost
from kctl.model import TopicPartition
from kctl.protocol.apis.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kctl.records.batch import iterate_batches

NO_EPOCH = -1
UNDEFINED = -1
"""Epoch and end offset in a response: the log has no epoch that is as high as the requested one."""
FIRST_VERSION_WITH_EPOCHS = 1
CONSUMER = -1
PARTITIONS_PER_REQUEST = 5_000
ERRORS_SHOWN = 10

ONE_BATCH = FetchLimits(max_wait_ms=0, min_bytes=0, max_bytes=1, partition_max_bytes=1)
"""Brokers return the first batch whole, whatever its size (KIP-74)."""
_UNCHECKED_CODES = frozenset({ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION})
"""Brokers without the API, and brokers before Kafka 2.3, which serve it to brokers only."""


class Position(NamedTuple):
    """The offset of the next record to read, and the leader epoch that shows which history was read before it."""

    offset: int
    leader_epoch: int = NO_EPOCH
    """NO_EPOCH if it is unknown: the position cannot be checked."""
    is_of_record: bool = False
    """Whether `leader_epoch` is that of the record before `offset`, from its batch.  False for an epoch from a commit,
    which is usually that of a record: then less is detected (see `compare`)."""
    is_of_leader: bool = False
    """Whether `leader_epoch` is that of the leader that had the offset (ListOffsets, a first fetch): it may have no
    records, and least is detected."""


class EpochEnd(NamedTuple):
    """What a leader returns about an epoch: the largest epoch in its log that is not above it, and where that ends."""

    leader_epoch: int
    """UNDEFINED without such an epoch, and from brokers before Kafka 2.0 (version 0), which do not return it."""
    end_offset: int
    has_epoch: bool = True
    """False for version 0, in which only `end_offset` counts."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """The log does not have the history that was read up to a position: records there were lost and replaced.

    As in Java's LogTruncationException.
    """

    tp: TopicPartition
    position: Position
    end_offset: int | None
    """The first offset at which the histories differ; None if it is unknown.  Records from here up to the position's
    offset are gone, and others may have their offsets."""
    leader_epoch: int = NO_EPOCH
    """The leader epoch of the record before `end_offset`."""

    @property
    def range_text(self) -> str:
        """The offsets that were read and are no longer in the log."""
        if self.end_offset is None:
            return f"an unknown number of offsets before {self.position.offset}"
        return f"offsets {self.end_offset} to {self.position.offset - 1}"

    def __str__(self) -> str:
        epoch = self.position.leader_epoch
        of_epoch = "" if epoch == NO_EPOCH else f" (leader epoch {epoch})"
        return (
            f"{self.tp}: the log was truncated or replaced: the records that were read at {self.range_text}{of_epoch} "
            "are not in it any more, and others may have their offsets"
        )


@dataclass(frozen=True, slots=True)
class Unchecked:
    """Nothing is known about the history before a position."""

    reason: str


class LogTruncated(PositionLost):
    """The history before positions is not in the log any more."""

    def __init__(self, divergences: Iterable[Divergence]) -> None:
        self.divergences = tuple(divergences)
        shown = list(map(str, self.divergences[:ERRORS_SHOWN]))
        if len(self.divergences) > ERRORS_SHOWN:
            shown.append(f"and {len(self.divergences) - ERRORS_SHOWN} more partitions")
        super().__init__("; ".join(shown))


def compare(tp: TopicPartition, position: Position, found: EpochEnd, epoch_before: int | None) -> Divergence | None:
    """Return the divergence, or None if the leader's log can have the history before `position`.

    As Java's SubscriptionState.maybeCompleteValidation: an epoch that is above all in the log (a re-created topic), or
    that ends before the position.  Java takes everything else as valid.  But after several unclean elections the log
    can lack the epoch of the position, and have records of earlier epochs where the position has read its own: then
    `epoch_before`, the epoch of the record before the position in the leader's log, differs.  It is None if unknown
    (no longer in the log, compacted) and needed only if `is_suspect`.
    """
    if found.end_offset == UNDEFINED or (found.has_epoch and found.leader_epoch == UNDEFINED):
        return Divergence(tp, position, None)
    if found.end_offset < position.offset:
        return Divergence(tp, position, found.end_offset, found.leader_epoch)
    if is_suspect(position, found) and epoch_before not in {None, position.leader_epoch}:
        return Divergence(tp, position, None)
    return None


def is_suspect(position: Position, found: EpochEnd) -> bool:
    """Return whether the log lacks the epoch of the position, and has records of an earlier epoch before it.

    The epoch of a commit can be that of a leader without records: then the earlier epoch ends exactly there.
    """
    is_absent = found.has_epoch and UNDEFINED < found.leader_epoch < position.leader_epoch
    return (
        is_absent
        and not position.is_of_leader
        and found.end_offset >= position.offset + (not position.is_of_record)
        and position.offset > 0
    )


async def check_positions(
    client: ClusterClient,
    positions: Mapping[TopicPartition, Position],
    *,
    known: ClusterMetadata | None = None,
) -> Outcomes[Divergence | Unchecked | None]:
    """Ask the leaders whether their logs have the history before the positions: None, if a log can have it.

    Unchecked for positions without an epoch, and if the leader does not serve the API or not to this client.  Leaders
    and their epochs are those in `known`, or are looked up.  Retries as `on_leaders` does while leaders change
    (FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, ...); the ApiError of a partition is its last error.  Raises
    ClusterUnreachable.
    """
    outcomes: Outcomes[Divergence | Unchecked | None] = {
        tp: Unchecked("its leader epoch is unknown")
        for tp, position in positions.items()
        if position.leader_epoch == NO_EPOCH
    }
    current_epochs: dict[TopicPartition, int] = {}

    def note_epochs(metadata: ClusterMetadata) -> None:
        current_epochs.update(leader_epochs(metadata, positions))

    async def send_to(connection: Connection, tps: list[TopicPartition]) -> Outcomes[Divergence | Unchecked | None]:
        if not connection.versions.supports(OffsetForLeaderEpochRequest):
            return dict.fromkeys(tps, Unchecked("the broker does not support OffsetForLeaderEpoch"))
        results: Outcomes[Divergence | Unchecked | None] = {}
        for start in range(0, len(tps), PARTITIONS_PER_REQUEST):
            part = {tp: positions[tp] for tp in tps[start : start + PARTITIONS_PER_REQUEST]}
            for tp, found in (await _epoch_ends(connection, part, current_epochs)).items():
                if not isinstance(found, EpochEnd):
                    results[tp] = found
                    continue
                position = positions[tp]
                before = await _epoch_before(connection, tp, position) if is_suspect(position, found) else None
                results[tp] = before if isinstance(before, ApiError) else compare(tp, position, found, before)
        return results

    if checked := [tp for tp in positions if tp not in outcomes]:
        outcomes.update(await on_leaders(client, checked, send_to, known=known, note_metadata=note_epochs))
    return {tp: outcomes[tp] for tp in sorted(outcomes)}


async def _epoch_ends(
    connection: Connection, positions: Mapping[TopicPartition, Position], current_epochs: Mapping[TopicPartition, int]
) -> dict[TopicPartition, EpochEnd | Unchecked | ApiError]:
    topics: dict[str, OffsetForLeaderTopic] = {}
    for tp, position in positions.items():
        topic = topics.setdefault(tp.topic, OffsetForLeaderTopic(topic=tp.topic, partitions=[]))
        topic.partitions.append(
            OffsetForLeaderPartition(
                partition=tp.partition,
                current_leader_epoch=current_epochs.get(tp, NO_EPOCH),
                leader_epoch=position.leader_epoch,
            )
        )
    request = OffsetForLeaderEpochRequest(replica_id=CONSUMER, topics=list(topics.values()))
    version = connection.versions.highest(OffsetForLeaderEpochRequest)
    response = await connection.send(request, OffsetForLeaderEpochResponse)
    return {
        TopicPartition(topic.topic, partition.partition): _epoch_end(partition, version)
        for topic in response.topics
        for partition in topic.partitions
    }


def _epoch_end(partition: EpochEndOffset, version: int) -> EpochEnd | Unchecked | ApiError:
    code = ErrorCode.of(partition.error_code)
    if code in _UNCHECKED_CODES:
        return Unchecked(f"the broker does not permit OffsetForLeaderEpoch: {code.description}")
    if code is not ErrorCode.NONE:
        return ApiError(code)
    return EpochEnd(partition.leader_epoch, partition.end_offset, version >= FIRST_VERSION_WITH_EPOCHS)


async def _epoch_before(connection: Connection, tp: TopicPartition, position: Position) -> int | ApiError | None:
    """Return the leader epoch of the record before the position in the leader's log; None if the log does not have
    it.
    """
    (fetched,) = await fetch_batches(connection, {tp: position.offset - 1}, limits=ONE_BATCH)
    if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE:
        return None
    if fetched.error is not ErrorCode.NONE:
        return ApiError(fetched.error)
    header = next((batch for batch in iterate_batches(fetched.records) if batch.next_offset >= position.offset), None)
    return header.leader_epoch if header is not None and header.base_offset < position.offset else None


def leader_epochs(metadata: ClusterMetadata, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the epochs of the leaders, where the metadata has them (Kafka 2.1 and newer)."""
    epochs: dict[TopicPartition, int] = {}
    for tp in partitions:
        topic = metadata.topics.get(tp.topic)
        if topic is not None and (partition := topic.partition(tp.partition)) is not None:
            epochs[tp] = partition.leader_epoch
    return epochs


# Positions whose records are gone, because they were deleted or the log was truncated, and where to continue.


Begin = Callable[[Collection[TopicPartition]], Awaitable[Mapping[TopicPartition, Position]]]
"""Start positions of partitions by a reset policy, or an error."""


async def lost_positions(client: ClusterClient, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, bool]:
    """Return the partitions whose position is outside the log: True if it is after the end, as after a truncation.

    Raises ApiError.
    """
    lost: dict[TopicPartition, bool] = {}
    for tp, bounds in (await list_offsets_at(client, positions, (EARLIEST, LATEST))).items():
        if isinstance(bounds, ApiError):
            raise bounds
        start, end = bounds
        if not start.offset <= positions[tp] <= end.offset:
            lost[tp] = positions[tp] > end.offset
    return lost


async def reset_positions(divergences: Collection[Divergence], begin: Begin) -> dict[TopicPartition, Position]:
    """Where to continue: where the histories part, or by `begin` if that is unknown.  Raises what `begin` raises."""
    parted = {
        divergence.tp: Position(divergence.end_offset, divergence.leader_epoch)
        for divergence in divergences
        if divergence.end_offset is not None
    }
    unknown = [divergence.tp for divergence in divergences if divergence.tp not in parted]
    return {**parted, **(await begin(unknown) if unknown else {})}
