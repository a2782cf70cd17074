"""Lines of dumped files as JSON objects; `type` is the type of the object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from json.encoder import encode_basestring as encode_text
from typing import Annotated, NamedTuple

from kctl.commands.frame.options.values import format_time, known_time
from kctl.commands.frame.output.rows import known
from kctl.commands.reading.items import HeaderItem, RecordItem, record_members
from kctl.dump.batches import CheckpointLine, EpochLine, OffsetIndexLine, Problem, PropertyLine, TimeIndexLine
from kctl.errors import MalformedRequest
from kctl.model import TopicPartition
from kctl.output.console import JSON_ONLY, Column, ErrorName, ErrorText, is_present
from kctl.records.control import ControlType, parse_end_transaction_marker
from kctl.records.header import BatchHeader, CorruptBatch, Record
from kctl.records.internal.entries import record_type_name
from kctl.records.internal.metadata_records import decode_quorum_control
from kctl.storage.segments.transaction_index import AbortedTransaction
from kctl.storage.state.producer_state import SnapshotEntry

CORRUPT = "CORRUPT_MESSAGE"
"""Kafka's error name for invalid contents."""
UNREADABLE = "OS_ERROR"
"""The error name for files that cannot be read."""


class BatchItem(NamedTuple):
    """A record batch.  Timestamps are in ms since the epoch."""

    type: Annotated[str, JSON_ONLY]
    file: Annotated[str, Column(drop_order=9)]
    position: int
    size: Annotated[int, Column(drop_order=8)]
    base_offset: int
    last_offset: int
    count: int  # type: ignore[assignment]  # the name of the field in JSON; tuple.count is not used
    codec: Annotated[str, Column(drop_order=7)]
    max_timestamp_ms: Annotated[int | None, JSON_ONLY]
    max_time: Annotated[str | None, Column(drop_order=6)]
    leader_epoch: Annotated[int | None, Column(drop_order=3)]
    producer_id: Annotated[int | None, Column(drop_order=5)]
    producer_epoch: Annotated[int | None, Column(drop_order=1)]
    base_sequence: Annotated[int | None, Column(drop_order=2)]
    last_sequence: Annotated[int | None, JSON_ONLY]
    flags: Annotated[list[str], Column(drop_order=4)]
    delete_horizon_ms: Annotated[int | None, JSON_ONLY]
    magic: Annotated[int, JSON_ONLY]
    crc: Annotated[int, JSON_ONLY]
    error: ErrorName = None
    message: ErrorText = None


class RecordEntry(NamedTuple):
    """A record whose key and value are shown as text, as base64, or decoded by a decoder."""

    type: str
    file: str
    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    time: str | None
    key: object
    key_encoding: str | None
    value: object
    value_encoding: str | None
    headers: list[HeaderItem]
    sequence: int | None
    error: str | None = None
    message: str | None = None


class ControlRecordEntry(NamedTuple):
    """A control record: the marker of a transaction, or a control record of KRaft."""

    type: str
    file: str
    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    time: str | None
    key: str | None
    key_encoding: str | None
    value: str | None
    value_encoding: str | None
    headers: list[HeaderItem]
    sequence: int | None
    control: str
    coordinator_epoch: int | None
    error: str | None = None
    message: str | None = None


class DecodedRecordEntry(NamedTuple):
    """A record of an internal topic; key and value are objects."""

    type: str
    file: str
    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    time: str | None
    key: object
    value: object
    headers: list[HeaderItem]
    sequence: int | None
    error: str | None = None
    message: str | None = None


class OffsetIndexItem(NamedTuple):
    """An entry of an offset index."""

    type: Annotated[str, JSON_ONLY]
    file: str
    offset: int
    position: int
    error: ErrorName = None
    message: ErrorText = None


class TimeIndexItem(NamedTuple):
    """An entry of a time index."""

    type: Annotated[str, JSON_ONLY]
    file: str
    time: str | None
    timestamp_ms: int
    offset: int
    error: ErrorName = None
    message: ErrorText = None


class ProducerItem(NamedTuple):
    """A producer in a snapshot of the producer state."""

    type: Annotated[str, JSON_ONLY]
    file: str
    producer_id: int
    producer_epoch: int
    last_sequence: int | None
    last_offset: int | None
    offset_delta: int
    timestamp_ms: Annotated[int | None, JSON_ONLY]
    time: str | None
    coordinator_epoch: int | None
    current_txn_first_offset: int | None
    error: ErrorName = None
    message: ErrorText = None


class AbortedTransactionItem(NamedTuple):
    """An entry of a transaction index."""

    type: Annotated[str, JSON_ONLY]
    file: str
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    error: ErrorName = None
    message: ErrorText = None


class LeaderEpochItem(NamedTuple):
    """An entry of a leader epoch checkpoint."""

    type: Annotated[str, JSON_ONLY]
    file: str
    epoch: int
    start_offset: int
    error: ErrorName = None
    message: ErrorText = None


class CheckpointItem(NamedTuple):
    """An entry of an offset checkpoint."""

    type: Annotated[str, JSON_ONLY]
    file: str
    topic: str
    partition: int
    offset: int
    error: ErrorName = None
    message: ErrorText = None


class PropertyItem(NamedTuple):
    """A property in meta.properties or partition.metadata, or a field of quorum-state."""

    type: Annotated[str, JSON_ONLY]
    file: str
    name: str
    value: Annotated[str, Column(wraps=True)]
    error: ErrorName = None
    message: ErrorText = None


class ProblemItem(NamedTuple):
    """An error in a file: `size` bytes at `position`, if these are known."""

    type: Annotated[str, JSON_ONLY]
    file: str
    position: Annotated[int | None, JSON_ONLY]
    size: Annotated[int | None, JSON_ONLY]
    error: Annotated[str, Column(is_rare=True, trouble=is_present)]
    message: Annotated[str, Column(wraps=True, is_rare=True)]


