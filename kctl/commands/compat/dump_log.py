"""The output of Kafka's kafka-dump-log, byte for byte, for scripts that parse it.

DumpLogSegments of 2.8, 3.9 and 4.3; tests compare with the tools themselves. 3.9 prints the same as 4.3, except for
transactions (as 2.8) and messages of old formats (with a stray brace).  Where an exception ends Kafka's tool, this
module continues and describes the error on stderr.  Entries that are out of order are listed on stderr after the last
file, as Kafka does.  The exit status is 1 if a file is invalid.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterator

from kctl.commands.compat.internal_records import Texts, quorum_control_3, quorum_control_4
from kctl.commands.compat.java import KAFKA_3, KAFKA_28, ScalaHashTable
from kctl.dump.batches import BatchLine, Problem, Progress, first_bytes, read_log
from kctl.dump.indexes import OFFSET_ENTRY, TIME_ENTRY, LogBeside, entries, open_file, sanity_problem
from kctl.dump.kinds import base_offset_of, recognized_kind
from kctl.errors import CorruptLog
from kctl.model import java_hash
from kctl.output.console import Console
from kctl.records.compression import Codec, DecompressionError, decompress
from kctl.records.dump_text import AS_JAVA, LineFormat, write_records
from kctl.records.header import CODEC_MASK, LOG_APPEND_TIME_BIT, SEQUENCE_MAX, BatchHeader, CorruptBatch, Record
from kctl.records.old_formats import legacy
from kctl.storage.names import (
    BOOTSTRAP_CHECKPOINT,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_metadata_snapshot_name,
)
from kctl.storage.segments.transaction_index import parse_transaction_index
from kctl.storage.state.checkpoints import parse_snapshot
from kctl.storage.state.producer_state import SnapshotEntry
from kctl.system.user_files import read_regular

# The lines of kafka-dump-log for batches, messages of old formats, control records and producers, byte for byte.
# Pure.


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
        for path, found in _in_order(self.offset_mismatches):
            write_line(f"Mismatches in :{path}")
            for index_offset, log_offset in reversed(found):
                write_line(f"  Index offset: {index_offset}, log offset: {log_offset}")
        for path, found in _in_order(self.time_mismatches):
            write_line(f"Found timestamp mismatch in :{path}")
            for index_time, log_time in found:
                write_line(f"  Index timestamp: {index_time}, log timestamp: {log_time}")
        for path, found in _in_order(self.out_of_order):
            write_line(f"Found out of order timestamp in :{path}")
            for index_time, before in found:
                write_line(f"  Index timestamp: {index_time}, Previously indexed timestamp: {before}")
        for _, found in _in_order(self.not_found):
            write_line("The following indexed offsets are not found in the log.")
            for indexed, log_offset in found:
                write_line(f"Indexed offset: {indexed}, found log offset: {log_offset}")
        for path, found in _in_order(self.gaps):
            write_line(f"Non-consecutive offsets in {path}")
            for first, second in reversed(found):
                write_line(f"  {first} is followed by {second}")


def _in_order(found: dict[str, Pairs]) -> Iterator[tuple[str, Pairs]]:
    """Return the files in the iteration order of Kafka's map."""
    table = ScalaHashTable()
    for path, pairs in found.items():
        table.add(path, java_hash(path), (path, pairs))
    return iter(table)


Parser = Callable[[Record], Texts]

_WRITE_SIZE = 1 << 16
_BASE_OFFSET = re.compile(r"[0-9]+")


def as_text(record: Record) -> Texts:
    """Return the key and value as Kafka's StringDecoder shows them: invalid UTF-8 becomes U+FFFD."""
    key, value = record.key, record.value
    return (
        None if key is None else key.decode(errors=AS_JAVA),
        None if value is None else value.decode(errors=AS_JAVA),
    )


