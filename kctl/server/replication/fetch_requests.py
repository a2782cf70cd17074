"""The follower's side of a fetch session: which partitions a request has to name.  KIP-227.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kctl.model import TopicPartition
from kctl.server.replication.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION

_EPOCH_MAX = (1 << 31) - 1


class Position(NamedTuple):
    """What a fetch says of one partition."""

    fetch_offset: int
    log_start_offset: int
    leader_epoch: int
    last_fetched_epoch: int = -1


class NextFetch(NamedTuple):
    """What the next request carries."""

    session_id: int
    session_epoch: int
    positions: Mapping[TopicPartition, Position]
    forgotten: tuple[TopicPartition, ...]


class FetchRequests:
    """The session that one fetcher has with one leader; starts without one."""

    def __init__(self) -> None:
        self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._known: dict[TopicPartition, Position] = {}

    def next(self, positions: Mapping[TopicPartition, Position]) -> NextFetch:
        """The request for these partitions: all of them, or what changed since the last one."""
        if self._epoch in {INITIAL_EPOCH, FINAL_EPOCH}:
            self._known = dict(positions)
            return NextFetch(self._session_id, self._epoch, dict(positions), ())
        changed = {tp: position for tp, position in positions.items() if self._known.get(tp) != position}
        forgotten = tuple(tp for tp in self._known if tp not in positions)
        self._known = dict(positions)
        return NextFetch(self._session_id, self._epoch, changed, forgotten)

    def answered(self, session_id: int) -> None:
        """The leader answered without an error of the session."""
        if session_id == NO_SESSION:
            self.lost()
            return
        is_new = session_id != self._session_id
        self._session_id = session_id
        self._epoch = 1 if is_new or self._epoch == _EPOCH_MAX else self._epoch + 1

    def lost(self) -> None:
        """The session is of no use any more: the next request asks for a new one."""
        self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH
