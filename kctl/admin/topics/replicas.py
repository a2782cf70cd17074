"""Verifies that the replicas of partitions hold the same records, by fetching them from every replica."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from kctl.admin.topics.configs import ConfigResource, ResourceType, describe_configs
from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import Connection, ConnectionLost
from kctl.client.consuming.fetching.batches import FetchedPartition, FetchLimits, fetch_batches
from kctl.client.consuming.list_offsets import DEBUGGING_CONSUMER, EARLIEST, LATEST, OffsetAt, list_offsets_of_replicas
from kctl.client.leaders import Outcomes
from kctl.client.outcome import Outcome, failure_of, topic_error
from kctl.errors import ApiError, AuthenticationFailed, ErrorCode
from kctl.limits import Subject, bound
from kctl.model import TopicPartition
from kctl.records.batch import iterate_batches, iterate_records
from kctl.records.header import BatchHeader, BatchTooLarge, CorruptBatch, Record, crc_of

VERIFY_FETCH_BYTES_MAX = bound(
    Subject.COMMANDS,
    "records that `kctl cluster verify` fetches at once, over all brokers; a larger batch is fetched whole",
    64 << 20,
    "bytes",
    on_excess="the rest is fetched when these records have been compared",
)
VERIFY_RECORD_BYTES_MAX = bound(
    Subject.COMMANDS,
    "decompressed records of one batch of a compacted topic that `kctl cluster verify` compares",
    64 << 20,
    "bytes",
    on_excess="the partition is reported as not compared",
)


# Compares the records in the replicas of a partition. Pure.
#
# Followers store the batches of their leader as they are, so that replicas are equal byte for byte. Only the cleaner
# of a compacted topic, which runs on each broker at a time of its own, rewrites batches: there the records are
# compared, and one that a replica lacks is not a difference.


@dataclass(frozen=True, slots=True)
class HeldBatch:
    """The batch of one replica at the place of a difference."""

    base_offset: int
    last_offset: int
    size_bytes: int
    checksum: int
    """CRC in the header of the batch."""
    computed_checksum: int
    """CRC of its bytes; another one than `checksum` means that the batch is damaged."""

    @property
    def is_damaged(self) -> bool:
        """True if the bytes of the batch are not those that its producer or leader wrote."""
        return self.checksum != self.computed_checksum


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference of a partition.  A replica without an entry in `held` has no readable batch there."""

    offset: int
    reason: str
    held: Mapping[int, HeldBatch]

    @property
    def damaged(self) -> tuple[int, ...]:
        """The replicas whose batch has a wrong checksum."""
        return tuple(sorted(replica for replica, held in self.held.items() if held.is_damaged))


@dataclass(frozen=True, slots=True)
class Comparison:
    """Records of a partition that were compared up to, not including, `next_offset`."""

    next_offset: int
    compared_bytes: int
    """Size of the compared batches in one replica."""
    difference: Difference | None = None


def compare_batches(fetched: Mapping[int, memoryview], start: int, end: int) -> Comparison:
    """Compare the complete batches of all replicas from `start` to `end`, byte for byte; stop at a difference."""
    readers = {replica: _batches(buffer, start) for replica, buffer in sorted(fetched.items())}
    position, compared = start, 0
    while True:
        batches: dict[int, BatchHeader] = {}
        for replica, reader in readers.items():
            try:
                header = next(reader, None)
            except CorruptBatch as damage:
                held = {holder: _held(fetched[holder], batch) for holder, batch in batches.items()}
                difference = Difference(position, f"replica {replica}: {damage.reason}", held)
                return Comparison(position, compared, difference)
            if header is None:
                return Comparison(position, compared)
            batches[replica] = header
        first = min(header.base_offset for header in batches.values())
        if first >= end:
            return Comparison(end, compared)
        if (reason := _reason(fetched, batches)) is not None:
            held = {replica: _held(fetched[replica], header) for replica, header in batches.items()}
            return Comparison(position, compared, Difference(max(first, start), reason, held))
        some = next(iter(batches.values()))
        position, compared = min(some.next_offset, end), compared + some.size


