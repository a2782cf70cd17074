"""Sends transaction markers to partition leaders until each marker is written.

A job is the markers of one transaction.  Its partitions are grouped by leader; those that this broker leads are written
directly, and for every other broker there is a channel with at most one request in flight, which carries all markers
that were queued meanwhile.  A partition with a retriable error is queued again, since its leader may have changed.

A partition is done in one of three ways.  Written.  Gone: its topic was deleted or cannot hold markers, so none is
needed.  Fenced: the partition has a newer coordinator or producer epoch, so the whole job belongs to another one.

A partition that is not in the metadata counts as gone only after a while: a broker may become coordinator before it
receives the metadata of all partitions, and a missing marker would make the transaction inconsistent.

Owner: event loop.  Kafka: TransactionMarkerChannelManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from kctl.client.connections.transport import Connection, ConnectionLost
from kctl.errors import ApiError, ErrorCode, MalformedRequest
from kctl.model import ProducerIdAndEpoch, TopicPartition
from kctl.protocol.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kctl.server.coordination.hosted import Turns, taken
from kctl.server.coordination.transactions.partition_markers import Marker, PartitionMarkers
from kctl.server.coordination.transactions.ports import PartitionLeaders, Peers
from kctl.server.peers.connections import Purpose
from kctl.system.environment import Clock, Timer, TimerTask

log = logging.getLogger(__name__)

RETRY_MS = 100
JOBS_PER_TURN = 1_000
"""The number of jobs that are looked at before requests are served again."""
MARKERS_PER_REQUEST = 2_000
"""Jobs and partitions in a request to another broker, unless one job has more partitions."""
_JOB = JOBS_PER_TURN // 15
"""The number of jobs that are looked at as fast as a marker of one and the end of its transaction are written."""
_PARTITIONS_PER_JOB = 20
"""The number of partitions that are looked up in the time of a job."""
GONE_AFTER_MS = 10_000
"""How long a partition has to be missing from the metadata until it counts as deleted."""

_DONE = frozenset({ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION})
"""The last two: the partition cannot contain transactional records."""
_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
_RETRIABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)

Partitions = Iterable[TopicPartition]


class MarkerJob:
    """The pending markers of one transaction."""

    __slots__ = (
        "client_version",
        "committed",
        "coordinator_epoch",
        "is_over",
        "missing_since_ms",
        "on_written",
        "pending",
        "producer",
        "transactional_id",
    )

    def __init__(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        *,
        committed: bool,
        coordinator_epoch: int,
        partitions: Partitions,
        on_written: Callable[[tuple[TopicPartition, ...]], None],
        client_version: int = 0,
    ) -> None:
        self.client_version = client_version
        """The version of the transaction: 2 if the marker has a raised epoch."""
        self.transactional_id = transactional_id
        """The transactional id, for the log."""
        self.producer = producer
        self.committed = committed
        self.coordinator_epoch = coordinator_epoch
        self.on_written = on_written
        """Called with partitions that have their marker or need none."""
        self.pending = dict.fromkeys(partitions)
        self.missing_since_ms: dict[TopicPartition, int] = {}
        self.is_over = False
        """All markers are written, or another coordinator has to write them."""

    def marker(self, partitions: Partitions) -> Marker:
        """Return the marker for these partitions."""
        return Marker(self.producer, self.committed, self.coordinator_epoch, tuple(partitions), self.client_version)


class MarkerSender:
    """All jobs of one broker's transaction coordinator."""

    def __init__(
        self,
        broker_id: int,
        *,
        leaders: PartitionLeaders,
        local: PartitionMarkers,
        peers: Peers,
        version: Callable[[], int],
        timer: Timer,
        clock: Clock,
    ) -> None:
        """`version` returns the version of WriteTxnMarkers requests to other brokers."""
        self._broker_id = broker_id
        self._leaders = leaders
        self._local = local
        self._peers = peers
        self._version = version
        self._timer = timer
        self._clock = clock
        self._jobs: dict[MarkerJob, None] = {}
        self._channels: dict[int, _Channel] = {}
        self._later: dict[MarkerJob, dict[TopicPartition, None]] = {}
        self._retry: TimerTask | None = None
        self._turns = Turns(timer, JOBS_PER_TURN)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> int:
        """Transactions with markers that no leader takes at the moment; they are sent again after RETRY_MS."""
        return len(self._later)

    def send(self, job: MarkerJob) -> None:
        """Send all pending markers of the job; `job.on_written` is called once for each partition."""
        self._jobs[job] = None
        self._route(job, list(job.pending))

    def cancel(self, job: MarkerJob) -> None:
        """Stop the job, which another coordinator owns now; a request in flight may still be applied."""
        job.is_over = True
        self._jobs.pop(job, None)
        self._later.pop(job, None)

    def partitions_deleted(self, partitions: Sequence[TopicPartition]) -> None:
        """Drop the markers for deleted partitions, which need none; jobs notice it in this and later turns of the
        loop.
        """
        deleted = frozenset(partitions)

        def visit(job: MarkerJob) -> int:
            found = [partition for partition in job.pending if partition in deleted]
            self._settle(job, found)
            return 1 + (_JOB if found else 0) + len(job.pending) // _PARTITIONS_PER_JOB

        self._turns.visit(taken(deque(self._jobs)), visit)

    async def close(self) -> None:
        """Stop sending; the next coordinator sends the remaining markers."""
        while self._jobs:
            for job in list(islice(self._jobs, JOBS_PER_TURN)):
                self.cancel(job)
            await asyncio.sleep(0)
        if self._retry is not None:
            self._retry.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            await channel.disconnect()

    def _route(self, job: MarkerJob, partitions: Partitions) -> None:
        by_leader: dict[int, list[TopicPartition]] = {}
        gone: list[TopicPartition] = []
        for partition in partitions:
            leader = self._leaders.leader_of(partition)
            if leader is not None:
                # A partition counts as deleted only if it is missing for GONE_AFTER_MS without a break.
                job.missing_since_ms.pop(partition, None)
                by_leader.setdefault(leader, []).append(partition)
            elif self._is_gone(job, partition):
                gone.append(partition)
            else:
                self._try_later(job, (partition,))
        for leader, led in by_leader.items():
            if leader == self._broker_id:
                self._spawn(self._write_here(job, led), f"markers-{job.producer.producer_id}")
            elif leader < 0:
                self._try_later(job, led)
            else:
                self._put(leader, job, led)
        if gone:
            log.info(
                "markers not needed: partitions are deleted transactional_id=%s partitions=%s",
                job.transactional_id,
                gone,
            )
            self._settle(job, gone)

    def _is_gone(self, job: MarkerJob, partition: TopicPartition) -> bool:
        if not self._leaders.is_informed:
            return False
        now_ms = self._clock.monotonic_ms()
        return now_ms - job.missing_since_ms.setdefault(partition, now_ms) >= GONE_AFTER_MS

    async def _write_here(self, job: MarkerJob, partitions: list[TopicPartition]) -> None:
        if not job.is_over:
            outcomes = await self._local.write([job.marker(partitions)])
            self._take(job, partitions, outcomes[0])

    def _put(self, broker_id: int, job: MarkerJob, partitions: Partitions) -> None:
        channel = self._channels.get(broker_id)
        if channel is None:
            channel = self._channels[broker_id] = _Channel(broker_id)
        channel.queue.setdefault(job, {}).update(dict.fromkeys(partitions))
        if not channel.is_running:
            channel.is_running = True
            self._spawn(self._empty(channel), f"markers-to-{broker_id}")

    async def _empty(self, channel: _Channel) -> None:
        """Send the queued markers, and those queued meanwhile, one request at a time."""
        try:
            while channel.queue:
                batch = channel.next_batch()
                # Empty if all of these jobs have ended meanwhile.
                if batch:
                    results = await self._exchange(channel, batch)
                    for job, partitions in batch.items():
                        self._take(job, partitions, results.get(job.producer.producer_id, {}))
        finally:
            channel.is_running = False

    async def _exchange(
        self, channel: _Channel, batch: Mapping[MarkerJob, tuple[TopicPartition, ...]]
    ) -> dict[int, dict[TopicPartition, ErrorCode]]:
        """Return the result per producer id and partition; empty if the broker could not be reached."""
        request = WriteTxnMarkersRequest(markers=[_wire_marker(job, led) for job, led in batch.items()])
        try:
            if channel.connection is None or not channel.connection.is_open:
                channel.connection = await self._peers.connect(channel.broker_id, Purpose.TRANSACTION_MARKERS)
            response = await channel.connection.send(request, WriteTxnMarkersResponse, version=self._version())
        except (ConnectionLost, MalformedRequest, ApiError) as error:
            log.warning("cannot send markers, trying again broker=%s error=%s", channel.broker_id, error)
            await channel.disconnect()
            return {}
        except Exception:
            # The markers stay pending and are sent again: without them the transactions would never end.
            log.exception("cannot send markers, trying again broker=%s", channel.broker_id)
            await channel.disconnect()
            return {}
        return _errors_of(response)

    def _take(
        self, job: MarkerJob, partitions: Sequence[TopicPartition], errors: Mapping[TopicPartition, ErrorCode]
    ) -> None:
        """Handle the results of these partitions; those without a result are retried."""
        if job.is_over:
            return
        outcomes = {tp: errors.get(tp, ErrorCode.REQUEST_TIMED_OUT) for tp in partitions}
        fenced = next((error for error in outcomes.values() if error in _FENCED), None)
        if fenced is not None:
            log.warning(
                "markers are fenced by a newer epoch, abandoning them transactional_id=%s producer=%s error=%s",
                job.transactional_id,
                job.producer,
                fenced.name,
            )
            self.cancel(job)
            return
        for partition, error in outcomes.items():
            if error not in _DONE and error not in _RETRIABLE:
                message = "marker refused, trying again transactional_id=%s partition=%s error=%s"
                log.warning(message, job.transactional_id, partition, error.name)
        self._try_later(job, [partition for partition, error in outcomes.items() if error not in _DONE])
        self._settle(job, [partition for partition, error in outcomes.items() if error in _DONE])

    def _settle(self, job: MarkerJob, partitions: Partitions) -> None:
        settled = tuple(partition for partition in partitions if partition in job.pending)
        if not settled or job.is_over:
            return
        for partition in settled:
            del job.pending[partition]
        if not job.pending:
            self.cancel(job)
        job.on_written(settled)

    def _try_later(self, job: MarkerJob, partitions: Partitions) -> None:
        pending = {partition: None for partition in partitions if partition in job.pending}
        if pending:
            self._later.setdefault(job, {}).update(pending)
            if self._retry is None:
                self._retry = self._timer.schedule(RETRY_MS, self._try_again)

    def _try_again(self) -> None:
        self._turns.visit(self._jobs_to_repeat(), self._route_again)

    def _jobs_to_repeat(self) -> Iterator[MarkerJob]:
        yield from list(self._later)
        # The next time comes after the last of them, however many they are.
        self._retry = self._timer.schedule(RETRY_MS, self._try_again) if self._later else None

    def _route_again(self, job: MarkerJob) -> int:
        partitions = self._later.pop(job, {})
        self._route(job, [partition for partition in partitions if partition in job.pending])
        return _JOB + len(partitions)

    def _spawn(self, work: Coroutine[None, None, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Channel:
    """The queue of one other broker, and the connection to it."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.queue: dict[MarkerJob, dict[TopicPartition, None]] = {}
        self.connection: Connection | None = None
        self.is_running = False

    def next_batch(self) -> dict[MarkerJob, tuple[TopicPartition, ...]]:
        """Take the first jobs, so many that their request is not long."""
        batch: dict[MarkerJob, tuple[TopicPartition, ...]] = {}
        left = MARKERS_PER_REQUEST
        for job in list(islice(self.queue, MARKERS_PER_REQUEST)):
            if left <= 0:
                break
            partitions = self.queue.pop(job)
            left -= 1 + len(partitions)
            if not job.is_over:
                batch[job] = tuple(partitions)
        return batch

    async def disconnect(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            await connection.close()


def _wire_marker(job: MarkerJob, partitions: Partitions) -> WritableTxnMarker:
    by_topic: dict[str, list[int]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, []).append(index)
    return WritableTxnMarker(
        producer_id=job.producer.producer_id,
        producer_epoch=job.producer.epoch,
        transaction_result=job.committed,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=found) for topic, found in by_topic.items()],
        coordinator_epoch=job.coordinator_epoch,
        transaction_version=job.client_version,
    )


def _errors_of(response: WriteTxnMarkersResponse) -> dict[int, dict[TopicPartition, ErrorCode]]:
    errors: dict[int, dict[TopicPartition, ErrorCode]] = {}
    for marker in response.markers:
        of_producer = errors.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            for partition in topic.partitions:
                of_producer[TopicPartition(topic.name, partition.partition_index)] = ErrorCode.of(partition.error_code)
    return errors
