"""The lines of kafka-dump-log about batches, messages of old formats, control records, producers and mismatches.

DumpLogSegments of 2.8, 3.9 and 4.3, byte for byte.  Pure.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator

from kctl.commands.compat.texts.internal_records import quorum_control_3, quorum_control_4
from kctl.commands.compat.texts.java import KAFKA_3, KAFKA_28, ScalaHashTable
from kctl.dump.batches import BatchLine
from kctl.model import java_hash
from kctl.records.compression import Codec, DecompressionError, decompress
from kctl.records.header import CODEC_MASK, LOG_APPEND_TIME_BIT, SEQUENCE_MAX, BatchHeader, Record
from kctl.records.old_formats import legacy
from kctl.storage.state.producer_state import SnapshotEntry

_CODECS = tuple(codec.name for codec in Codec)
_CODECS_4 = tuple(name.lower() for name in _CODECS)
_SLASHES = re.compile(r"//+")
_CONTROL_TYPES = {2: "LEADER_CHANGE", 3: "SNAPSHOT_HEADER", 4: "SNAPSHOT_FOOTER", 5: "KRAFT_VERSION", 6: "KRAFT_VOTERS"}
_CONTROL_KEY = struct.Struct(">hh")
_MARKER = struct.Struct(">hi")
_MARKERS = ("ABORT", "COMMIT")


def batch_text(line: BatchLine, *, is_28: bool) -> str:
    """Return the line of a batch."""
    header = line.header
    if header.magic >= 2:
        text = (
            f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count}"
            f" baseSequence: {header.base_sequence} lastSequence: {header.last_sequence}"
            f" producerId: {header.producer_id} producerEpoch: {header.producer_epoch}"
            f" partitionLeaderEpoch: {header.leader_epoch} isTransactional: {java_boolean(header.is_transactional)}"
            f" isControl: {java_boolean(header.is_control)}"
        )
        if not is_28:
            horizon = header.delete_horizon_ms
            text += f" deleteHorizonMs: {'OptionalLong.empty' if horizon is None else f'OptionalLong[{horizon}]'}"
    else:
        text = f"offset: {header.last_offset}"
    return (
        f"{text} position: {header.position} {timestamp_type(header)}: {header.max_timestamp} size: {header.size}"
        f" magic: {header.magic} compresscodec: {codec_name(header, is_28=is_28)} crc: {header.crc}"
        f" isvalid: {java_boolean(line.is_sound)}"
    )


def codec_name(header: BatchHeader, *, is_28: bool) -> str:
    """Return the codec in Kafka's notation: in 2.8 the name of an enum."""
    number = header.attributes & CODEC_MASK
    if number >= len(_CODECS):
        return f"unknown({number})"
    return _CODECS[number] if is_28 else _CODECS_4[number]


def legacy_metadata(record: Record, stamp: str, common: str, checksum: int | None, *, is_28: bool) -> str:
    """Return the line of a message of an old format, without key and value."""
    key_size = -1 if record.key is None else len(record.key)
    value_size = -1 if record.value is None else len(record.value)
    if is_28:
        return (
            f"| offset: {record.offset} isValid: true crc: {checksum} keySize: {key_size} valueSize: {value_size} "
            f"{stamp}: {record.timestamp}{common} crc: {checksum} isvalid: true"
        )
    return (
        f"| offset: {record.offset} {stamp}: {record.timestamp} keySize: {key_size} valueSize: {value_size}"
        f" isValid: true crc: {checksum}"
    )


def producer_text(entry: SnapshotEntry, *, is_28: bool) -> str:
    """Return the line of a producer in a snapshot."""
    first = entry.current_txn_first_offset
    text = (
        f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch} "
        f"coordinatorEpoch: {entry.coordinator_epoch} currentTxnFirstOffset: "
    )
    if is_28:
        text += f"{'None' if first < 0 else f'Some({first})'} "
    else:
        text += f"{'OptionalLong.empty' if first < 0 else f'OptionalLong[{first}]'} "
        text += f"lastTimestamp: {entry.timestamp} "
    if entry.last_offset < 0:
        return text
    first_sequence = (entry.last_sequence - entry.offset_delta) & SEQUENCE_MAX
    return text + (
        f"firstSequence: {first_sequence} lastSequence: {entry.last_sequence} lastOffset: {entry.last_offset} "
        f"offsetDelta: {entry.offset_delta} timestamp: {entry.timestamp}"
    )


