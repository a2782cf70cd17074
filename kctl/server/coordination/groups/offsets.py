"""Committed offsets of one group: visible commits, commits that are being written, and their expiry.

A commit is staged while its records are written to the log, and becomes visible when they are.  Two commits of one
partition may be staged at once; the one with the larger log offset wins, whichever is confirmed first.  A transactional
commit is invisible until the transaction's marker; then its log offset counts as well.  The commits of a long
transaction become visible some at a time: the others are undecided until then.

Expiry has two sets of rules.  A commit of OffsetCommit v2-v4 with a retention time of its own carries the time at which
it expires, and no other rule applies.  Every other commit is kept for offsets.retention.minutes, counted from a time
that depends on the group (KIP-211): since the group became empty, or since the commit if the members subscribe to other
topics now or the group never had members.

Owner: event loop.  Pure: no IO, no clock.  Kafka: GroupMetadata and GroupMetadataManager.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from kctl.errors import MalformedRequest
from kctl.limits import Subject, bound
from kctl.model import TopicPartition
from kctl.protocol.codec import decode_body
from kctl.protocol.consumer_protocol import ConsumerProtocolSubscription

TRANSACTION_GROUPS_MAX = bound(
    Subject.COORDINATION,
    "groups of one partition of `__consumer_offsets` with commits in one transaction",
    1_000,
    "groups",
    on_excess="OFFSET_METADATA_TOO_LARGE for commits of further groups",
)
GROUP_SUBSCRIBED_TOPICS_MAX = bound(
    Subject.COORDINATION,
    "topics to which the members of a consumer group subscribe, for the rules that keep offsets in use",
    100_000,
    "topics",
    on_excess="the offsets of all topics are kept while the group has members",
)

NO_LEADER_EPOCH = -1


class OffsetAndMetadata(NamedTuple):
    """A committed offset."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int | None = None
    """Set only for clients that request a retention time (OffsetCommit v2-v4)."""


class AppendedOffset(NamedTuple):
    """A commit in the log, in the batch that starts at `log_offset`."""

    value: OffsetAndMetadata
    log_offset: int


Packed: TypeAlias = tuple[int, int, str, int, int | None, int]
"""An appended offset in compact form, for groups with a million of them: the fields of the value, then the log offset.

The garbage collector does not track a tuple of atomic values; a million tracked objects stop the loop for 0.1 s.
"""


def pack(appended: AppendedOffset) -> Packed:
    """Return the compact form."""
    return (*appended.value, appended.log_offset)


def unpack(packed: Packed) -> AppendedOffset:
    """Return the readable form."""
    return AppendedOffset(OffsetAndMetadata(*packed[:-1]), packed[-1])


