"""Committed offsets of one group: what is on record, what is on its way to the log, and what is old enough to go.

A commit is staged while its records travel to the log, and becomes visible when they are there.  Two commits of the
same partition may be on their way at once; the one whose records lie further in the log wins, whichever is confirmed
first.  A transactional commit is invisible until the transaction's marker; then its place in the log counts as well.

Expiry has two generations of rules.  A commit from OffsetCommit v2-v4 with its own retention time carries a time to
expire at, and nothing else matters.  Every other commit lives for offsets.retention.minutes, counted from a moment that
depends on the group (KIP-211): since the group became empty, or since the commit when the members read other topics now
or the group never had members.

Owner: event loop.  Pure: no IO, no clock.  Kafka: GroupMetadata and GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from kctl.model import TopicPartition

NO_LEADER_EPOCH = -1


class OffsetAndMetadata(NamedTuple):
    """One commit as its client made it."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int | None = None
    """Set only by clients that ask for a retention of their own (OffsetCommit v2-v4)."""


class AppendedOffset(NamedTuple):
    """A commit that lies in the log, in the batch that starts at `log_offset`."""

    value: OffsetAndMetadata
    log_offset: int


Packed: TypeAlias = tuple[int, int, str, int, int | None, int]
"""An appended offset the way a million of them are kept: the fields of the value, then the log offset.

A plain tuple of plain values is left alone by the garbage collector, which else stops the loop for 0.1 s.
"""


def pack(appended: AppendedOffset) -> Packed:
    """For keeping."""
    return (*appended.value, appended.log_offset)


def unpack(packed: Packed) -> AppendedOffset:
    """For looking at."""
    return AppendedOffset(OffsetAndMetadata(*packed[:-1]), packed[-1])


class _OpenCommits:
    """The commits of one open transaction: those in the log, and those on their way there."""

    __slots__ = ("appended", "staged")

    def __init__(self) -> None:
        self.appended: dict[TopicPartition, AppendedOffset] = {}
        self.staged: dict[TopicPartition, tuple[OffsetAndMetadata, ...]] = {}

    @property
    def is_vacant(self) -> bool:
        return not (self.appended or self.staged)

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self.appended or tp in self.staged


