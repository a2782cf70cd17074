"""The rules of a follower: which partitions it asks for in a fetch session, and where it truncates (KIP-101,
KIP-279)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kctl.model import TopicPartition
from kctl.server.replication.fetching.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION

# Where a follower truncates its log after a change of leader. KIP-101, KIP-279.
#
# A follower's high watermark lags behind, so truncating there would lose acknowledged records, and not truncating
# would keep records that the new leader never had. Leader epochs show exactly where two logs diverge: the follower
# queries the leader where the follower's last epoch ends, and goes back epoch by epoch until both logs have the same
# epoch.
#
# Pure.


UNDEFINED = -1


class Truncation(NamedTuple):
    """Truncate to `offset`; if not `is_final`, query the leader again about the epoch that is the last one then."""

    offset: int
    is_final: bool


def truncation(
    *,
    leader_epoch: int,
    leader_end_offset: int,
    own_epoch: int,
    own_end_offset: int,
    log_end_offset: int,
    high_watermark: int,
) -> Truncation:
    """Evaluate the leader's response to OffsetForLeaderEpoch: the end offset of the follower's last epoch.

    `leader_epoch` and `leader_end_offset` are from the response; `own_epoch` is the largest epoch in this log not above
    `leader_epoch`, and `own_end_offset` its end here.  UNDEFINED means unknown.
    Kafka: AbstractFetcherThread.getOffsetTruncationState.
    """
    if leader_end_offset == UNDEFINED:
        # The leader does not support epochs: use the high watermark.
        return Truncation(min(high_watermark, log_end_offset), is_final=True)
    if leader_epoch == UNDEFINED:
        return Truncation(min(leader_end_offset, log_end_offset), is_final=True)
    if own_end_offset == UNDEFINED:
        return Truncation(min(leader_end_offset, log_end_offset), is_final=True)
    if own_epoch != leader_epoch:
        return Truncation(min(own_end_offset, log_end_offset), is_final=False)
    return Truncation(min(own_end_offset, leader_end_offset, log_end_offset), is_final=True)


# The follower's side of a fetch session: which partitions a request has to list. KIP-227.
#
# Pure.


_EPOCH_MAX = (1 << 31) - 1


class Position(NamedTuple):
    """The fetch position of one partition in a request."""

    fetch_offset: int
    log_start_offset: int
    leader_epoch: int
    last_fetched_epoch: int = -1


class NextFetch(NamedTuple):
    """The contents of the next request."""

    session_id: int
    session_epoch: int
    positions: Mapping[TopicPartition, Position]
    forgotten: tuple[TopicPartition, ...]


class FetchRequests:
    """The partitions that one fetcher fetches from one leader, and its session, initially none.

    The cost of a request depends on the partitions that have changed, not on their number.
    """

    def __init__(self) -> None:
        self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._positions: dict[TopicPartition, Position] = {}
        self._changed: dict[TopicPartition, Position] = {}
        self._forgotten: dict[TopicPartition, None] = {}

    def __len__(self) -> int:
        """Return the number of partitions."""
        return len(self._positions)

    def put(self, topic_partition: TopicPartition, position: Position) -> None:
        """Fetch the partition at this position."""
        if self._positions.get(topic_partition) != position:
            self._positions[topic_partition] = self._changed[topic_partition] = position
            self._forgotten.pop(topic_partition, None)

    def forget(self, topic_partition: TopicPartition) -> None:
        """Stop fetching the partition."""
        if self._positions.pop(topic_partition, None) is not None:
            self._changed.pop(topic_partition, None)
            self._forgotten[topic_partition] = None

    def next(self) -> NextFetch:
        """Return the next request: with all partitions, or with those that have changed since the last request."""
        is_full = self._epoch in {INITIAL_EPOCH, FINAL_EPOCH}
        positions = dict(self._positions) if is_full else self._changed
        forgotten = () if is_full else tuple(self._forgotten)
        self._changed, self._forgotten = {}, {}
        return NextFetch(self._session_id, self._epoch, positions, forgotten)

    def on_response(self, session_id: int) -> None:
        """Handle a response without a session error: continue the session that it names."""
        if session_id == NO_SESSION:
            self.lost()
            return
        is_new = session_id != self._session_id
        self._session_id = session_id
        self._epoch = 1 if is_new or self._epoch == _EPOCH_MAX else self._epoch + 1

    def lost(self) -> None:
        """Note that the session is invalid: the next request creates a new one."""
        self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH
