"""A group coordinator on a virtual loop, with `__consumer_offsets` in memory."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from random import Random
from typing import Any, TypeVar

from kctl.errors import ErrorCode
from kctl.records.batch import iterate_records
from kctl.records.header import Record, parse_header
from kctl.records.salvage import Piece, cut_all
from kctl.server.coordination.groups.actions import JoinOutcome, SyncOutcome
from kctl.server.coordination.groups.config import GroupConfig
from kctl.server.coordination.groups.coordinator import GroupCoordinator
from kctl.server.coordination.groups.events import JoinRequest, SyncRequest
from kctl.server.coordination.newer_groups import ClusterTopics
from kctl.server.coordination.ports import ALL_IN_SYNC, AppendOutcome
from kctl.server.coordination.replies import Reply
from kctl.server.loop.timer import WheelTimer
from kctl.testing.sim_clock import SimClock
from kctl.testing.sim_loop import SimLoop
from tests.unit.groups.world import protocols

OutcomeT = TypeVar("OutcomeT")


BATCH_BYTES_MAX = 1 << 20


class MemoryOffsetsLog:
    """ports.CoordinatorLog that assigns offsets as a log does.

    Appends complete at once, or, with `holds`, when `release` is called.  `error` refuses them.
    """

    def __init__(self, partitions: int | None = 4) -> None:
        self.partitions = partitions
        self.batches: defaultdict[int, list[bytes]] = defaultdict(list)
        self.holds = False
        self.error = ErrorCode.NONE
        self.load_failure: Exception | None = None
        self.gate: asyncio.Event | None = None
        self.acks: list[int] = []
        self._held: list[tuple[asyncio.Future[AppendOutcome], AppendOutcome]] = []

    def partition_count(self) -> int | None:
        return self.partitions

    def batch_bytes_max(self, partition: int) -> int:
        return BATCH_BYTES_MAX

    def append(
        self, partition: int, batch: bytes, *, required_acks: int, timeout_ms: int
    ) -> AppendOutcome | asyncio.Future[AppendOutcome]:
        self.acks.append(required_acks)
        if self.error is not ErrorCode.NONE:
            return AppendOutcome(self.error)
        base_offset = self.end_offset(partition)
        self.batches[partition].append(base_offset.to_bytes(8, "big") + batch[8:])
        outcome = AppendOutcome(ErrorCode.NONE, base_offset)
        if required_acks != ALL_IN_SYNC or not self.holds:
            return outcome
        future: asyncio.Future[AppendOutcome] = asyncio.get_running_loop().create_future()
        self._held.append((future, outcome))
        return future

    async def read_all(self, partition: int) -> AsyncIterator[Piece]:
        if self.gate is not None:
            await self.gate.wait()
        if self.load_failure is not None:
            raise self.load_failure
        yield cut_all(b"".join(self.batches[partition]), end_offset=self.end_offset(partition))

    async def until_replicated(self, partition: int) -> None:
        if self._held:
            await asyncio.wait([future for future, _ in self._held])

    def release(self) -> None:
        """Moves the high watermark past all held appends."""
        held, self._held = self._held, []
        for future, outcome in held:
            future.set_result(outcome)

    def end_offset(self, partition: int) -> int:
        batches = self.batches[partition]
        return parse_header(batches[-1]).next_offset if batches else 0

    def records(self) -> list[Record]:
        """The records of all partitions, in order of partition and offset."""
        return [
            record
            for partition in sorted(self.batches)
            for batch in self.batches[partition]
            for record in iterate_records(batch)
        ]


class Host:
    """A coordinator that leads every partition of the log, loaded and started."""

    def __init__(
        self,
        loop: SimLoop,
        offsets_log: MemoryOffsetsLog | None = None,
        *,
        topics: ClusterTopics | None = None,
        topic_names: Callable[[], Iterable[str]] = tuple,
        **config: Any,
    ) -> None:
        self.log = offsets_log if offsets_log is not None else MemoryOffsetsLog()
        self.config = GroupConfig(**config)
        self.clock = SimClock(loop.time)
        self.timer = WheelTimer(self.clock, loop)
        self.coordinator = GroupCoordinator(
            broker_id=0,
            config=self.config,
            offsets_log=self.log,
            topics=topics,
            topic_names=topic_names,
            clock=self.clock,
            timer=self.timer,
            random=Random(loop.seed),
        )

    async def start(self, epoch: int = 0) -> Host:
        self.coordinator.start()
        for partition in range(self.log.partitions or 0):
            self.coordinator.partitions.on_leader(partition, epoch)
        if self.log.gate is None:
            await self.coordinator.partitions.loaded()
        return self

    def join(self, group_id: str = "g", member_id: str = "", **options: Any) -> Reply[JoinOutcome]:
        requested: dict[str, Any] = {
            "group_instance_id": None,
            "requires_known_member_id": False,
            "client_id": "c",
            "client_host": "/127.0.0.1",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer",
            "protocols": protocols("range"),
        }
        request = JoinRequest(member_id=member_id, **(requested | options))
        return self.coordinator.join(group_id, request)

    def sync(
        self, group_id: str, member_id: str, generation: int, assignments: dict[str, bytes] | None = None
    ) -> Reply[SyncOutcome]:
        request = SyncRequest(member_id=member_id, generation=generation, assignments=assignments or {})
        return self.coordinator.sync(group_id, request)

    async def stable(self, group_id: str = "g", **options: Any) -> JoinOutcome:
        """A stable group with one member."""
        joined = await settled(self.join(group_id, **options))
        await settled(self.sync(group_id, joined.member_id, joined.generation, {joined.member_id: b"p0"}))
        return joined

    def heartbeat(self, group_id: str, joined: JoinOutcome) -> Reply[ErrorCode]:
        return self.coordinator.heartbeat(
            group_id, member_id=joined.member_id, group_instance_id=None, generation=joined.generation
        )


async def settled(reply: Reply[OutcomeT]) -> OutcomeT:
    """Waits for the outcome of a reply and returns it."""
    return await reply if isinstance(reply, asyncio.Future) else reply