class ClassicOptions:
    """The parts to show; `parser` is None if keys and values are not shown."""

    __slots__ = ("deep", "max_bytes", "parser", "sanity_only", "skip_metadata", "verify_only")

    def __init__(
        self,
        *,
        deep: bool,
        parser: Parser | None,
        skip_metadata: bool,
        verify_only: bool,
        sanity_only: bool,
        max_bytes: int | None,
    ) -> None:
        self.deep = deep or parser is not None
        self.max_bytes = max_bytes
        self.parser = parser
        self.skip_metadata = skip_metadata
        self.verify_only = verify_only
        self.sanity_only = sanity_only


class ClassicDump:
    """Dumps files one after the other."""

    def __init__(self, console: Console, style: str, options: ClassicOptions) -> None:
        self.has_problem = False
        self._console = console
        self._is_28 = style == KAFKA_28
        self._style = style
        self._options = options
        self._pieces: list[str] = []
        self._piece_size = 0
        self._misfits = Misfits()
        self._shown: dict[str, str] = {}

    def show(self, path: str, progress: Progress | None = None, *, shown: str = "") -> None:
        """Dump one file; `shown` is its name, if `path` is a copy of it."""
        self._line(f"Dumping {java_path(shown or path)}")
        self._shown[path] = shown or path
        name = os.path.basename(path)
        suffix = name[name.rfind(".") :] if "." in name else ""
        base = _BASE_OFFSET.fullmatch(name.partition(".")[0])
        base_offset = int(base[0]) if base else 0
        try:
            if not suffix and shown not in {"", path}:  # Standard input, which Kafka's tool does not read.
                suffix, base_offset = recognized_kind(path) or "", base_offset_of(path)
            match suffix:
                case ".log":
                    self._log(path, base_offset, progress)
                case ".checkpoint" if not self._is_28:
                    self._log(path, base_offset, progress)
                case ".index":
                    self._offset_index(path, base_offset)
                case ".timeindex":
                    self._time_index(path, base_offset)
                case ".snapshot":
                    for entry in parse_snapshot(read_regular(path), path):
                        self._line(producer_text(entry, is_28=self._is_28))
                case ".txnindex":
                    for aborted in parse_transaction_index(read_regular(path), path):
                        self._line(
                            f"version: 0 producerId: {aborted.producer_id} firstOffset: {aborted.first_offset} "
                            f"lastOffset: {aborted.last_offset} lastStableOffset: {aborted.last_stable_offset}"
                        )
                case _:
                    self._write_line(f"Ignoring unknown file {java_path(shown or path)}")
        except CorruptLog as problem:
            self._complain(path, Problem(problem.reason, problem.position))
        except OSError as error:
            self._complain(path, Problem(error.strerror or str(error)))
        self._flush()

    def finish(self) -> None:
        """Write the lists of mismatches."""
        self._misfits.write(self._write_line)
        self.has_problem = self.has_problem or self._misfits.is_wrong

    # Logs

    def _log(self, path: str, base_offset: int, progress: Progress | None) -> None:
        self._line(_first_line(path, base_offset, is_28=self._is_28))
        file = open_file(path)
        try:
            end = file.size()
            gaps: list[tuple[int, int]] = []
            last_offset, covered = -1, 0
            for line in first_bytes(read_log(file, base_offset, 0, end, progress), self._options.max_bytes):
                if isinstance(line, Problem):
                    self._complain(path, line)
                    continue
                covered = line.header.end
                self._line(batch_text(line, is_28=self._is_28))
                if self._options.deep:
                    try:
                        last_offset = self._records(line, last_offset, gaps)
                    except CorruptBatch as problem:
                        if line.is_sound:
                            self._complain(path, Problem(problem.reason, line.header.position, line.header.size))
            if covered < end and self._options.max_bytes is None:
                self._line(f"Found {end - covered} invalid bytes at the end of {os.path.basename(path)}")
            if gaps:
                self._misfits.gaps[_absolute(path)] = gaps
        finally:
            file.close()

    def _records(self, line: BatchLine, last_offset: int, gaps: list[tuple[int, int]]) -> int:
        """Write the records of one batch; return the last offset.  Raises CorruptBatch."""
        header = line.header
        parser = None if header.is_control else self._options.parser
        shows_metadata = not self._options.skip_metadata
        stamp = timestamp_type(header)
        common = self._batch_text(line) if self._is_28 and shows_metadata else ""
        if header.magic >= 2 and shows_metadata and not header.is_control and parser in {None, as_text}:
            expected = write_records(
                line.region(),
                header,
                -1 if last_offset == -1 else last_offset + 1,
                gaps,
                self._add,
                LineFormat(self._is_28, stamp, common, with_contents=parser is not None),
            )
            return expected - 1
        checksums: Iterator[int] = inner_checksums(line) if header.magic < 2 else iter(())
        lines: list[str] = []
        try:
            for record in line.records():
                if last_offset not in {-1, record.offset - 1}:
                    gaps.append((last_offset, record.offset))
                last_offset = record.offset
                contents = "" if parser is None else _contents(*parser(record))
                if not shows_metadata:
                    lines.append(f"|{contents}\n" if contents.startswith(" key") else f"{contents}\n")
                elif header.magic < 2:
                    text = legacy_metadata(record, stamp, common, next(checksums, None), is_28=self._is_28)
                    if self._style == KAFKA_3:
                        text += "}"
                    lines.append(f"{text}{contents}\n")
                else:
                    if header.is_control:
                        contents = control_text(record, self._style)
                    lines.append(f"{self._metadata(header, record, stamp, common)}{contents}\n")
        finally:
            self._add("".join(lines))
        return last_offset

    def _batch_text(self, line: BatchLine) -> str:
        """Return the text about the batch that 2.8 repeats in the line of every record."""
        header = line.header
        base_offset = header.base_offset
        if header.magic < 2 and header.attributes & CODEC_MASK:
            base_offset = next((record.offset for record in line.records()), base_offset)
        return (
            f" baseOffset: {base_offset} lastOffset: {header.last_offset} baseSequence: {header.base_sequence}"
            f" lastSequence: {header.last_sequence} producerEpoch: {header.producer_epoch}"
            f" partitionLeaderEpoch: {header.leader_epoch} batchSize: {header.size} magic: {header.magic}"
            f" compressType: {codec_name(header, is_28=self._is_28)} position: {header.position}"
        )

    def _metadata(self, header: BatchHeader, record: Record, stamp: str, common: str) -> str:
        """Return the line of a record of magic 2, without its contents."""
        sequence = -1
        if header.base_sequence >= 0:
            sequence = (header.base_sequence - header.base_offset + record.offset) & SEQUENCE_MAX
        names = ",".join(name for name, _ in record.headers)
        key_size = -1 if record.key is None else len(record.key)
        value_size = -1 if record.value is None else len(record.value)
        end = f" sequence: {sequence} headerKeys: [{names}]"
        if self._is_28:
            return (
                f"| offset: {record.offset} isValid: true crc: null keySize: {key_size} valueSize: {value_size} "
                f"{stamp}: {record.timestamp}{common}{end}"
            )
        return f"| offset: {record.offset} {stamp}: {record.timestamp} keySize: {key_size} valueSize: {value_size}{end}"

    # Indexes

    def _offset_index(self, path: str, base_offset: int) -> None:
        log = self._log_of(path)
        try:
            if os.stat(path).st_size < OFFSET_ENTRY.size:
                self._line(f"{java_path(path)} is empty.")
                return
            if self._is_sanity_check(path, INDEX_SUFFIX):
                return
            mismatches: list[tuple[int, int]] = []
            for at, (relative, position) in entries(path, OFFSET_ENTRY):
                if relative == 0 and at:
                    break
                offset = base_offset + relative
                if log is not None and (at or relative or position or log.size):
                    try:
                        last_offset = log.header_at(position).last_offset
                        if last_offset != offset:
                            mismatches.append((offset, last_offset))
                    except CorruptBatch as problem:
                        self._complain(path, Problem(f"entry {offset} points to {position}: {problem.reason}", at))
                if not self._options.verify_only:
                    self._line(f"offset: {offset} position: {position}")
            if mismatches:
                self._misfits.offset_mismatches[_absolute(path)] = mismatches
        finally:
            if log is not None:
                log.close()

    def _time_index(self, path: str, base_offset: int) -> None:
        log = self._log_of(path)
        try:
            if self._is_sanity_check(path, TIME_INDEX_SUFFIX):
                return
            whole = _absolute(path)
            batches = log.batches(base_offset) if log is not None else iter(())
            batch = next(batches, None)
            before = -1
            for at, (timestamp, relative) in entries(path, TIME_ENTRY):
                if relative == 0 and at:
                    break
                offset = base_offset + relative
                while batch is not None and batch.header.last_offset < offset:
                    batch = next(batches, None)
                if log is None:
                    pass
                elif batch is None or batch.header.last_offset != offset:
                    found = -1 if batch is None else batch.header.last_offset
                    self._misfits.not_found.setdefault(whole, []).append((offset, found))
                else:
                    latest = _latest(batch)
                    if latest != timestamp:
                        self._misfits.time_mismatches.setdefault(whole, []).append((timestamp, latest))
                    if before >= timestamp:
                        self._misfits.out_of_order.setdefault(whole, []).append((timestamp, before))
                if not self._options.verify_only:
                    self._line(f"timestamp: {timestamp} offset: {offset}")
                before = timestamp
        finally:
            if log is not None:
                log.close()

    def _is_sanity_check(self, path: str, kind: str) -> bool:
        """Return whether only a sanity check was requested; if so, perform it."""
        if not self._options.sanity_only:
            return False
        reason = sanity_problem(path, kind)
        if reason is None:
            self._line(f"{java_path(path)} passed sanity check.")
        else:
            self._complain(path, Problem(reason))
        return True

    def _log_of(self, path: str) -> LogBeside | None:
        try:
            return LogBeside(path)
        except FileNotFoundError:
            self._complain(path, Problem("there is no log beside it"))
            return None

    # Writing

    def _line(self, text: str) -> None:
        self._add(text + "\n")

    def _add(self, text: str) -> None:
        self._pieces.append(text)
        self._piece_size += len(text)
        if self._piece_size >= _WRITE_SIZE:
            self._flush()

    def _flush(self) -> None:
        self._console.verbatim("".join(self._pieces))
        self._pieces.clear()
        self._piece_size = 0

    def _write_line(self, text: str) -> None:
        self._console.complain(text)

    def _complain(self, path: str, problem: Problem) -> None:
        self.has_problem = True
        at = "" if problem.position is None else f" at position {problem.position}"
        self._console.warn(f"{self._shown.get(path, path)}{at}: {problem.reason}")


