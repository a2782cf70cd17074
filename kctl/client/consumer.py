"""Reads assigned partitions in order, from given offsets on.  A simple consumer: no group."""

from __future__ import annotations

from collections.abc import Mapping

from kctl.client.cluster import ClusterClient
from kctl.client.fetching import FetchedPartition, FetchLimits, fetch_batches, visible_batches
from kctl.client.list_offsets import IsolationLevel
from kctl.client.metadata import ClusterMetadata
from kctl.client.retrying import LEADER_MOVED
from kctl.client.transport import ConnectionLost
from kctl.errors import ApiError, ClusterUnreachable, ErrorCode
from kctl.model import TopicPartition
from kctl.records.batch import Record, iterate_records

SEVERAL_LEADERS_WAIT_MS = 100
"""With several leaders an answer is handed on when all have answered, so each may wait less for data."""


class Consumer:
    """Positions in partitions, and what lies behind them.  Owner: event loop, or the thread of a blocking transport."""

    def __init__(
        self,
        client: ClusterClient,
        positions: Mapping[TopicPartition, int],
        *,
        limits: FetchLimits | None = None,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> None:
        self.positions = dict(sorted(positions.items()))
        self._client = client
        self._limits = limits or FetchLimits()
        self._isolation = isolation
        self._metadata: ClusterMetadata | None = None
        self._deadline = client.deadline()

    def drop(self, tp: TopicPartition) -> None:
        """Read no more of this partition."""
        self.positions.pop(tp, None)

    async def poll(self) -> list[tuple[TopicPartition, list[Record]]]:
        """The next records of partitions that have some, in order of the partitions; empty when none came in time.

        Positions move behind what is returned.  Raises ApiError (OFFSET_OUT_OF_RANGE, no such topic, ...),
        CorruptBatch, and ClusterUnreachable when a leader stays away for the client's time-out.
        """
        fetched = await self._fetch()
        return [(one.tp, records) for one in sorted(fetched, key=lambda one: one.tp) if (records := self._take(one))]

    async def _fetch(self) -> list[FetchedPartition]:
        by_leader = await self._leaders()
        limits = self._limits
        if len(by_leader) > 1:
            limits = FetchLimits(
                min(limits.max_wait_ms, SEVERAL_LEADERS_WAIT_MS),
                limits.min_bytes,
                limits.max_bytes,
                limits.partition_max_bytes,
            )

        async def ask(leader: int, positions: Mapping[TopicPartition, int]) -> list[FetchedPartition]:
            connection = await self._client.broker(leader)
            return await fetch_batches(connection, positions, limits=limits, isolation=self._isolation)

        try:
            answers = await self._client.gather([ask(leader, part) for leader, part in sorted(by_leader.items())])
        except ConnectionLost as lost:
            await self._look_again(str(lost))
            return []
        fetched = [one for answer in answers for one in answer]
        moved = next((one for one in fetched if one.error in LEADER_MOVED), None)
        if moved is not None:
            await self._look_again(f"{moved.tp}: {moved.error.name}")
            fetched = [one for one in fetched if one.error not in LEADER_MOVED]
        else:
            self._deadline = self._client.deadline()
        return fetched

    async def _leaders(self) -> dict[int, dict[TopicPartition, int]]:
        """Positions by leader; partitions without a leader at the moment are left out, and looked up again."""
        if self._metadata is None:
            self._metadata = await self._client.metadata({tp.topic for tp in self.positions})
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        without_leader = None
        for tp, position in self.positions.items():
            leader, code = self._metadata.leader_of(tp)
            if code in LEADER_MOVED:
                without_leader = f"{tp}: {code.name}"
            elif code is not ErrorCode.NONE:
                self._metadata = None  # A broker that has just started knows its topics a moment later.
                raise ApiError(code, f"{tp}: {code.description}")
            else:
                by_leader.setdefault(leader, {})[tp] = position
        if without_leader is not None:
            await self._look_again(without_leader)
        return by_leader

    async def _look_again(self, reason: str) -> None:
        self._metadata = None
        if not await self._deadline.pause():
            raise ClusterUnreachable(f"cannot read on: {reason}")

    def _take(self, fetched: FetchedPartition) -> list[Record]:
        """The records a reader gets, and the position moved behind all batches, also those nobody gets to see."""
        position = self.positions.get(fetched.tp)
        if position is None:
            return []
        if fetched.error is not ErrorCode.NONE:
            raise ApiError(fetched.error, f"{fetched.tp} at offset {position}: {fetched.error.description}")
        records: list[Record] = []
        for header, is_visible in visible_batches(fetched, self._isolation):
            if header.next_offset <= position:
                continue
            if is_visible:
                records.extend(one for one in iterate_records(fetched.records, header) if one.offset >= position)
            position = header.next_offset
        self.positions[fetched.tp] = position
        return records
