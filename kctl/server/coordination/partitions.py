"""The partitions of an internal topic that this broker leads, and with them the ids that it coordinates.

A group id or transactional id belongs to the partition that its hash selects; the leader of that partition is its
coordinator.

    not led ---leader elected here---> loading ---read to the end, replicated---> loaded
       ^                                  |                                         |
       +----------read error--------------+-----------leader elsewhere--------------+

While a partition loads, its ids get COORDINATOR_LOAD_IN_PROGRESS and those of other partitions are served.

Invariants: all ids of a partition are added at once, after its log was read to the end and the high watermark has
reached that end (Kafka does not wait for that, and can forget what it has confirmed); a partition that cannot be read
is not served at all; when the leadership ends, the load is cancelled and the ids are removed; a leader epoch never
decreases, and a notification with an older epoch changes nothing.

Owner: event loop.  Kafka: GroupMetadataManager.ownedPartitions and loadingPartitions, TransactionStateManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Generic, Protocol, TypeVar

from kctl.errors import ErrorCode, KctlError
from kctl.model import TopicPartition, partition_for_key
from kctl.server.coordination.ports import CoordinatorLog
from kctl.server.coordination.replay import PartitionReplay, Playback
from kctl.system.environment import Clock

_LOADS_MAX = 64
log = logging.getLogger(__name__)

T = TypeVar("T")


class LedPartition(Generic[T]):
    """A partition of the internal topic while this broker leads it."""

    __slots__ = ("epoch", "index", "is_loading", "is_served", "load", "objects")

    def __init__(self, index: int, epoch: int) -> None:
        self.index = index
        self.epoch = epoch
        self.is_loading = True
        self.is_served = False
        """True from the end of the load to the end of the leadership."""
        self.objects: dict[str, T] = {}
        """The groups or transactional ids, by id; while it is loading, those that have been loaded."""
        self.load: asyncio.Task[None] | None = None


class HostedState(Protocol[T]):
    """The objects in the partitions: groups or transactional ids."""

    kind: str
    """Their name in the log."""

    async def load_all(self, partition: LedPartition[T]) -> None:
        """Read the partition and add its objects to it.  Yields to other requests.  Raises KctlError."""
        ...

    def serve_all(self, partition: LedPartition[T]) -> None:
        """Start serving them, at once however many they are."""
        ...

    def remove_all(self, partition: LedPartition[T]) -> int:
        """Stop serving them at once, and remove them and complete their parked requests in turns of the loop.

        Return their number.
        """
        ...


class CoordinatorPartitions(Generic[T]):
    """Loads and unloads partitions as their leadership changes."""

    def __init__(self, broker_id: int, coordinator_log: CoordinatorLog, hosted: HostedState[T], clock: Clock) -> None:
        self._broker_id = broker_id
        self._log = coordinator_log
        self._hosted = hosted
        self._clock = clock
        self._led: dict[int, LedPartition[T]] = {}
        self.latest_load_ms: deque[int] = deque(maxlen=_LOADS_MAX)
        """How long the latest loads took."""

    @property
    def are_loading(self) -> bool:
        """True while any partition is loading."""
        return any(led.is_loading for led in self._led.values())

    def get(self, index: int) -> LedPartition[T] | None:
        """Return the partition with this index, if this broker leads it."""
        return self._led.get(index)

    def served(self) -> list[LedPartition[T]]:
        """Return the partitions that are loaded."""
        return [led for led in self._led.values() if led.is_served]

    def of(self, key: str) -> LedPartition[T] | None:
        """Return the partition of this id, if this broker leads it."""
        count = self._log.partition_count()
        return None if count is None else self._led.get(partition_for_key(key, count))

    def status(self, key: str) -> ErrorCode:
        """NONE if this broker coordinates the id, else COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR."""
        led = self.of(key)
        if led is None:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if led.is_loading else ErrorCode.NONE

    def on_leader(self, index: int, epoch: int) -> None:
        """Load a partition that this broker leads in `epoch`, unless it is loaded already or the epoch is older.

        If the epoch is the next one, no other broker led it in between, so the state in memory is valid.
        """
        led = self._led.get(index)
        if led is not None and epoch <= led.epoch + 1:
            led.epoch = max(led.epoch, epoch)
            return
        if led is not None:
            self._give_up(led)
        led = self._led[index] = LedPartition(index, epoch)
        name = f"load-{self._hosted.kind}-{index}"
        led.load = asyncio.get_running_loop().create_task(self._load(led), name=name)

    def on_resign(self, index: int, epoch: int | None = None) -> None:
        """Give up a partition that this broker no longer leads; ignored if the epoch is older."""
        led = self._led.get(index)
        if led is not None and (epoch is None or epoch >= led.epoch):
            self._give_up(led)

    async def loaded(self) -> None:
        """Return when all loads that have started are done."""
        await asyncio.gather(*self._loads(), return_exceptions=True)

    async def close(self) -> None:
        """Unload all partitions."""
        loads = self._loads()
        for led in list(self._led.values()):
            self._give_up(led)
        await asyncio.gather(*loads, return_exceptions=True)

    def _loads(self) -> list[asyncio.Task[None]]:
        return [led.load for led in self._led.values() if led.load is not None]

    def _give_up(self, led: LedPartition[T]) -> None:
        del self._led[led.index]
        load, led.load = led.load, None
        if load is not None:
            load.cancel()
        count = self._hosted.remove_all(led)
        if count:
            message = "unloaded a partition of the coordinator broker=%d kind=%s partition=%d count=%d"
            log.info(message, self._broker_id, self._hosted.kind, led.index, count)

    async def _load(self, led: LedPartition[T]) -> None:
        started_ms = self._clock.monotonic_ms()
        try:
            await self._hosted.load_all(led)
            # Requests are answered from what was read: a record that is lost with this broker must not be part of it.
            await self._log.until_replicated(led.index)
        except Exception as error:
            # An unexpected error must not leave clients waiting for a load that has ended.
            trace = None if isinstance(error, KctlError) else error
            log.error(
                "cannot load a partition of the coordinator, not serving it before its next leader change broker=%d "
                "kind=%s partition=%d error=%s",
                self._broker_id,
                self._hosted.kind,
                led.index,
                error,
                exc_info=trace,
            )
            del self._led[led.index]
            self._hosted.remove_all(led)
            return
        # No await from here on: all ids become visible at once.
        led.is_loading = False
        self._hosted.serve_all(led)
        elapsed_ms = self._clock.monotonic_ms() - started_ms
        self.latest_load_ms.append(elapsed_ms)
        # Most partitions are empty, and a broker leads dozens of them.
        count = len(led.objects)
        level = logging.INFO if count else logging.DEBUG
        message = "loaded broker=%d partition=%d %s=%d ms=%d"
        log.log(level, message, self._broker_id, led.index, self._hosted.kind, count, elapsed_ms)


# Loads a partition of an internal topic while other requests are served. Kafka: CoordinatorLoader.
#
# Owner: event loop.


RECORDS_PER_TURN = 500
"""How many records are replayed before other requests are served."""


async def play_back(coordinator_log: CoordinatorLog, partition: TopicPartition, playback: Playback) -> None:
    """Replay the whole partition; records that had to be skipped are logged.  Raises KctlError."""
    replay = PartitionReplay(playback)
    async for piece in coordinator_log.read_all(partition.partition):
        records = 0
        for count in replay.steps(piece):
            records += count
            if records >= RECORDS_PER_TURN:
                records = 0
                await asyncio.sleep(0)
    for skipped in sorted(replay.skipped, key=lambda skip: skip.offset):
        log.warning(
            "skipping records that cannot be read topic=%s partition=%d offset=%d last_offset=%d keys=%s error=%s",
            partition.topic,
            partition.partition,
            skipped.offset,
            max(skipped.offset, skipped.last_offset),
            ",".join(map(repr, skipped.keys)) or None,
            skipped.reason,
        )