def _first_line(path: str, base_offset: int, *, is_28: bool) -> str:
    """Return the line before the batches of a log or a KRaft snapshot."""
    name = os.path.basename(path)
    if name == BOOTSTRAP_CHECKPOINT:
        return "KRaft bootstrap snapshot"
    if (snapshot := parse_metadata_snapshot_name(name)) is not None:
        return f"Snapshot end offset: {snapshot[0]}, epoch: {snapshot[1]}"
    return f"Starting offset: {base_offset}" if is_28 else f"Log starting offset: {base_offset}"


def _contents(key: str | None, payload: str | None) -> str:
    """Return the end of a line with key and value."""
    return ("" if key is None else f" key: {key}") + ("" if payload is None else f" payload: {payload}")


def _latest(batch: BatchLine) -> int:
    """Return the largest timestamp of the records, as Kafka determines it; that of the header if the records are
    invalid.
    """
    try:
        return max((record.timestamp for record in batch.records()), default=-1)
    except CorruptBatch:
        return batch.header.max_timestamp


def _absolute(path: str) -> str:
    """File.getAbsolutePath, which keeps `.` and `..`."""
    return java_path(os.path.join(os.getcwd(), path))


KINDS = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, SNAPSHOT_SUFFIX, TRANSACTION_INDEX_SUFFIX)
"""The file types that Kafka's tool supports."""