class _TransactionCommits:
    """The commits of one transaction that is open, or ended and not decided yet: those in the log, and staged ones."""

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

    __slots__ = ("_committed", "_ended", "_staged", "_transactions", "_undecided")

    def __init__(self) -> None:
        self._committed: dict[TopicPartition, Packed] = {}
        self._staged: dict[TopicPartition, tuple[OffsetAndMetadata, ...]] = {}
        self._transactions: dict[int, _TransactionCommits] = {}
        self._ended: deque[tuple[_TransactionCommits, bool]] = deque()
        """Transactions with undecided commits, and whether these become visible."""
        self._undecided: dict[TopicPartition, set[_TransactionCommits]] = {}
        """The transactions with an undecided commit of the partition: a group may have thousands of transactions."""

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._committed)

    def __len__(self) -> int:
        return len(self._committed)

    @property
    def size(self) -> int:
        """The number of visible commits and of partitions with undecided ones."""
        return len(self._committed) + len(self._undecided)

    def get(self, tp: TopicPartition) -> OffsetAndMetadata | None:
        """Return the visible commit; None if there is none."""
        found = self._committed.get(tp)
        return None if found is None else unpack(found).value

    def all(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return all visible commits."""
        return {tp: unpack(packed).value for tp, packed in self._committed.items()}

    def known(self) -> list[TopicPartition]:
        """Return every partition with a commit, visible or not."""
        known = [*self._committed, *(tp for tp in self._staged if tp not in self._committed)]
        if self._undecided:
            known = list(dict.fromkeys((*known, *self._undecided)))
        return known

    @property
    def is_vacant(self) -> bool:
        """True if there is no commit, visible or not, and no open transaction that had one."""
        return not (self._committed or self._staged or self._transactions or self._ended)

    def is_unstable(self, tp: TopicPartition) -> bool:
        """Return whether a commit of this partition is undecided, so that require_stable gets an error (KIP-447)."""
        return tp in self._staged or tp in self._undecided

    def stage(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Stage commits that are being written to the log; each value is one object, identified by `is`."""
        for tp, value in offsets.items():
            _stage(self._staged, tp, value)

    def confirm(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], log_offset: int) -> None:
        """Make commits that are in the log visible, unless they were removed in the meantime."""
        for tp, value in offsets.items():
            if _unstage(self._staged, tp, value):
                self._put_newer(tp, AppendedOffset(value, log_offset))

    def reject(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Drop commits that the log refused; earlier visible ones stay."""
        for tp, value in offsets.items():
            _unstage(self._staged, tp, value)

    def stage_transaction(self, producer_id: int, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Stage transactional commits that are being written to the log."""
        opened = self._transactions.setdefault(producer_id, _TransactionCommits())
        for tp, value in offsets.items():
            _stage(opened.staged, tp, value)
            self._undecided.setdefault(tp, set()).add(opened)

    def confirm_transaction(
        self, producer_id: int, offsets: Mapping[TopicPartition, OffsetAndMetadata], log_offset: int
    ) -> None:
        """Keep the transactional commits, which are in the log, for the marker, unless they were removed since."""
        opened = self._transactions.get(producer_id, _TransactionCommits())
        for tp, value in offsets.items():
            present = opened.appended.get(tp)
            if _unstage(opened.staged, tp, value) and (present is None or present.log_offset < log_offset):
                opened.appended[tp] = AppendedOffset(value, log_offset)

    def reject_transaction(self, producer_id: int, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Drop transactional commits that the log refused; earlier ones of the same transaction stay."""
        opened = self._transactions.get(producer_id, _TransactionCommits())
        for tp, value in offsets.items():
            _unstage(opened.staged, tp, value)
            if tp not in opened:
                self._decided(tp, opened)
        self._drop_if_vacant(producer_id)

    @property
    def is_deciding(self) -> bool:
        """True if the commits of a transaction that has ended are not all decided."""
        return bool(self._ended)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """End the producer's transaction: `decide` makes its commits visible or drops them."""
        opened = self._transactions.pop(producer_id, None)
        if opened is not None:
            self._ended.append((opened, committed))

    def decide(self, count: int) -> None:
        """Make up to `count` commits of the transactions that have ended visible, or drop them."""
        while self._ended:
            ended, committed = self._ended[0]
            while ended.appended or ended.staged:
                if count == 0:
                    return
                count -= 1
                if ended.appended:
                    tp, appended = ended.appended.popitem()
                    if committed:
                        self._put_newer(tp, appended)
                else:
                    tp, _ = ended.staged.popitem()
                # A partition may have a commit in the log and a staged one; both have to be decided.
                if tp not in ended:
                    self._decided(tp, ended)
            self._ended.popleft()

    @property
    def open_transactions(self) -> list[int]:
        """The ids of producers that committed in a transaction whose marker is missing."""
        return list(self._transactions)

    def load(self, committed: dict[TopicPartition, Packed]) -> None:
        """Set all visible commits, as loaded from the log; take ownership of the dictionary."""
        self._committed = committed

    def load_transaction(self, producer_id: int, tp: TopicPartition, appended: AppendedOffset) -> None:
        """Add a transactional commit without a marker, as loaded from the log."""
        opened = self._transactions.setdefault(producer_id, _TransactionCommits())
        opened.appended[tp] = appended
        self._undecided.setdefault(tp, set()).add(opened)

    def remove(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Remove these partitions; return those of which the log has, or will have, records.

        A transaction stays open until its marker, also without commits.  Kafka: GroupMetadata.removeOffsets.
        """
        return [tp for tp in partitions if self._forget(tp)]

    def expired(
        self,
        partitions: Iterable[TopicPartition],
        *,
        now_ms: int,
        retention_ms: int,
        empty_since_ms: int | None = None,
        kept_topics: frozenset[str] = frozenset(),
    ) -> list[TopicPartition]:
        """Return those of these partitions whose commit has expired, counted from `empty_since_ms` if given, else from
        the commit.

        Partitions of `kept_topics` and those with a staged commit do not expire.
        """
        return [
            tp
            for tp in partitions
            if tp.topic not in kept_topics
            and (value := self.get(tp)) is not None
            and _is_expired(value, now_ms, retention_ms, empty_since_ms)
            and not self.is_unstable(tp)
        ]

    def _forget(self, tp: TopicPartition) -> bool:
        is_recorded = self._committed.pop(tp, None) is not None
        is_recorded |= self._staged.pop(tp, None) is not None
        for commits in self._undecided.pop(tp, ()):
            commits.appended.pop(tp, None)
            commits.staged.pop(tp, None)
            is_recorded = True
        return is_recorded

    def _decided(self, tp: TopicPartition, commits: _TransactionCommits) -> None:
        """Note that the transaction has no undecided commit of this partition any more."""
        undecided = self._undecided.get(tp)
        if undecided is not None:
            undecided.discard(commits)
            if not undecided:
                del self._undecided[tp]

    def _drop_if_vacant(self, producer_id: int) -> None:
        opened = self._transactions.get(producer_id)
        if opened is not None and opened.is_vacant:
            del self._transactions[producer_id]

    def _put_newer(self, tp: TopicPartition, appended: AppendedOffset) -> None:
        # A transactional commit becomes visible at its marker, when a later one may be visible already.  The later one
        # in the log counts, as when the partition is loaded.
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
    """Remove a staged commit and return True, if it was still staged; other commits of the same partition stay
    staged.
    """
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


# The groups in a partition of `__consumer_offsets` that have commits in an open transaction, by producer id.
#
# A marker in the partition ends the producer's transaction for all of these groups. While the partition loads, the
# groups are not known yet, and the load may have read past the marker's offset already: such an end is kept until the
# load is complete.
#
# Owner: event loop. Pure. Kafka: GroupMetadataManager.openGroupsForProducer.


class TransactionEnd(NamedTuple):
    """How a producer's transaction ended in one partition."""

    producer_id: int
    committed: bool


class OpenTransactions:
    """The open transactions of one partition."""

    __slots__ = ("_early_ends", "_groups")

    def __init__(self) -> None:
        self._groups: dict[int, dict[str, None]] = {}
        self._early_ends: list[TransactionEnd] = []

    def add(self, producer_id: int, group_id: str) -> None:
        """Note that the group may have commits in the producer's transaction."""
        self._groups.setdefault(producer_id, {})[group_id] = None

    def has_room(self, producer_id: int, group_id: str) -> bool:
        """Return whether the group may commit in the producer's transaction: its end is noted for all groups at
        once.
        """
        groups = self._groups.get(producer_id, {})
        return len(groups) < TRANSACTION_GROUPS_MAX or group_id in groups

    def discard(self, producer_id: int, group_id: str) -> None:
        """Note that the group has no commits in the producer's transaction: the log refused them."""
        groups = self._groups.get(producer_id)
        if groups is not None:
            groups.pop(group_id, None)
            if not groups:
                del self._groups[producer_id]

    def end(self, producer_id: int) -> Iterable[str]:
        """End the producer's transaction and return the groups with commits in it."""
        return self._groups.pop(producer_id, {})

    def end_when_loaded(self, end: TransactionEnd) -> None:
        """Store the end of a transaction while the partition loads."""
        self._early_ends.append(end)

    def take_early_ends(self) -> list[TransactionEnd]:
        """Return the ends stored while the partition loaded, in order; clear them."""
        ends, self._early_ends = self._early_ends, []
        return ends


class SubscribedTopics:
    """Collects the topics in any of the subscriptions of a group, whose offsets do not expire while it has members."""

    def __init__(self) -> None:
        self._topics: set[str] | None = set()

    def add(self, subscription: bytes) -> None:
        """Parse the subscription of a member.

        All are parsed as version 0, with which every later version starts: some clients claim version 1 without its
        new field.
        """
        if self._topics is None:
            return
        try:
            self._topics.update(decode_body(ConsumerProtocolSubscription, subscription, 0).topics)
        except MalformedRequest:
            self._topics = None
        else:
            if len(self._topics) > GROUP_SUBSCRIBED_TOPICS_MAX:
                self._topics = None

    @property
    def known(self) -> frozenset[str] | None:
        """The topics; None if a subscription cannot be parsed, or if there are too many topics."""
        return None if self._topics is None else frozenset(self._topics)


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics in any of the subscriptions, see SubscribedTopics.known."""
    topics = SubscribedTopics()
    for subscription in subscriptions:
        topics.add(subscription)
    return topics.known