class CommittedOffsets:
    """The offsets of one group."""

    __slots__ = ("_committed", "_staged", "_transactions")

    def __init__(self) -> None:
        self._committed: dict[TopicPartition, Packed] = {}
        self._staged: dict[TopicPartition, tuple[OffsetAndMetadata, ...]] = {}
        self._transactions: dict[int, _OpenCommits] = {}

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._committed)

    def __len__(self) -> int:
        return len(self._committed)

    def get(self, tp: TopicPartition) -> OffsetAndMetadata | None:
        """What a reader sees; None when nothing is committed."""
        found = self._committed.get(tp)
        return None if found is None else unpack(found).value

    def all(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Everything visible."""
        return {tp: unpack(packed).value for tp, packed in self._committed.items()}

    def known(self) -> list[TopicPartition]:
        """Every partition with a commit, visible or on its way."""
        pending = (tp for opened in self._transactions.values() for tp in (*opened.appended, *opened.staged))
        return list(dict.fromkeys((*self._committed, *self._staged, *pending)))

    @property
    def is_vacant(self) -> bool:
        """Whether nothing is committed and nothing is on its way."""
        return not (self._committed or self._staged or self._transactions)

    def is_unstable(self, tp: TopicPartition) -> bool:
        """Whether a commit of this partition is undecided, so that KIP-447 readers have to wait."""
        return tp in self._staged or any(tp in opened for opened in self._transactions.values())

    def stage(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """These commits are on their way to the log; each value is one object, known again by its identity."""
        for tp, value in offsets.items():
            _stage(self._staged, tp, value)

    def confirm(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], log_offset: int) -> None:
        """The commits lie in the log.  Those whose offsets were removed meanwhile stay removed."""
        for tp, value in offsets.items():
            if _unstage(self._staged, tp, value):
                self._put_newer(tp, AppendedOffset(value, log_offset))

    def reject(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """The log refused the commits; what was visible before stays."""
        for tp, value in offsets.items():
            _unstage(self._staged, tp, value)

    def stage_transaction(self, producer_id: int, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Transactional commits are on their way to the log."""
        opened = self._transactions.setdefault(producer_id, _OpenCommits())
        for tp, value in offsets.items():
            _stage(opened.staged, tp, value)

    def confirm_transaction(
        self, producer_id: int, offsets: Mapping[TopicPartition, OffsetAndMetadata], log_offset: int
    ) -> None:
        """The transactional commits lie in the log and wait for the marker, unless they were removed meanwhile."""
        opened = self._transactions.get(producer_id, _OpenCommits())
        for tp, value in offsets.items():
            present = opened.appended.get(tp)
            if _unstage(opened.staged, tp, value) and (present is None or present.log_offset < log_offset):
                opened.appended[tp] = AppendedOffset(value, log_offset)

    def reject_transaction(self, producer_id: int, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """The log refused the transactional commits; earlier ones of the same transaction stay."""
        opened = self._transactions.get(producer_id, _OpenCommits())
        for tp, value in offsets.items():
            _unstage(opened.staged, tp, value)
        self._drop_if_vacant(producer_id)

    def complete_transaction(self, producer_id: int, *, committed: bool) -> None:
        """The marker of the producer's transaction came: its commits become visible, or never were."""
        opened = self._transactions.pop(producer_id, None)
        if opened is not None and committed:
            for tp, appended in opened.appended.items():
                self._put_newer(tp, appended)

    @property
    def open_transactions(self) -> list[int]:
        """The producer ids with commits that wait for a marker."""
        return list(self._transactions)

    def load(self, committed: dict[TopicPartition, Packed]) -> None:
        """All visible commits, as they were read back from the log; the dictionary is ours from now on."""
        self._committed = committed

    def load_transaction(self, producer_id: int, tp: TopicPartition, appended: AppendedOffset) -> None:
        """A commit without a marker that was read back from the log."""
        self._transactions.setdefault(producer_id, _OpenCommits()).appended[tp] = appended

    def remove(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Forget these partitions; answers those that the log has, or will have, records of."""
        return [tp for tp in partitions if self._forget(tp)]

    def expired(
        self,
        *,
        now_ms: int,
        retention_ms: int,
        empty_since_ms: int | None = None,
        kept_topics: frozenset[str] = frozenset(),
    ) -> list[TopicPartition]:
        """The partitions whose commit is too old, counted from `empty_since_ms` if given, else from the commit.

        Partitions of `kept_topics` and those with a commit on its way never expire.
        """
        return [
            tp
            for tp, packed in self._committed.items()
            if tp.topic not in kept_topics
            and not self.is_unstable(tp)
            and _is_expired(unpack(packed).value, now_ms, retention_ms, empty_since_ms)
        ]

    def _forget(self, tp: TopicPartition) -> bool:
        is_recorded = self._committed.pop(tp, None) is not None
        is_recorded |= self._staged.pop(tp, None) is not None
        for producer_id, opened in list(self._transactions.items()):
            if tp in opened:
                opened.appended.pop(tp, None)
                opened.staged.pop(tp, None)
                self._drop_if_vacant(producer_id)
                is_recorded = True
        return is_recorded

    def _drop_if_vacant(self, producer_id: int) -> None:
        opened = self._transactions.get(producer_id)
        if opened is not None and opened.is_vacant:
            del self._transactions[producer_id]

    def _put_newer(self, tp: TopicPartition, appended: AppendedOffset) -> None:
        present = self._committed.get(tp)
        if present is None or unpack(present).log_offset < appended.log_offset:
            self._committed[tp] = pack(appended)


def _stage(
    staged: dict[TopicPartition, tuple[OffsetAndMetadata, ...]], tp: TopicPartition, value: OffsetAndMetadata
) -> None:
    staged[tp] = (*staged.get(tp, ()), value)


def _unstage(
    staged: dict[TopicPartition, tuple[OffsetAndMetadata, ...]], tp: TopicPartition, value: OffsetAndMetadata
) -> bool:
    """Whether this very commit was still on its way; others of the same partition stay staged."""
    present = staged.get(tp, ())
    others = tuple(other for other in present if other is not value)
    if others:
        staged[tp] = others
    else:
        staged.pop(tp, None)
    return len(others) < len(present)


def _is_expired(value: OffsetAndMetadata, now_ms: int, retention_ms: int, empty_since_ms: int | None) -> bool:
    if value.expire_timestamp_ms is not None:
        return now_ms >= value.expire_timestamp_ms
    since_ms = value.commit_timestamp_ms if empty_since_ms is None else empty_since_ms
    return now_ms - since_ms >= retention_ms