def compare_records(fetched: Mapping[int, memoryview], start: int, end: int) -> Comparison:
    """Compare the records that more than one replica has.

    A replica without any bytes has no records before `end`.  Raises BatchTooLarge for records that decompress to more
    than VERIFY_RECORD_BYTES_MAX.
    """
    boundary, compared = end, 0
    records: dict[int, tuple[int, Record]] = {}
    for replica, buffer in sorted(fetched.items()):
        position = start
        try:
            for header in _batches(buffer, start):
                if header.base_offset >= boundary:
                    position = boundary
                    break
                held = _held(buffer, header)
                if held.is_damaged:
                    return Comparison(
                        start, compared, Difference(header.base_offset, _wrong([replica]), {replica: held})
                    )
                compared += held.size_bytes
                for record in iterate_records(buffer, header, size_max=VERIFY_RECORD_BYTES_MAX):
                    other, same = records.setdefault(record.offset, (replica, record))
                    if same != record and record.offset >= start:
                        where = {other: _holder(fetched[other], record.offset), replica: held}
                        reason = f"replicas {other} and {replica} have different records at offset {record.offset}"
                        return Comparison(start, compared, Difference(record.offset, reason, where))
                position = header.next_offset
        except BatchTooLarge:
            raise
        except CorruptBatch as damage:
            return Comparison(start, compared, Difference(position, f"replica {replica}: {damage.reason}", {}))
        if len(buffer):
            boundary = min(boundary, position)
    return Comparison(boundary, compared // max(1, len(fetched)))


def _batches(buffer: memoryview, start: int) -> Iterator[BatchHeader]:
    """Return the complete batches that end after `start`, which is often in the middle of the first batch."""
    # The last offset of a damaged batch may be wrong; its first offset is where the previous batch ends.
    return (header for header in iterate_batches(buffer) if header.next_offset > start or header.base_offset >= start)


def _reason(fetched: Mapping[int, memoryview], batches: Mapping[int, BatchHeader]) -> str | None:
    """Return why the batches at the same place differ; None if they are equal and their checksum is right."""
    data = {replica: fetched[replica][header.position : header.end] for replica, header in batches.items()}
    checksums = {
        replica: crc_of(fetched[replica], header.position, header.end, header.magic)
        for replica, header in batches.items()
    }
    if wrong := [replica for replica, header in batches.items() if checksums[replica] != header.crc]:
        return _wrong(wrong)
    first, *others = batches
    spans = {replica: (header.base_offset, header.last_offset) for replica, header in batches.items()}
    for other in others:
        if spans[other] != spans[first]:
            (a, b), (c, d) = spans[first], spans[other]
            return f"replica {first} has a batch of offsets {a} to {b}, replica {other} one of {c} to {d}"
        if data[other] != data[first]:
            return f"replicas {first} and {other} have different bytes"
    return None


def _wrong(replicas: list[int]) -> str:
    names = ", ".join(map(str, replicas))
    return f"wrong checksum of the batch on replica{'' if len(replicas) == 1 else 's'} {names}"


def _holder(buffer: memoryview, offset: int) -> HeldBatch:
    """Return the batch with that offset, which is in the buffer."""
    return next(_held(buffer, header) for header in iterate_batches(buffer) if header.next_offset > offset)


def _held(buffer: memoryview, header: BatchHeader) -> HeldBatch:
    computed = crc_of(buffer, header.position, header.end, header.magic)
    return HeldBatch(header.base_offset, header.last_offset, header.size, header.crc, computed)


# Verifies that the replicas of partitions hold the same records, by fetching them from every replica.
#
# Every replica responds to a debugging consumer up to its own high watermark, as to Kafka's ReplicaVerificationTool.
# A pass compares from the first offset that all replicas have up to the high watermark of the in-sync replicas;
# another pass continues there. Replicas that are not in sync are compared as far as they are.


T = TypeVar("T")

_PARTITIONS_AT_ONCE = 32
_PARTITION_BYTES = 1 << 20
_WAIT_MS = 500
_EMPTY_FETCHES_MAX = 3
"""Fetches without records below the high watermark, after which a replica is considered to have lost them."""


@dataclass(slots=True)
class VerifiedPartition:
    """State and result of one partition."""

    tp: TopicPartition
    replicas: tuple[int, ...]
    in_sync: frozenset[int]
    is_compacted: bool = False
    start: int | None = None
    """The first compared offset; None before the first pass."""
    position: int = 0
    """All records before it have been compared."""
    end: int | None = None
    """Where this pass ends; None until the high watermarks are known."""
    compared_bytes: int = 0
    max_lag: int = 0
    """Offsets by which the end of the shortest replica is behind the longest."""
    difference: Difference | None = None
    failures: dict[int, Outcome] = field(default_factory=dict)
    """Replicas that could not be compared, with the reason."""
    high_watermarks: dict[int, int] = field(default_factory=dict)
    empty_fetches: int = 0

    @property
    def readable(self) -> list[int]:
        """The replicas that take part."""
        return [replica for replica in self.replicas if replica not in self.failures]

    @property
    def is_done(self) -> bool:
        """True if nothing is left to compare in this pass."""
        is_at_end = self.end is not None and self.position >= self.end
        return self.difference is not None or not self.readable or is_at_end


async def partitions_to_verify(client: ClusterClient, topics: Collection[str] | None) -> list[VerifiedPartition]:
    """Return the partitions of these topics, or of all.  Raises ApiError for a topic that does not exist."""
    metadata = await client.metadata(topics)
    for topic in metadata.topics.values():
        if topic.error is not ErrorCode.NONE:
            raise topic_error(topic.name, topic.error)
    compacted = await _compacted_topics(client, list(metadata.topics))
    return [
        VerifiedPartition(
            TopicPartition(topic.name, partition.partition),
            partition.replicas,
            frozenset(partition.isr),
            is_compacted=topic.name in compacted,
            failures={
                replica: _not_alive(replica) for replica in partition.replicas if replica not in metadata.brokers
            },
        )
        for topic in metadata.topics.values()
        for partition in topic.partitions
    ]


async def verify_once(client: ClusterClient, partitions: Sequence[VerifiedPartition]) -> None:
    """One pass over the partitions, whose results it updates; errors of a replica end its part only."""
    await _read_bounds(client, partitions)
    for partition in partitions:
        partition.end, partition.high_watermarks, partition.empty_fetches = None, {}, 0
    brokers = len({replica for partition in partitions for replica in partition.readable})
    while waiting := [partition for partition in partitions if not partition.is_done][:_PARTITIONS_AT_ONCE]:
        fetched = await _fetch(client, waiting, partitions, brokers)
        moved = await _skip_deleted(
            client, [partition for partition in waiting if _is_out_of_range(fetched[partition.tp])]
        )
        for index, partition in enumerate(waiting):
            if partition.tp not in moved:
                _compare(partition, fetched[partition.tp], is_first=index == 0)


async def refresh_replicas(client: ClusterClient, partitions: Sequence[VerifiedPartition]) -> None:
    """Read the current replicas, before another pass; failures of the previous pass are forgotten."""
    metadata = await client.metadata({partition.tp.topic for partition in partitions})
    for partition in partitions:
        topic = metadata.topics.get(partition.tp.topic)
        current = topic.partition(partition.tp.partition) if topic is not None else None
        if current is not None:
            partition.replicas, partition.in_sync = current.replicas, frozenset(current.isr)
            partition.failures = {
                replica: _not_alive(replica) for replica in current.replicas if replica not in metadata.brokers
            }


def _is_out_of_range(fetched: Mapping[int, FetchedPartition]) -> bool:
    return any(response.error is ErrorCode.OFFSET_OUT_OF_RANGE for response in fetched.values())


async def _skip_deleted(client: ClusterClient, partitions: Sequence[VerifiedPartition]) -> set[TopicPartition]:
    """Move the positions behind records that retention has deleted meanwhile; return the partitions that have moved."""
    before = {partition.tp: partition.position for partition in partitions}
    if before:
        await _read_bounds(client, partitions)
    return {partition.tp for partition in partitions if partition.position > before[partition.tp]}


def _compare(partition: VerifiedPartition, fetched: Mapping[int, FetchedPartition], *, is_first: bool) -> None:
    """Compare what was fetched and move the position.

    `is_first`: the partition was the first in all requests, so that a broker returns records if it has any.
    """
    for replica, response in fetched.items():
        if response.error is not ErrorCode.NONE:
            partition.failures[replica] = Outcome(
                str(replica),
                response.error,
                f"replica {replica} at offset {partition.position}: {response.error.description}",
            )
        else:
            partition.high_watermarks[replica] = response.high_watermark
    there = {replica: response for replica, response in fetched.items() if replica not in partition.failures}
    if not there:
        return
    if partition.end is None:
        in_sync = [response.high_watermark for replica, response in there.items() if replica in partition.in_sync]
        partition.end = min(in_sync) if in_sync else max(response.high_watermark for response in there.values())
    records = {replica: got.records for replica, got in there.items() if got.high_watermark > partition.position}
    if partition.position >= partition.end or not records:
        partition.end = min(partition.end, partition.position)
        return
    is_empty = [replica for replica, buffer in records.items() if not len(buffer)]
    if is_empty and not is_first:
        return
    if is_empty and not partition.is_compacted:
        _note_empty(partition, is_empty)
        return
    end = min([partition.end, *(partition.high_watermarks[replica] for replica in records)])
    try:
        comparison = (compare_records if partition.is_compacted else compare_batches)(records, partition.position, end)
    except BatchTooLarge as error:
        for replica in records:
            partition.failures[replica] = Outcome(str(replica), ErrorCode.MESSAGE_TOO_LARGE, str(error))
        return
    if comparison.next_offset == partition.position and comparison.difference is None:
        if is_first:
            _note_empty(partition, sorted(records))
        return
    partition.empty_fetches = 0
    partition.position, partition.difference = comparison.next_offset, comparison.difference
    partition.compared_bytes += comparison.compared_bytes


def _note_empty(partition: VerifiedPartition, replicas: list[int]) -> None:
    """Count fetches without complete records below the high watermark; a few in a row are a difference."""
    partition.empty_fetches += 1
    if partition.empty_fetches >= _EMPTY_FETCHES_MAX:
        names = ", ".join(
            f"replica {replica} (high watermark {partition.high_watermarks[replica]})" for replica in replicas
        )
        partition.difference = Difference(partition.position, f"no records from {names}", {})


async def _read_bounds(client: ClusterClient, partitions: Sequence[VerifiedPartition]) -> None:
    """Set the first offset that all replicas have, and how far their ends are apart."""

    async def read(connection: Connection, tps: list[TopicPartition]) -> tuple[Outcomes[OffsetAt], Outcomes[OffsetAt]]:
        first = await list_offsets_of_replicas(connection, tps, EARLIEST)
        return first, await list_offsets_of_replicas(connection, tps, LATEST)

    replies = await _on_replicas(client, partitions, read)
    for partition in partitions:
        starts, ends = [], []
        for replica in partition.readable:
            first, last = (outcomes.get(partition.tp) for outcomes in replies.get(replica, ({}, {})))
            if isinstance(first, OffsetAt) and isinstance(last, OffsetAt):
                starts.append(first.offset)
                ends.append(last.offset)
            else:
                error = first if isinstance(first, ApiError) else last
                code = error.code if isinstance(error, ApiError) else ErrorCode.UNKNOWN_SERVER_ERROR
                partition.failures[replica] = Outcome(str(replica), code, f"replica {replica}: {code.description}")
        if starts:
            partition.position = max(partition.position, *starts)
            partition.start = partition.position if partition.start is None else partition.start
            partition.max_lag = max(ends) - min(ends)


async def _fetch(
    client: ClusterClient,
    partitions: Sequence[VerifiedPartition],
    all_partitions: Sequence[VerifiedPartition],
    brokers: int,
) -> dict[TopicPartition, dict[int, FetchedPartition]]:
    """Return the records at the positions of `partitions`.

    A broker that cannot be reached fails for `all_partitions`.
    """
    share = max(_PARTITION_BYTES // 16, VERIFY_FETCH_BYTES_MAX // max(1, brokers))
    limits = FetchLimits(
        max_wait_ms=_WAIT_MS, min_bytes=0, max_bytes=share, partition_max_bytes=min(share, _PARTITION_BYTES)
    )
    positions = {partition.tp: partition.position for partition in partitions}

    async def read(connection: Connection, tps: list[TopicPartition]) -> list[FetchedPartition]:
        wanted = {tp: positions[tp] for tp in tps}
        return await fetch_batches(connection, wanted, limits=limits, replica_id=DEBUGGING_CONSUMER)

    by_partition: dict[TopicPartition, dict[int, FetchedPartition]] = {partition.tp: {} for partition in partitions}
    for replica, responses in (await _on_replicas(client, partitions, read, all_partitions)).items():
        for response in responses:
            by_partition[response.tp][replica] = response
    return by_partition


async def _on_replicas(
    client: ClusterClient,
    partitions: Iterable[VerifiedPartition],
    send_to: Callable[[Connection, list[TopicPartition]], Awaitable[T]],
    all_partitions: Sequence[VerifiedPartition] = (),
) -> dict[int, T]:
    """Return the responses by replica.

    A broker that refuses the request fails for these partitions, and one that does not respond for `all_partitions`
    too, so that it is waited for once.
    """
    by_broker: dict[int, list[VerifiedPartition]] = {}
    for partition in partitions:
        for replica in partition.readable:
            by_broker.setdefault(replica, []).append(partition)

    async def send(replica: int) -> T | Outcome:
        try:
            return await send_to(await client.broker(replica), [partition.tp for partition in by_broker[replica]])
        except ConnectionLost as error:
            by_broker[replica] += [partition for partition in all_partitions if replica in partition.readable]
            return failure_of(str(replica), error)
        except (ApiError, AuthenticationFailed) as error:
            return failure_of(str(replica), error)

    brokers = sorted(by_broker)
    replies = dict(zip(brokers, await client.gather([send(replica) for replica in brokers]), strict=True))
    for replica, reply in replies.items():
        if isinstance(reply, Outcome):
            for partition in by_broker[replica]:
                partition.failures[replica] = reply
    return {replica: reply for replica, reply in replies.items() if not isinstance(reply, Outcome)}


async def _compacted_topics(client: ClusterClient, topics: list[str]) -> set[str]:
    described = await describe_configs(
        client, [ConfigResource(ResourceType.TOPIC, name) for name in topics], synonyms=False
    )
    return {
        resource.name
        for resource, entries in described.items()
        if isinstance(
            entries, Outcome
        )  # without permission to read it: the comparison of compacted topics, which is valid for all
        or any(entry.name == "cleanup.policy" and "compact" in (entry.value or "") for entry in entries)
    }


def _not_alive(replica: int) -> Outcome:
    return Outcome(str(replica), ErrorCode.BROKER_NOT_AVAILABLE, f"broker {replica} is not alive")
