"""The follower's side of a fetch session: which partitions a request has to list.  KIP-227.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kctl.model import TopicPartition
from kctl.server.replication.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION

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
    """The session of one fetcher with one leader; initially none."""

    def __init__(self) -> None:
        self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._known: dict[TopicPartition, Position] = {}

    def next(self, positions: Mapping[TopicPartition, Position]) -> NextFetch:
        """The request for these partitions: all of them, or those that changed since the last request."""
        if self._epoch in {INITIAL_EPOCH, FINAL_EPOCH}:
            self._known = dict(positions)
            return NextFetch(self._session_id, self._epoch, dict(positions), ())
        changed = {tp: position for tp, position in positions.items() if self._known.get(tp) != position}
        is_smaller = not self._known.keys() <= positions.keys()
        forgotten = tuple(tp for tp in self._known if tp not in positions) if is_smaller else ()
        self._known = dict(positions)
        return NextFetch(self._session_id, self._epoch, changed, forgotten)

    def on_response(self, session_id: int) -> None:
        """Handles a response without a session error: continues the session that it names."""
        if session_id == NO_SESSION:
            self.lost()
            return
        is_new = session_id != self._session_id
        self._session_id = session_id
        self._epoch = 1 if is_new or self._epoch == _EPOCH_MAX else self._epoch + 1

    def lost(self) -> None:
        """The session is invalid: the next request creates a new one."""
        self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH
