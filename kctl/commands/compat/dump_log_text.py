"""The lines of kafka-dump-log for batches, messages of old formats, control records and producers, byte for byte.
Pure.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from kctl.commands.compat.internal_records import quorum_control_3, quorum_control_4
from kctl.commands.compat.versions import KAFKA_3, KAFKA_28
from kctl.records import legacy
from kctl.records.compression import Codec, DecompressionError, decompress
from kctl.records.header import CODEC_MASK, LOG_APPEND_TIME_BIT, SEQUENCE_MAX, BatchHeader, Record
from kctl.storage.dump_lines import BatchLine
from kctl.storage.producer_state import SnapshotEntry

_CODECS = tuple(codec.name for codec in Codec)
_CODECS_4 = tuple(name.lower() for name in _CODECS)
_SLASHES = re.compile(r"//+")
_CONTROL_TYPES = {2: "LEADER_CHANGE", 3: "SNAPSHOT_HEADER", 4: "SNAPSHOT_FOOTER", 5: "KRAFT_VERSION", 6: "KRAFT_VOTERS"}
_CONTROL_KEY = struct.Struct(">hh")
_MARKER = struct.Struct(">hi")
_MARKERS = ("ABORT", "COMMIT")


def batch_text(line: BatchLine, *, is_28: bool) -> str:
    """The line of a batch."""
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
    """The codec in Kafka's notation: in 2.8 the name of an enum."""
    number = header.attributes & CODEC_MASK
    if number >= len(_CODECS):
        return f"unknown({number})"
    return _CODECS[number] if is_28 else _CODECS_4[number]


def legacy_metadata(record: Record, stamp: str, common: str, checksum: int | None, *, is_28: bool) -> str:
    """The line of a message of an old format, without key and value."""
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
    """The line of a producer in a snapshot."""
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
    """The fields of a control record."""
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
    """The checksums of messages of an old format, which may be in a compressed wrapper message."""
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
    """The name of the timestamp type: create time or append time."""
    if header.magic == 0:
        return "NoTimestampType"
    return "LogAppendTime" if header.attributes & LOG_APPEND_TIME_BIT else "CreateTime"


def java_boolean(value: bool) -> str:
    """A boolean in Java's notation."""
    return "true" if value else "false"


def java_path(path: str) -> str:
    """A path in the notation of java.io.File."""
    path = _SLASHES.sub("/", path)
    return path.rstrip("/") or "/" if path else path
