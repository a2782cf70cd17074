"""Reads the partitions of one Fetch request, within the limits of the request.

See partition_reading for what its reader may see of each.  A fetch that waits for min_bytes is completed by the rules
of Kafka's DelayedFetch:

    A-E  this broker does not lead the partition, does not have it, its log directory is offline, or the reader has
         another leader epoch: an error, sent at once
    F    the fetch offset is in an older segment than the reader's upper bound.  A read ends with its segment, so
         waiting would not add records.  (Kafka also completes a fetch at an offset in a newer segment, which occurs
         after a leader truncated its log.  Here such an offset is out of range, which is an error, or above a high
         watermark that is about to advance, where an empty response would make the reader repeat the request.)
    G    min_bytes are available, or as much as max_bytes allows
    H    the reader's last epoch ends before its fetch offset

A new high watermark alone completes no fetch of a follower: the follower gets it with the next records, at the latest
after max_wait_ms.  Otherwise each append would cost each follower a second fetch (KAFKA-9952).

Owner: event loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from kctl.errors import ErrorCode
from kctl.limits import READ_PER_SLICE_MAX
from kctl.model import TopicPartition
from kctl.protocol.apis.fetch import PartitionData
from kctl.server.loop.slices import sliced_batches
from kctl.server.replication.fetching import partition_reading
from kctl.server.replication.fetching.fetch_session import FetchPosition, FetchSession
from kctl.server.replication.fetching.partition_reading import EMPTY, PartitionReading, Reader, is_sent_at_once
from kctl.server.replication.fetching.replica_selector import ReplicaSelector
from kctl.server.replication.partition import Partition
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.server.replication.throttles import ReplicationQuota
from kctl.server.requests.record_work import RecordWork
from kctl.storage.log.lookup import RecordsSlice
from kctl.system.environment import Clock

_NO_ERROR = ErrorCode.NONE
"""A constant, because Python 3.11 takes 0.1 us to find a member of an enum."""
FetchKey = TopicPartition | FetchSession
"""The key that a waiting fetch watches: each of its partitions or, to be independent of their number, its session."""


@dataclass(slots=True)
class Reading:
    """The result of reading all partitions once."""

    results: dict[TopicPartition, PartitionData]
    record_bytes: dict[TopicPartition, int]
    total_bytes: int = 0
    is_urgent: bool = False
    """The response must be sent now: an error, a diverging epoch, or a preferred replica."""
    is_on_older_segment: bool = False
    """Some records end with their segment and more follow in the next: waiting would not add records.  Only determined
    while there are less than min_bytes.
    """


def rest_if_complete(session: FetchSession, position: FetchPosition, partition: Partition, *, replica_id: int) -> None:
    """Have a position rest whose reader has all that it may see, unless its next fetch may have an effect."""
    high_watermark, follower = partition.high_watermark, None
    if replica_id < 0:
        # A transaction may be complete before the high watermark moves again.
        if position.fetch_offset < high_watermark:
            return
    else:
        # While one of these differs, each fetch may advance the high watermark or add the follower to the ISR.
        follower = partition.followers.get(replica_id)
        end = partition.log.log_end_offset
        if (
            follower is None
            or not position.fetch_offset == follower.log_end_offset == high_watermark == end
            or follower.log_start_offset != position.log_start_offset
            or replica_id not in partition.isr
            or partition.pending_isr is not None
        ):
            return
    session.rest(position, partition, follower)


class Fetch:
    """The partitions of one request, and the limits and quotas for reading them."""

    def __init__(
        self,
        replicas: ReplicaManager,
        positions: list[FetchPosition],
        reader: Reader,
        *,
        session: FetchSession | None = None,
        quota: ReplicationQuota,
        selector: ReplicaSelector,
        clock: Clock,
        min_bytes: int,
        max_bytes: int,
        denied: frozenset[str] = frozenset(),
    ) -> None:
        """`denied` are the topics that the client may not read.

        With a session, the positions are its active ones, which may be others at each reading.
        """
        self._session = session
        self.positions = positions
        self._has_partitions = bool(positions if session is None else session.positions)
        self.reader = reader
        self._is_follower = reader.is_follower
        self._may_skip = (
            not denied
            and (self._is_follower or not reader.rack)
            and reader.version >= partition_reading.FIRST_VERSION_WITH_ZSTD
        )
        """Whether partitions without anything new need not be read: other readers may get an error or a replica."""
        self._replicas = replicas
        self._partitions = PartitionReading(
            replicas, reader, quota=quota, selector=selector, clock=clock, denied=denied
        )
        self._quota = quota
        self._clock = clock
        self._available: dict[TopicPartition, int] = {}
        """Bytes that a waiting fetch could get from each partition."""
        self._available_bytes = 0
        self._magic = partition_reading.magic_for(reader.version)
        self._response_max_bytes = max_bytes
        self._max_bytes = max_bytes if self._magic is None else min(max_bytes, partition_reading.SOURCE_BYTES_MAX)
        self._enough_bytes = min(min_bytes, self._max_bytes)

    def is_enough(self, reading: Reading) -> bool:
        """Return whether the response is sent now, without waiting for more records."""
        has_bytes = reading.total_bytes >= self._enough_bytes or reading.is_on_older_segment
        return not self._has_partitions or reading.is_urgent or has_bytes

    @property
    def needs_bytes(self) -> bool:
        """False if the reader accepts a response without records at once: its min_bytes or max_bytes is 0."""
        return self._enough_bytes > 0

    @property
    def is_long(self) -> bool:
        """True if more partitions are to be read than one slice has."""
        count = len(self.positions) if self._session is None else self._session.active_count
        return count > READ_PER_SLICE_MAX

    @property
    def is_converted(self) -> bool:
        """True if the reader supports only old message formats: the response is a reading after `convert`."""
        return self._magic is not None

    def upper_bounds(self) -> dict[TopicPartition, int]:
        """Return the offset up to which the reader may see records, per partition; -1 for an unknown partition."""
        return {tp: self.upper_bound_of(tp) for tp in (position.topic_partition for position in self.positions)}

    def upper_bound_of(self, topic_partition: TopicPartition) -> int:
        """As `upper_bounds`, for one partition."""
        return self._partitions.upper_bound_of(topic_partition)

    def has_nothing_new(self) -> bool:
        """Check cheaply, before the first reading, what it would find: True if it would find neither records nor an
        error, so that the fetch waits.
        """
        return (
            self._may_skip
            and self.needs_bytes
            and self._has_partitions
            and not any(map(self._partitions.could_have_more, self.positions))
        )

    @property
    def watched_keys(self) -> Sequence[FetchKey]:
        """The keys that a waiting fetch watches; call `watch` for its positions too."""
        if self._session is not None:
            return (self._session,)
        return [position.topic_partition for position in self.positions]

    def watch(self, positions: Iterable[FetchPosition]) -> None:
        """Let these positions of a session be notified of changes; those that rest are already."""
        if self._session is not None:
            for position in positions:
                partition = self._replicas.partitions.get(position.topic_partition)
                if partition is not None:
                    position.watch(partition)

    def active(self) -> list[FetchPosition]:
        """Return the positions that a reading examines now."""
        return self.positions if self._session is None else self._session.active()

    def moved(self, keys: Iterable[FetchKey]) -> list[FetchPosition]:
        """Return the positions that have changed, of a fetch that waits; it is notified of their next changes too."""
        if self._session is None:
            waiting = self._waiting_positions
            return [waiting[key] for key in keys if key in waiting]
        moved = self._session.take_moved()
        self.watch(moved)
        return moved

    def rest(self, session: FetchSession, positions: Iterable[FetchPosition], reading: Reading) -> None:
        """Have the positions with nothing to send rest until a change; called when a reading is sent."""
        if self._may_skip:
            for position in positions:
                if position.topic_partition not in reading.record_bytes:
                    self._rest(session, position)

    def _rest(self, session: FetchSession, position: FetchPosition) -> None:
        partition = self._replicas.partitions.get(position.topic_partition)
        if (
            partition is None
            or position.session is not session
            or not self._partitions.is_sent(partition, position)
            or self._partitions.could_have_more(position)
        ):
            return
        rest_if_complete(session, position, partition, replica_id=self.reader.replica_id)

    def wait_after(self, reading: Reading) -> None:
        """Count what a reading that was not enough found, for `read_if_enough`."""
        self._available = dict(reading.record_bytes)
        self._available_bytes = reading.total_bytes

    def read_if_enough(self, keys: Iterable[FetchKey]) -> Reading | None:
        """Return a new reading when these keys have changed, or None if there is not enough for a response.

        Reads all partitions only in the first case.
        """
        return self.read_if_moved(self.moved(keys))

    def read_if_moved(self, changed: Iterable[FetchPosition]) -> Reading | None:
        """As `read_if_enough`, when these positions have changed."""
        if self._session is not None:
            self.positions = self._session.active()
        if len(self.positions) == 1:
            if not self._partitions.could_have_more(self.positions[0]):
                return None
            reading = self._read_all()
            return reading if self.is_enough(reading) else None
        if not self.has_become_enough(changed):
            return None
        reading = self._read_all()
        self.wait_after(reading)
        return reading

    def has_become_enough(self, changed: Iterable[FetchPosition]) -> bool:
        """Return whether there is enough for a response, when these positions have changed.

        As in Kafka, what is available is counted by partition: the next reading may be smaller, if max_bytes do not
        hold a batch of each.
        """
        is_due = False
        for position in changed:
            if self._partitions.could_have_more(position):
                topic_partition = position.topic_partition
                answer = self._partitions.read(position, self._max_bytes, is_first=True)
                size = len(answer.records) if answer.records is not None else 0
                self._available_bytes += size - self._available.get(topic_partition, 0)
                self._available[topic_partition] = size
                is_due = is_due or is_sent_at_once(answer) or self._partitions.is_on_older_segment(position, answer)
        return is_due or self._available_bytes >= self._enough_bytes

    @cached_property
    def _waiting_positions(self) -> dict[TopicPartition, FetchPosition]:
        return {position.topic_partition: position for position in self.positions}

    def note_sent(
        self, results: Mapping[TopicPartition, PartitionData], record_bytes: Mapping[TopicPartition, int]
    ) -> None:
        """Count the results of a reading, when they are sent, for throttles and metrics."""
        if not self._is_follower:
            self._count_consumed(results, record_bytes)
            return
        throttled_bytes = 0
        for topic_partition in results:
            partition = self._replicas.partitions.get(topic_partition)
            size = record_bytes.get(topic_partition, 0)
            if partition is not None:
                partition.traffic.fetch_requests += 1
                partition.traffic.replication_bytes_out += size
                if self.reader.replica_id in partition.adding_replicas:
                    partition.traffic.reassignment_bytes_out += size
            if size and self._quota.is_throttled(topic_partition):
                throttled_bytes += size
        if throttled_bytes:
            self._quota.record(throttled_bytes, self._clock.monotonic_ms())

    def _count_consumed(self, results: Iterable[TopicPartition], sizes: Mapping[TopicPartition, int]) -> None:
        traffic = self._replicas.traffic
        for topic_partition in results:
            counters = traffic.found(topic_partition.topic)
            counters.fetch_requests += 1
            counters.bytes_out += sizes.get(topic_partition, 0)

    def read(self) -> Reading:
        """Read all partitions in order until max_bytes is used up."""
        if self._session is not None:
            self.positions = self._session.active()
        return self._read_all()

    def _read_all(self) -> Reading:
        reading = Reading({}, {})
        self._read_into(reading, self.positions)
        return reading

    async def read_sliced(self) -> Reading:
        """As `read`, for many partitions: each is read in the state that it has in its slice."""
        if self._session is not None:
            self.positions = self._session.active()
        reading = Reading({}, {})
        async for positions in sliced_batches(self.positions, READ_PER_SLICE_MAX):
            self._read_into(reading, positions)
        return reading

    def _read_into(self, reading: Reading, positions: Sequence[FetchPosition]) -> None:
        results, record_bytes, total = reading.results, reading.record_bytes, reading.total_bytes
        is_urgent, is_on_older_segment = reading.is_urgent, reading.is_on_older_segment
        may_skip = self._may_skip and self._session is not None
        for position in positions:
            if may_skip and self._partitions.is_unchanged(position):
                continue
            # Only the first partition with records may exceed the limit, so that every reader makes progress.
            left = self._max_bytes - total
            result = self._partitions.read(position, left, is_first=total == 0)
            results[position.topic_partition] = result
            size = len(result.records) if result.records is not None else 0
            if size:
                record_bytes[position.topic_partition] = size
                total += size
            is_urgent = is_urgent or is_sent_at_once(result)
            if total < self._enough_bytes:
                is_on_older_segment = is_on_older_segment or self._partitions.is_on_older_segment(position, result)
        reading.total_bytes, reading.is_urgent, reading.is_on_older_segment = total, is_urgent, is_on_older_segment

    async def convert(self, reading: Reading, work: RecordWork) -> bool:
        """Replace the records of the reading by messages of an old format, or by the error that prevents that.

        Returns False if nothing remains to send, since some record types do not exist in old formats.
        """
        assert self._magic is not None
        reading.total_bytes = 0
        for position in self.positions:
            result = reading.results[position.topic_partition]
            if isinstance(result.records, RecordsSlice):
                left = self._response_max_bytes - reading.total_bytes
                if left <= 0 and reading.total_bytes:
                    result.records = EMPTY
                else:
                    began_ms = self._clock.monotonic_ms()
                    result = await self._partitions.convert(
                        position, result, result.records, self._magic, max_bytes=max(left, 0), work=work
                    )
                    self._replicas.traffic.fetch_conversion_times.record(self._clock.monotonic_ms() - began_ms)
                    reading.results[position.topic_partition] = result
                    reading.is_urgent = reading.is_urgent or result.error_code != _NO_ERROR
                partition_traffic = self._replicas.traffic.found(position.topic_partition.topic)
                partition_traffic.fetch_conversions += 1
            size = len(result.records) if result.records is not None else 0
            reading.record_bytes[position.topic_partition] = size
            reading.total_bytes += size
        return reading.is_urgent or reading.total_bytes > 0