Entry = RecordEntry | ControlRecordEntry | DecodedRecordEntry
FileItem = (
    BatchItem
    | OffsetIndexItem
    | TimeIndexItem
    | ProducerItem
    | AbortedTransactionItem
    | LeaderEpochItem
    | CheckpointItem
    | PropertyItem
    | ProblemItem
)
FileLine = (
    OffsetIndexLine
    | TimeIndexLine
    | SnapshotEntry
    | AbortedTransaction
    | EpochLine
    | CheckpointLine
    | PropertyLine
    | Problem
)


def line_item(path: str, line: FileLine) -> FileItem:
    """Return a line other than a batch."""
    match line:
        case OffsetIndexLine():
            return OffsetIndexItem("offset_index", path, line.offset, line.position)
        case TimeIndexLine():
            return TimeIndexItem("time_index", path, format_time(line.timestamp), line.timestamp, line.offset)
        case SnapshotEntry():
            return _producer_item(path, line)
        case AbortedTransaction():
            return AbortedTransactionItem("aborted_transaction", path, *line)
        case EpochLine():
            return LeaderEpochItem("leader_epoch", path, line.epoch, line.start_offset)
        case CheckpointLine():
            return CheckpointItem("checkpoint", path, line.topic, line.partition, line.offset)
        case PropertyLine():
            return PropertyItem("property", path, line.name, line.value)
        case Problem():
            error = UNREADABLE if line.is_unreadable else CORRUPT
            return ProblemItem("problem", path, line.position, line.size, error, line.reason)


def batch_item(path: str, header: BatchHeader) -> BatchItem:
    """Return a batch as its header describes it."""
    flags = {
        "transactional": header.is_transactional,
        "control": header.is_control,
        "log-append-time": bool(header.timestamp_type),
    }
    return BatchItem(
        type="batch",
        file=path,
        position=header.position,
        size=header.size,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        count=header.record_count,
        codec=_codec(header),
        max_timestamp_ms=known_time(header.max_timestamp),
        max_time=format_time(header.max_timestamp),
        leader_epoch=known(header.leader_epoch),
        producer_id=known(header.producer_id),
        producer_epoch=known(header.producer_epoch),
        base_sequence=known(header.base_sequence),
        last_sequence=known(header.last_sequence),
        flags=[name for name, is_set in flags.items() if is_set],
        delete_horizon_ms=header.delete_horizon_ms,
        magic=header.magic,
        crc=header.crc,
    )


def record_entry(path: str, header: BatchHeader, record: Record, item: RecordItem) -> RecordEntry:
    """Return a record as `item` shows it, with its sequence number."""
    return RecordEntry("record", path, *item, sequence=sequence_of(header, record))


def record_entry_lines(path: str, tp: TopicPartition, header: BatchHeader, records: Sequence[Record]) -> Iterator[str]:
    """Yield the JSON of `record_entry` for each record, without an object for each."""
    start = f'{{"type":"record","file":{encode_text(path)},'
    end = ',"error":null,"message":null}'
    for record, members in zip(records, record_members(tp, records), strict=True):
        sequence = sequence_of(header, record)
        yield f'{start}{members},"sequence":{"null" if sequence is None else sequence}{end}'


def control_entry(path: str, header: BatchHeader, record: Record, item: RecordItem) -> ControlRecordEntry:
    """Return a record of a control batch."""
    control, coordinator_epoch = control_of(record)
    return ControlRecordEntry("record", path, *item, sequence_of(header, record), control, coordinator_epoch)


def decoded_entry(
    path: str, header: BatchHeader, record: Record, item: RecordItem, key: object, value: object
) -> DecodedRecordEntry:
    """Return a record of an internal topic, whose key and value have been decoded."""
    return DecodedRecordEntry(
        type="record",
        file=path,
        topic=item.topic,
        partition=item.partition,
        offset=item.offset,
        timestamp_ms=item.timestamp_ms,
        time=item.time,
        key=key,
        value=value,
        headers=item.headers,
        sequence=sequence_of(header, record),
    )


def sequence_of(header: BatchHeader, record: Record) -> int | None:
    """Return the sequence number of a record; None without an idempotent producer.

    Sequence numbers wrap from 2**31-1 to 0 (KIP-98).
    """
    if header.base_sequence < 0:
        return None
    return (header.base_sequence + record.offset - header.base_offset) & 0x7FFFFFFF


def control_of(record: Record) -> tuple[str, int | None]:
    """Return the type of a control record, and the epoch of the transaction coordinator that wrote a marker."""
    marker = parse_end_transaction_marker(record)
    if marker is None:
        return _quorum_control(record), None
    return "commit" if marker.type is ControlType.COMMIT else "abort", marker.coordinator_epoch


def _quorum_control(record: Record) -> str:
    try:
        found = decode_quorum_control(record)
    except MalformedRequest:
        found = None
    return "unknown" if found is None else record_type_name(type(found[1]))


def _codec(header: BatchHeader) -> str:
    try:
        return header.codec.name.lower()
    except CorruptBatch as error:
        return error.reason


def _producer_item(path: str, entry: SnapshotEntry) -> ProducerItem:
    return ProducerItem(
        type="producer",
        file=path,
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=known(entry.last_sequence),
        last_offset=known(entry.last_offset),
        offset_delta=entry.offset_delta,
        timestamp_ms=known_time(entry.timestamp),
        time=format_time(entry.timestamp),
        coordinator_epoch=known(entry.coordinator_epoch),
        current_txn_first_offset=known(entry.current_txn_first_offset),
    )
