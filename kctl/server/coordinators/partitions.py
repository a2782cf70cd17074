"""The partitions of an internal topic that this broker leads, and with them the ids that it coordinates.

An id, a group's or a transactional one, lives in the partition that its hash names; whoever leads that partition is its
coordinator.

    somebody else's ---led here---> loading ---read to the end---> loaded
           ^                           |                             |
           +------unreadable-----------+-------led elsewhere---------+

While a partition loads, its ids answer COORDINATOR_LOAD_IN_PROGRESS and those of other partitions go on.

Invariants: the tenants of a partition move in all at once, after its log was read to the end; a log that cannot be read
leaves the partition somebody else's, so that nobody is served from half of it; when a leadership ends its load ends and
its tenants move out; a leader epoch never goes back, and news of an older leadership changes nothing.

Owner: event loop.  Kafka: GroupMetadataManager.ownedPartitions and loadingPartitions, TransactionStateManager.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Generic, Protocol, TypeVar

from kctl.environment import Clock
from kctl.errors import ErrorCode, KctlError
from kctl.model import partition_for_key
from kctl.server.coordinators.ports import CoordinatorLog

log = logging.getLogger(__name__)

T = TypeVar("T")


class LedPartition:
    """A partition of the internal topic, as long as this broker leads it."""

    __slots__ = ("epoch", "index", "is_loading", "load")

    def __init__(self, index: int, epoch: int) -> None:
        self.index = index
        self.epoch = epoch
        self.is_loading = True
        self.load: asyncio.Task[None] | None = None


class Tenants(Protocol[T]):
    """Those who live in the partitions: groups, or transactional ids."""

    kind: str
    """What they are called, for the log."""

    async def read_back(self, partition: LedPartition) -> dict[str, T]:
        """All of them by id, as the log tells.  Lets other requests through meanwhile.  Raises KctlError."""
        ...

    def move_in(self, partition: LedPartition, restored: dict[str, T]) -> None:
        """They are served from now on."""
        ...

    def move_out(self, partition: LedPartition) -> int:
        """They are somebody else's from now on: whatever is parked is answered.  Answers how many they were."""
        ...


class CoordinatorPartitions(Generic[T]):
    """Told who leads what, it moves the tenants in and out."""

    def __init__(self, broker_id: int, coordinator_log: CoordinatorLog, tenants: Tenants[T], clock: Clock) -> None:
        self._broker_id = broker_id
        self._log = coordinator_log
        self._tenants = tenants
        self._clock = clock
        self._led: dict[int, LedPartition] = {}

    @property
    def are_loading(self) -> bool:
        """Whether any of them is still being read."""
        return any(led.is_loading for led in self._led.values())

    def get(self, index: int) -> LedPartition | None:
        """The partition of this number, if this broker leads it."""
        return self._led.get(index)

    def of(self, key: str) -> LedPartition | None:
        """The partition that this id lives in, if this broker leads it."""
        count = self._log.partition_count()
        return None if count is None else self._led.get(partition_for_key(key, count))

    def status(self, key: str) -> ErrorCode:
        """Whether this broker coordinates the id: NONE, COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR."""
        led = self.of(key)
        if led is None:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if led.is_loading else ErrorCode.NONE

    def on_leader(self, index: int, epoch: int) -> None:
        """This broker leads the partition in `epoch`: load it, unless that is done or news of an older leadership.

        If the epoch is the next one nobody else led in between, so what is in memory stands.
        """
        led = self._led.get(index)
        if led is not None and epoch <= led.epoch + 1:
            led.epoch = max(led.epoch, epoch)
            return
        if led is not None:
            self._give_up(led)
        led = self._led[index] = LedPartition(index, epoch)
        name = f"load-{self._tenants.kind}-{index}"
        led.load = asyncio.get_running_loop().create_task(self._load(led), name=name)

    def on_resign(self, index: int, epoch: int | None = None) -> None:
        """This broker does not lead the partition any more, unless that is news of an older leadership."""
        led = self._led.get(index)
        if led is not None and (epoch is None or epoch >= led.epoch):
            self._give_up(led)

    async def loaded(self) -> None:
        """Returns when every load that has begun is done."""
        await asyncio.gather(*self._loads(), return_exceptions=True)

    async def close(self) -> None:
        """Gives all of them up."""
        loads = self._loads()
        for led in list(self._led.values()):
            self._give_up(led)
        await asyncio.gather(*loads, return_exceptions=True)

    def _loads(self) -> list[asyncio.Task[None]]:
        return [led.load for led in self._led.values() if led.load is not None]

    def _give_up(self, led: LedPartition) -> None:
        del self._led[led.index]
        if led.load is not None:
            led.load.cancel()
        count = self._tenants.move_out(led)
        if count:
            log.info("broker=%d unloaded partition=%d %s=%d", self._broker_id, led.index, self._tenants.kind, count)

    async def _load(self, led: LedPartition) -> None:
        started_ms = self._clock.monotonic_ms()
        try:
            restored = await self._tenants.read_back(led)
        except Exception as error:
            # A mistake of ours must not leave its clients waiting for a load that has ended.
            trace = None if isinstance(error, KctlError) else error
            log.error("broker=%d cannot load partition=%d reason=%s", self._broker_id, led.index, error, exc_info=trace)
            del self._led[led.index]
            self._tenants.move_out(led)
            return
        # No await from here on: the tenants appear all at once.
        led.is_loading = False
        self._tenants.move_in(led, restored)
        elapsed_ms = self._clock.monotonic_ms() - started_ms
        # Most partitions have no tenants, and a broker leads dozens of them.
        level = logging.INFO if restored else logging.DEBUG
        message = "broker=%d loaded partition=%d %s=%d ms=%d"
        log.log(level, message, self._broker_id, led.index, self._tenants.kind, len(restored), elapsed_ms)