def control_text(record: Record, style: str) -> str:
    """Return the fields of a control record."""
    if style != KAFKA_28:
        text = quorum_control_3(record) if style == KAFKA_3 else quorum_control_4(record)
        if text is not None:
            return text
    key, value = record.key or b"", record.value or b""
    if len(key) < _CONTROL_KEY.size:
        return " controlType: UNKNOWN(-1)"
    number = _CONTROL_KEY.unpack_from(key)[1]
    if number in {0, 1} and len(value) >= _MARKER.size:
        return f" endTxnMarker: {_MARKERS[number]} coordinatorEpoch: {_MARKER.unpack_from(value)[1]}"
    return f" controlType: {_CONTROL_TYPES.get(number, 'UNKNOWN')}({number})"


def inner_checksums(line: BatchLine) -> Iterator[int]:
    """Yield the checksums of messages of an old format, which may be in a compressed wrapper message."""
    data = line.data()
    header = legacy.parse_message(data)
    codec = header.codec
    if not header.attributes & CODEC_MASK:
        yield header.crc
        return
    header.attributes &= ~CODEC_MASK
    wrapped = next(legacy.iterate_messages(data, header)).value or b""
    try:
        inner = decompress(codec, wrapped)
    except DecompressionError:
        # The lz4 frames of magic 0 have a different header checksum, so the messages have to be encoded again.
        for record in line.records():
            yield legacy.parse_message(legacy.build_messages([record], magic=header.magic)).crc
        return
    position = 0
    while position + 16 <= len(inner):
        yield int.from_bytes(inner[position + 12 : position + 16], "big")
        position += 12 + int.from_bytes(inner[position + 8 : position + 12], "big")


def timestamp_type(header: BatchHeader) -> str:
    """Return the name of the timestamp type: create time or append time."""
    if header.magic == 0:
        return "NoTimestampType"
    return "LogAppendTime" if header.attributes & LOG_APPEND_TIME_BIT else "CreateTime"


def java_boolean(value: bool) -> str:
    """Return a boolean in Java's notation."""
    return "true" if value else "false"


def java_path(path: str) -> str:
    """Return a path in the notation of java.io.File."""
    path = _SLASHES.sub("/", path)
    return path.rstrip("/") or "/" if path else path


# Mismatches between indexes and logs, which kafka-dump-log lists after the last file. Pure.


Pairs = list[tuple[int, int]]


class Misfits:
    """The mismatches by file, in the order in which they were found."""

    def __init__(self) -> None:
        self.offset_mismatches: dict[str, Pairs] = {}
        self.time_mismatches: dict[str, Pairs] = {}
        self.out_of_order: dict[str, Pairs] = {}
        self.not_found: dict[str, Pairs] = {}
        self.gaps: dict[str, Pairs] = {}

    @property
    def is_wrong(self) -> bool:
        """Whether an index does not match its log; gaps are not errors."""
        return bool(self.offset_mismatches or self.time_mismatches or self.out_of_order or self.not_found)

    def write(self, write_line: Callable[[str], None]) -> None:
        """Write the lists, in Kafka's order of kinds."""
        for path, pairs in _in_order(self.offset_mismatches):
            write_line(f"Mismatches in :{path}")
            for index_offset, log_offset in reversed(pairs):
                write_line(f"  Index offset: {index_offset}, log offset: {log_offset}")
        for path, pairs in _in_order(self.time_mismatches):
            write_line(f"Found timestamp mismatch in :{path}")
            for index_time, log_time in pairs:
                write_line(f"  Index timestamp: {index_time}, log timestamp: {log_time}")
        for path, pairs in _in_order(self.out_of_order):
            write_line(f"Found out of order timestamp in :{path}")
            for index_time, before in pairs:
                write_line(f"  Index timestamp: {index_time}, Previously indexed timestamp: {before}")
        for _, pairs in _in_order(self.not_found):
            write_line("The following indexed offsets are not found in the log.")
            for indexed, log_offset in pairs:
                write_line(f"Indexed offset: {indexed}, found log offset: {log_offset}")
        for path, pairs in _in_order(self.gaps):
            write_line(f"Non-consecutive offsets in {path}")
            for first, second in reversed(pairs):
                write_line(f"  {first} is followed by {second}")


def _in_order(mismatches: dict[str, Pairs]) -> Iterator[tuple[str, Pairs]]:
    """Return the files in the iteration order of Kafka's map."""
    table = ScalaHashTable()
    for path, pairs in mismatches.items():
        table.add(path, java_hash(path), (path, pairs))
    return iter(table)
