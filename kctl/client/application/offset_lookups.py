"""What a consumer for applications looks up: offsets, commits, partitions; and work that outlives its caller."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any, TypeVar
from uuid import UUID

from kctl.client.application.settings import ConsumerConfig
from kctl.client.application.telemetry.payload import Metric
from kctl.client.application.telemetry.reporter import TelemetryReporter, fetch_client_instance_id
from kctl.client.application.telemetry.standard_metrics import CONSUMER
from kctl.client.cluster import ClusterClient
from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.client.connections.traffic import Window
from kctl.client.connections.transport import Connection
from kctl.client.consuming.committed_offsets import CommittedOffset, committed_offsets, no_topic_id, takes_topic_ids
from kctl.client.consuming.list_offsets import EARLIEST, LATEST, OffsetAt, list_offsets
from kctl.client.consuming.positions import Position
from kctl.client.properties.values import BY_DURATION, iso_duration_ms
from kctl.client.settings import ClientSettings
from kctl.errors import ApiError, ErrorCode, UsageError
from kctl.model import TopicPartition
from kctl.system.reference_cycles import weak_call

T = TypeVar("T")


def note_outcome(task: asyncio.Task[Any]) -> None:
    """Note the outcome of work whose caller was cancelled, which asyncio would report as forgotten."""
    if not task.cancelled():
        task.exception()


class ApplicationClient:
    """What consumers have in common: a client of the cluster, and work that outlives its caller.  Owner: event loop."""

    def __init__(self, settings: ClientSettings, *, has_telemetry: bool) -> None:
        self._client = ClusterClient(settings, AsyncioTransport())
        self._reporter = (
            TelemetryReporter(
                self._client, CONSUMER, weak_call(self._telemetry, []), weak_call(self._telemetry_resource, {})
            )
            if has_telemetry
            else None
        )
        self._shared: dict[asyncio.Task[Any], None] = {}
        """Work that goes on if its caller is cancelled."""
        self._preparing: asyncio.Task[None] | None = None
        """What a deserializer waits for."""
        self._is_closed = False
        self._pid = os.getpid()

    async def client_instance_id(self, timeout_ms: int) -> UUID:
        """Return the id that the brokers have given to this client for its telemetry (KIP-714).

        Raises ApiError (REQUEST_TIMED_OUT; UNSUPPORTED_VERSION if the brokers receive no metrics), ClusterUnreachable,
        and UsageError with enable_metrics_push=False.
        """
        self._require_open()
        return await self._share(fetch_client_instance_id(self._reporter, timeout_ms))

    def _telemetry(self, window: Window) -> list[Metric]:
        """Return the metrics of this consumer."""
        raise NotImplementedError

    def _telemetry_resource(self) -> dict[str, str]:
        """Return the attributes of this consumer."""
        raise NotImplementedError

    def _start_last_push(self, timeout_ms: int) -> asyncio.Task[None]:
        """Begin to end the telemetry, with the metrics of now."""
        return asyncio.create_task(self._end_telemetry(timeout_ms), name="end client telemetry")

    async def _end_telemetry(self, timeout_ms: int) -> None:
        if self._reporter is not None:
            await self._reporter.close(timeout_ms)

    async def _share(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of work that goes on when the caller is cancelled."""
        task = asyncio.create_task(work)
        self._shared[task] = None
        task.add_done_callback(self._note_shared)
        try:
            return await asyncio.shield(task)
        finally:
            del task

    async def _run_preparation(
        self, prepare: Callable[[], None], change: asyncio.Event, end_s: float | None = None
    ) -> None:
        """Run in a thread what a deserializer waits for (`Unprepared.prepare`).

        Returns at its end, at a time of the loop, and at a change; another call then waits for the same work.  Raises
        what `prepare` raises.
        """
        task = self._preparing
        if task is None:
            task = self._preparing = asyncio.create_task(asyncio.to_thread(prepare), name="prepare a deserializer")
            self._shared[task] = None
            task.add_done_callback(self._note_shared)
        changed = asyncio.ensure_future(change.wait())
        timeout_s = None if end_s is None else max(0.0, end_s - asyncio.get_running_loop().time())
        try:
            await asyncio.wait({task, changed}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
        if task.done():
            self._preparing = None
            task.result()

    def _note_shared(self, task: asyncio.Task[Any]) -> None:
        self._shared.pop(task, None)
        note_outcome(task)

    def _require_open(self) -> None:
        if self._is_closed:
            raise UsageError("the consumer is closed")
        if self._pid != os.getpid():
            raise UsageError("the consumer was created before this process was forked: create one in each process")


class OffsetLookups(ApplicationClient):
    """The part of AsyncConsumer that needs no subscription."""

    def __init__(self, config: ConsumerConfig) -> None:
        super().__init__(config.client_settings(), has_telemetry=config.enable_metrics_push)
        self._config = config

    async def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the committed offsets of the group, of those partitions that have one.

        Raises ApiError, ClusterUnreachable, and UsageError without a group_id.
        """
        return {tp: commit.offset for tp, commit in (await self._commits(partitions)).items()}

    async def committed_details(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """As `committed`, with leader epochs and metadata."""
        return await self._commits(partitions)

    async def _commits(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        group_id = self._group_id()

        async def send_to(connection: Connection) -> dict[TopicPartition, CommittedOffset]:
            names = {tp.topic for tp in partitions}
            topic_id = (await self._client.metadata(names)).topic_id if takes_topic_ids(connection) else no_topic_id
            return await committed_offsets(connection, group_id, partitions, topic_id=topic_id)

        return await self._share(
            self._client.on_coordinator(group_id, send_to, codes={ErrorCode.UNSTABLE_OFFSET_COMMIT})
        )

    async def partitions_of(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic.  Raises ApiError for one that does not exist, and ClusterUnreachable."""
        found = (await self._share(self._client.metadata([topic]))).topics[topic]
        if found.error is not ErrorCode.NONE:
            raise ApiError(found.error, f"{topic}: {found.error.description}")
        return [TopicPartition(topic, number) for number in range(len(found.partitions))]

    async def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets of the first records.  Raises ApiError and ClusterUnreachable."""
        return {tp: found.offset for tp, found in (await self._look_up(dict.fromkeys(partitions, EARLIEST))).items()}

    async def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets after the last visible records.  Raises ApiError and ClusterUnreachable."""
        return {tp: found.offset for tp, found in (await self._look_up(dict.fromkeys(partitions, LATEST))).items()}

    async def offsets_for_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAt | None]:
        """Return the first record at or after each time (ms since the epoch), None if there is none.

        Raises ApiError and ClusterUnreachable.
        """
        found = await self._look_up(times_ms)
        return {tp: None if at.offset < 0 else at for tp, at in found.items()}

    async def _begin(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Position]:
        """Start positions by auto_offset_reset.  Raises ApiError."""
        reset = self._config.auto_offset_reset
        if not partitions:
            return {}
        if reset == "none":
            text = f"{min(partitions)}: no valid committed offset, and auto_offset_reset is 'none'"
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, text)
        if reset.startswith(BY_DURATION):
            start_ms = time.time_ns() // 1_000_000 - iso_duration_ms(reset[len(BY_DURATION) :])
            ends = await self.end_offsets(partitions)
            times = await self.offsets_for_times(dict.fromkeys(partitions, max(0, start_ms)))
            return {tp: Position(ends[tp] if at is None else at.offset) for tp, at in times.items()}
        found = await self._look_up(dict.fromkeys(partitions, EARLIEST if reset == "earliest" else LATEST))
        return {tp: Position(at.offset, at.leader_epoch, is_of_leader=True) for tp, at in found.items()}

    async def _look_up(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAt]:
        found: dict[TopicPartition, OffsetAt] = {}
        work = list_offsets(self._client, timestamps, isolation=self._config.isolation)
        for tp, outcome in (await self._share(work)).items():
            if isinstance(outcome, ApiError):
                raise ApiError(outcome.code, f"{tp}: {outcome}")
            found[tp] = outcome
        return found

    # Internals.

    def _group_id(self) -> str:
        if not self._config.group_id:
            raise UsageError("commits require a group_id")
        return self._config.group_id
